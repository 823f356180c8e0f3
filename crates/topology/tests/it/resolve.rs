use grove_api::config::TopologyAwareScheduling;
use grove_api::{PodCliqueSet, TopologyConstraint};
use grove_topology::resolve::{Found, Resolution, packing_reference, reference, resolve};
use grove_topology::{Topology, TopologyKind, TopologyReference};

use crate::fixtures::{
    Author, at, binding, cluster_topology, disabled, enabled, from_domain, grove_topology, pack, packed, set, tas,
    topology_domain,
};

fn on(topology: &str, word: &str) -> TopologyConstraint {
    TopologyConstraint {
        topology_name: Some(topology.to_owned()),
        ..packed(word)
    }
}

fn name_in<'a>(set: &'a PodCliqueSet, tas: &'a TopologyAwareScheduling) -> Option<(TopologyKind, &'a str, bool)> {
    reference(set, &tas.source).map(|found| (found.kind, found.name, found.is_default))
}

// shows: G244-8, G244-9, G244-74, V2-25
#[test]
fn the_effective_name_is_the_written_one_else_the_default() {
    use TopologyKind::{ClusterTopology, TopologyDomain};
    let clusters = enabled("");
    let domain = from_domain("");
    let plain = set("a").replica(packed("rack"));
    let by_name = plain.clone().named("gb200");
    let by_constraint = set("a").clique("w", on("gb200", "rack"));
    let empty_name = plain.clone().named("");
    let cases = [
        (&plain, &clusters, Some((ClusterTopology, "grove-topology", true))),
        (&plain, &domain, Some((TopologyDomain, "default", true))),
        (&by_name, &clusters, Some((ClusterTopology, "gb200", false))),
        (&by_name, &domain, Some((ClusterTopology, "gb200", false))),
        (&by_constraint, &clusters, Some((ClusterTopology, "gb200", false))),
        (&empty_name, &clusters, Some((ClusterTopology, "grove-topology", true))),
    ];
    for (set, tas, expected) in cases {
        assert_eq!(name_in(set, tas), expected);
    }
    let names_the_domain = plain.named("default");
    assert_eq!(
        name_in(&names_the_domain, &domain),
        Some((TopologyDomain, "default", false))
    );
}

#[test]
fn the_template_names_the_topology_before_its_constraints_do() {
    let both = set("a").named("a-topology").clique("w", on("b-topology", "rack"));
    assert_eq!(
        name_in(&both, &enabled("")),
        Some((TopologyKind::ClusterTopology, "a-topology", false))
    );
}

// shows: G244-66
#[test]
fn a_set_without_a_constraint_uses_no_topology() {
    let free = set("a").named("gb200").clique("w", None);
    assert_eq!(reference(&free, &enabled("").source), None);
    // A constraint without a word constrains nothing.
    let empty = set("a").replica(TopologyConstraint::default());
    assert_eq!(reference(&empty, &enabled("").source), None);
}

// shows: V3-56
#[test]
fn a_constraint_of_any_scope_and_strength_uses_a_topology() {
    let wish = || pack(None, Some("rack"));
    let sets = [
        set("a").replica(wish()),
        set("a").clique("w", wish()),
        set("a").clique("w", None).group("g", &["w"], wish()),
    ];
    for set in sets {
        assert_eq!(reference(&set, &enabled("").source).unwrap().name, "grove-topology");
    }
}

// shows: V2-37
#[test]
fn every_set_is_packed_only_where_the_policy_says_always() {
    let free = set("a");
    assert_eq!(packing_reference(&free, &enabled("")), None);
    let always = enabled("preferredPacking: Always");
    let expected = TopologyReference {
        kind: TopologyKind::ClusterTopology,
        name: "grove-topology",
        is_default: true,
    };
    assert_eq!(packing_reference(&free, &always), Some(expected));
    let named = set("a").named("gb200").replica(packed("rack"));
    assert_eq!(packing_reference(&named, &always).unwrap().name, "gb200");
}

#[test]
fn a_topology_is_in_force_missing_or_switched_off() {
    let set = set("a").replica(packed("rack"));
    let object = grove_topology(&["rack", "host"]);
    let found = Found {
        cluster_topology: Some(&object),
        ..Found::default()
    };
    let clusters = enabled("");
    let used = reference(&set, &clusters.source);
    let in_force = resolve(used, &clusters, &found);
    assert_eq!(in_force.topology(), Some(&Topology::from(&object)));
    assert_eq!(resolve(used, &disabled(), &found), Resolution::Disabled);
    assert_eq!(resolve(None, &disabled(), &found), Resolution::Unused);
    let missing = Resolution::Missing {
        kind: TopologyKind::ClusterTopology,
        name: "grove-topology".into(),
    };
    assert_eq!(resolve(used, &clusters, &Found::default()), missing);
    // An object of another name was not asked for.
    let other = cluster_topology("gb200", &["rack"]);
    let other = Found {
        cluster_topology: Some(&other),
        ..Found::default()
    };
    assert_eq!(resolve(used, &clusters, &other), missing);
}

#[test]
fn a_terminating_topology_is_missing_for_new_references_only() {
    let mut object = grove_topology(&["rack"]);
    object.metadata.deletion_timestamp = Some(at(0));
    let found = Found {
        cluster_topology: Some(&object),
        ..Found::default()
    };
    let (set, clusters) = (set("a").replica(packed("rack")), enabled(""));
    let resolution = resolve(reference(&set, &clusters.source), &clusters, &found);
    assert!(resolution.topology().is_some());
    assert!(matches!(resolution.for_new_reference(), Resolution::Missing { .. }));
}

#[test]
fn a_cluster_topology_wins_over_a_binding_of_its_name() {
    let (own, bound) = (cluster_topology("t", &["rack"]), binding("t", &["hall"]));
    let (set, clusters) = (set("a").named("t").replica(packed("rack")), enabled(""));
    let used = reference(&set, &clusters.source);
    let both = Found {
        cluster_topology: Some(&own),
        binding: Some(&bound),
        topology_domain: None,
    };
    assert!(both.hides_binding());
    let only_bound = Found {
        cluster_topology: None,
        ..both
    };
    assert!(!only_bound.hides_binding());
    let kind = |found| resolve(used, &clusters, found).topology().unwrap().kind();
    assert_eq!(kind(&both), TopologyKind::ClusterTopology);
    assert_eq!(kind(&only_bound), TopologyKind::ClusterTopologyBinding);
}

#[test]
fn with_a_topology_domain_as_source_cluster_topologies_are_ignored() {
    let (own, domain) = (
        cluster_topology("gb200", &["rack"]),
        topology_domain("default", &["rack"]),
    );
    let found = Found {
        cluster_topology: Some(&own),
        binding: None,
        topology_domain: Some(&domain),
    };
    let source = from_domain("");
    let named = set("a").named("gb200").replica(packed("rack"));
    assert_eq!(
        resolve(reference(&named, &source.source), &source, &found),
        Resolution::Missing {
            kind: TopologyKind::ClusterTopology,
            name: "gb200".into(),
        }
    );
    let plain = set("a").replica(packed("rack"));
    let resolution = resolve(reference(&plain, &source.source), &source, &found);
    assert_eq!(resolution.topology(), Some(&Topology::from(&domain)));
    // Switching to another TopologyDomain leaves no set behind on the old one.
    let switched = tas("enabled: true, source: TopologyDomain, topologyDomainName: next");
    assert_eq!(reference(&plain, &switched.source).unwrap().name, "next");
}
