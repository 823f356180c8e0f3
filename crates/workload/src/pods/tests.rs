use proptest::prelude::*;

use super::*;
use crate::fixtures::{after, podclique};
use crate::observed::Phase;

fn pod(index: i32) -> ObservedPod {
    ObservedPod {
        name: format!("p{index}"),
        uid: format!("u{index}"),
        index: Some(index),
        template_hash: "new".into(),
        node: "n".into(),
        phase: Phase::Running,
        readiness: Readiness::Ready,
        created_at: after(i64::from(index)),
        ..ObservedPod::default()
    }
}

fn indices(plan: &PodPlan) -> Vec<i32> {
    plan.create.iter().map(|new| new.index).collect()
}

fn deleted(plan: &PodPlan) -> Vec<(&str, VictimReason)> {
    plan.delete
        .iter()
        .map(|victim| (victim.name.as_str(), victim.reason))
        .collect()
}

#[test]
fn new_pods_fill_the_lowest_free_indices() {
    let plan = plan(&podclique("c", 4, "new"), &[pod(1), pod(4)]);
    assert_eq!(indices(&plan), [0, 2]);
    assert_eq!(plan.delete, []);
}

#[test]
fn a_pod_that_is_leaving_neither_counts_nor_keeps_its_index() {
    let leaving = ObservedPod {
        is_terminating: true,
        ..pod(0)
    };
    let clique = podclique("c", 2, "new");
    let replacement = plan(&clique, &[leaving.clone(), pod(1)]);
    assert_eq!(indices(&replacement), [0]);
    assert_eq!(replacement.delete, [], "it is on its way already");
    // The same again after a lost answer; another name once a second pod is stuck at the same index.
    assert_eq!(plan(&clique, &[leaving.clone(), pod(1)]), replacement);
    let stuck = ObservedPod {
        uid: "u9".into(),
        name: "p9".into(),
        ..leaving.clone()
    };
    assert_ne!(plan(&clique, &[leaving, stuck, pod(1)]).create, replacement.create);
}

#[test]
fn ended_pods_are_replaced_at_once() {
    let ended = ObservedPod {
        phase: Phase::Failed,
        ..pod(1)
    };
    let plan = plan(&podclique("c", 2, "new"), &[pod(0), ended]);
    assert_eq!(deleted(&plan), [("p1", VictimReason::Finished)]);
    assert_eq!(indices(&plan), [1]);
}

#[test]
fn victims_go_in_order() {
    let unassigned = ObservedPod {
        node: String::new(),
        phase: Phase::Pending,
        readiness: Readiness::Starting,
        ..pod(0)
    };
    let pending = ObservedPod {
        phase: Phase::Pending,
        readiness: Readiness::Starting,
        ..pod(1)
    };
    let unknown = ObservedPod {
        phase: Phase::Unknown,
        readiness: Readiness::Lost,
        ..pod(2)
    };
    let unready = ObservedPod {
        readiness: Readiness::Starting,
        ..pod(3)
    };
    let outdated = ObservedPod {
        template_hash: "old".into(),
        ..pod(4)
    };
    let newest = pod(6);
    let oldest = pod(5);
    let pods = [oldest, newest, outdated, unready, unknown, pending, unassigned];
    for replicas in 0..=7 {
        let plan = plan(&podclique("c", replicas, "new"), &pods);
        let order: Vec<&str> = plan.delete.iter().map(|victim| victim.name.as_str()).collect();
        assert_eq!(
            order,
            ["p0", "p1", "p2", "p3", "p4", "p6", "p5"][..7 - replicas as usize]
        );
    }
}

#[test]
fn of_two_pods_with_one_index_the_better_stays() {
    let twin = ObservedPod {
        name: "twin".into(),
        uid: "t".into(),
        readiness: Readiness::Starting,
        ..pod(0)
    };
    let nameless = ObservedPod {
        name: "x".into(),
        uid: "x".into(),
        index: None,
        ..pod(1)
    };
    let plan = plan(&podclique("c", 2, "new"), &[twin, pod(0), nameless, pod(1)]);
    assert_eq!(
        deleted(&plan),
        [("x", VictimReason::NoIndex), ("twin", VictimReason::NoIndex)]
    );
    assert_eq!(plan.create, []);
}

#[test]
fn a_clique_that_is_being_deleted_makes_no_pods() {
    let mut clique = podclique("c", 2, "new");
    clique.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(after(0)));
    assert_eq!(plan(&clique, &[pod(0)]), PodPlan::default());
}

#[test]
fn absurd_numbers_are_bounded() {
    assert_eq!(plan(&podclique("c", i32::MIN, "new"), &[pod(0)]).delete.len(), 1);
    assert_eq!(
        plan(&podclique("c", i32::MAX, "new"), &[]).create.len(),
        GANG_PODS_MAX as usize
    );
}

fn any_pod() -> impl Strategy<Value = ObservedPod> {
    (0..6, 0..40, any::<bool>(), 0usize..5, any::<bool>(), any::<bool>()).prop_map(
        |(index, id, gone, phase, node, hash)| ObservedPod {
            name: format!("p{id}"),
            uid: format!("u{id}"),
            is_terminating: gone,
            phase: [
                Phase::Pending,
                Phase::Running,
                Phase::Failed,
                Phase::Unknown,
                Phase::Running,
            ][phase],
            node: if node { "n".into() } else { String::new() },
            template_hash: if hash { "new".into() } else { "old".into() },
            ..pod(index)
        },
    )
}

proptest! {
    /// Carrying a plan out leaves nothing to do, whatever was there before.
    #[test]
    fn one_pass_is_enough(pods in prop::collection::vec(any_pod(), 0..12), replicas in 0..8) {
        let mut pods = pods;
        pods.sort_by(|a, b| a.uid.cmp(&b.uid));
        pods.dedup_by(|a, b| a.uid == b.uid);
        let clique = podclique("c", replicas, "new");
        let first = plan(&clique, &pods);
        prop_assert_eq!(&first, &plan(&clique, &pods), "the same again");
        for victim in &first.delete {
            for pod in pods.iter_mut().filter(|pod| pod.uid == victim.uid) {
                prop_assert!(!pod.is_terminating);
                pod.is_terminating = true;
            }
        }
        for new in &first.create {
            prop_assert!(pods.iter().all(|pod| pod.name != new.name));
            pods.push(ObservedPod { name: new.name.clone(), uid: new.name.clone(), ..pod(new.index) });
        }
        prop_assert_eq!(plan(&clique, &pods), PodPlan::default());
        let mut live: Vec<Option<i32>> = pods.iter().filter(|pod| pod.is_live()).map(|pod| pod.index).collect();
        prop_assert_eq!(live.len() as i32, replicas);
        live.sort();
        live.dedup();
        prop_assert_eq!(live.len() as i32, replicas);
    }
}
