//! All of admission as one future: certificates, registration and the server that needs both.

use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::certificates::{Auto, Manual};
use crate::lookup::Lookup;
use crate::registration::{Endpoint, Turn, Upkeep};
use crate::server::Server;
use crate::steps::Telemetry;
use crate::webhooks::{Policy, Webhooks};

/// Where certificates come from.
#[derive(Clone, Debug)]
pub enum Provision {
    Auto(Box<Auto>),
    Manual(Manual),
}

/// What a replica needs to answer the API server.
pub struct Admission {
    pub client: Client,
    pub policy: Policy,
    pub endpoint: Endpoint,
    pub turn: Turn,
    pub provision: Provision,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Admission {
    /// Serves until `stop`, then lets requests in flight finish. `ready` becomes true when there is a certificate and
    /// the webhooks are registered with it.
    pub async fn run(
        self,
        listener: TcpListener,
        clock: impl Fn() -> Timestamp,
        ready: watch::Sender<bool>,
        stop: CancellationToken,
    ) -> Result<(), rustls::Error> {
        self.run_with(Telemetry::default(), listener, clock, ready, stop).await
    }

    /// The same, telling about itself.
    pub async fn run_with(
        self,
        telemetry: Telemetry,
        listener: TcpListener,
        clock: impl Fn() -> Timestamp,
        ready: watch::Sender<bool>,
        stop: CancellationToken,
    ) -> Result<(), rustls::Error> {
        let (sender, current) = watch::channel(None);
        let (told, trusted) = watch::channel(None);
        telemetry.metrics.follow(current.clone());
        let webhooks = Webhooks::new(self.policy.clone(), Lookup::new(self.client.clone()));
        let webhooks = webhooks.with_telemetry(telemetry);
        let server = Server::new(webhooks, current.clone())?;
        let upkeep = Upkeep {
            client: self.client,
            policy: self.policy,
            endpoint: self.endpoint,
            turn: self.turn,
        };
        let certificates = async {
            match self.provision {
                Provision::Auto(auto) => auto.run(sender, trusted, clock).await,
                Provision::Manual(manual) => manual.run(sender).await,
            }
        };
        tokio::select! {
            () = server.serve(listener, stop) => {}
            ((), ()) = async { tokio::join!(certificates, upkeep.run(current, ready, told)) } => {}
        }
        Ok(())
    }
}
