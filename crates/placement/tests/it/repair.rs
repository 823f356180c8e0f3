//! A gang that lost pods: the bound ones hold its scopes, the missing ones return to them, and a scope widens only where
//! nothing required forbids it.

use grove_placement::bench::Instance;
use grove_placement::{Assignment, Budget, Gang, NodeId, Outcome, Reason, Solver, Standing, explain, report};

/// Places a gang of 8-GPU pods, commits it, and loses its first pod.
fn with_a_lost_pod(required: Option<&str>, preferred: Option<&str>) -> (Instance, Gang) {
    let mut instance = Instance::new(1_024);
    let shape = instance.shape(8, 0);
    let mut gang = instance.gang(required, preferred, 4, shape);
    let placed = place(&mut instance, &gang).expect("four hosts of a rack are free");
    instance
        .cluster
        .commit(&placed)
        .expect("a plan that was just made fits");
    instance.cluster.release(&placed[..1]);
    gang.pod_groups[0].bound = placed[1..].iter().map(|assignment| assignment.node).collect();
    (instance, gang)
}

fn place(instance: &mut Instance, gang: &Gang) -> Option<Vec<Assignment>> {
    match Solver::new().solve(&mut instance.cluster, gang, Budget::default()) {
        Outcome::Placed(plan) => Some(plan.assignments.clone()),
        _ => None,
    }
}

/// Takes all that is free in the rack of the gang's bound pods.
fn fill_rack_of(instance: &mut Instance, gang: &Gang) {
    let mut filler = gang.clone();
    filler.pack.required = Some("rack".to_owned());
    while let Some(placed) = place(instance, &filler) {
        instance
            .cluster
            .commit(&placed)
            .expect("a plan that was just made fits");
    }
}

fn racks(instance: &Instance, gang: &Gang, nodes: Vec<NodeId>) -> usize {
    let mut gang = gang.clone();
    gang.pod_groups[0].bound = nodes;
    report(&instance.cluster, &gang, &[])[0].domains[1].1.len()
}

#[test]
fn a_replacement_returns_to_the_rack_of_its_gang() {
    for (required, preferred) in [
        (Some("rack"), None),
        (Some("block"), Some("rack")),
        (None, Some("rack")),
    ] {
        let (mut instance, gang) = with_a_lost_pod(required, preferred);
        let placed = place(&mut instance, &gang).expect("the rack has a free host left");
        assert_eq!(placed.iter().map(|assignment| assignment.pods).sum::<u32>(), 1);
        let mut nodes = gang.pod_groups[0].bound.clone();
        nodes.push(placed[0].node);
        assert_eq!(racks(&instance, &gang, nodes), 1);
    }
}

// shows: G244-72
#[test]
fn a_required_rack_that_is_full_is_waited_for() {
    let (mut instance, gang) = with_a_lost_pod(Some("rack"), None);
    fill_rack_of(&mut instance, &gang);
    assert_eq!(place(&mut instance, &gang), None);
    let proof = explain(&instance.cluster, &gang).expect("it does not fit");
    assert_eq!(proof.reason, Reason::ReplicaPinned);
}

// shows: G244-73, V2-40, V3-76
#[test]
fn a_preferred_rack_that_is_full_widens_to_its_block() {
    let (mut instance, gang) = with_a_lost_pod(Some("block"), Some("rack"));
    fill_rack_of(&mut instance, &gang);
    let placed = place(&mut instance, &gang).expect("the block has room");
    let scopes = report(&instance.cluster, &gang, &placed);
    assert_eq!(scopes[0].standing, Standing::Missed);
    assert_eq!(scopes[0].domains[0].1.len(), 1, "one block");
    assert_eq!(scopes[0].domains[1].1.len(), 2, "two racks");
}

#[test]
fn bound_pods_that_break_a_level_pin_nothing() {
    let (mut instance, mut gang) = with_a_lost_pod(Some("rack"), None);
    gang.pod_groups[0].bound[0] = instance.cluster.node("n000000").expect("a node of the instance");
    assert_eq!(racks(&instance, &gang, gang.pod_groups[0].bound.clone()), 2);
    gang.pod_groups[0].minimum = 6;
    let placed = place(&mut instance, &gang).expect("the missing ones share some rack");
    assert_eq!(placed.len(), 3);
    assert_eq!(
        racks(
            &instance,
            &gang,
            placed.iter().map(|assignment| assignment.node).collect()
        ),
        1
    );
}
