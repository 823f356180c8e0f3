//! Counts the writes that are sent to the API server: of which resource, with which verb, and how each was answered.
//!
//! Reads are not counted, nor are the renewals of the leader's Lease, which go another way. No name of an object is kept.

use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::Inspect;
use http::{Method, Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::{Layer, Service};

use crate::busy::is_question;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Write {
    resource: String,
    verb: &'static str,
    code: String,
}

/// The counts of one process. Clones count together; as a layer of a client it counts what that sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiWrites {
    counts: Family<Write, Counter>,
}

impl ApiWrites {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "grove_api_writes",
            "Writes to the API server by resource, verb and status code; code none where no answer came",
            self.counts.clone(),
        );
    }

    /// Counts one; `code` is that of the answer, if there was one.
    pub(crate) fn count(&self, resource: &str, verb: &'static str, code: Option<u16>) {
        let write = Write {
            resource: resource.to_owned(),
            verb,
            code: code.map_or_else(|| "none".to_owned(), |code| code.to_string()),
        };
        self.counts.get_or_create(&write).inc();
    }
}

/// The verb and resource of a request that is meant to change something.
fn write(method: &Method, path: &str) -> Option<(&'static str, String)> {
    if is_question(method, path) {
        return None;
    }
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let of_group = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return None,
    };
    let object = match of_group {
        ["namespaces", _, inside @ ..] if !inside.is_empty() => inside,
        whole => whole,
    };
    let resource = match object {
        [resource, _, part, ..] => format!("{resource}/{part}"),
        [resource, ..] => (*resource).to_owned(),
        [] => return None,
    };
    Some((verb, resource))
}

impl<S> Layer<S> for ApiWrites {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            writes: self.clone(),
        }
    }
}

/// A service whose writes are counted when they are answered.
#[derive(Clone, Debug)]
pub(crate) struct Counted<S> {
    inner: S,
    writes: ApiWrites,
}

type Note<T, E> = Box<dyn FnOnce(&Result<T, E>) + Send>;

impl<S, B, R> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Inspect<S::Future, Note<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let note: Note<S::Response, S::Error> = match write(request.method(), request.uri().path()) {
            Some((verb, resource)) => {
                let writes = self.writes.clone();
                Box::new(move |answer| {
                    let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
                    writes.count(&resource, verb, code);
                })
            }
            None => Box::new(|_| {}),
        };
        self.inner.call(request).inspect(note)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[test]
    fn a_write_is_known_by_its_path() {
        let known = |method: Method, path: &str| write(&method, path).map(|(verb, what)| format!("{verb} {what}"));
        for (method, path, expected) in [
            (Method::POST, "/api/v1/namespaces/a/pods", Some("create pods")),
            (
                Method::POST,
                "/api/v1/namespaces/a/pods/p/binding",
                Some("create pods/binding"),
            ),
            (
                Method::PATCH,
                "/apis/grove.io/v1alpha1/namespaces/a/podcliques/c",
                Some("patch podcliques"),
            ),
            (
                Method::PATCH,
                "/apis/grove.io/v1alpha1/clustertopologies/t/status",
                Some("patch clustertopologies/status"),
            ),
            (
                Method::DELETE,
                "/apis/grove.io/v1alpha1/clustertopologies/t",
                Some("delete clustertopologies"),
            ),
            (Method::PUT, "/api/v1/namespaces/a", Some("update namespaces")),
            (Method::GET, "/api/v1/namespaces/a/pods", None),
            (Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", None),
            (Method::POST, "/healthz", None),
            (Method::POST, "/apis/grove.io", None),
        ] {
            assert_eq!(known(method, path).as_deref(), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn an_answer_is_counted_by_its_code_and_silence_too() {
        let (writes, mut registry) = (ApiWrites::default(), Registry::default());
        writes.register(&mut registry);
        let answering = |code: Option<u16>| {
            service_fn(move |_: Request<()>| async move {
                let code = code.ok_or("nobody there")?;
                Ok::<_, &str>(Response::builder().status(code).body(()).unwrap())
            })
        };
        for code in [Some(201), Some(201), Some(409), None] {
            let request = Request::post("/api/v1/namespaces/a/pods").body(()).unwrap();
            let _ = writes.layer(answering(code)).oneshot(request).await;
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "grove_api_writes_total{resource=\"pods\",verb=\"create\",code=\"201\"} 2",
            "grove_api_writes_total{resource=\"pods\",verb=\"create\",code=\"409\"} 1",
            "grove_api_writes_total{resource=\"pods\",verb=\"create\",code=\"none\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
