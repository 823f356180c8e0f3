//! O2 and O5: how many pods cliques have at every moment, and who made them fewer.

use std::collections::BTreeMap;
use std::rc::Rc;

use grove_api::labels;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::object::{condition, controller, is_leaving, is_live, is_ready, label, number, uid};
use crate::play::Played;
use crate::process::{Role, is_ours};
use crate::trace::{Change, Key};

/// For how long somebody may act on a number that is not asked for any more: a watch that says nothing is given up after
/// five minutes, and the next one may say nothing too.
const SEEN_LATE: SignedDuration = SignedDuration::from_mins(15);

/// All that there is at one moment.
#[derive(Default)]
struct Scene {
    objects: BTreeMap<Key, Rc<Value>>,
    /// The numbers that each clique has asked for, by UID, and until when.
    asked: BTreeMap<String, Vec<(Timestamp, i64)>>,
}

impl Scene {
    fn take(&mut self, change: &Change) {
        if change.plural() == "podcliques" {
            self.note_number(change);
        }
        match &change.after {
            Some(object) => drop(self.objects.insert(change.key.clone(), object.clone())),
            None => drop(self.objects.remove(&change.key)),
        }
    }

    fn note_number(&mut self, change: &Change) {
        let Some(clique) = change.before.as_deref().or(change.after.as_deref()) else {
            return;
        };
        let asked = self.asked.entry(uid(clique).to_owned()).or_default();
        asked.push((change.time, number(clique, "/spec/replicas")));
    }

    fn of<'a>(&'a self, plural: &'a str) -> impl Iterator<Item = &'a Value> {
        let objects = self.objects.iter().filter(move |(key, _)| key.0 == plural);
        objects.map(|(_, object)| &**object)
    }

    fn pods_of<'a>(&'a self, clique: &'a str) -> impl Iterator<Item = &'a Value> {
        self.of("pods").filter(move |pod| controller(pod) == Some(clique))
    }

    fn clique(&self, uid_: &str) -> Option<&Value> {
        self.of("podcliques").find(|clique| uid(clique) == uid_)
    }

    fn named(&self, plural: &str, namespace: &str, name: &str) -> Option<&Value> {
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.objects.get(&key).map(|object| &**object)
    }

    /// The most pods that the clique has asked for lately.
    fn asked_lately(&self, clique: &str, now: Timestamp, late: SignedDuration) -> i64 {
        let before = self.asked.get(clique).into_iter().flatten();
        let lately = before.filter(|(until, _)| now.duration_since(*until) <= late);
        let lately = lately.map(|(_, number)| *number).max().unwrap_or(0);
        let today = self.clique(clique).map_or(0, |clique| number(clique, "/spec/replicas"));
        lately.max(today)
    }
}

/// Goes through all moments; what is found at each, before it and after it.
fn through<'a>(played: &'a Played, mut find: impl FnMut(&Scene, &'a Change) -> Option<String>) -> Vec<String> {
    let mut scene = Scene::default();
    let mut findings = Vec::new();
    for change in &played.changes {
        findings.extend(find(&scene, change));
        scene.take(change);
    }
    findings
}

/// O2: pods that were made though their clique had enough.
pub(super) fn too_many(played: &Played) -> Vec<String> {
    through(played, |scene, change| {
        let is_new = change.plural() == "pods" && change.before.is_none() && is_ours(&change.user);
        let clique = change.after.as_deref().filter(|_| is_new).and_then(controller)?;
        let live = 1 + scene.pods_of(clique).filter(|pod| is_live(pod)).count();
        let asked = scene.asked_lately(clique, change.time, SEEN_LATE.saturating_add(played.jumped));
        let is_too_many = i64::try_from(live).is_ok_and(|live| live > asked);
        is_too_many.then(|| format!("{}: the {live}. of {asked} pods", change.words()))
    })
}

