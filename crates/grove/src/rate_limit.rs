//! A client-side limit on requests to the API server: a token bucket, as `qps` and `burst` mean it in Kubernetes.
//!
//! The bucket is pure arithmetic over the time it is told; [`RateLimit`] is the tower layer that waits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use tower::{Layer, Service};

/// A wait is never longer: keeps the arithmetic of absurdly small rates inside the clock's range.
const WAIT_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone)]
struct TokenBucket {
    qps: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

impl TokenBucket {
    fn full(qps: f64, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self {
            qps,
            burst,
            tokens: burst,
            filled_at: now,
        }
    }

    /// Takes a token, or says when to ask again.
    fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let elapsed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.qps).min(self.burst);
        self.filled_at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((1.0 - self.tokens) / self.qps).unwrap_or(WAIT_MAX);
        // At least a tick of the timer, so that rounding cannot make the caller spin.
        Err(now + wait.clamp(Duration::from_millis(1), WAIT_MAX))
    }
}

/// Lets `burst` requests through at once and `qps` per second over time.
#[derive(Debug, Clone)]
pub(crate) struct RateLimitLayer {
    bucket: TokenBucket,
}

impl RateLimitLayer {
    /// `None` when the configuration asks for no limit, so that no request pays for one.
    pub(crate) fn new(qps: f64, burst: u32, now: Instant) -> Option<Self> {
        (qps > 0.0 && burst > 0).then(|| Self {
            bucket: TokenBucket::full(qps, burst, now),
        })
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit {
            inner,
            bucket: self.bucket.clone(),
            has_token: false,
            wait: None,
        }
    }
}

/// A service that is ready when the next request may go out. The client keeps one of these behind a queue, so the
/// limit holds for all its clones together and requests leave in order.
#[derive(Debug)]
pub(crate) struct RateLimit<S> {
    inner: S,
    bucket: TokenBucket,
    has_token: bool,
    wait: Option<Pin<Box<Sleep>>>,
}

impl<S: Service<R>, R> Service<R> for RateLimit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        while !self.has_token {
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            match self.bucket.take(Instant::now()) {
                Ok(()) => self.has_token = true,
                Err(at) => self.wait = Some(Box::pin(sleep_until(at))),
            }
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.has_token = false;
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::ServiceExt as _;

    use super::*;

    #[test]
    fn no_limit_is_no_layer() {
        let now = Instant::now();
        assert!(RateLimitLayer::new(0.0, 0, now).is_none());
        assert!(RateLimitLayer::new(1.0, 1, now).is_some());
    }

    #[test]
    fn a_pause_earns_no_more_than_the_burst() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(10.0, 3, start);
        let later = start + Duration::from_secs(1_000);
        for _ in 0..3 {
            assert_eq!(bucket.take(later), Ok(()));
        }
        assert_eq!(bucket.take(later), Err(later + Duration::from_millis(100)));
    }

    #[test]
    fn extreme_rates_do_not_break_the_clock() {
        let start = Instant::now();
        for qps in [f64::MIN_POSITIVE, 1e-9, 1e300, f64::MAX] {
            let mut bucket = TokenBucket::full(qps, 1, start);
            assert_eq!(bucket.take(start), Ok(()));
            let next = bucket.take(start).expect_err("the only token is taken");
            assert!(next > start && next <= start + WAIT_MAX, "{qps}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_pass_at_the_configured_rate() {
        let start = Instant::now();
        let layer = RateLimitLayer::new(50.0, 5, start).unwrap();
        let mut service = layer.layer(tower::service_fn(|()| async { Ok::<_, Infallible>(Instant::now()) }));
        let mut passed = Vec::new();
        for _ in 0..105 {
            passed.push(service.ready().await.unwrap().call(()).await.unwrap());
        }
        assert_eq!(passed[4], start, "the burst passes at once");
        let rate = 100.0 / (passed[104] - start).as_secs_f64();
        assert!(
            (49.0..=50.1).contains(&rate),
            "100 requests after the burst at {rate}/s"
        );
    }
}
