//! The embedded cluster behind a router: over a socket to the binary, or in process on virtual time.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use grove_simcluster::server::BODY_BYTES_MAX;
use grove_simcluster::store::{Expect, Key, ResourceName};
use grove_simcluster::{Cluster, User};
use serde_json::{Value, json};

/// Clones share the cluster.
#[derive(Clone)]
pub(crate) struct ApiServer {
    cluster: Arc<Cluster>,
}

impl Default for ApiServer {
    /// A cluster with the namespaces that the tests use. Must be called inside a runtime.
    fn default() -> Self {
        let cluster = Cluster::builder().start();
        for namespace in ["grove-system", "leases"] {
            let mut object = json!({"metadata": {"name": namespace}, "spec": {}, "status": {"phase": "Active"}});
            let key = Key::new("", namespace);
            let made = cluster
                .store()
                .put(&ResourceName::new("", "namespaces"), &key, Expect::Absent, &mut object);
            made.unwrap();
        }
        Self {
            cluster: Arc::new(cluster),
        }
    }
}

fn leases() -> ResourceName {
    ResourceName::new("coordination.k8s.io", "leases")
}

impl ApiServer {
    /// Serves the whole API; whoever asks is the operator.
    pub(crate) fn router(&self) -> Router {
        let server = self.cluster.server().clone();
        Router::new().fallback(move |request: Request| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap();
                let user = User::service_account("grove-system", "grove-operator", "", "");
                let answer = server.serve(Request::from_parts(parts, body), &user).await;
                answer.map(Body::new)
            }
        })
    }

    /// The spec of a Lease, if it exists.
    pub(crate) fn lease(&self, namespace: &str, name: &str) -> Option<Value> {
        let stored = self.cluster.store().get(&leases(), &Key::new(namespace, name))?;
        Some(stored.value()["spec"].clone())
    }

    /// Writes or deletes a Lease past every rule, as an admin could.
    pub(crate) fn set_lease(&self, namespace: &str, name: &str, spec: Option<Value>) {
        let (store, key) = (self.cluster.store(), Key::new(namespace, name));
        let stored = store.get(&leases(), &key);
        let expect = stored
            .as_ref()
            .map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
        match (spec, stored) {
            (Some(spec), _) => {
                let mut lease = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
                store.put(&leases(), &key, expect, &mut lease).unwrap();
            }
            (None, Some(entry)) => drop(store.delete(&leases(), &key, entry.revision).unwrap()),
            (None, None) => {}
        }
    }
}

/// An answer that the embedded cluster would not give.
pub(crate) fn refusal(code: StatusCode, reason: &str) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": format!("{reason}, says the test"),
    });
    (code, Json(status)).into_response()
}
