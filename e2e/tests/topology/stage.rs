//! A real control plane as a stage: kube-apiserver, garbage collection, kube-scheduler, kwok's kubelets, and operators and
//! schedulers in this process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use grove_admission::certificates::{Auto, Lifetimes, server_names};
use grove_admission::registration::{Endpoint, Turn};
use grove_admission::{Admission, Policy, Provision};
use grove_api::config::{OperatorConfiguration, ProfileName, SchedulerProfile};
use grove_api::{ClusterTopology, PodCliqueSet};
use grove_controllers::{Operator, Settings};
use grove_e2e::{ControlPlane, Identity, Shared, eventually, node};
use grove_scenarios::audit::{Audit, Terms};
use grove_scenarios::embedded::Running;
use grove_scenarios::{CAPACITY, Stage, configuration, nodes, set};
use grove_scheduler::{Policy as PlacingPolicy, Scheduler};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, watch};

use crate::kinds::install_kinds;
use crate::record::Record;

const LIMIT: Duration = Duration::from_secs(90);
const OPERATORS_NAMESPACE: &str = "grove-system";
/// What scenarios install that is not Grove's.
const FOREIGN: [&str; 3] = [
    "topologies.kai.scheduler",
    "podgroups.scheduling.run.ai",
    "noderesourcetopologies.topology.node.k8s.io",
];

static PLANE: Shared = Shared::new(|| {
    let nodes = nodes().map(|(name, labels)| node(name, &labels, &CAPACITY));
    ControlPlane::builder().node_objects(nodes).scheduler(true)
});
static KINDS: OnceCell<()> = OnceCell::const_new();

pub(crate) struct RealStage {
    admin: Client,
    operator: Client,
    namespace: String,
    placer: SchedulerProfile,
    record: Record,
    webhooks: Option<Running>,
    controllers: Option<Running>,
    scheduler: Option<Running>,
}

impl RealStage {
    /// An empty stage in a namespace, on which gangs are placed by a profile.
    pub(crate) async fn set_up(namespace: &str, placer: SchedulerProfile) -> Result<Self> {
        let plane = PLANE.get().await?;
        let admin = plane.client(Identity::Admin).await?;
        KINDS
            .get_or_try_init(async || {
                plane.create_namespace(OPERATORS_NAMESPACE).await?;
                install_kinds(plane, &[]).await
            })
            .await?;
        plane.create_namespace(namespace).await?;
        Ok(Self {
            operator: operator(plane).await?,
            record: Record::start(&admin),
            admin,
            namespace: namespace.to_owned(),
            placer,
            webhooks: None,
            controllers: None,
            scheduler: None,
        })
    }

    /// Judges every moment since the stage was set up.
    pub(crate) async fn audit(&self) -> Result<Audit> {
        let terms = Terms::calm(PlacingPolicy::default().grace);
        Ok(Audit::of(self.record.moments(&self.admin).await?, terms))
    }

