//! What all objects made from a set have in common: labels, owner, namespace.

use std::collections::BTreeMap;

use grove_api::{PodCliqueSet, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};

/// The UID of an object; empty for one that the API server has not stored yet, which owns nothing.
pub fn uid<K: Resource>(object: &K) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

/// The controller owner of what is made from `owner`.
pub(crate) fn owner_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: uid(owner).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The labels by which everything of a set is found.
pub fn base_labels(set: &str) -> BTreeMap<String, String> {
    labels_of([
        (labels::MANAGED_BY, labels::MANAGED_BY_OPERATOR),
        (labels::PART_OF, set),
    ])
}

/// Metadata of an object that the set owns.
pub(crate) fn child_meta(set: &PodCliqueSet, name: &str, component: Option<&str>) -> ObjectMeta {
    let mut labels = base_labels(&set.name_any());
    labels.insert(labels::NAME.to_owned(), name.replace(':', "-"));
    if let Some(component) = component {
        labels.insert(labels::COMPONENT.to_owned(), component.to_owned());
    }
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: set.metadata.namespace.clone(),
        labels: Some(labels),
        owner_references: Some(vec![owner_reference(set)]),
        ..ObjectMeta::default()
    }
}

pub(crate) fn labels_of<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// A selector as the scale subresource reports it.
pub fn selector(labels: &BTreeMap<String, String>) -> String {
    let terms: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    terms.join(",")
}
