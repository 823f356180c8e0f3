//! AdmissionReview: the question that a hook gets, and what its answer means.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::Call;
use super::client::{Expected, NoAnswer};
use super::{Operation, Write, own_kind, shown};
use crate::status::ApiError;

pub(super) const EXPECTED: Expected = Expected {
    kind: "AdmissionReview",
    api_version: "admission.k8s.io/v1",
};

/// Why a hook gave no verdict.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) String);

impl From<NoAnswer> for Failure {
    fn from(error: NoAnswer) -> Self {
        Self(match error {
            NoAnswer::Client(why) => format!("could not get REST client: {why}"),
            NoAnswer::Call(why) => format!("failed to call webhook: {why}"),
        })
    }
}

/// What a hook answered.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Why the write is refused, if it is: a `Status`.
    pub(super) denial: Option<Value>,
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
}

/// The `request` of a review, without its uid.
pub(super) fn request(call: &Call, write: &Write<'_>) -> Value {
    let resource = call.resource();
    let (group, plural) = (&*resource.name.group, &*resource.name.plural);
    let (kind_group, kind_version, kind) = own_kind(call).unwrap_or((group, &call.place.version, &resource.kind));
    let kind = json!({"group": kind_group, "version": kind_version, "kind": kind});
    let place = json!({"group": group, "version": call.place.version, "resource": plural});
    let object = |object: Option<&Value>| object.map_or(Value::Null, |object| shown(call, object));
    let mut request = json!({
        "kind": kind, "resource": place, "requestKind": kind, "requestResource": place,
        "operation": write.operation.word(), "userInfo": call.user.info(),
        "object": object(write.object), "oldObject": object(write.old),
        "dryRun": write.dry_run, "options": write.options,
    });
    // In the version that the client used, where the hook wants to see another one.
    if let Some(asked) = &call.asked_version {
        request["requestResource"]["version"] = json!(asked);
        if own_kind(call).is_none() {
            request["requestKind"]["version"] = json!(asked);
        }
    }
    let subresource = call.place.subresource.map_or("", |subresource| subresource.path());
    for (field, text) in [
        ("subResource", subresource),
        ("requestSubResource", subresource),
        ("name", write.name(call)),
        ("namespace", write.namespace(call)),
    ] {
        if !text.is_empty() {
            request[field] = json!(text);
        }
    }
    request
}

pub(super) fn question(call: &Call, write: &Write<'_>, uid: &str) -> Value {
    let mut request = request(call, write);
    request["uid"] = json!(uid);
    json!({"kind": EXPECTED.kind, "apiVersion": EXPECTED.api_version, "request": request})
}

/// The options of a write, as hooks see them.
pub(crate) fn options(call: &Call, operation: Operation, dry_run: bool) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    for field in ["fieldManager", "fieldValidation"] {
        if !call.query.text(field).is_empty() {
            options[field] = json!(call.query.text(field));
        }
    }
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    options
}

/// Reads the answer to the question with this uid.
pub(super) fn verdict(answer: &Value, uid: &str, mutating: bool) -> Result<Verdict, Failure> {
    let invalid = |why: String| Err(Failure(format!("received invalid webhook response: {why}")));
    let response = &answer["response"];
    if !response.is_object() {
        return invalid("webhook response was absent".into());
    }
    let echoed = response["uid"].as_str().unwrap_or_default();
    if echoed != uid {
        return invalid(format!("expected response.uid={uid:?}, got {echoed:?}"));
    }
    let patch = patch_text(&response["patch"]).ok_or_else(|| {
        Failure("received invalid webhook response: response.patch is neither base64 nor bytes".into())
    })?;
    let patch_type = response["patchType"].as_str();
    match (mutating, patch.is_empty(), patch_type) {
        (true, false, None) => return invalid("webhook returned response.patch but not response.patchType".into()),
        (true, true, Some(_)) => return invalid("webhook returned response.patchType but not response.patch".into()),
        (true, _, Some("")) => return invalid("webhook returned invalid response.patchType of \"\"".into()),
        (false, false, _) => return invalid("validating webhook may not return response.patch".into()),
        (false, _, Some(_)) => return invalid("validating webhook may not return response.patchType".into()),
        (true, _, Some(other)) if other != "JSONPatch" => {
            return Err(Failure(format!("unsupported patch type {other:?}")));
        }
        _ => {}
    }
    let allowed = response["allowed"] == true;
    let warnings = response["warnings"].as_array().into_iter().flatten();
    Ok(Verdict {
        denial: (!allowed).then(|| response["status"].clone()),
        // What is no JSON is refused when the patch is decoded.
        patch: (!patch.is_empty()).then(|| serde_json::from_slice(&patch).unwrap_or(json!("not JSON"))),
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

/// A patch comes as base64 or, from some libraries, as an array of bytes. `None`: as something else.
fn patch_text(patch: &Value) -> Option<Vec<u8>> {
    match patch {
        Value::Null => Some(Vec::new()),
        Value::String(text) => STANDARD.decode(text).ok(),
        Value::Array(bytes) => bytes
            .iter()
            .map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
            .collect(),
        _ => None,
    }
}

/// The answer to a client whose write was refused with this `Status`.
pub(super) fn denied(hook: &str, status: &Value) -> ApiError {
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let refused = format!("admission webhook {hook:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{refused} without explanation"),
        ("", why) | (why, _) => format!("{refused}: {why}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..1000).contains(code)).unwrap_or(400);
    ApiError::new(code, text("reason").to_owned(), message).with_details(status["details"].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(response: Value, mutating: bool) -> String {
        verdict(&json!({"response": response}), "u", mutating).unwrap_err().0
    }

    #[test]
    fn an_answer_must_belong_to_the_question_and_to_the_kind_of_hook() {
        let invalid = |why: &str| format!("received invalid webhook response: {why}");
        assert_eq!(failure(Value::Null, true), invalid("webhook response was absent"));
        assert_eq!(
            failure(json!({"uid": "x"}), true),
            invalid("expected response.uid=\"u\", got \"x\"")
        );
        let patch = json!({"uid": "u", "patch": "W10="});
        assert_eq!(
            failure(patch.clone(), true),
            invalid("webhook returned response.patch but not response.patchType")
        );
        assert_eq!(
            failure(patch, false),
            invalid("validating webhook may not return response.patch")
        );
        let strange = json!({"uid": "u", "patch": "W10=", "patchType": "XML"});
        assert_eq!(failure(strange, true), "unsupported patch type \"XML\"");
    }

    #[test]
    fn a_patch_may_come_as_base64_or_as_bytes() {
        for patch in [json!("W10="), json!([91, 93])] {
            let response = json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"});
            let verdict = verdict(&json!({"response": response}), "u", true).unwrap();
            assert_eq!(verdict.patch, Some(json!([])));
        }
    }

    #[test]
    fn a_refusal_never_looks_like_a_success() {
        let error = denied("h", &json!({"code": 200, "status": "Success"}));
        assert_eq!(
            (error.code, error.message.as_str()),
            (400, "admission webhook \"h\" denied the request without explanation")
        );
        let error = denied("h", &json!({"code": 422, "reason": "Invalid"}));
        assert_eq!(
            (error.code, error.message.as_str()),
            (422, "admission webhook \"h\" denied the request: Invalid")
        );
    }
}
