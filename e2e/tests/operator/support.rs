//! One control plane and one operator for all tests of this binary. The operator has the rights of its role, and no
//! others.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use anyhow::{Result, ensure};
use grove_api::PodCliqueSet;
use grove_api::config::{self, Overrides};
use grove_controllers::{Operator, Settings};
use grove_e2e::{ControlPlane, Identity, Shared, eventually};
use grove_scenarios::compute_domain_definition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::space::{Kind, LIMIT, grant};
pub(crate) use crate::space::{Space as Place, is_ready};
use crate::{kinds, upgrade};

static PLANE: Shared = Shared::new(|| ControlPlane::builder().nodes(20).scheduler(true));
static OPERATOR: OnceCell<()> = OnceCell::const_new();
/// Each test has a runtime of its own; the operator outlives them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads can be started"));

/// Ten pods: two of pc-a, and two replicas of sg-x with one pc-b and three pc-c each; one of everything is enough.
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
        podSpec: {containers: [{name: main, image: one, resources: {requests: {cpu: 10m}}}]}
    - name: pc-b
      spec:
        roleName: pc-b
        replicas: 1
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one, resources: {requests: {cpu: 10m}}}]}
    - name: pc-c
      spec:
        roleName: pc-c
        replicas: 3
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one, resources: {requests: {cpu: 10m}}}]}
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
        let plane = PLANE.get().await?;
        OPERATOR.get_or_try_init(|| start(plane)).await?;
        Place::on(plane, namespace).await
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
        let selector = format!("podSpec: {{nodeSelector: {{test: {}}}, containers", self.namespace);
        WORKLOAD.replace("podSpec: {containers", &selector)
    }

    /// Adds the node that [`Self::pinned`] pods wait for; its name is the place's.
    pub(crate) async fn add_node(&self) -> Result<()> {
        let capacity = [("cpu", "8"), ("memory", "8Gi"), ("pods", "20")];
        let node = grove_e2e::node(&self.namespace, &[("test", &self.namespace)], &capacity);
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

async fn start(plane: &ControlPlane) -> Result<()> {
    install_kinds(plane).await?;
    // Objects of the release before are there when the operator starts, as they are after an upgrade.
    upgrade::install(plane).await?;
    let profile = b"scheduler: {profiles: [{name: default-scheduler, default: true}]}";
    let loaded = config::parse(profile, &Overrides::default());
    let configuration = loaded.map_err(|errors| anyhow::anyhow!("{errors:?}"))?.configuration;
    let settings = Settings {
        scheduler: configuration.scheduler,
        topology: configuration.topology_aware_scheduling,
        wait_image: "grove".to_owned(),
        pins: false,
        workers: 16,
        clock: Arc::new(Timestamp::now),
    };
    grant(plane).await?;
    // The client belongs to the runtime that makes it.
    let config = plane.kubeconfig(Identity::Operator);
    RUNTIME.spawn(async move {
        let kubeconfig = kube::config::Kubeconfig::read_from(config).expect("a kubeconfig that was just written");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
        let client = Client::try_from(config.expect("a config")).expect("a client");
        Operator::new(client, settings).run(CancellationToken::new()).await;
    });
    Ok(())
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
