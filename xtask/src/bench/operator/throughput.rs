//! Many pods at once: the time until all are there and released, the requests that it took, what it cost; then what
//! becomes of them. A client that makes the same writes does the same afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use grove_api::{PodCliqueSet, labels};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde::Serialize;
use serde_json::json;

use super::super::bare::{self, Copies, WORKERS, create_namespace};
use super::super::follow::Follower;
use super::Stage;
use super::acts::{self, Act};
use super::requests::{Verbs, at_rest, cost_of};

pub(super) const NAMESPACE: &str = "default";
/// Where the bare client works.
pub(super) const BARE: &str = "bare";
/// What the API server has made and changed before anything is measured, so that neither side meets it cold.
const WARM_UP_PODS_MAX: usize = 2_000;
/// How long the operator is watched while nothing happens.
const REST: Duration = Duration::from_secs(5);

/// Sets of one clique.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) sets: usize,
    pub(super) replicas: usize,
    pods: usize,
}

impl Case {
    pub(super) fn all(divide: usize) -> Vec<Self> {
        let sizes = [
            ("1 x 1000", 1, 1, 1_000),
            ("500 replicas x 2", 1, 500, 2),
            ("100 x 50", 100, 1, 50),
            ("1000 x 1", 1_000, 1, 1),
            ("1 x 5000", 1, 1, 5_000),
        ];
        let case = |(name, sets, replicas, pods): (_, usize, usize, usize)| {
            let smaller = |size: usize| if size > 10 { (size / divide).max(1) } else { size };
            Self {
                name,
                sets: smaller(sets),
                replicas: smaller(replicas),
                pods: smaller(pods),
            }
        };
        sizes.map(case).into()
    }

    /// One set of so many pods.
    pub(super) fn of_one_set(pods: usize) -> Self {
        Self {
            name: "one set",
            sets: 1,
            replicas: 1,
            pods,
        }
    }

    pub(super) fn pods_in_all(&self) -> usize {
        self.sets * self.replicas * self.pods
    }

    /// What the operator may ask for: one clique and one gang for each replica.
    fn requests_allowed(&self) -> usize {
        let replicas = self.sets * self.replicas;
        2 * self.pods_in_all() + 3 * replicas + 4 * replicas + 2 * replicas + 8 * self.sets
    }
}

/// A set of one clique, all of whose pods are needed.
pub(super) fn set(name: &str, replicas: usize, pods: usize) -> Result<PodCliqueSet> {
    let manifest = format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         template:\n    cliques:\n    - name: worker\n      spec:\n        roleName: worker\n        replicas: {pods}\n        \
         minAvailable: {pods}\n        podSpec:\n          containers:\n          - name: main\n            \
         image: registry.example/server:1\n            \
         resources: {{requests: {{cpu: '16', memory: 128Gi}}, limits: {{nvidia.com/gpu: '8'}}}}\n"
    );
    serde_saphyr::from_str(&manifest).context("a manifest of ours")
}

/// The names of a case's sets.
pub(super) fn set_name(index: usize) -> String {
    format!("s{index}")
}

/// What a case came to. The names are read by others.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Throughput {
    pub(super) case: &'static str,
    pub(super) pods: usize,
    pub(super) bare_s: f64,
    pub(super) bare_ungated_s: f64,
    pub(super) created_s: f64,
    pub(super) ungated_s: f64,
    pub(super) ratio_created: f64,
    pub(super) ratio_ungated: f64,
    pub(super) requests: u64,
    pub(super) requests_allowed: usize,
    pub(super) requests_per_pod: f64,
    pub(super) requests_by_verb: Verbs,
    /// In five seconds in which nothing happens.
    pub(super) requests_at_rest: u64,
    pub(super) cpu_s: f64,
    pub(super) rest_rss_mib: f64,
    pub(super) peak_rss_mib: f64,
    /// What was done to the sets then: update, scale, delete.
    pub(super) acts: Vec<Act>,
}

