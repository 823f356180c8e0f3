//! Many pods at once: the time until all are there and released, the requests that it took, what it cost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use grove_api::{PodCliqueSet, labels};
use grove_e2e::eventually;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use serde::Serialize;
use serde_json::json;

use super::bare::{self, Copies, WORKERS};
use super::follow::Follower;
use super::operator::Stage;

const NAMESPACE: &str = "default";
/// The operator is done when it has asked for nothing for so long.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_MAX: Duration = Duration::from_secs(120);
/// What the API server has made and changed before anything is measured, so that neither side meets it cold.
const WARM_UP_PODS_MAX: usize = 2_000;

/// Sets of one clique.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    sets: usize,
    replicas: usize,
    pods: usize,
}

impl Case {
    pub(super) fn all(divide: usize) -> Vec<Self> {
        let sizes = [
            ("1 x 1000", 1, 1, 1_000),
            ("500 replicas x 2", 1, 500, 2),
            ("100 x 50", 100, 1, 50),
            ("1000 x 1", 1_000, 1, 1),
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

    fn pods_in_all(&self) -> usize {
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

/// What a case came to. The names are read by others.
#[derive(Debug, Serialize)]
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
    pub(super) cpu_s: f64,
    pub(super) peak_rss_mib: f64,
}

pub(super) async fn measure(stage: Stage, case: &Case) -> Result<Throughput> {
    // The control plane is held until the end.
    let Stage {
        operator,
        client,
        plane: _plane,
    } = stage;
    let client = &client;
    let pods = case.pods_in_all();
    warm_up(client, (2 * pods).min(WARM_UP_PODS_MAX)).await?;
    let started = operator.usage()?;
    let requests = requests(client).await?;
    let mut follower = Follower::open(client, NAMESPACE).await?;
    let begun = Instant::now();
    let (made, times) = tokio::join!(create_sets(client, case), follower.all(pods));
    made?;
    let times = times?;
    let asked = quiet(client).await? - requests - case.sets as u64;
    let ended = operator.usage()?;

    // The bare client finds what the operator found: as few pods, and nobody else at work.
    let copies = Copies::take(client, NAMESPACE).await?;
    operator.stop().await?;
    unregister_webhooks(client).await?;
    delete_pods(client, NAMESPACE).await?;
    create_namespace(client, "bare").await?;
    let mut follower = Follower::of(client, "bare", &bare::selector()).await?;
    let bare_begun = Instant::now();
    let (written, bare_times) = tokio::join!(write_bare(client, &copies), follower.all(pods));
    written?;
    let bare_times = bare_times?;
    let bare_s = (bare_times.created - bare_begun).as_secs_f64();
    let bare_ungated_s = (bare_times.ungated - bare_begun).as_secs_f64();

    let created_s = (times.created - begun).as_secs_f64();
    let ungated_s = (times.ungated - begun).as_secs_f64();
    Ok(Throughput {
        case: case.name,
        pods,
        bare_s,
        bare_ungated_s,
        created_s,
        ungated_s,
        ratio_created: created_s / bare_s,
        ratio_ungated: ungated_s / bare_ungated_s,
        requests: asked,
        requests_allowed: case.requests_allowed(),
        requests_per_pod: asked as f64 / pods as f64,
        cpu_s: ended.cpu_s - started.cpu_s,
        peak_rss_mib: ended.peak_rss_mib,
    })
}

/// Makes everything, then lifts the gates.
async fn write_bare(client: &Client, copies: &Copies) -> Result<()> {
    let objects: Vec<_> = copies.steps.iter().flatten().cloned().collect();
    bare::create(client, "bare", &objects).await?;
    bare::lift_gates(client, "bare", copies.pods().collect()).await
}

async fn create_sets(client: &Client, case: &Case) -> Result<()> {
    let sets = Api::<PodCliqueSet>::namespaced(client.clone(), NAMESPACE);
    let create = |index: usize| {
        let sets = &sets;
        async move {
            let set = set(&format!("s{index}"), case.replicas, case.pods)?;
            sets.create(&PostParams::default(), &set).await?;
            anyhow::Ok(())
        }
    };
    let creates = stream::iter(0..case.sets).map(create).buffer_unordered(WORKERS);
    creates.try_collect().await
}

pub(super) async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await?;
    Ok(())
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
async fn warm_up(client: &Client, pods: usize) -> Result<()> {
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

/// Waits until the operator asks for nothing any more; how much was asked for since the start.
async fn quiet(client: &Client) -> Result<u64> {
    let mut last = requests(client).await?;
    let mut since = Instant::now();
    let settled = eventually("the operator to come to rest", QUIET_MAX, async || -> Result<u64> {
        let now = requests(client).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        anyhow::ensure!(since.elapsed() >= QUIET, "{now} requests so far");
        Ok(now)
    });
    Ok(settled.await?)
}

/// Requests that the API server has answered about kinds that the operator writes. Watches and the lists with which they
/// begin are not counted, nor what only the API server itself asks for.
async fn requests(client: &Client) -> Result<u64> {
    let text = client
        .request_text(http::Request::get("/metrics").body(Vec::new())?)
        .await?;
    let counted = text.lines().filter_map(|line| {
        let (series, count) = line.strip_prefix("apiserver_request_total{")?.rsplit_once("} ")?;
        is_the_operators(series).then(|| count.parse::<f64>().ok())?
    });
    Ok(counted.sum::<f64>() as u64)
}

fn is_the_operators(series: &str) -> bool {
    const RESOURCES: [&str; 9] = [
        "pods",
        "services",
        "controllerrevisions",
        "roles",
        "rolebindings",
        "resourceclaims",
        "horizontalpodautoscalers",
        "events",
        "serviceaccounts",
    ];
    let value = |name: &str| {
        let (_, rest) = series.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    let is_ours = value("group").is_some_and(|group| group.ends_with("grove.io"));
    let is_read_by_watches = matches!(value("verb"), Some("WATCH" | "LIST"));
    !is_read_by_watches && (is_ours || value("resource").is_some_and(|resource| RESOURCES.contains(&resource)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_asks_for_is_told_from_the_rest() {
        let labels = |group: &str, resource: &str, verb: &str| {
            format!("code=\"201\",group=\"{group}\",resource=\"{resource}\",subresource=\"\",verb=\"{verb}\"")
        };
        assert!(is_the_operators(&labels("", "pods", "POST")));
        assert!(is_the_operators(&labels("scheduler.grove.io", "podgangs", "PATCH")));
        assert!(!is_the_operators(&labels("grove.io", "podcliques", "WATCH")));
        assert!(!is_the_operators(&labels("coordination.k8s.io", "leases", "PUT")));
    }
}
