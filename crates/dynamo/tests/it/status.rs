//! What a graph's status says, by table.

use grove_api::dynamo::{DynamoGraphDeploymentStatus, conditions};
use grove_api::{DynamoGraphDeployment, PodClique, PodCliqueSet};
use grove_dynamo::status::{Seen, applied, notices, status};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use crate::graphs::{graph, with_worker};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn racked() -> DynamoGraphDeployment {
    with_worker(json!({"topologyConstraint": {"packDomain": "rack"}}))
}

/// A set whose `TopologyLevelsUnavailable` says this.
fn set(condition: Option<(&str, &str, &str)>) -> PodCliqueSet {
    let conditions: Vec<Value> = condition
        .map(|(status, reason, message)| {
            json!({"type": "TopologyLevelsUnavailable", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        })
        .into_iter()
        .collect();
    let set = json!({"metadata": {"name": "g", "generation": 1}, "spec": {"template": {"cliques": []}},
        "status": {"conditions": conditions, "observedGeneration": 1}});
    serde_json::from_value(set).expect("a set")
}

fn clique(name: &str, [replicas, scheduled, updated, ready]: [i32; 4]) -> PodClique {
    let clique = json!({"metadata": {"name": name}, "spec": {"roleName": "r", "replicas": replicas, "podSpec": {"containers": []}},
        "status": {"replicas": replicas, "scheduledReplicas": scheduled, "updatedReplicas": updated, "readyReplicas": ready}});
    serde_json::from_value(clique).expect("a clique")
}

fn told(status: &DynamoGraphDeploymentStatus, type_: &str) -> Option<(String, String, String)> {
    let condition = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((
        condition.status.clone(),
        condition.reason.clone(),
        condition.message.clone(),
    ))
}

// shows: DGD-20, DGD-21, DGD-22
#[test]
fn the_sets_condition_becomes_both_of_the_graphs() {
    let gone = "Unavailable topology domains: [rack]";
    let several = "Unavailable topology domains: [rack, host]";
    let missing = "ClusterTopology 'grove-topology' not found. Required constraints removed.";
    let disabled = "Topology support disabled in operator configuration. Required constraints removed.";
    let waiting = "Waiting for topology condition from the scheduling framework";
    let cases = [
        (
            Some(("False", "AllClusterTopologyLevelsAvailable", "")),
            (
                "True",
                "AllTopologyLevelsAvailable",
                "All required topology levels are available",
            ),
        ),
        (
            Some(("True", "ClusterTopologyLevelsUnavailable", gone)),
            (
                "False",
                "TopologyLevelsUnavailable",
                "Topology level 'rack' is no longer available in the cluster topology",
            ),
        ),
        (
            Some(("True", "ClusterTopologyLevelsUnavailable", several)),
            (
                "False",
                "TopologyLevelsUnavailable",
                "Topology levels 'rack', 'host' are no longer available in the cluster topology",
            ),
        ),
        (
            Some(("True", "Other", "as it is")),
            ("False", "TopologyLevelsUnavailable", "as it is"),
        ),
        (
            Some(("Unknown", "ClusterTopologyNotFound", missing)),
            ("False", "TopologyDefinitionNotFound", missing),
        ),
        (
            Some(("True", "ClusterTopologyNotFound", missing)),
            ("False", "TopologyDefinitionNotFound", missing),
        ),
        (
            Some(("Unknown", "TopologyAwareSchedulingDisabled", disabled)),
            ("Unknown", "TopologyAwareSchedulingDisabled", disabled),
        ),
        (None, ("Unknown", "TopologyConditionPending", waiting)),
    ];
    for (of_set, (wanted_status, reason, message)) in cases {
        let set = set(of_set);
        let seen = Seen {
            set: Some(&set),
            ..Seen::default()
        };
        let status = status(&racked(), seen, at(1));
        let expected = Some((wanted_status.to_owned(), reason.to_owned(), message.to_owned()));
        assert_eq!(told(&status, "TopologyConstraintsEnforced"), expected);
        assert_eq!(told(&status, "TopologyLevelsAvailable"), expected);
    }
    let nothing = status(&racked(), Seen::default(), at(1));
    assert_eq!(
        told(&nothing, conditions::ENFORCED)
            .map(|(status, ..)| status)
            .as_deref(),
        Some("Unknown")
    );
}

// shows: DGD-23
#[test]
fn without_a_constraint_both_are_absent_also_if_they_were_there() {
    let set = set(Some(("False", "AllClusterTopologyLevelsAvailable", "")));
    let seen = Seen {
        set: Some(&set),
        ..Seen::default()
    };
    let mut bare = graph(json!({}));
    bare.status = Some(status(&racked(), seen, at(1)));
    let status = status(&bare, seen, at(2));
    let types: Vec<&str> = status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(types, ["Ready"]);
}

// shows: DGD-24
#[test]
fn one_warning_is_told_each_time_that_constraints_stop_being_kept() {
    let mut graph = racked();
    let mut occasions = Vec::new();
    let mut turn = |condition: (&str, &str, &str), second: i64| -> Vec<(bool, String, String)> {
        let set = set(Some(condition));
        let seen = Seen {
            set: Some(&set),
            ..Seen::default()
        };
        let after = status(&graph, seen, at(second));
        let told = notices(&graph, &after, Some(&set));
        let again = notices(&graph, &status(&graph, seen, at(second + 100)), Some(&set));
        assert_eq!(told, again, "until the status is written it is the same event");
        occasions.extend(told.iter().filter_map(|notice| notice.occasion));
        graph.status = Some(after);
        let warnings = told.into_iter().filter(|notice| notice.is_warning);
        warnings
            .map(|notice| (notice.is_warning, notice.reason, notice.note))
            .collect()
    };
    let good = ("False", "AllClusterTopologyLevelsAvailable", "");
    let gone = (
        "True",
        "ClusterTopologyLevelsUnavailable",
        "Unavailable topology domains: [rack]",
    );
    let missing = ("Unknown", "ClusterTopologyNotFound", "gone");
    let warned = [(
        true,
        "TopologyLevelsUnavailable".to_owned(),
        "Topology constraints no longer enforced: Topology level 'rack' is no longer available in the cluster topology"
            .to_owned(),
    )];
    assert_eq!(turn(good, 1), []);
    assert_eq!(turn(gone, 2), warned);
    assert_eq!(turn(gone, 3), [], "it is known");
    assert_eq!(turn(missing, 4), [], "it was false before");
    assert_eq!(turn(good, 5), []);
    assert_eq!(turn(gone, 6), warned);
    assert_eq!(occasions, [at(1), at(5)], "each time is another event");
}

/// Before the set is there nothing is applied; once the framework has spoken of it, and the status with it, it is known.
#[test]
fn constraints_are_told_to_be_applied_until_it_is_stored() {
    let mut graph = racked();
    let mut told = |set: Option<&PodCliqueSet>| -> Vec<String> {
        let seen = Seen { set, ..Seen::default() };
        let after = status(&graph, seen, at(1));
        let notices = notices(&graph, &after, set);
        graph.status = Some(after);
        notices.into_iter().map(|notice| notice.reason).collect()
    };
    let good = set(Some(("False", "AllClusterTopologyLevelsAvailable", "")));
    assert_eq!(told(None), Vec::<String>::new());
    assert_eq!(told(Some(&set(None))), Vec::<String>::new());
    assert_eq!(told(Some(&good)), ["TopologyConstraintsApplied"]);
    assert_eq!(told(Some(&good)), Vec::<String>::new());
}

#[test]
fn constraints_that_are_applied_are_told_once_in_words() {
    let mut both = racked();
    both.spec.topology_constraint = graph(json!({"spec": {"topologyConstraint": {"packDomain": "zone"}}}))
        .spec
        .topology_constraint;
    let notice = applied(&both).expect("constraints");
    assert!(!notice.is_warning && notice.occasion.is_none());
    assert_eq!(
        notice.note,
        "Topology constraints applied: deployment in one zone, Worker in one rack"
    );
    assert_eq!(applied(&graph(json!({}))), None);
}

#[test]
fn readiness_says_what_is_missing() {
    let ready = |frontend: [i32; 4], worker: [i32; 4]| {
        let (set, frontend, worker) = (
            set(None),
            clique("g-0-frontend", frontend),
            clique("g-0-worker", worker),
        );
        let seen = Seen {
            set: Some(&set),
            cliques: &[&frontend, &worker],
            ..Seen::default()
        };
        let status = status(&graph(json!({})), seen, at(1));
        let (is_ready, reason, message) = told(&status, "Ready").expect("a condition");
        (status.state.unwrap_or_default(), is_ready, reason, message)
    };
    let told = |state: &str, ready: &str, reason: &str, message: &str| {
        (
            state.to_owned(),
            ready.to_owned(),
            reason.to_owned(),
            message.to_owned(),
        )
    };
    let (one, two) = ([1, 1, 1, 1], [2, 2, 2, 2]);
    assert_eq!(
        ready(one, two),
        told(
            "successful",
            "True",
            "all_resources_are_ready",
            "All 2 components are ready"
        )
    );
    assert_eq!(
        ready(one, [2, 0, 2, 0]),
        told(
            "pending",
            "False",
            "insufficient_capacity",
            "Worker: 0 of 2 replicas have nodes"
        )
    );
    assert_eq!(ready(one, [2, 2, 1, 2]).2, "updating");
    assert_eq!(ready([1, 1, 1, 0], [2, 2, 2, 1]).2, "pods_not_ready");
    assert_eq!(
        ready([1, 1, 1, 0], [2, 1, 2, 1]),
        told(
            "pending",
            "False",
            "mixed_not_ready_reasons",
            "Frontend: 0 of 1 replicas are ready; Worker: 1 of 2 replicas have nodes"
        )
    );
    let (frontend, worker) = (clique("g-0-frontend", one), clique("g-0-worker", two));
    let left = Seen {
        cliques: &[&frontend, &worker],
        ..Seen::default()
    };
    let nothing = status(&graph(json!({})), left, at(1));
    assert_eq!(nothing.state.as_deref(), Some("initializing"));
    assert_eq!(told_of(&nothing), "What the graph becomes does not exist yet");
    let failed = Seen {
        failure: Some("no"),
        ..Seen::default()
    };
    let failed = status(&graph(json!({})), failed, at(1));
    assert_eq!(failed.state.as_deref(), Some("failed"));
    assert_eq!(told_of(&failed), "no");
}

/// Why nothing comes to be is known to the operator, and told where people look.
#[test]
fn readiness_says_what_went_wrong() {
    let mut set = set(None);
    let error = json!({"code": "ERR_WRITE", "description": "PodClique ns/g-0-worker was refused: no",
        "observedAt": "2026-01-01T00:00:00Z"});
    let status_of_set = set.status.as_mut().expect("a status");
    status_of_set.last_errors = vec![serde_json::from_value(error).expect("an error")];
    let frontend = clique("g-0-frontend", [1; 4]);
    let seen = Seen {
        set: Some(&set),
        cliques: &[&frontend],
        ..Seen::default()
    };
    assert_eq!(
        told_of(&status(&graph(json!({})), seen, at(1))),
        "Worker: does not exist yet; PodClique ns/g-0-worker was refused: no"
    );
}

/// What cliques count may be of the templates before: the set says whether it has been updated to the newest.
#[test]
fn a_graph_is_not_ready_before_its_set_is_followed() {
    let (frontend, worker) = (clique("g-0-frontend", [1; 4]), clique("g-0-worker", [2; 4]));
    let ready = |of_set: Value| {
        let set = json!({"metadata": {"name": "g", "generation": 2}, "spec": {"template": {"cliques": []}},
            "status": of_set});
        let set: PodCliqueSet = serde_json::from_value(set).expect("a set");
        let seen = Seen {
            set: Some(&set),
            cliques: &[&frontend, &worker],
            ..Seen::default()
        };
        let (is_ready, reason, _) = told(&status(&graph(json!({})), seen, at(1)), "Ready").expect("a condition");
        (is_ready, reason)
    };
    let progress = |ended: Option<&str>| {
        json!({"observedGeneration": 2,
            "updateProgress": {"updateStartedAt": "2026-01-01T00:00:00Z", "updateEndedAt": ended}})
    };
    let updating = ("False".to_owned(), "updating".to_owned());
    assert_eq!(ready(json!({"observedGeneration": 1})), updating);
    assert_eq!(ready(progress(None)), updating);
    let all = ("True".to_owned(), "all_resources_are_ready".to_owned());
    assert_eq!(ready(progress(Some("2026-01-01T00:01:00Z"))), all);
    assert_eq!(ready(json!({"observedGeneration": 2})), all);
}

fn told_of(status: &DynamoGraphDeploymentStatus) -> String {
    told(status, "Ready").map(|(.., message)| message).unwrap_or_default()
}

#[test]
fn a_condition_moves_its_time_only_with_its_status() {
    let mut graph = graph(json!({}));
    let since = |status: &DynamoGraphDeploymentStatus| -> Option<Timestamp> {
        let ready: Option<&Condition> = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        ready.map(|ready| ready.last_transition_time.0)
    };
    let first = status(&graph, Seen::default(), at(1));
    graph.status = Some(first);
    let second = status(&graph, Seen::default(), at(2));
    assert_eq!(since(&second), Some(at(1)));
    assert_eq!(graph.status.as_ref(), Some(&second), "nothing to write");
}

/// The last restart is remembered when the wish for it is taken back, and goes on if it had begun.
#[test]
fn a_restart_outlives_the_wish_for_it() {
    let restarted = |id: &str, seen: i64| -> PodCliqueSet {
        let clique = json!({"name": "worker", "annotations": {"nvidia.com/restartAt": id},
            "spec": {"roleName": "worker", "replicas": 1, "podSpec": {"containers": []}}});
        let set = json!({"metadata": {"name": "g", "generation": 2}, "spec": {"template": {"cliques": [clique]}},
            "status": {"observedGeneration": seen}});
        serde_json::from_value(set).expect("a set")
    };
    let mut graph = graph(json!({"spec": {"restart": {"id": "one"}}}));
    let mut phase = |set: &PodCliqueSet, is_wanted: bool| {
        if !is_wanted {
            graph.spec.restart = None;
        }
        let seen = Seen {
            set: Some(set),
            ..Seen::default()
        };
        let after = status(&graph, seen, at(1));
        graph.status = Some(after.clone());
        after.restart.map(|restart| (restart.observed_id, restart.phase))
    };
    let says = |phase: &str| Some(("one".to_owned(), phase.to_owned()));
    assert_eq!(phase(&restarted("one", 1), true), says("Restarting"));
    assert_eq!(phase(&restarted("one", 1), false), says("Restarting"));
    assert_eq!(phase(&restarted("one", 2), false), says("Completed"));
    assert_eq!(
        phase(&restarted("none", 2), false),
        says("Completed"),
        "also in another set"
    );
}
