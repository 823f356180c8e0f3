//! Garbage collection: objects go when their owners are gone.
//!
//! The graph of owners is kept from the writes in their order, so it is exact as of the write being handled: a uid
//! that it does not know never existed or is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{Actor, Writes};
use crate::clock::seconds;
use crate::rules::metadata::{self, FOREGROUND, ORPHAN};
use crate::server::{DeleteOptions, Propagation};
use crate::store::{Event, EventKind, Head, Key, Owner, ResourceName, Store};

/// When garbage that admission refused to let go is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How long an object is left alone that was written with owners of which none is there. Kubernetes' collector takes its
/// time too; with none at all, it and a controller that still believes in the owner would go round without time passing.
const DOUBT: Duration = Duration::from_secs(1);

type Object = (ResourceName, std::sync::Arc<Key>);

/// Who exists, who is owned by whom, and who waits for dependents.
#[derive(Debug, Default)]
struct Graph {
    /// Objects by uid.
    objects: BTreeMap<String, (Object, Vec<Owner>)>,
    /// Uids of dependents by uid of the owner.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Uids of owners that wait for their dependents.
    waiting: BTreeSet<String>,
    /// Uids to look at again, by when: what admission did not let go, and what was written without an owner in sight.
    later: BTreeSet<(Instant, String)>,
}

impl Graph {
    /// What is stored when the cluster starts. Nothing of it is acted on before all of it is known: an owner may have
    /// been written later than its dependents.
    fn of(store: &Store) -> Self {
        let mut graph = Self::default();
        for (resource, key, entry) in store.everything() {
            graph.insert((resource, key), &Head::of(&entry.value()));
        }
        graph
    }

    fn insert(&mut self, object: Object, head: &Head) {
        self.remove_edges(&head.uid);
        for owner in &head.owner_references {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(head.uid.clone());
        }
        self.objects
            .insert(head.uid.clone(), (object, head.owner_references.clone()));
    }

    fn remove(&mut self, uid: &str) {
        self.remove_edges(uid);
        self.objects.remove(uid);
        self.waiting.remove(uid);
    }

    fn owners_of(&self, uid: &str) -> &[Owner] {
        self.objects.get(uid).map_or(&[], |(_, owners)| owners)
    }

