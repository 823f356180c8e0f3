//! A PodGang: which pods it lists, how close they must sit, and where it stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use grove_api::conditions::podgang::INITIALIZED;
use grove_api::labels::annotation;
use grove_api::{
    ClusterTopology, ClusterTopologyBinding, PodClique, PodCliqueSet, PodGang, PodGangStatus, TopologyDomain,
};
use grove_runtime::{Notice, ObjectKey, Outcome};
use grove_topology::resolve::packing_reference;
use grove_topology::{Resolution, TopologyKind};
use grove_workload::conditions;
use grove_workload::diff::{Content, changes};
use grove_workload::expand::Recycled;
use grove_workload::gang::{self, Member, Members};
use grove_workload::meta::uid;
use grove_workload::names::is_owned_by;
use grove_workload::observed::ObservedPod;
use kube::{Resource, ResourceExt};

use crate::backends;
use crate::constrain::constrain;
use crate::key::Key;
use crate::shell::{Shell, Surroundings};
use crate::steps;
use crate::write::{self, Report, WriteError};

const WRITE_ERROR: &str = "ERR_SYNC_PODGANG";

pub(crate) async fn look(shell: &Shell, set: &ObjectKey, replica: i32, name: &str) -> Outcome {
    let Some(around) = Surroundings::of(shell, set, Some(replica)) else {
        return Outcome::Settled;
    };
    let object = ObjectKey::new(set.namespace.clone(), name);
    let key = Key::Gang(set.clone(), replica, name.to_owned());
    let stored = shell.view.gangs.get(&object);
    let live = around.live();
    let expansion = around.expansion(shell, &live);
    let plans = if expansion.replicas().contains(&replica) {
        expansion.gang_plans(replica)
    } else {
        vec![]
    };
    // One that should not be is deleted by the look at its replica.
    let Some(plan) = plans.iter().find(|plan| plan.name == name) else {
        shell.report(&key, vec![], &Key::Set(set.clone()));
        shell.forget(&key);
        return Outcome::Settled;
    };
    let pods = pods_of(shell, live.cliques(), |clique| {
        plan.cliques.iter().any(|member| member.name == clique)
    });
    let members = members(live.cliques(), &pods);
    let owned = stored
        .as_deref()
        .filter(|gang| is_owned_by(&gang.metadata, uid(&*around.set)));
    let resolution = match resolution(shell, &around.set, owned).await {
        Ok(resolution) => resolution,
        Err(error) => return write::outcome(&[error]),
    };
    let mut wanted = expansion.gang(plan);
    let backend = backends::of(around.profile(shell));
    backend.mark_gang(&mut wanted);
    let packing = shell.view.tas.preferred_packing;
    constrain(&mut wanted, (&around.set, plan), &resolution, (packing, owned));
    steps::hand_on(&around.set, &mut wanted);
    if let Some(record) = owned.and_then(|gang| Recycled::on(gang).outstanding(&live).record()) {
        let key = annotation::RECYCLED_REPLICAS.to_owned();
        wanted.annotations_mut().insert(key, record);
    }
    gang::fill_references(&mut wanted, stored.as_deref(), &members);
    let count = listed(&wanted);
    let is_formed = count > 0 && stored.as_deref().map_or(0, listed) == 0;
    let observed: Vec<Arc<PodGang>> = stored.into_iter().collect();
    let changes = changes(uid(&*around.set), vec![wanted], &observed, Content::Whole);
    let step = shell.begin(&around.set);
    let mut errors = shell.carry_out(&set.namespace, changes, Content::Whole).await;
    if is_formed {
        step.end("form gang", || about(name, count), &errors);
    }
    let is_ours = |gang: &Arc<PodGang>| {
        is_owned_by(&gang.metadata, uid(&*around.set)) && gang.metadata.deletion_timestamp.is_none()
    };
    let stored = shell.view.gangs.get(&object).filter(is_ours);
    if let Some(gang) = &stored {
        let resource = backend.gang_resource(&around.set, gang, resolution.topology());
        errors.extend(backends::keep(shell, resource).await.err());
    }
    shell.report(&key, write::failures(WRITE_ERROR, &errors), &Key::Set(set.clone()));
    let outcome = write::outcome(&errors);
    match stored {
        Some(gang) => {
            let mut status = gang::status(&gang, &members, shell.now());
            if !backend.says_scheduled() {
                gang::put_scheduled(&mut status, &gang, &members, shell.now());
            }
            if let Some(since) = steps::started(&gang, &status) {
                let step = shell.begin(&around.set).since(since);
                step.end("start gang", || about(name, count), &[] as &[WriteError]);
            }
            let told = unplaced(&gang, gang::why_unplaced(&gang, &members));
            outcome.and(keep_status(shell, &key, &gang, (status, told)).await)
        }
        None => outcome,
    }
}

