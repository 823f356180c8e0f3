//! Reviews: questions about users that are answered and never stored.

use std::sync::Arc;

use serde_json::{Value, json};

use super::output::Reply;
use super::query::FieldValidation;
use super::{Body, Server, part};
use crate::clock::seconds;
use crate::registry::Review;
use crate::status::{ApiError, FieldError};
use crate::user::User;

pub(crate) fn create(
    server: &Arc<Server>,
    review: Review,
    kind: &str,
    body: &Body,
    user: &User,
) -> Result<Reply, ApiError> {
    let (mut sent, warnings) = part::of_review(review).read(body, FieldValidation::Warn)?;
    let (group, status) = match review {
        Review::SelfSubject => ("authentication.k8s.io", json!({"userInfo": user.info()})),
        Review::Token => ("authentication.k8s.io", token_status(server, &sent["spec"])?),
        // Authorization is not modelled: everybody may do everything.
        Review::SelfSubjectAccess | Review::SubjectAccess => {
            check_access(review, &sent["spec"])?;
            ("authorization.k8s.io", json!({"allowed": true}))
        }
    };
    sent["apiVersion"] = json!(format!("{group}/v1"));
    sent["kind"] = json!(kind);
    sent["metadata"] = match review {
        Review::SelfSubject => json!({"creationTimestamp": seconds(server.clock.now())}),
        Review::Token | Review::SelfSubjectAccess | Review::SubjectAccess => json!({}),
    };
    sent["status"] = status;
    Ok(Reply::json(201, &sent).with_warnings(warnings))
}

fn token_status(server: &Server, spec: &Value) -> Result<Value, ApiError> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let audiences = spec["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let audiences: Vec<String> = audiences.map(str::to_owned).collect();
    Ok(match server.bearer(token, &audiences) {
        Ok(bearer) => json!({"authenticated": true, "user": bearer.user.info(), "audiences": bearer.audiences}),
        Err(error) => json!({"user": {}, "error": error}),
    })
}

/// Whether it can be said what is asked for, and about whom.
fn check_access(review: Review, spec: &Value) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let exactly = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    if resource.is_null() && path.is_null() {
        errors.push(FieldError::invalid("spec.resourceAttributes", Value::Null, exactly));
    } else if resource.is_object() && path.is_object() {
        let why = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", path, why));
    }
    let nobody = spec["user"].as_str().unwrap_or_default().is_empty() && !spec["groups"].is_array();
    if review == Review::SubjectAccess && nobody {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", json!(""), why));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("authorization.k8s.io", "", "", &errors)),
    }
}
