//! CustomResourceDefinitions become kinds, and kinds go when their definition does.

use jiff::Timestamp;
use serde_json::Value;

use super::{Actor, Writes};
use crate::registry::{Registry, Resource, custom};
use crate::rules::kinds::{CLEANUP_FINALIZER, condition, set_condition};
use crate::rules::metadata;
use crate::server::DeleteOptions;
use crate::store::{Entry, EventKind, Expect, Key, ResourceName, decode};

fn definitions() -> ResourceName {
    ResourceName::new("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Definitions, and whatever goes: it may be the last instance of one that is being deleted.
pub(super) fn wants(resource: &ResourceName, kind: EventKind) -> bool {
    kind == EventKind::Deleted || resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Follows definitions, and the instances of those that are being deleted.
pub(super) async fn run(actor: Actor, mut writes: Writes) {
    let definitions = definitions();
    while let Some((resource, event)) = writes.recv().await {
        if resource == definitions {
            let definition = decode(&event.object);
            match event.kind {
                EventKind::Deleted => {
                    let server = &actor.server;
                    server.change_registry(|registry| registry.without(&served_name(&definition)));
                    forget(&actor, &event.key);
                }
                EventKind::Added | EventKind::Modified => follow(&actor, &event.key).await,
            }
        } else if event.kind == EventKind::Deleted {
            let name = Key::new("", resource.to_string());
            let ending = |definition: Value| metadata::is_terminating(&definition);
            if actor.get(&definitions, &name).is_some_and(ending) {
                finish(&actor, &name, &resource).await;
            }
        }
    }
}

fn served_name(definition: &Value) -> ResourceName {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ResourceName::new(
        &text(&definition["spec"]["group"]),
        &text(&definition["spec"]["names"]["plural"]),
    )
}

/// Brings the registry and the conditions in line with the definition as it is stored now.
async fn follow(actor: &Actor, key: &Key) {
    let Some(definition) = actor.get(&definitions(), key) else {
        return;
    };
    let resource = served_name(&definition);
    if metadata::is_terminating(&definition) {
        return end(actor, key, &resource).await;
    }
    let now = actor.server.clock.now();
    let registry = actor.server.registry();
    let wanted = succeed(custom::resource(&definition), &registry, actor.server.store.revision());
    let problem = name_conflict(&registry, &wanted);
    let update = |change: &dyn Fn(&mut Value)| {
        actor.modify(&definitions(), key, |stored| {
            let before = stored["status"].clone();
            change(&mut stored["status"]);
            stored["status"] != before
        })
    };
    match problem {
        Some((reason, message)) => {
            update(&|status| {
                set_condition(
                    &mut status["conditions"],
                    condition("NamesAccepted", false, reason, &message, now),
                );
                let not_accepted = condition("Established", false, "NotAccepted", "not all names are accepted", now);
                set_condition(&mut status["conditions"], not_accepted);
            });
        }
        None => {
            if !custom::is_established(&definition) {
                update(&|status| accept(status, &definition["spec"]["names"], now));
            }
            remember(actor, key, &wanted);
            actor.server.change_registry(|registry| registry.with(wanted));
            update(&|status| {
                let message = "the initial names have been accepted";
                set_condition(
                    &mut status["conditions"],
                    condition("Established", true, "InitialNamesAccepted", message, now),
                );
            });
        }
    }
}

/// The kind as it is defined now, with what is to know of the objects that were stored before.
fn succeed(wanted: Resource, registry: &Registry, revision: u64) -> Resource {
    let before = registry.get(&wanted.name).and_then(|before| before.conversion.clone());
    match before {
        Some(before) => wanted.converting(|wanted| wanted.after(&before, revision)),
        None => wanted,
    }
}

/// Stores beside the definition what it does not say: in which versions older objects are.
fn remember(actor: &Actor, key: &Key, kind: &Resource) {
    let lineage = kind.conversion.as_ref().and_then(|conversion| conversion.lineage());
    let Some(mut lineage) = lineage else { return };
    let (store, lineages) = (&actor.server.store, custom::lineages());
    let known = store.get(&lineages, key);
    let same = |known: &Entry| ["stored", "earlier"].map(|field| known.value()[field] == lineage[field]) == [true; 2];
    if known.as_ref().is_some_and(same) {
        return;
    }
    let expect = known.map_or(Expect::Absent, |known| Expect::Revision(known.revision));
    // Nobody else writes there.
    let _ = store.put(&lineages, key, expect, &mut lineage);
}

fn forget(actor: &Actor, key: &Key) {
    let (store, lineages) = (&actor.server.store, custom::lineages());
    if let Some(known) = store.get(&lineages, key) {
        let _ = store.delete(&lineages, key, known.revision);
    }
}

fn accept(status: &mut Value, names: &Value, now: Timestamp) {
    status["acceptedNames"] = names.clone();
    let accepted = condition("NamesAccepted", true, "NoConflicts", "no conflicts found", now);
    set_condition(&mut status["conditions"], accepted);
    let installing = condition(
        "Established",
        false,
        "Installing",
        "the initial names have been accepted",
        now,
    );
    set_condition(&mut status["conditions"], installing);
}

/// Whether another kind of the group has a name that this definition wants.
fn name_conflict(registry: &Registry, wanted: &Resource) -> Option<(&'static str, String)> {
    let others = registry
        .iter()
        .filter(|other| other.name.group == wanted.name.group && other.name != wanted.name);
    let taken = |name: &str| format!("{name:?} is already in use");
    for other in others {
        let words = |r: &Resource| {
            let mut words = vec![r.name.plural.to_string(), r.singular.clone()];
            words.extend(r.short_names.iter().cloned());
            words
        };
        let theirs = words(other);
        if theirs.contains(&wanted.singular) {
            return Some(("SingularConflict", taken(&wanted.singular)));
        }
        if let Some(short) = wanted.short_names.iter().find(|short| theirs.contains(short)) {
            return Some(("ShortNamesConflict", taken(short)));
        }
        if other.kind == wanted.kind {
            return Some(("KindConflict", taken(&wanted.kind)));
        }
        if other.list_kind == wanted.list_kind {
            return Some(("ListKindConflict", taken(&wanted.list_kind)));
        }
    }
    None
}

/// Deletes the instances; the definition follows when the last one is gone.
async fn end(actor: &Actor, key: &Key, resource: &ResourceName) {
    let now = actor.server.clock.now();
    let pending = "InstanceDeletionPending";
    let first = actor.modify(&definitions(), key, |stored| {
        let conditions = &mut stored["status"]["conditions"];
        let known = conditions
            .as_array()
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "Terminating");
        if !known {
            set_condition(
                conditions,
                condition(
                    "Terminating",
                    true,
                    pending,
                    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                    now,
                ),
            );
        }
        !known
    });
    if first {
        actor.modify(&definitions(), key, |stored| {
            let message = "CustomResource deletion is in progress";
            let progress = condition("Terminating", true, "InstanceDeletionInProgress", message, now);
            set_condition(&mut stored["status"]["conditions"], progress);
            true
        });
        // The API server empties the store itself; nobody is asked.
        let options = DeleteOptions {
            is_admitted: true,
            ..DeleteOptions::default()
        };
        for (instance, _) in actor.server.store.list(resource, None).items {
            actor.delete(resource, &instance, &options).await;
        }
    }
    finish(actor, key, resource).await;
}

async fn finish(actor: &Actor, key: &Key, resource: &ResourceName) {
    if actor.server.store.count(resource) == 0 {
        actor.server.change_registry(|registry| registry.without(resource));
        actor.release(&definitions(), key, CLEANUP_FINALIZER).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_a_group_are_unique() {
        let definition = |plural: &str, kind: &str| {
            custom::resource(&json!({"spec": {
                "group": "demo.test", "scope": "Cluster", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true}],
            }}))
        };
        let registry = Registry::builtin().with(definition("as", "A"));
        assert_eq!(name_conflict(&registry, &definition("as", "A")), None);
        assert_eq!(name_conflict(&registry, &definition("bs", "B")), None);
        let mut same_list = definition("bs", "B");
        same_list.list_kind = "AList".to_owned();
        let expected = ("ListKindConflict", "\"AList\" is already in use".to_owned());
        assert_eq!(name_conflict(&registry, &same_list), Some(expected));
    }
}
