//! Nodes that run pods, and what happens when they do not.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use grove_simcluster::{Cluster, FleetOptions, NodeSpec};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::support::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    found
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
}

fn is_ready(answer: &Answer) -> bool {
    condition(&answer.body, "Ready") == "True"
}

fn two_nodes() -> Cluster {
    let node = |name: &str| NodeSpec::new(name).capacity("cpu", "2").label("rack", "r1");
    Cluster::builder().nodes([node("n1"), node("n2")]).start()
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_started_and_ready() {
    let cluster = two_nodes();
    let start = Instant::now();
    post(&cluster, PODS, &pod("a", "2")).await;
    let ready = until(&cluster, &format!("{PODS}/a"), is_ready).await.body;
    assert_eq!(
        (&ready["spec"]["nodeName"], &ready["status"]["phase"]),
        (&json!("n1"), &json!("Running"))
    );
    assert!(ready["status"]["podIP"].is_string() && start.elapsed() >= Duration::from_secs(2));
    // The first node is full, and after the second nothing is left.
    post(&cluster, PODS, &pod("b", "2")).await;
    assert_eq!(
        until(&cluster, &format!("{PODS}/b"), is_ready).await.body["spec"]["nodeName"],
        "n2"
    );
    post(&cluster, PODS, &pod("c", "1")).await;
    let reason = |answer: &Answer| condition(&answer.body, "PodScheduled") == "False";
    let waiting = until(&cluster, &format!("{PODS}/c"), reason).await;
    assert!(
        waiting.text.contains("0/2 nodes are available: 2 Insufficient cpu."),
        "{}",
        waiting.text
    );
    delete(&cluster, &format!("{PODS}/a"), &Value::Null).await;
    assert_eq!(
        until(&cluster, &format!("{PODS}/c"), is_ready).await.body["spec"]["nodeName"],
        "n1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_ends_within_its_grace() {
    let options = FleetOptions {
        stop_delay: Duration::from_secs(20),
        ..FleetOptions::default()
    };
    let cluster = Cluster::builder().nodes([NodeSpec::new("n1")]).fleet(options).start();
    post(&cluster, PODS, &pod("a", "1")).await;
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    let start = Instant::now();
    let marked = delete(&cluster, &format!("{PODS}/a"), &Value::Null).await.body;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    until_gone(&cluster, &format!("{PODS}/a")).await;
    assert!((20..21).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_in_order_and_may_be_real() {
    let (release, wait) = tokio::sync::watch::channel(false);
    let runner: grove_simcluster::InitRunner = Arc::new(move |_, container| {
        let mut wait = wait.clone();
        let real = container["name"] == "real";
        real.then(|| async move { wait.wait_for(|go| *go).await.map_or(1, |_| 0) }.boxed())
    });
    let options = FleetOptions {
        init_runner: Some(runner),
        ..FleetOptions::default()
    };
    let cluster = Cluster::builder().nodes([NodeSpec::new("n1")]).fleet(options).start();
    let mut sent = pod("a", "1");
    sent["spec"]["initContainers"] = json!([{"name": "first", "image": "i"}, {"name": "real", "image": "i"}]);
    post(&cluster, PODS, &sent).await;
    let second_runs =
        |answer: &Answer| answer.body["status"]["initContainerStatuses"][1]["state"]["running"].is_object();
    let waiting = until(&cluster, &format!("{PODS}/a"), second_runs).await.body;
    assert_eq!(
        waiting["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"],
        0
    );
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        get(&cluster, &format!("{PODS}/a")).await.body["status"]["phase"],
        "Pending",
        "it waits as long as it takes"
    );
    release.send(true).unwrap();
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_crashed_container_comes_back_after_a_pause() {
    let cluster = two_nodes();
    post(&cluster, PODS, &pod("a", "1")).await;
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    let start = Instant::now();
    cluster.fleet().exit("default", "a", "c", 137);
    let crashed = |answer: &Answer| answer.body["status"]["containerStatuses"][0]["restartCount"] == 1;
    let down = until(&cluster, &format!("{PODS}/a"), crashed).await;
    assert!(!is_ready(&down));
    assert_eq!(
        down.body["status"]["containerStatuses"][0]["state"]["waiting"]["reason"],
        "CrashLoopBackOff"
    );
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_loses_its_pods_after_five_minutes() {
    let cluster = two_nodes();
    post(&cluster, PODS, &pod("a", "1")).await;
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    let start = Instant::now();
    cluster.fleet().down("n1");
    let lost = |answer: &Answer| condition(&answer.body, "Ready") == "Unknown";
    let node = until(&cluster, "/api/v1/nodes/n1", lost).await.body;
    assert_eq!(
        (
            start.elapsed().as_secs(),
            node["spec"]["taints"].as_array().unwrap().len()
        ),
        (40, 2)
    );
    assert_eq!(
        condition(&get(&cluster, &format!("{PODS}/a")).await.body, "Ready"),
        "False"
    );
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert!(
        get(&cluster, &format!("{PODS}/a")).await.body["metadata"]
            .get("deletionTimestamp")
            .is_none()
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    let evicted = get(&cluster, &format!("{PODS}/a")).await.body;
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
    assert!(evicted.to_string().contains("DeletionByTaintManager"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        get(&cluster, &format!("{PODS}/a")).await.code,
        200,
        "no kubelet ends it"
    );
    cluster.fleet().up("n1");
    until_gone(&cluster, &format!("{PODS}/a")).await;
    let node = get(&cluster, "/api/v1/nodes/n1").await.body;
    assert!(condition(&node, "Ready") == "True" && node["spec"].get("taints").is_none());
}

/// A pod that would stay for ever must not end the kubelets of all others.
#[tokio::test(start_paused = true)]
async fn no_toleration_is_too_long() {
    let cluster = two_nodes();
    let mut patient = pod("a", "1");
    patient["spec"]["tolerations"] =
        json!([{"operator": "Exists", "tolerationSeconds": i64::MAX, "effect": "NoExecute"}]);
    assert_eq!(post(&cluster, PODS, &patient).await.code, 201);
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    cluster.fleet().down("n1");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(get(&cluster, &format!("{PODS}/a")).await.code, 200);
    cluster.fleet().up("n1");
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_in_time_keeps_its_pods() {
    let cluster = two_nodes();
    post(&cluster, PODS, &pod("a", "1")).await;
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    cluster.fleet().down("n1");
    tokio::time::sleep(Duration::from_secs(100)).await;
    cluster.fleet().up("n1");
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(is_ready(&get(&cluster, &format!("{PODS}/a")).await));
}

fn with_init(name: &str) -> Value {
    let mut sent = pod(name, "1");
    sent["spec"]["initContainers"] = json!([{"name": "init", "image": "i"}]);
    sent
}

/// Init containers that run for real and never end; the receiver hears of each one that begins, and can tell whether
/// it still runs.
fn endless_inits() -> (FleetOptions, UnboundedReceiver<oneshot::Sender<()>>) {
    let (begun, begins) = unbounded_channel();
    let runner: grove_simcluster::InitRunner = Arc::new(move |_, _| {
        let (held, alive) = oneshot::channel::<()>();
        begun.send(held).ok()?;
        Some(async move { alive.await.map_or(1, |()| 0) }.boxed())
    });
    let options = FleetOptions {
        init_runner: Some(runner),
        start_delay: Duration::from_secs(10),
        ..FleetOptions::default()
    };
    (options, begins)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_away_for_a_moment_starts_a_pod_once() {
    let (options, mut begins) = endless_inits();
    let cluster = Cluster::builder().nodes([NodeSpec::new("n1")]).fleet(options).start();
    post(&cluster, PODS, &with_init("a")).await;
    let accepted = |answer: &Answer| answer.body["status"]["startTime"].is_string();
    until(&cluster, &format!("{PODS}/a"), accepted).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.fleet().down("n1");
    cluster.fleet().up("n1");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(begins.try_recv().is_ok() && begins.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_init_container_ends_with_its_pod_and_with_its_node() {
    let (options, mut begins) = endless_inits();
    let cluster = Cluster::builder().nodes([NodeSpec::new("n1")]).fleet(options).start();
    post(&cluster, PODS, &with_init("a")).await;
    let mut first = begins.recv().await.unwrap();
    cluster.fleet().down("n1");
    first.closed().await;
    cluster.fleet().up("n1");
    let mut second = begins.recv().await.unwrap();
    delete(&cluster, &format!("{PODS}/a"), &Value::Null).await;
    second.closed().await;
    until_gone(&cluster, &format!("{PODS}/a")).await;
    // Another pod of that name begins anew.
    post(&cluster, PODS, &with_init("a")).await;
    begins.recv().await.unwrap().send(()).unwrap();
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_not_forgotten_while_the_node_is_down() {
    let cluster = two_nodes();
    post(&cluster, PODS, &pod("a", "1")).await;
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    cluster.fleet().exit("default", "a", "c", 1);
    until(&cluster, &format!("{PODS}/a"), |answer| !is_ready(answer)).await;
    cluster.fleet().down("n1");
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.fleet().exit("default", "a", "c", 1);
    cluster.fleet().up("n1");
    let back = until(&cluster, &format!("{PODS}/a"), is_ready).await.body;
    let status = &back["status"]["containerStatuses"][0];
    assert_eq!((&status["restartCount"], &status["started"]), (&json!(1), &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn each_outage_has_its_own_five_minutes() {
    let cluster = two_nodes();
    post(&cluster, PODS, &pod("a", "1")).await;
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    cluster.fleet().down("n1");
    tokio::time::sleep(Duration::from_secs(100)).await;
    cluster.fleet().up("n1");
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    let start = Instant::now();
    cluster.fleet().down("n1");
    let evicted = |answer: &Answer| answer.body["metadata"]["deletionTimestamp"].is_string();
    until(&cluster, &format!("{PODS}/a"), evicted).await;
    assert_eq!(start.elapsed().as_secs(), 340);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_bound_to_a_lost_node_leaves_it_too() {
    let cluster = two_nodes();
    cluster.fleet().down("n1");
    let lost = |answer: &Answer| condition(&answer.body, "Ready") == "Unknown";
    until(&cluster, "/api/v1/nodes/n1", lost).await;
    let mut bound = pod("a", "1");
    bound["spec"]["nodeName"] = json!("n1");
    post(&cluster, PODS, &bound).await;
    let evicted = |answer: &Answer| answer.body["metadata"]["deletionTimestamp"].is_string();
    until(&cluster, &format!("{PODS}/a"), evicted).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_made_again_keeps_its_pods() {
    let cluster = two_nodes();
    post(&cluster, PODS, &pod("a", "1")).await;
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    delete(&cluster, "/api/v1/nodes/n1", &Value::Null).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.fleet().add(NodeSpec::new("n1"));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(is_ready(&get(&cluster, &format!("{PODS}/a")).await));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_are_collected() {
    let cluster = two_nodes();
    post(&cluster, PODS, &pod("a", "1")).await;
    until(&cluster, &format!("{PODS}/a"), is_ready).await;
    delete(&cluster, "/api/v1/nodes/n1", &Value::Null).await;
    until_gone(&cluster, &format!("{PODS}/a")).await;
}

#[tokio::test(start_paused = true)]
async fn gated_pods_and_pods_of_other_schedulers_are_left_alone() {
    let cluster = two_nodes();
    let mut gated = pod("gated", "1");
    gated["spec"]["schedulingGates"] = json!([{"name": "ex.com/a"}]);
    post(&cluster, PODS, &gated).await;
    let mut foreign = pod("foreign", "1");
    foreign["spec"]["schedulerName"] = json!("grove-scheduler");
    post(&cluster, PODS, &foreign).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    for name in ["gated", "foreign"] {
        assert!(
            get(&cluster, &format!("{PODS}/{name}")).await.body["spec"]
                .get("nodeName")
                .is_none(),
            "{name}"
        );
    }
    let lift = json!({"spec": {"schedulingGates": null}});
    patch(&cluster, &format!("{PODS}/gated"), "merge-patch+json", &lift).await;
    until(&cluster, &format!("{PODS}/gated"), is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_history() {
    async fn history(seed: u64) -> Vec<String> {
        let cluster = Cluster::builder()
            .seed(seed)
            .nodes((0..5).map(|i| NodeSpec::new(&format!("n{i}"))))
            .start();
        let mut tap = cluster.store().tap();
        for i in 0..10 {
            let mut sent = pod("x", "30");
            sent["metadata"] = json!({"generateName": "p-", "labels": {"i": i.to_string()}});
            post(&cluster, PODS, &sent).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        delete(&cluster, PODS, &Value::Null).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        std::iter::from_fn(|| tap.try_recv().ok())
            .map(|(resource, event)| {
                format!(
                    "{} {resource} {:?} {}",
                    event.revision,
                    event.kind,
                    String::from_utf8_lossy(&event.object)
                )
            })
            .collect()
    }
    let first = history(7).await;
    assert!(first.len() > 60, "{}", first.len());
    for _ in 0..20 {
        assert_eq!(history(7).await, first);
    }
    assert_ne!(history(8).await, first);
}