pub(super) async fn measure(stage: Stage, case: &Case) -> Result<Throughput> {
    let client = &stage.client.clone();
    let pods = case.pods_in_all();
    warm_up(client, (2 * pods).min(WARM_UP_PODS_MAX)).await?;
    let mut follower = Follower::open(client, NAMESPACE).await?;
    let mut held = Duration::ZERO;
    let create = cost_of(&stage, ("POST", case.sets), async {
        let (made, times) = tokio::join!(create_sets(client, case), follower.all(pods));
        made?;
        let times = times?;
        held = times.ungated - times.created;
        Ok(times.ungated)
    })
    .await?;
    let usage = stage.operator.usage()?;
    let requests_at_rest = at_rest(client, REST).await?;
    let copies = Copies::take(client, NAMESPACE).await?;
    let update = acts::update(&stage, case).await?;
    let scale = acts::scale(&stage, case).await?;
    let (delete, deleted) = acts::delete(&stage, case).await?;

    // The bare client finds what the operator found: as few pods, and nobody else at work. The control plane is held until
    // the end.
    let Stage {
        operator,
        plane: _plane,
        ..
    } = stage;
    operator.stop().await?;
    unregister_webhooks(client).await?;
    create_namespace(client, BARE).await?;
    let mut follower = Follower::of(client, BARE, &bare::selector()).await?;
    let begun = Instant::now();
    let (written, times) = tokio::join!(acts::write_bare(client, &copies), follower.all(pods));
    written?;
    let times = times?;
    let bare = acts::by_bare_client(client, &copies).await?;

    let [bare_s, bare_ungated_s] = [times.created, times.ungated].map(|end| (end - begun).as_secs_f64());
    let (created_s, ungated_s) = (create.seconds - held.as_secs_f64(), create.seconds);
    let requests: u64 = create.requests.values().sum();
    Ok(Throughput {
        case: case.name,
        pods,
        bare_s,
        bare_ungated_s,
        created_s,
        ungated_s,
        ratio_created: created_s / bare_s,
        ratio_ungated: ungated_s / bare_ungated_s,
        requests,
        requests_allowed: case.requests_allowed(),
        requests_per_pod: requests as f64 / pods as f64,
        requests_by_verb: create.requests,
        requests_at_rest,
        cpu_s: create.cpu_s,
        rest_rss_mib: usage.rss_mib,
        peak_rss_mib: usage.peak_rss_mib,
        acts: vec![
            Act::new("update", pods, update, bare.update_s),
            Act::new("scale", pods, scale, bare.scale_s),
            Act::new("delete", deleted, delete, bare.delete_s),
        ],
    })
}

pub(super) async fn create_sets(client: &Client, case: &Case) -> Result<()> {
    let sets = Api::<PodCliqueSet>::namespaced(client.clone(), NAMESPACE);
    let create = |index: usize| {
        let sets = &sets;
        async move {
            let set = set(&set_name(index), case.replicas, case.pods)?;
            sets.create(&PostParams::default(), &set).await?;
            anyhow::Ok(())
        }
    };
    let creates = stream::iter(0..case.sets).map(create).buffer_unordered(WORKERS);
    creates.try_collect().await
}

async fn delete_pods(client: &Client, namespace: &str) -> Result<()> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let now = DeleteParams::default().grace_period(0);
    pods.delete_collection(&now, &ListParams::default()).await?;
    Ok(())
}

/// Nobody answers them any more.
async fn unregister_webhooks(client: &Client) -> Result<()> {
    let (now, all) = (DeleteParams::default(), ListParams::default());
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    validating.delete_collection(&now, &all).await?;
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    mutating.delete_collection(&now, &all).await?;
    Ok(())
}

/// Lets the API server make pods, change and forget them.
pub(super) async fn warm_up(client: &Client, pods: usize) -> Result<()> {
    const PLACE: &str = "warm-up";
    create_namespace(client, PLACE).await?;
    let names: Vec<String> = (0..pods).map(|index| format!("p{index}")).collect();
    let pod = |name: &String| {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "schedulingGates": [{"name": labels::SCHEDULING_GATE}], "containers": [{"name": "main", "image": "one"}],
            },
        }))
    };
    let objects: Vec<_> = names.iter().map(pod).collect::<Result<_, _>>()?;
    bare::create(client, PLACE, &objects).await?;
    bare::lift_gates(client, PLACE, names).await?;
    delete_pods(client, PLACE).await
}
