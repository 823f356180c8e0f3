use grove_api::PodCliqueStatus;
use grove_api::status::LastError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::fixtures::{after, podclique};
use crate::observed::{Phase, Readiness};

fn gang(groups: &[(&str, i32)]) -> PodGang {
    let mut gang = PodGang::new("g", Default::default());
    gang.metadata.namespace = Some("ns".into());
    let group = |(name, min): &(&str, i32)| PodGroup {
        name: (*name).into(),
        min_replicas: *min,
        ..PodGroup::default()
    };
    gang.spec.pod_groups = groups.iter().map(group).collect();
    gang
}

fn pods(count: i32) -> Vec<ObservedPod> {
    let pod = |index| ObservedPod {
        name: format!("p{index}"),
        uid: format!("u{index}"),
        index: Some(index),
        gang: "g".into(),
        is_gated: true,
        ..ObservedPod::default()
    };
    (0..count).map(pod).collect()
}

fn placed(mut pods: Vec<ObservedPod>, ready: bool) -> Vec<ObservedPod> {
    for pod in &mut pods {
        pod.node = "n".into();
        pod.phase = Phase::Running;
        pod.is_gated = false;
        pod.readiness = if ready { Readiness::Ready } else { Readiness::Starting };
    }
    pods
}

fn members<'a>(clique: &'a PodClique, pods: &'a [ObservedPod]) -> Members<'a> {
    BTreeMap::from([(clique.metadata.name.as_deref().unwrap(), Member { clique, pods })])
}

fn listed(gang: &PodGang) -> Vec<&str> {
    gang.spec.pod_groups[0]
        .pod_references
        .iter()
        .map(|pod| pod.name.as_str())
        .collect()
}

#[test]
fn pods_are_listed_once_all_exist() {
    let clique = podclique("c", 3, "h");
    let mut early = gang(&[("c", 2)]);
    fill_references(&mut early, None, &members(&clique, &pods(2)));
    assert_eq!(
        listed(&early),
        Vec::<&str>::new(),
        "the minimum exists, but more is coming"
    );
    let mut complete = gang(&[("c", 2)]);
    fill_references(&mut complete, None, &members(&clique, &pods(3)));
    assert_eq!(listed(&complete), ["p0", "p1", "p2"]);
    assert_eq!(complete.spec.pod_groups[0].pod_references[0].namespace, "ns");
}

#[test]
fn a_stalled_creation_lists_what_exists_above_the_minimum_only() {
    let mut clique = podclique("c", 3, "h");
    let error = LastError {
        code: CREATE_POD_ERROR.into(),
        description: "quota".into(),
        observed_at: Time(after(0)),
    };
    clique.status = Some(PodCliqueStatus {
        last_errors: vec![error],
        ..PodCliqueStatus::default()
    });
    for (existing, expected) in [(1, 0), (2, 2)] {
        let mut gang = gang(&[("c", 2)]);
        fill_references(&mut gang, None, &members(&clique, &pods(existing)));
        assert_eq!(listed(&gang).len(), expected);
    }
}

#[test]
fn references_stay_while_a_pod_is_replaced() {
    let clique = podclique("c", 2, "h");
    let mut stored = gang(&[("c", 2)]);
    fill_references(&mut stored, None, &members(&clique, &pods(2)));
    let mut gap = gang(&[("c", 2)]);
    fill_references(&mut gap, Some(&stored), &members(&clique, &pods(1)));
    assert_eq!(listed(&gap), ["p0", "p1"]);
    // Pods of another gang, and pods on their way out, are not listed.
    let mut others = pods(4);
    others[0].gang = "other".into();
    others[1].is_terminating = true;
    let mut replaced = gang(&[("c", 2)]);
    fill_references(&mut replaced, Some(&stored), &members(&clique, &others));
    assert_eq!(listed(&replaced), ["p2", "p3"]);
}

#[test]
fn a_gang_with_a_missing_clique_lists_nothing() {
    let clique = podclique("c", 1, "h");
    let mut gang = gang(&[("c", 1), ("d", 1)]);
    fill_references(&mut gang, None, &members(&clique, &pods(1)));
    assert_eq!(listed(&gang).len(), 0);
}

#[test]
fn gates_come_off_pods_that_are_listed() {
    let clique = podclique("c", 2, "h");
    let all = pods(3);
    let mut gang = gang(&[("c", 2)]);
    fill_references(&mut gang, None, &members(&clique, &all[..2]));
    let names = |pods: Vec<&ObservedPod>| pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        names(ungated(
            Member {
                clique: &clique,
                pods: &all
            },
            &gang,
            false
        )),
        ["p0", "p1"]
    );
    let free = placed(all.clone(), true);
    assert!(
        ungated(
            Member {
                clique: &clique,
                pods: &free
            },
            &gang,
            false
        )
        .is_empty(),
        "nothing is left to do"
    );
}

