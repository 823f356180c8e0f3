//! The words of constraints: which are levels, which nest, which a scheduler can keep.

use grove_api::PodCliqueSet;
use grove_api::config::ProfileName;
use grove_topology::cells::{asks_for_cells, why_host};
use grove_topology::resolve::Found;
use grove_topology::validate::{Cause, SetReview, Verdict, Violation, review_set};

use super::{ALL, create, created, found, messages};
use crate::fixtures::{Author, disabled, enabled, grove_topology, pack, packed, set};

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

// shows: G244-13
#[test]
fn a_level_below_the_host_that_nobody_can_keep_is_taken_with_a_warning() {
    let topology = grove_topology(&ALL);
    let told = |placer: ProfileName, cells_are_published: bool| {
        let new = set("a")
            .replica(pack(Some("rack"), None))
            .clique("w", pack(Some("numa"), None));
        assert!(asks_for_cells(&new, &(&topology).into()));
        let verdict = review_set(&SetReview {
            old: None,
            new: &new,
            tas: &enabled(""),
            found: found(&topology),
            scheduled_pods: 0,
            unenforceable: None,
            why_host: why_host(placer, cells_are_published),
        });
        assert!(verdict.is_admitted());
        verdict.warnings
    };
    let field = "spec.template.cliques[0].topologyConstraint.pack.required";
    let unpublished = "no node publishes its NUMA cells (NodeResourceTopology)";
    for placer in [ProfileName::GroveScheduler, ProfileName::DefaultScheduler] {
        let expected = format!("{field}: 'numa' is enforced as 'host': {unpublished}");
        assert_eq!(told(placer, false), [expected]);
        assert_eq!(told(placer, true), [""; 0]);
    }
    let expected = format!("{field}: 'numa' is enforced as 'host': kai-scheduler takes no level below it");
    assert_eq!(told(ProfileName::KaiScheduler, true), [expected]);
    let host = set("a").clique("w", pack(Some("host"), None));
    assert!(!asks_for_cells(&host, &(&topology).into()));
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
            why_host: None,
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
