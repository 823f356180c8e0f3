//! One replica of a PodCliqueSet: its cliques, scaling groups, Service and autoscalers, and whether it is recycled.

use std::sync::Arc;

use grove_api::labels::{self, annotation};
use grove_api::{ComputeDomain, PodClique, PodCliqueScalingGroup, PodGang};
use grove_runtime::{Notice, ObjectKey, Outcome};
use grove_workload::availability;
use grove_workload::diff::{Change, Content, changes};
use grove_workload::expand::{Live, Recycled, ReplicaChildren};
use grove_workload::meta::uid;
use grove_workload::names::is_owned_by;
use grove_workload::observed::{ObservedPod, PodFields};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::compute_domain;
use crate::key::Key;
use crate::kinds::set_shelf;
use crate::served::OptionalApi;
use crate::shell::{Shell, Surroundings};
use crate::write::{self, WriteError, in_parallel};

const WRITE_ERROR: &str = "ERR_SYNC_REPLICA";
const COMPUTE_DOMAIN_ERROR: &str = "ERR_SYNC_COMPUTE_DOMAIN";
const TERMINATE_ERROR: &str = "ERR_GANG_TERMINATION";

pub(crate) async fn look(shell: &Shell, set: &ObjectKey, replica: i32) -> Outcome {
    let Some(around) = Surroundings::of(shell, set, Some(replica)) else {
        return Outcome::Settled;
    };
    let key = Key::Replica(set.clone(), replica);
    let live = around.live();
    let mut children = around.expansion(shell, &live).replica_children(replica);
    let domains = std::mem::take(&mut children.compute_domains);
    let mut errors = write_compute_domains(shell, &around, (set, replica), domains).await;
    let mut failures = write::failures(COMPUTE_DOMAIN_ERROR, &errors);
    let found = write_children(shell, &around, (set, replica), children).await;
    failures.extend(write::failures(WRITE_ERROR, &found));
    errors.extend(found);

    let live = around.live();
    let termination = availability::of_replica(&around.set, replica, (&live, &around.cliques), shell.now());
    if !termination.replicas.is_empty() {
        let found = recycle(shell, &around, replica).await;
        failures.extend(write::failures(TERMINATE_ERROR, &found));
        errors.extend(found);
    }
    shell.report(&key, failures, &Key::Set(set.clone()));
    let outcome = write::outcome(&errors);
    match termination.look_again_at {
        Some(at) => outcome.and(Outcome::LookAgain(crate::until(shell.now(), at))),
        None => outcome,
    }
}

/// Writes the ComputeDomains of the replica's NVLink groups. They come first: pods that claim a channel wait for them.
async fn write_compute_domains(
    shell: &Shell,
    around: &Surroundings,
    (set, replica): (&ObjectKey, i32),
    wanted: Vec<ComputeDomain>,
) -> Vec<WriteError> {
    let stored = shell.view.compute_domains.of_part(&set_shelf(set), replica);
    let is_wanted = |domain: &ComputeDomain| wanted.iter().any(|wanted| wanted.name_any() == domain.name_any());
    let leaving = stored.iter().filter(|domain| {
        domain.metadata.deletion_timestamp.is_some() && is_wanted(domain) && compute_domain::is_used(shell, domain)
    });
    let leaving = leaving.map(|domain| {
        let key = ObjectKey::of(&domain.metadata);
        WriteError::Refused(format!(
            "ComputeDomain {key} was deleted and goes when no pod uses it any more; delete its pods to get a new one"
        ))
    });
    let mut errors: Vec<WriteError> = leaving.collect();
    let changes = changes(uid(&*around.set), wanted, &stored, Content::Fixed);
    if changes.is_empty() {
        return errors;
    }
    if shell.served.version(OptionalApi::ComputeDomain).is_none() {
        // Looked at again when it is there.
        let definition = OptionalApi::ComputeDomain.definition();
        errors.push(WriteError::Refused(format!(
            "the pods need a ComputeDomain, and {definition} is not served; install NVIDIA's DRA driver"
        )));
        return errors;
    }
    errors.extend(shell.carry_out(&set.namespace, changes, Content::Fixed).await);
    errors
}

