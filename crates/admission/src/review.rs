//! The AdmissionReview (`admission.k8s.io/v1`) on the wire: what the API server asks, and what it is told.
//!
//! Owns the form of questions and answers. No rule is here: a webhook makes an [`Answer`], this module spells it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use grove_api::podgang::NamespacedName;
use grove_topology::validate as topology;
use grove_workload::validate as workload;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const API_VERSION: &str = "admission.k8s.io/v1";

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The kind of the object that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Kind {
    #[serde(default)]
    pub group: String,
    pub kind: String,
}

/// The resource that the request goes to; of a subresource, the one that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Resource {
    #[serde(default)]
    pub group: String,
    pub resource: String,
}

/// Who wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Caller {
    #[serde(default)]
    pub username: String,
}

/// The question, as far as rules look at it. Objects stay as they came until a webhook reads them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub uid: String,
    pub kind: Kind,
    pub resource: Resource,
    /// `status`, `scale`, or nothing.
    #[serde(default)]
    pub sub_resource: String,
    /// Empty where the API server makes up the name.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: String,
    pub operation: Operation,
    #[serde(default)]
    pub user_info: Caller,
    #[serde(default)]
    pub object: Value,
    #[serde(default)]
    pub old_object: Value,
}

impl Request {
    /// Reads the body of a review. The error says what is wrong, and where.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Review {
            request: Request,
        }
        let mut json = serde_json::Deserializer::from_slice(body);
        let review: Result<Review, _> = serde_path_to_error::deserialize(&mut json);
        review
            .map(|review| review.request)
            .map_err(|error| format!("not an AdmissionReview: {}: {}", error.path(), error.inner()))
    }

    /// The object as it would be stored.
    pub fn new_object<K: DeserializeOwned>(&self) -> Result<K, Cause> {
        decode(&self.object)
    }

    /// The object as it is stored: `None` where there is none, or where it was stored by something that our types cannot
    /// read. Then what replaces it is judged as a new object.
    pub fn stored_object<K: DeserializeOwned>(&self) -> Option<K> {
        decode(&self.old_object).ok()
    }

    /// Objects on their way out may change in any way: their finalizers must come off.
    pub fn is_deleting(&self) -> bool {
        !self.object["metadata"]["deletionTimestamp"].is_null()
    }

    pub fn namespaced_name(&self) -> NamespacedName {
        NamespacedName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// `namespace/name`, or the name of an object that has no namespace.
    pub fn subject(&self) -> String {
        match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

fn decode<K: DeserializeOwned>(object: &Value) -> Result<K, Cause> {
    serde_path_to_error::deserialize(object).map_err(|error| Cause {
        field: error.path().to_string(),
        reason: "FieldValueInvalid",
        message: error.inner().to_string(),
    })
}

/// One violated rule, as `details.causes` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub field: String,
    pub reason: &'static str,
    pub message: String,
}

impl From<workload::Violation> for Cause {
    fn from(violation: workload::Violation) -> Self {
        let reason = match violation.reason {
            workload::Reason::Required => "FieldValueRequired",
            workload::Reason::Invalid => "FieldValueInvalid",
            workload::Reason::Duplicate => "FieldValueDuplicate",
            workload::Reason::Forbidden => "FieldValueForbidden",
        };
        Self {
            field: violation.path,
            reason,
            message: violation.message,
        }
    }
}

impl From<topology::Violation> for Cause {
    fn from(violation: topology::Violation) -> Self {
        Self {
            field: violation.field,
            reason: violation.cause.as_str(),
            message: violation.message,
        }
    }
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// The object breaks rules. `kubectl` prints every cause with its field.
    Invalid(Vec<Cause>),
    /// This caller may not.
    Forbidden(String),
    /// The rules could not be judged; trying again can help.
    Unavailable(String),
}

/// What the API server is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    refusal: Option<Refusal>,
    /// Operations of a JSON patch.
    patch: Vec<Value>,
    warnings: Vec<String>,
}

impl Answer {
    pub fn admitted() -> Self {
        Self::default()
    }

    pub fn patched(patch: Vec<Value>) -> Self {
        Self {
            patch,
            ..Self::default()
        }
    }

    /// Admits when no rule is violated, refuses with all that are otherwise.
    pub fn judged(causes: Vec<Cause>) -> Self {
        Self {
            refusal: (!causes.is_empty()).then_some(Refusal::Invalid(causes)),
            ..Self::default()
        }
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self {
            refusal: Some(Refusal::Forbidden(message.into())),
            ..Self::default()
        }
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self {
            refusal: Some(Refusal::Unavailable(message.into())),
            ..Self::default()
        }
    }

