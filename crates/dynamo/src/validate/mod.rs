//! Which graphs are refused, and which changes of them: every violated rule at once, each with its field.
//!
//! The operation decides, nothing else. CREATE judges everything, the words against the live topology included. UPDATE
//! never looks at a topology: constraints cannot change, and a graph whose topology is gone can still be scaled, labelled
//! and deleted. A change of metadata alone is admitted unless it would stop the graph, so graphs from before an upgrade stay
//! as they are.
//!
//! What Grove does not do is refused by name (`scope`); nothing that a user writes is ignored.

mod adapter;
mod graph;
mod scope;
mod topology;
mod update;

use grove_api::DynamoGraphDeployment;
use grove_workload::validate::{Reason, Rules, Violation};
use serde_json::Value;

use crate::framework::{Framework, Reading};
use crate::translate::Surroundings;

pub use adapter::{create as create_adapter, scale};
pub use update::warnings;

/// What the operator's configuration allows.
#[derive(Clone, Debug, Default)]
pub struct Conditions<'a> {
    pub around: Surroundings,
    /// Of PodCliqueSets: what a graph becomes must be one that a user could have written.
    pub rules: Option<&'a Rules>,
}

/// Whether a new graph can only be judged against the live topology.
pub fn needs_topology(graph: &DynamoGraphDeployment) -> bool {
    graph.spec.has_constraint() || graph.spec.topology_name().is_some()
}

/// Why `graph` may not be created, with its words judged by the topology as `framework` has it now. A topology that cannot
/// be read is a refusal: nothing could be promised.
pub async fn review<F: Framework>(
    graph: &DynamoGraphDeployment,
    framework: &F,
    conditions: &Conditions<'_>,
) -> Vec<Violation> {
    if !needs_topology(graph) {
        return create(graph, None, conditions);
    }
    match framework.topology(graph.spec.topology_name()).await {
        Ok(reading) => create(graph, Some(&reading), conditions),
        Err(error) => {
            let mut found = create(graph, None, conditions);
            found.push(topology::unreadable(framework.kind(), error));
            found
        }
    }
}

/// Why `graph` may not be created. `reading` is of the topology that it names; without one, words are judged by
/// themselves.
pub fn create(graph: &DynamoGraphDeployment, reading: Option<&Reading>, conditions: &Conditions<'_>) -> Vec<Violation> {
    let mut found = graph::violations(graph);
    // What it becomes is judged when nothing else is wrong: the same mistake would be told twice.
    if found.is_empty() {
        found.extend(graph::becoming(graph, conditions));
    }
    found.extend(topology::words(graph));
    found.extend(
        reading
            .map(|reading| topology::levels(graph, reading))
            .unwrap_or_default(),
    );
    if graph.spec.restart.is_some() {
        let message = "must be unset on create; set it later to restart the pods";
        found.push(violation("spec.restart", Reason::Forbidden, message));
    }
    found
}

/// Why `old` may not become `new`.
pub fn update(old: &DynamoGraphDeployment, new: &DynamoGraphDeployment, conditions: &Conditions<'_>) -> Vec<Violation> {
    if new.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    if old.spec == new.spec {
        // Metadata can always change, but what asks for another pathway would be passed over in silence, and an annotation
        // that cannot be followed would stop the graph.
        let turned = scope::pathway(new).filter(|found| scope::pathway(old).as_ref() != Some(found));
        let stopped =
            graph::untranslatable(new, conditions).filter(|_| graph::untranslatable(old, conditions).is_none());
        return turned.into_iter().chain(stopped).collect();
    }
    let mut found = update::violations(old, new);
    found.extend(graph::violations(new));
    if found.is_empty() {
        found.extend(graph::change(old, new, conditions));
    }
    found
}

/// The same where `old` is something that our types cannot read: constraints are compared as they are written, and what
/// comes is judged by itself.
pub fn update_unreadable(
    old: &Value,
    new: &DynamoGraphDeployment,
    written: &Value,
    conditions: &Conditions<'_>,
) -> Vec<Violation> {
    let mut found = update::written_constraints(old, written);
    found.extend(graph::violations(new));
    if found.is_empty() {
        found.extend(graph::untranslatable(new, conditions));
    }
    found
}

/// A violation in the words that the API server has for its own: the field, the kind of mistake, what is wrong.
fn violation(path: impl Into<String>, reason: Reason, detail: impl std::fmt::Display) -> Violation {
    let path = path.into();
    let kind = match reason {
        Reason::Required => "Required value: ",
        Reason::Duplicate => "Duplicate value: ",
        Reason::Forbidden => "Forbidden: ",
        Reason::Invalid => "",
    };
    Violation {
        message: format!("{path}: {kind}{detail}"),
        path,
        reason,
    }
}

/// The same, for a value that is wrong.
fn invalid(path: impl Into<String>, value: impl std::fmt::Display, detail: impl std::fmt::Display) -> Violation {
    violation(path, Reason::Invalid, format!("Invalid value: \"{value}\": {detail}"))
}
