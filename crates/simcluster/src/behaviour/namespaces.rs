//! Namespaces: what a new one gets, and how a deleted one ends.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{Actor, Writes};
use crate::registry::Subresource;
use crate::rules::kinds::{condition, set_condition};
use crate::rules::metadata;
use crate::server::DeleteOptions;
use crate::store::{EventKind, Key, ResourceName, decode};
use crate::user::User;

/// How long a deleted namespace rests before its content goes; the real controller waits as long.
const PAUSE: Duration = Duration::from_secs(5);

/// Namespaces, and whatever goes: it may be the last content of one that is being deleted.
pub(super) fn wants(resource: &ResourceName, kind: EventKind) -> bool {
    kind == EventKind::Deleted || resource.is("", "namespaces")
}

pub(super) async fn run(actor: Actor, mut writes: Writes) {
    let namespaces = ResourceName::new("", "namespaces");
    // Terminating namespaces, and when their content is to be deleted; `None` once that was done.
    let mut ending: BTreeMap<String, Option<Instant>> = BTreeMap::new();
    loop {
        let next = ending.values().flatten().min().copied();
        tokio::select! {
            biased;
            write = writes.recv() => {
                let Some((resource, event)) = write else { return };
                if resource == namespaces {
                    let namespace = decode(&event.object);
                    match event.kind {
                        EventKind::Deleted => drop(ending.remove(&event.key.name)),
                        EventKind::Added => furnish(&actor, &event.key.name).await,
                        EventKind::Modified => {}
                    }
                    if event.kind != EventKind::Deleted && metadata::is_terminating(&namespace) {
                        ending.entry(event.key.name.clone()).or_insert(Some(Instant::now() + PAUSE));
                    }
                } else if event.kind == EventKind::Deleted && ending.get(&event.key.namespace) == Some(&None) {
                    finalize(&actor, &event.key.namespace).await;
                }
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                let now = Instant::now();
                let due: Vec<String> =
                    ending.iter().filter(|(_, at)| at.is_some_and(|at| at <= now)).map(|(name, _)| name.clone()).collect();
                for name in due {
                    // What admission did not let go is tried again.
                    let again = match empty(&actor, &name).await {
                        true => None,
                        false => Some(Instant::now() + PAUSE),
                    };
                    ending.insert(name.clone(), again);
                    finalize(&actor, &name).await;
                }
            }
        }
    }
}

/// Gives a new namespace its service account and the cluster's certificate.
async fn furnish(actor: &Actor, namespace: &str) {
    let account = json!({"metadata": {"name": "default"}});
    let accounts = actor.named(User::controller("service-account-controller"));
    accounts
        .create(&ResourceName::new("", "serviceaccounts"), namespace, account)
        .await;
    let certificate = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}});
    let publisher = actor.named(User::controller("root-ca-cert-publisher"));
    publisher
        .create(&ResourceName::new("", "configmaps"), namespace, certificate)
        .await;
}

/// The namespaced collections, each stored one once.
fn collections(actor: &Actor) -> Vec<ResourceName> {
    let registry = actor.server.registry();
    let mut all: Vec<ResourceName> = registry
        .iter()
        .filter(|r| r.namespaced && r.name == r.storage)
        .map(|r| r.name.clone())
        .collect();
    // Pods first: what they use goes after them.
    all.sort_by_key(|name| *name != ResourceName::new("", "pods"));
    all
}

/// Deletes all content; the answer is whether everything could be.
async fn empty(actor: &Actor, namespace: &str) -> bool {
    let mut all = true;
    for resource in collections(actor) {
        for (key, _) in actor.server.store.list(&resource, Some(namespace)).items {
            all &= actor.delete(&resource, &key, &DeleteOptions::default()).await;
        }
    }
    all
}

/// Lets an empty namespace go; of another one, tells what is left in it.
async fn finalize(actor: &Actor, namespace: &str) {
    let listed = collections(actor).into_iter().map(|resource| {
        let items = actor.server.store.list(&resource, Some(namespace)).items;
        let items: Vec<Value> = items.iter().map(|(_, entry)| entry.value()).collect();
        (resource, items)
    });
    let left: Vec<(ResourceName, Vec<Value>)> = listed.filter(|(_, items)| !items.is_empty()).collect();
    let namespaces = ResourceName::new("", "namespaces");
    let key = Key::new("", namespace);
    if !left.is_empty() {
        let conditions = remaining(&left, actor.server.clock.now());
        actor.modify(&namespaces, &key, |object| {
            let before = object["status"].clone();
            for condition in conditions.iter().cloned() {
                set_condition(&mut object["status"]["conditions"], condition);
            }
            object["status"] != before
        });
        return;
    }
    let finalize = Some(Subresource::Finalize);
    let released = actor
        .server
        .change_internal(&actor.user, (&namespaces, &key), finalize, |object| {
            object["spec"]["finalizers"] = json!([]);
        });
    if let Err(error) = released.await
        && error.code != 404
    {
        tracing::warn!(namespace, %error, "cannot finalize a namespace");
    }
}

/// The conditions of a namespace in which something is left.
fn remaining(left: &[(ResourceName, Vec<Value>)], now: Timestamp) -> Vec<Value> {
    let counts: Vec<String> = left
        .iter()
        .map(|(r, items)| format!("{}.{} has {} resource instances", r.plural, r.group, items.len()))
        .collect();
    let mut holders: BTreeMap<&str, usize> = BTreeMap::new();
    for finalizer in left.iter().flat_map(|(_, items)| items).flat_map(metadata::finalizers) {
        *holders.entry(finalizer).or_default() += 1;
    }
    let holders: Vec<String> = holders
        .iter()
        .map(|(name, count)| format!("{name} in {count} resource instances"))
        .collect();
    let (held, reason, message) = match holders.is_empty() {
        true => (
            false,
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_owned(),
        ),
        false => {
            let list = holders.join(", ");
            (
                true,
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {list}"),
            )
        }
    };
    let fine = |kind: &str, reason: &str, message: &str| condition(kind, false, reason, message, now);
    let discovered = "All resources successfully discovered";
    let parsed = "All legacy kube types successfully parsed";
    let deleted = "All content successfully deleted, may be waiting on finalization";
    let some = format!("Some resources are remaining: {}", counts.join(", "));
    vec![
        fine("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", discovered),
        fine(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            parsed,
        ),
        fine("NamespaceDeletionContentFailure", "ContentDeleted", deleted),
        condition("NamespaceContentRemaining", true, "SomeResourcesRemain", &some, now),
        condition("NamespaceFinalizersRemaining", held, reason, &message, now),
    ]
}
