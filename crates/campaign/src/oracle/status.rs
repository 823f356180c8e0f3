//! O8: at rest, statuses say what is.

use std::collections::BTreeMap;
use std::rc::Rc;

use grove_api::labels;
use serde_json::Value;

use super::object::{
    condition, controller, is_bound, is_gated, is_leaving, is_live, is_ready, items, label, number, uid,
};
use crate::trace::Key;

type State<'a> = BTreeMap<&'a Key, &'a Rc<Value>>;

/// What some status says and is not so.
pub(super) fn untrue(state: &State<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for ((plural, _, name), object) in state {
        let said = match plural.as_str() {
            _ if is_leaving(object) => Vec::new(),
            "podcliques" => clique(state, object),
            "podcliquescalinggroups" => group(state, object),
            "podcliquesets" => set(state, object),
            "podgangs" => gang(state, object),
            _ => Vec::new(),
        };
        findings.extend(said.into_iter().map(|said| format!("{plural} {name}: {said}")));
    }
    findings
}

fn of<'a>(state: &'a State<'_>, plural: &'a str) -> impl Iterator<Item = &'a Value> {
    let objects = state.iter().filter(move |(key, _)| key.0 == plural);
    objects.map(|(_, object)| &***object)
}

fn pods_of<'a>(state: &'a State<'_>, clique: &'a Value) -> impl Iterator<Item = &'a Value> {
    let pods = of(state, "pods").filter(|pod| is_live(pod));
    pods.filter(|pod| controller(pod) == Some(uid(clique)))
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Compares numbers of a status with those that were counted.
fn compare(object: &Value, counted: &[(&str, i64)]) -> Vec<String> {
    let wrong = counted.iter().filter_map(|(field, count)| {
        let said = number(object, &format!("/status/{field}"));
        (said != *count).then(|| format!("{field} is {said}, and there are {count}"))
    });
    let mut findings: Vec<String> = wrong.collect();
    if object["status"]["observedGeneration"] != object["metadata"]["generation"] {
        findings.push("the newest generation was not observed".to_owned());
    }
    if !items(object, "/status/lastErrors").is_empty() {
        findings.push(format!(
            "says that something is wrong: {}",
            object["status"]["lastErrors"]
        ));
    }
    findings
}

fn clique(state: &State<'_>, clique: &Value) -> Vec<String> {
    let count = |counts: &dyn Fn(&Value) -> bool| signed(pods_of(state, clique).filter(|pod| counts(pod)).count());
    let hash = label(clique, labels::POD_TEMPLATE_HASH);
    let counted = [
        ("replicas", count(&|_| true)),
        ("readyReplicas", count(&is_ready)),
        ("scheduledReplicas", count(&is_bound)),
        ("scheduleGatedReplicas", count(&is_gated)),
        (
            "updatedReplicas",
            count(&|pod| label(pod, labels::POD_TEMPLATE_HASH) == hash),
        ),
    ];
    compare(clique, &counted)
}

/// Whether a clique has its minimum.
fn is_available(state: &State<'_>, clique: &Value) -> bool {
    let ready = pods_of(state, clique).filter(|pod| is_ready(pod)).count();
    signed(ready) >= number(clique, "/spec/minAvailable")
}

/// How many replicas of a group have the minimum of every clique.
fn available_of_group(state: &State<'_>, group: &Value) -> i64 {
    let name = group["metadata"]["name"].as_str().unwrap_or_default();
    let members: Vec<&Value> = of(state, "podcliques")
        .filter(|clique| label(clique, labels::SCALING_GROUP) == name && !is_leaving(clique))
        .collect();
    let is_whole = |replica: &i64| {
        let index = replica.to_string();
        let mine = || {
            let mine = members.iter();
            mine.filter(|clique| label(clique, labels::SCALING_GROUP_REPLICA_INDEX) == index)
        };
        mine().next().is_some() && mine().all(|clique| is_available(state, clique))
    };
    signed((0..number(group, "/spec/replicas")).filter(is_whole).count())
}

fn group(state: &State<'_>, group: &Value) -> Vec<String> {
    let counted = [
        ("replicas", number(group, "/spec/replicas")),
        ("availableReplicas", available_of_group(state, group)),
    ];
    compare(group, &counted)
}

fn set(state: &State<'_>, set: &Value) -> Vec<String> {
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let is_of = |object: &Value, replica: &str| {
        label(object, labels::PART_OF) == name && label(object, labels::PCS_REPLICA_INDEX) == replica
    };
    let is_whole = |replica: &i64| {
        let index = replica.to_string();
        let alone = || {
            let mine = of(state, "podcliques").filter(|clique| is_of(clique, &index) && !is_leaving(clique));
            mine.filter(|clique| label(clique, labels::SCALING_GROUP).is_empty())
        };
        let groups = || of(state, "podcliquescalinggroups").filter(|group| is_of(group, &index) && !is_leaving(group));
        let is_there = alone().next().is_some() || groups().next().is_some();
        is_there
            && alone().all(|clique| is_available(state, clique))
            && groups().all(|group| available_of_group(state, group) >= number(group, "/spec/minAvailable"))
    };
    let available = (0..number(set, "/spec/replicas")).filter(is_whole).count();
    let counted = [
        ("replicas", number(set, "/spec/replicas")),
        ("availableReplicas", signed(available)),
    ];
    compare(set, &counted)
}

/// `Scheduled` is true of a gang whose every pod-group has its minimum on nodes, and of no other.
fn gang(state: &State<'_>, gang: &Value) -> Vec<String> {
    let namespace = gang["metadata"]["namespace"].as_str().unwrap_or_default();
    let is_bound = |reference: &&Value| {
        let name = reference["name"].as_str().unwrap_or_default();
        let key = ("pods".to_owned(), namespace.to_owned(), name.to_owned());
        state.get(&key).is_some_and(|pod| is_live(pod) && is_bound(pod))
    };
    let has_minimum = |group: &Value| {
        let bound = items(group, "/podReferences").iter().filter(is_bound).count();
        signed(bound) >= number(group, "/minReplicas")
    };
    let is_placed = items(gang, "/spec/podgroups").iter().all(has_minimum);
    let says_so = condition(gang, "Scheduled") == "True";
    match is_placed == says_so {
        true => Vec::new(),
        false => vec![format!("Scheduled is {says_so}, and its minimum is bound: {is_placed}")],
    }
}
