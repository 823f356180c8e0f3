//! Tables, as `kubectl get` asks for them.

use http::Request;
use serde_json::{Value, json};

use crate::definitions::install_definition;
use crate::schemas::{gadget, gadgets};
use crate::support::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn table(cluster: &grove_simcluster::Cluster, path: &str) -> Answer {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    send(
        cluster,
        Request::get(path).header("accept", accept).body(Vec::new()).unwrap(),
    )
    .await
}

fn names(table: &Value) -> Vec<&str> {
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    columns.filter_map(|column| column["name"].as_str()).collect()
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(start_paused = true)]
async fn pods_are_shown_as_a_table() {
    let cluster = cluster();
    post(&cluster, PODS, &pod("a")).await;
    let list = table(&cluster, PODS).await.body;
    assert_eq!(list["kind"], "Table");
    assert_eq!(names(&list)[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    let row = &list["rows"][0];
    assert_eq!(row["cells"].as_array().unwrap()[..4], ["a", "0/1", "Pending", "0"]);
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    let one = table(&cluster, &format!("{PODS}/a?includeObject=Object")).await.body;
    assert_eq!(one["rows"][0]["object"]["kind"], "Pod");
    assert_eq!(
        one["metadata"]["resourceVersion"],
        one["rows"][0]["object"]["metadata"]["resourceVersion"]
    );
    let wrong = table(&cluster, &format!("{PODS}?includeObject=Foo")).await;
    assert_eq!(
        (wrong.code, wrong.message()),
        (
            400,
            "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None', or empty"
        )
    );
    let missing = table(&cluster, &format!("{PODS}/nope")).await;
    assert_eq!((missing.code, &missing.body["kind"]), (404, &json!("Status")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_the_columns_once() {
    let cluster = cluster();
    post(&cluster, PODS, &pod("a")).await;
    post(&cluster, PODS, &pod("b")).await;
    let watch = table(&cluster, &format!("{PODS}?watch=true&timeoutSeconds=1")).await;
    let events: Vec<Value> = watch
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (first, later) = events.split_first().unwrap();
    assert_eq!(names(&first["object"])[0], "Name");
    assert_eq!(later[0]["object"]["rows"][0]["cells"][0], "b");
    assert!(later.iter().all(|event| event["object"]["columnDefinitions"].is_null()));
}

#[tokio::test(start_paused = true)]
async fn a_definition_chooses_its_columns() {
    let cluster = cluster();
    let mut definition = gadgets();
    definition["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]);
    install_definition(&cluster, &definition).await;
    let gadgets = "/apis/demo.test/v1/namespaces/default/gadgets";
    post(&cluster, gadgets, &gadget(json!({"color": "red"}))).await;
    let list = table(&cluster, gadgets).await.body;
    assert_eq!(names(&list), ["Name", "Color"]);
    assert_eq!(list["rows"][0]["cells"], json!(["g", "red"]));
}
