use grove_api::podgang::PodGangPhase;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSetStatus, PodGang, PodGangStatus};
use kube::ResourceExt;

use super::*;
use crate::conditions::{self, Finding, Status};
use crate::fixtures::{after, example, expand, settle, store};
use crate::gang::CREATE_POD_ERROR;
use crate::observed::{ObservedPod, Phase, Readiness};
use crate::update::{CliqueUpdate, set_update};

fn failure(description: &str) -> Failure {
    Failure {
        code: CREATE_POD_ERROR.into(),
        description: description.into(),
    }
}

#[test]
fn an_error_that_is_seen_again_is_no_news_and_a_clean_pass_clears_it() {
    let first = last_errors(&[], &[failure("quota")], after(1));
    assert_eq!(last_errors(&first, &[failure("quota")], after(9)), first);
    assert_eq!(
        last_errors(&first, &[failure("other")], after(9))[0].observed_at.0,
        after(9)
    );
    assert_eq!(last_errors(&first, &[], after(9)), []);
}

fn ready_pod(index: i32, hash: &str) -> ObservedPod {
    ObservedPod {
        name: format!("p{index}"),
        uid: format!("u{index}"),
        index: Some(index),
        template_hash: hash.into(),
        node: "n".into(),
        phase: Phase::Running,
        readiness: Readiness::Ready,
        ..ObservedPod::default()
    }
}

#[test]
fn a_cliques_status_counts_its_pods_and_knows_their_template() {
    let set = example().build();
    let (cliques, groups) = settle(&set);
    let look = |name: &str, pods: &[ObservedPod]| {
        expand(&set, (&cliques, &groups), |expansion| {
            let clique = expansion.live.clique(name).unwrap();
            clique_status(
                expansion,
                (clique, None),
                (pods, &CliqueUpdate::default()),
                &[],
                after(1),
            )
        })
    };
    let hash = cliques[0].labels()["grove.io/pod-template-hash"].clone();
    let status = look("a-0-fe", &[ready_pod(0, &hash)]);
    assert_eq!(
        (
            status.replicas,
            status.ready_replicas,
            status.scheduled_replicas,
            status.updated_replicas
        ),
        (1, 1, 1, 1)
    );
    assert_eq!(status.current_pod_template_hash.as_deref(), Some(hash.as_str()));
    assert!(status.current_pod_clique_set_generation_hash.is_some());
    let selector = "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=a,grove.io/podclique=a-0-fe";
    assert_eq!(status.hpa_pod_selector.as_deref(), Some(selector));

    let outdated = look("a-0-fe", &[ready_pod(0, "old")]);
    assert_eq!(
        (outdated.updated_replicas, outdated.current_pod_template_hash),
        (0, None)
    );
    assert_eq!(
        look("a-0-pf-0-pl", &[]).hpa_pod_selector,
        None,
        "a member does not scale by itself"
    );
}

#[test]
fn nobody_counts_to_a_number_that_nobody_means() {
    let set = example().replicas(i32::MAX).build();
    let none = (&[] as &[PodClique], &[] as &[PodCliqueScalingGroup]);
    expand(&set, none, |expansion| {
        assert_eq!(expansion.replicas().len(), 10_000);
        let update = set_update(expansion, after(1));
        let status = set_status(expansion, (&[] as &[PodGang], &update), &[], after(1));
        assert_eq!((status.replicas, status.available_replicas), (i32::MAX, 0));
    });
}

#[test]
fn a_sets_status_says_what_is_missing_and_keeps_others_conditions() {
    let mut set = example().build();
    let theirs = Finding {
        type_: "TopologyConstraints",
        status: Status::True,
        reason: "X",
        message: "y".into(),
    };
    let mut stored = PodCliqueSetStatus::default();
    conditions::put(&mut stored.conditions, theirs, None, after(0));
    set.status = Some(stored.clone());
    let (cliques, groups) = settle(&set);
    let status = expand(&set, (&cliques, &groups), |expansion| {
        let update = set_update(expansion, after(1));
        set_status(expansion, (&[] as &[PodGang], &update), &[], after(1))
    });
    assert_eq!(status.conditions[0], stored.conditions[0]);
    let ready = conditions::find(&status.conditions, "Ready").unwrap();
    let message = "0 of 1 replicas are available; replica 0: PodClique a-0-fe has 0 of 1 ready pods";
    assert_eq!((ready.status.as_str(), ready.message.as_str()), ("False", message));
    assert_eq!(
        (status.replicas, status.available_replicas, status.updated_replicas),
        (1, 0, 0)
    );
    assert_eq!(status.update_progress, None, "the first templates are no update");
}

#[test]
fn of_too_many_gangs_those_that_do_not_run_are_shown() {
    let set = example().build();
    let gang = |number: usize| {
        let mut gang = store(PodGang::new(&format!("g{number:05}"), Default::default()));
        gang.metadata.owner_references = Some(vec![crate::meta::owner_reference(&set)]);
        let phase = if number == GANGS_SHOWN_MAX {
            PodGangPhase::Pending
        } else {
            PodGangPhase::Running
        };
        let mut stored = PodGangStatus {
            phase,
            ..PodGangStatus::default()
        };
        for type_ in ["Initialized", "Scheduled", "Ready", "Unhealthy"] {
            let finding = Finding {
                type_,
                status: Status::False,
                reason: "AReasonOfSomeLength",
                message: "x".repeat(512),
            };
            conditions::put(&mut stored.conditions, finding, Some(1), after(0));
        }
        gang.status = Some(stored);
        gang
    };
    let gangs: Vec<PodGang> = (0..=5 * GANGS_SHOWN_MAX).map(gang).collect();
    let status = expand(&set, (&[], &[]), |expansion| {
        let update = set_update(expansion, after(1));
        set_status(expansion, (&gangs, &update), &[], after(1))
    });
    assert_eq!(status.pod_gang_statuses.len(), GANGS_SHOWN_MAX);
    assert_eq!(status.pod_gang_statuses.last().unwrap().phase, PodGangPhase::Pending);
    let size = serde_json::to_vec(&status).unwrap().len();
    assert!(size < 700_000, "{size} bytes");
}
