//! What tests do with an embedded cluster on virtual time, whatever runs on it; and what runs.

use std::fmt::Debug;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use grove_api::crds;
use grove_simcluster::Cluster;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A kind that tests read and write.
pub trait Kind: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug {}

impl<K> Kind for K where K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug
{}

/// Whether a pod is ready and stays.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition.status == "True")
}

/// Makes Grove's kinds, whose definitions are written once: to compute their schemas takes longer than most tests.
pub async fn install_kinds(client: &Client) {
    static WRITTEN: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let written = WRITTEN.get_or_init(|| {
        let all = crds::all().into_iter();
        all.map(|definition| serde_json::to_vec(&definition).unwrap()).collect()
    });
    for definition in written {
        let request = http::Request::post(DEFINITIONS).body(definition.clone());
        client.request_text(request.unwrap()).await.unwrap();
    }
}

/// Waits until nothing has been written for a while; false if that does not come in time.
pub async fn comes_to_rest(cluster: &Cluster, quiet: Duration, patience: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() <= patience {
        let revision = cluster.store().revision();
        tokio::time::sleep(quiet).await;
        if cluster.store().revision() == revision {
            return true;
        }
    }
    false
}

/// Waits until something holds: asked after every write, never by the clock. False if it does not in time.
pub async fn comes_true(cluster: &Cluster, patience: Duration, holds: impl AsyncFn() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    let mut writes = cluster.store().tap();
    while !holds().await {
        if tokio::time::timeout_at(deadline, writes.recv()).await.is_err() {
            return false;
        }
        while writes.try_recv().is_ok() {}
    }
    true
}

/// Something that runs until it is told to end.
#[derive(Debug)]
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub fn start<F>(run: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(stop.clone()));
        Self { stop, task }
    }

    /// Ends it as a signal does.
    pub async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Ends it where it stands, as a crash does.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
