//! What KAI is told of a gang: a PodGroup of its own beside the PodGang, and marks on the pods that join it.
//!
//! KAI would also make PodGroups by itself, from the pods, later and with a race; the marks tell it not to. Owns which
//! fields are ours: what KAI or its admin writes beside them stays.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::podgang::GangTopologyConstraint;
use grove_api::{PodCliqueSet, PodGang, SCHEDULER_GROUP, VERSION};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{DynamicObject, TypeMeta};
use serde_json::{Value, json};

use crate::backend::backend_constraint;
use crate::levels::Topology;
use crate::usage::name_of;

pub const POD_GROUP_GROUP: &str = "scheduling.run.ai";
pub const POD_GROUP_VERSION: &str = "v2alpha2";
pub const POD_GROUP_KIND: &str = "PodGroup";
pub const POD_GROUP_PLURAL: &str = "podgroups";

/// On a set or a clique: the queue that its gangs wait in.
pub const QUEUE: &str = "kai.scheduler/queue";
const SKIP_GROUPER: &str = "kai.scheduler/skip-podgrouper";
const POD_GROUP_NAME: &str = "pod-group-name";
const SUBGROUP_NAME: &str = "kai.scheduler/subgroup-name";

/// The fields of a PodGroup's spec that are ours.
const OWN_FIELDS: [&str; 5] = [
    "minMember",
    "queue",
    "priorityClassName",
    "topologyConstraint",
    "subGroups",
];

/// Tells KAI to leave the grouping of this gang to us.
pub fn mark_gang(gang: &mut PodGang) {
    let annotations = gang.metadata.annotations.get_or_insert_default();
    annotations.insert(SKIP_GROUPER.to_owned(), "true".to_owned());
}

/// Tells KAI which PodGroup a pod joins, and which part of it.
pub fn mark_pod(pod: &mut Pod, gang: &str, clique: &str) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SKIP_GROUPER.to_owned(), "true".to_owned());
    annotations.insert(POD_GROUP_NAME.to_owned(), gang.to_owned());
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(SUBGROUP_NAME.to_owned(), clique.to_owned());
}

/// The queue of a set: its own label or annotation, else that of its cliques, which must agree. KAI has no default.
pub fn queue(set: &PodCliqueSet) -> Result<String, String> {
    let named = |labels: Option<&BTreeMap<String, String>>, annotations: Option<&BTreeMap<String, String>>| {
        let of = |map: Option<&BTreeMap<String, String>>| map?.get(QUEUE).cloned();
        of(labels).or_else(|| of(annotations))
    };
    if let Some(queue) = named(set.metadata.labels.as_ref(), set.metadata.annotations.as_ref()) {
        return Ok(queue);
    }
    let cliques = set.spec.template.cliques.iter();
    let queues = cliques.filter_map(|clique| named(Some(&clique.labels), Some(&clique.annotations)));
    let queues: BTreeSet<String> = queues.collect();
    let name = name_of(&set.metadata);
    let set = format!("PodCliqueSet {}/{}", name.namespace, name.name);
    match (queues.first(), queues.len()) {
        (Some(queue), 1) => Ok(queue.clone()),
        (None, _) => Err(format!("{set} names no KAI queue; label it with {QUEUE}")),
        _ => {
            let queues = queues.into_iter().collect::<Vec<_>>().join(", ");
            Err(format!(
                "cliques of {set} name several KAI queues ({queues}); label the set with the one to use"
            ))
        }
    }
}

