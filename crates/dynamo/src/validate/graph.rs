//! Rules that need nothing but the graph, and those of what it becomes.

use std::collections::BTreeSet;

use grove_api::dynamo::{COMPONENTS_MAX, Component, words};
use grove_api::{DynamoGraphDeployment, PodCliqueSet};
use grove_workload::names::COMBINED_LENGTH_MAX;
use grove_workload::validate::{self as workload, Reason, Violation};
use kube::ResourceExt;

use super::{Conditions, invalid, scope, violation};
use crate::translate::{keep_order, lowered, names, pod, translate};

/// The longest name of a Service.
const SERVICE_NAME_MAX: usize = 63;
/// The longest value of a label.
const LABEL_MAX: usize = 63;

pub(super) fn violations(graph: &DynamoGraphDeployment) -> Vec<Violation> {
    let components = &graph.spec.components;
    let mut found = scope::violations(graph);
    if components.is_empty() {
        found.push(violation(
            "spec.components",
            Reason::Required,
            "must have at least one component",
        ));
        return found;
    }
    // Of the newer version the schema says so already; the older one takes anything.
    if components.len() > COMPONENTS_MAX {
        let detail = format!(
            "Too many: {}: must have at most {COMPONENTS_MAX} items",
            components.len()
        );
        found.push(violation("spec.components", Reason::Invalid, detail));
    }
    let mut names = BTreeSet::new();
    for (index, component) in components.iter().enumerate() {
        let path = format!("spec.components[{index}]");
        if !names.insert(lowered(component)) {
            found.push(violation(
                format!("{path}.name"),
                Reason::Duplicate,
                format!("\"{}\": names must differ in more than their case", component.name),
            ));
        }
        found.extend(name(graph, component, &path));
        found.extend(sizes(component, &path));
    }
    found.extend(dynamo_namespace(graph));
    found.extend(length(graph));
    found
}

fn name(graph: &DynamoGraphDeployment, component: &Component, path: &str) -> Option<Violation> {
    let lowered = lowered(component);
    let path = format!("{path}.name");
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if lowered.is_empty() || !lowered.chars().all(plain) || lowered.starts_with('-') || lowered.ends_with('-') {
        let detail = "must consist of letters, digits and '-', and begin and end with a letter or digit";
        return Some(invalid(path, &component.name, detail));
    }
    let service = graph.name_any().len() + 1 + lowered.len();
    (service > SERVICE_NAME_MAX).then(|| {
        let detail =
            format!("the name of its Service would have {service} characters, and {SERVICE_NAME_MAX} are allowed");
        invalid(path, &component.name, detail)
    })
}

/// Components find each other by a label that holds both names.
fn dynamo_namespace(graph: &DynamoGraphDeployment) -> Option<Violation> {
    let components = graph.spec.components.iter();
    let longest = components
        .map(|component| pod::dynamo_namespace(graph, component).len())
        .max()?;
    (longest > LABEL_MAX).then(|| {
        let detail = format!(
            "the label {} would be the namespace's name and the graph's with {longest} characters, and {LABEL_MAX} are \
             allowed; shorten one of them, or write globalDynamoNamespace: true",
            words::NAMESPACE
        );
        invalid("metadata.name", graph.name_any(), detail)
    })
}

fn sizes(component: &Component, path: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let (replicas, min_available) = (component.replicas, component.min_available());
    if replicas < 0 {
        found.push(invalid(
            format!("{path}.replicas"),
            replicas,
            "must be greater than or equal to 0",
        ));
    }
    if min_available < 1 {
        found.push(invalid(
            format!("{path}.minAvailable"),
            min_available,
            "must be greater than or equal to 1",
        ));
    } else if replicas > 0 && min_available > replicas {
        let detail = "must not be greater than replicas";
        found.push(invalid(format!("{path}.minAvailable"), min_available, detail));
    }
    if component.is_multinode() && component.node_count() < 2 {
        let nodes = component.node_count();
        found.push(invalid(
            format!("{path}.multinode.nodeCount"),
            nodes,
            "must be greater than or equal to 2",
        ));
    }
    found
}

fn length(graph: &DynamoGraphDeployment) -> Option<Violation> {
    let (index, left) = names::tightest(&graph.spec)?;
    if left >= names::SET_NAME_MIN.cast_signed() {
        return None;
    }
    let combined = COMBINED_LENGTH_MAX.cast_signed() - left + names::SET_NAME_MIN.cast_signed();
    let detail = format!(
        "combined resource name length {combined} exceeds the {COMBINED_LENGTH_MAX}-character pod-name limit (the name of \
         the set, of the scaling group and of the clique); shorten the component's name"
    );
    Some(invalid(
        format!("spec.components[{index}].name"),
        &graph.spec.components[index].name,
        detail,
    ))
}

/// Why it can become no PodCliqueSet.
pub(super) fn untranslatable(graph: &DynamoGraphDeployment, conditions: &Conditions<'_>) -> Option<Violation> {
    let error = translate(graph, &conditions.around).err()?;
    Some(violation(error.path, Reason::Invalid, error.message))
}

/// Whether it can become a PodCliqueSet, and one that is admitted.
pub(super) fn becoming(graph: &DynamoGraphDeployment, conditions: &Conditions<'_>) -> Vec<Violation> {
    match translate(graph, &conditions.around) {
        Ok(translation) => of_set(creation(&translation.set, conditions)),
        Err(error) => vec![violation(error.path, Reason::Invalid, error.message)],
    }
}

fn creation(set: &PodCliqueSet, conditions: &Conditions<'_>) -> Vec<Violation> {
    let judged = conditions.rules.map(|rules| workload::create(set, rules));
    judged.unwrap_or_default()
}

/// Whether its PodCliqueSet may become what the graph would make of it: the operator's own changes pass by admission.
///
/// What new sets must keep to depends on the configuration, which may have changed since: an existing set is not refused for
/// what it has had all along.
pub(super) fn change(
    old: &DynamoGraphDeployment,
    new: &DynamoGraphDeployment,
    conditions: &Conditions<'_>,
) -> Vec<Violation> {
    let mut new = match translate(new, &conditions.around) {
        Ok(new) => new,
        Err(error) => return vec![violation(error.path, Reason::Invalid, error.message)],
    };
    let Ok(old) = translate(old, &conditions.around) else {
        // What cannot become a set has none.
        return of_set(creation(&new.set, conditions));
    };
    keep_order(&mut new.set, &old.set);
    let before = creation(&old.set, conditions);
    let mut found = workload::update(&old.set, &new.set);
    for violation in creation(&new.set, conditions) {
        if !before.contains(&violation) && !found.contains(&violation) {
            found.push(violation);
        }
    }
    of_set(found)
}

fn of_set(found: Vec<Violation>) -> Vec<Violation> {
    let told = |found: Violation| Violation {
        message: format!(
            "the PodCliqueSet made from it would be refused: {}: {}",
            found.path, found.message
        ),
        ..found
    };
    found.into_iter().map(told).collect()
}
