//! Keeps a leader whose time is over from writing: one that was stopped for a while (SIGSTOP, a frozen machine) goes on with
//! requests that were under way before it can notice that another one leads.
//!
//! The clock that decides runs on while the process stands still. What was sent before is not called back: writes say what
//! must hold for them.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::Either;
use http::Request;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::busy::is_question;

/// Until when this process may write. Clones share it; as a layer of a client it holds what that sends to it.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    until: Arc<watch::Sender<Option<Instant>>>,
}

impl Fence {
    /// Without an end, until there is one.
    pub(crate) fn open() -> Self {
        Self {
            until: Arc::new(watch::Sender::new(None)),
        }
    }

    /// From `until` on nothing is written any more.
    pub(crate) fn close_at(&self, until: Instant) {
        self.until.send_replace(Some(until));
    }

    fn is_closed(&self, now: Instant) -> bool {
        self.until.borrow().is_some_and(|until| now >= until)
    }
}

impl<S> Layer<S> for Fence {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced {
            inner,
            fence: self.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Fenced<S> {
    inner: S,
    fence: Fence,
}

/// Why a write was not sent.
#[derive(Debug)]
struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not sent: the lease of this leader could not be renewed in time, another one may lead")
    }
}

impl std::error::Error for Late {}

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<
        futures::future::MapErr<S::Future, fn(S::Error) -> BoxError>,
        std::future::Ready<Result<S::Response, BoxError>>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        use futures::TryFutureExt as _;
        let is_write = !is_question(request.method(), request.uri().path());
        if is_write && self.fence.is_closed(Instant::now()) {
            return Either::Right(std::future::ready(Err(Late.into())));
        }
        Either::Left(self.inner.call(request).map_err(Into::into as fn(S::Error) -> BoxError))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http::{Method, Response};
    use tower::ServiceExt as _;

    use super::*;

    async fn answer(fence: &Fence, method: Method) -> Result<(), String> {
        let server = tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
        let request = Request::builder()
            .method(method)
            .uri("/api/v1/namespaces/d/pods/p")
            .body(());
        let answer = fence.layer(server).oneshot(request.unwrap()).await;
        answer.map(drop).map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_stopped_for_too_long_writes_nothing_more() {
        let fence = Fence::open();
        assert_eq!(answer(&fence, Method::DELETE).await, Ok(()));
        fence.close_at(Instant::now() + Duration::from_secs(10));
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(answer(&fence, Method::DELETE).await, Ok(()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(answer(&fence, Method::DELETE).await, Err(Late.to_string()));
        assert_eq!(answer(&fence, Method::PATCH).await, Err(Late.to_string()));
        assert_eq!(answer(&fence, Method::GET).await, Ok(()), "reading does no harm");
        fence.close_at(Instant::now() + Duration::from_secs(10));
        assert_eq!(answer(&fence, Method::DELETE).await, Ok(()), "the lease was renewed");
    }
}