/// Writes what else the replica should own, and sends for a look at its gangs.
async fn write_children(
    shell: &Shell,
    around: &Surroundings,
    (set, replica): (&ObjectKey, i32),
    children: ReplicaChildren,
) -> Vec<WriteError> {
    let owner = uid(&*around.set);
    let namespace = &set.namespace;
    let shelf = set_shelf(set);
    let view = &shell.view;

    let services = changes(
        owner,
        children.services,
        &view.services.of_part(&shelf, replica),
        Content::Written,
    );
    let autoscalers = view.autoscalers.of_part(&shelf, replica);
    let autoscalers = changes(owner, children.autoscalers, &autoscalers, Content::Written);
    let groups = changes(owner, children.groups, &around.groups, Content::Whole);
    let cliques = changes(owner, children.cliques, &around.cliques, Content::Whole);
    let gangs = view.gangs.of_part(&shelf, replica);
    let surplus = changes(owner, children.gangs.clone(), &gangs, Content::Fixed);
    let surplus = surplus
        .into_iter()
        .filter(|change| matches!(change, Change::Delete { .. }))
        .collect();

    let (step, written) = (shell.begin(&around.set), groups.len() + cliques.len());
    let (a, b, c, d, e) = tokio::join!(
        shell.carry_out(namespace, services, Content::Written),
        shell.carry_out(namespace, autoscalers, Content::Written),
        shell.carry_out(namespace, groups, Content::Whole),
        shell.carry_out(namespace, cliques, Content::Whole),
        shell.carry_out::<PodGang>(namespace, surplus, Content::Whole),
    );
    for gang in children.gangs {
        shell.queue.add(Key::Gang(set.clone(), replica, gang.name_any()));
    }
    let errors: Vec<WriteError> = [a, b, c, d, e].into_iter().flatten().collect();
    if written > 0 {
        let about = || {
            vec![
                ("grove.replica", replica.to_string()),
                ("grove.objects", written.to_string()),
            ]
        };
        step.end("expand podcliqueset", about, &errors);
    }
    errors
}

/// Deletes all cliques of a replica, if it is still below its minimum when asked right before.
async fn recycle(shell: &Shell, around: &Surroundings, replica: i32) -> Vec<WriteError> {
    let namespace = around.set.namespace().unwrap_or_default();
    let (cliques, groups) = match read_live(shell, around, (&namespace, replica)).await {
        Ok(found) => found,
        Err(error) => return vec![WriteError::Failed(format!("cannot read replica {replica}: {error}"))],
    };
    let live = Live::of(&around.set, &cliques, &groups);
    if availability::of_replica(&around.set, replica, (&live, &cliques), shell.now())
        .replicas
        .is_empty()
    {
        return vec![];
    }
    tracing::info!(set = %ObjectKey::of(&around.set.metadata), replica, "below its minimum for too long; starting it again");
    let note = format!("Replica {replica} was below its minimum for too long; all its pods are recreated");
    let step = Notice::step(&*around.set, ("GangTerminated", "Terminate"), note, shell.now());
    shell.tell([step.into_warning()]);
    let ours: Vec<PodClique> = live.cliques().cloned().collect();
    let (standalone, members): (Vec<PodClique>, Vec<PodClique>) = ours
        .into_iter()
        .partition(|clique| is_owned_by(&clique.metadata, uid(&*around.set)));
    if let Err(error) = keep_numbers(shell, around, &standalone).await {
        return vec![error];
    }
    let marked = in_parallel(groups, |group| mark(shell, group)).await;
    // Members first: while a standalone clique is missing, a recycling counts as not over.
    let delete = |clique: PodClique| async move {
        shell
            .delete::<PodClique>(&ObjectKey::of(&clique.metadata), uid(&clique))
            .await
    };
    let mut errors = in_parallel(members, delete).await;
    if errors.is_empty() {
        errors = in_parallel(standalone, delete).await;
    }
    errors.into_iter().chain(marked).collect()
}

