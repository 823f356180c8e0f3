//! The two clusters that are compared: the real control plane and the embedded one, both behind HTTPS on loopback.
//!
//! Tests that compare them share one runtime, because the embedded cluster lives on the runtime that started it.

use std::sync::LazyLock;

use anyhow::Result;
use grove_e2e::{ControlPlane, Identity, Shared};
use grove_simcluster::door::Listener;
use grove_simcluster::{Cluster, User};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// The credential of the embedded cluster's administrator.
const TOKEN: &str = "admin-of-the-embedded-cluster";

/// No kubelets: nothing but the tests writes to nodes and pods.
static REAL: Shared = Shared::new(|| ControlPlane::builder().kubelets(false));
static EMBEDDED: OnceCell<Embedded> = OnceCell::const_new();

/// On it run both clusters' clients and the embedded cluster.
pub(crate) static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new().expect("the system gives threads to a test"));

/// The embedded cluster behind its socket.
#[derive(Debug)]
pub(crate) struct Embedded {
    _cluster: Cluster,
    listener: Listener,
}

impl Embedded {
    async fn start() -> Result<Self> {
        // The user that the real control plane's administrator is, so that both answer alike who asks.
        let mut admin = User::named("admin", &["system:masters", "system:authenticated"]);
        admin.uid = "admin".to_owned();
        let cluster = Cluster::builder()
            .binder(false)
            .start_time(jiff::Timestamp::now())
            .start();
        cluster.server().trust_token(TOKEN, admin);
        let listener = cluster.listen(([127, 0, 0, 1], 0).into()).await?;
        Ok(Self {
            _cluster: cluster,
            listener,
        })
    }

    pub(crate) fn kubeconfig(&self) -> String {
        self.listener.kubeconfig(TOKEN)
    }
}

/// The real control plane.
pub(crate) async fn real() -> Result<&'static ControlPlane> {
    Ok(REAL.get().await?)
}

/// The embedded cluster.
pub(crate) async fn embedded() -> Result<&'static Embedded> {
    // Also installs the process's TLS provider, which a client needs.
    real().await?;
    EMBEDDED.get_or_try_init(Embedded::start).await
}

/// Clients of both, the real one first. They do not try again: every answer counts.
pub(crate) async fn clients() -> Result<[Client; 2]> {
    let real = Kubeconfig::read_from(real().await?.kubeconfig(Identity::Admin))?;
    let embedded = Kubeconfig::from_yaml(&embedded().await?.kubeconfig())?;
    Ok([client(real).await?, client(embedded).await?])
}

async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}
