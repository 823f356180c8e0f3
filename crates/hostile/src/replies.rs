//! Answers of an API server that is not well: cut short, of another kind, with fields that nobody knows.
//!
//! An input is a list of answers, a line each: a digit that picks the status, then the body. Requests get them in turn, and
//! when there are no more, that nothing was found. Operator and scheduler live with that for two minutes of virtual time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grove_api::config::{self, Overrides};
use grove_controllers::Operator;
use grove_scheduler::Scheduler;
use http::{Method, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

const LIFE: Duration = Duration::from_secs(120);
const NOTHING: &[u8] = br#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
const STATUS: [u16; 10] = [200, 200, 201, 404, 409, 410, 422, 429, 500, 503];

/// Both go on, and end when they are told to. What they delete is what they read of, to the UID.
pub(crate) fn answers(input: &[u8]) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime with a clock of its own needs nothing");
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let told = async {
            tokio::time::sleep(LIFE).await;
            stop.cancel();
        };
        let operator = Operator::new(client(input), settings());
        let scheduler = Scheduler::new(client(input), grove_scheduler::Settings::default());
        tokio::join!(operator.run(stop.clone()), scheduler.run(stop.clone()), told);
    });
}

fn settings() -> grove_controllers::Settings {
    let configuration = config::parse(b"{}", &Overrides::default()).expect("nothing is configured");
    let configuration = configuration.configuration;
    grove_controllers::Settings {
        scheduler: configuration.scheduler,
        topology: configuration.topology_aware_scheduling,
        wait_image: "grove".to_owned(),
        pins: false,
        workers: 4,
        clock: Arc::new(|| Timestamp::UNIX_EPOCH),
    }
}

/// An API server that answers with the lines of an input.
fn client(input: &[u8]) -> Client {
    let answers = Arc::new(Mutex::new(lines(input)));
    let input: Arc<[u8]> = input.into();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = answers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (status, body) = answer.unwrap_or_else(|| (404, NOTHING.to_vec()));
        let input = input.clone();
        async move {
            if request.method() == Method::DELETE {
                is_meant(request, &input).await;
            }
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = status.try_into().unwrap_or_default();
            Ok::<_, Infallible>(response)
        }
    });
    Client::new(service, "default")
}

/// The answers of an input, the last one first.
fn lines(input: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let answer = |line: &[u8]| {
        let (digit, body) = line.split_first()?;
        let status = STATUS.get(usize::from(digit.wrapping_sub(b'0')));
        Some((status.copied().unwrap_or(200), body.to_vec()))
    };
    let mut answers: Vec<_> = input.split(|byte| *byte == b'\n').filter_map(answer).collect();
    answers.reverse();
    answers
}

async fn is_meant(request: http::Request<Body>, input: &[u8]) {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect_bytes().await.unwrap_or_default();
    let options: Value = serde_json::from_slice(&body).unwrap_or_default();
    let uid = options["preconditions"]["uid"].as_str().unwrap_or_default();
    let is_known = !uid.is_empty() && input.windows(uid.len()).any(|part| part == uid.as_bytes());
    assert!(is_known, "{path} is deleted with the UID {uid:?}, which nobody told");
}
