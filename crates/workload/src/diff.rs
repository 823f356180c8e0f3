//! What must be written so that what exists becomes what should exist, and nothing more.
//!
//! Whose an object is, its owner's UID decides. An object of the right name that belongs to somebody else is never
//! written: it is a conflict, to be reported. One that is being deleted is waited for.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use grove_api::labels::annotation;

use crate::names::is_owned_by;

/// Annotations that nobody else writes: one that should be absent must be absent.
pub const OWN_ANNOTATIONS: [&str; 5] = [
    annotation::TOPOLOGY_NAME,
    annotation::REPLICA_PACK_REQUIRED,
    annotation::PREFERRED_BY_POLICY,
    annotation::TAKEN_OVER,
    annotation::RECYCLED_REPLICAS,
];

/// One write, or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    Create(K),
    /// Make the stored object be this one, what others wrote into its metadata kept.
    Update(K),
    /// Delete the object with this UID, as a precondition: the name may be somebody else's by now.
    Delete {
        name: String,
        uid: String,
    },
    /// The name is taken by an object that is not the owner's; `holder` says whose it is.
    Conflict {
        name: String,
        holder: String,
    },
}

/// How the content of an object, besides its metadata, is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Ours alone: a field that should be absent must be absent.
    Whole,
    /// The API server fills in defaults: only what we write is compared.
    Written,
    /// Cannot be changed once it exists.
    Fixed,
}

/// The changes from `observed` to `desired`, of which `owner_uid` is the owner. Deletions come first: they free names
/// and capacity.
pub fn changes<K, O>(owner_uid: &str, desired: Vec<K>, observed: &[O], content: Content) -> Vec<Change<K>>
where
    K: Resource + Serialize,
    O: Borrow<K>,
{
    let observed = || observed.iter().map(Borrow::borrow);
    let by_name: BTreeMap<String, &K> = observed().map(|object: &K| (object.name_any(), object)).collect();
    let wanted: BTreeSet<String> = desired.iter().map(ResourceExt::name_any).collect();
    let surplus = observed().filter(|object: &&K| {
        is_owned_by(object.meta(), owner_uid) && is_live(*object) && !wanted.contains(&object.name_any())
    });
    let deletions = surplus.map(|object| Change::Delete {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    });
    let mut changes: Vec<Change<K>> = deletions.collect();
    for object in desired {
        match by_name.get(&object.name_any()) {
            None => changes.push(Change::Create(without_version(object))),
            // Whosever it is, its name is free soon.
            Some(stored) if !is_live(*stored) => {}
            Some(stored) if !is_owned_by(stored.meta(), owner_uid) => changes.push(Change::Conflict {
                name: object.name_any(),
                holder: holder(*stored),
            }),
            Some(stored) if is_same(&object, stored, content) => {}
            Some(_) => changes.push(Change::Update(object)),
        }
    }
    changes
}

fn is_live<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_none()
}

fn without_version<K: Resource>(mut object: K) -> K {
    object.meta_mut().resource_version = None;
    object
}

/// Whose an object is, for people.
pub fn holder<K: Resource>(object: &K) -> String {
    let owners = object.owner_references().iter();
    let mut controller = owners
        .filter(|owner| owner.controller == Some(true))
        .map(|owner| format!("{} {}", owner.kind, owner.name));
    controller.next().unwrap_or_else(|| "nobody".to_owned())
}

fn is_same<K: Resource + Serialize>(desired: &K, stored: &K, content: Content) -> bool {
    let (wanted, found) = (desired.meta(), stored.meta());
    let finalizers = |meta: &kube::core::ObjectMeta| meta.finalizers.clone().unwrap_or_default();
    let kept = finalizers(found);
    includes(&wanted.labels, &found.labels)
        && includes(&wanted.annotations, &found.annotations)
        && own_annotations(wanted) == own_annotations(found)
        && finalizers(wanted).iter().all(|finalizer| kept.contains(finalizer))
        && (content == Content::Fixed || is_same_content(desired, stored, content))
}

fn own_annotations(meta: &kube::core::ObjectMeta) -> [Option<&String>; OWN_ANNOTATIONS.len()] {
    OWN_ANNOTATIONS.map(|key| meta.annotations.as_ref()?.get(key))
}

fn includes(wanted: &Option<BTreeMap<String, String>>, found: &Option<BTreeMap<String, String>>) -> bool {
    let empty = BTreeMap::new();
    let found = found.as_ref().unwrap_or(&empty);
    wanted
        .iter()
        .flatten()
        .all(|(key, value)| found.get(key) == Some(value))
}

fn is_same_content<K: Serialize>(desired: &K, stored: &K, content: Content) -> bool {
    let content_of = |object: &K| -> Value {
        let mut value = serde_json::to_value(object).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            for other in ["apiVersion", "kind", "metadata", "status"] {
                fields.remove(other);
            }
        }
        value
    };
    let (desired, stored) = (content_of(desired), content_of(stored));
    match content {
        Content::Whole => desired == stored,
        Content::Written | Content::Fixed => is_written(&desired, &stored),
    }
}

