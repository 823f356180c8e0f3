//! The real webhooks, reached by the embedded cluster through a pipe, over TLS as in a real one.

use std::sync::OnceLock;

use grove_admission::certificates::{Change, Lifetimes, Material, carry_out};
use grove_admission::registration::{Endpoint, registration};
use grove_admission::{Lookup, Policy, Server, Webhooks};
use grove_api::config::OperatorConfiguration;
use grove_simcluster::Cluster;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process::Role;

const NAMESPACE: &str = "grove-system";
const SERVICE: &str = "grove-operator";
const HOST: &str = "grove-operator.grove-system.svc";

/// Certificates are made once: all clusters start at the same time. They are a day old then, so that clocks can go back.
fn material(start: Timestamp) -> &'static Material {
    static MADE: OnceLock<Material> = OnceLock::new();
    MADE.get_or_init(|| {
        let made_at = start.saturating_sub(SignedDuration::from_hours(24));
        let made_at = made_at.expect("subtracting a signed duration saturates");
        let made = carry_out(
            Change::Everything,
            None,
            &[HOST.to_owned()],
            made_at,
            &Lifetimes::default(),
        );
        made.expect("a constant name makes good certificates")
    })
}

/// Answers reviews until it is dropped, or told to stop.
pub(crate) async fn serve(
    cluster: &Cluster,
    configuration: &OperatorConfiguration,
    client: Client,
    stop: CancellationToken,
) {
    let policy = Policy::new(configuration, Role::Operator.user());
    let certificates = material(cluster.clock().now())
        .certificates()
        .expect("certificates that were just made can be read");
    // Kept so that the certificate stays in force.
    let (_sender, current) = watch::channel(Some(certificates));
    let webhooks = Webhooks::new(policy, Lookup::new(client));
    let server =
        Server::new(webhooks, current).expect("the only TLS provider supports the versions that are asked for");
    let mut listener = cluster.network().listen(&format!("{HOST}:443"));
    let mut connections = JoinSet::new();
    while let Some(Some(stream)) = stop.run_until_cancelled(listener.accept()).await {
        let (server, stop) = (server.clone(), stop.clone());
        connections.spawn(async move { server.serve_stream(stream, stop).await });
        while connections.try_join_next().is_some() {}
    }
    while connections.join_next().await.is_some() {}
}

/// Lets the API server ask the webhooks from now on.
pub(crate) async fn register(cluster: &Cluster, configuration: &OperatorConfiguration) -> Result<(), kube::Error> {
    let policy = Policy::new(configuration, Role::Operator.user());
    let endpoint = Endpoint::Service {
        namespace: NAMESPACE.to_owned(),
        name: SERVICE.to_owned(),
        port: 443,
    };
    let authorities = &material(cluster.clock().now()).data()["ca.crt"].0;
    let authorities = String::from_utf8_lossy(authorities);
    let registration = registration(&policy, &endpoint, Some(&authorities));
    let client = cluster.client();
    for webhooks in &registration.mutating {
        let all = Api::all(client.clone());
        all.create(&PostParams::default(), webhooks).await?;
    }
    for webhooks in &registration.validating {
        let all = Api::all(client.clone());
        all.create(&PostParams::default(), webhooks).await?;
    }
    Ok(())
}
