//! The stored configurations, read once for each of their versions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::super::Server;
use super::client::Remote;
use super::conditions::Condition;
use super::rules::Rule;
use crate::clock::Clock;
use crate::selector::LabelSelector;
use crate::store::{Entry, ResourceName, Store};

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) mutating: bool,
    pub(super) rules: Vec<Rule>,
    /// `matchPolicy: Exact`: other versions of the same kind are other kinds.
    pub(super) is_exact: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    pub(super) conditions: Vec<Condition>,
    pub(super) ignores_failure: bool,
    pub(super) allows_dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvoked: bool,
    pub(super) remote: Remote,
}

impl Hook {
    fn parse(webhook: &Value, mutating: bool, clock: Clock) -> Self {
        let text = |field: &str| webhook[field].as_str().unwrap_or_default();
        let list = |field: &str| webhook[field].as_array().into_iter().flatten();
        let timeout = Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10));
        Self {
            name: text("name").to_owned(),
            mutating,
            rules: list("rules").map(Rule::parse).collect(),
            is_exact: text("matchPolicy") == "Exact",
            namespaces: LabelSelector::from_object(&webhook["namespaceSelector"]),
            objects: LabelSelector::from_object(&webhook["objectSelector"]),
            conditions: list("matchConditions").map(Condition::parse).collect(),
            ignores_failure: text("failurePolicy") == "Ignore",
            allows_dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            remote: Remote::parse(&webhook["clientConfig"], timeout, clock),
        }
    }
}

/// One version of a stored configuration, understood.
#[derive(Debug)]
struct Configuration {
    revision: u64,
    hooks: Vec<Arc<Hook>>,
}

/// The webhooks that are configured now.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    /// By whether they mutate, and by name.
    known: Mutex<BTreeMap<(bool, String), Configuration>>,
}

impl Hooks {
    /// The mutating or the validating webhooks in the order of their configurations' names.
    pub(super) fn of(&self, server: &Server, mutating: bool) -> Vec<Arc<Hook>> {
        let stored = stored(&server.store, mutating);
        if stored.is_empty() {
            return Vec::new();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Configurations that were deleted need no place in memory.
        known.retain(|(of, name), _| *of != mutating || stored.iter().any(|(stored, _)| stored == name));
        let mut hooks = Vec::new();
        for (name, entry) in stored {
            let place = known.entry((mutating, name)).or_insert(Configuration {
                revision: 0,
                hooks: Vec::new(),
            });
            if place.revision != entry.revision {
                let object = entry.value();
                let webhooks = object["webhooks"].as_array().into_iter().flatten();
                let parsed = webhooks.map(|webhook| Arc::new(Hook::parse(webhook, mutating, server.clock.clone())));
                *place = Configuration {
                    revision: entry.revision,
                    hooks: parsed.collect(),
                };
            }
            hooks.extend(place.hooks.iter().cloned());
        }
        hooks
    }
}

fn stored(store: &Store, mutating: bool) -> Vec<(String, Entry)> {
    let plural = match mutating {
        true => "mutatingwebhookconfigurations",
        false => "validatingwebhookconfigurations",
    };
    let page = store.list(&ResourceName::new("admissionregistration.k8s.io", plural), None);
    page.items
        .into_iter()
        .map(|(key, entry)| (key.name.clone(), entry))
        .collect()
}