    /// Leaves the control plane as the first scenario found it.
    pub(crate) async fn clear(mut self) -> Result<()> {
        remove_all::<PodCliqueSet>(&self.admin).await?;
        self.end().await?;
        let (delete, every) = (DeleteParams::default(), ListParams::default());
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.admin.clone());
        validating.delete_collection(&delete, &every).await?;
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.admin.clone());
        mutating.delete_collection(&delete, &every).await?;
        remove_all::<ClusterTopology>(&self.admin).await?;
        let definitions = Api::<CustomResourceDefinition>::all(self.admin.clone());
        for name in FOREIGN {
            let _ = definitions.delete(name, &delete).await;
        }
        let gone = async || -> Result<()> {
            for name in FOREIGN {
                ensure!(definitions.get_opt(name).await?.is_none(), "{name} is there");
            }
            Ok(())
        };
        eventually("others' kinds to be gone", LIMIT, gone).await?;
        let nodes = Api::<Node>::all(self.admin.clone());
        for node in nodes.list(&every).await? {
            let patch = Patch::Merge(json!({"spec": {"unschedulable": false}}));
            nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<()> {
        let running = [self.scheduler.take(), self.controllers.take(), self.webhooks.take()];
        for running in running.into_iter().flatten() {
            running.end().await;
        }
        Ok(())
    }

    async fn start(&mut self, text: &str) -> Result<()> {
        self.end().await?;
        let configuration = configuration(text, &self.placer);
        self.webhooks = Some(self.serve(&configuration).await?);
        let placer = configuration.scheduler.default_profile;
        let policy = match placer {
            ProfileName::GroveScheduler => Some(PlacingPolicy::new(&configuration)),
            ProfileName::DefaultScheduler => Some(PlacingPolicy::pinning(&configuration)),
            ProfileName::KaiScheduler | ProfileName::Kueue => None,
        };
        let settings = Settings {
            scheduler: configuration.scheduler,
            topology: configuration.topology_aware_scheduling,
            wait_image: "grove".to_owned(),
            pins: placer == ProfileName::DefaultScheduler,
            workers: 8,
            clock: Arc::new(Timestamp::now),
        };
        grove_controllers::start(&self.operator, &settings).await?;
        let operator = Operator::new(self.operator.clone(), settings);
        self.controllers = Some(Running::start(|stop| async move { operator.run(stop).await }));
        self.scheduler = policy.map(|policy| {
            let settings = grove_scheduler::Settings {
                policy,
                ..grove_scheduler::Settings::default()
            };
            let scheduler = Scheduler::new(self.operator.clone(), settings);
            Running::start(|stop| async move { scheduler.run(stop).await })
        });
        Ok(())
    }

    /// Webhooks on a port of their own; returns when the API server asks them.
    async fn serve(&self, configuration: &OperatorConfiguration) -> Result<Running> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let admission = Admission {
            client: self.operator.clone(),
            policy: Policy::new(configuration, Identity::Operator.username()),
            endpoint: Endpoint::Url(format!("https://{}", listener.local_addr()?)),
            turn: Turn::AtOnce,
            provision: Provision::Auto(Box::new(Auto {
                client: self.operator.clone(),
                namespace: OPERATORS_NAMESPACE.to_owned(),
                secret: "certs".to_owned(),
                names: server_names("grove-operator", OPERATORS_NAMESPACE, None),
                lifetimes: Lifetimes::default(),
            })),
        };
        let (ready, mut is_ready) = watch::channel(false);
        let running = Running::start(|stop| async move {
            let served = admission.run(listener, Timestamp::now, ready, stop).await;
            served.expect("good certificates");
        });
        tokio::time::timeout(LIMIT, is_ready.wait_for(|ready| *ready)).await??;
        eventually("the webhooks to be asked", LIMIT, async || self.probe().await).await?;
        Ok(running)
    }

    /// Whether a set is defaulted and a broken one refused by rule. The API server learns of webhooks by watches of its own,
    /// so for a moment it may ask nobody, or one that has ended.
    async fn probe(&self) -> Result<()> {
        let sets = Api::<PodCliqueSet>::namespaced(self.admin.clone(), &self.namespace);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let probe = set("probe", (1, 1), json!({}));
        let made = sets.create(&dry_run, &probe).await?;
        ensure!(
            made.spec.template.termination_delay.is_some(),
            "defaults are not filled in"
        );
        let broken = set("probe", (1, 1), json!({"terminationDelay": "0s"}));
        match sets.create(&dry_run, &broken).await {
            Err(kube::Error::Api(status)) if status.message.contains("terminationDelay") => Ok(()),
            other => Err(anyhow!("a broken set is not refused: {other:?}")),
        }
    }
}

impl Stage for RealStage {
    fn client(&self) -> &Client {
        &self.admin
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    async fn launch(&mut self, configuration: &str) {
        self.start(configuration).await.expect("an operator that starts");
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let probe = async || match holds(self).await {
            true => Ok(()),
            false => Err("it does not"),
        };
        if let Err(not_yet) = eventually(what, LIMIT, probe).await {
            panic!("{not_yet}");
        }
    }
}

/// The operator's service account, with all rights: what it may not do is the chart's concern.
async fn operator(plane: &ControlPlane) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(Identity::Admin))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = Some(Identity::Operator.username().to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    Ok(Client::try_from(config)?)
}

/// Deletes every object of a kind, whoever holds it.
async fn remove_all<K>(client: &Client) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let all = Api::<K>::all(client.clone());
    let every = ListParams::default();
    for object in all.list(&every).await? {
        let name = object.name_any();
        let path = K::url_path(&(), object.namespace().as_deref());
        let request = http::Request::delete(format!("{path}/{name}")).body(Vec::new())?;
        // One that is gone by itself is as good.
        let _ = client.request_text(request).await;
        let patch = serde_json::to_vec(&json!({"metadata": {"finalizers": null}}))?;
        let request = http::Request::patch(format!("{path}/{name}"))
            .header("Content-Type", "application/merge-patch+json")
            .body(patch)?;
        let _ = client.request_text(request).await;
    }
    let gone = async || -> Result<()> {
        let left = all.list(&every).await?.items.len();
        ensure!(left == 0, "{left} are left");
        Ok(())
    };
    eventually("nothing to be left", LIMIT, gone)
        .await
        .context("clearing the stage")?;
    Ok(())
}
