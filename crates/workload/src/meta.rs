//! What all objects made from a set have in common: labels, owner, namespace.

use std::collections::BTreeMap;

use grove_api::{PodCliqueSet, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

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

/// The names of labels and annotations that an object has from what its author wrote elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TakenOver {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

impl TakenOver {
    pub(crate) fn new(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Self {
        let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect();
        Self {
            annotations: names(annotations),
            labels: names(labels),
        }
    }

    /// As it was recorded on an object; nothing if somebody bent the record.
    pub fn read(record: &str) -> Self {
        serde_json::from_str(record).unwrap_or_default()
    }

    /// Records it on an object: without that, a name that the author takes out later would be anybody's.
    pub(crate) fn record(&self, meta: &mut ObjectMeta) {
        if *self != Self::default() {
            let record = serde_json::to_string(self).expect("lists of text are JSON");
            let annotations = meta.annotations.get_or_insert_default();
            annotations.insert(labels::annotation::TAKEN_OVER.to_owned(), record);
        }
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
