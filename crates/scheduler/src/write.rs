//! The requests that change something, each with what must hold for it to be right.
//!
//! A bind whose answer is lost may have been carried out, so it is sent again, the same pod to the same node, until the
//! API server gives a clear answer: the pod's place is nobody else's before that. What became of a request goes back to
//! whoever decides; nothing is decided here.

use std::sync::Arc;

use grove_api::PodGang;
use grove_runtime::{Backoff, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::hand::{Bounds, Hand, pin_patch};
use crate::pod::KeptPod;
use crate::queue::Unit;
use crate::statement::Statement;

/// A change to make.
#[derive(Clone, Debug)]
pub enum Action {
    /// Bind a pod to a node.
    Bind { pod: Arc<KeptPod>, node: String },
    /// Lift a pod's gate, and lead it to a node.
    Pin {
        pod: Arc<KeptPod>,
        node: String,
        bounds: Bounds,
    },
    /// Say where a gang stands.
    Say {
        gang: Arc<PodGang>,
        statement: Box<Statement>,
    },
    /// Say on a pod why it has no node.
    Mark { pod: Arc<KeptPod>, message: String },
    /// Delete a pod, so that it returns unbound: a bound pod cannot be unbound.
    Release { pod: Arc<KeptPod> },
    /// Ask a pod to make room for one of higher priority.
    Evict { pod: Arc<KeptPod>, room_for: Unit },
}

/// What became of a change.
#[derive(Clone, Debug)]
pub enum Done {
    /// The pod is on the node.
    Bound { pod: Arc<KeptPod> },
    /// The API server will not have it there.
    Refused { pod: Arc<KeptPod>, why: String },
    /// The pod is as it is found here: somebody else bound it, or an earlier request of ours.
    Found { pod: Box<KeptPod> },
    Said {
        gang: ObjectKey,
        uid: String,
        is_written: bool,
    },
    /// The pod was to be released, and is not known to be.
    Kept { pod: Arc<KeptPod> },
    /// The pod was to be evicted, and is not known to be.
    Stays { pod: Arc<KeptPod>, room_for: Unit },
    /// Nothing that anybody waits for; failures are seen by what does not change.
    Other,
}

/// How often a pod is marked that changes meanwhile: then somebody else is at it.
const MARKS_MAX: usize = 4;

/// How requests are sent.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) client: Client,
    /// The name under which fields are written.
    pub(crate) manager: String,
}

impl Writer {
    pub(crate) async fn carry_out(self, action: Action, now: Timestamp) -> Done {
        match action {
            Action::Bind { pod, node } => self.bind(pod, &node).await,
            Action::Pin { pod, node, bounds } => self.pin(pod, &node, &bounds).await,
            Action::Say { gang, statement } => self.say(&gang, &statement, now).await,
            Action::Mark { pod, message } => self.mark(&pod, &message, now).await,
            Action::Release { pod } => self.release(pod).await,
            Action::Evict { pod, room_for } => self.evict(pod, room_for).await,
        }
    }