/// Whether everything that is written in `desired` is in `stored`. Lists count as written whole, their items need not.
fn is_written(desired: &Value, stored: &Value) -> bool {
    match (desired, stored) {
        (Value::Object(desired), Value::Object(stored)) => desired
            .iter()
            .all(|(name, field)| field.is_null() || stored.get(name).is_some_and(|found| is_written(field, found))),
        (Value::Array(desired), Value::Array(stored)) => {
            desired.len() == stored.len() && desired.iter().zip(stored).all(|(item, found)| is_written(item, found))
        }
        (desired, stored) => desired == stored,
    }
}

#[cfg(test)]
mod tests {
    use grove_api::PodClique;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

    use super::*;
    use crate::fixtures::start;

    fn clique(name: &str, owner: &str, replicas: i32) -> PodClique {
        let mut clique = PodClique::new(name, Default::default());
        clique.spec.replicas = replicas;
        clique.metadata.uid = Some(format!("uid-{name}"));
        clique.metadata.owner_references = Some(vec![OwnerReference {
            kind: "PodCliqueSet".into(),
            name: owner.into(),
            uid: owner.into(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        clique
    }

    fn of(desired: Vec<PodClique>, observed: &[PodClique]) -> Vec<Change<PodClique>> {
        changes("me", desired, observed, Content::Whole)
    }

    #[test]
    fn only_what_differs_is_written() {
        let (kept, changed, gone) = (
            clique("kept", "me", 1),
            clique("changed", "me", 1),
            clique("gone", "me", 1),
        );
        let new = clique("new", "me", 1);
        let wanted = clique("changed", "me", 2);
        let found = of(vec![kept.clone(), wanted.clone(), new.clone()], &[kept, changed, gone]);
        let deleted = Change::Delete {
            name: "gone".into(),
            uid: "uid-gone".into(),
        };
        assert_eq!(found, [deleted, Change::Update(wanted), Change::Create(new)]);
    }

    /// Invariant 9.
    #[test]
    fn strangers_are_reported_and_never_written() {
        let stranger = clique("a", "someone", 9);
        let conflict = Change::Conflict {
            name: "a".into(),
            holder: "PodCliqueSet someone".into(),
        };
        assert_eq!(
            of(vec![clique("a", "me", 1)], std::slice::from_ref(&stranger)),
            [conflict]
        );
        assert_eq!(of(vec![], &[stranger]), []);
    }

    #[test]
    fn what_is_being_deleted_is_waited_for() {
        let mut leaving = clique("a", "me", 9);
        leaving.metadata.deletion_timestamp = Some(Time(start()));
        assert_eq!(of(vec![clique("a", "me", 1)], std::slice::from_ref(&leaving)), []);
        assert_eq!(of(vec![], std::slice::from_ref(&leaving)), []);
        // Deleted and created again under the same name: what is left of the first is no conflict.
        leaving.metadata.owner_references.as_mut().unwrap()[0].uid = "an-earlier-me".into();
        assert_eq!(of(vec![clique("a", "me", 1)], &[leaving]), []);
    }

    #[test]
    fn foreign_labels_stay_and_missing_ones_come_back() {
        let labelled = |pairs: &[(&str, &str)]| {
            let mut clique = clique("a", "me", 1);
            let pairs = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            clique.metadata.labels = Some(pairs.collect());
            clique
        };
        let wanted = labelled(&[("ours", "1")]);
        assert_eq!(
            of(vec![wanted.clone()], &[labelled(&[("ours", "1"), ("theirs", "2")])]),
            []
        );
        assert_eq!(
            of(vec![wanted.clone()], &[labelled(&[("theirs", "2")])]),
            [Change::Update(wanted)]
        );
    }

    #[test]
    fn defaults_of_the_api_server_are_no_difference() {
        let service = |value: Value| -> Service {
            let mut service: Service = serde_json::from_value(value).unwrap();
            service.metadata = clique("a", "me", 1).metadata;
            service
        };
        let wanted = service(serde_json::json!({"spec": {"clusterIP": "None", "selector": {"a": "b"}}}));
        let stored = service(serde_json::json!({"spec": {
            "clusterIP": "None", "selector": {"a": "b"}, "sessionAffinity": "None", "type": "ClusterIP",
        }}));
        assert_eq!(
            changes(
                "me",
                vec![wanted.clone()],
                std::slice::from_ref(&stored),
                Content::Written
            ),
            []
        );
        let edited = service(serde_json::json!({"spec": {"clusterIP": "None", "selector": {"a": "c"}}}));
        assert_eq!(
            changes("me", vec![wanted.clone()], &[edited], Content::Written),
            [Change::Update(wanted)]
        );
    }
}