/// The PodGroup of a stored gang. Without a topology in force it carries no constraint: KAI holds pods for ever whose
/// level it does not know.
pub fn pod_group(set: &PodCliqueSet, gang: &PodGang, topology: Option<&Topology>) -> Result<DynamicObject, String> {
    let constraint = |constraint: Option<&GangTopologyConstraint>| -> Value {
        let Some((topology, pack)) = topology.zip(backend_constraint(topology, constraint)) else {
            return Value::Null;
        };
        let mut told = json!({ "topology": topology.name() });
        for (field, key) in [
            ("requiredTopologyLevel", pack.required),
            ("preferredTopologyLevel", pack.preferred),
        ] {
            if let Some(key) = key {
                told[field] = key.into();
            }
        }
        told
    };
    let spec = &gang.spec;
    let parents = spec.topology_constraint_group_configs.iter().map(|config| {
        let own = constraint(config.topology_constraint.as_ref());
        without_nulls(
            json!({"name": config.name, "minSubGroup": config.pod_group_names.len(), "topologyConstraint": own}),
        )
    });
    let leaves = spec.pod_groups.iter().map(|group| {
        let mut configs = spec.topology_constraint_group_configs.iter();
        let parent = configs.find(|config| config.pod_group_names.contains(&group.name));
        without_nulls(json!({
            "name": group.name,
            "parent": parent.map(|config| &config.name),
            "minMember": group.min_replicas,
            "topologyConstraint": constraint(group.topology_constraint.as_ref()),
        }))
    });
    let min_member: i64 = spec.pod_groups.iter().map(|group| i64::from(group.min_replicas)).sum();
    let data = without_nulls(json!({
        "minMember": min_member,
        "queue": queue(set)?,
        "priorityClassName": spec.priority_class_name,
        "topologyConstraint": constraint(spec.topology_constraint.as_ref()),
        "subGroups": parents.chain(leaves).collect::<Vec<Value>>(),
    }));
    Ok(DynamicObject {
        types: Some(TypeMeta {
            api_version: format!("{POD_GROUP_GROUP}/{POD_GROUP_VERSION}"),
            kind: POD_GROUP_KIND.to_owned(),
        }),
        metadata: metadata(gang),
        data: json!({ "spec": data }),
    })
}

fn metadata(gang: &PodGang) -> ObjectMeta {
    let own = &gang.metadata;
    ObjectMeta {
        name: own.name.clone(),
        namespace: own.namespace.clone(),
        labels: own.labels.clone(),
        annotations: own.annotations.clone(),
        owner_references: Some(vec![OwnerReference {
            api_version: format!("{SCHEDULER_GROUP}/{VERSION}"),
            kind: "PodGang".to_owned(),
            name: own.name.clone().unwrap_or_default(),
            uid: own.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    }
}

/// The merge patch that brings a stored PodGroup up to date; none if it is. Labels and annotations that others added stay.
pub fn pod_group_patch(desired: &DynamicObject, stored: &DynamicObject) -> Option<Value> {
    let mut spec = serde_json::Map::new();
    for field in OWN_FIELDS {
        let (wanted, found) = (&desired.data["spec"][field], &stored.data["spec"][field]);
        if wanted != found {
            spec.insert(field.to_owned(), merge_to(found, wanted));
        }
    }
    let labels = lost(desired.metadata.labels.as_ref(), stored.metadata.labels.as_ref());
    let annotations = lost(
        desired.metadata.annotations.as_ref(),
        stored.metadata.annotations.as_ref(),
    );
    let differs = !(spec.is_empty() && labels.is_empty() && annotations.is_empty());
    differs.then(|| {
        let version = &stored.metadata.resource_version;
        json!({"metadata": {"resourceVersion": version, "labels": labels, "annotations": annotations}, "spec": spec})
    })
}

/// Those that are missing, or have another value.
fn lost<'a>(
    wanted: Option<&'a BTreeMap<String, String>>,
    found: Option<&BTreeMap<String, String>>,
) -> BTreeMap<&'a String, &'a String> {
    let is_lost = |(key, value): &(&String, &String)| found.and_then(|found| found.get(*key)) != Some(*value);
    wanted.into_iter().flatten().filter(is_lost).collect()
}

/// The merge patch that makes `wanted` of `found`: a merge keeps what is not named, so what must go is named as null.
fn merge_to(found: &Value, wanted: &Value) -> Value {
    let (Value::Object(found), Value::Object(wanted)) = (found, wanted) else {
        return wanted.clone();
    };
    let gone = found.keys().filter(|key| !wanted.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let kept = wanted.iter().map(|(key, value)| (key.clone(), value.clone()));
    Value::Object(gone.chain(kept).collect())
}

fn without_nulls(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
