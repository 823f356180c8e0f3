//! One control plane and one operator for all tests of this binary.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Result, ensure};
use grove_api::config::{self, Overrides};
use grove_api::{PodCliqueSet, crds};
use grove_controllers::{Operator, Settings};
use grove_e2e::{ControlPlane, Identity, Shared, eventually};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

static PLANE: Shared = Shared::new(|| ControlPlane::builder().nodes(20).scheduler(true));
static OPERATOR: OnceCell<()> = OnceCell::const_new();
/// Each test has a runtime of its own; the operator outlives them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads can be started"));

const LIMIT: Duration = Duration::from_secs(60);

/// A namespace of its own on the shared control plane, in which the operator works.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Place {
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        let plane = PLANE.get().await?;
        OPERATOR.get_or_try_init(|| start(plane)).await?;
        plane.create_namespace(namespace).await?;
        Ok(Self {
            client: plane.client(Identity::Admin).await?,
            namespace: namespace.to_owned(),
        })
    }

    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn list<K>(&self) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        Ok(self.all::<K>().list(&ListParams::default()).await?.items)
    }

    pub(crate) async fn create(&self, manifest: &str) -> Result<PodCliqueSet> {
        let set: PodCliqueSet = serde_saphyr::from_str(manifest)?;
        Ok(self.all().create(&PostParams::default(), &set).await?)
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

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> Result<bool>) -> Result<()> {
        eventually(what, LIMIT, async || -> Result<()> {
            ensure!(holds(self).await?, "not yet");
            Ok(())
        })
        .await?;
        Ok(())
    }
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition.status == "True")
}

async fn start(plane: &ControlPlane) -> Result<()> {
    let definitions = Api::all(plane.client(Identity::Admin).await?);
    for definition in crds::all() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    let admin = plane.client(Identity::Admin).await?;
    eventually("our kinds to be served", LIMIT, async || -> Result<()> {
        Api::<PodCliqueSet>::all(admin.clone())
            .list(&ListParams::default())
            .await?;
        Api::<grove_api::PodGang>::all(admin.clone())
            .list(&ListParams::default())
            .await?;
        Ok(())
    })
    .await?;
    let profile = b"scheduler: {profiles: [{name: default-scheduler, default: true}]}";
    let loaded = config::parse(profile, &Overrides::default());
    let configuration = loaded.map_err(|errors| anyhow::anyhow!("{errors:?}"))?.configuration;
    let settings = Settings {
        scheduler: configuration.scheduler,
        topology: configuration.topology_aware_scheduling,
        wait_image: "grove".to_owned(),
        workers: 16,
        clock: Arc::new(Timestamp::now),
    };
    // The client belongs to the runtime that makes it.
    let config = plane.kubeconfig(Identity::Admin);
    RUNTIME.spawn(async move {
        let kubeconfig = kube::config::Kubeconfig::read_from(config).expect("a kubeconfig that was just written");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
        let client = Client::try_from(config.expect("a config")).expect("a client");
        Operator::new(client, settings).run(CancellationToken::new()).await;
    });
    Ok(())
}

pub(crate) fn names<K: Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}
