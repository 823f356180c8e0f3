//! Clusters that live in a directory: what a restart keeps, and directories that cannot be used.
//!
//! Real time: a disk knows no other.

use std::fs;
use std::path::Path;
use std::time::Duration;

use grove_simcluster::store::ResourceName;
use grove_simcluster::{Cluster, DataDir, DataError, FleetOptions, NodeSpec, User};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::definitions::{CRDS, install, install_definition};
use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";
const WIDGETS: &str = "/apis/demo.test/v1/namespaces/default/widgets";

/// The cluster of a directory. Nodes are for a new one.
async fn open(dir: &Path) -> Cluster {
    let dir = DataDir::open(dir).unwrap();
    let soon = Duration::from_millis(1);
    let fleet = FleetOptions {
        start_delay: soon,
        init_time: soon,
        ready_delay: soon,
        stop_delay: soon,
        init_runner: None,
    };
    let nodes = dir.is_new().then(|| ["n1", "n2"].map(NodeSpec::new));
    let builder = Cluster::builder().seed(7).fleet(fleet);
    builder.nodes(nodes.into_iter().flatten()).open(dir).await.unwrap()
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn is_ready(answer: &Answer) -> bool {
    let conditions = answer.body["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_restart_keeps_the_cluster() {
    let dir = TempDir::new().unwrap();
    let cluster = open(dir.path()).await;
    install(&cluster).await;
    let widget = json!({"apiVersion": "demo.test/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": 1}});
    let widget = post(&cluster, WIDGETS, &widget).await.body;
    post(&cluster, PODS, &pod("before")).await;
    let before = until(&cluster, &format!("{PODS}/before"), is_ready).await.body;
    let token = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "before"}}});
    let token = post(
        &cluster,
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        &token,
    )
    .await;
    let token = token.body["status"]["token"].as_str().unwrap().to_owned();
    cluster.remember("color", "green").await.unwrap();
    post(&cluster, MAPS, &json!({"metadata": {"name": "gone"}})).await;
    let time = cluster.clock().now().as_second();
    let gone = delete(&cluster, &format!("{MAPS}/gone"), &Value::Null).await;
    assert_eq!(gone.code, 200);
    drop(cluster);

    let cluster = open(dir.path()).await;
    assert_eq!(get(&cluster, &format!("{WIDGETS}/w")).await.body, widget);
    assert_eq!(get(&cluster, &format!("{MAPS}/gone")).await.code, 404);
    assert_eq!(cluster.remembered("color").as_deref(), Some("green"));
    assert!(cluster.clock().now().as_second() >= time, "time goes back");
    let bearer = cluster.server().authenticate(&token).unwrap();
    assert_eq!(bearer.extra["authentication.kubernetes.io/pod-name"], ["before"]);
    let list = get(&cluster, NODES).await.body;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert!(revision(&list) > revision(&before), "revisions go on");
    // What ran runs on, what is new gets a place, a uid and an address of its own.
    let still = until(&cluster, &format!("{PODS}/before"), is_ready).await.body;
    assert_eq!(still["metadata"]["uid"], before["metadata"]["uid"]);
    post(&cluster, PODS, &pod("after")).await;
    let after = until(&cluster, &format!("{PODS}/after"), is_ready).await.body;
    for field in [["metadata", "uid"], ["status", "podIP"]] {
        let of = |pod: &Value| pod[field[0]][field[1]].as_str().unwrap().to_owned();
        assert_ne!(of(&after), of(&before), "{field:?}");
    }
    delete(&cluster, &format!("{PODS}/before"), &Value::Null).await;
    until_gone(&cluster, &format!("{PODS}/before")).await;
    assert!(cluster.server().authenticate(&token).is_none(), "it ended with its pod");
}

