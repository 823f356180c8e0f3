//! GT1–GT6. Pod UIDs are the evidence.

use std::collections::BTreeSet;

use grove_api::PodCliqueScalingGroup;
use grove_api::conditions::scaling_group::GANG_TERMINATION_IN_PROGRESS;

use super::{Floor, Minimum, all, apart, cordon, counts, holds, lose, recovers, uids};

/// How many pods are the same as before.
async fn kept(floor: &impl Floor, prefix: &str, before: &BTreeSet<String>) -> usize {
    uids(floor, prefix).await.intersection(before).count()
}

/// How many pods of the group's two replicas and of the standalone clique are the same as before.
async fn kept_of_parts(floor: &impl Floor, before: &BTreeSet<String>) -> [usize; 3] {
    let [first, second, alone] = ["w-0-sg-x-0", "w-0-sg-x-1", "w-0-pc-a"].map(|prefix| kept(floor, prefix, before));
    [first.await, second.await, alone.await]
}

/// Loses a pod and sees that nothing but that happens, before the delay.
async fn loses_one<F: Floor>(floor: &F, clique: &str, before: &BTreeSet<String>) -> String {
    let place = lose(floor, clique).await;
    let waits = async |floor: &F| counts(floor).await == (9, 1) && kept(floor, "w-0", before).await == 9;
    floor.eventually("the pod in its stead waits", waits).await;
    place
}

/// Sees that all pods are new and wait, and go on to wait.
async fn is_recycled<F: Floor>(floor: &F, before: &BTreeSet<String>) {
    let is_new = async |floor: &F| kept(floor, "w-0", before).await == 0 && uids(floor, "w-0").await.len() == 10;
    floor.eventually("all pods are new", is_new).await;
    holds(floor, (0, 10)).await;
}

/// Loses so many pods of a clique, one after the other.
async fn loses<F: Floor>(floor: &F, clique: &str, pods: usize) {
    for _ in 0..pods {
        lose(floor, clique).await;
    }
}

async fn parts_become<F: Floor>(floor: &F, before: &BTreeSet<String>, expected: [usize; 3]) {
    let what = format!("{expected:?} of the group's replicas and of pc-a are kept");
    let is_so = async |floor: &F| kept_of_parts(floor, before).await == expected;
    floor.eventually(&what, is_so).await;
    floor.settle().await;
    assert_eq!(kept_of_parts(floor, before).await, expected);
}

pub async fn gt1_a_lost_pod_recycles_the_whole_replica_after_the_delay<F: Floor>(floor: &F) {
    apart(floor, Minimum::All, 10).await;
    let before = uids(floor, "w-0").await;
    let place = loses_one(floor, "w-0-pc-a", &before).await;
    is_recycled(floor, &before).await;
    // Waiting for a place is no reason to recycle again.
    let waiting = uids(floor, "w-0").await;
    floor.outlast().await;
    assert_eq!(uids(floor, "w-0").await, waiting);
    cordon(floor, &place, false).await;
    holds(floor, (10, 0)).await;
    let is_over = async |floor: &F| {
        let group = all::<PodCliqueScalingGroup>(floor).get("w-0-sg-x").await.unwrap();
        let conditions = group.status.unwrap_or_default().conditions;
        let mut flags = conditions
            .iter()
            .filter(|flag| flag.type_ == GANG_TERMINATION_IN_PROGRESS);
        flags.all(|flag| flag.status != "True")
    };
    floor.eventually("the episode is over", is_over).await;
}

pub async fn gt2_a_lost_pod_of_a_group_at_its_minimum_recycles_the_replica(floor: &impl Floor) {
    apart(floor, Minimum::All, 10).await;
    let before = uids(floor, "w-0").await;
    let place = loses_one(floor, "w-0-sg-x-0-pc-c", &before).await;
    is_recycled(floor, &before).await;
    cordon(floor, &place, false).await;
    holds(floor, (10, 0)).await;
}

pub async fn gt3_a_loss_above_the_minimum_is_tolerated<F: Floor>(floor: &F) {
    apart(floor, Minimum::One, 10).await;
    let before = uids(floor, "w-0").await;
    loses_one(floor, "w-0-pc-a", &before).await;
    floor.outlast().await;
    assert_eq!(kept(floor, "w-0", &before).await, 9);
    lose(floor, "w-0-pc-a").await;
    let is_new = async |floor: &F| kept(floor, "w-0", &before).await == 0;
    floor.eventually("all pods are new", is_new).await;
    recovers(floor).await;
}

pub async fn gt4_a_group_recycles_one_replica_and_the_set_when_none_is_left<F: Floor>(floor: &F) {
    apart(floor, Minimum::One, 10).await;
    let before = uids(floor, "w-0").await;
    loses(floor, "w-0-sg-x-0-pc-c", 3).await;
    parts_become(floor, &before, [0, 4, 2]).await;
    loses(floor, "w-0-sg-x-1-pc-c", 3).await;
    let is_new = async |floor: &F| kept(floor, "w-0", &before).await == 0;
    floor.eventually("all pods are new", is_new).await;
    recovers(floor).await;
}

pub async fn gt5_a_lost_pod_recycles_only_its_replica_of_the_group(floor: &impl Floor) {
    apart(floor, Minimum::AllOfC, 10).await;
    let before = uids(floor, "w-0").await;
    loses_one(floor, "w-0-sg-x-0-pc-c", &before).await;
    parts_become(floor, &before, [0, 4, 2]).await;
    recovers(floor).await;
    assert_eq!(kept(floor, "w-0", &before).await, 6);
}

pub async fn gt6_a_lost_pod_of_a_scaled_gang_is_just_replaced<F: Floor>(floor: &F) {
    apart(floor, Minimum::One, 11).await;
    let before = uids(floor, "w-0").await;
    lose(floor, "w-0-sg-x-1-pc-c").await;
    let is_replaced = async |floor: &F| counts(floor).await == (10, 0) && kept(floor, "w-0", &before).await == 9;
    floor.eventually("another one runs in its stead", is_replaced).await;
    floor.outlast().await;
    assert_eq!((counts(floor).await, kept(floor, "w-0", &before).await), ((10, 0), 9));
}
