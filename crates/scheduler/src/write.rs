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
use crate::statement::Statement;

/// A change to make.
#[derive(Clone, Debug)]
pub enum Action {
    /// Bind a pod to a node.
    Bind { pod: Arc<Pod>, node: String },
    /// Lift a pod's gate, and lead it to a node.
    Pin {
        pod: Arc<Pod>,
        node: String,
        bounds: Bounds,
    },
    /// Say where a gang stands.
    Say {
        gang: Arc<PodGang>,
        statement: Box<Statement>,
    },
    /// Say on a pod why it has no node.
    Mark { pod: Arc<Pod>, message: String },
    /// Delete a pod, so that it returns unbound: a bound pod cannot be unbound.
    Release { pod: Arc<Pod> },
    /// Ask a pod to make room for one of higher priority.
    Evict { pod: Arc<Pod> },
}

/// What became of a change.
#[derive(Clone, Debug)]
pub enum Done {
    /// The pod is on the node.
    Bound { pod: Arc<Pod> },
    /// The API server will not have it there.
    Refused { pod: Arc<Pod>, why: String },
    /// The pod is as it is found here: somebody else bound it, or an earlier request of ours.
    Found { pod: Box<Pod> },
    Said {
        gang: ObjectKey,
        uid: String,
        is_written: bool,
    },
    /// The pod was to be released, and is not known to be.
    Kept { pod: Arc<Pod> },
    /// Nothing that anybody waits for; failures are seen by what does not change.
    Other,
}

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
            Action::Evict { pod } => self.evict(&pod).await,
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(
            self.client.clone(),
            pod.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }

    async fn bind(&self, pod: Arc<Pod>, node: &str) -> Done {
        let api = self.pods(&pod);
        let name = pod.name_any();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let mut failures = 0;
        loop {
            let sent = api
                .create_subresource::<_, Value>("binding", &name, &PostParams::default(), &binding)
                .await;
            let error = match sent {
                Ok(_) => return Done::Bound { pod },
                // Bound already, by whomever, or another pod of the name: the API server knows.
                Err(kube::Error::Api(status)) if status.code == 409 => match api.get_opt(&name).await {
                    Ok(Some(found)) if found.metadata.uid == pod.metadata.uid && has_node(&found) => {
                        return Done::Found { pod: Box::new(found) };
                    }
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
            tracing::warn!(pod = %ObjectKey::of(&pod.metadata), node, %error, "a bind got no clear answer; sent again");
            tokio::time::sleep(Backoff::OBJECT.after(failures)).await;
        }
    }

    /// A patch whose answer is lost is sent again: what it tests tells whether it was carried out.
    async fn pin(&self, pod: Arc<Pod>, node: &str, bounds: &Bounds) -> Done {
        let api = self.pods(&pod);
        let name = pod.name_any();
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
            let error = match api.patch(&name, &parameters, &patch).await {
                Ok(_) => return Done::Bound { pod },
                Err(kube::Error::Api(status)) if is_final(status.code) => match api.get_opt(&name).await {
                    Ok(Some(found))
                        if found.metadata.uid == pod.metadata.uid && Hand::Pins.destination(&found) == Some(node) =>
                    {
                        return Done::Bound { pod };
                    }
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

    async fn mark(&self, pod: &Pod, message: &str, now: Timestamp) -> Done {
        let patch = json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                "lastTransitionTime": now,
            }]},
        });
        let parameters = PatchParams {
            field_manager: Some(self.manager.clone()),
            ..PatchParams::default()
        };
        let name = pod.name_any();
        let written = self
            .pods(pod)
            .patch_status(&name, &parameters, &Patch::Strategic(patch))
            .await;
        if let Err(error) = written {
            tracing::debug!(pod = name, %error, "a pod could not be marked");
        }
        Done::Other
    }

    async fn release(&self, pod: Arc<Pod>) -> Done {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let name = pod.name_any();
        match self.pods(&pod).delete(&name, &parameters).await {
            Ok(_) => Done::Other,
            // Gone already, or another pod of the name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Done::Other,
            Err(error) => {
                tracing::warn!(pod = name, %error, "a pod of a gang that is not whole could not be released");
                Done::Kept { pod }
            }
        }
    }

    async fn evict(&self, pod: &Pod) -> Done {
        let name = pod.name_any();
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            delete_options: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions {
                preconditions: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions {
                    uid: pod.metadata.uid.clone(),
                    resource_version: None,
                }),
                ..Default::default()
            }),
        };
        let sent = self
            .pods(pod)
            .create_subresource::<_, Value>("eviction", &name, &PostParams::default(), &eviction)
            .await;
        if let Err(error) = sent {
            tracing::warn!(pod = name, %error, "a pod could not be evicted");
        }
        Done::Other
    }
}

fn has_node(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_some_and(|node| !node.is_empty())
}

/// Whether asking again would be answered the same.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && code != 408 && code != 429
}
