//! The topology that constraints are judged by: named, missing, terminating, of another kind.

use grove_topology::resolve::Found;
use grove_topology::validate::{Cause, Violation};

use super::{create, found, messages, on, update};
use crate::fixtures::{Author, at, binding, cluster_topology, enabled, from_domain, packed, set, topology_domain};

// shows: G244-61, G244-62
#[test]
fn g244_rule_3_the_named_topology_must_exist() {
    let named = set("a").named("gb200").replica(packed("rack"));
    let verdict = create(&named, &enabled(""), Found::default());
    assert_eq!(
        verdict.violations,
        [Violation {
            field: "spec.template.clusterTopologyName".into(),
            cause: Cause::NotFound,
            message: "ClusterTopology 'gb200' not found".into(),
        }]
    );
    let default = create(&set("a").replica(packed("rack")), &enabled(""), Found::default());
    assert_eq!(messages(&default), ["ClusterTopology 'grove-topology' not found"]);
    assert_eq!(default.violations[0].field, "spec.template.topologyConstraint");
    let there = cluster_topology("gb200", &["rack"]);
    assert!(create(&named, &enabled(""), found(&there)).is_admitted());
}

#[test]
fn a_binding_serves_as_a_topology_with_its_own_words() {
    let bound = binding("gb200", &["hall", "rack"]);
    let found = Found {
        binding: Some(&bound),
        ..Found::default()
    };
    let of = |template: &str, clique: &str| set("a").replica(on("gb200", template)).clique("w", packed(clique));
    assert!(create(&of("hall", "rack"), &enabled(""), found).is_admitted());
    assert_eq!(
        messages(&create(&of("rack", "hall"), &enabled(""), found)),
        ["child topology constraint 'hall' must be equal to or stricter than parent constraint 'rack'"]
    );
    assert_eq!(
        messages(&create(&of("hall", "host"), &enabled(""), found)),
        ["topology level 'host' not defined in ClusterTopologyBinding 'gb200'"]
    );
}

// shows: G244-25
#[test]
fn a_terminating_topology_takes_no_new_sets_and_keeps_those_it_has() {
    let mut topology = cluster_topology("gb200", &["rack", "host"]);
    topology.metadata.deletion_timestamp = Some(at(0));
    let policy = enabled("constraintUpdates: UnscheduledOnly");
    let new = set("a").named("gb200").replica(packed("rack"));
    let refused = create(&new, &policy, found(&topology));
    assert_eq!(
        messages(&refused),
        ["ClusterTopology 'gb200' not found: it is being deleted"]
    );
    let tighter = set("a").named("gb200").replica(packed("host"));
    assert!(update(&new, &tighter, &policy, found(&topology)).is_admitted());
}

// shows: G244-63
#[test]
fn g244_rule_3_a_name_without_a_constraint_is_refused() {
    let verdict = create(&set("a").named("gb200"), &enabled(""), Found::default());
    assert_eq!(
        messages(&verdict),
        ["clusterTopologyName 'gb200' is set but no topologyConstraint is specified"]
    );
    // An empty name, as templating tools write it, is none.
    assert!(create(&set("a").named(""), &enabled(""), Found::default()).is_admitted());
}

#[test]
fn all_names_in_a_set_must_agree() {
    let topology = cluster_topology("a-topology", &["rack"]);
    let differs = set("a").named("a-topology").clique("w", on("b-topology", "rack"));
    let verdict = create(&differs, &enabled(""), found(&topology));
    assert_eq!(
        messages(&verdict),
        ["topologyName 'b-topology' must be the same as clusterTopologyName 'a-topology'"]
    );
    assert_eq!(
        verdict.violations[0].field,
        "spec.template.cliques[0].topologyConstraint.topologyName"
    );
    let among = set("a")
        .replica(on("a-topology", "rack"))
        .clique("w", on("b-topology", "rack"));
    assert_eq!(
        messages(&create(&among, &enabled(""), found(&topology))),
        ["all topologyConstraint.topologyName values within a PodCliqueSet must match in the current implementation"]
    );
    let agree = set("a").named("a-topology").clique("w", on("a-topology", "rack"));
    assert!(create(&agree, &enabled(""), found(&topology)).is_admitted());
}

// shows: V2-19, V2-26, V2-27, V1-24, V1-25, V1-9
#[test]
fn v2_levels_and_order_are_those_of_the_topology_domain() {
    let domain = topology_domain("default", &["zone", "rack", "host"]);
    let found = Found {
        topology_domain: Some(&domain),
        ..Found::default()
    };
    let of = |template: &str, clique: &str| set("a").replica(packed(template)).clique("w", packed(clique));
    assert!(create(&of("zone", "host"), &from_domain(""), found).is_admitted());
    assert_eq!(
        messages(&create(&of("rack", "block"), &from_domain(""), found)),
        [
            "topology level 'block' not defined in TopologyDomain 'default'",
            "child topology constraint 'block' must be equal to or stricter than parent constraint 'rack'",
        ]
    );
}

// shows: V2-25
#[test]
fn with_a_topology_domain_any_other_name_is_refused() {
    let domain = topology_domain("default", &["rack"]);
    let found = Found {
        topology_domain: Some(&domain),
        ..Found::default()
    };
    let named = |name| set("a").named(name).replica(packed("rack"));
    assert!(create(&named("default"), &from_domain(""), found).is_admitted());
    assert_eq!(
        messages(&create(&named("gb200"), &from_domain(""), found)),
        [
            "topology 'gb200' cannot be used: the operator uses TopologyDomain 'default' only; \
             remove the name, or write 'default'"
        ]
    );
}

// shows: V2-21
#[test]
fn v2_a_missing_topology_domain_blocks_constrained_sets_or_by_policy_all_new_ones() {
    let message = "TopologyDomain 'default' not found; create it or remove --topology-domain-name";
    let (free, constrained) = (set("a"), set("a").replica(packed("rack")));
    let all = from_domain("onTopologyMissing: RejectAll");
    for policy in [from_domain(""), all.clone()] {
        assert_eq!(messages(&create(&constrained, &policy, Found::default())), [message]);
    }
    assert!(create(&free, &from_domain(""), Found::default()).is_admitted());
    assert_eq!(messages(&create(&free, &all, Found::default())), [message]);
    // Existing workloads go on.
    assert!(update(&free, &free, &all, Found::default()).is_admitted());
    assert!(update(&constrained, &constrained, &all, Found::default()).is_admitted());
    let mutable = from_domain("onTopologyMissing: RejectAll, constraintUpdates: UnscheduledOnly");
    assert!(update(&constrained, &free, &mutable, Found::default()).is_admitted());
    let domain = topology_domain("default", &["rack"]);
    let there = Found {
        topology_domain: Some(&domain),
        ..Found::default()
    };
    assert!(create(&free, &all, there).is_admitted());
}
