//! What the leader does before its controllers run: the default topology is written or removed, and what the configuration
//! relies on is looked for.
//!
//! Pure plan first ([`default_topology_step`]), then the shell that carries it out. Errors that may pass are tried again
//! for a minute; then the process ends, because sets would be judged by levels that nobody configured.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use grove_api::config::{OnBackendTopologyFailure, OnTopologyMissingAtStart, TopologyAwareScheduling, TopologySource};
use grove_api::labels::{MANAGED_BY, MANAGED_BY_OPERATOR, finalizer};
use grove_api::topology::{ClusterTopologySpec, DEFAULT_TOPOLOGY_NAME, TopologyLevel};
use grove_api::{ClusterTopology, TopologyDomain};
use grove_runtime::Backoff;
use grove_topology::Topology;
use grove_topology::backend::{Backend, backends};
use grove_workload::meta::uid;
use jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::served::{ForeignKind, OptionalApi, served_version};
use crate::shell::Settings;
use crate::topology::backend::{NOT_SERVED, Writer};
use crate::write::{creation, patching};

/// How long errors that may pass are borne.
const PATIENCE_SECS: i64 = 60;
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(200),
    most: Duration::from_secs(5),
};

/// Why the operator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "cannot write ClusterTopology '{DEFAULT_TOPOLOGY_NAME}': {0}; check that the CRDs are installed and the roles of this user"
    )]
    DefaultTopology(String),
    #[error("TopologyDomain '{0}' not found; create it or remove --topology-domain-name")]
    TopologyDomainMissing(String),
    #[error("cannot read TopologyDomain '{name}': {reason}; check the API server and the roles of this user")]
    TopologyDomain { name: String, reason: String },
    #[error(
        "Failed to create {backend} Topology CR: {reason}; install {backend}, or set onBackendTopologyFailure: Retry"
    )]
    BackendTopology { backend: Backend, reason: String },
}

/// What is to be done about `grove-topology`.
#[derive(Clone, Debug, PartialEq)]
enum DefaultTopologyStep {
    Keep,
    Create(Box<ClusterTopology>),
    /// A merge patch, which holds for the revision that was seen.
    Update(Value),
    /// It is being deleted: let go of it, and look again when it is gone.
    Release(Value),
    Delete,
}

/// The step from what exists to what the configuration asks for: exactly its levels, or no `grove-topology` at all.
fn default_topology_step(tas: &TopologyAwareScheduling, existing: Option<&ClusterTopology>) -> DefaultTopologyStep {
    let levels = match &tas.source {
        TopologySource::ClusterTopology { levels } if tas.enabled => levels,
        _ => return existing.map_or(DefaultTopologyStep::Keep, |_| DefaultTopologyStep::Delete),
    };
    let Some(existing) = existing else {
        return DefaultTopologyStep::Create(Box::new(default_topology(levels)));
    };
    if existing.metadata.deletion_timestamp.is_some() {
        return DefaultTopologyStep::Release(without_finalizer(existing));
    }
    let is_labelled = existing
        .labels()
        .get(MANAGED_BY)
        .is_some_and(|by| by == MANAGED_BY_OPERATOR);
    if is_labelled && existing.spec.levels == *levels {
        return DefaultTopologyStep::Keep;
    }
    DefaultTopologyStep::Update(json!({
        "metadata": {
            "labels": {MANAGED_BY: MANAGED_BY_OPERATOR},
            "resourceVersion": existing.resource_version(),
        },
        "spec": {"levels": levels},
    }))
}

fn default_topology(levels: &[TopologyLevel]) -> ClusterTopology {
    let spec = ClusterTopologySpec {
        levels: levels.to_vec(),
    };
    let mut object = ClusterTopology::new(DEFAULT_TOPOLOGY_NAME, spec);
    object.metadata.labels = Some([(MANAGED_BY.to_owned(), MANAGED_BY_OPERATOR.to_owned())].into());
    object
}

