//! Custom resources in several versions: what is stored, what each version shows, and who converts.

use serde_json::{Value, json};

use crate::definitions::{CRDS, install_definition};
use crate::hook_server::{HookServer, allow, configure, patch_with, webhook};
use crate::support::*;

const OLD: &str = "/apis/demo.test/v1/namespaces/default/boxes";
const NEW: &str = "/apis/demo.test/v2/namespaces/default/boxes";

/// Boxes have a `size` in v1, which is stored, and a `width` in v2.
fn definition(conversion: Value) -> Value {
    let version = |name: &str, field: Value| {
        let spec = json!({"type": "object", "properties": field});
        json!({"name": name, "served": true, "storage": name == "v1", "subresources": {"status": {}},
               "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let versions = json!([
        version(
            "v1",
            json!({"size": {"type": "integer"}, "color": {"type": "string", "default": "red"}})
        ),
        version("v2", json!({"width": {"type": "integer"}, "color": {"type": "string"}})),
    ]);
    json!({"metadata": {"name": "boxes.demo.test"}, "spec": {"group": "demo.test", "scope": "Namespaced",
           "names": {"plural": "boxes", "kind": "Box"}, "versions": versions, "conversion": conversion}})
}

fn by_webhook(hook: &HookServer) -> Value {
    let webhook = json!({"clientConfig": hook.client_config("/convert"), "conversionReviewVersions": ["v1"]});
    json!({"strategy": "Webhook", "webhook": webhook})
}

fn converted(request: &Value) -> Value {
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let (from, to) = if wanted.ends_with("v2") {
        ("size", "width")
    } else {
        ("width", "size")
    };
    let objects = request["objects"].as_array().unwrap().iter().map(|object| {
        let mut object = object.clone();
        assert!(object["metadata"]["resourceVersion"].is_null(), "{object}");
        let number = object["spec"].as_object_mut().unwrap().remove(from).unwrap();
        object["spec"][to] = number;
        object["apiVersion"] = json!(wanted);
        object
    });
    json!({"result": {"status": "Success"}, "convertedObjects": objects.collect::<Vec<_>>()})
}

async fn boxes(
    answers: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
) -> (grove_simcluster::Cluster, HookServer) {
    let cluster = cluster();
    let hook = HookServer::on_pipe(&cluster, "127.0.0.1:9443", answers);
    install_definition(&cluster, &definition(by_webhook(&hook))).await;
    (cluster, hook)
}

fn new_box(name: &str, width: i64) -> Value {
    json!({"apiVersion": "demo.test/v2", "kind": "Box", "metadata": {"name": name}, "spec": {"width": width}})
}

#[tokio::test(start_paused = true)]
async fn an_object_is_stored_in_one_version_and_read_in_each() {
    let (cluster, hook) = boxes(|_, request| converted(request)).await;
    let made = post(&cluster, NEW, &new_box("a", 3)).await;
    assert_eq!(
        (made.code, &made.body["apiVersion"]),
        (201, &json!("demo.test/v2")),
        "{}",
        made.text
    );
    // What the stored version defaults comes back with the answer.
    assert_eq!(made.body["spec"], json!({"width": 3, "color": "red"}));
    let stored = cluster
        .store()
        .list(&grove_simcluster::store::ResourceName::new("demo.test", "boxes"), None);
    assert_eq!(stored.items[0].1.value()["spec"], json!({"size": 3}));
    assert_eq!(hook.take().len(), 2, "there and back");
    let old = get(&cluster, &format!("{OLD}/a")).await.body;
    assert_eq!(
        (&old["apiVersion"], &old["spec"]),
        (&json!("demo.test/v1"), &json!({"size": 3, "color": "red"}))
    );
    assert!(
        hook.take().is_empty(),
        "nobody converts what is asked for as it is stored"
    );
    let list = get(&cluster, NEW).await.body;
    assert_eq!(list["items"][0]["spec"], json!({"width": 3, "color": "red"}));
    assert_eq!(list["items"][0]["metadata"], made.body["metadata"]);
}

#[tokio::test(start_paused = true)]
async fn every_verb_works_in_the_version_of_its_request() {
    let (cluster, _hook) = boxes(|_, request| converted(request)).await;
    post(&cluster, NEW, &new_box("a", 3)).await;
    let path = format!("{NEW}/a");
    let patched = patch(&cluster, &path, "merge-patch+json", &json!({"spec": {"width": 5}})).await;
    assert_eq!(
        (&patched.body["spec"]["width"], &patched.body["metadata"]["generation"]),
        (&json!(5), &json!(2))
    );
    let unchanged = patch(&cluster, &path, "merge-patch+json", &json!({"spec": {"width": 5}})).await;
    assert_eq!(
        unchanged.body["metadata"]["resourceVersion"],
        patched.body["metadata"]["resourceVersion"]
    );
    let status = put(&cluster, &format!("{path}/status"), &patched.body).await;
    assert_eq!(status.code, 200, "{}", status.text);
    let mut whole = patched.body.clone();
    whole["spec"]["width"] = json!(7);
    assert_eq!(put(&cluster, &path, &whole).await.body["spec"]["width"], 7);
    let seen = get(&cluster, &format!("{NEW}?watch=1&timeoutSeconds=1")).await;
    let event: Value = serde_json::from_str(seen.text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["spec"]["width"]),
        (&json!("ADDED"), &json!(7))
    );
    let seen = get(
        &cluster,
        &format!(
            "{NEW}?watch=1&timeoutSeconds=1&resourceVersion={}&labelSelector=!x",
            patched.body["metadata"]["resourceVersion"].as_str().unwrap()
        ),
    )
    .await;
    let event: Value = serde_json::from_str(seen.text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["spec"]["width"]),
        (&json!("MODIFIED"), &json!(7))
    );
    assert_eq!(delete(&cluster, &path, &Value::Null).await.code, 200);
    assert_eq!(get(&cluster, &path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_conversion_that_fails_is_an_answer() {
    let refused = json!({"result": {"status": "Failure", "message": "too heavy"}});
    let (cluster, _hook) = boxes(move |_, _| refused.clone()).await;
    let made = post(&cluster, NEW, &new_box("a", 3)).await;
    let why = "conversion webhook for demo.test/v2, Kind=Box failed: too heavy";
    assert_eq!((made.code, made.message()), (500, why));
    let old = json!({"apiVersion": "demo.test/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {"size": 1}});
    assert_eq!(post(&cluster, OLD, &old).await.code, 201);
    let why = "conversion webhook for demo.test/v1, Kind=Box failed: too heavy";
    for path in [
        NEW.to_owned(),
        format!("{NEW}/b"),
        format!("{NEW}?watch=1&timeoutSeconds=1"),
    ] {
        let answer = get(&cluster, &path).await;
        assert_eq!((answer.code, answer.message()), (500, why), "{path}");
    }
    assert_eq!(delete(&cluster, &format!("{NEW}/b"), &Value::Null).await.code, 500);
    assert_eq!(delete(&cluster, &format!("{OLD}/b"), &Value::Null).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_hook_sees_the_version_that_it_asks_for() {
    let (cluster, hook) = boxes(|path, request| match path {
        "/convert" => converted(request),
        "/mutate" => {
            assert_eq!(request["object"]["spec"]["size"], 3);
            patch_with(json!([{"op": "replace", "path": "/spec/size", "value": 4}]))
        }
        _ => allow(),
    })
    .await;
    let rule = json!({"operations": ["*"], "apiGroups": ["demo.test"], "apiVersions": ["v1"], "resources": ["boxes"]});
    let mutating = webhook("m.demo.test", hook.client_config("/mutate"), json!({"rules": [rule]}));
    configure(&cluster, "mutating", "m", json!([mutating])).await;
    let made = post(&cluster, NEW, &new_box("a", 3)).await;
    assert_eq!(
        (made.code, &made.body["spec"]["width"]),
        (201, &json!(4)),
        "{}",
        made.text
    );
}

#[tokio::test(start_paused = true)]
async fn objects_stored_before_a_change_of_the_definition_are_read_by_the_new_one() {
    let (cluster, hook) = boxes(|_, request| converted(request)).await;
    post(&cluster, NEW, &new_box("a", 3)).await;
    let path = format!("{CRDS}/boxes.demo.test");
    let mut changed = get(&cluster, &path).await.body;
    for version in changed["spec"]["versions"].as_array_mut().unwrap() {
        version["storage"] = json!(version["name"] == "v2");
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] =
            json!({"type": "string", "default": "round"});
    }
    let changed = put(&cluster, &path, &changed).await;
    assert_eq!(
        changed.body["status"]["storedVersions"],
        json!(["v1", "v2"]),
        "{}",
        changed.text
    );
    // Time passes when the cluster has seen the change.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    hook.take();
    let read = get(&cluster, &format!("{NEW}/a")).await.body;
    assert_eq!(read["spec"], json!({"width": 3, "color": "red", "shape": "round"}));
    assert_eq!(hook.take().len(), 1, "what was stored in v1 still is");
    let patched = patch(
        &cluster,
        &format!("{NEW}/a"),
        "merge-patch+json",
        &json!({"spec": {"width": 3}}),
    )
    .await;
    assert_eq!(patched.code, 200, "{}", patched.text);
    hook.take();
    assert_eq!(get(&cluster, &format!("{NEW}/a")).await.body["spec"]["width"], 3);
    assert!(hook.take().is_empty(), "a write stores it in v2");
}

#[tokio::test(start_paused = true)]
async fn without_a_webhook_each_version_shows_what_its_schema_knows() {
    let cluster = cluster();
    install_definition(&cluster, &definition(json!({"strategy": "None"}))).await;
    post(&cluster, NEW, &new_box("a", 3)).await;
    assert_eq!(
        get(&cluster, &format!("{NEW}/a")).await.body["spec"],
        json!({"color": "red"})
    );
    assert_eq!(
        get(&cluster, &format!("{OLD}/a")).await.body["spec"],
        json!({"color": "red"})
    );
}