    fn pods(&self, pod: &KeptPod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.namespace())
    }

    async fn bind(&self, pod: Arc<KeptPod>, node: &str) -> Done {
        let api = self.pods(&pod);
        let name = pod.name();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": pod.namespace(), "uid": pod.uid()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let mut failures = 0;
        loop {
            let sent = api
                .create_subresource::<_, Value>("binding", name, &PostParams::default(), &binding)
                .await;
            let error = match sent {
                Ok(_) => return Done::Bound { pod },
                // Bound already, by whomever, or another pod of the name: the API server knows.
                Err(kube::Error::Api(status)) if status.code == 409 => match found(&api, &pod).await {
                    Ok(Some(found)) if found.has_place() => return Done::Found { pod: Box::new(found) },
                    Ok(_) => {
                        return Done::Refused {
                            pod,
                            why: status.message.clone(),
                        };
                    }
                    Err(error) => error,
                },
                Err(kube::Error::Api(status)) if is_final(status.code) => {
                    let why = status.message.clone();
                    return Done::Refused { pod, why };
                }
                Err(error) => error,
            };
            failures += 1;
            tracing::warn!(pod = name, node, %error, "a bind got no clear answer; sent again");
            tokio::time::sleep(Backoff::OBJECT.after(failures)).await;
        }
    }

    /// A patch whose answer is lost is sent again: what it tests tells whether it was carried out.
    async fn pin(&self, pod: Arc<KeptPod>, node: &str, bounds: &Bounds) -> Done {
        let api = self.pods(&pod);
        let name = pod.name();
        let patch = match serde_json::from_value(pin_patch(&pod, node, bounds)) {
            Ok(patch) => Patch::<()>::Json(patch),
            Err(error) => {
                let why = error.to_string();
                return Done::Refused { pod, why };
            }
        };
        let parameters = PatchParams {
            field_manager: Some(self.manager.clone()),
            ..PatchParams::default()
        };
        let mut failures = 0;
        loop {
            let error = match api.patch(name, &parameters, &patch).await {
                Ok(_) => return Done::Bound { pod },
                Err(kube::Error::Api(status)) if is_final(status.code) => match found(&api, &pod).await {
                    Ok(Some(found)) if Hand::Pins.destination(&found) == Some(node) => return Done::Bound { pod },
                    Ok(_) => {
                        let why = status.message.clone();
                        return Done::Refused { pod, why };
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            failures += 1;
            tracing::warn!(pod = name, node, %error, "a pod could not be pinned; tried again");
            tokio::time::sleep(Backoff::OBJECT.after(failures)).await;
        }
    }

    async fn say(&self, gang: &PodGang, statement: &Statement, now: Timestamp) -> Done {
        let key = ObjectKey::of(&gang.metadata);
        let api: Api<PodGang> = Api::namespaced(self.client.clone(), &key.namespace);
        let parameters = PatchParams::apply(&self.manager).force();
        let patch = Patch::Apply(statement.apply_patch(gang, now));
        let written = api.patch_status(&key.name, &parameters, &patch).await;
        if let Err(error) = &written {
            tracing::warn!(gang = %key, %error, "the status of a gang could not be written");
        }
        Done::Said {
            gang: key,
            uid: gang.uid().unwrap_or_default(),
            is_written: written.is_ok(),
        }
    }

    /// For a pod that has no node only: it may have been bound since this was decided, so the version is named that is
    /// known to have none.
    async fn mark(&self, pod: &KeptPod, message: &str, now: Timestamp) -> Done {
        let (api, name) = (self.pods(pod), pod.name());
        let parameters = PatchParams {
            field_manager: Some(self.manager.clone()),
            ..PatchParams::default()
        };
        let mut version = pod.version().to_owned();
        for _ in 0..MARKS_MAX {
            let patch = json!({
                "metadata": {"uid": pod.uid(), "resourceVersion": version},
                "status": {"conditions": [{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                    "lastTransitionTime": now,
                }]},
            });
            let error = match api.patch_status(name, &parameters, &Patch::Strategic(patch)).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 409 => match found(&api, pod).await {
                    Ok(Some(found)) if found.is_live() && !found.has_place() => {
                        found.version().clone_into(&mut version);
                        continue;
                    }
                    Ok(_) => break,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            tracing::debug!(pod = name, %error, "a pod could not be marked");
            break;
        }
        Done::Other
    }

    async fn release(&self, pod: Arc<KeptPod>) -> Done {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid().to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let name = pod.name();
        match self.pods(&pod).delete(name, &parameters).await {
            Ok(_) => Done::Other,
            // Gone already, or another pod of the name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Done::Other,
            Err(error) => {
                tracing::warn!(pod = name, %error, "a pod of a gang that is not whole could not be released");
                Done::Kept { pod }
            }
        }
    }

    async fn evict(&self, pod: Arc<KeptPod>, room_for: Unit) -> Done {
        let name = pod.name();
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(pod.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            delete_options: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions {
                preconditions: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions {
                    uid: Some(pod.uid().to_owned()),
                    resource_version: None,
                }),
                ..Default::default()
            }),
        };
        let sent = self
            .pods(&pod)
            .create_subresource::<_, Value>("eviction", name, &PostParams::default(), &eviction)
            .await;
        match sent {
            Ok(_) => Done::Other,
            // Gone already, or another pod of the name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Done::Other,
            Err(error) => {
                tracing::warn!(pod = name, %error, "a pod could not be evicted; it is asked again");
                Done::Stays { pod, room_for }
            }
        }
    }
}

/// The pod as the API server has it, if it is still that one.
async fn found(api: &Api<Pod>, pod: &KeptPod) -> kube::Result<Option<KeptPod>> {
    let found = api.get_opt(pod.name()).await?.map(KeptPod::from);
    Ok(found.filter(|found| found.uid() == pod.uid()))
}

/// Whether asking again would be answered the same.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && code != 408 && code != 429
}
