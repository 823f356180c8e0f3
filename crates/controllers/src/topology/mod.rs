//! A topology: who holds it in place, what other schedulers are told of it, its status.
//!
//! ClusterTopologies and TopologyDomains are served alike. Which topology a set uses, and what its gangs become, is
//! decided where sets and gangs are looked at; a change of a topology sends for them. A ClusterTopologyBinding is
//! somebody else's: it is read there, and never written; only that another kind hides it is told.

pub(crate) mod backend;

use grove_api::conditions::topology::READY;
use grove_api::topology::TopologyStatus;
use grove_api::{ClusterTopology, PodCliqueSet, TopologyDomain, labels};
use grove_runtime::{Notice, ObjectKey, Outcome};
use grove_topology::conditions::{BackendReport, updated_topology_status};
use grove_topology::usage::{FinalizerStep, Usage, cluster_topology_finalizer, topology_domain_finalizer};
use grove_topology::{Topology, TopologyKind, resolve};
use grove_workload::meta::uid;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use kube::core::object::HasStatus;
use kube::{Client, Resource, ResourceExt};

use crate::affected::Affects;
use crate::events;
use crate::key::Key;
use crate::kinds::{Kind, View};
use crate::shell::Shell;
use crate::write;

/// Sets that are read at once: a thousand are below 20 MB.
const SETS_PER_PAGE: u32 = 500;

/// A kind of object that holds a topology and is served here.
pub(crate) trait Holder:
    Affects + Kind<Object = Self> + Resource<DynamicType = ()> + HasStatus<Status = TopologyStatus>
{
    const KIND: TopologyKind;
    const FINALIZER: &str;

    fn topology(&self) -> Topology;
    /// What to do about the finalizer while these sets exist.
    fn finalizer_step<'a>(&self, sets: impl Iterator<Item = &'a PodCliqueSet>, view: &View) -> FinalizerStep;
}

impl Holder for ClusterTopology {
    const KIND: TopologyKind = TopologyKind::ClusterTopology;
    const FINALIZER: &str = labels::finalizer::CLUSTER_TOPOLOGY;

    fn topology(&self) -> Topology {
        Topology::from(self)
    }

    fn finalizer_step<'a>(&self, sets: impl Iterator<Item = &'a PodCliqueSet>, view: &View) -> FinalizerStep {
        cluster_topology_finalizer(self, &Usage::of(sets, &view.tas.source), &view.tas)
    }
}

impl Holder for TopologyDomain {
    const KIND: TopologyKind = TopologyKind::TopologyDomain;
    const FINALIZER: &str = labels::finalizer::TOPOLOGY_DOMAIN;

    fn topology(&self) -> Topology {
        Topology::from(self)
    }

    fn finalizer_step<'a>(&self, mut sets: impl Iterator<Item = &'a PodCliqueSet>, view: &View) -> FinalizerStep {
        topology_domain_finalizer(self, sets.next().is_some(), &view.tas.source)
    }
}

pub(crate) async fn look(shell: &Shell, kind: TopologyKind, name: &str) -> Outcome {
    match kind {
        TopologyKind::ClusterTopology => {
            shell.tell(hidden_binding(&shell.view, name));
            look_at::<ClusterTopology>(shell, name).await
        }
        TopologyKind::TopologyDomain => look_at::<TopologyDomain>(shell, name).await,
        TopologyKind::ClusterTopologyBinding => {
            shell.tell(hidden_binding(&shell.view, name));
            Outcome::Settled
        }
    }
}

/// That a ClusterTopology of the same name is used instead of a ClusterTopologyBinding: its author would not guess it.
fn hidden_binding(view: &View, name: &str) -> Option<Notice> {
    let key = ObjectKey::new("", name);
    let binding = view.topology_bindings.get(&key)?;
    view.cluster_topologies.get(&key)?;
    Some(Notice {
        about: binding.object_ref(&()),
        is_warning: true,
        reason: "Hidden".to_owned(),
        action: "Resolve",
        note: format!("ClusterTopology '{name}' has the same name and is used instead; rename one of the two"),
        occasion: None,
    })
}

