//! The operator's webhooks as its configuration wants them: where they listen, how the API server finds them, whose
//! certificates they use. What they answer is `grove-admission`'s.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use grove_admission::certificates::{Auto, Lifetimes, Manual, server_names};
use grove_admission::registration::{Endpoint, Turn};
use grove_admission::{Admission, Policy, Provision, Telemetry};
use grove_api::config::{CertProvisionMode, OperatorConfiguration, TopologyAwareScheduling, WebhookServer};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::Cluster;
use crate::exit::Failure;

/// The Service that the chart puts in front of the operator's replicas.
const SERVICE: &str = "grove-operator";

/// Webhooks for the operator that `user` is to the API server. `topology` is what is in force of its settings.
pub(crate) fn admission(
    configuration: &OperatorConfiguration,
    topology: &TopologyAwareScheduling,
    (cluster, user): (&Cluster, &str),
) -> Admission {
    let server = &configuration.server.webhooks;
    let provision = match server.cert_provision_mode {
        CertProvisionMode::Auto => Provision::Auto(Box::new(Auto {
            client: cluster.client.clone(),
            namespace: cluster.namespace.clone(),
            secret: server.secret_name.clone(),
            names: server_names(SERVICE, &cluster.namespace, server.listener.bind_address.0),
            lifetimes: Lifetimes::default(),
        })),
        CertProvisionMode::Manual => Provision::Manual(Manual {
            dir: server.server_cert_dir.clone().into(),
        }),
    };
    Admission {
        client: cluster.client.clone(),
        policy: Policy {
            topology: topology.clone(),
            ..Policy::new(configuration, user)
        },
        endpoint: endpoint(server, cluster.is_inside.then_some(&cluster.namespace)),
        turn: Turn::AtOnce,
        provision,
    }
}

/// Webhooks that are being served.
#[derive(Debug)]
pub(crate) struct Serving {
    task: JoinHandle<Result<(), rustls::Error>>,
    ready: watch::Receiver<bool>,
    /// Tells that this replica leads, where the webhooks wait for that.
    leads: Option<watch::Sender<bool>>,
    stop: CancellationToken,
}

impl Serving {
    /// Serves, and registers the webhooks at once.
    pub(crate) fn start(admission: Admission, listener: TcpListener, telemetry: Telemetry) -> Self {
        let (sender, ready) = watch::channel(false);
        let stop = CancellationToken::new();
        let serving = admission.run_with(telemetry, listener, Timestamp::now, sender, stop.clone());
        let task = tokio::spawn(serving);
        Self {
            task,
            ready,
            leads: None,
            stop,
        }
    }

    /// Serves, and registers the webhooks when this replica leads: for replicas that each have an address of their own,
    /// of which the API server can know only one.
    pub(crate) fn stand_by(mut admission: Admission, listener: TcpListener, telemetry: Telemetry) -> Self {
        let (leads, turn) = watch::channel(false);
        admission.turn = Turn::WhenTrue(turn);
        Self {
            leads: Some(leads),
            ..Self::start(admission, listener, telemetry)
        }
    }

    /// Returns when there is a certificate and the API server knows of the webhooks; at once while they wait for the lead.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        if self.leads.is_some() {
            return Ok(());
        }
        let ready = self.ready.wait_for(|ready| *ready).await;
        ready
            .map(drop)
            .map_err(|_| Failure::NoAnswer("the webhook server ended; the log says why".to_owned()))
    }

    /// Takes over: returns when the API server knows of the webhooks of this replica.
    pub(crate) async fn lead(&mut self) -> Result<(), Failure> {
        if let Some(leads) = self.leads.take() {
            leads.send_replace(true);
        }
        self.ready().await
    }

    /// Lets requests in flight finish, but not for longer than `patience`.
    pub(crate) async fn stop(mut self, patience: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(patience, &mut self.task).await.is_err() {
            tracing::warn!("webhook requests were still running; dropped them");
            self.task.abort();
        }
    }
}

/// Inside a cluster the Service leads here; from outside the API server must reach the address itself.
fn endpoint(server: &WebhookServer, own_namespace: Option<&String>) -> Endpoint {
    let port = server.listener.port;
    match own_namespace {
        Some(namespace) => Endpoint::Service {
            namespace: namespace.clone(),
            name: SERVICE.to_owned(),
            port,
        },
        None => {
            let address = server.listener.bind_address.0;
            let address = address.filter(|address| !address.is_unspecified());
            let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            Endpoint::Url(format!("https://{}", SocketAddr::new(address, port)))
        }
    }
}

#[cfg(test)]
mod tests {
    use grove_api::config::{self, Overrides};

    use super::*;

    fn server(bind_address: &str) -> WebhookServer {
        let text = format!("server: {{webhooks: {{bindAddress: '{bind_address}', port: 9443}}}}");
        let loaded = config::parse(text.as_bytes(), &Overrides::default()).unwrap();
        loaded.configuration.server.webhooks
    }

    #[test]
    fn the_api_server_is_told_a_service_inside_and_an_address_outside() {
        let inside = endpoint(&server(""), Some(&"ns".to_owned()));
        let service = Endpoint::Service {
            namespace: "ns".into(),
            name: "grove-operator".into(),
            port: 9443,
        };
        assert_eq!(inside, service);
        let outside = |address: &str| endpoint(&server(address), None);
        assert_eq!(outside(""), Endpoint::Url("https://127.0.0.1:9443".into()));
        assert_eq!(outside("0.0.0.0"), Endpoint::Url("https://127.0.0.1:9443".into()));
        assert_eq!(outside("10.0.0.7"), Endpoint::Url("https://10.0.0.7:9443".into()));
        assert_eq!(outside("fd00::1"), Endpoint::Url("https://[fd00::1]:9443".into()));
    }
}
