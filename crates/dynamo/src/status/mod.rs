//! What a graph's status says, from what became of it.
//!
//! Pure: what is told is a function of the objects that were seen and of the status before, which alone knows since when
//! something is so. Whether pods are close enough is not judged here: the framework says whether it can keep what was asked,
//! and `topology` puts that into Dynamo's words.

mod adapter;
mod components;
mod topology;

use grove_api::dynamo::conditions::{self, READY, ready};
use grove_api::dynamo::{DynamoGraphDeploymentStatus, RestartStatus, words};
use grove_api::{DynamoGraphDeployment, PodClique, PodCliqueScalingGroup, PodCliqueSet};
use grove_runtime::Notice;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Resource;

pub use adapter::adapter_status;
pub use components::child_name;
pub use topology::Projection;

/// The phase of a restart that is over.
const COMPLETED: &str = "Completed";

/// What became of a graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// Its set, unless it is another's or on its way out.
    pub set: Option<&'a PodCliqueSet>,
    /// That set's own.
    pub cliques: &'a [&'a PodClique],
    pub groups: &'a [&'a PodCliqueScalingGroup],
    /// Why it could not become a set.
    pub failure: Option<&'a str>,
}

/// What a condition says, without since when.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    type_: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

/// The status of `graph`, as of `now`.
pub fn status(graph: &DynamoGraphDeployment, seen: Seen<'_>, now: Timestamp) -> DynamoGraphDeploymentStatus {
    let before = graph.status.clone().unwrap_or_default();
    let components = components::all(graph, seen);
    let ready = readiness(graph, seen, &components);
    let is_ready = ready.status == "True";
    let mut conditions = before.conditions;
    put(&mut conditions, graph, &ready, now);
    match topology::project(graph, seen.set) {
        Some(projection) => {
            for type_ in [conditions::ENFORCED, conditions::LEVELS_AVAILABLE] {
                put(&mut conditions, graph, &projection.statement(type_), now);
            }
        }
        None => conditions
            .retain(|condition| ![conditions::ENFORCED, conditions::LEVELS_AVAILABLE].contains(&&*condition.type_)),
    }
    let state = match (seen.failure, seen.set, is_ready) {
        (Some(_), _, _) => "failed",
        (None, None, _) => "initializing",
        (None, Some(_), true) => "successful",
        (None, Some(_), false) => "pending",
    };
    DynamoGraphDeploymentStatus {
        observed_generation: graph.metadata.generation,
        state: Some(state.to_owned()),
        conditions,
        components: components.into_iter().map(|one| (one.name, one.status)).collect(),
        restart: restart(graph, seen.set),
    }
}

fn readiness(graph: &DynamoGraphDeployment, seen: Seen<'_>, components: &[components::Found]) -> Statement {
    let statement = |status, reason: &str, message: String| Statement {
        type_: READY,
        status,
        reason: reason.to_owned(),
        message,
    };
    if let Some(failure) = seen.failure {
        return statement("False", ready::SOME_NOT, failure.to_owned());
    }
    let Some(set) = seen.set else {
        let message = "What the graph becomes does not exist yet".to_owned();
        return statement("False", ready::SOME_NOT, message);
    };
    let mut waiting: Vec<(&str, String)> = Vec::new();
    for component in components {
        waiting.extend(component.wants.as_ref().map(|(reason, text)| (*reason, text.clone())));
    }
    // Counts of cliques that have not seen the newest template yet say nothing about it.
    if waiting.is_empty() && !components::is_followed(set) {
        let message = "the newest templates are not followed yet".to_owned();
        waiting.push((ready::UPDATING, message));
    }
    let Some((first, _)) = waiting.first() else {
        let message = format!("All {} components are ready", graph.spec.components.len());
        return statement("True", ready::ALL, message);
    };
    let reason = match waiting.iter().all(|(reason, _)| reason == first) {
        true => *first,
        false => ready::MIXED,
    };
    let mut texts: Vec<&str> = waiting.iter().map(|(_, text)| text.as_str()).collect();
    // Why it does not come to be, where the operator knows it.
    let errors = set.status.iter().flat_map(|status| &status.last_errors);
    texts.extend(errors.map(|error| error.description.as_str()));
    statement("False", reason, texts.join("; "))
}

