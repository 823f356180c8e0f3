//! One control plane, one operator and one scheduler of gangs for all tests of this binary. Both have the rights of their
//! roles, and no others.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Result, ensure};
use grove_api::config::{self, OperatorConfiguration, Overrides};
use grove_api::{PodCliqueSet, PodGang, rights};
use grove_controllers::{Operator, Settings};
use grove_e2e::{ControlPlane, Identity, Shared, eventually};
use grove_scenarios::audit::{Audit, Terms};
use grove_scenarios::compute_domain_definition;
use grove_scheduler::{Policy, Scheduler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Client, Config, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::record::Record;
use crate::space::{Kind, LIMIT, grant};
pub(crate) use crate::space::{Space as Place, is_ready};
use crate::{kinds, upgrade};

static PLANE: Shared = Shared::new(|| ControlPlane::builder().nodes(20).scheduler(true));
static RECORD: OnceCell<Record> = OnceCell::const_new();
/// Each test has a runtime of its own; operator, scheduler and record outlive them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads can be started"));

/// Sets that name no scheduler belong to the one before: what the release before left names none.
const PROFILES: &[u8] = b"scheduler: {profiles: [{name: default-scheduler, default: true}, {name: grove-scheduler}]}";
/// Shorter than the usual one, which is longer than tests should be.
const GRACE: Duration = Duration::from_secs(5);

/// Ten pods: two of pc-a, and two replicas of sg-x with one pc-b and three pc-c each; one of everything is enough. Our
/// scheduler places them.
pub(crate) const WORKLOAD: &str = r#"
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: w}
spec:
  replicas: 1
  template:
    cliques:
    - name: pc-a
      spec:
        roleName: pc-a
        replicas: 2
        minAvailable: 1
        podSpec: {schedulerName: grove-scheduler, containers: [{name: main, image: one, resources: {requests: {cpu: 10m}}}]}
    - name: pc-b
      spec:
        roleName: pc-b
        replicas: 1
        minAvailable: 1
        podSpec: {schedulerName: grove-scheduler, containers: [{name: main, image: one, resources: {requests: {cpu: 10m}}}]}
    - name: pc-c
      spec:
        roleName: pc-c
        replicas: 3
        minAvailable: 1
        podSpec: {schedulerName: grove-scheduler, containers: [{name: main, image: one, resources: {requests: {cpu: 10m}}}]}
    podCliqueScalingGroups:
    - {name: sg-x, cliqueNames: [pc-b, pc-c], replicas: 2, minAvailable: 1}
"#;

