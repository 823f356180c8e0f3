//! Who registers the webhooks, and that they stay registered, on virtual time.

use anyhow::Result;
use grove_admission::Policy;
use grove_admission::certificates::Certificates;
use grove_admission::registration::{Endpoint, Turn, Upkeep};
use grove_simcluster::Cluster;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, timeout};

use crate::kit::{FULL, OPERATOR, configuration, made};

const NAME: &str = "podcliqueset-validating-webhook";
const HOUR: Duration = Duration::from_secs(60 * 60);

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

/// The upkeep of a replica that has an address of its own.
pub(crate) fn upkeep(cluster: &Cluster, port: u16, turn: Turn) -> Upkeep {
    Upkeep {
        client: cluster.client(),
        policy: Policy::new(&configuration(FULL), OPERATOR),
        endpoint: Endpoint::Url(url(port)),
        turn,
    }
}

/// A replica that has certificates. It ends when this is dropped.
struct Replica {
    certificates: watch::Sender<Option<Certificates>>,
    registered: watch::Receiver<bool>,
    _task: JoinSet<()>,
}

impl Replica {
    fn start(cluster: &Cluster, port: u16, turn: Turn) -> Result<Self> {
        let (certificates, current) = watch::channel(Some(made().certificates()?));
        let (sender, registered) = watch::channel(false);
        let (told, _) = watch::channel(None);
        let mut task = JoinSet::new();
        task.spawn(upkeep(cluster, port, turn).run(current, sender, told));
        Ok(Self {
            certificates,
            registered,
            _task: task,
        })
    }

    async fn registered(&mut self) -> Result<()> {
        timeout(HOUR, self.registered.wait_for(|registered| *registered)).await??;
        Ok(())
    }
}

/// Where the API server was told to ask, one after the other.
fn told(cluster: &Cluster) -> Vec<String> {
    let writes = cluster.history().map(|history| history.writes()).unwrap_or_default();
    let writes = writes.of_kind("admissionregistration.k8s.io", "validatingwebhookconfigurations");
    let of_one = writes.iter().filter(|write| write.key.name == NAME);
    let mut urls: Vec<String> = of_one
        .filter_map(|write| {
            write.after()?["webhooks"][0]["clientConfig"]["url"]
                .as_str()
                .map(str::to_owned)
        })
        .filter_map(|url| url.split_once("/webhooks/").map(|(base, _)| base.to_owned()))
        .collect();
    urls.dedup();
    urls
}

/// Outside a cluster the API server can know the address of one replica only.
#[tokio::test(start_paused = true)]
async fn of_replicas_with_an_address_each_the_leader_registers() -> Result<()> {
    let cluster = Cluster::builder().record_history(true).start();
    let mut first = Replica::start(&cluster, 1, Turn::AtOnce)?;
    first.registered().await?;
    let (leads, turn) = watch::channel(false);
    let mut second = Replica::start(&cluster, 2, Turn::WhenTrue(turn))?;
    tokio::time::sleep(HOUR).await;
    assert!(!*second.registered.borrow());
    assert_eq!(told(&cluster), [url(1)]);

    drop(first);
    leads.send_replace(true);
    second.registered().await?;
    tokio::time::sleep(HOUR).await;
    assert_eq!(told(&cluster), [url(1), url(2)]);
    Ok(())
}

/// Without an election both believe that they lead: they take turns, slowly, and the log of each says so.
#[tokio::test(start_paused = true)]
async fn two_that_believe_to_lead_overwrite_each_other_slowly() -> Result<()> {
    let cluster = Cluster::builder().record_history(true).start();
    let mut first = Replica::start(&cluster, 1, Turn::AtOnce)?;
    first.registered().await?;
    let mut second = Replica::start(&cluster, 2, Turn::AtOnce)?;
    second.registered().await?;
    tokio::time::sleep(HOUR).await;
    let turns = told(&cluster).len();
    assert!((100..=130).contains(&turns), "{turns} turns in an hour");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn webhooks_are_registered_and_put_back_when_changed_or_removed() -> Result<()> {
    let cluster = Cluster::builder().start();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let mut replica = Replica::start(&cluster, 1, Turn::AtOnce)?;
    replica.registered().await?;

    validating.delete(NAME, &DeleteParams::default()).await?;
    until(&validating, |_| true).await?;

    let weaker = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(weaker)?);
    validating.patch(NAME, &PatchParams::default(), &patch).await?;
    until(&validating, |webhook| webhook["failurePolicy"] == "Fail").await?;

    let other = made();
    replica.certificates.send_replace(Some(other.certificates()?));
    let bundle = serde_json::to_value(&other.data()["ca.crt"])?;
    until(&validating, |webhook| webhook["clientConfig"]["caBundle"] == bundle).await?;
    Ok(())
}

/// Waits until the one webhook of a configuration is as it should be.
async fn until(api: &Api<ValidatingWebhookConfiguration>, is_so: impl Fn(&serde_json::Value) -> bool) -> Result<()> {
    let seen = async {
        loop {
            if let Some(found) = api.get_opt(NAME).await?
                && is_so(&serde_json::to_value(&found)?["webhooks"][0])
            {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(60), seen).await?
}
