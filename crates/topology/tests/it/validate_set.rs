//! Admission of PodCliqueSets, in the words of the scenarios.

use grove_api::config::TopologyAwareScheduling;
use grove_api::{ClusterTopology, PodCliqueSet, TopologyConstraint};
use grove_topology::resolve::Found;
use grove_topology::validate::{
    Cause, SetReview, Verdict, Violation, changes_topology, default_constraint, review_set,
};

use crate::fixtures::{
    Author, at, binding, cluster_topology, disabled, enabled, from_domain, grove_topology, pack, packed, set,
    topology_domain,
};

const ALL: [&str; 7] = ["region", "zone", "datacenter", "block", "rack", "host", "numa"];

fn found(object: &ClusterTopology) -> Found<'_> {
    Found {
        cluster_topology: Some(object),
        ..Found::default()
    }
}

fn create(new: &PodCliqueSet, tas: &TopologyAwareScheduling, found: Found<'_>) -> Verdict {
    review_set(&SetReview {
        old: None,
        new,
        tas,
        found,
        scheduled_pods: 0,
        unenforceable: None,
    })
}

fn update(old: &PodCliqueSet, new: &PodCliqueSet, tas: &TopologyAwareScheduling, found: Found<'_>) -> Verdict {
    review_set(&SetReview {
        old: Some(old),
        new,
        tas,
        found,
        scheduled_pods: 3,
        unenforceable: None,
    })
}

/// Created where `grove-topology` has all seven levels.
fn created(new: &PodCliqueSet) -> Verdict {
    create(new, &enabled(""), found(&grove_topology(&ALL)))
}

fn messages(verdict: &Verdict) -> Vec<&str> {
    verdict
        .violations
        .iter()
        .map(|violation| violation.message.as_str())
        .collect()
}

fn on(topology: &str, word: &str) -> TopologyConstraint {
    TopologyConstraint {
        topology_name: Some(topology.to_owned()),
        ..packed(word)
    }
}

// shows: V3-304, V3-54
#[test]
fn scenario_4_a_valid_workload_is_admitted() {
    let topology = grove_topology(&["rack", "host"]);
    let new = set("inference-workload").replica(pack(Some("rack"), None));
    assert_eq!(create(&new, &enabled(""), found(&topology)), Verdict::default());
}

#[test]
fn the_old_spelling_is_taken_with_a_warning() {
    let new = set("a").replica(packed("zone")).clique("w", packed("rack"));
    let verdict = created(&new);
    assert!(verdict.is_admitted());
    assert_eq!(
        verdict.warnings,
        [
            "spec.template.topologyConstraint.packDomain, spec.template.cliques[0].topologyConstraint.packDomain: \
             deprecated spelling of pack.required, which means the same"
        ]
    );
}

// shows: G244-81
#[test]
fn what_the_scheduler_cannot_keep_is_refused_with_the_way_out() {
    let topology = grove_topology(&ALL);
    let why = grove_topology::backend::missing_kai_topology("grove-topology");
    let review = |new: &PodCliqueSet| {
        review_set(&SetReview {
            old: None,
            new,
            tas: &enabled(""),
            found: found(&topology),
            scheduled_pods: 0,
            unenforceable: Some(&why),
        })
    };
    let verdict = review(&set("a").clique("w", pack(Some("rack"), None)));
    assert_eq!(
        verdict.violations,
        [Violation {
            field: "spec.template.cliques[0].topologyConstraint".into(),
            cause: Cause::Forbidden,
            message:
                "topology constraints cannot be enforced: kai-scheduler has no Topology 'grove-topology' and would \
                      hold the pods for ever; create it, or set createTopologyResources: true in the operator's \
                      kai-scheduler profile"
                    .into(),
        }]
    );
    assert!(review(&set("a").clique("w", None)).is_admitted(), "nothing to keep");
}

// shows: V3-62, V3-305, V3-211, G244-58
#[test]
fn scenario_5_and_e2e_top_11_a_level_that_is_not_defined_is_refused() {
    let topology = grove_topology(&["rack", "host"]);
    let verdict = create(&set("a").replica(packed("block")), &enabled(""), found(&topology));
    assert_eq!(
        verdict.violations,
        [Violation {
            field: "spec.template.topologyConstraint.packDomain".into(),
            cause: Cause::Invalid,
            message: "topology level 'block' not defined in ClusterTopology 'grove-topology'".into(),
        }]
    );
    // The sentence is a contract; what may be written instead is said beside it.
    let defined = "ClusterTopology 'grove-topology' defines these levels: rack, host";
    assert_eq!(verdict.warnings.last().map(String::as_str), Some(defined));
}

// shows: V3-44, V3-306, G244-65, V2-36, V1-7
#[test]
fn scenario_6_and_e2e_top_10_a_constraint_is_refused_while_topology_is_disabled() {
    let verdict = create(&set("a").clique("w", packed("rack")), &disabled(), Found::default());
    assert_eq!(
        verdict.violations,
        [Violation {
            field: "spec.template.cliques[0].topologyConstraint".into(),
            cause: Cause::Forbidden,
            message: "topology support is not enabled in the operator".into(),
        }]
    );
}