impl Place {
    /// A namespace of its own on the shared control plane, in which the operator works.
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        let place = Self::existing(namespace).await?;
        PLANE.get().await?.create_namespace(namespace).await?;
        Ok(place)
    }

    /// The same in a namespace that is there.
    pub(crate) async fn existing(namespace: &str) -> Result<Self> {
        let (plane, _) = stage().await?;
        Place::on(plane, namespace).await
    }

    /// Judges every moment of this place up to now: its gangs were placed whole, on nodes with room for them.
    pub(crate) async fn audit(&self) -> Result<()> {
        let (_, record) = stage().await?;
        let mut moments = record.moments(&self.client).await?;
        moments.retain(|moment| moment.namespace.is_empty() || moment.namespace == self.namespace);
        ensure!(Audit::of(moments, Terms::calm(GRACE)).binds > 0, "nothing was bound");
        Ok(())
    }

    /// Waits until a gang is placed, or is said not to be.
    pub(crate) async fn scheduled(&self, gang: &str, status: &str) -> Result<()> {
        self.until(&format!("Scheduled of gang {gang} to be {status}"), async |place| {
            let gang = place.all::<PodGang>().get_opt(gang).await?;
            let conditions = gang.and_then(|gang| gang.status).unwrap_or_default().conditions;
            let mut scheduled = conditions.iter().filter(|condition| condition.type_ == "Scheduled");
            Ok(scheduled.any(|condition| condition.status == status))
        })
        .await
    }

    pub(crate) async fn merge<K: Kind>(&self, name: &str, patch: Value) -> Result<K> {
        let patch = Patch::Merge(patch);
        Ok(self.all::<K>().patch(name, &PatchParams::default(), &patch).await?)
    }

    /// Changes the set `w` by a JSON patch of its template.
    pub(crate) async fn edit_template(&self, operation: &str, path: &str, value: Value) -> Result<PodCliqueSet> {
        let patch = json!([{"op": operation, "path": format!("/spec/template{path}"), "value": value}]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
        Ok(self.all().patch("w", &PatchParams::default(), &patch).await?)
    }

    /// Gives the n-th clique of the set `w` another image.
    pub(crate) async fn set_image(&self, clique: usize, image: &str) -> Result<PodCliqueSet> {
        let path = format!("/cliques/{clique}/spec/podSpec/containers/0/image");
        self.edit_template("replace", &path, json!(image)).await
    }

    /// Asks for a number of replicas the way an autoscaler does.
    pub(crate) async fn scale<K: Kind>(&self, name: &str, replicas: i32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let api = self.all::<K>();
        api.patch_scale(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The workload with pods that run only on the node of this place.
    pub(crate) fn pinned(&self) -> String {
        let selector = format!("podSpec: {{nodeSelector: {{test: {}}}, schedulerName", self.namespace);
        WORKLOAD.replace("podSpec: {schedulerName", &selector)
    }

    /// Adds the node that [`Self::pinned`] pods wait for, with room for all that a test makes; its name is the place's.
    pub(crate) async fn add_node(&self) -> Result<()> {
        self.add_node_for(20, &self.namespace).await
    }

    /// The same with room for so many pods, and of another name.
    pub(crate) async fn add_node_for(&self, pods: usize, name: &str) -> Result<()> {
        let pods = pods.to_string();
        let capacity = [("cpu", "8"), ("memory", "8Gi"), ("pods", pods.as_str())];
        let node = grove_e2e::node(name, &[("test", &self.namespace)], &capacity);
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.create(&PostParams::default(), &node).await?;
        Ok(())
    }

    /// Whether the node of this place takes no more pods.
    pub(crate) async fn cordon(&self, on: bool) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": on}}));
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch(&self.namespace, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until this many pods are ready and no other pod is left.
    pub(crate) async fn ready(&self, count: usize) -> Result<Vec<Pod>> {
        let pods = eventually("all pods to be ready", LIMIT, async || -> Result<Vec<Pod>> {
            let pods = self.list::<Pod>().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            ensure!(
                ready == count && pods.len() == count,
                "{ready} of {} pods are ready; expected {count}",
                pods.len()
            );
            Ok(pods)
        });
        Ok(pods.await?)
    }
}

/// Makes the API server serve Grove's kinds, and one of NVIDIA's.
pub(crate) async fn install_kinds(plane: &ControlPlane) -> Result<()> {
    let driver = serde_json::from_value(compute_domain_definition())?;
    kinds::install_kinds(plane, &[driver]).await
}

/// The shared control plane with everything that runs on it.
async fn stage() -> Result<(&'static ControlPlane, &'static Record)> {
    let plane = PLANE.get().await?;
    let record = RECORD.get_or_try_init(async || -> Result<Record> {
        install_kinds(plane).await?;
        // Objects of the release before are there when the operator starts, as they are after an upgrade.
        upgrade::install(plane).await?;
        start(plane).await?;
        let client = connect(plane, Identity::Admin, None).await?;
        Ok(RUNTIME.spawn(async move { Record::start(&client) }).await?)
    });
    Ok((plane, record.await?))
}

/// Starts an operator and a scheduler of gangs on a control plane that serves Grove's kinds. They end with the process.
pub(crate) async fn start(plane: &ControlPlane) -> Result<()> {
    grant(plane).await?;
    run_operator(plane, CancellationToken::new()).await?;
    let (admin, params) = (plane.client(Identity::Admin).await?, PostParams::default());
    let (cluster_wide, _) = rights::scheduler::bindings("grove-system");
    let role = rights::scheduler::cluster_role();
    Api::all(admin.clone()).create(&params, &role).await?;
    Api::all(admin).create(&params, &cluster_wide).await?;
    let user = format!("system:serviceaccount:grove-system:{}", rights::scheduler::NAME);
    let policy = Policy {
        grace: GRACE,
        ..Policy::new(&configuration()?)
    };
    let settings = grove_scheduler::Settings {
        policy,
        ..grove_scheduler::Settings::default()
    };
    let scheduler = Scheduler::new(connect(plane, Identity::Admin, Some(user)).await?, settings);
    RUNTIME.spawn(async move { scheduler.run(CancellationToken::new()).await });
    Ok(())
}

fn configuration() -> Result<OperatorConfiguration> {
    let loaded = config::parse(PROFILES, &Overrides::default());
    Ok(loaded.map_err(|errors| anyhow::anyhow!("{errors:?}"))?.configuration)
}

/// Starts an operator that ends when it is told to, or with the process.
pub(crate) async fn run_operator(plane: &ControlPlane, stop: CancellationToken) -> Result<JoinHandle<()>> {
    let configuration = configuration()?;
    let settings = Settings {
        scheduler: configuration.scheduler,
        topology: configuration.topology_aware_scheduling,
        wait_image: "grove".to_owned(),
        pins: false,
        workers: 16,
        clock: Arc::new(Timestamp::now),
    };
    let operator = Operator::new(connect(plane, Identity::Operator, None).await?, settings);
    Ok(RUNTIME.spawn(async move { operator.run(stop).await }))
}

/// A client that outlives the runtime of a test.
async fn connect(plane: &ControlPlane, identity: Identity, acts_as: Option<String>) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(identity))?;
    let made = RUNTIME.spawn(async move {
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        config.auth_info.impersonate = acts_as;
        anyhow::Ok(Client::try_from(config)?)
    });
    made.await?
}

pub(crate) fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(ResourceExt::uid).collect()
}

pub(crate) fn images(pods: &[Pod]) -> BTreeSet<String> {
    let image = |pod: &Pod| pod.spec.as_ref()?.containers[0].image.clone();
    pods.iter().filter_map(image).collect()
}

pub(crate) fn names<K: Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}