/// O5: pods and cliques that our processes took away though that broke a minimum, and nothing asked for it.
pub(super) fn below_minimum(played: &Played) -> Vec<String> {
    through(played, |scene, change| {
        if !is_ours(&change.user) || !change.is_deletion() {
            return None;
        }
        let before = change.before.as_deref()?;
        let why = match change.plural() {
            "pods" if change.user == Role::Scheduler.user() => preempted_for_nobody(scene, before),
            "pods" => pod_below_minimum(scene, before),
            "podcliques" => clique_for_nothing(scene, before),
            _ => None,
        };
        why.map(|why| format!("{}: {why}", change.words()))
    })
}

/// Why a pod should have stayed that the operator deleted.
fn pod_below_minimum(scene: &Scene, pod: &Value) -> Option<String> {
    let owner = controller(pod)?;
    // Pods of a clique that goes, go with it.
    let clique = scene.clique(owner).filter(|clique| !is_leaving(clique))?;
    let (replicas, minimum) = (number(clique, "/spec/replicas"), number(clique, "/spec/minAvailable"));
    let count = |counts: fn(&Value) -> bool| {
        let pods = scene.pods_of(owner).filter(|pod| counts(pod)).count();
        i64::try_from(pods).unwrap_or(i64::MAX)
    };
    let (live, ready) = (count(is_live), count(is_ready));
    if !is_ready(pod) || live > replicas || ready > minimum || ready < minimum {
        return None;
    }
    // Without a surge one is missing while it is replaced, where all are needed.
    let hash = |object| label(object, labels::POD_TEMPLATE_HASH);
    let is_updated = hash(pod) != hash(clique) && minimum >= replicas && ready >= replicas;
    (!is_updated).then(|| format!("{ready} of {replicas} were ready, and {minimum} are needed"))
}

/// Why a clique should have stayed that the operator deleted.
fn clique_for_nothing(scene: &Scene, clique: &Value) -> Option<String> {
    let (owner, namespace) = (uid(clique), clique["metadata"]["namespace"].as_str()?);
    let ready = scene.pods_of(owner).filter(|pod| is_ready(pod)).count();
    if i64::try_from(ready).is_ok_and(|ready| ready < number(clique, "/spec/minAvailable")) {
        return None;
    }
    let index = |key| label(clique, key).parse::<i64>().unwrap_or(0);
    let set = scene.named("podcliquesets", namespace, label(clique, labels::PART_OF));
    let set = set.filter(|set| !is_leaving(set))?;
    if index(labels::PCS_REPLICA_INDEX) >= number(set, "/spec/replicas") {
        return None;
    }
    let group = label(clique, labels::SCALING_GROUP);
    if !group.is_empty() {
        let group = scene.named("podcliquescalinggroups", namespace, group);
        let group = group.filter(|group| !is_leaving(group))?;
        let is_beyond = index(labels::SCALING_GROUP_REPLICA_INDEX) >= number(group, "/spec/replicas");
        let is_updated = !set["status"]["updateProgress"].is_null()
            || set["metadata"]["generation"] != set["status"]["observedGeneration"];
        if is_beyond || is_updated {
            return None;
        }
    }
    let replica = |object: &Value| {
        let labels = [labels::PART_OF, labels::PCS_REPLICA_INDEX];
        labels.map(|key| label(object, key).to_owned())
    };
    let mut parts = scene.of("podcliques").chain(scene.of("podcliquescalinggroups"));
    let is_broken =
        parts.any(|part| replica(part) == replica(clique) && condition(part, "MinAvailableBreached") == "True");
    (!is_broken).then(|| format!("{ready} of its pods were ready, and no part of its replica was broken"))
}

/// Why a pod should have stayed that the scheduler deleted.
fn preempted_for_nobody(scene: &Scene, pod: &Value) -> Option<String> {
    let priority = |pod: &Value| number(pod, "/spec/priority");
    let mut waiting = scene
        .of("pods")
        .filter(|other| is_live(other) && other["spec"]["nodeName"].is_null());
    let is_for_somebody = waiting.any(|other| priority(other) > priority(pod));
    (is_ready(pod) && !is_for_somebody).then(|| "nobody of higher priority waits".to_owned())
}