    fn remove_edges(&mut self, uid: &str) {
        for owner in self.owners_of(uid).to_vec() {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    fn dependents_of(&self, uid: &str) -> Vec<String> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Whether the owner exists where the dependent may refer to it.
    fn exists(&self, owner: &Owner, dependent: &Key) -> bool {
        self.objects
            .get(&owner.uid)
            .is_some_and(|((_, key), _)| key.namespace.is_empty() || key.namespace == dependent.namespace)
    }

    /// Whether any owner of an object exists.
    fn has_owner(&self, uid: &str) -> bool {
        let Some(((_, key), owners)) = self.objects.get(uid) else {
            return false;
        };
        owners.iter().any(|owner| self.exists(owner, key))
    }

    /// Whether a dependent keeps its owner from going in a foreground deletion.
    fn blocks(&self, dependent: &str, owner: &str) -> bool {
        self.owners_of(dependent)
            .iter()
            .any(|reference| reference.uid == owner && reference.block_owner_deletion)
    }
}

pub(super) async fn run(actor: Actor, mut writes: Writes) {
    let mut graph = Graph::of(&actor.server.store);
    loop {
        let next = graph.later.first().map(|(at, _)| *at);
        tokio::select! {
            biased;
            write = writes.recv() => {
                let Some((resource, event)) = write else { return };
                // An event is stored under one name and served under two; leases and events never own anything.
                handle(&actor, &mut graph, resource, &event).await;
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                if let Some((_, uid)) = graph.later.pop_first() {
                    collect(&actor, &mut graph, &uid).await;
                }
            }
        }
    }
}

async fn handle(actor: &Actor, graph: &mut Graph, resource: ResourceName, event: &Event) {
    let head = &event.head;
    let object = (resource, event.key.clone());
    let before = graph.owners_of(&head.uid).to_vec();
    if event.kind == EventKind::Deleted {
        let dependents = graph.dependents_of(&head.uid);
        graph.remove(&head.uid);
        for dependent in dependents {
            collect(actor, graph, &dependent).await;
        }
        for owner in &head.owner_references {
            settle(actor, graph, &owner.uid).await;
        }
        return;
    }
    graph.insert(object.clone(), head);
    if head.is_terminating() && head.has_finalizer(ORPHAN) {
        orphan(actor, graph, &object, &head.uid).await;
    } else if head.is_terminating() && head.has_finalizer(FOREGROUND) {
        graph.waiting.insert(head.uid.clone());
        for dependent in graph.dependents_of(&head.uid) {
            collect(actor, graph, &dependent).await;
        }
        settle(actor, graph, &head.uid).await;
    } else if graph.has_owner(&head.uid) {
        collect(actor, graph, &head.uid).await;
    } else if !head.owner_references.is_empty() {
        graph.later.insert((Instant::now() + DOUBT, head.uid.clone()));
    }
    // A reference that was taken away may have been the last that an owner waited for.
    for owner in before.iter().filter(|owner| graph.waiting.contains(&owner.uid)) {
        settle(actor, graph, &owner.uid).await;
    }
}

/// Deletes a dependent that no live owner holds, or frees it of references to owners that are gone.
async fn collect(actor: &Actor, graph: &mut Graph, uid: &str) {
    let Some(((resource, key), owners)) = graph.objects.get(uid) else {
        return;
    };
    let (present, absent): (Vec<&Owner>, Vec<&Owner>) = owners.iter().partition(|owner| graph.exists(owner, key));
    let solid = present.iter().any(|owner| !graph.waiting.contains(&owner.uid));
    let waits = present.iter().any(|owner| graph.waiting.contains(&owner.uid));
    for owner in absent.iter().filter(|owner| graph.objects.contains_key(&owner.uid)) {
        report_foreign_owner(actor, resource, key, owner).await;
    }
    if solid {
        let gone: Vec<&str> = absent.iter().map(|owner| owner.uid.as_str()).collect();
        let ending: Vec<&str> = present
            .iter()
            .map(|o| o.uid.as_str())
            .filter(|u| graph.waiting.contains(*u))
            .collect();
        if !gone.is_empty() || !ending.is_empty() {
            drop_references(actor, resource, key, &[gone, ending].concat()).await;
        }
        return;
    }
    let own_blockers = graph
        .dependents_of(uid)
        .iter()
        .any(|dependent| graph.blocks(dependent, uid));
    let propagation = if waits && own_blockers {
        Some(Propagation::Foreground)
    } else {
        Some(Propagation::Background)
    };
    // An orphaning or foreground deletion that somebody asked for goes on as asked.
    let asked = actor
        .get(resource, key)
        .is_some_and(|object| metadata::is_terminating(&object));
    if asked && !(waits && own_blockers) {
        return;
    }
    let options = DeleteOptions {
        uid: Some(uid.to_owned()),
        propagation,
        ..DeleteOptions::default()
    };
    if !actor.delete(resource, key, &options).await {
        graph.later.insert((Instant::now() + RETRY, uid.to_owned()));
    }
}

/// Ends a foreground deletion whose last blocking dependent is gone.
async fn settle(actor: &Actor, graph: &Graph, uid: &str) {
    let Some(((resource, key), _)) = graph.objects.get(uid).filter(|_| graph.waiting.contains(uid)) else {
        return;
    };
    if !graph
        .dependents_of(uid)
        .iter()
        .any(|dependent| graph.blocks(dependent, uid))
    {
        actor.release(resource, key, FOREGROUND).await;
    }
}

/// Frees all dependents of their owner, then lets the owner go.
async fn orphan(actor: &Actor, graph: &Graph, (resource, key): &Object, uid: &str) {
    for dependent in graph.dependents_of(uid) {
        if let Some(((resource, key), _)) = graph.objects.get(&dependent) {
            drop_references(actor, resource, key, &[uid]).await;
        }
    }
    actor.release(resource, key, ORPHAN).await;
}

async fn drop_references(actor: &Actor, resource: &ResourceName, key: &Key, owners: &[&str]) {
    let freed = actor
        .server
        .change_internal(&actor.user, (resource, key), None, |object| {
            let metadata = metadata::of(object);
            let Some(Value::Array(references)) = metadata.get_mut("ownerReferences") else {
                return;
            };
            references.retain(|reference| !owners.contains(&reference["uid"].as_str().unwrap_or_default()));
            if references.is_empty() {
                metadata.remove("ownerReferences");
            }
        });
    if let Err(error) = freed.await
        && error.code != 404
    {
        tracing::warn!(%resource, namespace = key.namespace, name = key.name, %error, "cannot drop an owner");
    }
}

/// A namespaced owner cannot own across namespaces; whoever wrote that should learn it.
async fn report_foreign_owner(actor: &Actor, resource: &ResourceName, key: &Key, owner: &Owner) {
    let registry = actor.server.registry();
    let Some(kind) = registry.get(resource) else { return };
    let now = seconds(actor.server.clock.now());
    let namespace = if key.namespace.is_empty() {
        "default"
    } else {
        &key.namespace
    };
    let version = kind
        .versions
        .first()
        .map(|v| kind.api_version(&v.name))
        .unwrap_or_default();
    let message = format!(
        "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
        owner.api_version, owner.kind, key.namespace, owner.name, owner.uid, key.namespace
    );
    let event = json!({
        "metadata": {"generateName": format!("{}.", key.name)},
        "involvedObject": {"kind": kind.kind, "apiVersion": version, "namespace": key.namespace, "name": key.name},
        "reason": "OwnerRefInvalidNamespace", "message": message, "type": "Warning", "count": 1,
        "source": {"component": "garbage-collector-controller"}, "firstTimestamp": now, "lastTimestamp": now,
    });
    actor.create(&ResourceName::new("", "events"), namespace, event).await;
}
