//! A look at one graph: what should be is computed, compared with what is seen, and written, in the order in which things
//! need each other; the status comes last and tells how it went.

use std::sync::Arc;

use grove_api::{DynamoGraphDeployment, PodClique, PodCliqueScalingGroup, PodCliqueSet};
use grove_runtime::{Notice, ObjectKey, Outcome, WriteError, announce, outcome};
use grove_workload::meta::uid;
use grove_workload::names::is_owned_by;
use kube::{Resource, ResourceExt};

use super::write::is_for_people;
use super::{FIELD_MANAGER, Shell, scaling};
use crate::status::{self, Seen, child_name};
use crate::translate::{Translation, keep_order, keep_replicas, keep_restart, stamp, translate};

pub(super) async fn look(shell: &Shell, key: &ObjectKey) -> Outcome {
    let Some(graph) = shell.view.graphs.get(key) else {
        return Outcome::Settled;
    };
    // What it owns follows by owner references.
    if graph.metadata.deletion_timestamp.is_some() {
        return Outcome::Settled;
    }
    let errors = match scaling::follow(shell, &graph).await {
        // The graph has changed: it is looked at again.
        Ok(true) => return Outcome::Settled,
        Ok(false) => Vec::new(),
        Err(errors) => errors,
    };
    match translate(&graph, &shell.settings.around) {
        Ok(translation) => bring_in_order(shell, &graph, translation, errors).await,
        // Stored before its rules were: it waits for a change.
        Err(error) => keep_status(shell, &graph, Some(&error.to_string())).await,
    }
}

/// Makes everything be as it was `made`; `errors` are of what was tried before.
async fn bring_in_order(
    shell: &Shell,
    graph: &Arc<DynamoGraphDeployment>,
    made: Translation,
    mut errors: Vec<WriteError>,
) -> Outcome {
    errors.extend(shell.carry_out(graph, made.accounts).await);
    errors.extend(shell.carry_out(graph, made.roles).await);
    errors.extend(shell.carry_out(graph, made.role_bindings).await);
    let of_set = write_set(shell, graph, made.set).await;
    let again = again(&of_set);
    errors.extend(of_set);
    errors.extend(scale(shell, graph).await);
    errors.extend(shell.carry_out(graph, made.services).await);
    errors.extend(scaling::keep(shell, graph, made.adapters).await);
    let told: Vec<String> = errors
        .iter()
        .filter(|error| is_for_people(error))
        .map(ToString::to_string)
        .collect();
    let failure = (!told.is_empty()).then(|| told.join("; "));
    let outcome = outcome(&errors).and(again);
    outcome.and(keep_status(shell, graph, failure.as_deref()).await)
}

/// A set may be refused for what is none of its own, such as a topology that is not there, and nobody tells when that is
/// mended: it is tried again, ever later.
fn again(of_set: &[WriteError]) -> Outcome {
    let mut refused = of_set.iter().filter(|error| matches!(error, WriteError::Refused(_)));
    let refused = refused.next().map(|error| Outcome::Failed(error.to_string()));
    refused.unwrap_or(Outcome::Settled)
}

/// The graph's own set that stays, if there is one.
fn live_set(shell: &Shell, graph: &DynamoGraphDeployment) -> Option<Arc<PodCliqueSet>> {
    let sets = shell.view.sets.of(&ObjectKey::of(&graph.metadata).to_string());
    let mut own = sets
        .into_iter()
        .filter(|set| is_owned_by(&set.metadata, uid(graph)) && stays(&**set));
    own.next()
}

pub(super) fn stays<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_none()
}

async fn write_set(shell: &Shell, graph: &DynamoGraphDeployment, mut set: PodCliqueSet) -> Vec<WriteError> {
    if let Some(live) = live_set(shell, graph) {
        keep_order(&mut set, &live);
        keep_replicas(&mut set, &live);
        keep_restart(&mut set, &live);
    }
    stamp(&mut set);
    let changes = shell.changes(graph, vec![set]);
    shell.write(graph, changes).await
}

/// Gives every component that exists as many replicas as the graph says, each through its own scale.
async fn scale(shell: &Shell, graph: &DynamoGraphDeployment) -> Vec<WriteError> {
    let mut errors = Vec::new();
    let Some(set) = live_set(shell, graph) else {
        return errors;
    };
    for component in &graph.spec.components {
        let key = ObjectKey::new(graph.namespace().unwrap_or_default(), child_name(graph, component));
        let wanted = component.replicas;
        let scaled = if component.is_grouped() {
            let group = shell
                .view
                .groups
                .get(&key)
                .filter(|group| is_owned_by(&group.metadata, uid(&*set)));
            match group.filter(|group| stays(&**group) && group.spec.replicas != wanted) {
                Some(_) => shell.scale::<PodCliqueScalingGroup>(&key, wanted).await,
                None => Ok(()),
            }
        } else {
            let clique = shell
                .view
                .cliques
                .get(&key)
                .filter(|clique| is_owned_by(&clique.metadata, uid(&*set)));
            match clique.filter(|clique| stays(&**clique) && clique.spec.replicas != wanted) {
                Some(_) => shell.scale::<PodClique>(&key, wanted).await,
                None => Ok(()),
            }
        };
        errors.extend(scaled.err());
    }
    errors
}

/// Those that are the owner's and stay.
fn own<'a, K: Resource>(objects: &'a [Arc<K>], owner: &'a str) -> impl Iterator<Item = &'a K> {
    let objects = objects.iter().map(|object| &**object);
    objects.filter(move |object| is_owned_by(object.meta(), owner) && stays(*object))
}

async fn keep_status(shell: &Shell, graph: &DynamoGraphDeployment, failure: Option<&str>) -> Outcome {
    let set = live_set(shell, graph);
    let (cliques, groups) = match &set {
        Some(set) => (
            shell.view.cliques.of(&ObjectKey::of(&graph.metadata).to_string()),
            shell.view.groups.of(&ObjectKey::of(&set.metadata).to_string()),
        ),
        None => (Vec::new(), Vec::new()),
    };
    // What a set before left behind is on its way out, whether or not it is marked so yet.
    let owner = set.as_deref().map(uid).unwrap_or_default();
    let cliques: Vec<&PodClique> = own(&cliques, owner).collect();
    let groups: Vec<&PodCliqueScalingGroup> = own(&groups, owner).collect();
    let seen = Seen {
        set: set.as_deref(),
        cliques: &cliques,
        groups: &groups,
        failure,
    };
    let now = shell.now();
    let status = status::status(graph, seen, now);
    let told = outcome(&scaling::tell(shell, graph, &status).await);
    if graph.status.as_ref() == Some(&status) {
        return told;
    }
    for notice in status::notices(graph, &status, set.as_deref()) {
        say(shell, graph, &notice).await;
    }
    match shell.write_status(graph, &status).await {
        Ok(()) => told,
        Err(error) => told.and(outcome(&[error])),
    }
}

/// Tells people, before the status that makes it known is written: who dies in between tells it again, and it is one event.
async fn say(shell: &Shell, graph: &DynamoGraphDeployment, notice: &Notice) {
    if !announce(&shell.client, FIELD_MANAGER, notice, shell.now()).await {
        return;
    }
    let graph = ObjectKey::of(&graph.metadata);
    match notice.is_warning {
        true => tracing::warn!(%graph, "{}", notice.note),
        false => tracing::info!(%graph, "{}", notice.note),
    }
}
