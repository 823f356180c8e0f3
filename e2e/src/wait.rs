//! Waiting for a cluster to become what a test expects. The only place where tests let time pass.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Short enough that a test loses little, long enough that fifty waiting tests do not load the API server.
const PAUSE: Duration = Duration::from_millis(20);

/// A condition did not come true in time.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not after {} s: {reason}", limit.as_secs())]
pub struct NotYet {
    what: String,
    limit: Duration,
    reason: String,
}

/// Calls `probe` until it succeeds, and returns what it found. The error of the last try becomes the reason, so a
/// probe should say what it saw ("3 of 50 nodes are ready"), not only that it is not content.
pub async fn eventually<T, E: Display>(
    what: impl Into<String>,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, NotYet> {
    let what = what.into();
    let deadline = Instant::now() + limit;
    let mut reason = "no answer".to_owned();
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => reason = error.to_string(),
            Err(_elapsed) => {}
        }
        if Instant::now() >= deadline {
            return Err(NotYet {
                what: what.to_owned(),
                limit,
                reason,
            });
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_what_the_first_successful_try_found() {
        let mut tries = 0;
        let found = eventually("the third try", Duration::from_secs(5), async || {
            tries += 1;
            if tries == 3 {
                Ok(tries)
            } else {
                Err(format!("try {tries}"))
            }
        })
        .await;
        assert_eq!(found.unwrap(), 3);
    }

    #[tokio::test]
    async fn reports_the_last_reason_when_time_is_up() {
        let error = eventually("all nodes ready", Duration::from_millis(50), async || {
            Err::<(), _>("3 of 50 nodes")
        });
        assert_eq!(
            error.await.unwrap_err().to_string(),
            "all nodes ready: not after 0 s: 3 of 50 nodes"
        );
    }

    #[tokio::test]
    async fn a_probe_that_hangs_does_not_outlast_the_limit() {
        let error = eventually("an answer", Duration::from_millis(50), async || {
            std::future::pending::<()>().await;
            Ok::<(), String>(())
        });
        assert_eq!(
            error.await.unwrap_err().to_string(),
            "an answer: not after 0 s: no answer"
        );
    }
}
