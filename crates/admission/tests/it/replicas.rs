//! Several replicas behind one Service, and none at all: which writes are refused, and which never.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use grove_admission::certificates::{Certificates, Change, Lifetimes, Material, carry_out};
use grove_admission::registration::{Endpoint, registration};
use grove_admission::{Lookup, Policy, Server, Webhooks};
use grove_api::PodCliqueSet;
use grove_simcluster::Cluster;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::kit::{OPERATOR, configuration, install};

const HOST: &str = "grove-operator.grove-system.svc";
/// Without topologies, so that a set needs nothing else to be taken.
const CONFIGURATION: &str = "authorizer: {enabled: true}";

fn names() -> Vec<String> {
    vec![HOST.to_owned()]
}

/// A cluster with our kinds, and certificates for the Service.
async fn stage() -> Result<(Cluster, Material)> {
    let cluster = Cluster::builder().start();
    install(&cluster).await?;
    let made = carry_out(
        Change::Everything,
        None,
        &names(),
        cluster.clock().now(),
        &Lifetimes::default(),
    )?;
    Ok((cluster, made))
}

fn changed(material: &Material, change: Change, now: Timestamp) -> Result<Material> {
    let changed = carry_out(change, Some(material), &names(), now, &Lifetimes::default());
    changed.context("good names make good certificates")
}

/// Tells the API server of the webhooks, and whom to trust.
async fn register(cluster: &Cluster, material: &Material) -> Result<()> {
    let endpoint = Endpoint::Service {
        namespace: "grove-system".to_owned(),
        name: "grove-operator".to_owned(),
        port: 443,
    };
    let bundle = String::from_utf8(material.data()["ca.crt"].0.clone())?;
    let policy = Policy::new(&configuration(CONFIGURATION), OPERATOR);
    let registration = registration(&policy, &endpoint, Some(&bundle));
    apply(cluster, &registration.mutating).await?;
    apply(cluster, &registration.validating).await
}

async fn apply<K>(cluster: &Cluster, configurations: &[K]) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let params = PatchParams::apply("test").force();
    for wanted in configurations {
        let api: Api<K> = Api::all(cluster.client());
        api.patch(&wanted.name_any(), &params, &Patch::Apply(wanted)).await?;
    }
    Ok(())
}

/// One replica of the webhook server.
struct Replica {
    server: Server,
    certificates: watch::Sender<Option<Certificates>>,
    asked: AtomicUsize,
}

impl Replica {
    fn start(cluster: &Cluster, material: &Material) -> Result<Arc<Self>> {
        let (certificates, current) = watch::channel(Some(material.certificates()?));
        let policy = Policy::new(&configuration(CONFIGURATION), OPERATOR);
        let server = Server::new(Webhooks::new(policy, Lookup::new(cluster.client())), current)?;
        Ok(Arc::new(Self {
            server,
            certificates,
            asked: AtomicUsize::new(0),
        }))
    }
}

/// Leads the Service to these replicas by turns, as kube-proxy does.
fn lead(cluster: &Cluster, replicas: Vec<Arc<Replica>>) {
    let mut listener = cluster.network().listen(&format!("{HOST}:443"));
    tokio::spawn(async move {
        let mut turns = replicas.iter().cycle();
        while let (Some(stream), Some(replica)) = (listener.accept().await, turns.next().cloned()) {
            replica.asked.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move { replica.server.serve_stream(stream, CancellationToken::new()).await });
        }
    });
}

fn set() -> Value {
    let pod = json!({"containers": [{"name": "main", "image": "example.com/none"}]});
    let clique = json!({"name": "a", "spec": {"roleName": "a", "replicas": 1, "podSpec": pod}});
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "w"},
        "spec": {"replicas": 1, "template": {"cliques": [clique]}},
    })
}

/// Writes a few times; every write must be taken.
async fn write(cluster: &Cluster) -> Result<()> {
    let sets: Api<PodCliqueSet> = Api::default_namespaced(cluster.client());
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for _ in 0..6 {
        let stored = sets.create(&params, &from_value(set())?).await?;
        assert!(stored.spec.template.termination_delay.is_some());
    }
    Ok(())
}

/// grove #701, dynamo PR #12712: one replica, webhooks that fail closed, and a restart for every new certificate: writes
/// were refused. Here two replicas serve, take over new certificates as they serve, one after the other, and one ends.
#[tokio::test]
async fn pain_grove_701_no_write_is_refused_while_certificates_change_and_a_replica_ends() -> Result<()> {
    let (cluster, made) = stage().await?;
    let (first, second) = (Replica::start(&cluster, &made)?, Replica::start(&cluster, &made)?);
    lead(&cluster, vec![first.clone(), second.clone()]);
    register(&cluster, &made).await?;
    write(&cluster).await?;

    // A new authority is trusted beside the old one, then it signs, then the old one goes.
    let now = cluster.clock().now();
    let both = changed(&made, Change::AddAuthority, now)?;
    register(&cluster, &both).await?;
    write(&cluster).await?;
    let signed = changed(&both, Change::RenewLeaf, now)?;
    first.certificates.send_replace(Some(signed.certificates()?));
    write(&cluster).await?;
    second.certificates.send_replace(Some(signed.certificates()?));
    write(&cluster).await?;
    let expired = now + Lifetimes::default().authority;
    let last = changed(&signed, Change::DropExpired, expired)?;
    assert_ne!(last.data()["ca.crt"], signed.data()["ca.crt"]);
    register(&cluster, &last).await?;
    write(&cluster).await?;
    let asked = [&first, &second].map(|replica| replica.asked.load(Ordering::Relaxed));
    assert!(asked.iter().all(|asked| *asked > 0), "{asked:?}");

    lead(&cluster, vec![second.clone()]);
    let before = first.asked.load(Ordering::Relaxed);
    write(&cluster).await?;
    assert_eq!(first.asked.load(Ordering::Relaxed), before);
    Ok(())
}

/// kueue #5244: a webhook that was down stopped everything that ran on the cluster. Ours are asked of our kinds, and of
/// what carries our label.
#[tokio::test]
async fn pain_kueue_5244_webhooks_that_are_down_stop_only_what_is_ours() -> Result<()> {
    let (cluster, made) = stage().await?;
    register(&cluster, &made).await?;
    // Nobody listens.
    drop(cluster.network().listen(&format!("{HOST}:443")));
    let sets: Api<PodCliqueSet> = Api::default_namespaced(cluster.client());
    let refused = sets.create(&PostParams::default(), &from_value(set())?).await;
    let message = match refused {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => anyhow::bail!("not refused: {other:?}"),
    };
    assert!(
        message.contains("failed calling webhook \"pcs.defaulting.webhooks.grove.io\""),
        "{message}"
    );

    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "i"}]}});
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let (pods, services): (Api<Pod>, Api<Service>) = (
        Api::default_namespaced(cluster.client()),
        Api::default_namespaced(cluster.client()),
    );
    pods.create(&PostParams::default(), &from_value(pod)?).await?;
    services.create(&PostParams::default(), &from_value(service)?).await?;
    let labelled = json!({"metadata": {"labels": {"team": "a"}}});
    pods.patch("p", &PatchParams::default(), &Patch::Merge(labelled))
        .await?;
    services.delete("s", &Default::default()).await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.create(&PostParams::default(), &from_value(json!({"metadata": {"name": "m"}}))?)
        .await?;
    Ok(())
}
