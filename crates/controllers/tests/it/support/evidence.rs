//! What the history of a run shows: who wrote what, and how the pods stood at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use grove_api::rights;
use grove_simcluster::history::{History, Requests, Write, Writes};
use grove_simcluster::server::Intent;
use k8s_openapi::api::events::v1::Event;
use serde_json::Value;

use super::{HOME, NAMESPACE, OPERATOR, World};

impl World {
    pub(crate) fn history(&self) -> &History {
        self.cluster.history().expect("histories of tests are recorded")
    }

    pub(crate) fn revision(&self) -> u64 {
        self.cluster.store().revision()
    }

    /// What the operator wrote after a revision.
    pub(crate) fn operator_writes(&self, after: u64) -> Writes {
        self.history().writes().by_user(OPERATOR).after(after)
    }

    /// What the operator asked for, Leases and watches not counted.
    pub(crate) fn operator_requests(&self) -> Requests {
        let requests = self.history().requests().by_user(OPERATOR);
        requests.only(|asked| {
            let is_lease = &*asked.intent.resource.plural == "leases";
            !is_lease && !matches!(asked.intent.verb, grove_simcluster::server::Verb::Watch)
        })
    }

    /// What the operator told people; who places gangs tells things too.
    pub(crate) async fn told(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.list::<Event>().await.into_values().collect();
        events.retain(|event| event.reporting_instance.as_deref() == Some("grove-operator"));
        events
    }

    /// What was written since a revision and is still there, by kind and name. Events are about things, and no things.
    pub(crate) fn remaining(&self, since: u64) -> BTreeMap<(String, String), Value> {
        let writes = self.history().writes().after(since);
        let mut last: BTreeMap<(String, String), &Write> = BTreeMap::new();
        for write in writes.iter().filter(|write| write.key.namespace == NAMESPACE) {
            if &*write.resource.plural != "events" {
                last.insert((write.resource.to_string(), write.key.name.clone()), write);
            }
        }
        let there = last
            .into_iter()
            .filter_map(|(name, write)| Some((name, write.after()?)));
        there.collect()
    }

    /// What the operator asked for that its roles do not allow.
    pub(crate) fn beyond_rights(&self) -> BTreeSet<String> {
        let everywhere = rights::cluster_role().rules.unwrap_or_default();
        let at_home = rights::role(&HOME).rules.unwrap_or_default();
        let asked = self.history().requests().by_user(OPERATOR);
        let beyond = asked.only(|asked| {
            let Intent {
                verb,
                resource,
                subresource,
                namespace,
                name,
                ..
            } = &asked.intent;
            let plural = match subresource.as_str() {
                "" => resource.plural.to_string(),
                subresource => format!("{}/{subresource}", resource.plural),
            };
            let verb = format!("{verb:?}").to_lowercase();
            // A list that asks for one name by a selector is allowed by that name, which the intent of a list does not have.
            let name = match (name.as_str(), plural.as_str()) {
                ("", "secrets") if verb != "create" => HOME.secret,
                (name, _) => name,
            };
            let is_allowed = |rules| rights::allows(rules, (&resource.group, &plural), &verb, name);
            let is_home = namespace == HOME.namespace;
            !(is_allowed(&everywhere) || is_home && is_allowed(&at_home))
        });
        let words = beyond
            .iter()
            .map(|asked| format!("{:?} {:?}", asked.intent.verb, asked.intent.resource));
        words.collect()
    }

    /// Shows how all pods stood after each write since a revision.
    pub(crate) fn replay(&self, since: u64, check: impl FnMut(&Scene)) {
        self.replay_between(since..u64::MAX, check);
    }

    /// Shows how all pods stood after each write up to a revision.
    pub(crate) fn replay_until(&self, end: u64, check: impl FnMut(&Scene)) {
        self.replay_between(0..end, check);
    }

    fn replay_between(&self, revisions: Range<u64>, mut check: impl FnMut(&Scene)) {
        let mut scene = Scene::default();
        for write in self.history().writes().of_kind("", "pods").iter() {
            match write.after() {
                Some(pod) => drop(scene.pods.insert(write.key.name.clone(), pod)),
                None => drop(scene.pods.remove(&write.key.name)),
            }
            if write.revision > revisions.start && write.revision < revisions.end {
                check(&scene);
            }
        }
    }
}

/// All pods at one moment, by name.
#[derive(Default)]
pub(crate) struct Scene {
    pods: BTreeMap<String, Value>,
}

impl Scene {
    /// How many pods of cliques whose name begins so are ready.
    pub(crate) fn ready(&self, prefix: &str) -> usize {
        let ready = self.of(prefix).filter(|pod| condition(pod, "Ready") == "True");
        ready.count()
    }

    /// The images that ready pods of such cliques run.
    pub(crate) fn ready_images(&self, prefix: &str) -> BTreeSet<&str> {
        let ready = self.of(prefix).filter(|pod| condition(pod, "Ready") == "True");
        ready
            .filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str())
            .collect()
    }

    pub(crate) fn of(&self, prefix: &str) -> impl Iterator<Item = &Value> {
        let pods = self.pods.iter().filter(move |(name, _)| name.starts_with(prefix));
        pods.map(|(_, pod)| pod)
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
    }
}

fn condition<'a>(pod: &'a Value, type_: &str) -> &'a str {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == type_);
    found
        .next()
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
}
