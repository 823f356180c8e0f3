//! A PodCliqueScalingGroup: its cliques, their update, its status.

use std::sync::Arc;

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueScalingGroupStatus, labels};
use grove_runtime::{Notice, ObjectKey, Outcome};
use grove_workload::availability::{self, termination_delay};
use grove_workload::diff::{Content, changes};
use grove_workload::meta::uid;
use grove_workload::names::{index_label, is_owned_by};
use grove_workload::status;
use grove_workload::update::{self, Turn};
use kube::ResourceExt;

use crate::events;
use crate::key::Key;
use crate::kinds::set_shelf;
use crate::replica;
use crate::set::claim_changes;
use crate::shell::{Shell, Surroundings};
use crate::write::{self, Report, WriteError, in_parallel};

const WRITE_ERROR: &str = "ERR_SYNC_SCALING_GROUP";

pub(crate) async fn look(shell: &Shell, key: &ObjectKey) -> Outcome {
    let Some(group) = shell.view.groups.get(key) else {
        shell.forget(&Key::Group(key.clone()));
        return Outcome::Settled;
    };
    if group.metadata.deletion_timestamp.is_some() {
        // Its cliques follow by their owner references.
        let ours = labels::finalizer::SCALING_GROUP;
        return shell.release::<PodCliqueScalingGroup>(&group, ours).await;
    }
    let Some(Key::Replica(set, replica)) = Key::replica_of(&group.metadata) else {
        return Outcome::Settled;
    };
    match Surroundings::of(shell, &set, Some(replica)) {
        Some(around) if is_owned_by(&group.metadata, uid(&*around.set)) => {
            bring_in_order(shell, &group, &around, replica).await
        }
        _ => Outcome::Settled,
    }
}

async fn bring_in_order(shell: &Shell, group: &PodCliqueScalingGroup, around: &Surroundings, replica: i32) -> Outcome {
    let key = Key::Group(ObjectKey::of(&group.metadata));
    let live = around.live();
    let expansion = around.expansion(shell, &live);
    let now = shell.now();
    let turn = update::turn(&expansion, replica);
    let update = update::group_update(&expansion, group, &around.cliques, turn, now);
    let stored = group.status.as_ref().and_then(|status| status.update_progress.clone());
    let progresses = update.progress != stored;
    if progresses && !update.delete.is_empty() {
        // Progress goes before the deletions that it names.
        let status = status::group_status(&expansion, group, (&around.cliques, &update), &[], now);
        let result = shell.write_status::<PodCliqueScalingGroup>(group, &status).await;
        return write::outcome(result.err().as_slice());
    }
    let mut errors = write_children(shell, group, around).await;
    if !update.delete.is_empty() {
        errors.extend(recreate(shell, group, around, (turn, &update.delete)).await);
    }

    let termination = availability::of_group(group, &around.cliques, termination_delay(&around.set), now);
    if !termination.replicas.is_empty() {
        errors.extend(recycle(shell, group, around).await);
    }
    let failures = write::failures(WRITE_ERROR, &errors);
    let status = status::group_status(&expansion, group, (&around.cliques, &update), &failures, now);
    let outcome = write::outcome(&errors).and(keep_status(shell, &key, group, status).await);
    match termination.look_again_at {
        Some(at) => outcome.and(Outcome::LookAgain(crate::until(now, at))),
        None => outcome,
    }
}

async fn write_children(shell: &Shell, group: &PodCliqueScalingGroup, around: &Surroundings) -> Vec<WriteError> {
    let live = around.live();
    let children = around.expansion(shell, &live).group_children(group);
    let namespace = group.namespace().unwrap_or_default();
    let owner = uid(group);
    let claims = shell.view.claims.of(&set_shelf(&ObjectKey::of(&around.set.metadata)));
    let claims = claim_changes(owner, children.claims, &claims);
    let mut errors = shell.carry_out(&namespace, claims, Content::Fixed).await;
    let cliques = changes(owner, children.cliques, &around.cliques, Content::Whole);
    errors.extend(shell.carry_out(&namespace, cliques, Content::Whole).await);
    errors
}

