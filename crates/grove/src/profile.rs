//! CPU profiles over HTTP, for `go tool pprof` and everything else that reads its format.
//!
//! Only the CPU profile exists: a Rust process has no garbage-collected heap and no goroutines to report on, and an
//! endpoint that answers with nothing would be worse than none.

use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Query;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use pprof::ProfilerGuardBuilder;
use pprof::protos::Message as _;
use serde::Deserialize;

const SECS_DEFAULT: u64 = 30;
const SECS_MAX: u64 = 300;
/// Samples per second of CPU time; as Go, and cheap enough for a loaded operator.
const FREQUENCY_HZ: i32 = 100;

#[derive(Debug, Deserialize)]
struct Span {
    seconds: Option<u64>,
}

pub(crate) fn router() -> Router {
    Router::new().route("/debug/pprof/profile", get(answer))
}

async fn answer(Query(span): Query<Span>) -> Response {
    let secs = span.seconds.unwrap_or(SECS_DEFAULT);
    if !(1..=SECS_MAX).contains(&secs) {
        return (
            StatusCode::BAD_REQUEST,
            format!("seconds must be from 1 to {SECS_MAX}, not {secs}\n"),
        )
            .into_response();
    }
    match record(Duration::from_secs(secs)).await {
        Ok(profile) => ([(header::CONTENT_TYPE, "application/octet-stream")], profile).into_response(),
        // The usual cause: the process-wide profiler serves one request at a time.
        Err(error) => (StatusCode::CONFLICT, format!("{error:#}; try again later\n")).into_response(),
    }
}

async fn record(span: Duration) -> anyhow::Result<Vec<u8>> {
    // Unwinding inside these can deadlock: they hold the locks that the unwinder needs.
    let blocked = ["libc", "libgcc", "pthread", "vdso"];
    let profiler = ProfilerGuardBuilder::default()
        .frequency(FREQUENCY_HZ)
        .blocklist(&blocked)
        .build()
        .context("cannot start the profiler")?;
    tokio::time::sleep(span).await;
    // Symbols are looked up here, which takes a while.
    tokio::task::spawn_blocking(move || {
        let report = profiler.report().build().context("cannot read the samples")?;
        let profile = report.pprof().context("cannot encode the samples")?;
        profile.write_to_bytes().context("cannot encode the profile")
    })
    .await
    .context("the profile was abandoned")?
}
