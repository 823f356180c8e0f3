//! The topology resources of other schedulers: made, replaced and let go of. What they look like and which step is due
//! is decided in [`grove_topology::backend`].

use grove_runtime::{ObjectKey, Outcome, Stamp};
use grove_topology::Topology;
use grove_topology::backend::{Backend, Step, backends, desired, release, step};
use grove_topology::conditions::{BackendFailure, BackendReport, FailedStep};
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use kube::core::DynamicObject;
use kube::{Client, ResourceExt};

use crate::served::{ForeignKind, OptionalApi};
use crate::shell::Shell;
use crate::write::{creation, patching};

/// What a failed step says where a backend's API is not there. It is looked for again when its definition appears.
pub(crate) const NOT_SERVED: &str = "API not available";

const ALL: [Backend; 2] = [Backend::Kai, Backend::Kueue];

fn api_of(backend: Backend) -> OptionalApi {
    OptionalApi::Foreign(ForeignKind::Topology(backend))
}

/// Brings the resources of a topology in order at every backend.
pub(crate) async fn bring_in_order(shell: &Shell, topology: &Topology, uid: &str) -> (BackendReport, Outcome) {
    let settings = &shell.settings;
    let kueue_is_served = shell.served.version(api_of(Backend::Kueue)).is_some();
    let wanted = backends(
        topology.kind(),
        &settings.topology,
        &settings.scheduler,
        kueue_is_served,
    );
    let mut report = BackendReport {
        backends: wanted.clone(),
        failures: vec![],
    };
    let mut outcome = Outcome::Settled;
    for backend in ALL {
        let result = match wanted.contains(&backend) {
            true => keep(shell, backend, topology, uid).await,
            false => let_go(shell, backend, topology).await,
        };
        if let Err(failed) = result {
            if failed.is_worth_retrying {
                outcome = outcome.and(Outcome::Failed(failed.failure.error.clone()));
            }
            report.failures.push(failed.failure);
        }
    }
    (report, outcome)
}

/// A step that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) failure: BackendFailure,
    /// Whether it may go well the next time although nothing was seen to change.
    pub(crate) is_worth_retrying: bool,
    /// There is one of that name, though none was seen.
    is_already_there: bool,
}

impl Failed {
    fn new(backend: Backend, step: FailedStep, error: &kube::Error) -> Self {
        let told = match error {
            kube::Error::Api(status) if status.code == 404 => NOT_SERVED.to_owned(),
            kube::Error::Api(status) => status.message.clone(),
            error => error.to_string(),
        };
        Self {
            failure: BackendFailure {
                backend,
                step,
                error: told,
            },
            is_worth_retrying: true,
            is_already_there: matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists"),
        }
    }

    /// Nothing can be done until something is seen to change.
    fn until_a_change(backend: Backend, step: FailedStep, error: impl Into<String>) -> Self {
        Self {
            failure: BackendFailure {
                backend,
                step,
                error: error.into(),
            },
            is_worth_retrying: false,
            is_already_there: false,
        }
    }
}

async fn keep(shell: &Shell, backend: Backend, topology: &Topology, uid: &str) -> Result<(), Failed> {
    let Some(version) = shell.served.version(api_of(backend)) else {
        return Err(Failed::until_a_change(backend, FailedStep::Create, NOT_SERVED));
    };
    let store = shell.view.foreign(ForeignKind::Topology(backend));
    let key = ObjectKey::new("", topology.name());
    let writer = Writer::new(shell.client.clone(), backend, &version);
    let seen = store.get(&key);
    let made = shell
        .in_turn(writer.bring_in_order(topology, uid, seen.as_deref()))
        .await?;
    if let Some(made) = made {
        // The watch tells the others; here it must be known that it is there.
        let _ = store.put(key, Stamp::of(&made.metadata), made);
    }
    Ok(())
}

/// Lets go of a resource that is not wanted (any more) without deleting it.
async fn let_go(shell: &Shell, backend: Backend, topology: &Topology) -> Result<(), Failed> {
    let existing = shell
        .view
        .foreign(ForeignKind::Topology(backend))
        .get(&ObjectKey::new("", topology.name()));
    let version = shell.served.version(api_of(backend));
    let (Some(existing), Some(version)) = (existing, version) else {
        return Ok(());
    };
    let Some(patch) = release(topology, &existing) else {
        return Ok(());
    };
    let api = Writer::new(shell.client.clone(), backend, &version).api;
    let (parameters, patch) = (patching(), Patch::Merge(patch));
    let patched = api.patch(topology.name(), &parameters, &patch);
    match shell.in_turn(patched).await {
        Ok(_) => Ok(()),
        // Gone already is let go of too.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Failed::new(backend, FailedStep::Change, &error)),
    }
}

/// Writes the topology resources of one backend.
pub(crate) struct Writer {
    backend: Backend,
    version: String,
    pub(crate) api: Api<DynamicObject>,
}

impl Writer {
    pub(crate) fn new(client: Client, backend: Backend, version: &str) -> Self {
        Self {
            backend,
            version: version.to_owned(),
            api: Api::all_with(client, &ForeignKind::Topology(backend).resource(version)),
        }
    }

    /// Takes the one step that is due; returns what was made. `uid` is that of the topology, `seen` its resource as far as
    /// is known: where there is one that was not seen, it is read and judged too.
    pub(crate) async fn bring_in_order(
        &self,
        topology: &Topology,
        uid: &str,
        seen: Option<&DynamicObject>,
    ) -> Result<Option<DynamicObject>, Failed> {
        let desired = desired(self.backend, &self.version, topology, uid);
        match self.take_step(&desired, seen).await {
            Err(failed) if failed.is_already_there => {
                let found = self.api.get_opt(topology.name()).await;
                let found = found.map_err(|error| Failed::new(self.backend, FailedStep::Create, &error))?;
                self.take_step(&desired, found.as_ref()).await
            }
            taken => taken,
        }
    }

    async fn take_step(
        &self,
        desired: &DynamicObject,
        existing: Option<&DynamicObject>,
    ) -> Result<Option<DynamicObject>, Failed> {
        match (step(self.backend, desired, existing), existing) {
            (Step::Keep, _) => Ok(None),
            (Step::Leave(why), _) => Err(Failed::until_a_change(self.backend, FailedStep::Create, why)),
            (Step::Wait, _) => Err(Failed::until_a_change(
                self.backend,
                FailedStep::Change,
                "the old one is still being deleted",
            )),
            (Step::Recreate, Some(existing)) => {
                self.delete(existing).await?;
                self.create(desired, FailedStep::Change).await.map(Some)
            }
            (Step::Create | Step::Recreate, _) => self.create(desired, FailedStep::Create).await.map(Some),
        }
    }

    async fn create(&self, desired: &DynamicObject, step: FailedStep) -> Result<DynamicObject, Failed> {
        let made = self.api.create(&creation(), desired).await;
        made.map_err(|error| Failed::new(self.backend, step, &error))
    }

    async fn delete(&self, existing: &DynamicObject) -> Result<(), Failed> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: existing.uid(),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match self.api.delete(&existing.name_any(), &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            // A conflict is no proof that it is gone: the next look sees what has the name now.
            Err(error) => Err(Failed::new(self.backend, FailedStep::Change, &error)),
        }
    }
}
