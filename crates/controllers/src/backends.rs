//! Who places gangs, as far as the operator must do something for it: one trait, one type for each profile.
//!
//! Our own scheduler and the placement engine read PodGangs and need nothing more. What topologies are told to others is
//! in [`crate::topology::backend`].

use grove_api::config::ProfileName;
use grove_api::{PodCliqueSet, PodGang};
use grove_runtime::{ObjectKey, Stamp};
use grove_topology::{Topology, kai};
use grove_workload::names::is_owned_by;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch};
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};

use crate::served::{ForeignKind, OptionalApi};
use crate::shell::Shell;
use crate::write::{WriteError, creation, patching};

/// An object of another scheduler, or why there can be none.
type GangResource = Result<Option<DynamicObject>, String>;

/// What a scheduler wants of the operator besides PodGangs.
pub(crate) trait Backend: Send + Sync {
    /// Marks a gang for the scheduler.
    fn mark_gang(&self, _gang: &mut PodGang) {}

    /// Whether the scheduler writes `Scheduled` of a PodGang; else it is read from the pods.
    fn says_scheduled(&self) -> bool {
        true
    }

    /// Marks a pod of a clique in a gang.
    fn mark_pod(&self, _pod: &mut Pod, _gang: &str, _clique: &str) {}

    /// The scheduler's own object for a stored gang, if it has one.
    fn gang_resource(&self, _set: &PodCliqueSet, _gang: &PodGang, _topology: Option<&Topology>) -> GangResource {
        Ok(None)
    }
}

/// Our scheduler, which reads PodGangs.
struct Grove;
/// The placement engine in the operator, which reads PodGangs.
struct Default;
/// Places nothing.
struct Kueue;
/// KAI, which wants a PodGroup for each PodGang.
struct Kai;

impl Backend for Grove {}
impl Backend for Default {}
impl Backend for Kueue {}

impl Backend for Kai {
    fn says_scheduled(&self) -> bool {
        false
    }

    fn mark_gang(&self, gang: &mut PodGang) {
        kai::mark_gang(gang);
    }

    fn mark_pod(&self, pod: &mut Pod, gang: &str, clique: &str) {
        kai::mark_pod(pod, gang, clique);
    }

    fn gang_resource(&self, set: &PodCliqueSet, gang: &PodGang, topology: Option<&Topology>) -> GangResource {
        kai::pod_group(set, gang, topology).map(Some)
    }
}

pub(crate) fn of(profile: ProfileName) -> &'static dyn Backend {
    match profile {
        ProfileName::GroveScheduler => &Grove,
        ProfileName::DefaultScheduler => &Default,
        ProfileName::KaiScheduler => &Kai,
        ProfileName::Kueue => &Kueue,
    }
}

/// Makes the object of another scheduler be what is wanted; its other fields stay as they are.
pub(crate) async fn keep(shell: &Shell, resource: GangResource) -> Result<(), WriteError> {
    let Some(desired) = resource.map_err(WriteError::Refused)? else {
        return Ok(());
    };
    let kind = ForeignKind::KaiPodGroup;
    let Some(version) = shell.served.version(OptionalApi::Foreign(kind)) else {
        // Looked at again when it is there.
        let definition = OptionalApi::Foreign(kind).definition();
        return Err(WriteError::Refused(format!("{definition} is not served; install KAI")));
    };
    let key = ObjectKey::of(desired.meta());
    let store = shell.view.foreign(kind);
    let api = Api::<DynamicObject>::namespaced_with(shell.client.clone(), &key.namespace, &kind.resource(&version));
    let answer = match store.get(&key) {
        None => shell.in_turn(api.create(&creation(), &desired)).await,
        Some(stored) if !is_ours(&desired, &stored) => {
            return Err(WriteError::Taken {
                kind: kai::POD_GROUP_KIND.to_owned(),
                key,
                holder: "somebody else".to_owned(),
            });
        }
        Some(stored) => match kai::pod_group_patch(&desired, &stored) {
            None => return Ok(()),
            Some(patch) => {
                shell
                    .in_turn(api.patch(&key.name, &patching(), &Patch::Merge(patch)))
                    .await
            }
        },
    };
    let written = answer.map_err(|error| WriteError::new(&key, error))?;
    let _ = store.put(key, Stamp::of(&written.metadata), written);
    Ok(())
}

/// Whether the PodGang that owns `desired` owns `stored` too.
fn is_ours(desired: &DynamicObject, stored: &DynamicObject) -> bool {
    let owners = desired.owner_references().iter();
    owners
        .into_iter()
        .any(|owner| is_owned_by(&stored.metadata, &owner.uid))
}
