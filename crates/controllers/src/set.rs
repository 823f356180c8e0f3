//! A PodCliqueSet: its records, what its replicas share, its status.

use std::sync::Arc;

use grove_api::conditions::podcliqueset::{TOPOLOGY_CONSTRAINTS, TOPOLOGY_LEVELS_UNAVAILABLE};
use grove_api::{PodCliqueSet, PodCliqueSetStatus, labels};
use grove_runtime::{ObjectKey, Outcome};
use grove_topology::conditions::updated_set_conditions;
use grove_topology::resolve;
use grove_workload::diff::{Change, Content, changes};
use grove_workload::expand::Expansion;
use grove_workload::expand::claims::{ClaimTemplates, Claims};
use grove_workload::meta::uid;
use grove_workload::{names, revision, status, update};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use kube::api::Api;

use crate::affected::all_parts;
use crate::events;
use crate::key::Key;
use crate::kinds::set_shelf;
use crate::replica;
use crate::shell::{Facts, Shell, Surroundings};
use crate::write::{self, Report, WriteError};

const WRITE_ERROR: &str = "ERR_SYNC_PODCLIQUESET";

pub(crate) async fn look(shell: &Shell, key: &ObjectKey) -> Outcome {
    let ours = labels::finalizer::PODCLIQUESET;
    let Some(set) = shell.view.sets.get(key) else {
        shell.forget(&Key::Set(key.clone()));
        return Outcome::Settled;
    };
    if set.metadata.deletion_timestamp.is_some() {
        // Everything follows by its owner references.
        shell.forget(&Key::Set(key.clone()));
        return shell.release::<PodCliqueSet>(&set, ours).await;
    }
    if !set.finalizers().iter().any(|finalizer| finalizer == ours) {
        return shell.hold::<PodCliqueSet>(&set, ours).await;
    }
    match learn(shell, key, &set).await {
        Ok(untold) => bring_in_order(shell, key, untold).await,
        Err(error) => {
            // Too little is known for more: but why nothing happens must be seen.
            let failures = write::failures(WRITE_ERROR, std::slice::from_ref(&error));
            let status = status::failed_set_status(&set, &failures, shell.now());
            write::outcome(&[error]).and(keep_status(shell, &Key::Set(key.clone()), &set, status).await)
        }
    }
}

/// Finds out what the parts of the set must know, and sends for a look at them when it is news. The record of the
/// templates is written before anything carries their hashes.
/// What could not be found out and concerns only a part of it is returned.
async fn learn(shell: &Shell, key: &ObjectKey, set: &Arc<PodCliqueSet>) -> Result<Vec<WriteError>, WriteError> {
    let shelf = set_shelf(key);
    let records = shell.view.revisions.of(&shelf);
    let resolved = revision::resolve(set, &records, &shell.view.cliques.of(&shelf));
    if let Some(record) = &resolved.create {
        shell.create::<ControllerRevision>(record).await?;
    }
    let (claim_templates, unknown) = claim_templates(shell, set).await;
    let facts = Facts {
        uid: uid(&**set).to_owned(),
        generation: set.metadata.generation,
        hashes: resolved.hashes,
        claim_templates,
    };
    if shell.learn(key, facts) {
        let replicas = names::replicas(set).chain(replica::existing(shell, key));
        replicas.for_each(|replica| shell.queue.add(Key::Replica(key.clone(), replica)));
        all_parts(key, &shell.view)
            .into_iter()
            .for_each(|part| shell.queue.add(part));
    }
    for stale in records
        .iter()
        .filter(|record| resolved.delete.contains(&record.name_any()))
    {
        shell
            .delete::<ControllerRevision>(&ObjectKey::of(&stale.metadata), uid(&**stale))
            .await?;
    }
    Ok(unknown)
}

/// Claim templates that the set names and that are objects of their own. They are read, never watched: they may be in
/// namespaces that are none of the operator's business.
async fn claim_templates(shell: &Shell, set: &PodCliqueSet) -> (ClaimTemplates, Vec<WriteError>) {
    let mut found = ClaimTemplates::new();
    let mut unknown = Vec::new();
    for (namespace, name) in Expansion::external_claim_templates(set) {
        let api = Api::<ResourceClaimTemplate>::namespaced(shell.client.clone(), &namespace);
        let answer = shell.in_turn(api.get_opt(&name)).await;
        let key = ObjectKey::new(namespace.clone(), name.clone());
        match answer {
            Ok(Some(template)) => drop(found.insert((namespace, name), template.spec)),
            Ok(None) => unknown.push(WriteError::Failed(format!(
                "ResourceClaimTemplate {key} does not exist; create it"
            ))),
            Err(error) => unknown.push(WriteError::Failed(format!(
                "cannot read ResourceClaimTemplate {key}: {error}"
            ))),
        }
    }
    (found, unknown)
}