#[test]
fn a_scaled_gang_waits_for_its_base() {
    let mut scaled = podclique("c", 1, "h");
    scaled.labels_mut().insert(labels::BASE_PODGANG.into(), "base".into());
    let all = pods(1);
    let mut gang = gang(&[("c", 1)]);
    fill_references(&mut gang, None, &members(&scaled, &all));
    let member = Member {
        clique: &scaled,
        pods: &all,
    };
    assert!(ungated(member, &gang, false).is_empty());
    assert_eq!(ungated(member, &gang, true).len(), 1);
}

#[test]
fn a_base_gang_is_scheduled_when_each_minimum_has_nodes() {
    let base = gang(&[("c", 2)]);
    let mut clique = podclique("c", 3, "h");
    assert!(!is_scheduled(&base, |_| None), "the clique does not exist");
    assert!(!is_scheduled(&base, |_| Some(&clique)), "nobody has looked yet");
    clique.status = Some(PodCliqueStatus {
        scheduled_replicas: 2,
        ..PodCliqueStatus::default()
    });
    assert!(is_scheduled(&base, |_| Some(&clique)));
    let mut leaving = clique.clone();
    leaving.metadata.deletion_timestamp = Some(Time(after(0)));
    assert!(!is_scheduled(&base, |_| Some(&leaving)));
}

/// The status that follows from pods, given the status before.
fn next(gang: &mut PodGang, clique: &PodClique, pods: &[ObservedPod], seconds: i64) -> (PodGangPhase, String, String) {
    let status = status(gang, &members(clique, pods), after(seconds));
    let of = |type_| conditions::find(&status.conditions, type_).unwrap().status.clone();
    let summary = (status.phase, of(condition::INITIALIZED), of(condition::READY));
    gang.status = Some(status);
    summary
}

#[test]
fn the_phase_follows_the_pods_and_others_conditions_stay() {
    let clique = podclique("c", 2, "h");
    let mut gang = gang(&[("c", 2)]);
    let theirs = Finding {
        type_: condition::SCHEDULED,
        status: Status::False,
        reason: "Fragmented",
        message: "x".into(),
    };
    let mut before = PodGangStatus {
        placement_score: Some(0.5),
        ..PodGangStatus::default()
    };
    conditions::put(&mut before.conditions, theirs, Some(1), after(0));
    gang.status = Some(before.clone());
    let summary = |phase, initialized: &str, ready: &str| (phase, initialized.to_owned(), ready.to_owned());

    assert_eq!(
        next(&mut gang, &clique, &pods(1), 1),
        summary(PodGangPhase::Pending, "False", "False")
    );
    assert_eq!(
        next(&mut gang, &clique, &pods(2), 2),
        summary(PodGangPhase::Pending, "False", "False"),
        "not listed"
    );
    fill_references(&mut gang, None, &members(&clique, &pods(2)));
    assert_eq!(
        next(&mut gang, &clique, &pods(2), 3),
        summary(PodGangPhase::Pending, "True", "False")
    );
    let starting = placed(pods(2), false);
    assert_eq!(
        next(&mut gang, &clique, &starting, 4),
        summary(PodGangPhase::Starting, "True", "False")
    );
    let running = placed(pods(2), true);
    assert_eq!(
        next(&mut gang, &clique, &running, 5),
        summary(PodGangPhase::Running, "True", "True")
    );
    // A lost pod is replaced; a gang that is torn down begins anew.
    assert_eq!(
        next(&mut gang, &clique, &running[..1], 6),
        summary(PodGangPhase::Pending, "True", "False")
    );
    assert_eq!(
        next(&mut gang, &clique, &[], 7),
        summary(PodGangPhase::Pending, "False", "False")
    );

    let status = gang.status.clone().unwrap();
    assert_eq!(
        conditions::find(&status.conditions, condition::SCHEDULED),
        before.conditions.first()
    );
    assert_eq!(status.placement_score, Some(0.5));
}

#[test]
fn where_nobody_else_says_so_the_pods_tell_whether_the_gang_is_scheduled() {
    let clique = podclique("c", 2, "h");
    let gang = gang(&[("c", 2)]);
    let told = |pods: &[ObservedPod]| {
        let mut status = PodGangStatus::default();
        put_scheduled(&mut status, &gang, &members(&clique, pods), after(1));
        let found = conditions::find(&status.conditions, condition::SCHEDULED).unwrap();
        (found.status.clone(), found.message.clone())
    };
    let waits = |message: &str| ("False".to_owned(), message.to_owned());
    assert_eq!(told(&pods(2)), waits("PodClique c has 0 of 2 pods on nodes"));
    let placed = placed(pods(2), false);
    assert_eq!(told(&placed[..1]), waits("PodClique c has 1 of 2 pods on nodes"));
    assert_eq!(told(&placed).0, "True");
}

#[test]
fn nothing_changes_when_nothing_changed() {
    let clique = podclique("c", 2, "h");
    let mut gang = gang(&[("c", 2)]);
    next(&mut gang, &clique, &pods(2), 1);
    let first = gang.status.clone();
    next(&mut gang, &clique, &pods(2), 99);
    assert_eq!(gang.status, first);
}
