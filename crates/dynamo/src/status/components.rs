//! How each component is: what the object that stands for it says.

use grove_api::dynamo::conditions::ready;
use grove_api::dynamo::{Component, ComponentStatus};
use grove_api::{DynamoGraphDeployment, PodClique, PodCliqueScalingGroup, PodCliqueSet};
use grove_workload::names;
use kube::{Resource, ResourceExt};

use super::Seen;
use crate::translate::{lowered, set_name};

/// A component that was looked for.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) status: ComponentStatus,
    /// Why it is not ready, as a reason and in words; none if it is.
    pub(super) wants: Option<(&'static str, String)>,
}

pub(super) fn all(graph: &DynamoGraphDeployment, seen: Seen<'_>) -> Vec<Found> {
    graph
        .spec
        .components
        .iter()
        .map(|component| found(graph, component, seen))
        .collect()
}

/// The object that stands for a component and is scaled: its PodClique, or its PodCliqueScalingGroup.
pub fn child_name(graph: &DynamoGraphDeployment, component: &Component) -> String {
    match component.is_grouped() {
        true => names::scaling_group(&set_name(graph), 0, &lowered(component)),
        false => names::podclique(&set_name(graph), 0, &lowered(component)),
    }
}

/// Whether the operator has seen the set as it is, and no update of it is under way.
pub(super) fn is_followed(set: &PodCliqueSet) -> bool {
    let Some(status) = set.status.as_ref() else {
        return false;
    };
    let progress = status.update_progress.as_ref();
    status.observed_generation == set.metadata.generation
        && progress.is_none_or(|progress| progress.update_ended_at.is_some())
}

fn found(graph: &DynamoGraphDeployment, component: &Component, seen: Seen<'_>) -> Found {
    let name = child_name(graph, component);
    let status = match component.is_grouped() {
        true => seen
            .groups
            .iter()
            .find(|group| group.name_any() == name)
            .map(|group| of_group(group)),
        false => seen
            .cliques
            .iter()
            .find(|clique| clique.name_any() == name)
            .map(|clique| of_clique(clique)),
    };
    let exists = status.is_some();
    let status = status.unwrap_or_else(|| ComponentStatus {
        component_kind: kind(component).to_owned(),
        component_names: vec![name],
        ..ComponentStatus::default()
    });
    let wants = wants(component, exists, &status);
    Found {
        name: component.name.clone(),
        status,
        wants,
    }
}

fn kind(component: &Component) -> &'static str {
    match component.is_grouped() {
        true => "PodCliqueScalingGroup",
        false => "PodClique",
    }
}

fn of_clique(clique: &PodClique) -> ComponentStatus {
    let status = clique.status.clone().unwrap_or_default();
    ComponentStatus {
        component_kind: PodClique::kind(&()).into_owned(),
        component_names: vec![clique.name_any()],
        replicas: status.replicas,
        updated_replicas: status.updated_replicas,
        scheduled_replicas: status.scheduled_replicas,
        ready_replicas: status.ready_replicas,
    }
}

fn of_group(group: &PodCliqueScalingGroup) -> ComponentStatus {
    let status = group.status.clone().unwrap_or_default();
    ComponentStatus {
        component_kind: PodCliqueScalingGroup::kind(&()).into_owned(),
        component_names: vec![group.name_any()],
        replicas: status.replicas,
        updated_replicas: status.updated_replicas,
        scheduled_replicas: status.scheduled_replicas,
        ready_replicas: status.available_replicas,
    }
}

fn wants(component: &Component, exists: bool, status: &ComponentStatus) -> Option<(&'static str, String)> {
    let (name, wanted) = (&component.name, component.replicas);
    if !exists {
        return Some((ready::SOME_NOT, format!("{name}: does not exist yet")));
    }
    let of = |count: i32, what: &str| format!("{name}: {count} of {wanted} replicas {what}");
    if status.scheduled_replicas < wanted {
        Some((ready::CAPACITY, of(status.scheduled_replicas, "have nodes")))
    } else if status.updated_replicas < wanted {
        Some((
            ready::UPDATING,
            of(status.updated_replicas, "follow the newest template"),
        ))
    } else if status.ready_replicas < wanted {
        Some((ready::PODS, of(status.ready_replicas, "are ready")))
    } else if status.replicas > wanted {
        Some((
            ready::SOME_NOT,
            format!("{name}: {} replicas are too many", status.replicas - wanted),
        ))
    } else {
        None
    }
}
