use grove_api::podclique::SelectedPods;
use grove_api::{PodClique, PodCliqueStatus};
use proptest::prelude::*;

use super::*;
use crate::fixtures::{after, podclique};
use crate::observed::{ObservedPod, Phase, Readiness};

fn pod(index: i32, hash: &str, readiness: Readiness) -> ObservedPod {
    ObservedPod {
        name: format!("p{index}"),
        uid: format!("u{index}"),
        index: Some(index),
        template_hash: hash.into(),
        node: "n".into(),
        phase: Phase::Running,
        readiness,
        created_at: after(i64::from(index)),
        ..ObservedPod::default()
    }
}

fn sized(replicas: i32, min: i32) -> PodClique {
    let mut clique = podclique("c", replicas, "new");
    clique.spec.min_available = Some(min);
    clique
}

fn deleted(update: &CliqueUpdate) -> Vec<&str> {
    update.delete.iter().map(|victim| victim.name.as_str()).collect()
}

/// The decision for a clique that remembers the progress of the last one.
fn next(clique: &mut PodClique, pods: &[ObservedPod], seconds: i64) -> CliqueUpdate {
    let update = clique_update(clique, pods, "g2", Turn::Everything, after(seconds));
    clique.status = Some(PodCliqueStatus {
        update_progress: update.progress.clone(),
        ..PodCliqueStatus::default()
    });
    update
}

#[test]
fn how_many_may_be_missing() {
    let cases = [
        (3, 2, 3, true, "one above the minimum"),
        (2, 2, 3, false, "at the minimum, and one is missing already"),
        (2, 2, 2, true, "all are needed, and all are there"),
        (1, 2, 2, false, "one is missing already"),
        (0, 0, 0, true, "nothing is needed"),
    ];
    for (ready, minimum, replicas, allowed, case) in cases {
        assert_eq!(may_take_one(ready, minimum, replicas), allowed, "{case}");
    }
}

#[test]
fn what_is_broken_goes_at_once_and_what_is_ready_one_by_one() {
    let mut clique = sized(4, 1);
    let old = |index, readiness| pod(index, "old", readiness);
    let pods = [
        old(0, Readiness::Ready),
        old(1, Readiness::Crashed),
        old(2, Readiness::Starting),
        old(3, Readiness::Ready),
    ];
    let update = next(&mut clique, &pods, 1);
    assert_eq!(deleted(&update), ["p1", "p2", "p0"], "the oldest of the ready ones");
    let progress = update.progress.clone().unwrap();
    let selected = SelectedPods {
        current: "p0".into(),
        completed: vec![],
    };
    assert_eq!(progress.ready_pods_selected_to_update, Some(selected));
    assert_eq!(
        (
            progress.pod_template_hash.as_str(),
            progress.pod_clique_set_generation_hash.as_str()
        ),
        ("new", "g2")
    );

    // A restart before the delete repeats it; afterwards the next one waits until a new pod is ready.
    assert_eq!(deleted(&next(&mut clique, &pods, 2)), ["p1", "p2", "p0"]);
    let starting = [pod(4, "new", Readiness::Starting), old(3, Readiness::Ready)];
    assert_eq!(deleted(&next(&mut clique, &starting, 3)), Vec::<&str>::new());
    let replaced = [
        pod(4, "new", Readiness::Ready),
        pod(5, "new", Readiness::Ready),
        old(3, Readiness::Ready),
    ];
    let update = next(&mut clique, &replaced, 4);
    assert_eq!(deleted(&update), ["p3"]);
    let selected = SelectedPods {
        current: "p3".into(),
        completed: vec!["p0".into()],
    };
    assert_eq!(update.progress.unwrap().ready_pods_selected_to_update, Some(selected));
}

