//! Reviews: questions about users that are answered and never stored.

use std::sync::Arc;

use serde_json::{Value, json};

use super::output::Reply;
use super::query::FieldValidation;
use super::{Body, Server, part};
use crate::authorization::{Asked, is_master};
use crate::clock::seconds;
use crate::registry::Review;
use crate::status::{ApiError, FieldError};
use crate::user::User;

const AUTHORIZATION: &str = "authorization.k8s.io";

pub(crate) fn create(
    server: &Arc<Server>,
    (review, kind): (Review, &str),
    namespace: Option<&str>,
    body: &Body,
    user: &User,
) -> Result<Reply, ApiError> {
    let (mut sent, warnings) = part::of_review(review).read(body, FieldValidation::Warn)?;
    let spec = &sent["spec"];
    let (group, status) = match review {
        Review::SelfSubject => ("authentication.k8s.io", json!({"userInfo": user.info()})),
        Review::Token => ("authentication.k8s.io", token_status(server, spec)?),
        Review::SelfSubjectRules => {
            let status = rules_status(server, spec, user)?;
            // The namespace that was asked about is not told again.
            sent["spec"] = json!({});
            (AUTHORIZATION, status)
        }
        Review::SelfSubjectAccess => {
            check_access(review, &sent)?;
            (AUTHORIZATION, access_status(server, spec, user))
        }
        Review::SubjectAccess => {
            check_access(review, &sent)?;
            (AUTHORIZATION, access_status(server, spec, &subject(spec)))
        }
        Review::LocalSubjectAccess => {
            check_local(&mut sent, namespace.unwrap_or_default())?;
            let spec = &sent["spec"];
            (AUTHORIZATION, access_status(server, spec, &subject(spec)))
        }
    };
    sent["apiVersion"] = json!(format!("{group}/v1"));
    sent["kind"] = json!(kind);
    sent["metadata"] = match review {
        Review::SelfSubject => json!({"creationTimestamp": seconds(server.clock.now())}),
        Review::LocalSubjectAccess => json!({"namespace": namespace}),
        Review::Token | Review::SelfSubjectAccess | Review::SubjectAccess | Review::SelfSubjectRules => json!({}),
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

/// The user that a review is about.
fn subject(spec: &Value) -> User {
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text("user"),
        uid: text("uid"),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.to_lowercase(), texts(values))).collect(),
    }
}

fn access_status(server: &Server, spec: &Value, user: &User) -> Value {
    let resource = &spec["resourceAttributes"];
    let text = |value: &'_ Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let decision = match resource.is_object() {
        true => {
            let [verb, group, plural, subresource, namespace, name] =
                ["verb", "group", "resource", "subresource", "namespace", "name"].map(|field| text(resource, field));
            server.decide(
                user,
                &Asked::Resource {
                    verb: &verb,
                    group: &group,
                    plural: &plural,
                    subresource: &subresource,
                    namespace: &namespace,
                    name: &name,
                },
            )
        }
        false => {
            let [verb, path] = ["verb", "path"].map(|field| text(&spec["nonResourceAttributes"], field));
            let (verb, path) = (verb.as_str(), path.as_str());
            server.decide(user, &Asked::Path { verb, path })
        }
    };
    let mut status = json!({"allowed": decision.is_allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    status
}

/// All that the sender may do in a namespace.
fn rules_status(server: &Server, spec: &Value, user: &User) -> Result<Value, ApiError> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    if is_master(user) || !server.rbac {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    let (rules, problems) = server.policy().rules_for(user, namespace);
    for rule in rules {
        let (resource, path) = rule.reviewed();
        resources.extend(resource);
        paths.extend(path);
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": !problems.is_empty()});
    if !problems.is_empty() {
        status["evaluationError"] = json!(problems.join(", "));
    }
    Ok(status)
}

/// Whether it can be said what is asked for, and about whom.
fn check_access(review: Review, sent: &Value) -> Result<(), ApiError> {
    let spec = &sent["spec"];
    let mut errors = Vec::new();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    // The real server tells the fields of its own type.
    let text = |field: &str| path[field].as_str().unwrap_or_default();
    let told = || json!({"Path": text("path"), "Verb": text("verb")});
    let exactly = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
    if resource.is_null() && path.is_null() {
        errors.push(FieldError::invalid("spec.resourceAttributes", Value::Null, exactly));
    } else if resource.is_object() && path.is_object() {
        let why = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", told(), why));
    }
    let nobody = spec["user"].as_str().unwrap_or_default().is_empty() && !spec["groups"].is_array();
    if review != Review::SelfSubjectAccess && nobody {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", json!(""), why));
    }
    if review == Review::LocalSubjectAccess && path.is_object() {
        errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            told(),
            "disallowed on this kind of request",
        ));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(AUTHORIZATION, "", "", &errors)),
    }
}

/// A review in a namespace is about that namespace.
fn check_local(sent: &mut Value, namespace: &str) -> Result<(), ApiError> {
    let own = sent["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    if !own.is_empty() && own != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    check_access(Review::LocalSubjectAccess, sent)?;
    let asked = &sent["spec"]["resourceAttributes"]["namespace"];
    let asked = asked.as_str().unwrap_or_default();
    if asked != namespace {
        let why = "must match metadata.namespace";
        let error = FieldError::invalid("spec.resourceAttributes.namespace", asked, why);
        return Err(ApiError::invalid(AUTHORIZATION, "", "", &[error]));
    }
    Ok(())
}
