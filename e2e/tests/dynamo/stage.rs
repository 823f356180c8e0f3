//! The control plane with everything on it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use grove_admission::certificates::{Auto, Lifetimes, server_names};
use grove_admission::registration::{Endpoint, Turn};
use grove_admission::{Admission, Policy, Provision};
use grove_api::DynamoGraphDeployment;
use grove_api::config::{OperatorConfiguration, SchedulerProfile};
use grove_api::dynamo::conditions;
use grove_api::rights::{self, Home};
use grove_controllers::{Operator, Settings};
use grove_dynamo::controller::{self, Controller};
use grove_dynamo::translate::Surroundings;
use grove_e2e::{ControlPlane, Identity, Shared, eventually, node};
use grove_scenarios::{BLOCK, CAPACITY, RACK, ZONE, configuration, with_policies};
use grove_scheduler::Scheduler;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DynamicObject, PostParams};
use kube::config::{Config, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;

use crate::kinds::install_kinds;
use crate::record::Record;
use crate::upgrade;

/// Ten times what a step takes on an idle machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
const HOME: Home<'_> = Home {
    namespace: "grove-system",
    secret: "certs",
    lease: "leader",
};

/// Each test has a runtime of its own; what all of them use outlives them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads can be started"));
static PLANE: Shared = Shared::new(|| ControlPlane::builder().node_objects(nodes()));
static STARTED: OnceCell<Record> = OnceCell::const_new();

/// One zone: four blocks of four racks, each of four nodes with eight GPUs.
fn nodes() -> Vec<Node> {
    let node = |index: usize| {
        let (block, rack) = (format!("b{}", index / 16), format!("r{}", index / 4));
        let labels = [(ZONE, "z"), (BLOCK, block.as_str()), (RACK, rack.as_str())];
        node(&format!("n{index:02}"), &labels, &CAPACITY)
    };
    (0..64).map(node).collect()
}

/// A namespace of a test.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) record: &'static Record,
}

impl Stage {
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        let stage = Self::existing(namespace).await?;
        PLANE.get().await?.create_namespace(namespace).await?;
        Ok(stage)
    }

    /// A namespace that is there.
    pub(crate) async fn existing(namespace: &str) -> Result<Self> {
        let plane = PLANE.get().await?;
        let record = STARTED.get_or_try_init(|| start(plane)).await?;
        Ok(Self {
            client: plane.client(Identity::Admin).await?,
            namespace: namespace.to_owned(),
            record,
        })
    }

    /// A client of the operator's account.
    pub(crate) async fn operator(&self) -> Result<Client> {
        Ok(PLANE.get().await?.client(Identity::Operator).await?)
    }

    /// Graphs in one of their versions, as they are on the wire.
    pub(crate) fn graphs(&self, version: &str) -> Api<DynamicObject> {
        graphs(&self.client, &self.namespace, version)
    }

    /// Writes a graph in the version that it says.
    pub(crate) async fn create(&self, manifest: &Value) -> Result<Value, kube::Error> {
        let made = create(&self.client, &self.namespace, manifest, false).await?;
        Ok(serde_json::to_value(made).expect("JSON"))
    }

    pub(crate) async fn stored(&self, name: &str) -> Result<DynamoGraphDeployment> {
        Ok(Api::namespaced(self.client.clone(), &self.namespace).get(name).await?)
    }

    /// Waits until a condition of a graph says this, word for word.
    pub(crate) async fn says(&self, graph: &str, type_: &str, saying: Saying<'_>) -> Result<()> {
        let what = format!("{type_} of {}/{graph} to be {saying:?}", self.namespace);
        eventually(what, LIMIT, async || -> Result<()> {
            let conditions = self.stored(graph).await?.status.unwrap_or_default().conditions;
            let mut found = conditions.iter().filter(|condition| condition.type_ == type_);
            let found = found.next().context("it is not there")?;
            let found = (found.status.as_str(), found.reason.as_str(), found.message.as_str());
            ensure!(found == saying, "it is {found:?}");
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// The same of the constraints, by both names of the condition.
    pub(crate) async fn says_of_constraints(&self, graph: &str, saying: Saying<'_>) -> Result<()> {
        self.says(graph, conditions::ENFORCED, saying).await?;
        self.says(graph, conditions::LEVELS_AVAILABLE, saying).await
    }

    /// Waits until all of a graph runs, and says so.
    pub(crate) async fn is_ready(&self, graph: &str) -> Result<()> {
        let count = self.stored(graph).await?.spec.components.len();
        let message = format!("All {count} components are ready");
        self.says(graph, conditions::READY, ("True", "all_resources_are_ready", &message))
            .await
    }
}

/// What a condition says: status, reason, message.
pub(crate) type Saying<'a> = (&'a str, &'a str, &'a str);

/// What is said of constraints that are kept.
pub(crate) const KEPT: Saying<'_> = (
    "True",
    "AllTopologyLevelsAvailable",
    "All required topology levels are available",
);

/// Graphs in one of their versions, as they are on the wire.
pub(crate) fn graphs(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("nvidia.com", version, "DynamoGraphDeployment");
    let resource = ApiResource::from_gvk_with_plural(&kind, "dynamographdeployments");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Writes a graph in the version that it says, or has it judged only.
pub(crate) async fn create(
    client: &Client,
    namespace: &str,
    manifest: &Value,
    dry_run: bool,
) -> Result<DynamicObject, kube::Error> {
    let version = manifest["apiVersion"].as_str().unwrap_or_default();
    let version = version.rsplit('/').next().unwrap_or_default();
    let object: DynamicObject = serde_json::from_value(manifest.clone()).expect("an object");
    let params = PostParams {
        dry_run,
        ..PostParams::default()
    };
    graphs(client, namespace, version).create(&params, &object).await
}

async fn client(plane: &ControlPlane, identity: Identity) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(identity))?;
    let made = RUNTIME.spawn(async move {
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        anyhow::Ok(Client::try_from(config)?)
    });
    made.await?
}

