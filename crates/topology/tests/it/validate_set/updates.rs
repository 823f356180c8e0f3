//! What may change once a set exists, and what is filled into a new one.

use grove_api::TopologyConstraint;
use grove_api::config::TopologyAwareScheduling;
use grove_topology::resolve::Found;
use grove_topology::validate::{
    Cause, SetReview, Verdict, Violation, changes_topology, default_constraint, review_set,
};

use super::{found, messages, on, update};
use crate::fixtures::{
    Author, at, cluster_topology, disabled, enabled, from_domain, grove_topology, pack, packed, set,
};

// shows: V2-22
#[test]
fn an_admitted_set_can_be_scaled_whatever_became_of_its_topology() {
    let old = set("a")
        .named("gb200")
        .replica(packed("rack"))
        .clique("w", packed("host"));
    let mut new = old.clone();
    new.spec.replicas = 9;
    for tas in [
        enabled(""),
        disabled(),
        from_domain(""),
        enabled("constraintUpdates: UnscheduledOnly"),
    ] {
        assert_eq!(update(&old, &new, &tas, Found::default()), Verdict::default());
    }
}

#[test]
fn an_object_being_deleted_passes() {
    let old = set("a").replica(packed("rack"));
    let mut new = set("a").named("gone").replica(packed("nonsense"));
    new.metadata.deletion_timestamp = Some(at(0));
    assert_eq!(update(&old, &new, &disabled(), Found::default()), Verdict::default());
}

// shows: G244-59, V1-8, V1-26
#[test]
fn g244_rule_1_constraints_cannot_be_added_removed_or_changed() {
    let topology = grove_topology(&["rack", "host"]);
    let none = || set("a").clique("w", None).group("g", &["w"], None);
    let cases = [
        (
            none(),
            none().replica(packed("rack")),
            "spec.template.topologyConstraint",
        ),
        (
            none().replica(packed("rack")),
            none(),
            "spec.template.topologyConstraint",
        ),
        (
            none().replica(packed("rack")),
            none().replica(packed("host")),
            "spec.template.topologyConstraint",
        ),
        (
            none().replica(pack(Some("rack"), None)),
            none().replica(pack(Some("rack"), Some("host"))),
            "spec.template.topologyConstraint",
        ),
        (
            none(),
            set("a").clique("w", packed("rack")).group("g", &["w"], None),
            "spec.template.cliques[0].topologyConstraint",
        ),
        (
            none(),
            set("a").clique("w", None).group("g", &["w"], packed("rack")),
            "spec.template.podCliqueScalingGroups[0].topologyConstraint",
        ),
    ];
    for (old, new, path) in cases {
        let verdict = update(&old, &new, &enabled(""), found(&topology));
        assert_eq!(
            verdict.violations,
            [Violation {
                field: path.into(),
                cause: Cause::Forbidden,
                message: format!("topology constraints are immutable: {path}; delete and recreate the PodCliqueSet"),
            }]
        );
        let policy = enabled("constraintUpdates: UnscheduledOnly");
        assert!(update(&old, &new, &policy, found(&topology)).is_admitted());
    }
}

#[test]
fn the_other_spelling_of_a_word_is_no_change() {
    let old = set("a").replica(packed("rack")).clique("w", packed("host"));
    let new = set("a")
        .replica(pack(Some("rack"), None))
        .clique("w", pack(Some("host"), None));
    for tas in [enabled(""), disabled()] {
        assert!(update(&old, &new, &tas, Found::default()).is_admitted());
    }
}

#[test]
fn moving_a_clique_in_the_list_is_no_change() {
    let old = set("a").clique("x", packed("rack")).clique("y", None);
    let new = set("a").clique("y", None).clique("x", packed("rack"));
    assert!(update(&old, &new, &enabled(""), Found::default()).is_admitted());
}

// shows: V3-63, V3-81, V2-28, V2-35
#[test]
fn scenario_11_and_e2e_top_16_a_constraint_changes_where_the_policy_allows_it() {
    let topology = grove_topology(&["rack", "host"]);
    let policy = enabled("constraintUpdates: UnscheduledOnly");
    let (old, new) = (set("a").replica(packed("rack")), set("a").replica(packed("host")));
    assert!(update(&old, &new, &policy, found(&topology)).is_admitted());
    // The new word is judged like that of a new set.
    let verdict = update(&old, &set("a").replica(packed("block")), &policy, found(&topology));
    assert_eq!(
        messages(&verdict),
        ["topology level 'block' not defined in ClusterTopology 'grove-topology'"]
    );
}

// shows: G244-16, G244-17, G244-62
#[test]
fn story_5_the_topology_can_be_changed_until_a_pod_is_scheduled() {
    let (old, new) = (
        set("a").named("shard-a").replica(packed("rack")),
        set("a").named("shard-b").replica(packed("rack")),
    );
    let (tas, shard_b) = (enabled(""), cluster_topology("shard-b", &["rack"]));
    let review = |scheduled_pods, found| {
        review_set(&SetReview {
            old: Some(&old),
            new: &new,
            tas: &tas,
            found,
            scheduled_pods,
            unenforceable: None,
            why_host: None,
        })
    };
    assert!(changes_topology(&old, &new, &tas.source));
    assert!(review(0, found(&shard_b)).is_admitted());
    let locked = review(2, found(&shard_b));
    assert_eq!(
        locked.violations,
        [Violation {
            field: "spec.template.clusterTopologyName".into(),
            cause: Cause::Forbidden,
            message: "clusterTopologyName cannot be changed from 'shard-a' to 'shard-b': 2 pods are scheduled".into(),
        }]
    );
    assert!(messages(&review(1, found(&shard_b)))[0].ends_with("1 pod is scheduled"));
    // The new topology must exist, have the levels, and not be on its way out.
    assert_eq!(
        messages(&review(0, Found::default())),
        ["ClusterTopology 'shard-b' not found"]
    );
    let narrow = cluster_topology("shard-b", &["host"]);
    assert_eq!(
        messages(&review(0, found(&narrow))),
        ["topology level 'rack' not defined in ClusterTopology 'shard-b'"]
    );
}

#[test]
fn writing_the_name_that_applied_anyway_changes_nothing() {
    let topology = grove_topology(&["rack"]);
    let old = set("a").replica(packed("rack"));
    let new = set("a").named("grove-topology").replica(on("grove-topology", "rack"));
    assert!(!changes_topology(&old, &new, &enabled("").source));
    assert!(update(&old, &new, &enabled(""), found(&topology)).is_admitted());
    let moved = set("a").replica(on("gb200", "rack"));
    assert!(changes_topology(&old, &moved, &enabled("").source));
}

// shows: V1-5, V1-6, V1-27, V1-29
#[test]
fn v1_the_admin_default_is_filled_into_sets_without_any_constraint() {
    let tas = enabled("defaultPackDomain: rack");
    assert_eq!(
        default_constraint(&set("a").clique("w", None), &tas),
        Some(pack(Some("rack"), None))
    );
    assert_eq!(default_constraint(&set("a").clique("w", packed("host")), &tas), None);
    let in_group = set("a").clique("w", None).group("g", &["w"], packed("host"));
    assert_eq!(default_constraint(&in_group, &tas), None);
    assert_eq!(
        default_constraint(&set("a").replica(TopologyConstraint::default()), &tas),
        None
    );
    assert_eq!(default_constraint(&set("a"), &enabled("")), None);
    let off = TopologyAwareScheduling { enabled: false, ..tas };
    assert_eq!(default_constraint(&set("a"), &off), None);
}