#[test]
fn out_of_turn_only_what_is_broken_goes() {
    let clique = sized(2, 1);
    let pods = [pod(0, "old", Readiness::Ready), pod(1, "old", Readiness::Crashed)];
    let update = clique_update(&clique, &pods, "g", Turn::Broken, after(1));
    assert_eq!(deleted(&update), ["p1"]);
    assert_eq!(update.progress.unwrap().ready_pods_selected_to_update, None);
}

#[test]
fn a_new_template_in_the_middle_begins_anew() {
    let mut clique = sized(2, 2);
    let pods = [pod(0, "old", Readiness::Ready), pod(1, "old", Readiness::Ready)];
    assert_eq!(
        next(&mut clique, &pods, 1).progress.unwrap().update_started_at.0,
        after(1)
    );
    clique.metadata.labels = podclique("c", 2, "newer").metadata.labels;
    // The pod of the template in between is not ready: it goes at once.
    let pods = [pod(2, "new", Readiness::Crashed), pod(1, "old", Readiness::Ready)];
    let update = next(&mut clique, &pods, 9);
    assert_eq!(deleted(&update), ["p2"]);
    let progress = update.progress.unwrap();
    assert_eq!(
        (progress.update_started_at.0, progress.pod_template_hash.as_str()),
        (after(9), "newer")
    );
}

#[test]
fn an_update_ends_when_new_pods_are_ready_and_never_before() {
    let mut clique = sized(2, 2);
    next(
        &mut clique,
        &[pod(0, "old", Readiness::Ready), pod(1, "old", Readiness::Ready)],
        1,
    );
    let missing = next(&mut clique, &[pod(2, "new", Readiness::Ready)], 2);
    assert!(missing.is_active());
    let starting = [pod(2, "new", Readiness::Ready), pod(3, "new", Readiness::Starting)];
    assert!(next(&mut clique, &starting, 3).is_active());
    let done = [pod(2, "new", Readiness::Ready), pod(3, "new", Readiness::Ready)];
    let update = next(&mut clique, &done, 4);
    assert_eq!(update.progress.clone().unwrap().update_ended_at.unwrap().0, after(4));
    assert_eq!(next(&mut clique, &done, 99), update, "and keeps its end");
}

#[test]
fn without_a_turn_and_for_new_cliques_nothing_happens() {
    let clique = sized(2, 2);
    let old = [pod(0, "old", Readiness::Crashed)];
    assert_eq!(
        clique_update(&clique, &old, "g", Turn::Nothing, after(1)),
        CliqueUpdate::default()
    );
    let born_current = [pod(0, "new", Readiness::Starting)];
    assert_eq!(
        clique_update(&clique, &born_current, "g", Turn::Everything, after(1)),
        CliqueUpdate::default()
    );
}

proptest! {
    /// Whatever state the pods are in, an update takes at most one ready pod at a time, and none that the minimum needs
    /// unless all are needed.
    #[test]
    fn the_minimum_is_never_broken(
        states in prop::collection::vec((any::<bool>(), 0usize..4), 0..8),
        min in 1..5,
        surplus in 0..4,
    ) {
        let readiness = [Readiness::Ready, Readiness::Starting, Readiness::Crashed, Readiness::Ready];
        let pods: Vec<ObservedPod> = states
            .iter()
            .enumerate()
            .map(|(index, (new, state))| pod(index as i32, if *new { "new" } else { "old" }, readiness[*state]))
            .collect();
        let clique = sized(min + surplus, min);
        let update = clique_update(&clique, &pods, "g", Turn::Everything, after(1));
        let ready = pods.iter().filter(|pod| pod.is_ready()).count() as i32;
        let names = deleted(&update);
        let taken = pods.iter().filter(|pod| pod.is_ready() && names.contains(&pod.name.as_str())).count() as i32;
        prop_assert!(taken <= 1);
        prop_assert!(taken == 0 || ready - taken >= min || (surplus == 0 && ready == min));
        prop_assert!(update.delete.iter().all(|victim| !states[victim.name[1..].parse::<usize>().unwrap()].0));
    }
}
