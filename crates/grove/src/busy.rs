//! What to do about an API server that is busy (429), not ready (503) or too slow (504).
//!
//! A question is asked again a few times: whoever asks only once, a webhook or a command, would fail for nothing. A write
//! is sent once: it may have been carried out, and only who decided it can tell what to do about that. Of either an answer
//! that names a time (`Retry-After`) is handed on when that time is over, so that nobody's next try comes sooner.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use grove_runtime::Backoff;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tower::{Layer, Service, ServiceExt as _};

/// How often a question is asked again.
const AGAIN_MAX: u32 = 4;
/// How long it waits before that, if the API server names no longer time.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    most: Duration::from_secs(1),
};
/// The longest that an answer is held back, whatever it says: after that whoever waits for it decides.
const HELD_BACK_MAX: Duration = Duration::from_secs(5);

/// Whether a request changes nothing, so that it may be sent as often as one likes. Reviews are questions asked by POST.
pub(crate) fn is_question(method: &Method, path: &str) -> bool {
    method == Method::GET || (method == Method::POST && path.ends_with("reviews"))
}

fn is_busy(status: StatusCode) -> bool {
    use StatusCode as Code;
    [
        Code::TOO_MANY_REQUESTS,
        Code::SERVICE_UNAVAILABLE,
        Code::GATEWAY_TIMEOUT,
    ]
    .contains(&status)
}

/// How long the API server asks to be left alone.
fn named_wait<R>(answer: &Response<R>) -> Duration {
    let named = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let secs = named.and_then(|secs| secs.parse().ok());
    secs.map_or(Duration::ZERO, Duration::from_secs).min(HELD_BACK_MAX)
}

/// The same request once more, if it is one that may be sent again.
fn again(request: &Request<Body>) -> Option<Request<Body>> {
    if !is_question(request.method(), request.uri().path()) {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// A layer of a client that is patient with a busy API server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BusyLayer;

impl<S> Layer<S> for BusyLayer {
    type Service = Busy<S>;

    fn layer(&self, inner: S) -> Busy<S> {
        Busy { inner }
    }
}

/// The service that it makes.
#[derive(Clone, Debug)]
pub(crate) struct Busy<S> {
    inner: S,
}

impl<S, R> Service<Request<Body>> for Busy<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    R: Send,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that said it is ready goes with the request.
        let unready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, unready);
        Box::pin(async move {
            let mut next = request;
            let mut failures = 0;
            loop {
                let copy = again(&next);
                let answer = inner.call(next).await?;
                if !is_busy(answer.status()) {
                    return Ok(answer);
                }
                failures += 1;
                let named = named_wait(&answer);
                let Some(copy) = copy.filter(|_| failures <= AGAIN_MAX) else {
                    tokio::time::sleep(named).await;
                    return Ok(answer);
                };
                tokio::time::sleep(named.max(BACKOFF.after(failures))).await;
                next = copy;
                inner.ready().await?;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use axum::body::to_bytes;
    use tokio::time::Instant;
    use tower::service_fn;

    use super::*;

    const PODS: &str = "/api/v1/namespaces/a/pods";

    /// Sends one request to a server that gives these answers, the last one for ever: the code that is handed on, how
    /// often it was sent, and how long that took.
    async fn sent(
        request: Request<Body>,
        codes: &'static [u16],
        retry_after: Option<&'static str>,
    ) -> (u16, usize, u64) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let server = service_fn(move |_: Request<Body>| {
            let nth = counted.fetch_add(1, Ordering::Relaxed);
            let mut answer = Response::builder().status(codes[nth.min(codes.len() - 1)]);
            if let Some(time) = retry_after {
                answer = answer.header(RETRY_AFTER, time);
            }
            async move { Ok::<_, Infallible>(answer.body(()).unwrap()) }
        });
        let begin = Instant::now();
        let answer = BusyLayer.layer(server).oneshot(request).await.unwrap();
        let millis = u64::try_from(begin.elapsed().as_millis()).unwrap();
        (answer.status().as_u16(), count.load(Ordering::Relaxed), millis)
    }

    fn request(method: Method, path: &str) -> Request<Body> {
        let body = Body::from(b"{}".to_vec());
        Request::builder().method(method).uri(path).body(body).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_sent_once_whatever_the_answer() {
        let binding = format!("{PODS}/p/binding");
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/l";
        for (method, path) in [
            (Method::POST, PODS),
            (Method::POST, &*binding),
            (Method::PUT, lease),
            (Method::PATCH, &format!("{PODS}/p")),
            (Method::DELETE, &format!("{PODS}/p")),
        ] {
            for code in [&[429], &[503], &[504], &[500], &[201]] {
                let found = sent(request(method.clone(), path), code, None).await;
                assert_eq!(found, (code[0], 1, 0), "{method} {path}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_names_a_time_comes_when_it_is_over() {
        let write = || request(Method::POST, PODS);
        assert_eq!(sent(write(), &[429], Some("1")).await, (429, 1, 1_000));
        assert_eq!(sent(write(), &[503], Some("3600")).await, (503, 1, 5_000));
        for useless in ["soon", "-1", "18446744073709551616"] {
            assert_eq!(sent(write(), &[429], Some(useless)).await, (429, 1, 0), "{useless}");
        }
        assert_eq!(
            sent(write(), &[201], Some("1")).await,
            (201, 1, 0),
            "only where it is busy"
        );
        let question = request(Method::GET, PODS);
        assert_eq!(sent(question, &[429, 200], Some("1")).await, (200, 2, 1_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_again_a_few_times() {
        let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        for (method, path) in [(Method::GET, PODS), (Method::POST, review)] {
            let ask = || request(method.clone(), path);
            assert_eq!(sent(ask(), &[503, 504, 200], None).await, (200, 3, 300));
            assert_eq!(sent(ask(), &[503], None).await, (503, 5, 100 + 200 + 400 + 800));
            assert_eq!(sent(ask(), &[500, 200], None).await, (500, 1, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_again_is_the_same_question() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = heard.clone();
        let server = service_fn(move |request: Request<Body>| {
            let heard = hearing.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(axum::body::Body::new(body), usize::MAX).await.unwrap();
                let header = parts.headers["x"].to_str().unwrap().to_owned();
                let mut heard = heard.lock().unwrap();
                heard.push((parts.method, parts.uri, header, body));
                let code = if heard.len() < 3 { 503 } else { 200 };
                Ok::<_, Infallible>(Response::builder().status(code).body(()).unwrap())
            }
        });
        let mut review = request(Method::POST, "/apis/a/v1/reviews?b=c");
        review.headers_mut().insert("x", "y".parse().unwrap());
        BusyLayer.layer(server).oneshot(review).await.unwrap();
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 3);
        assert!(heard.iter().all(|one| *one == heard[0]), "{heard:?}");
    }
}
