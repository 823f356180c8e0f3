//! `server` and `debugging`: every socket that the operator listens on.
//!
//! Port 0 switches the health or metrics server off. The webhook server has no switch: the API server would refuse
//! every write to our kinds without it.

use std::net::{IpAddr, Ipv4Addr};

use serde::Serialize;
use serde_json::Value;

use super::names::is_dns_subdomain;
use super::section::{Section, Setting, shown};
use super::words::words;

words! {
    /// Where the webhook server's certificate comes from.
    pub enum CertProvisionMode {
        /// The operator makes and rotates it.
        Auto = "auto",
        /// Someone else puts it into `serverCertDir`.
        Manual = "manual",
    }
}

/// An address to listen on; empty in the file, `None` here: every address of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct BindAddress(pub Option<IpAddr>);

impl Setting for BindAddress {
    fn expected() -> String {
        "an IP address such as 127.0.0.1, or empty for every address".into()
    }

    fn from_value(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "" => Some(Self(None)),
            _ => IpAddr::from_value(value).map(|address| Self(Some(address))),
        }
    }
}

/// An HTTP server; off when its port is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    pub bind_address: BindAddress,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    pub webhooks: WebhookServer,
    pub health_probes: Listener,
    pub metrics: Listener,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookServer {
    #[serde(flatten)]
    pub listener: Listener,
    pub server_cert_dir: String,
    pub secret_name: String,
    pub cert_provision_mode: CertProvisionMode,
}

/// `debugging`: CPU profiles over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Debugging {
    pub enable_profiling: bool,
    pub pprof_bind_host: IpAddr,
    pub pprof_bind_port: u16,
}

impl Server {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            webhooks: section.section("webhooks", WebhookServer::read),
            health_probes: section.section("healthProbes", |section| Listener::read(section, 2751)),
            metrics: section.section("metrics", |section| Listener::read(section, 2752)),
        }
    }

    /// Full path and number of each port that is in use.
    pub(super) fn ports(&self) -> Vec<(&'static str, u16)> {
        [
            ("server.webhooks.port", self.webhooks.listener.port),
            ("server.healthProbes.port", self.health_probes.port),
            ("server.metrics.port", self.metrics.port),
        ]
        .into_iter()
        .filter(|(_, port)| *port != 0)
        .collect()
    }
}

impl Listener {
    fn read(section: &mut Section<'_>, default_port: u16) -> Self {
        Self {
            bind_address: section.or("bindAddress", BindAddress(None)),
            port: section.or("port", default_port),
        }
    }
}

impl WebhookServer {
    fn read(section: &mut Section<'_>) -> Self {
        let server = Self {
            listener: Listener::read(section, 2750),
            server_cert_dir: section.or_else("serverCertDir", || "/etc/grove-operator/webhook-certs".into()),
            secret_name: section.or_else("secretName", || "grove-webhook-server-cert".into()),
            cert_provision_mode: section.or("certProvisionMode", CertProvisionMode::Auto),
        };
        if server.listener.port == 0 {
            let message = "must not be 0: without webhooks the API server refuses every write to Grove's kinds";
            section.problem("port", message.into());
        }
        if server.server_cert_dir.is_empty() {
            section.problem("serverCertDir", r#"must be a directory, not """#.into());
        }
        if !is_dns_subdomain(&server.secret_name) {
            let name = shown(&server.secret_name.as_str().into());
            section.problem("secretName", format!("must be the name of a Secret, not {name}"));
        }
        server
    }
}

impl Debugging {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let debugging = Self {
            enable_profiling: section.or("enableProfiling", false),
            pprof_bind_host: section.or("pprofBindHost", IpAddr::V4(Ipv4Addr::LOCALHOST)),
            pprof_bind_port: section.or("pprofBindPort", 2753),
        };
        if debugging.pprof_bind_port == 0 {
            let message = "must not be 0; to switch profiling off, set enableProfiling: false";
            section.problem("pprofBindPort", message.into());
        }
        debugging
    }

    /// Full path and number of the port, if it is in use.
    pub(super) fn port(&self) -> Option<(&'static str, u16)> {
        self.enable_profiling
            .then_some(("debugging.pprofBindPort", self.pprof_bind_port))
    }
}