    pub fn with_warnings(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    pub fn is_admitted(&self) -> bool {
        self.refusal.is_none()
    }

    /// In one word of a closed set.
    pub(crate) fn result(&self) -> &'static str {
        match self.refusal {
            None => "admitted",
            Some(Refusal::Invalid(_) | Refusal::Forbidden(_)) => "refused",
            Some(Refusal::Unavailable(_)) => "unavailable",
        }
    }

    /// The same with one more operation of the patch.
    pub(crate) fn and_patch(mut self, operation: Value) -> Self {
        self.patch.push(operation);
        self
    }

    #[cfg(test)]
    pub(crate) fn patch(&self) -> &[Value] {
        &self.patch
    }

    /// The AdmissionReview that answers `request`.
    pub fn to_review(&self, request: &Request) -> Value {
        let mut response = json!({"uid": request.uid, "allowed": self.is_admitted()});
        if let Some(refusal) = &self.refusal {
            response["status"] = status(refusal, request);
        } else if !self.patch.is_empty() {
            let patch = Value::Array(self.patch.clone()).to_string();
            response["patchType"] = "JSONPatch".into();
            response["patch"] = BASE64_STANDARD.encode(patch).into();
        }
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
    }
}

fn status(refusal: &Refusal, request: &Request) -> Value {
    let (code, reason, message, causes) = match refusal {
        Refusal::Invalid(causes) => {
            let mut sentences: Vec<&str> = causes.iter().map(|cause| cause.message.as_str()).collect();
            // The same mistake in two fields is one sentence and two causes.
            sentences.dedup();
            (422, "Invalid", sentences.join("; "), causes.as_slice())
        }
        Refusal::Forbidden(message) => (403, "Forbidden", message.clone(), [].as_slice()),
        Refusal::Unavailable(message) => (503, "ServiceUnavailable", message.clone(), [].as_slice()),
    };
    let causes: Vec<Value> = causes
        .iter()
        .map(|cause| json!({"field": cause.field, "reason": cause.reason, "message": cause.message}))
        .collect();
    let mut status = json!({"status": "Failure", "code": code, "reason": reason, "message": message});
    if !causes.is_empty() {
        let kind = &request.kind;
        status["details"] = json!({"name": request.name, "group": kind.group, "kind": kind.kind, "causes": causes});
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request::parse(
            json!({"request": {
                "uid": "u1", "kind": {"group": "grove.io", "version": "v1alpha1", "kind": "PodCliqueSet"},
                "resource": {"group": "grove.io", "version": "v1alpha1", "resource": "podcliquesets"}, "name": "a", "namespace": "ns", "operation": "CREATE", "userInfo": {"username": "ann"},
            }})
            .to_string()
            .as_bytes(),
        )
        .unwrap()
    }

    #[test]
    fn every_violation_is_a_cause_and_a_sentence_of_the_message() {
        let cause = |field: &str, message: &str| Cause {
            field: field.to_owned(),
            reason: "FieldValueInvalid",
            message: message.to_owned(),
        };
        let answer = Answer::judged(vec![cause("spec.a", "too small"), cause("spec.b", "too large")]);
        let review = answer.to_review(&request());
        let status = &review["response"]["status"];
        assert_eq!(review["response"]["uid"], "u1");
        assert_eq!(review["response"]["allowed"], false);
        assert_eq!(status["message"], "too small; too large");
        assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
        assert_eq!(status["details"]["kind"], "PodCliqueSet");
        assert_eq!(status["details"]["causes"][1]["field"], "spec.b");
    }

    #[test]
    fn no_violation_is_an_admission_with_its_warnings() {
        let review = Answer::judged(vec![])
            .with_warnings(["mind the gap".to_owned()])
            .to_review(&request());
        assert_eq!(
            review["response"],
            json!({"uid": "u1", "allowed": true, "warnings": ["mind the gap"]})
        );
    }

    #[test]
    fn a_patch_is_base64() {
        let review = Answer::patched(vec![json!({"op": "add", "path": "/a", "value": 1})]).to_review(&request());
        let bytes = BASE64_STANDARD
            .decode(review["response"]["patch"].as_str().unwrap())
            .unwrap();
        assert_eq!(bytes, br#"[{"op":"add","path":"/a","value":1}]"#);
    }

    #[test]
    fn what_is_no_review_says_where() {
        assert_eq!(
            Request::parse(br#"{"request": {"uid": 7}}"#).unwrap_err(),
            "not an AdmissionReview: request.uid: invalid type: integer `7`, expected a string at line 1 column 21"
        );
        assert!(Request::parse(b"{}").unwrap_err().contains("missing field `request`"));
        assert!(Request::parse(b"\xff\x00").is_err());
    }
}