/// Deletes the cliques of these replicas of the group.
async fn delete_replicas(
    shell: &Shell,
    group: &PodCliqueScalingGroup,
    cliques: &[Arc<PodClique>],
    replicas: &[i32],
) -> Vec<WriteError> {
    let is_of = |clique: &&Arc<PodClique>| {
        let index = index_label(&clique.metadata, labels::SCALING_GROUP_REPLICA_INDEX);
        is_owned_by(&clique.metadata, uid(group))
            && clique.metadata.deletion_timestamp.is_none()
            && index.is_some_and(|index| replicas.contains(&index))
    };
    let victims: Vec<Arc<PodClique>> = cliques.iter().filter(is_of).cloned().collect();
    let delete = |clique: Arc<PodClique>| async move {
        shell
            .delete::<PodClique>(&ObjectKey::of(&clique.metadata), uid(&*clique))
            .await
    };
    in_parallel(victims, delete).await
}

/// The cliques of the group, asked for right before any of them is torn down.
async fn asked(shell: &Shell, group: &PodCliqueScalingGroup) -> Result<Vec<Arc<PodClique>>, WriteError> {
    let namespace = group.namespace().unwrap_or_default();
    let selector = format!("{}={}", labels::SCALING_GROUP, group.name_any());
    match replica::live_cliques(shell, (&namespace, &selector)).await {
        Ok(cliques) => Ok(cliques.into_iter().map(Arc::new).collect()),
        Err(error) => Err(WriteError::Failed(format!(
            "cannot read the cliques of {selector}: {error}"
        ))),
    }
}

/// Recreates replicas of old templates that are still due when asked right before: that one is broken is known from the
/// status of its cliques, which may be older than its pods, and no replica that serves is taken for that.
async fn recreate(
    shell: &Shell,
    group: &PodCliqueScalingGroup,
    around: &Surroundings,
    (turn, due): (Turn, &[i32]),
) -> Vec<WriteError> {
    let cliques = match asked(shell, group).await {
        Ok(cliques) => cliques,
        Err(error) => return vec![error],
    };
    let live = around.live();
    let update = update::group_update(&around.expansion(shell, &live), group, &cliques, turn, shell.now());
    let due: Vec<i32> = due
        .iter()
        .copied()
        .filter(|index| update.delete.contains(index))
        .collect();
    delete_replicas(shell, group, &cliques, &due).await
}

/// Starts replicas again that stayed below their minimum, if they still are when asked right before.
async fn recycle(shell: &Shell, group: &PodCliqueScalingGroup, around: &Surroundings) -> Vec<WriteError> {
    let cliques = match asked(shell, group).await {
        Ok(cliques) => cliques,
        Err(error) => return vec![error],
    };
    let due = availability::of_group(group, &cliques, termination_delay(&around.set), shell.now()).replicas;
    if !due.is_empty() {
        let key = ObjectKey::of(&group.metadata);
        tracing::info!(group = %key, replicas = ?due, "below the minimum for too long; starting them again");
        let note = format!("Replicas {due:?} were below their minimum for too long; all their pods are recreated");
        let step = Notice::step(group, ("GangTerminated", "Terminate"), note, shell.now());
        shell.tell([step.into_warning()]);
    }
    delete_replicas(shell, group, &cliques, &due).await
}

async fn keep_status(
    shell: &Shell,
    key: &Key,
    group: &PodCliqueScalingGroup,
    status: PodCliqueScalingGroupStatus,
) -> Outcome {
    let stored = group.status.clone().unwrap_or_default();
    let report = Report {
        is_waited_for: stored.update_progress != status.update_progress || stored.last_errors != status.last_errors,
        notices: events::failures(group, &stored.last_errors, &status.last_errors),
        status,
    };
    shell.keep_status::<PodCliqueScalingGroup>(key, group, report).await
}