async fn look_at<V: Holder>(shell: &Shell, name: &str) -> Outcome {
    let Some(object) = V::store(&shell.view).get(&ObjectKey::new("", name)) else {
        return Outcome::Settled;
    };
    let sets = shell.view.sets.all();
    match object.finalizer_step(sets.iter().map(|set| &**set), &shell.view) {
        FinalizerStep::Leave => {}
        // What is written is seen at once, and looked at next.
        FinalizerStep::Add => {
            return shell.hold::<V>(&object, V::FINALIZER).await;
        }
        FinalizerStep::Lift => return lift(shell, &*object).await,
    }
    // What it owns follows it by owner references, once nobody uses it any more.
    if object.meta().deletion_timestamp.is_some() {
        return Outcome::Settled;
    }
    let (report, outcome) = backend::bring_in_order(shell, &object.topology(), uid(&*object)).await;
    outcome.and(keep_status(shell, &*object, &report).await)
}

/// Lets go of a topology that no set uses, if that is so when asked right before: a set may have been admitted that no
/// watch has brought yet.
async fn lift<V: Holder>(shell: &Shell, object: &V) -> Outcome {
    let sets = match shell.in_turn(all_sets(&shell.client)).await {
        Ok(sets) => sets,
        Err(error) => {
            let (kind, name) = (V::KIND, object.name_any());
            return Outcome::Failed(format!("cannot read who uses {kind} {name}: {error}"));
        }
    };
    match object.finalizer_step(sets.iter(), &shell.view) {
        FinalizerStep::Lift => shell.release::<V>(object, V::FINALIZER).await,
        FinalizerStep::Add | FinalizerStep::Leave => Outcome::Settled,
    }
}

/// All sets, as the API server has them now.
async fn all_sets(client: &Client) -> Result<Vec<PodCliqueSet>, kube::Error> {
    let api = Api::<PodCliqueSet>::all(client.clone());
    let mut parameters = ListParams::default().limit(SETS_PER_PAGE);
    let mut sets = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        sets.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(sets),
        }
    }
}

async fn keep_status<V: Holder>(shell: &Shell, object: &V, report: &BackendReport) -> Outcome {
    // Objects of the source that is not in use are nobody's, apart from their finalizer.
    if V::KIND != resolve::default_reference(&shell.view.tas.source).kind {
        return Outcome::Settled;
    }
    let existing = object.status().cloned().unwrap_or_default();
    let generation = object.meta().generation.unwrap_or_default();
    let Some(status) = updated_topology_status(&existing, V::KIND, generation, report, &Time(shell.now())) else {
        return Outcome::Settled;
    };
    for failure in &report.failures {
        tracing::warn!(topology = object.name_any(), backend = %failure.backend, error = failure.error, "backend topology");
    }
    let result = shell.write_status::<V>(object, &status).await;
    if result.is_ok() {
        let conditions = (existing.conditions.as_slice(), status.conditions.as_slice());
        shell.tell(events::turns(object, conditions, &[(READY, "True")], shell.now()));
    }
    write::outcome(result.err().as_slice())
}

/// The topology that a set holds in place, if it is on its way out: it may be free to go now.
pub(crate) fn leaving_with(set: &PodCliqueSet, view: &View) -> Option<Key> {
    let reference = match resolve::default_reference(&view.tas.source) {
        // Every set holds the selected TopologyDomain, whether it has constraints or not.
        selected if selected.kind == TopologyKind::TopologyDomain => selected,
        _ => resolve::reference(set, &view.tas.source)?,
    };
    let key = ObjectKey::new("", reference.name);
    let deleted_at = match reference.kind {
        TopologyKind::TopologyDomain => view.topology_domains.get(&key)?.metadata.deletion_timestamp.clone(),
        _ => view.cluster_topologies.get(&key)?.metadata.deletion_timestamp.clone(),
    };
    deleted_at.map(|_| Key::Topology(reference.kind, reference.name.to_owned()))
}

/// All topologies that are served here.
pub(crate) fn all(view: &View) -> Vec<Key> {
    let cluster_topologies = view.cluster_topologies.all();
    let cluster_topologies = cluster_topologies
        .iter()
        .map(|object| (TopologyKind::ClusterTopology, object.name_any()));
    let domains = view.topology_domains.all();
    let domains = domains
        .iter()
        .map(|object| (TopologyKind::TopologyDomain, object.name_any()));
    cluster_topologies
        .chain(domains)
        .map(|(kind, name)| Key::Topology(kind, name))
        .collect()
}
