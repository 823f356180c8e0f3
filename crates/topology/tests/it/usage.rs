use grove_api::labels::finalizer;
use grove_topology::TopologyKind;
use grove_topology::usage::{FinalizerStep, Usage, cluster_topology_finalizer, topology_domain_finalizer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::fixtures::{Author, at, cluster_topology, disabled, enabled, from_domain, packed, set, topology_domain};

fn held(metadata: &mut ObjectMeta, finalizer: &str) {
    metadata.finalizers = Some(vec![finalizer.to_owned()]);
}

fn deleted(metadata: &mut ObjectMeta) {
    metadata.deletion_timestamp = Some(at(0));
}

// shows: G244-78
#[test]
fn g244_usage_overview_lists_sets_by_topology_default_included() {
    let sets = [
        set("inference-mixtral").named("gb200-topology").replica(packed("rack")),
        set("inference-llama-405b")
            .named("gb200-topology")
            .replica(packed("rack")),
        set("inference-llama-70b").clique("w", packed("rack")),
        set("unconstrained"),
    ];
    let usage = Usage::of(&sets, &enabled("").source);
    let lines: Vec<String> = usage
        .iter()
        .flat_map(|(_, name, users)| {
            users.iter().map(move |user| {
                let default = if user.is_default { " (default)" } else { "" };
                format!("{name}{default} {}/{}", user.set.namespace, user.set.name)
            })
        })
        .collect();
    assert_eq!(
        lines,
        [
            "gb200-topology ml/inference-llama-405b",
            "gb200-topology ml/inference-mixtral",
            "grove-topology (default) ml/inference-llama-70b",
        ]
    );
    assert!(usage.users_of(TopologyKind::ClusterTopology, "other").is_empty());
}

#[test]
fn a_set_uses_the_topology_domain_or_the_cluster_topology_of_a_name_not_both() {
    let sets = [
        set("a").replica(packed("rack")),
        set("b").named("gb200").replica(packed("rack")),
    ];
    let usage = Usage::of(&sets, &from_domain("").source);
    assert_eq!(usage.users_of(TopologyKind::TopologyDomain, "default").len(), 1);
    assert_eq!(usage.users_of(TopologyKind::ClusterTopology, "default").len(), 0);
    // A user's ClusterTopology is ignored, but still served its finalizer.
    assert_eq!(usage.users_of(TopologyKind::ClusterTopology, "gb200").len(), 1);
}

// shows: G244-24, G244-25
#[test]
fn a_cluster_topology_is_held_while_a_set_uses_it() {
    let tas = enabled("");
    let used = Usage::of(&[set("a").named("gb200").replica(packed("rack"))], &tas.source);
    let unused = Usage::default();
    let mut object = cluster_topology("gb200", &["rack"]);
    // Every topology gets the finalizer, used or not: a set may come at any time.
    assert_eq!(cluster_topology_finalizer(&object, &unused, &tas), FinalizerStep::Add);
    held(&mut object.metadata, finalizer::CLUSTER_TOPOLOGY);
    assert_eq!(cluster_topology_finalizer(&object, &unused, &tas), FinalizerStep::Leave);
    deleted(&mut object.metadata);
    assert_eq!(cluster_topology_finalizer(&object, &used, &tas), FinalizerStep::Leave);
    assert_eq!(cluster_topology_finalizer(&object, &unused, &tas), FinalizerStep::Lift);
    // Also with topology-aware scheduling disabled: the sets still name it.
    assert_eq!(
        cluster_topology_finalizer(&object, &used, &disabled()),
        FinalizerStep::Leave
    );
    object.metadata.finalizers = None;
    assert_eq!(cluster_topology_finalizer(&object, &unused, &tas), FinalizerStep::Leave);
}

// shows: G244-54
#[test]
fn the_default_topology_is_let_go_where_the_operator_removes_it() {
    let sets = [set("a").replica(packed("rack"))];
    let mut object = cluster_topology("grove-topology", &["rack"]);
    held(&mut object.metadata, finalizer::CLUSTER_TOPOLOGY);
    deleted(&mut object.metadata);
    for (tas, expected) in [
        (enabled(""), FinalizerStep::Leave),
        (disabled(), FinalizerStep::Lift),
        (from_domain(""), FinalizerStep::Lift),
    ] {
        let usage = Usage::of(&sets, &tas.source);
        assert_eq!(cluster_topology_finalizer(&object, &usage, &tas), expected);
    }
}

// shows: V2-16, V2-17, V1-10, V1-18, V1-19
#[test]
fn only_the_selected_topology_domain_is_held_and_by_any_set() {
    let source = from_domain("").source;
    let mut selected = topology_domain("default", &["rack"]);
    assert_eq!(topology_domain_finalizer(&selected, false, &source), FinalizerStep::Add);
    held(&mut selected.metadata, finalizer::TOPOLOGY_DOMAIN);
    deleted(&mut selected.metadata);
    assert_eq!(
        topology_domain_finalizer(&selected, true, &source),
        FinalizerStep::Leave
    );
    assert_eq!(
        topology_domain_finalizer(&selected, false, &source),
        FinalizerStep::Lift
    );

    let mut other = topology_domain("old", &["rack"]);
    assert_eq!(topology_domain_finalizer(&other, true, &source), FinalizerStep::Leave);
    held(&mut other.metadata, finalizer::TOPOLOGY_DOMAIN);
    assert_eq!(topology_domain_finalizer(&other, true, &source), FinalizerStep::Lift);
    assert_eq!(
        topology_domain_finalizer(&other, true, &enabled("").source),
        FinalizerStep::Lift
    );
}
