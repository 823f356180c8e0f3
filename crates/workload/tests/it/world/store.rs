//! What is written, stored as an API server does: identities, generations, and a status that survives.

use grove_api::{PodClique, PodCliqueScalingGroup, PodGang};
use grove_workload::diff::Change;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};

use super::World;

impl World {
    pub(super) fn apply<K>(&mut self, changes: Vec<Change<K>>, kind: impl Fn(&mut Self) -> &mut Vec<K>)
    where
        K: Resource + Clone + HasStatus,
    {
        for change in changes {
            self.writes += 1;
            self.uids += 1;
            let (identity, now) = (format!("uid-{}", self.uids), self.now);
            match change {
                Change::Create(mut object) => {
                    object.meta_mut().uid = Some(identity);
                    object.meta_mut().creation_timestamp = Some(Time(now));
                    object.meta_mut().generation = Some(1);
                    kind(self).push(object);
                }
                Change::Update(mut object) => {
                    let stored = kind(self)
                        .iter_mut()
                        .find(|stored| stored.name_any() == object.name_any())
                        .unwrap();
                    let meta = stored.meta().clone();
                    object.take_status(stored);
                    object.meta_mut().uid = meta.uid;
                    object.meta_mut().creation_timestamp = meta.creation_timestamp;
                    object.meta_mut().generation = meta.generation.map(|generation| generation + 1);
                    *stored = object;
                }
                Change::Delete { name, .. } => {
                    kind(self).retain(|object| object.name_any() != name);
                    self.collect_garbage();
                }
                Change::Conflict { name, holder } => panic!("{name} belongs to {holder}"),
            }
        }
    }
}

/// An object whose status survives a write of its spec.
pub(super) trait HasStatus {
    fn take_status(&mut self, stored: &mut Self);
}

macro_rules! has_status {
    ($($kind:ty),*) => {$(
        impl HasStatus for $kind {
            fn take_status(&mut self, stored: &mut Self) {
                self.status = stored.status.take();
            }
        }
    )*};
}
has_status!(PodClique, PodCliqueScalingGroup, PodGang);