/// Writes down how far somebody has scaled cliques that are about to be replaced.
async fn keep_numbers(shell: &Shell, around: &Surroundings, cliques: &[PodClique]) -> Result<(), WriteError> {
    let Some(base) = &around.base else {
        return Ok(());
    };
    let scaled = Recycled::of(cliques);
    if Recycled::on(base) == scaled {
        return Ok(());
    }
    let record = json!({annotation::RECYCLED_REPLICAS: scaled.record()});
    let patch = json!({"metadata": {"annotations": record}});
    shell.merge::<PodGang>(base, patch).await
}

/// The cliques and groups of a replica as the API server has them now.
async fn read_live(
    shell: &Shell,
    around: &Surroundings,
    (namespace, replica): (&str, i32),
) -> Result<(Vec<PodClique>, Vec<PodCliqueScalingGroup>), kube::Error> {
    let selector = format!(
        "{}={},{}={replica}",
        labels::PART_OF,
        around.set.name_any(),
        labels::PCS_REPLICA_INDEX
    );
    let parameters = ListParams::default().labels(&selector);
    let groups = Api::<PodCliqueScalingGroup>::namespaced(shell.client.clone(), namespace);
    let groups = shell.in_turn(groups.list(&parameters));
    let (cliques, groups) = tokio::try_join!(live_cliques(shell, (namespace, &selector)), groups)?;
    let groups = groups
        .items
        .into_iter()
        .filter(|group| is_owned_by(group.meta(), uid(&*around.set)));
    Ok((cliques, groups.collect()))
}

/// The cliques with these labels as the API server has them now, their conditions as their pods say that they are: the
/// watch of pods may be late, and so would be the status that we wrote.
pub(crate) async fn live_cliques(
    shell: &Shell,
    (namespace, selector): (&str, &str),
) -> Result<Vec<PodClique>, kube::Error> {
    let parameters = ListParams::default().labels(selector);
    let cliques = Api::<PodClique>::namespaced(shell.client.clone(), namespace);
    let pods = Api::<PodFields>::namespaced(shell.client.clone(), namespace);
    let (cliques, pods) = tokio::try_join!(
        shell.in_turn(cliques.list(&parameters)),
        shell.in_turn(pods.list(&parameters)),
    )?;
    let of = |clique: &PodClique| -> Vec<ObservedPod> {
        let its = pods.iter().filter(|pod| is_owned_by(&pod.metadata, uid(clique)));
        its.map(ObservedPod::from).collect()
    };
    let now = shell.now();
    let seen = cliques
        .iter()
        .map(|clique| availability::as_its_pods_say(clique, &of(clique), now));
    Ok(seen.collect())
}

async fn mark(shell: &Shell, group: PodCliqueScalingGroup) -> Result<(), WriteError> {
    let mut status = group.status.clone().unwrap_or_default();
    status.conditions = availability::mark_terminated(&group, shell.now());
    if group.status.as_ref() == Some(&status) {
        return Ok(());
    }
    shell.write_status::<PodCliqueScalingGroup>(&group, &status).await
}

/// Replicas of a set of which anything exists.
pub(crate) fn existing(shell: &Shell, set: &ObjectKey) -> std::collections::BTreeSet<i32> {
    fn indices<K: Resource>(objects: Vec<Arc<K>>) -> Vec<i32> {
        let index = |object: &Arc<K>| grove_workload::names::index_label(object.meta(), labels::PCS_REPLICA_INDEX);
        objects.iter().filter_map(index).collect()
    }
    let (shelf, view) = (set_shelf(set), &shell.view);
    let all = [
        indices(view.cliques.of(&shelf)),
        indices(view.groups.of(&shelf)),
        indices(view.gangs.of(&shelf)),
        indices(view.services.of(&shelf)),
        indices(view.autoscalers.of(&shelf)),
        indices(view.compute_domains.of(&shelf)),
    ];
    all.into_iter().flatten().collect()
}
