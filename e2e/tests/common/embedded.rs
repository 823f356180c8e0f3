//! The embedded cluster behind its socket, and clients that show every answer.

use anyhow::Result;
use grove_simcluster::door::Listener;
use grove_simcluster::{Cluster, User};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// The credential of the embedded cluster's administrator.
const TOKEN: &str = "admin-of-the-embedded-cluster";

/// It runs on the runtime that started it.
#[derive(Debug)]
pub(crate) struct Embedded {
    _cluster: Cluster,
    listener: Listener,
}

impl Embedded {
    pub(crate) async fn start() -> Result<Self> {
        // An error means that a provider is installed already, which is all that is wanted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The user that the real control plane's administrator is, so that both answer alike who asks.
        let mut admin = User::named("admin", &["system:masters", "system:authenticated"]);
        admin.uid = "admin".to_owned();
        let now = jiff::Timestamp::now();
        let cluster = Cluster::builder()
            .binder(false)
            .rbac(true)
            .endpoints(true)
            .start_time(now)
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

    pub(crate) async fn client(&self) -> Result<Client> {
        client(Kubeconfig::from_yaml(&self.kubeconfig())?).await
    }
}

/// A client that does not try again: every answer counts.
pub(crate) async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}