async fn bring_in_order(shell: &Shell, key: &ObjectKey, unknown: Vec<WriteError>) -> Outcome {
    let own = Key::Set(key.clone());
    let Some(around) = Surroundings::of(shell, key, None) else {
        return Outcome::Settled;
    };
    let mut errors = write_shared(shell, key, &around).await;
    errors.extend(unknown);
    shell.report(&own, write::failures(WRITE_ERROR, &errors), &own);
    let live = around.live();
    let expansion = around.expansion(shell, &live);
    let now = shell.now();
    let update = update::set_update(&expansion, now);
    let gangs = shell.view.gangs.of(&set_shelf(key));
    let mut status = status::set_status(&expansion, (&gangs, &update), &shell.failures_of(key), now);
    put_topology_conditions(shell, &around.set, &mut status.conditions);
    let outcome = write::outcome(&errors).and(keep_status(shell, &own, &around.set, status).await);
    match update.look_again_at {
        Some(at) => outcome.and(Outcome::LookAgain(crate::until(now, at))),
        None => outcome,
    }
}

/// Puts in what became of the topology that the set uses.
fn put_topology_conditions(shell: &Shell, set: &PodCliqueSet, conditions: &mut Vec<Condition>) {
    let resolution = shell.view.resolve(resolve::reference(set, &shell.view.tas.source));
    let Some(updated) = updated_set_conditions(set, conditions, &resolution, &Time(shell.now())) else {
        return;
    };
    let status = |conditions: &[Condition]| {
        let mut found = conditions
            .iter()
            .filter(|condition| condition.type_ == TOPOLOGY_CONSTRAINTS);
        found.next().map(|condition| condition.reason.clone())
    };
    let (before, now) = (status(conditions), status(&updated));
    if before != now {
        tracing::info!(set = %ObjectKey::of(&set.metadata), ?before, ?now, "topology constraints");
    }
    *conditions = updated;
}

/// What must be written of an owner's claims. One whose template is gone stays: it is in use, and nobody could make it
/// again.
pub(crate) fn claim_changes(owner: &str, claims: Claims, stored: &[Arc<ResourceClaim>]) -> Vec<Change<ResourceClaim>> {
    let mut changes = changes(owner, claims.wanted, stored, Content::Fixed);
    changes.retain(|change| !matches!(change, Change::Delete { name, .. } if claims.kept.contains(name)));
    changes
}

async fn write_shared(shell: &Shell, key: &ObjectKey, around: &Surroundings) -> Vec<WriteError> {
    let live = around.live();
    let children = around.expansion(shell, &live).shared_children();
    let (shelf, owner, view) = (set_shelf(key), uid(&*around.set), &shell.view);
    let roles = changes(
        owner,
        children.role.into_iter().collect(),
        &view.roles.of(&shelf),
        Content::Written,
    );
    let bindings = children.role_binding.into_iter().collect();
    let bindings = changes(owner, bindings, &view.role_bindings.of(&shelf), Content::Written);
    let claims = claim_changes(owner, children.claims, &view.claims.of(&shelf));
    let (a, b, c) = tokio::join!(
        shell.carry_out(&key.namespace, roles, Content::Written),
        shell.carry_out(&key.namespace, bindings, Content::Written),
        shell.carry_out(&key.namespace, claims, Content::Fixed),
    );
    [a, b, c].into_iter().flatten().collect()
}

async fn keep_status(shell: &Shell, key: &Key, set: &PodCliqueSet, status: PodCliqueSetStatus) -> Outcome {
    let stored = set.status.clone().unwrap_or_default();
    let strategy = set.spec.update_strategy.as_ref().map(|strategy| strategy.type_);
    let mut notices = events::failures(set, &stored.last_errors, &status.last_errors);
    notices.extend(events::update_steps(
        set,
        (&stored, &status),
        strategy.unwrap_or_default(),
        shell.now(),
    ));
    notices.extend(events::turns(
        set,
        (&stored.conditions, &status.conditions),
        &[(TOPOLOGY_CONSTRAINTS, "True"), (TOPOLOGY_LEVELS_UNAVAILABLE, "False")],
        shell.now(),
    ));
    let report = Report {
        is_waited_for: stored.update_progress != status.update_progress || stored.last_errors != status.last_errors,
        notices,
        status,
    };
    shell.keep_status::<PodCliqueSet>(key, set, report).await
}
