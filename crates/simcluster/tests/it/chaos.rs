//! A stock controller, a reflector and two candidates for a lease under a mix of all faults; and a day of it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use grove_simcluster::fault::{Match, Mix};
use grove_simcluster::history::Outcome;
use grove_simcluster::server::Verb;
use grove_simcluster::{Cluster, NodeSpec, User};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;

const OPERATOR: &str = "operator";
/// How long a holder that does not renew keeps its lease.
const LEASE_SECS: i64 = 30;

fn client(cluster: &Cluster) -> kube::Client {
    cluster.client_as(User::named(OPERATOR, &[]))
}

/// Creates what is missing; that it exists already is as good.
async fn ensure<K>(api: &Api<K>, object: serde_json::Value) -> Result<(), kube::Error>
where
    K: serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    let object = serde_json::from_value(object).expect("an object of its kind");
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        result => result.map(drop),
    }
}

/// Keeps one secret for each config map.
async fn reconcile(map: Arc<ConfigMap>, client: Arc<kube::Client>) -> Result<Action, kube::Error> {
    if map.metadata.deletion_timestamp.is_none() && map.name_any().starts_with("map-") {
        let owner = map.controller_owner_ref(&()).expect("a stored object has a uid");
        let secrets: Api<Secret> = Api::namespaced((*client).clone(), "default");
        ensure(
            &secrets,
            json!({"metadata": {"name": map.name_any(), "ownerReferences": [owner]}}),
        )
        .await?;
    }
    Ok(Action::requeue(Duration::from_secs(300)))
}

async fn run_controller(client: kube::Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    Controller::new(maps, watcher::Config::default())
        .owns(secrets, watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(client),
        )
        .for_each(|_| async {})
        .await;
}