#[tokio::test]
async fn objects_are_read_in_the_version_in_which_they_were_stored() {
    const BOXES: &str = "/apis/demo.test/v2/namespaces/default/boxes";
    let version = |name: &str, stored: &str, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "integer"}}});
        json!({"name": name, "served": true, "storage": name == stored,
               "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let versions = |stored: &str| json!([version("v1", stored, "size"), version("v2", stored, "width")]);
    let dir = TempDir::new().unwrap();
    let cluster = open(dir.path()).await;
    let definition = json!({"metadata": {"name": "boxes.demo.test"}, "spec": {"group": "demo.test",
        "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"}, "versions": versions("v1")}});
    install_definition(&cluster, &definition).await;
    let old = BOXES.replace("v2", "v1");
    let object = |version: &str, name: &str, spec: Value| json!({"apiVersion": format!("demo.test/{version}"), "kind": "Box", "metadata": {"name": name}, "spec": spec});
    let made = post(&cluster, &old, &object("v1", "old", json!({"size": 1}))).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let change = json!({"spec": {"versions": versions("v2")}});
    patch(
        &cluster,
        &format!("{CRDS}/boxes.demo.test"),
        "merge-patch+json",
        &change,
    )
    .await;
    let lineages = ResourceName::new("simcluster.internal", "lineages");
    while cluster.store().count(&lineages) == 0 {
        tokio::task::yield_now().await;
    }
    // A write in the new version that a width survives was stored in it.
    let made = post(&cluster, BOXES, &object("v2", "new", json!({"width": 2}))).await;
    assert_eq!(made.body["spec"], json!({"width": 2}), "{}", made.text);
    drop(cluster);

    let cluster = open(dir.path()).await;
    let spec = async |path: &str| get(&cluster, path).await.body["spec"].clone();
    assert_eq!(spec(&format!("{old}/old")).await, json!({"size": 1}));
    assert_eq!(spec(&format!("{BOXES}/new")).await, json!({"width": 2}));
}

#[tokio::test]
async fn a_watch_from_before_a_restart_is_told_to_list_again() {
    let dir = TempDir::new().unwrap();
    let cluster = open(dir.path()).await;
    let early = post(&cluster, MAPS, &json!({"metadata": {"name": "a"}})).await.body;
    delete(&cluster, &format!("{MAPS}/a"), &Value::Null).await;
    cluster.fleet().caught_up().await;
    drop(cluster);

    let cluster = open(dir.path()).await;
    let watch = async |revision: u64, seconds: u32| {
        let query = format!("{MAPS}?watch=true&resourceVersion={revision}&timeoutSeconds={seconds}");
        let text = get(&cluster, &query).await.text;
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<Value>>()
    };
    let told = watch(revision(&early), 3600).await;
    assert_eq!(
        (&told[0]["type"], &told[0]["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    // Nothing happened since this list: who watches from it misses nothing.
    let now = revision(&get(&cluster, MAPS).await.body);
    let made = post(&cluster, MAPS, &json!({"metadata": {"name": "b"}})).await.body;
    let told = watch(now, 1).await;
    assert_eq!((&told[0]["type"], &told[0]["object"]), (&json!("ADDED"), &made));
    let old = format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", revision(&early));
    assert_eq!(get(&cluster, &old).await.code, 410);
}

#[tokio::test]
async fn owners_that_were_written_last_keep_their_dependents() {
    let dir = TempDir::new().unwrap();
    let cluster = open(dir.path()).await;
    let mut owners = Vec::new();
    for name in ["first", "second"] {
        let made = post(&cluster, MAPS, &json!({"metadata": {"name": name}})).await.body;
        let uid = &made["metadata"]["uid"];
        owners.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}));
    }
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": owners}});
    let owned = post(&cluster, MAPS, &owned).await.body;
    let change = json!({"data": {"a": "b"}});
    patch(&cluster, &format!("{MAPS}/second"), "merge-patch+json", &change).await;
    drop(cluster);

    let cluster = open(dir.path()).await;
    // The collector has seen everything once it reacts to something new.
    delete(&cluster, &format!("{MAPS}/first"), &Value::Null).await;
    let one_left = |answer: &Answer| {
        answer.body["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|o| o.len() == 1)
    };
    let left = until(&cluster, &format!("{MAPS}/owned"), one_left).await.body;
    assert_eq!(left["metadata"]["uid"], owned["metadata"]["uid"]);
    assert_eq!(left["metadata"]["ownerReferences"][0]["name"], "second");
}

#[tokio::test]
async fn a_directory_has_one_user() {
    let dir = TempDir::new().unwrap();
    let cluster = open(dir.path()).await;
    let refused = DataDir::open(dir.path()).unwrap_err();
    assert!(matches!(&refused, DataError::InUse { process, .. } if *process == std::process::id().to_string()));
    assert!(
        refused.to_string().lines().count() == 1 && refused.to_string().contains("has it open"),
        "{refused}"
    );
    drop(cluster);
    assert!(!DataDir::open(dir.path()).unwrap().is_new());
}

#[tokio::test]
async fn credentials_are_nobody_elses() {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("cluster");
    drop(open(&dir).await);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join("cluster.redb"))), (0o700, 0o600));
    // Another cluster's tokens are not known here.
    let other = Cluster::builder().signing_key(&[1; 32]).start();
    let made = post(
        &other,
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        &json!({}),
    )
    .await;
    let cluster = open(&dir).await;
    assert!(
        cluster
            .server()
            .authenticate(made.body["status"]["token"].as_str().unwrap())
            .is_none()
    );
    cluster.server().trust_token("t", User::admin());
    assert!(cluster.server().authenticate("t").is_some());
}

