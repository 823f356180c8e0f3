//! Conditions of PodCliqueSets and topologies, in the words of the designs.

use grove_api::podcliqueset::PodCliqueSetStatus;
use grove_api::topology::TopologyStatus;
use grove_api::{ClusterTopology, PodCliqueSet};
use grove_topology::backend::Backend;
use grove_topology::conditions::{
    BackendFailure, BackendReport, FailedStep, set_conditions, updated_set_conditions, updated_topology_status,
};
use grove_topology::{Resolution, Topology, TopologyKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;

use crate::fixtures::{Author, at, cluster_topology, grove_topology, pack, packed, set, topology_domain};
use crate::levels::any_words;

fn in_force(object: &ClusterTopology) -> Resolution {
    Resolution::InForce {
        topology: Topology::from(object),
        is_terminating: false,
    }
}

fn missing(kind: TopologyKind, name: &str) -> Resolution {
    Resolution::Missing {
        kind,
        name: name.to_owned(),
    }
}

/// The conditions after a pass over a set that has the conditions of its status.
fn updated(set: &PodCliqueSet, resolution: &Resolution, now: &Time) -> Option<Vec<Condition>> {
    let existing = set.status.as_ref().map_or(&[][..], |status| &status.conditions);
    updated_set_conditions(set, existing, resolution, now)
}

/// `type=status reason: message`, a line for each condition.
fn said(set: &PodCliqueSet, resolution: &Resolution) -> Vec<String> {
    set_conditions(set, resolution)
        .into_iter()
        .map(|state| {
            format!(
                "{}={} {}: {}",
                state.type_,
                state.status.as_str(),
                state.reason,
                state.message
            )
        })
        .collect()
}

// shows: V3-85, G244-77
#[test]
fn e2e_top_20_all_levels_are_there() {
    let example = set("a").replica(packed("rack"));
    assert_eq!(
        said(&example, &in_force(&grove_topology(&["rack", "host"]))),
        [
            "TopologyLevelsUnavailable=False AllClusterTopologyLevelsAvailable: All topology levels are available",
            "TopologyConstraints=True TopologyLevelsAvailable: All topology constraints satisfied",
        ]
    );
}

// shows: V3-87, G244-76
#[test]
fn scenario_8_and_e2e_top_5_17_22_one_level_is_gone() {
    let example = set("a").replica(packed("block")).clique("w", packed("block"));
    assert_eq!(
        said(&example, &in_force(&grove_topology(&["rack", "host"]))),
        [
            "TopologyLevelsUnavailable=True ClusterTopologyLevelsUnavailable: Unavailable topology domains: [block]",
            "TopologyConstraints=False TopologyLevelNotFound: Topology level 'block' not found in ClusterTopology \
             'grove-topology'. Remove packDomain or update ClusterTopology.",
        ]
    );
}

// shows: V3-88
#[test]
fn v3_several_levels_are_gone_and_are_named_from_broad_to_narrow() {
    let example = set("a").clique("w", packed("rack")).clique("v", packed("block"));
    assert_eq!(
        said(&example, &in_force(&grove_topology(&["zone", "host"]))),
        [
            "TopologyLevelsUnavailable=True ClusterTopologyLevelsUnavailable: Unavailable topology domains: [block, rack]",
            "TopologyConstraints=False TopologyLevelsRemoved: Topology levels removed from ClusterTopology: \
             [block, rack]. Update packDomain constraints.",
        ]
    );
}

// shows: V3-90, G244-76
#[test]
fn v3_a_preferred_level_that_is_gone_breaks_no_constraint_but_is_named() {
    let example = set("a").replica(pack(Some("rack"), Some("numa")));
    let said = said(&example, &in_force(&grove_topology(&["rack", "host"])));
    assert!(said[0].ends_with("Unavailable topology domains: [numa]"), "{said:?}");
    assert!(
        said[1].starts_with("TopologyConstraints=True TopologyLevelsAvailable"),
        "{said:?}"
    );
}

#[test]
fn free_words_are_named_after_those_with_a_meaning() {
    let example = set("a")
        .replica(packed("hall"))
        .clique("w", packed("aisle"))
        .clique("v", packed("rack"));
    let resolution = Resolution::InForce {
        topology: Topology::from(&topology_domain("default", &["floor"])),
        is_terminating: false,
    };
    assert_eq!(
        said(&example, &resolution)[1],
        "TopologyConstraints=False TopologyLevelsRemoved: Topology levels removed from TopologyDomain: \
         [rack, aisle, hall]. Update packDomain constraints."
    );
}

// shows: V3-89, G244-75
#[test]
fn g244_the_topology_is_gone() {
    let example = set("a").named("gb200").replica(packed("rack"));
    assert_eq!(
        said(&example, &missing(TopologyKind::ClusterTopology, "gb200")),
        [
            "TopologyLevelsUnavailable=Unknown ClusterTopologyNotFound: \
             ClusterTopology 'gb200' not found. Required constraints removed.",
            "TopologyConstraints=Unknown ClusterTopologyNotFound: \
             ClusterTopology 'gb200' not found. Required constraints removed.",
        ]
    );
}

// shows: V3-86, V3-43
#[test]
fn scenario_2_and_e2e_top_3_21_topology_is_disabled() {
    let message = "Topology support disabled in operator configuration. Required constraints removed.";
    assert_eq!(
        said(&set("a").replica(packed("rack")), &Resolution::Disabled),
        [
            format!("TopologyLevelsUnavailable=Unknown TopologyAwareSchedulingDisabled: {message}"),
            format!("TopologyConstraints=False TopologyDisabled: {message}"),
        ]
    );
}

#[test]
fn a_set_without_a_constraint_has_neither_condition() {
    // Under `preferredPacking: Always` a topology is in force for it all the same.
    let resolutions = [
        Resolution::Unused,
        Resolution::Disabled,
        in_force(&grove_topology(&["rack"])),
    ];
    for resolution in resolutions {
        assert!(said(&set("a").clique("w", None), &resolution).is_empty());
    }
}

fn with(mut set: PodCliqueSet, conditions: Vec<Condition>) -> PodCliqueSet {
    set.status = Some(PodCliqueSetStatus {
        conditions,
        ..PodCliqueSetStatus::default()
    });
    set
}

fn other_condition() -> Condition {
    Condition {
        type_: "Ready".into(),
        status: "True".into(),
        reason: "AllReady".into(),
        message: String::new(),
        observed_generation: Some(1),
        last_transition_time: at(0),
    }
}

// shows: V3-91
#[test]
fn e2e_top_23_conditions_follow_the_generation_and_are_not_rewritten_otherwise() {
    let resolution = in_force(&grove_topology(&["rack", "host"]));
    let example = with(set("a").replica(packed("rack")), vec![other_condition()]);
    let first = updated(&example, &resolution, &at(1)).unwrap();
    assert_eq!(first[0], other_condition(), "what others wrote is left alone");
    let generations: Vec<_> = first.iter().map(|condition| condition.observed_generation).collect();
    assert_eq!((first.len(), generations), (3, vec![Some(1); 3]));

    let mut example = with(example, first.clone());
    assert_eq!(updated(&example, &resolution, &at(2)), None);
    example.metadata.generation = Some(2);
    let second = updated(&example, &resolution, &at(3)).unwrap();
    assert_eq!(second[2].observed_generation, Some(2));
    assert_eq!(second[2].last_transition_time, at(1), "the status did not change");
}

#[test]
fn the_transition_time_moves_with_the_status_only() {
    let example = set("a").replica(packed("rack")).clique("w", packed("block"));
    let (one_gone, both_gone) = (
        in_force(&grove_topology(&["rack", "host"])),
        in_force(&grove_topology(&["zone", "host"])),
    );
    let first = updated(&example, &one_gone, &at(1)).unwrap();
    let example = with(example, first);
    let second = updated(&example, &both_gone, &at(2)).unwrap();
    // Another reason and message, still False.
    assert_eq!(second[1].reason, "TopologyLevelsRemoved");
    assert_eq!(second[1].last_transition_time, at(1));
    let example = with(example, second);
    let back = in_force(&grove_topology(&["block", "rack", "host"]));
    let third = updated(&example, &back, &at(3)).unwrap();
    assert_eq!(
        (third[1].status.as_str(), &third[1].last_transition_time),
        ("True", &at(3))
    );
}

#[test]
fn conditions_go_with_the_last_constraint() {
    let resolution = in_force(&grove_topology(&["rack"]));
    let constrained = with(set("a").replica(packed("rack")), vec![other_condition()]);
    let conditions = updated(&constrained, &resolution, &at(1)).unwrap();
    let free = with(set("a"), conditions);
    assert_eq!(
        updated(&free, &Resolution::Unused, &at(2)),
        Some(vec![other_condition()])
    );
    assert_eq!(updated(&set("a"), &Resolution::Unused, &at(2)), None);
}

fn failed(backend: Backend, step: FailedStep) -> BackendReport {
    BackendReport {
        backends: vec![backend],
        failures: vec![BackendFailure {
            backend,
            step,
            error: "API not available".into(),
        }],
    }
}

fn ready(backends: &[Backend]) -> BackendReport {
    BackendReport {
        backends: backends.to_vec(),
        failures: Vec::new(),
    }
}

fn first_status(kind: TopologyKind, report: &BackendReport) -> TopologyStatus {
    let first = updated_topology_status(&TopologyStatus::default(), kind, 1, report, &at(1));
    first.expect("an empty status says nothing yet")
}

fn line(status: &TopologyStatus) -> String {
    let condition = &status.conditions[0];
    format!(
        "{}={} {}: {}",
        condition.type_, condition.status, condition.reason, condition.message
    )
}

// shows: V3-8, V3-9, V3-29
#[test]
fn scenario_1_and_e2e_top_1_a_topology_is_ready() {
    let kind = TopologyKind::ClusterTopology;
    let cases: [(&[Backend], &str); 4] = [
        (
            &[Backend::Kai],
            "ClusterTopology configured and KAI Topology created successfully",
        ),
        (&[], "ClusterTopology configured"),
        (
            &[Backend::Kueue],
            "ClusterTopology configured and Kueue Topology created successfully",
        ),
        (
            &[Backend::Kai, Backend::Kueue],
            "ClusterTopology configured and KAI Topology and Kueue Topology created successfully",
        ),
    ];
    for (backends, message) in cases {
        let status = first_status(kind, &ready(backends));
        assert_eq!(line(&status), format!("Ready=True TopologyReady: {message}"));
        assert_eq!(status.observed_generation, Some(1));
        assert!(status.last_errors.is_empty());
    }
}

// shows: V3-10, V3-11, V3-12, V3-29
#[test]
fn scenario_9_and_e2e_top_6_the_kai_topology_cannot_be_created_and_then_can() {
    let kind = TopologyKind::ClusterTopology;
    let report = failed(Backend::Kai, FailedStep::Create);
    let status = first_status(kind, &report);
    assert_eq!(
        line(&status),
        "Ready=False KAITopologyCreationFailed: Failed to create KAI Topology CR: API not available"
    );
    let error = &status.last_errors[0];
    assert_eq!(error.code, "KAI_TOPOLOGY_CREATE_ERROR");
    assert_eq!(
        error.description,
        "Failed to create KAI Topology resource: API not available"
    );
    assert_eq!(error.observed_at, at(1));
    // Retrying the same failure writes nothing.
    assert_eq!(updated_topology_status(&status, kind, 1, &report, &at(9)), None);
    let recovered = updated_topology_status(&status, kind, 1, &ready(&[Backend::Kai]), &at(9)).unwrap();
    assert_eq!(
        (recovered.conditions[0].status.as_str(), recovered.last_errors.len()),
        ("True", 0)
    );
    assert_eq!(recovered.conditions[0].last_transition_time, at(9));
}

// shows: V3-10
#[test]
fn reasons_tell_a_failed_change_and_other_backends_apart() {
    let kind = TopologyKind::TopologyDomain;
    assert_eq!(
        line(&first_status(kind, &failed(Backend::Kai, FailedStep::Change))),
        "Ready=False KAITopologyCreationOrUpdateFailed: Failed to update KAI Topology CR: API not available"
    );
    assert_eq!(
        line(&first_status(kind, &failed(Backend::Kueue, FailedStep::Create))),
        "Ready=False BackendTopologyCreationFailed: Failed to create Kueue Topology CR: API not available"
    );
    let mut both = failed(Backend::Kueue, FailedStep::Create);
    both.failures.extend(failed(Backend::Kai, FailedStep::Create).failures);
    let status = first_status(kind, &both);
    assert_eq!(status.conditions[0].reason, "KAITopologyCreationFailed");
    assert_eq!(status.last_errors.len(), 2);
}

proptest! {
    #[test]
    fn writing_once_is_enough_and_both_conditions_tell_one_story(words in any_words(), used in any_words()) {
        let object = cluster_topology("t", &words);
        let example = used.iter().fold(set("a").named("t"), |set, word| set.clique(word, packed(word)));
        let conditions = updated(&example, &in_force(&object), &at(1)).unwrap();
        let gone = used.iter().any(|word| !words.contains(word));
        let status = |index: usize| conditions[index].status == "True";
        prop_assert_eq!((status(0), status(1)), (gone, !gone));
        let example = with(example, conditions);
        prop_assert_eq!(updated(&example, &in_force(&object), &at(2)), None);
    }
}
