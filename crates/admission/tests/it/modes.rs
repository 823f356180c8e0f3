//! CM1: certificates made by the operator, then given by somebody else, then made by the operator again. At every stage
//! the API server calls the webhooks, and what they say is heard.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use grove_admission::certificates::{Auto, Change, Lifetimes, Manual, Material, carry_out};
use grove_admission::registration::{Endpoint, Turn};
use grove_admission::{Admission, Policy, Provision};
use grove_api::PodCliqueSet;
use grove_simcluster::Cluster;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{from_value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::kit::{OPERATOR, PATIENCE, configuration, install, names};

/// The webhooks of one process of the operator.
struct Process {
    stop: CancellationToken,
    task: JoinHandle<Result<(), rustls::Error>>,
}

impl Process {
    async fn start(cluster: &Cluster, provision: Provision) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let admission = Admission {
            client: cluster.client(),
            policy: Policy::new(&configuration(""), OPERATOR),
            endpoint: Endpoint::Url(format!("https://{}", listener.local_addr()?)),
            turn: Turn::AtOnce,
            provision,
        };
        let (ready, mut is_ready) = watch::channel(false);
        let stop = CancellationToken::new();
        let clock = cluster.clock();
        let task = tokio::spawn(admission.run(listener, move || clock.now(), ready, stop.clone()));
        timeout(PATIENCE, is_ready.wait_for(|ready| *ready)).await??;
        Ok(Self { stop, task })
    }

    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await???;
        Ok(())
    }
}

fn auto(cluster: &Cluster) -> Provision {
    Provision::Auto(Box::new(Auto {
        client: cluster.client(),
        namespace: "default".to_owned(),
        secret: "certs".to_owned(),
        names: names(),
        lifetimes: Lifetimes::default(),
    }))
}

/// Certificates of somebody else's authority. The cluster has a clock of its own.
fn given(cluster: &Cluster) -> Result<Material> {
    let now = cluster.clock().now();
    let given = carry_out(Change::Everything, None, &names(), now, &Lifetimes::default());
    given.context("good names make good certificates")
}

/// What the API server is told to trust.
async fn trusted(cluster: &Cluster) -> Result<Vec<u8>> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let found = api.get("podcliqueset-validating-webhook").await?;
    let webhooks = found.webhooks.unwrap_or_default();
    let webhook = webhooks.first().context("there is a webhook")?;
    let bundle = webhook.client_config.ca_bundle.clone();
    Ok(bundle.unwrap_or(ByteString(vec![])).0)
}

/// Stores a set and sees that it was defaulted; tries a bad one and sees that it is refused. Told of new webhooks or
/// certificates by a watch, the API server may be a moment late.
async fn is_heard(cluster: &Cluster, name: &str) -> Result<()> {
    let sets: Api<PodCliqueSet> = Api::default_namespaced(cluster.client());
    let pod = json!({"containers": [{"name": "main", "image": "example.com/none"}]});
    let clique = json!({"name": "a", "spec": {"roleName": "a", "replicas": 1, "podSpec": pod}});
    let object = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "template": {"cliques": [clique]}},
    });
    let stored = async {
        loop {
            match sets.create(&PostParams::default(), &from_value(object.clone())?).await {
                Ok(stored) => return anyhow::Ok(stored),
                Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let stored = timeout(PATIENCE, stored).await??;
    assert!(
        stored.spec.template.termination_delay.is_some(),
        "{name} was not defaulted"
    );
    let mut bad = object;
    bad["metadata"]["name"] = json!(format!("bad-{name}"));
    bad["spec"]["template"]["terminationDelay"] = json!("0s");
    match sets.create(&PostParams::default(), &from_value(bad)?).await {
        Err(kube::Error::Api(status)) => assert!(status.message.contains("terminationDelay"), "{}", status.message),
        other => anyhow::bail!("not refused: {other:?}"),
    }
    Ok(())
}

fn put(dir: &Path, material: &Material, files: &[&str]) -> Result<()> {
    for file in files {
        std::fs::write(dir.join(file), &material.data()[*file].0)?;
    }
    Ok(())
}

/// Tells the API server whom to trust, as cert-manager's injector does.
async fn inject(cluster: &Cluster, material: &Material) -> Result<()> {
    let bundle = serde_json::to_value(&material.data()["ca.crt"])?;
    let patch = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]);
    let patch: Patch<()> = Patch::Json(from_value(patch)?);
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    mutating
        .patch("podcliqueset-defaulting-webhook", &PatchParams::default(), &patch)
        .await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    validating
        .patch("podcliqueset-validating-webhook", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

#[tokio::test]
async fn cm1_certificates_made_then_given_then_made_again() -> Result<()> {
    let cluster = Cluster::builder().start();
    install(&cluster).await?;

    let process = Process::start(&cluster, auto(&cluster)).await?;
    is_heard(&cluster, "made").await?;
    let own = trusted(&cluster).await?;
    process.stop().await?;

    // Given with their authority: the operator tells the API server.
    let (given, folder) = (given(&cluster)?, tempfile::tempdir()?);
    put(folder.path(), &given, &["tls.crt", "tls.key", "ca.crt"])?;
    let manual = || {
        Provision::Manual(Manual {
            dir: folder.path().to_owned(),
        })
    };
    let process = Process::start(&cluster, manual()).await?;
    is_heard(&cluster, "given").await?;
    assert_eq!(trusted(&cluster).await?, given.data()["ca.crt"].0);
    process.stop().await?;

    // Given without: whoever gives them tells the API server too, and is not overruled.
    let injected = self::given(&cluster)?;
    std::fs::remove_file(folder.path().join("ca.crt"))?;
    put(folder.path(), &injected, &["tls.crt", "tls.key"])?;
    let process = Process::start(&cluster, manual()).await?;
    inject(&cluster, &injected).await?;
    is_heard(&cluster, "injected").await?;
    assert_eq!(trusted(&cluster).await?, injected.data()["ca.crt"].0);
    process.stop().await?;

    let process = Process::start(&cluster, auto(&cluster)).await?;
    is_heard(&cluster, "made-again").await?;
    assert_eq!(trusted(&cluster).await?, own, "the Secret still held good certificates");
    process.stop().await
}