/// Whatever becomes of the file, it is refused with one line, or it is as it was.
#[tokio::test]
async fn a_damaged_file_is_refused_or_whole() {
    let dir = TempDir::new().unwrap();
    let cluster = open(dir.path()).await;
    for i in 0..50 {
        let map = json!({"metadata": {"name": format!("m{i}")}, "data": {"k": "v".repeat(200)}});
        assert_eq!(post(&cluster, MAPS, &map).await.code, 201);
    }
    let wanted = get(&cluster, MAPS).await.body["items"].clone();
    drop(cluster);
    let file = dir.path().join("cluster.redb");
    let good = fs::read(&file).unwrap();
    let mut refused = 0;
    let step = good.len() / 150;
    let damaged = (0..150).map(|i| {
        let mut bytes = good.clone();
        bytes[i * step + i % 7] ^= 0xff;
        bytes
    });
    let cut = [0, 1, 100, good.len() / 2, good.len() - 1].map(|len| good[..len].to_vec());
    for bytes in damaged.chain(cut).chain([b"something else".to_vec()]) {
        fs::write(&file, &bytes).unwrap();
        match DataDir::open(dir.path()) {
            Err(DataError::Damaged { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
            Ok(kept) => {
                let cluster = Cluster::builder().open(kept).await.unwrap();
                assert_eq!(get(&cluster, MAPS).await.body["items"], wanted);
            }
        }
    }
    assert!(refused > 6, "{refused}");
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path()).await);
    let file = dir.path().join("cluster.redb");
    let counters: redb::TableDefinition<'_, &str, i64> = redb::TableDefinition::new("counters");
    let database = redb::Database::open(&file).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(counters).unwrap().insert("format", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let refused = DataDir::open(dir.path()).unwrap_err().to_string();
    assert!(
        refused.contains("newer grove, in format 2; this one reads up to 1"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_start_that_was_killed_leaves_nothing_behind() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("cluster.redb.new"), "half a file").unwrap();
    drop(open(dir.path()).await);
    assert!(!dir.path().join("cluster.redb.new").exists());
    assert!(!DataDir::open(dir.path()).unwrap().is_new());
    let nowhere = dir.path().join("cluster.redb/below");
    assert!(matches!(DataDir::open(&nowhere), Err(DataError::Io { .. })));
}
