//! Translation of the examples in the designs, and what is left when a topology changes under a running gang.

use grove_api::config::PreferredPacking::{self, Always, Constrained, Never};
use grove_api::labels::annotation;
use grove_api::{ClusterTopology, PodCliqueSet, PodGang};
use grove_topology::resolve::{Found, packing_reference, resolve};
use grove_topology::{Resolution, Topology, TopologyKind};

use crate::fixtures::{Author, cluster_topology, enabled, grove_topology, pack, packed, set, topology_domain};
use crate::gangs::{described, planned};

fn in_force(object: &ClusterTopology) -> Resolution {
    Resolution::InForce {
        topology: Topology::from(object),
        is_terminating: false,
    }
}

fn missing() -> Resolution {
    Resolution::Missing {
        kind: TopologyKind::ClusterTopology,
        name: "grove-topology".into(),
    }
}

fn gangs(set: &PodCliqueSet, resolution: &Resolution, packing: PreferredPacking) -> Vec<PodGang> {
    let planned = planned(set);
    planned
        .iter()
        .map(|gang| gang.gang(set, resolution, packing, None))
        .collect()
}

fn base(set: &PodCliqueSet, words: &[&str], packing: PreferredPacking) -> String {
    described(&gangs(set, &in_force(&grove_topology(words)), packing)[0])
}

/// The gangs of `set` after `words` gave way to `after`.
fn changed(set: &PodCliqueSet, words: &[&str], after: &Resolution) -> Vec<String> {
    let before = in_force(&grove_topology(words));
    let changed = |planned: &crate::gangs::Planned| {
        let existing = planned.gang(set, &before, Constrained, None);
        described(&planned.gang(set, after, Constrained, Some(&existing)))
    };
    planned(set).iter().map(changed).collect()
}

/// The workload of the governing design's chapter on constraints.
fn disaggregated_inference() -> PodCliqueSet {
    set("a")
        .replica(packed("zone"))
        .clique("router", packed("block"))
        .clique("p-leader", packed("rack"))
        .clique("p-worker", packed("rack"))
        .clique("d-leader", packed("rack"))
        .clique("d-worker", packed("rack"))
        .group("prefill", &["p-worker", "p-leader"], packed("block"))
        .group("decode", &["d-worker", "d-leader"], packed("rack"))
}

// shows: G244-57, G244-67, G244-68, G244-70, G244-71, V3-68, V3-69, V3-70, V2-34, V2-30, V1-1
#[test]
fn g244_disaggregated_inference_base_and_scaled_gangs() {
    let resolution = in_force(&grove_topology(&["zone", "block", "rack", "host"]));
    let gangs = gangs(&disaggregated_inference(), &resolution, Constrained);
    let names: Vec<_> = gangs
        .iter()
        .map(|gang| gang.metadata.name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["a-0", "a-0-prefill-0", "a-0-decode-0"]);
    assert_eq!(
        described(&gangs[0]),
        "topology grove-topology, replica zone\n\
         gang: zone / hostname\n\
         group a-0-prefill-0 (a-0-prefill-0-p-worker a-0-prefill-0-p-leader): block / hostname\n\
         group a-0-decode-0 (a-0-decode-0-d-worker a-0-decode-0-d-leader): rack / hostname\n\
         a-0-router: block / hostname\n\
         a-0-prefill-0-p-worker: rack / hostname\n\
         a-0-prefill-0-p-leader: rack / hostname\n\
         a-0-decode-0-d-worker: rack / hostname\n\
         a-0-decode-0-d-leader: rack / hostname"
    );
    assert_eq!(
        described(&gangs[1]),
        "topology grove-topology, replica zone\n\
         gang: block / hostname\n\
         a-0-prefill-1-p-worker: rack / hostname\n\
         a-0-prefill-1-p-leader: rack / hostname"
    );
    assert_eq!(
        described(&gangs[2]),
        "topology grove-topology, replica zone\n\
         gang: rack / hostname\n\
         a-0-decode-1-d-worker: rack / hostname\n\
         a-0-decode-1-d-leader: rack / hostname"
    );
}

