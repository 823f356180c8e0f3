//! Schemas of custom resources: what they fill in, drop and refuse.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::definitions::{CRDS, definition, install_definition};
use crate::support::*;

const GADGETS: &str = "/apis/demo.test/v1/namespaces/default/gadgets";

/// A kind with a default, a limit, a rule on its spec and one on the change of a field.
pub(crate) fn gadgets() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["color"],
        "properties": {
            "replicas": {"type": "integer", "default": 3, "maximum": 100},
            "min": {"type": "integer"},
            "color": {"type": "string", "enum": ["red", "green"],
                      "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "color is immutable"}]},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                      "items": {"type": "object", "required": ["name"], "properties": {
                          "name": {"type": "string"}, "value": {"type": "string"}}}},
        },
        "x-kubernetes-validations": [{"rule": "!has(self.min) || self.replicas >= self.min",
                                      "message": "replicas must be >= min", "fieldPath": ".replicas",
                                      "reason": "FieldValueForbidden"}],
    });
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}}});
    let mut made = definition();
    made["metadata"]["name"] = json!("gadgets.demo.test");
    made["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    made
}

pub(crate) fn gadget(spec: Value) -> Value {
    json!({"apiVersion": "demo.test/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn an_object_is_defaulted_and_judged_by_its_schema() {
    let cluster = cluster();
    install_definition(&cluster, &gadgets()).await;
    let kind = ApiResource {
        group: "demo.test".into(),
        version: "v1".into(),
        api_version: "demo.test/v1".into(),
        kind: "Gadget".into(),
        plural: "gadgets".into(),
    };
    let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &kind);
    let sent = DynamicObject::new("g", &kind).data(json!({"spec": {"color": "red"}}));
    let made = api.create(&PostParams::default(), &sent).await.unwrap();
    assert_eq!(made.data["spec"], json!({"color": "red", "replicas": 3}));

    let change = |spec: Value| Patch::Merge(json!({"spec": spec}));
    let refuse = async |spec: Value| match api.patch("g", &PatchParams::default(), &change(spec)).await {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("expected a refusal, got {other:?}"),
    };
    let (code, message) = refuse(json!({"min": 4})).await;
    let rule = "Gadget.demo.test \"g\" is invalid: spec.replicas: Forbidden: replicas must be >= min";
    assert_eq!((code, message.as_str()), (422, rule));
    let (_, message) = refuse(json!({"color": "green"})).await;
    assert!(
        message.ends_with("spec.color: Invalid value: \"green\": color is immutable"),
        "{message}"
    );
    let (_, message) = refuse(json!({"replicas": 101})).await;
    assert!(
        message.contains("spec.replicas in body should be less than or equal to 100"),
        "{message}"
    );
    let (_, message) = refuse(json!({"color": null})).await;
    assert!(message.contains("spec.color: Required value"), "{message}");
    let kept = api
        .patch("g", &PatchParams::default(), &change(json!({"replicas": null})))
        .await
        .unwrap();
    assert_eq!(
        kept.data["spec"]["replicas"], 3,
        "what is removed gets its default again"
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_dropped_and_told() {
    let cluster = cluster();
    install_definition(&cluster, &gadgets()).await;
    let mut sent = gadget(json!({"color": "red", "xx": {"y": 1}}));
    sent["metadata"]["zz"] = json!(1);
    let strict = post(&cluster, &format!("{GADGETS}?fieldValidation=Strict"), &sent).await;
    assert_eq!(
        (strict.code, strict.message()),
        (
            400,
            "Gadget in version \"v1\" cannot be handled as a Gadget: strict decoding error: unknown field \"metadata.zz\", unknown field \"spec.xx\""
        )
    );
    let made = post(&cluster, GADGETS, &sent).await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(made.body["spec"], json!({"color": "red", "replicas": 3}));
    assert_eq!(
        made.warnings(),
        [
            "299 - \"unknown field \\\"metadata.zz\\\"\"",
            "299 - \"unknown field \\\"spec.xx\\\"\""
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_comes_later_forgives_what_is_there() {
    let cluster = cluster();
    let mut definition = gadgets();
    install_definition(&cluster, &definition).await;
    post(&cluster, GADGETS, &gadget(json!({"color": "red", "replicas": 9}))).await;
    let rule = json!([{"rule": "self < 5"}]);
    let replicas = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas";
    definition.pointer_mut(replicas).unwrap()["x-kubernetes-validations"] = rule;
    let path = format!("{CRDS}/gadgets.demo.test");
    let versions = json!({"spec": {"versions": definition["spec"]["versions"]}});
    assert_eq!(patch(&cluster, &path, "merge-patch+json", &versions).await.code, 200);

    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let refused = json!({"spec": {"replicas": 8}});
    let gadget = format!("{GADGETS}/g");
    // The server takes up the new schema after it answered the change of the definition.
    let mut waits = 1000;
    while !get(&cluster, "/openapi/v3/apis/demo.test/v1")
        .await
        .text
        .contains("self < 5")
    {
        waits -= 1;
        assert!(waits > 0, "the new schema was never taken up");
        tokio::task::yield_now().await;
    }
    let answer = patch(&cluster, &gadget, "merge-patch+json", &refused).await;
    assert_eq!(answer.code, 422, "{}", answer.text);
    let answer = patch(&cluster, &gadget, "merge-patch+json", &labels).await;
    assert_eq!(answer.code, 200, "{}", answer.text);
    assert_eq!(
        answer.warnings(),
        ["299 - \"spec.replicas: Invalid value: 9: failed rule: self < 5\""]
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_a_schema_that_means_nothing_is_refused() {
    let cluster = cluster();
    let mut wrong = gadgets();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/min";
    *wrong.pointer_mut(spec).unwrap() = json!({"description": "of no type"});
    let answer = post(&cluster, CRDS, &wrong).await;
    assert_eq!(answer.code, 422);
    let expected = "spec.validation.openAPIV3Schema.properties[spec].properties[min].type: Required value: must not be empty for specified object fields";
    assert!(answer.message().contains(expected), "{}", answer.message());
}