// shows: G244-64, V3-45
#[test]
fn g244_rule_3_a_name_is_refused_while_topology_is_disabled() {
    let named = set("a").named("gb200").replica(packed("rack"));
    let verdict = create(&named, &disabled(), Found::default());
    assert_eq!(messages(&verdict), ["topology support is not enabled in the operator"]);
    assert_eq!(verdict.violations[0].field, "spec.template.clusterTopologyName");
    // A set that asks for nothing has no business with it.
    assert!(create(&set("a"), &disabled(), Found::default()).is_admitted());
}

// shows: V3-59, V3-310, G244-55
#[test]
fn scenario_10_and_e2e_top_9_a_child_wider_than_its_parent_is_refused() {
    let topology = grove_topology(&["rack", "host"]);
    let new = set("a")
        .replica(packed("host"))
        .clique("w", None)
        .group("workers", &["w"], packed("rack"));
    let verdict = create(&new, &enabled(""), found(&topology));
    assert_eq!(
        verdict.violations,
        [Violation {
            field: "spec.template.podCliqueScalingGroups[0].topologyConstraint.packDomain".into(),
            cause: Cause::Invalid,
            message: "child topology constraint 'rack' must be equal to or stricter than parent constraint 'host'"
                .into(),
        }]
    );
}

// shows: V3-209, V3-56, G244-7
#[test]
fn e2e_top_9_a_valid_hierarchy_is_admitted_and_an_unconfigured_word_is_judged_too() {
    let topology = grove_topology(&["rack", "host"]);
    let of = |template: &str, group: &str, clique: &str| {
        set("a")
            .replica(packed(template))
            .clique("w", packed(clique))
            .group("g", &["w"], packed(group))
    };
    assert!(create(&of("rack", "host", "host"), &enabled(""), found(&topology)).is_admitted());
    let verdict = create(&of("rack", "block", "host"), &enabled(""), found(&topology));
    assert_eq!(
        messages(&verdict),
        [
            "topology level 'block' not defined in ClusterTopology 'grove-topology'",
            "child topology constraint 'block' must be equal to or stricter than parent constraint 'rack'",
        ]
    );
}

// shows: G244-60, V3-60, V3-61, V1-2
#[test]
fn g244_rule_2_all_49_pairs_of_parent_and_child_at_all_three_levels() {
    for (outer, parent) in ALL.iter().enumerate() {
        for (inner, child) in ALL.iter().enumerate() {
            let (parent, child) = (packed(parent), packed(child));
            let pairs = [
                set("a")
                    .replica(parent.clone())
                    .clique("w", None)
                    .group("g", &["w"], child.clone()),
                set("a").replica(parent.clone()).clique("w", child.clone()),
                set("a").clique("w", child.clone()).group("g", &["w"], parent.clone()),
                // The group between them has no constraint.
                set("a")
                    .replica(parent.clone())
                    .clique("w", child.clone())
                    .group("g", &["w"], None),
            ];
            for new in pairs {
                assert_eq!(created(&new).is_admitted(), outer <= inner, "{new:?}");
                // By meaning also where nothing is configured: disabled, the hierarchy is judged all the same.
                let hierarchy = create(&new, &disabled(), Found::default());
                assert_eq!(hierarchy.violations.len(), 1 + usize::from(outer > inner));
            }
        }
    }
}

// shows: G244-56, V3-61
#[test]
fn a_clique_is_judged_by_every_scope_around_it_and_told_once() {
    let of = |template: &str, group: &str| {
        let new = set("a")
            .replica(packed(template))
            .clique("w", packed("zone"))
            .group("g", &["w"], packed(group));
        let verdict = created(&new);
        messages(&verdict).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let wider_than = |parent: &str| {
        format!("child topology constraint 'zone' must be equal to or stricter than parent constraint '{parent}'")
    };
    assert_eq!(of("rack", "host"), [wider_than("host"), wider_than("rack")]);
    assert_eq!(of("rack", "rack"), [wider_than("rack")]);
}

#[test]
fn a_clique_is_no_child_of_another_group_or_clique() {
    let new = set("a")
        .clique("in", None)
        .clique("out", packed("zone"))
        .group("g", &["in"], packed("host"));
    assert!(created(&new).is_admitted());
}

#[test]
fn preferred_words_must_exist_and_nest_among_themselves() {
    let topology = grove_topology(&["rack", "host"]);
    let new = set("a")
        .replica(pack(None, Some("host")))
        .clique("w", pack(Some("block"), Some("rack")));
    let verdict = create(&new, &enabled(""), found(&topology));
    let found: Vec<_> = verdict
        .violations
        .iter()
        .map(|violation| (violation.field.as_str(), violation.message.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (
                "spec.template.cliques[0].topologyConstraint.pack.required",
                "topology level 'block' not defined in ClusterTopology 'grove-topology'"
            ),
            (
                "spec.template.cliques[0].topologyConstraint.pack.preferred",
                "child topology constraint 'rack' must be equal to or stricter than parent constraint 'host'"
            ),
        ]
    );
}

#[test]
fn a_preferred_level_broader_than_the_required_one_is_admitted_with_a_warning() {
    let verdict = created(&set("a").replica(pack(Some("rack"), Some("zone"))));
    assert!(verdict.is_admitted());
    assert_eq!(
        verdict.warnings,
        [
            "spec.template.topologyConstraint.pack.preferred: 'zone' is broader than the required 'rack' and has no effect"
        ]
    );
    assert!(
        created(&set("a").replica(pack(Some("rack"), Some("rack"))))
            .warnings
            .is_empty()
    );
}

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