#[test]
fn a_gang_names_the_scopes_whose_preference_nobody_asked_for() {
    let resolution = in_force(&grove_topology(&["zone", "block", "rack", "host"]));
    let by_policy = |set: &PodCliqueSet, packing| -> Vec<Option<String>> {
        let gangs = gangs(set, &resolution, packing);
        let annotation = |gang: &PodGang| {
            let annotations = gang.metadata.annotations.clone().unwrap_or_default();
            annotations.get(annotation::PREFERRED_BY_POLICY).cloned()
        };
        gangs.iter().map(annotation).collect()
    };
    let example = set("a")
        .replica(pack(Some("zone"), Some("rack")))
        .clique("router", packed("block"))
        .clique("w", pack(None, Some("host")))
        .group("g", &["w"], packed("block"));
    assert_eq!(
        by_policy(&example, Constrained),
        [Some("a-0-router,a-0-g-0".to_owned()), Some("a-0-g-0".to_owned())],
        "the gang and its workers have what their author prefers"
    );
    assert_eq!(by_policy(&example, Never), [None, None]);
}

// shows: G244-18
#[test]
fn g244_hierarchical_inference_of_the_limitations_chapter() {
    let mut example = set("a")
        .replica(packed("zone"))
        .clique("p-leader", packed("host"))
        .clique("p-worker", None)
        .group("prefill", &["p-worker", "p-leader"], packed("block"));
    example.spec.template.scaling_groups[0].replicas = Some(3);
    let resolution = in_force(&grove_topology(&["zone", "block", "host"]));
    let gangs = gangs(&example, &resolution, Never);
    assert_eq!(gangs.len(), 3);
    assert_eq!(
        described(&gangs[0]),
        "topology grove-topology, replica zone\n\
         gang: zone / -\n\
         group a-0-prefill-0 (a-0-prefill-0-p-worker a-0-prefill-0-p-leader): block / -\n\
         a-0-prefill-0-p-worker: nothing\n\
         a-0-prefill-0-p-leader: hostname / -"
    );
    // The scaled gang's own constraint is the group's; the annotation carries that of the whole replica.
    assert_eq!(
        described(&gangs[2]),
        "topology grove-topology, replica zone\n\
         gang: block / -\n\
         a-0-prefill-2-p-worker: nothing\n\
         a-0-prefill-2-p-leader: hostname / -"
    );
}

// shows: V3-72, V3-79, V3-71
#[test]
fn v3_translation_example_and_e2e_top_7_rack_is_required_and_host_preferred() {
    let example = set("a").replica(packed("rack")).clique("w", None);
    assert_eq!(
        base(&example, &["rack", "host"], Constrained),
        "topology grove-topology, replica rack\ngang: rack / hostname\na-0-w: - / hostname"
    );
}

#[test]
fn e2e_top_8_host_is_required() {
    let example = set("a").replica(packed("host")).clique("w", None);
    let gang = base(&example, &["rack", "host"], Constrained);
    assert!(gang.contains("gang: hostname / hostname"), "{gang}");
}

// shows: V3-77
#[test]
fn v3_edge_case_1_the_only_level_is_required_and_preferred() {
    let example = set("a").replica(packed("rack"));
    assert!(base(&example, &["rack"], Constrained).contains("gang: rack / rack"));
    assert!(base(&set("a"), &["rack"], Always).contains("gang: - / rack"));
}

// shows: G244-66, V3-73
#[test]
fn the_constrained_policy_packs_sets_with_any_constraint_and_no_others() {
    let free = set("a").clique("w", None);
    let resolution = in_force(&grove_topology(&["rack", "host"]));
    assert_eq!(
        described(&gangs(&free, &resolution, Constrained)[0]),
        "topology -, replica -\ngang: nothing\na-0-w: nothing"
    );
    // A constraint anywhere packs the gang and every pod-group, but only groups that have a constraint themselves.
    let example = set("a")
        .clique("w", packed("rack"))
        .clique("v", None)
        .group("g", &["v"], None);
    assert_eq!(
        base(&example, &["rack", "host"], Constrained),
        "topology grove-topology, replica -\n\
         gang: - / hostname\n\
         a-0-w: rack / hostname\n\
         a-0-g-0-v: - / hostname"
    );
}

