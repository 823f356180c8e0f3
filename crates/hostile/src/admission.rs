//! Reviews: what the webhooks answer to a body that anybody who reaches their port may have sent.

use std::convert::Infallible;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::FutureExt;
use grove_admission::review::Request;
use grove_admission::{Lookup, Policy, Webhook, Webhooks, conversion as wire};
use grove_api::config::{self, Overrides};
use http::{Response, StatusCode};
use json_patch::Patch;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// Everything on, so that every rule is reached.
const CONFIGURATION: &[u8] = b"
dynamo: {enabled: true}
authorizer: {enabled: true}
network: {autoMNNVLEnabled: true}
topologyAwareScheduling:
  enabled: true
  levels:
  - {domain: zone, key: topology.kubernetes.io/zone}
  - {domain: rack, key: example.com/rack}
  - {domain: host, key: kubernetes.io/hostname}
";

/// The answer of every webhook to a review.
pub(crate) fn review(input: &[u8]) {
    let request = match Request::parse(input) {
        Ok(request) => request,
        Err(error) => return assert!(error.starts_with("not an AdmissionReview: "), "{error}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime without drivers needs nothing");
    runtime.block_on(async {
        let webhooks = Webhooks::new(policy().clone(), Lookup::new(topology_server()));
        for webhook in Webhook::ALL {
            let answer = webhooks.answer(webhook, &request).await;
            let review = answer.to_review(&request);
            let response = &review["response"];
            assert_eq!(response["uid"], request.uid);
            if answer.is_admitted() {
                can_be_applied(&request.object, response);
            } else {
                says_what_is_wrong(&response["status"]);
            }
        }
    });
}

fn policy() -> &'static Policy {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    POLICY.get_or_init(|| {
        let loaded = config::parse(CONFIGURATION, &Overrides::default()).expect("the configuration is good");
        Policy::new(&loaded.configuration, "operator")
    })
}

/// An API server that has the default topology, and nothing else.
fn topology_server() -> Client {
    let service = tower::service_fn(|request: http::Request<Body>| {
        let is_topology = request.uri().path().ends_with("/clustertopologies/grove-topology");
        let (status, body) = if is_topology {
            (StatusCode::OK, topology())
        } else {
            let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                "message": "not found", "code": 404});
            (StatusCode::NOT_FOUND, missing)
        };
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = status;
        futures::future::ready(Ok::<_, Infallible>(response)).boxed()
    });
    Client::new(service, "default")
}

fn topology() -> Value {
    json!({"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology",
    "metadata": {"name": "grove-topology", "uid": "u", "resourceVersion": "1"},
    "spec": {"levels": [
        {"domain": "zone", "key": "topology.kubernetes.io/zone"},
        {"domain": "rack", "key": "example.com/rack"},
        {"domain": "host", "key": "kubernetes.io/hostname"},
    ]}})
}

/// A patch names only places that the object has, in the order in which they are changed.
fn can_be_applied(object: &Value, response: &Value) {
    let Some(patch) = response["patch"].as_str() else {
        return;
    };
    let patch = BASE64_STANDARD.decode(patch).expect("a patch is sent in base64");
    let patch: Patch = serde_json::from_slice(&patch).expect("a patch is a list of operations");
    let mut patched = object.clone();
    let applied = json_patch::patch(&mut patched, &patch);
    assert!(applied.is_ok(), "{applied:?}: {patch:?} on {object}");
}

fn says_what_is_wrong(status: &Value) {
    let message = status["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "a refusal without a word: {status}");
    let causes = status["details"]["causes"].as_array();
    for cause in causes.into_iter().flatten() {
        let message = cause["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty(), "a cause without a word: {status}");
    }
}

/// The answer to a ConversionReview; what was converted goes there and back without loss.
pub(crate) fn conversion(input: &[u8]) {
    let review = match wire::answer(input) {
        Ok(review) => review,
        Err(error) => return assert!(error.starts_with("not a ConversionReview: "), "{error}"),
    };
    let response = &review["response"];
    let objects = response["convertedObjects"].as_array().expect("always a list");
    if response["result"]["status"] == "Failure" {
        assert!(objects.is_empty(), "all of them, or none: {response}");
        return says_what_is_wrong(&response["result"]);
    }
    for object in objects {
        let version = object["apiVersion"].as_str().expect("a converted object has a version");
        let other = match version {
            "nvidia.com/v1beta1" => "nvidia.com/v1alpha1",
            _ => "nvidia.com/v1beta1",
        };
        // What the other version cannot hold is refused, never dropped.
        let Ok(there) = grove_dynamo::convert::convert(object, other) else {
            continue;
        };
        let back = grove_dynamo::convert::convert(&there, version);
        assert_eq!(back.as_ref().ok(), Some(object), "by way of {there}");
    }
}
