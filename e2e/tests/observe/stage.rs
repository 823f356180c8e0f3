//! The embedded cluster with an operator and a scheduler as processes. They end with the stage.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use grove_api::{PodGang, crds};
use grove_e2e::{binary_for_test, eventually};
use grove_simcluster::door::Listener;
use grove_simcluster::{Cluster, NodeSpec, User};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Ten times what anything here takes on an idle machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);
pub(crate) const NAMESPACE: &str = "default";
/// By which operator and scheduler reach the cluster.
const TOKEN: &str = "the-token-of-the-operator";

/// The levels that the nodes have labels for, and all that can be said in logs. A replica that is alone
/// leads once its webhooks are registered.
const CONFIG: &str = "
apiVersion: operator.config.grove.io/v1alpha1
kind: OperatorConfiguration
logLevel: debug
leaderElection: {enabled: false}
dynamo: {enabled: true}
topologyAwareScheduling:
  enabled: true
  levels:
  - {domain: zone, key: topology.kubernetes.io/zone}
  - {domain: block, key: topology.kubernetes.io/block}
  - {domain: rack, key: topology.kubernetes.io/rack}
  - {domain: host, key: kubernetes.io/hostname}
";

pub(crate) struct Stage {
    pub(crate) client: Client,
    /// Where the metrics of the operator and of the scheduler are served.
    pub(crate) metrics: [u16; 2],
    pub(crate) folder: TempDir,
    /// In this order: the cluster ends last.
    processes: Vec<(&'static str, Child)>,
    _listener: Listener,
    _cluster: Cluster,
}

impl Stage {
    /// Starts all of it; operator and scheduler with these variables in their environment.
    pub(crate) async fn start(env: &[(&str, String)]) -> Result<Self> {
        // An error means that a provider is installed already, which is all that is wanted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let (cluster, listener) = cluster(&kubeconfig).await?;
        let client = cluster.client_as(User::named("author", &["system:masters", "system:authenticated"]));
        install_kinds(&client).await?;
        let mut processes = Vec::new();
        let [webhooks, metrics_of_operator, metrics_of_scheduler] = free_ports()?;
        for (command, metrics) in [("operator", metrics_of_operator), ("scheduler", metrics_of_scheduler)] {
            let config = folder.path().join(format!("{command}.yaml"));
            fs::write(&config, configured(webhooks, metrics))?;
            let mut program = Command::new(&grove);
            program.arg(command).arg("--config").arg(&config);
            program.arg("--kubeconfig").arg(&kubeconfig);
            program.envs(env.iter().map(|(name, value)| (*name, value.as_str())));
            let log = folder.path().join(format!("{command}.log"));
            processes.push((command, spawn(program, &log)?));
        }
        let stage = Self {
            client,
            metrics: [metrics_of_operator, metrics_of_scheduler],
            folder,
            processes,
            _listener: listener,
            _cluster: cluster,
        };
        stage.leads("operator").await?;
        stage.leads("scheduler").await?;
        Ok(stage)
    }

    pub(crate) fn log(&self, of: &str) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join(format!("{of}.log")))?)
    }

    async fn leads(&self, component: &str) -> Result<()> {
        let line = format!("grove_leader{{component=\"{component}\"}} 1");
        let port = self.metrics[usize::from(component == "scheduler")];
        let leads = eventually(line.clone(), LIMIT, async || -> Result<()> {
            let text = crate::http::get(port, "/metrics").await?;
            ensure!(text.lines().any(|found| found == line), "not in {text}");
            Ok(())
        });
        leads.await.with_context(|| self.log(component).unwrap_or_default())
    }

    /// Applies one object as its author would.
    pub(crate) async fn apply(&self, manifest: &str) -> Result<()> {
        let object: DynamicObject = serde_saphyr::from_str(manifest)?;
        let types = object.types.clone().context("a manifest says its kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Waits until a gang's condition has a status and a reason.
    pub(crate) async fn until(&self, gang: &str, condition: &str, is: (&str, &str)) -> Result<()> {
        let gangs = Api::<PodGang>::namespaced(self.client.clone(), NAMESPACE);
        eventually(
            format!("{gang} to be {condition}={is:?}"),
            LIMIT,
            async || -> Result<()> {
                let status = gangs.get(gang).await?.status.context("it has no status")?;
                let found = status.conditions.iter().find(|found| found.type_ == condition);
                let found = found.map(|found| (found.status.as_str(), found.reason.as_str()));
                ensure!(found == Some(is), "it is {found:?}");
                Ok(())
            },
        )
        .await?;
        Ok(())
    }

    /// Ends operator and scheduler as Kubernetes does: what they still have to tell, they tell.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        for (name, process) in &mut self.processes {
            let id = process.id().with_context(|| format!("{name} ended by itself"))?;
            kill_process(Pid::from_raw(id.try_into()?).context("a process")?, Signal::TERM)?;
            let status = tokio::time::timeout(LIMIT, process.wait()).await??;
            ensure!(status.success(), "{name} ended with {status}");
        }
        Ok(())
    }
}

fn configured(webhooks: u16, metrics: u16) -> String {
    format!(
        "{CONFIG}server:\n  \
           webhooks: {{bindAddress: 127.0.0.1, port: {webhooks}}}\n  \
           healthProbes: {{port: 0}}\n  \
           metrics: {{bindAddress: 127.0.0.1, port: {metrics}}}\n"
    )
}

/// Ports that were free a moment ago.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let bind = |()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held = [(); N].map(bind);
    let mut ports = [0; N];
    for (port, held) in ports.iter_mut().zip(held) {
        *port = held?.local_addr()?.port();
    }
    Ok(ports)
}

/// A process that ends with whoever holds it.
pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Child> {
    let out = File::create(log)?;
    let spawned = command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .kill_on_drop(true)
        .spawn();
    spawned.with_context(|| format!("cannot start {command:?}"))
}

/// An embedded cluster of 64 nodes in 2 zones of 2 blocks of 4 racks. Whoever has the kubeconfig is the operator: its own
/// writes are not judged by its webhooks, so authors must be somebody else.
async fn cluster(kubeconfig: &Path) -> Result<(Cluster, Listener)> {
    let now = jiff::Timestamp::now();
    let cluster = Cluster::builder().start_time(now).nodes(nodes()).start();
    let operator = User::named("operator", &["system:masters", "system:authenticated"]);
    cluster.server().trust_token(TOKEN, operator);
    let listener = cluster.listen(([127, 0, 0, 1], 0).into()).await?;
    fs::write(kubeconfig, listener.kubeconfig(TOKEN))?;
    Ok((cluster, listener))
}

fn nodes() -> Vec<NodeSpec> {
    let place = |node: usize| {
        let (zone, block, rack) = (node / 32, node / 16, node / 4);
        NodeSpec::new(&format!("n{node}"))
            .label("topology.kubernetes.io/zone", &format!("z{zone}"))
            .label("topology.kubernetes.io/block", &format!("b{block}"))
            .label("topology.kubernetes.io/rack", &format!("r{rack}"))
            .capacity("nvidia.com/gpu", "8")
    };
    (0..64).map(place).collect()
}

async fn install_kinds(client: &Client) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in crds::all() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    for definition in crds::all() {
        let name = definition.metadata.name.unwrap_or_default();
        eventually(format!("{name} to be served"), LIMIT, async || -> Result<()> {
            let status = definitions.get(&name).await?.status;
            let conditions = status.and_then(|status| status.conditions);
            let mut conditions = conditions.iter().flatten();
            let is_served = conditions.any(|found| found.type_ == "Established" && found.status == "True");
            ensure!(is_served, "not yet");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