/// Tries for ever to get and to keep the lease.
async fn run_candidate(client: kube::Client, name: &'static str, clock: grove_simcluster::clock::Clock) {
    let leases: Api<Lease> = Api::namespaced(client, "default");
    loop {
        // Whatever goes wrong, the next try decides anew from what is stored.
        let _ = try_lease(&leases, name, clock.now()).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

async fn try_lease(leases: &Api<Lease>, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let Some(mut lease) = leases.get_opt("leader").await? else {
        return ensure(leases, json!({"metadata": {"name": "leader"}})).await;
    };
    let mut spec = lease.spec.take().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let mine = spec.holder_identity.as_deref() == Some(name);
    if !mine && now.duration_since(renewed).as_secs() < LEASE_SECS {
        return Ok(());
    }
    spec.holder_identity = Some(name.to_owned());
    spec.lease_duration_seconds = Some(LEASE_SECS as i32);
    spec.renew_time = Some(MicroTime(now));
    spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + i32::from(!mine));
    lease.spec = Some(spec);
    leases.replace("leader", &PostParams::default(), &lease).await.map(drop)
}

/// What everything in this file runs on: a cluster with some nodes, a controller and two candidates.
fn start(seed: u64, record: bool) -> (Cluster, JoinSet<()>) {
    let nodes = (0..4).map(|i| NodeSpec::new(&format!("n{i}")));
    let cluster = Cluster::builder()
        .seed(seed)
        .record_history(record)
        .nodes(nodes)
        .start();
    let mut tasks = JoinSet::new();
    tasks.spawn(run_controller(client(&cluster)));
    for name in ["left", "right"] {
        tasks.spawn(run_candidate(client(&cluster), name, cluster.clock()));
    }
    (cluster, tasks)
}

fn names<K: kube::ResourceExt>(objects: impl IntoIterator<Item = K>) -> Vec<String> {
    let mut names: Vec<String> = objects.into_iter().map(|object| object.name_any()).collect();
    names.retain(|name| name.starts_with("map-"));
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn stock_clients_survive_a_mix_of_all_faults() {
    for seed in 0..3 {
        let (cluster, mut tasks) = start(seed, true);
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
        let (store, writer) = reflector::store();
        let watched: Api<Secret> = Api::namespaced(client(&cluster), "default");
        let events = watcher(watched, watcher::Config::default()).default_backoff();
        tasks.spawn(reflector(writer, events).for_each(|_| async {}));

        cluster
            .faults()
            .mix(Mix::of_everything(Match::any().user(OPERATOR), 0.02));
        for i in 0..60 {
            ensure(&maps, json!({"metadata": {"name": format!("map-{i:02}")}}))
                .await
                .unwrap();
            if i % 3 == 0 {
                maps.delete(&format!("map-{:02}", i / 3), &DeleteParams::default())
                    .await
                    .unwrap();
            }
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        cluster.faults().clear();
        // A frozen watch is given up by the client after its own time-out of five minutes, then all comes right.
        tokio::time::sleep(Duration::from_secs(1200)).await;
        let wanted = names(maps.list(&ListParams::default()).await.unwrap());
        assert_eq!(wanted.len(), 40);
        assert_eq!(
            names(secrets.list(&ListParams::default()).await.unwrap()),
            wanted,
            "seed {seed}"
        );
        let reflected = store.state();
        assert_eq!(
            names(reflected.iter().map(|secret| (**secret).clone())),
            wanted,
            "seed {seed}"
        );

        let history = cluster.history().unwrap();
        let own = || history.requests().by_user(OPERATOR);
        assert!(own().ended(Outcome::Lost).count() > 0 && own().ended(Outcome::Answered(500)).count() > 0);
        assert_one_holder(&cluster);
    }
}

/// A lease changes hands only after its holder let it lapse.
fn assert_one_holder(cluster: &Cluster) {
    let writes = cluster
        .history()
        .unwrap()
        .writes()
        .of_kind("coordination.k8s.io", "leases")
        .verbs(&[Verb::Update]);
    for write in writes.iter() {
        let (before, after) = (write.before().unwrap(), write.after().unwrap());
        let time = |object: &serde_json::Value| {
            object["spec"]["renewTime"]
                .as_str()
                .map(|text| text.parse::<Timestamp>().unwrap())
        };
        if let Some(renewed) = time(&before)
            && before["spec"]["holderIdentity"] != after["spec"]["holderIdentity"]
        {
            let lapsed = time(&after).unwrap().duration_since(renewed).as_secs();
            assert!(lapsed >= LEASE_SECS, "taken over after {lapsed} s");
        }
    }
    assert!(writes.count() > 100, "{}", writes.count());
}

/// The same seed gives the same faults and so the same history. Candidates and plain clients only: the queue of
/// kube-runtime draws its order from the process's own entropy.
#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_history_under_faults() {
    async fn history(seed: u64) -> u64 {
        let nodes = (0..4).map(|i| NodeSpec::new(&format!("n{i}")));
        let cluster = Cluster::builder().seed(seed).record_history(true).nodes(nodes).start();
        // Without the retries of a client made from a kubeconfig, whose pauses are not drawn from our seed.
        let door = grove_simcluster::door::Door::new(cluster.server().clone(), User::named(OPERATOR, &[]));
        let client = kube::Client::new(door, "default");
        cluster.faults().mix(Mix::of_everything(Match::any(), 0.03));
        let mut tasks = JoinSet::new();
        for name in ["left", "right"] {
            tasks.spawn(run_candidate(client.clone(), name, cluster.clock()));
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
        tasks.spawn(async move {
            loop {
                let spec = json!({"containers": [{"name": "c", "image": "i"}]});
                let pod = json!({"metadata": {"generateName": "p-"}, "spec": spec});
                let _ = pods
                    .create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod"))
                    .await;
                let all = pods.list(&ListParams::default()).await;
                if let Some(first) = all.ok().and_then(|all| all.items.into_iter().next()) {
                    let _ = pods.delete(&first.name_any(), &DeleteParams::default()).await;
                }
                tokio::time::sleep(Duration::from_secs(7)).await;
            }
        });
        tokio::time::sleep(Duration::from_secs(600)).await;
        let history = cluster.history().unwrap();
        assert!(history.requests().ended(Outcome::Lost).count() > 5, "faults are on");
        history.hash()
    }
    let first = history(7).await;
    for _ in 0..20 {
        assert_eq!(history(7).await, first);
    }
    assert_ne!(history(8).await, first);
}

/// A day on which pods come and go, under a lease and a controller, takes seconds.
#[tokio::test(start_paused = true)]
async fn a_day_passes_in_seconds() {
    let wall = std::time::Instant::now();
    let (cluster, _tasks) = start(1, false);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let first = cluster.store().revision();
    for i in 0..24 * 12_u32 {
        let name = format!("map-{i}");
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 5});
        ensure(&maps, json!({"metadata": {"name": name}})).await.unwrap();
        ensure(&pods, json!({"metadata": {"name": name}, "spec": spec}))
            .await
            .unwrap();
        if let Some(old) = i.checked_sub(6) {
            maps.delete(&format!("map-{old}"), &DeleteParams::default())
                .await
                .unwrap();
            pods.delete(&format!("map-{old}"), &DeleteParams::default())
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_secs(300)).await;
    }
    let running = pods
        .list(&ListParams::default().fields("status.phase=Running"))
        .await
        .unwrap();
    assert_eq!(running.items.len(), 6);
    assert_eq!(names(maps.list(&ListParams::default()).await.unwrap()).len(), 6);
    let writes = cluster.store().revision() - first;
    println!(
        "24 virtual hours: {writes} writes in {:.1} s",
        wall.elapsed().as_secs_f64()
    );
}
