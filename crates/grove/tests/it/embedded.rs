//! As much of a Kubernetes API server as the start of an operator meets: "who am I", and Leases with optimistic
//! locking. Served over a socket to the binary, or called in-process on virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

/// Clones share the objects.
#[derive(Clone, Default)]
pub(crate) struct ApiServer {
    objects: Arc<Mutex<Objects>>,
}

#[derive(Default)]
struct Objects {
    version: u64,
    /// By namespace and name.
    leases: BTreeMap<(String, String), Value>,
}

impl Objects {
    fn store(&mut self, key: (String, String), mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.leases.insert(key, lease.clone());
        lease
    }
}

impl ApiServer {
    pub(crate) fn router(&self) -> Router {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
        Router::new()
            .route("/apis/authentication.k8s.io/v1/selfsubjectreviews", post(review))
            .route(leases, post(create))
            .route(&format!("{leases}/{{name}}"), get(read).put(replace))
            .with_state(self.clone())
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap()
    }

    /// The spec of a Lease, if it exists.
    pub(crate) fn lease(&self, namespace: &str, name: &str) -> Option<Value> {
        self.objects()
            .leases
            .get(&(namespace.into(), name.into()))
            .map(|lease| lease["spec"].clone())
    }

    /// Writes or deletes a Lease past every rule, as an admin could.
    pub(crate) fn set_lease(&self, namespace: &str, name: &str, spec: Option<Value>) {
        let key = (namespace.to_owned(), name.to_owned());
        let metadata = json!({"namespace": namespace, "name": name});
        let lease =
            |spec| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
        match spec {
            Some(spec) => drop(self.objects().store(key, lease(spec))),
            None => drop(self.objects().leases.remove(&key)),
        }
    }
}

async fn review() -> Response {
    let status = json!({"userInfo": {"username": "system:serviceaccount:grove-system:grove-operator"}});
    let kind = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}, "status": status});
    (StatusCode::CREATED, Json(kind)).into_response()
}

async fn read(State(server): State<ApiServer>, Path(key): Path<(String, String)>) -> Response {
    match server.objects().leases.get(&key) {
        Some(lease) => Json(lease).into_response(),
        None => refusal(StatusCode::NOT_FOUND, "NotFound"),
    }
}

async fn create(State(server): State<ApiServer>, Path(namespace): Path<String>, Json(lease): Json<Value>) -> Response {
    let mut objects = server.objects();
    let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key = (namespace, name);
    if objects.leases.contains_key(&key) {
        return refusal(StatusCode::CONFLICT, "AlreadyExists");
    }
    (StatusCode::CREATED, Json(objects.store(key, lease))).into_response()
}

async fn replace(
    State(server): State<ApiServer>,
    Path(key): Path<(String, String)>,
    Json(lease): Json<Value>,
) -> Response {
    let mut objects = server.objects();
    let Some(stored) = objects.leases.get(&key) else {
        return refusal(StatusCode::NOT_FOUND, "NotFound");
    };
    if stored["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
        return refusal(StatusCode::CONFLICT, "Conflict");
    }
    Json(objects.store(key, lease)).into_response()
}

pub(crate) fn refusal(code: StatusCode, reason: &str) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": format!("{reason}, says the test"),
    });
    (code, Json(status)).into_response()
}