/// The last restart that was asked for. It is over when the set has been updated to it.
fn restart(graph: &DynamoGraphDeployment, set: Option<&PodCliqueSet>) -> Option<RestartStatus> {
    let wanted = graph.spec.restart.as_ref().map(|restart| &restart.id);
    let before = graph.status.as_ref().and_then(|status| status.restart.as_ref());
    let id = match (wanted, before) {
        (Some(id), _) => id,
        // The wish is gone, not what became of it; a wish that was taken back before anybody followed it is as none.
        (None, Some(before)) if before.phase == COMPLETED => return Some(before.clone()),
        (None, Some(before)) if set.is_some_and(|set| is_restarted(set, &before.observed_id)) => &before.observed_id,
        (None, _) => return None,
    };
    let is_over = set.is_some_and(|set| is_restarted(set, id) && components::is_followed(set));
    Some(RestartStatus {
        observed_id: id.clone(),
        phase: if is_over { COMPLETED } else { "Restarting" }.to_owned(),
    })
}

/// Whether the restart is written in every template of the set.
fn is_restarted(set: &PodCliqueSet, id: &str) -> bool {
    let mut cliques = set.spec.template.cliques.iter();
    cliques.all(|clique| clique.annotations.get(words::RESTART).is_some_and(|last| last == id))
}

/// Puts a statement among conditions; its time moves only with its status.
fn put(conditions: &mut Vec<Condition>, graph: &DynamoGraphDeployment, statement: &Statement, now: Timestamp) {
    let before = conditions.iter().find(|condition| condition.type_ == statement.type_);
    let since = before
        .filter(|before| before.status == statement.status)
        .map(|before| before.last_transition_time.clone());
    let new = Condition {
        type_: statement.type_.to_owned(),
        status: statement.status.to_owned(),
        reason: statement.reason.clone(),
        message: statement.message.clone(),
        observed_generation: graph.metadata.generation,
        last_transition_time: since.unwrap_or(Time(now)),
    };
    match conditions
        .iter_mut()
        .find(|condition| condition.type_ == statement.type_)
    {
        Some(place) => *place = new,
        None => conditions.push(new),
    }
}

/// What there is to tell before `after` replaces the stored status: that constraints are applied, once, and one warning each
/// time that they stop being kept.
///
/// What is told follows from what is stored alone, its occasion too: told again, because the status could not be written or
/// whoever would have written it died, it is the same event.
pub fn notices(
    graph: &DynamoGraphDeployment,
    after: &DynamoGraphDeploymentStatus,
    set: Option<&PodCliqueSet>,
) -> Vec<Notice> {
    let enforced = |status: Option<&DynamoGraphDeploymentStatus>| {
        let conditions = status.into_iter().flat_map(|status| &status.conditions);
        let mut enforced = conditions.filter(|condition| condition.type_ == conditions::ENFORCED);
        enforced.next().cloned()
    };
    let is_pending = |condition: &Condition| condition.reason == conditions::topology::PENDING;
    let before = enforced(graph.status.as_ref());
    let Some(after) = enforced(Some(after)).filter(|after| !is_pending(after)) else {
        return Vec::new();
    };
    let is_first = before.as_ref().is_none_or(is_pending);
    let mut found: Vec<Notice> = is_first.then(|| applied(graph)).flatten().into_iter().collect();
    let was_lost = before.as_ref().is_some_and(|before| before.status == "False");
    if after.status == "False" && !was_lost {
        let since = before.map(|before| before.last_transition_time.0);
        found.push(Notice {
            about: graph.object_ref(&()),
            is_warning: true,
            note: format!("Topology constraints no longer enforced: {}", after.message),
            reason: after.reason,
            action: "Reconcile",
            occasion: since.or_else(|| topology::since(set?)),
        });
    }
    found
}

/// That the constraints of a graph hold from now on; nothing where it has none.
pub fn applied(graph: &DynamoGraphDeployment) -> Option<Notice> {
    let own = graph.spec.pack_domain().map(|word| format!("deployment in one {word}"));
    let components = graph.spec.components.iter().filter_map(|component| {
        let constraint = component.topology_constraint.as_ref()?;
        Some(format!("{} in one {}", component.name, constraint.pack_domain))
    });
    let all: Vec<String> = own.into_iter().chain(components).collect();
    (!all.is_empty()).then(|| Notice {
        about: graph.object_ref(&()),
        is_warning: false,
        reason: "TopologyConstraintsApplied".to_owned(),
        action: "Reconcile",
        note: format!("Topology constraints applied: {}", all.join(", ")),
        // A set that was deleted by hand and made again is no news.
        occasion: None,
    })
}