/// How many pods a gang lists.
fn listed(gang: &PodGang) -> usize {
    gang.spec
        .pod_groups
        .iter()
        .map(|group| group.pod_references.len())
        .sum()
}

/// What traces tell of a gang.
fn about(gang: &str, pods: usize) -> Vec<(&'static str, String)> {
    vec![
        ("grove.podgang.name", gang.to_owned()),
        ("grove.pods", pods.to_string()),
    ]
}

/// What became of the topology that the gang is packed by. A gang that is new would be placed anywhere without it, so that
/// it is missing is believed only when the API server says so too: the watch may be late.
async fn resolution(shell: &Shell, set: &PodCliqueSet, existing: Option<&PodGang>) -> Result<Resolution, WriteError> {
    let reference = packing_reference(set, &shell.view.tas);
    let seen = shell.view.resolve(reference);
    let (Resolution::Missing { kind, name }, None) = (&seen, existing) else {
        return Ok(seen);
    };
    let key = ObjectKey::new("", name.as_str());
    match kind {
        TopologyKind::TopologyDomain => shell.fetch::<TopologyDomain>(&key).await?,
        TopologyKind::ClusterTopology | TopologyKind::ClusterTopologyBinding => {
            shell.fetch::<ClusterTopology>(&key).await?;
            shell.fetch::<ClusterTopologyBinding>(&key).await?;
        }
    }
    Ok(shell.view.resolve(reference))
}

type Pods = BTreeMap<String, Vec<ObservedPod>>;

/// The pods of the cliques that take part, by UID of the clique.
fn pods_of<'a>(shell: &Shell, cliques: impl Iterator<Item = &'a PodClique>, takes_part: impl Fn(&str) -> bool) -> Pods {
    let cliques = cliques.filter(|clique| takes_part(clique.metadata.name.as_deref().unwrap_or_default()));
    let pods = |clique: &PodClique| shell.pods(clique).iter().map(|pod| pod.seen.clone()).collect();
    cliques.map(|clique| (uid(clique).to_owned(), pods(clique))).collect()
}

fn members<'a>(cliques: impl Iterator<Item = &'a PodClique>, pods: &'a Pods) -> Members<'a> {
    let member = |clique: &'a PodClique| {
        let pods = pods.get(uid(clique))?;
        Some((clique.metadata.name.as_deref()?, Member { clique, pods }))
    };
    cliques.filter_map(member).collect()
}

/// That a scheduler found no node for a pod. A state and not a step: told once for the same words.
fn unplaced(gang: &PodGang, why: Option<String>) -> Option<Notice> {
    Some(Notice {
        about: gang.object_ref(&()),
        is_warning: true,
        reason: "Unplaced".to_owned(),
        action: "Place",
        note: format!("PodGang {} waits: {}", gang.name_any(), why?),
        occasion: None,
    })
}

async fn keep_status(
    shell: &Shell,
    key: &Key,
    gang: &PodGang,
    (status, told): (PodGangStatus, Option<Notice>),
) -> Outcome {
    let is_initialized = |status: Option<&PodGangStatus>| {
        status.is_some_and(|status| conditions::is_true(&status.conditions, INITIALIZED))
    };
    // Whoever places the gang waits for this one.
    let is_waited_for = is_initialized(gang.status.as_ref()) != is_initialized(Some(&status));
    let report = Report {
        status,
        is_waited_for,
        notices: told.into_iter().collect(),
    };
    shell.keep_status::<PodGang>(key, gang, report).await
}
