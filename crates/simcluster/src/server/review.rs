//! Reviews: questions about users that are answered and never stored.

use std::sync::Arc;

use serde_json::{Value, json};

use super::output::Reply;
use super::{Body, Server, decode};
use crate::clock::seconds;
use crate::registry::Review;
use crate::status::ApiError;
use crate::user::User;

pub(crate) fn create(
    server: &Arc<Server>,
    review: Review,
    kind: &str,
    body: &Body,
    user: &User,
) -> Result<Reply, ApiError> {
    let mut sent = match body.bytes.is_empty() {
        true => json!({}),
        false => decode::value(body, kind)?,
    };
    if !sent.is_object() {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind})"
        )));
    }
    let (group, status) = match review {
        Review::SelfSubject => ("authentication.k8s.io", json!({"userInfo": user.info()})),
        Review::Token => ("authentication.k8s.io", token_status(server, &sent)),
        // Authorization is not modelled: everybody may do everything.
        Review::SelfSubjectAccess | Review::SubjectAccess => ("authorization.k8s.io", json!({"allowed": true})),
    };
    sent["apiVersion"] = json!(format!("{group}/v1"));
    sent["kind"] = json!(kind);
    sent["metadata"] = match review {
        Review::SelfSubject => json!({"creationTimestamp": seconds(server.clock.now())}),
        Review::Token | Review::SelfSubjectAccess | Review::SubjectAccess => json!({}),
    };
    sent["status"] = status;
    Ok(Reply::json(201, &sent))
}

fn token_status(server: &Server, review: &Value) -> Value {
    match review["spec"]["token"]
        .as_str()
        .and_then(|token| server.authenticate(token))
    {
        Some(user) => json!({"authenticated": true, "user": user.info()}),
        None => json!({"authenticated": false, "error": "[invalid bearer token, unknown]"}),
    }
}
