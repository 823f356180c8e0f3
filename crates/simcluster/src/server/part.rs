//! Bodies that are acted on and not stored: bindings, evictions, scales, requests for tokens, reviews.
//!
//! They pass through the generated type of their kind, as the objects of built-in kinds do, so that a wrong type is an
//! error and never a value that is quietly left out. `DeleteOptions` have rules of their own: no kind is asked for, and
//! errors name none.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::Binding;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::create::check_namespace;
use super::query::FieldValidation;
use super::{Body, Call, decode};
use crate::registry::Review;
use crate::status::ApiError;

/// A kind of such bodies.
#[derive(Debug)]
pub(crate) struct Part {
    kind: &'static str,
    /// The package of the type that the API server works with; errors name it.
    package: &'static str,
    /// What it may call itself; the first is its name if it says nothing.
    api_versions: &'static [&'static str],
    decode: fn(&Value) -> Result<Value, serde_json::Error>,
}

pub(crate) const BINDING: Part = Part::new("Binding", "core", &["v1"], typed::<Binding>);
pub(crate) const EVICTION: Part = Part::new(
    "Eviction",
    "policy",
    &["policy/v1", "policy/v1beta1"],
    typed::<Eviction>,
);
pub(crate) const SCALE: Part = Part::new("Scale", "autoscaling", &["autoscaling/v1"], typed::<Scale>);
pub(crate) const TOKEN_REQUEST: Part = Part::new(
    "TokenRequest",
    "authentication",
    &["authentication.k8s.io/v1"],
    typed::<TokenRequest>,
);

/// The body of a review.
pub(crate) fn of_review(review: Review) -> Part {
    let (authentication, authorization): (&[_], &[_]) = (&["authentication.k8s.io/v1"], &["authorization.k8s.io/v1"]);
    let (kind, decode): (_, fn(&Value) -> _) = match review {
        Review::SelfSubject => ("SelfSubjectReview", typed::<SelfSubjectReview>),
        Review::Token => ("TokenReview", typed::<TokenReview>),
        Review::SelfSubjectAccess => ("SelfSubjectAccessReview", typed::<SelfSubjectAccessReview>),
        Review::SubjectAccess => ("SubjectAccessReview", typed::<SubjectAccessReview>),
        Review::LocalSubjectAccess => ("LocalSubjectAccessReview", typed::<LocalSubjectAccessReview>),
        Review::SelfSubjectRules => ("SelfSubjectRulesReview", typed::<SelfSubjectRulesReview>),
    };
    match review {
        Review::SelfSubject | Review::Token => Part::new(kind, "authentication", authentication, decode),
        Review::SelfSubjectAccess | Review::SubjectAccess | Review::LocalSubjectAccess | Review::SelfSubjectRules => {
            Part::new(kind, "authorization", authorization, decode)
        }
    }
}

fn typed<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(T::deserialize(value)?)
}

impl Part {
    const fn new(
        kind: &'static str,
        package: &'static str,
        api_versions: &'static [&'static str],
        decode: fn(&Value) -> Result<Value, serde_json::Error>,
    ) -> Self {
        Self {
            kind,
            package,
            api_versions,
            decode,
        }
    }

    /// Reads the body of a request for this, and tells the sender about fields that are not known.
    pub(crate) fn of(&self, call: &Call, options_kind: &str) -> Result<Value, ApiError> {
        let validation = call.query.field_validation(options_kind)?;
        let (part, warnings) = self.read(&call.body, validation)?;
        call.warn(&warnings);
        check_namespace(call, &part)?;
        Ok(part)
    }

    /// Reads a body; beside it, what its sender should know.
    pub(crate) fn read(&self, body: &Body, validation: FieldValidation) -> Result<(Value, Vec<String>), ApiError> {
        let mut sent = decode::value(body, self.kind)?;
        self.check_kind(&sent, body)?;
        if let Some(fields) = sent.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        let part = (self.decode)(&sent).map_err(|error| self.unfit(&format!("json: {error}")))?;
        let unknown = decode::unknown_fields(&sent, &part);
        let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        match validation {
            FieldValidation::Ignore => Ok((part, Vec::new())),
            FieldValidation::Warn => Ok((part, unknown)),
            FieldValidation::Strict if unknown.is_empty() => Ok((part, unknown)),
            FieldValidation::Strict => Err(self.unfit(&format!("strict decoding error: {}", unknown.join(", ")))),
        }
    }

    /// Whether a value, such as a patched one, fits the type; else what is wrong with it.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        (self.decode)(value).map(drop).map_err(|error| format!("json: {error}"))
    }

    fn check_kind(&self, sent: &Value, body: &Body) -> Result<(), ApiError> {
        let (api_version, kind) =
            decode::type_meta(sent).map_err(|why| decode::unrecognized(self.kind, &why, &body.bytes))?;
        let known = api_version.is_empty() || self.api_versions.contains(&api_version);
        if kind.is_empty() || (kind == self.kind && known) {
            return Ok(());
        }
        let (mine, version) = (self.kind, decode::version_of(api_version));
        let why = match kind == self.kind {
            true => not_registered(kind, api_version),
            false => {
                let package = self.package;
                format!("converting ({version}.{kind}) to ({package}.{mine}): unknown conversion")
            }
        };
        Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {mine}: {why}"
        )))
    }

    fn unfit(&self, why: &str) -> ApiError {
        let (kind, version) = (self.kind, decode::version_of(self.api_versions[0]));
        ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
        ))
    }
}

fn not_registered(kind: &str, api_version: &str) -> String {
    format!("no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Reads the body of a deletion.
pub(crate) fn delete_options(body: &Body) -> Result<Value, ApiError> {
    let mut sent = match decode::parse(body).map_err(|unread| unread.into_error(ApiError::bad_request))? {
        Value::Null => json!({}),
        sent => sent,
    };
    let (api_version, kind) = decode::type_meta(&sent).map_err(ApiError::bad_request)?;
    if !["", "DeleteOptions"].contains(&kind) {
        return Err(ApiError::bad_request(not_registered(kind, api_version)));
    }
    if let Some(fields) = sent.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    typed::<DeleteOptions>(&sent).map_err(|error| ApiError::bad_request(format!("json: {error}")))?;
    // As it was sent: webhooks are shown it word for word.
    Ok(sent)
}