fn settings() -> OperatorConfiguration {
    // What sets of users get that say nothing, graphs do not get.
    let topologies = with_policies(&["zone", "block", "rack", "host"], ", defaultPackDomain: rack");
    let text = format!("{topologies}dynamo: {{enabled: true}}\n");
    configuration(&text, &SchedulerProfile::Grove)
}

/// Starts everything; it ends with the process.
async fn start(plane: &ControlPlane) -> Result<Record> {
    install_kinds(plane, &[]).await?;
    upgrade::install(plane).await?;
    start_webhooks(plane, rights::cluster_role()).await?;
    let (operator, scheduler) = (
        client(plane, Identity::Operator).await?,
        client(plane, Identity::Admin).await?,
    );
    RUNTIME.spawn(run(operator, scheduler, settings())).await??;
    let watching = client(plane, Identity::Admin).await?;
    Ok(RUNTIME.spawn(async move { Record::start(&watching) }).await?)
}

/// Starts the webhooks of an operator with this role, and returns when they are asked.
pub(crate) async fn start_webhooks(plane: &ControlPlane, role: ClusterRole) -> Result<()> {
    let admin = plane.client(Identity::Admin).await?;
    plane.create_namespace(HOME.namespace).await?;
    grant(&admin, role).await?;
    let operator = client(plane, Identity::Operator).await?;
    RUNTIME.spawn(serve(operator, settings())).await??;
    let is_asked = async || asked(&admin).await;
    Ok(eventually("the webhooks to be asked", LIMIT, is_asked).await?)
}

/// Gives the operator's account this role, and all others that the chart gives it.
async fn grant(admin: &Client, role: ClusterRole) -> Result<()> {
    async fn make<K>(api: Api<K>, object: &K) -> Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        api.create(&PostParams::default(), object).await?;
        Ok(())
    }
    let (cluster_wide, at_home) = rights::bindings(HOME.namespace);
    make(Api::all(admin.clone()), &role).await?;
    make(Api::all(admin.clone()), &cluster_wide).await?;
    make(Api::namespaced(admin.clone(), HOME.namespace), &rights::role(&HOME)).await?;
    make(Api::namespaced(admin.clone(), HOME.namespace), &at_home).await?;
    make(Api::all(admin.clone()), &rights::dynamo_cluster_role()).await?;
    make(Api::all(admin.clone()), &rights::dynamo_binding(HOME.namespace)).await
}

/// Webhooks on a port of their own; returns when they are registered.
async fn serve(operator: Client, configuration: OperatorConfiguration) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let admission = Admission {
        client: operator.clone(),
        policy: Policy::new(&configuration, Identity::Operator.username()),
        endpoint: Endpoint::Url(format!("https://{}", listener.local_addr()?)),
        turn: Turn::AtOnce,
        provision: Provision::Auto(Box::new(Auto {
            client: operator,
            namespace: HOME.namespace.to_owned(),
            secret: HOME.secret.to_owned(),
            names: server_names("grove-operator", HOME.namespace, None),
            lifetimes: Lifetimes::default(),
        })),
    };
    let (ready, mut is_ready) = watch::channel(false);
    tokio::spawn(async move {
        let served = admission
            .run(listener, Timestamp::now, ready, CancellationToken::new())
            .await;
        served.expect("good certificates");
    });
    tokio::time::timeout(LIMIT, is_ready.wait_for(|ready| *ready)).await??;
    Ok(())
}

/// The operator, the scheduler and the controller of graphs.
async fn run(operator: Client, scheduler: Client, configuration: OperatorConfiguration) -> Result<()> {
    let settings = Settings {
        scheduler: configuration.scheduler.clone(),
        topology: configuration.topology_aware_scheduling.clone(),
        wait_image: "grove".to_owned(),
        pins: false,
        workers: 8,
        clock: Arc::new(Timestamp::now),
    };
    grove_controllers::start(&operator, &settings).await?;
    let workload = Operator::new(operator.clone(), settings);
    let graphs = Controller::new(
        operator,
        controller::Settings {
            around: Surroundings::new(&configuration),
            workers: 4,
            clock: Arc::new(Timestamp::now),
        },
    );
    let settings = grove_scheduler::Settings {
        policy: grove_scheduler::Policy::new(&configuration),
        ..grove_scheduler::Settings::default()
    };
    let scheduler = Scheduler::new(scheduler, settings);
    tokio::spawn(async move { workload.run(CancellationToken::new()).await });
    tokio::spawn(async move { graphs.run(CancellationToken::new()).await });
    tokio::spawn(async move { scheduler.run(CancellationToken::new()).await });
    Ok(())
}

/// Whether the API server asks about a graph, and has it converted.
async fn asked(admin: &Client) -> Result<()> {
    let probe = json!({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": "probe"},
        "spec": {"services": {}}});
    match create(admin, "default", &probe, true).await {
        Err(kube::Error::Api(status)) if status.message.contains("must have at least one component") => Ok(()),
        other => anyhow::bail!("an empty graph is not refused by rule: {other:?}"),
    }
}