// shows: V3-74, V2-32, V2-31, V2-33, V1-4
#[test]
fn scenario_12_phase_2_and_e2e_top_2_every_set_is_packed_under_always() {
    let tas = enabled("preferredPacking: Always");
    let free = set("a").clique("w", None);
    let object = grove_topology(&["rack", "host"]);
    let found = Found {
        cluster_topology: Some(&object),
        ..Found::default()
    };
    let resolution = resolve(packing_reference(&free, &tas), &tas, &found);
    let planned = &planned(&free)[0];
    // The gang ran before topology was enabled: it had no constraint at all.
    let existing = planned.gang(&free, &Resolution::Unused, Always, None);
    assert_eq!(
        described(&planned.gang(&free, &resolution, tas.preferred_packing, Some(&existing))),
        "topology grove-topology, replica -\ngang: - / hostname\na-0-w: - / hostname"
    );
}

// shows: V3-73, V2-33
#[test]
fn under_never_only_the_authors_words_are_translated() {
    let example = set("a")
        .replica(packed("rack"))
        .clique("w", pack(None, Some("host")))
        .clique("v", None);
    assert_eq!(
        base(&example, &["rack", "host"], Never),
        "topology grove-topology, replica rack\ngang: rack / -\na-0-w: - / hostname\na-0-v: nothing"
    );
}

#[test]
fn the_authors_preference_is_never_replaced() {
    let example = set("a").replica(pack(Some("zone"), Some("rack"))).clique("w", None);
    let gang = base(&example, &["zone", "rack", "host"], Constrained);
    assert!(gang.contains("gang: zone / rack\na-0-w: - / hostname"), "{gang}");
}

#[test]
fn a_preference_broader_than_what_is_required_is_left_out() {
    let example = set("a").replica(pack(Some("rack"), Some("zone")));
    assert!(base(&example, &["zone", "rack", "host"], Constrained).ends_with("gang: rack / -"));
}

// shows: G244-69
#[test]
fn g244_a_scaled_gang_inherits_the_templates_constraint() {
    let resolution = in_force(&grove_topology(&["zone", "rack", "host"]));
    let of = |group| {
        let example = set("a")
            .replica(packed("zone"))
            .clique("w", None)
            .group("g", &["w"], group);
        described(&gangs(&example, &resolution, Constrained)[1])
    };
    assert!(of(None).contains("replica zone\ngang: zone / hostname"));
    assert!(of(Some(packed("rack"))).contains("gang: rack / hostname"));
    // Without a constraint of its own, it also prefers what the replica prefers.
    let wish = set("a")
        .replica(pack(Some("zone"), Some("rack")))
        .clique("w", None)
        .group("g", &["w"], None);
    assert!(described(&gangs(&wish, &resolution, Constrained)[1]).contains("gang: zone / rack"));
    // A group that only prefers is still bound to the replica's level.
    assert!(of(Some(pack(None, Some("rack")))).contains("gang: zone / rack"));
}

// shows: G244-8, V3-93
#[test]
fn g244_an_explicit_topology_gives_the_keys_and_the_name() {
    let mut object = cluster_topology("gb200-topology", &["rack", "host"]);
    object.spec.levels[0].key = "example.com/gb200-nvl72".into();
    let example = set("my-inference").named("gb200-topology").replica(packed("rack"));
    assert_eq!(
        described(&gangs(&example, &in_force(&object), Constrained)[0]),
        "topology gb200-topology, replica gb200-nvl72\ngang: gb200-nvl72 / hostname"
    );
}

// shows: V2-29
#[test]
fn v2_a_topology_domain_gives_the_keys_and_the_topology_ref() {
    let resolution = Resolution::InForce {
        topology: Topology::from(&topology_domain("default", &["hall", "rack", "host"])),
        is_terminating: false,
    };
    let example = set("a").replica(packed("hall"));
    let gang = &gangs(&example, &resolution, Always)[0];
    assert_eq!(described(gang), "topology default, replica hall\ngang: hall / hostname");
}

// shows: V3-48, G244-20
#[test]
fn scenario_8_and_e2e_top_5_a_level_that_is_gone_is_not_required_any_more() {
    let after = in_force(&grove_topology(&["rack", "host"]));
    let wl_1 = set("a").replica(packed("block")).clique("w", packed("host"));
    assert_eq!(
        changed(&wl_1, &["block", "rack", "host"], &after),
        ["topology grove-topology, replica -\ngang: - / hostname\na-0-w: hostname / hostname"]
    );
    let wl_2 = set("a").replica(packed("rack")).clique("w", None);
    let unchanged = [base(&wl_2, &["block", "rack", "host"], Constrained)];
    assert_eq!(changed(&wl_2, &["block", "rack", "host"], &after), unchanged);
}