/// The merge patch that lifts the operator's finalizer.
fn without_finalizer(object: &ClusterTopology) -> Value {
    let finalizers = object.finalizers().iter();
    let kept: Vec<&String> = finalizers.filter(|name| *name != finalizer::CLUSTER_TOPOLOGY).collect();
    json!({"metadata": {"finalizers": kept, "resourceVersion": object.resource_version()}})
}

/// The settings that are in force: where the configuration says so, a TopologyDomain that is missing turns topology-aware
/// scheduling off. Every replica asks before it serves its webhooks, so that they judge as its controllers act.
pub async fn settle(client: &Client, mut settings: Settings) -> Result<Settings, StartError> {
    if settings.topology.enabled && !topology_domain_exists(client, &settings).await? {
        settings.topology.enabled = false;
    }
    Ok(settings)
}

/// Does what comes before the controllers, with settings that are in force.
pub async fn start(client: &Client, settings: &Settings) -> Result<(), StartError> {
    let tas = &settings.topology;
    let topologies = Api::<ClusterTopology>::all(client.clone());
    let is_default_wanted = tas.enabled && matches!(tas.source, TopologySource::ClusterTopology { .. });
    if is_default_wanted {
        let patience = Patience::new(settings);
        let written = patience.until_done(|| write_default(&topologies, tas)).await;
        let written = written.map_err(StartError::DefaultTopology)?;
        if tas.on_backend_topology_failure == OnBackendTopologyFailure::Exit {
            write_backends(client, settings, &written).await?;
        }
    } else if let Err(error) = remove_default(&topologies, tas).await {
        tracing::warn!(%error, "cannot delete ClusterTopology '{DEFAULT_TOPOLOGY_NAME}'; delete it by hand");
    }
    Ok(())
}

/// One try at making `grove-topology` be what is configured.
async fn write_default(api: &Api<ClusterTopology>, tas: &TopologyAwareScheduling) -> Result<ClusterTopology, Trouble> {
    let existing = api.get_opt(DEFAULT_TOPOLOGY_NAME).await?;
    match (default_topology_step(tas, existing.as_ref()), existing) {
        (DefaultTopologyStep::Keep, Some(existing)) => Ok(existing),
        (DefaultTopologyStep::Create(object), _) => Ok(api.create(&creation(), &object).await?),
        (DefaultTopologyStep::Update(patch), _) => Ok(merge(api, patch).await?),
        (DefaultTopologyStep::Release(patch), _) => {
            merge(api, patch).await?;
            Err(Trouble::Passing("the old one is still being deleted".to_owned()))
        }
        (DefaultTopologyStep::Keep | DefaultTopologyStep::Delete, _) => {
            Err(Trouble::Lasting("it is not wanted".to_owned()))
        }
    }
}

/// Deletes `grove-topology`, and lifts the operator's own hold on it.
async fn remove_default(api: &Api<ClusterTopology>, tas: &TopologyAwareScheduling) -> Result<(), kube::Error> {
    let Some(existing) = api.get_opt(DEFAULT_TOPOLOGY_NAME).await? else {
        return Ok(());
    };
    if default_topology_step(tas, Some(&existing)) != DefaultTopologyStep::Delete {
        return Ok(());
    }
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: existing.uid(),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    let leaving = api.delete(DEFAULT_TOPOLOGY_NAME, &parameters).await?.left();
    tracing::info!("deleted ClusterTopology '{DEFAULT_TOPOLOGY_NAME}': the configuration asks for none");
    let is_held = |object: &ClusterTopology| {
        object
            .finalizers()
            .iter()
            .any(|name| name == finalizer::CLUSTER_TOPOLOGY)
    };
    match leaving.filter(is_held) {
        Some(held) => merge(api, without_finalizer(&held)).await.map(drop),
        None => Ok(()),
    }
}

async fn merge(api: &Api<ClusterTopology>, patch: Value) -> Result<ClusterTopology, kube::Error> {
    api.patch(DEFAULT_TOPOLOGY_NAME, &patching(), &Patch::Merge(patch))
        .await
}

