//! The gate that every request from a door passes: where requests are counted, and where they meet their faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use serde_json::json;

use super::{Moment, RequestFault, stream};
use crate::history::{self, Outcome};
use crate::server::{Intent, ResponseBody, Server, StaleBy, Verb, error_response};
use crate::status::{ApiError, named};
use crate::store::ResourceName;
use crate::user::User;

/// How long the API server lets a request run.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The connection broke: whether the server acted is unknown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection closed before message completed")]
pub struct ConnectionLost;

/// Who sends a request, over which connection.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) user: User,
    /// The epoch in which the connection was opened ([`super::Faults::epoch`]).
    pub(crate) born: u64,
}

/// Answers a request that came through a door.
pub(crate) async fn pass(
    server: &Arc<Server>,
    request: Request<Bytes>,
    visitor: &Visitor,
) -> Result<Response<ResponseBody>, ConnectionLost> {
    let (parts, body) = request.into_parts();
    let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch="));
    if !(is_watch || server.faults.is_on() || server.history.is_some()) {
        return Ok(server.serve(Request::from_parts(parts, body), &visitor.user).await);
    }
    let intent = Intent::of(&parts, &body, &visitor.user.name);
    let request = Request::from_parts(parts, body);
    let Some(intent) = intent else {
        if server.faults.is_dead(&visitor.user.name, visitor.born) {
            return Err(ConnectionLost);
        }
        return Ok(server.serve(request, &visitor.user).await);
    };
    let passage = Passage {
        server,
        visitor,
        intent: &intent,
        writes: AtomicUsize::new(0),
    };
    let answer = passage.run(request).await;
    passage.record(match &answer {
        Ok(response) => Outcome::Answered(response.status().as_u16()),
        Err(ConnectionLost) => Outcome::Lost,
    });
    answer
}

/// One request on its way.
struct Passage<'a> {
    server: &'a Arc<Server>,
    visitor: &'a Visitor,
    intent: &'a Intent,
    /// How many writes it has made.
    writes: AtomicUsize,
}

impl Passage<'_> {
    async fn run(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, ConnectionLost> {
        let faults = &self.server.faults;
        if !faults.is_on() {
            return Ok(self.serve(request).await);
        }
        if faults.is_dead(&self.intent.user, self.visitor.born) {
            return Err(ConnectionLost);
        }
        let death = self
            .intent
            .verb
            .is_write()
            .then(|| faults.planned_death(self.intent))
            .flatten();
        let Some(death) = death else {
            let answer = self.meet(request).await?;
            // Who died while the request was on its way does not hear the answer.
            return match faults.is_dead(&self.intent.user, self.visitor.born) {
                true => Err(ConnectionLost),
                false => Ok(answer),
            };
        };
        let moment = death.moment;
        let answer = match moment {
            Moment::BeforeWrite => Err(ConnectionLost),
            Moment::BeforeReply | Moment::AfterReply => Ok(self.serve(request).await),
        };
        faults.die(death, self.intent.clone());
        answer.and_then(|answer| match moment {
            Moment::AfterReply => Ok(answer),
            Moment::BeforeWrite | Moment::BeforeReply => Err(ConnectionLost),
        })
    }

    /// Lets the request meet the fault that is meant for it, if any.
    async fn meet(&self, mut request: Request<Bytes>) -> Result<Response<ResponseBody>, ConnectionLost> {
        let Some(fault) = self.server.faults.of_request(self.intent) else {
            return Ok(self.serve(request).await);
        };
        tracing::debug!(?fault, intent = ?self.intent, "fault");
        match fault {
            RequestFault::FailBefore => Err(ConnectionLost),
            RequestFault::FailAfter => {
                self.serve(request).await;
                Err(ConnectionLost)
            }
            RequestFault::NoReply { written } => {
                if written {
                    self.serve(request).await;
                }
                // The client gives up by dropping this future, so now is the time to take it down.
                self.record(Outcome::Lost);
                std::future::pending().await
            }
            RequestFault::Timeout { written } => {
                if written {
                    self.serve(request).await;
                }
                tokio::time::sleep(REQUEST_TIMEOUT).await;
                Ok(refuse(&timed_out()))
            }
            RequestFault::Slow(by) => {
                tokio::time::sleep(by).await;
                Ok(self.serve(request).await)
            }
            RequestFault::Stale { revisions } => {
                request.extensions_mut().insert(StaleBy(revisions));
                Ok(self.serve(request).await)
            }
            RequestFault::Conflict => Ok(refuse(&ApiError::stale(&self.intent.resource, &self.intent.name))),
            RequestFault::TooManyRequests { retry_after_secs } => Ok(refuse(&too_many(retry_after_secs))),
            RequestFault::Internal => Ok(refuse(&internal())),
            RequestFault::QuotaFull => Ok(refuse(&quota_full(&self.intent.resource, &self.intent.name))),
        }
    }

    async fn serve(&self, request: Request<Bytes>) -> Response<ResponseBody> {
        let server = self.server;
        let serving = server.serve(request, &self.visitor.user);
        let response = match &server.history {
            Some(_) => {
                let (response, writes) = history::attribute(self.intent, serving).await;
                self.writes.fetch_add(writes, Ordering::Relaxed);
                response
            }
            None => serving.await,
        };
        match self.intent.verb {
            Verb::Watch if response.status() == 200 => {
                response.map(|body| stream::faulty(server.faults.clone(), self.intent, self.visitor.born, body))
            }
            _ => response,
        }
    }

    fn record(&self, outcome: Outcome) {
        if let Some(history) = &self.server.history {
            let writes = self.writes.load(Ordering::Relaxed);
            history.record_request(self.intent, self.server.clock.now(), outcome, writes);
        }
    }
}

/// An error in the server's stead.
fn refuse(error: &ApiError) -> Response<ResponseBody> {
    let mut response = error_response(error);
    if let Some(secs) = error.details["retryAfterSeconds"].as_u64() {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    response
}

fn too_many(retry_after_secs: u32) -> ApiError {
    let message = "Too many requests: the server is busy, please try again later";
    ApiError::new(429, "TooManyRequests", message).with_details(json!({"retryAfterSeconds": retry_after_secs}))
}

fn internal() -> ApiError {
    let cause = "etcdserver: leader changed";
    ApiError::new(500, "InternalError", format!("Internal error occurred: {cause}"))
        .with_details(json!({"causes": [{"message": cause}]}))
}

fn timed_out() -> ApiError {
    let message = "Timeout: request did not complete within the allotted timeout";
    ApiError::new(504, "Timeout", message).with_details(json!({}))
}

fn quota_full(resource: &ResourceName, name: &str) -> ApiError {
    let message = format!(
        "{resource} \"{name}\" is forbidden: exceeded quota: quota, requested: count/{resource}=1, \
         used: count/{resource}=1, limited: count/{resource}=1"
    );
    ApiError::new(403, "Forbidden", message).with_details(named(resource, name))
}