#[test]
fn a_scaled_gang_falls_back_to_the_templates_level_and_its_group_config_stays() {
    let example = set("a")
        .replica(packed("zone"))
        .clique("w", None)
        .group("g", &["w"], packed("block"));
    let after = in_force(&grove_topology(&["zone", "host"]));
    assert_eq!(
        changed(&example, &["zone", "block", "host"], &after),
        [
            "topology grove-topology, replica zone\n\
             gang: zone / hostname\n\
             group a-0-g-0 (a-0-g-0-w): - / hostname\n\
             a-0-g-0-w: - / hostname",
            "topology grove-topology, replica zone\n\
             gang: zone / hostname\n\
             a-0-g-1-w: - / hostname",
        ]
    );
}

// shows: V3-52, V3-53
#[test]
fn when_the_strictest_level_goes_the_next_one_is_preferred() {
    let example = set("a").replica(pack(Some("rack"), Some("host")));
    let after = in_force(&grove_topology(&["zone", "rack"]));
    assert_eq!(
        changed(&example, &["rack", "host"], &after),
        ["topology grove-topology, replica rack\ngang: rack / rack"]
    );
}

// shows: V3-78, V3-53
#[test]
fn e2e_top_4_and_18_a_new_strictest_level_is_preferred() {
    let example = set("a").replica(packed("rack"));
    let after = in_force(&grove_topology(&["rack", "host", "numa"]));
    assert_eq!(
        changed(&example, &["rack", "host"], &after),
        ["topology grove-topology, replica rack\ngang: rack / numa"]
    );
}

// shows: V3-49
#[test]
fn scenario_7_a_new_level_in_between_changes_no_gang() {
    let example = disaggregated_inference();
    let before = ["zone", "block", "rack", "host"];
    let after = in_force(&grove_topology(&["zone", "datacenter", "block", "rack", "host"]));
    let unchanged = gangs(&example, &in_force(&grove_topology(&before)), Constrained);
    let unchanged: Vec<_> = unchanged.iter().map(described).collect();
    assert_eq!(changed(&example, &before, &after), unchanged);
}

// shows: V3-41, V3-42
#[test]
fn scenario_2_and_e2e_top_3_disabled_or_gone_nothing_is_required_and_preferences_stay() {
    let example = set("a")
        .replica(packed("rack"))
        .clique("v", packed("host"))
        .clique("w", None)
        .group("g", &["w"], packed("host"));
    for after in [Resolution::Disabled, missing()] {
        assert_eq!(
            changed(&example, &["rack", "host"], &after),
            [
                "topology grove-topology, replica -\n\
                 gang: - / hostname\n\
                 group a-0-g-0 (a-0-g-0-w): - / hostname\n\
                 a-0-v: - / hostname\n\
                 a-0-g-0-w: - / hostname",
                "topology grove-topology, replica -\n\
                 gang: - / hostname\n\
                 a-0-g-1-w: - / hostname",
            ]
        );
        // A gang that comes only now is bare.
        let new = &gangs(&example, &after, Constrained)[0];
        assert_eq!(
            described(new),
            "topology -, replica -\ngang: nothing\na-0-v: nothing\na-0-g-0-w: nothing"
        );
    }
}

#[test]
fn a_topology_that_returns_is_required_again() {
    let example = set("a").replica(packed("rack")).clique("w", None);
    let resolution = in_force(&grove_topology(&["rack", "host"]));
    let planned = &planned(&example)[0];
    let first = planned.gang(&example, &resolution, Constrained, None);
    let without = planned.gang(&example, &missing(), Constrained, Some(&first));
    let back = planned.gang(&example, &resolution, Constrained, Some(&without));
    assert_eq!(back, first);
}

#[test]
fn a_set_that_drops_its_constraints_leaves_nothing_behind() {
    let example = set("a").replica(packed("rack")).clique("w", None);
    let planned = &planned(&example)[0];
    let mut existing = planned.gang(&example, &in_force(&grove_topology(&["rack"])), Constrained, None);
    existing
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("team".into(), "x".into());
    let dropped = planned.gang(
        &set("a").clique("w", None),
        &Resolution::Unused,
        Constrained,
        Some(&existing),
    );
    assert_eq!(
        described(&dropped),
        "topology -, replica -\ngang: nothing\na-0-w: nothing"
    );
    assert_eq!(dropped.metadata.annotations.unwrap().len(), 1, "other annotations stay");
}