/// Writes the resources of other schedulers for `grove-topology`, where the start depends on them.
async fn write_backends(client: &Client, settings: &Settings, object: &ClusterTopology) -> Result<(), StartError> {
    let topology = Topology::from(object);
    let patience = Patience::new(settings);
    for backend in backends(topology.kind(), &settings.topology, &settings.scheduler, false) {
        let write = || write_backend(client, backend, (&topology, uid(object)));
        let written = patience.until_done(write).await;
        written.map_err(|reason| StartError::BackendTopology { backend, reason })?;
    }
    Ok(())
}

async fn write_backend(client: &Client, backend: Backend, (topology, uid): (&Topology, &str)) -> Result<(), Trouble> {
    let Some(version) = served_version(client, OptionalApi::Foreign(ForeignKind::Topology(backend))).await? else {
        return Err(Trouble::Passing(NOT_SERVED.to_owned()));
    };
    let writer = Writer::new(client.clone(), backend, &version);
    let existing = writer.api.get_opt(topology.name()).await?;
    match writer.bring_in_order(topology, uid, existing.as_ref()).await {
        Ok(_) => Ok(()),
        Err(failed) if failed.is_worth_retrying => Err(Trouble::Passing(failed.failure.error)),
        Err(failed) => Err(Trouble::Lasting(failed.failure.error)),
    }
}

/// Whether the selected TopologyDomain is there; an error where the start depends on it.
async fn topology_domain_exists(client: &Client, settings: &Settings) -> Result<bool, StartError> {
    let TopologySource::TopologyDomain {
        topology_domain_name: name,
        on_topology_missing_at_start,
        ..
    } = &settings.topology.source
    else {
        return Ok(true);
    };
    let api = Api::<TopologyDomain>::all(client.clone());
    let read = || async {
        match api.get(name).await {
            Ok(_) => Ok(true),
            // Where not even the kind is installed there is no such object either.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(Trouble::from(error)),
        }
    };
    let found = Patience::new(settings).until_done(read).await;
    let found = found.map_err(|reason| StartError::TopologyDomain {
        name: name.clone(),
        reason,
    })?;
    match (found, on_topology_missing_at_start) {
        (true, _) => Ok(true),
        (false, OnTopologyMissingAtStart::Fail) => Err(StartError::TopologyDomainMissing(name.clone())),
        (false, OnTopologyMissingAtStart::Disable) => {
            tracing::warn!("TopologyDomain '{name}' not found; running without topology-aware scheduling");
            Ok(false)
        }
    }
}

/// Why a try failed, and whether another one may not.
enum Trouble {
    Passing(String),
    Lasting(String),
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 422) => {
                Self::Lasting(status.message.clone())
            }
            kube::Error::Api(status) => Self::Passing(status.message.clone()),
            error => Self::Passing(error.to_string()),
        }
    }
}

/// Tries again for a minute of the operator's clock.
struct Patience<'a> {
    clock: &'a (dyn Fn() -> Timestamp + Send + Sync),
    begin: Timestamp,
}

impl<'a> Patience<'a> {
    fn new(settings: &'a Settings) -> Self {
        let clock = &*settings.clock;
        Self { clock, begin: clock() }
    }

    /// What came of the first try that succeeded, or why the last one did not.
    async fn until_done<T, W>(&self, attempt: impl Fn() -> W) -> Result<T, String>
    where
        W: Future<Output = Result<T, Trouble>>,
    {
        let mut failures = 0;
        loop {
            let reason = match attempt().await {
                Ok(done) => return Ok(done),
                Err(Trouble::Lasting(reason)) => return Err(reason),
                Err(Trouble::Passing(reason)) => reason,
            };
            let waited = (self.clock)().duration_since(self.begin).as_secs();
            if waited >= PATIENCE_SECS {
                return Err(given_up(reason));
            }
            failures += 1;
            let wait = RETRY.after(failures);
            tracing::warn!(reason, ?wait, "start is held up; trying again");
            tokio::time::sleep(wait).await;
        }
    }
}

fn given_up(reason: impl Display) -> String {
    format!("{reason} (tried for {PATIENCE_SECS} s)")
}

#[cfg(test)]
mod tests;
