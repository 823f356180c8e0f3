//! The check of the checkers: with one bug put in for each oracle, that oracle finds it.
//!
//! No bug is in the product: somebody more acts on the cluster, under the name of one of its processes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use grove_campaign::{Actor, Campaign, Oracle, Plot, Role, Row};
use grove_simcluster::fault::{Match, Rule, WatchFault};
use grove_simcluster::store::{Key, ResourceName};
use grove_simcluster::{Cluster, User};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

fn campaign() -> &'static Campaign {
    static LEARNED: OnceLock<Campaign> = OnceLock::new();
    LEARNED.get_or_init(|| {
        let names = ["create", "group-scale-up"].map(str::to_owned);
        Campaign::learn(&names, 1).expect("scenarios that can be played")
    })
}

fn client(cluster: &Cluster, role: Role) -> Client {
    cluster.client_as(User::named(role.user(), &[]))
}

fn all<K>(cluster: &Cluster, role: Role) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client(cluster, role), "default")
}

/// The oracles that object to a run with this bug.
fn found_by<F>(scenario: &str, bug: fn(Arc<Cluster>) -> F) -> Vec<Oracle>
where
    F: Future<Output = ()> + Send + 'static,
{
    let plot = Plot {
        scenario: scenario.to_owned(),
        seed: 1,
        faults: Vec::new(),
    };
    let actor: Actor = Arc::new(move |cluster| bug(cluster).boxed());
    let verdict = campaign().try_one(Row::Swarm, &plot, Some(&actor)).expect("a run");
    let mut oracles: Vec<Oracle> = verdict.violations.iter().map(|violation| violation.oracle).collect();
    oracles.dedup();
    oracles
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Pods that wait for a node and are held back by nobody, as soon as there are some.
async fn bind_as_they_come(cluster: Arc<Cluster>, node_of: fn(usize) -> &'static str) {
    let pods: Api<Pod> = all(&cluster, Role::Scheduler);
    let mut writes = cluster.store().tap();
    let mut bound = 0;
    while let Some((resource, event)) = writes.recv().await {
        let pod: Value = serde_json::from_slice(&event.object).expect("an object");
        let is_free = pod["spec"]["nodeName"].is_null() && pod["spec"]["schedulingGates"].is_null();
        if !resource.is("", "pods") || !is_free || !pod["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node_of(bound)});
        let binding = json!({"metadata": {"name": event.key.name}, "target": target});
        let answer: Result<Value, _> = pods
            .create_subresource("binding", &event.key.name, &PostParams::default(), &binding)
            .await;
        bound += usize::from(answer.is_ok());
    }
}

async fn writes_for_ever(cluster: Arc<Cluster>) {
    let services: Api<Service> = all(&cluster, Role::Operator);
    for count in 0..200_u32 {
        pass(30).await;
        let patch = json!({"metadata": {"annotations": {"grove.io/count": count.to_string()}}});
        // It is not there yet, or not any more.
        let _ = services
            .patch("w-0", &PatchParams::default(), &Patch::Merge(patch))
            .await;
    }
}

async fn makes_a_pod_too_many(cluster: Arc<Cluster>) {
    pass(5).await;
    let pods: Api<Pod> = all(&cluster, Role::Operator);
    let labelled = ListParams::default().labels("grove.io/podclique=w-0-a");
    let mut copy = pods.list(&labelled).await.expect("pods").items.remove(0);
    let (labels, owners) = (copy.labels().clone(), copy.owner_references().to_vec());
    copy.metadata = Default::default();
    copy.metadata.name = Some("w-0-a-more".to_owned());
    copy.metadata.labels = Some(labels);
    copy.metadata.owner_references = Some(owners);
    copy.status = None;
    if let Some(spec) = &mut copy.spec {
        spec.node_name = None;
    }
    pods.create(&PostParams::default(), &copy).await.expect("one more pod");
}

async fn binds_across_racks(cluster: Arc<Cluster>) {
    bind_as_they_come(cluster, |index| if index % 2 == 0 { "r0h0" } else { "r1h0" }).await;
}

async fn binds_all_to_one_node(cluster: Arc<Cluster>) {
    bind_as_they_come(cluster, |_| "r0h0").await;
}

async fn deletes_ready_pods(cluster: Arc<Cluster>) {
    pass(1).await;
    let pods: Api<Pod> = all(&cluster, Role::Operator);
    let labelled = ListParams::default().labels("grove.io/podclique=w-0-a");
    for pod in pods.list(&labelled).await.expect("pods").items.iter().take(2) {
        let deleted = pods.delete(&pod.name_any(), &DeleteParams::default()).await;
        deleted.expect("a deletion");
    }
}

async fn leaves_something(cluster: Arc<Cluster>) {
    let object = json!({"metadata": {"name": "w-0-left"}});
    let object: ConfigMap = serde_json::from_value(object).expect("an object");
    let made = all(&cluster, Role::Operator)
        .create(&PostParams::default(), &object)
        .await;
    made.expect("an object that is taken");
}

async fn wipes_what_others_wrote(cluster: Arc<Cluster>) {
    let services: Api<Service> = all(&cluster, Role::Operator);
    let patch = json!({"metadata": {"annotations": {"example.com/owner": null}}});
    let patched = services
        .patch("w-0", &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.expect("a Service");
}

/// A watch is missing: from now on the operator does not see what becomes of pods.
async fn sees_no_pods(cluster: Arc<Cluster>) {
    let pods = Match::any().user(Role::Operator.user()).resource("", "pods");
    for _ in 0..400 {
        let silence = Rule::event(pods.clone(), WatchFault::Freeze).always();
        cluster.faults().script([silence]);
        pass(4).await;
    }
}

async fn writes_too_often(cluster: Arc<Cluster>) {
    let services: Api<Service> = all(&cluster, Role::Operator);
    for count in 0..300_u32 {
        let patch = json!({"metadata": {"annotations": {"grove.io/count": count.to_string()}}});
        let patched = services
            .patch("w-0", &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.expect("a Service");
    }
}

async fn deletes_a_pod_of_somebody_else(cluster: Arc<Cluster>) {
    let theirs = json!({"metadata": {"name": "w-0-a-other"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let theirs: Pod = serde_json::from_value(theirs).expect("a pod");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    pods.create(&PostParams::default(), &theirs).await.expect("a pod");
    let pods: Api<Pod> = all(&cluster, Role::Operator);
    pods.delete("w-0-a-other", &DeleteParams::default())
        .await
        .expect("a deletion");
    let key = Key::new("default", "w-0-a-other");
    while cluster.store().get(&ResourceName::new("", "pods"), &key).is_some() {
        pass(1).await;
    }
}

/// As a look does that breaks off: whoever began it goes on.
async fn panics_in_a_task(_: Arc<Cluster>) {
    pass(1).await;
    let task = tokio::spawn(async { panic!("a look broke off") });
    assert!(task.await.is_err());
}

macro_rules! found {
    ($($oracle:ident: $test:ident, $scenario:literal, $bug:ident;)*) => {
        $(#[test]
        fn $test() {
            let found = found_by($scenario, $bug);
            assert!(found.contains(&Oracle::$oracle), "{found:?}");
        })*
    };
}

found! {
    O1: o1_finds_who_does_not_rest, "create", writes_for_ever;
    O2: o2_finds_a_pod_too_many, "group-scale-up", makes_a_pod_too_many;
    O3: o3_finds_a_rack_that_is_split, "create", binds_across_racks;
    O4: o4_finds_a_node_that_is_too_full, "create", binds_all_to_one_node;
    O5: o5_finds_who_breaks_a_minimum, "group-scale-up", deletes_ready_pods;
    O6: o6_finds_what_is_left, "create", leaves_something;
    O7: o7_finds_who_wipes_what_others_wrote, "group-scale-up", wipes_what_others_wrote;
    O8: o8_finds_a_status_that_is_not_true, "create", sees_no_pods;
    O9: o9_finds_who_writes_too_often, "group-scale-up", writes_too_often;
    Alive: a_panic_is_heard_though_its_task_ends_alone, "create", panics_in_a_task;
    O10: o10_finds_who_touches_what_is_not_ours, "create", deletes_a_pod_of_somebody_else;
}

#[test]
fn without_a_bug_nothing_is_found() {
    for learned in campaign().learned().values() {
        assert_eq!(learned.violations, []);
    }
}
