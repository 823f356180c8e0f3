//! The operator's configuration file: `OperatorConfiguration` of `operator.config.grove.io/v1alpha1`.
//!
//! [`parse`] is the one way in. It is pure: bytes of a file and the command line's [`Overrides`] in, a resolved
//! configuration or *every* problem of the file out. Resolved means that nothing is left to interpret: defaults are
//! filled, both spellings of the topology block are one, and states that make no sense cannot be written down.
//!
//! ```text
//! bytes --yaml--> tree --section--> one `read` per block (types, defaults and rules side by side) --> Loaded
//! ```
//!
//! The file is read strictly. A key that is ignored is a promise that is not kept, so an unknown key is an error, and
//! so are settings that contradict each other. Only `apiVersion` and `kind` may be left out, with a warning.
//!
//! This module reads no file, logs nothing and knows no cluster: whether a named TopologyDomain exists is for the
//! operator to find out.

mod duration;
mod dynamo;
mod leader_election;
mod names;
mod scheduler;
mod section;
mod server;
mod topology;
mod words;
mod yaml;

use std::num::NonZeroU32;

use serde::Serialize;
use thiserror::Error;

pub use duration::GoDuration;
pub use dynamo::{DiscoveryBackend, Dynamo, DynamoServices};
pub use leader_election::{LeaderElection, ResourceLock};
pub use scheduler::{KaiConfig, Packing, ProfileName, Scheduler, SchedulerProfile};
pub use server::{BindAddress, CertProvisionMode, Debugging, Listener, Server, WebhookServer};
pub use topology::{
    ConstraintUpdates, OnBackendTopologyFailure, OnTopologyMissing, OnTopologyMissingAtStart, PreferredPacking,
    ScaleOut, TopologyAwareScheduling, TopologySource,
};
pub use yaml::FILE_BYTES_MAX;

use section::{Section, Setting, shown};
use words::words;

/// More problems than this are counted, not listed: nobody reads on, and a hostile file could have thousands.
const PROBLEMS_MAX: usize = 64;

words! {
    /// The version of the file format.
    pub enum ApiVersion { V1alpha1 = "operator.config.grove.io/v1alpha1" }
}
words! {
    /// The kind that the file must declare.
    pub enum Kind { OperatorConfiguration = "OperatorConfiguration" }
}
words! {
    /// The least severe message that is logged.
    pub enum LogLevel { Debug = "debug", Info = "info", Error = "error" }
}
words! {
    /// How a log line is written.
    pub enum LogFormat { Json = "json", Text = "text" }
}

/// Everything that can be configured, with every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorConfiguration {
    pub api_version: ApiVersion,
    pub kind: Kind,
    pub runtime_client_connection: ClientConnection,
    pub leader_election: LeaderElection,
    pub server: Server,
    pub debugging: Debugging,
    pub controllers: Controllers,
    pub log_level: LogLevel,
    pub log_format: LogFormat,
    pub authorizer: Authorizer,
    pub topology_aware_scheduling: TopologyAwareScheduling,
    pub scheduler: Scheduler,
    pub network: Network,
    pub dynamo: Dynamo,
    pub ui: Ui,
}

/// How the operator talks to the API server.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConnection {
    /// Requests per second over time; 0 is no client-side limit (the API server's own fairness still applies).
    pub qps: f64,
    /// Requests that may go out at once after a pause; 0 exactly when `qps` is.
    pub burst: u32,
    pub content_type: String,
    pub accept_content_types: String,
}

/// How many objects of one kind are reconciled at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controllers {
    pub pod_clique_set: Controller,
    pub pod_clique: Controller,
    pub pod_clique_scaling_group: Controller,
    pub pod_gang: Controller,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controller {
    pub concurrent_syncs: NonZeroU32,
}

/// Who may touch the objects that the operator manages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorizer {
    pub enabled: bool,
    /// Users that may change managed objects beside the operator itself.
    pub exempt_service_account_user_names: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    /// Create ComputeDomains for workloads that ask for multi-node NVLink.
    #[serde(rename = "autoMNNVLEnabled")]
    pub auto_mnnvl_enabled: bool,
}

/// The page with the map. It listens on the loopback only: who may forward a port of the operator's pod
/// (`kubectl port-forward`), the cluster's own authentication decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ui {
    pub enabled: bool,
    pub port: u16,
}

/// What the command line sets over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--topology-domain-name`: the TopologyDomain in force. Sets the source, its name and `enabled`.
    pub topology_domain_name: Option<String>,
}

/// A good configuration, and what its author should hear about it all the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub configuration: OperatorConfiguration,
    /// One line each, in a stable order.
    pub warnings: Vec<String>,
}

/// One problem of a configuration file. Its text is one line that names the place, the value and the fix.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The file as a whole cannot be a configuration.
    #[error("{0}")]
    File(String),
    /// The file is not YAML that can be read without guessing.
    #[error("line {line}, column {column}: {message}")]
    Syntax { line: u64, column: u64, message: String },
    /// One setting is wrong.
    #[error("{path}: {message}")]
    Setting { path: String, message: String },
}

/// Reads a configuration file; reports every problem, in an order that does not change.
pub fn parse(file: &[u8], overrides: &Overrides) -> Result<Loaded, Vec<ConfigError>> {
    let tree = yaml::tree(file).map_err(|error| vec![error])?;
    let mut problems = Vec::new();
    let mut warnings = Vec::new();
    let configuration = Section::root(&tree, &mut problems, |root| {
        OperatorConfiguration::read(root, overrides, &mut warnings)
    });
    if problems.is_empty() {
        return Ok(Loaded {
            configuration,
            warnings,
        });
    }
    let unlisted = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    if unlisted > 0 {
        problems.push(ConfigError::File(format!(
            "and {unlisted} more problems; fix those above first"
        )));
    }
    Err(problems)
}

impl OperatorConfiguration {
    fn read(root: &mut Section<'_>, overrides: &Overrides, warnings: &mut Vec<String>) -> Self {
        let topology_domain_name = overrides.topology_domain_name.as_deref();
        Self {
            api_version: declared(root, "apiVersion", ApiVersion::V1alpha1, warnings),
            kind: declared(root, "kind", Kind::OperatorConfiguration, warnings),
            runtime_client_connection: root.section("runtimeClientConnection", ClientConnection::read),
            leader_election: root.section("leaderElection", LeaderElection::read),
            server: root.section("server", Server::read),
            debugging: root.section("debugging", Debugging::read),
            controllers: root.section("controllers", Controllers::read),
            log_level: root.or("logLevel", LogLevel::Info),
            log_format: root.or("logFormat", LogFormat::Json),
            authorizer: root.section("authorizer", Authorizer::read),
            topology_aware_scheduling: TopologyAwareScheduling::read(root, topology_domain_name, warnings),
            scheduler: root.section("scheduler", Scheduler::read),
            network: root.section("network", |network| Network {
                auto_mnnvl_enabled: network.or("autoMNNVLEnabled", false),
            }),
            dynamo: root.section("dynamo", Dynamo::read),
            ui: root.section("ui", Ui::read),
        }
        .judge_listeners(root)
    }

    /// Two servers of one process cannot share a port, wherever in the file they are configured.
    fn judge_listeners(self, root: &mut Section<'_>) -> Self {
        let mut taken: Vec<(&str, u16)> = Vec::new();
        let others = self.debugging.port().into_iter().chain(self.ui.port());
        for (path, port) in self.server.ports().into_iter().chain(others) {
            match taken.iter().find(|(_, other)| *other == port) {
                Some((other, _)) => {
                    root.problem_at(
                        path,
                        format!("port {port} is already used by {other}; choose another port"),
                    );
                }
                None => taken.push((path, port)),
            }
        }
        self
    }
}

impl ClientConnection {
    fn read(section: &mut Section<'_>) -> Self {
        let connection = Self {
            qps: section.or("qps", 0.0),
            burst: section.or("burst", 0),
            content_type: section.or_else("contentType", String::new),
            accept_content_types: section.or_else("acceptContentTypes", String::new),
        };
        if connection.qps > 0.0 && connection.burst == 0 {
            let message = format!(
                "must be at least 1 when qps is {}, or no request could ever go out; set burst, or qps to 0 for no limit",
                connection.qps
            );
            section.problem("burst", message);
        }
        if connection.qps == 0.0 && connection.burst > 0 {
            let message = format!(
                "{} has no effect while qps is 0; set qps, or remove burst",
                connection.burst
            );
            section.problem("burst", message);
        }
        for (key, value) in [
            ("contentType", &connection.content_type),
            ("acceptContentTypes", &connection.accept_content_types),
        ] {
            if !matches!(value.as_str(), "" | "application/json") {
                section.problem(
                    key,
                    format!(
                        "must be application/json or empty, not {}",
                        shown(&value.as_str().into())
                    ),
                );
            }
        }
        connection
    }
}

impl Controllers {
    fn read(section: &mut Section<'_>) -> Self {
        let mut controller = |key, default| {
            let default = NonZeroU32::new(default).expect("the defaults below are not zero");
            section.section(key, |section| Controller {
                concurrent_syncs: section.or("concurrentSyncs", default),
            })
        };
        Self {
            pod_clique_set: controller("podCliqueSet", 10),
            pod_clique: controller("podClique", 10),
            pod_clique_scaling_group: controller("podCliqueScalingGroup", 5),
            pod_gang: controller("podGang", 5),
        }
    }
}

impl Ui {
    fn read(section: &mut Section<'_>) -> Self {
        let ui = Self {
            enabled: section.or("enabled", false),
            port: section.or("port", 2754),
        };
        if ui.port == 0 {
            section.problem(
                "port",
                "must not be 0; to switch the page off, set enabled: false".into(),
            );
        }
        ui
    }

    /// Full path and number of its port, if it is in use.
    fn port(&self) -> Option<(&'static str, u16)> {
        self.enabled.then_some(("ui.port", self.port))
    }
}

impl Authorizer {
    fn read(section: &mut Section<'_>) -> Self {
        Self {
            enabled: section.or("enabled", false),
            exempt_service_account_user_names: section.strings("exemptServiceAccountUserNames"),
        }
    }
}

/// Reads a word that says what the file is; a file that does not say is read as the only thing it can be.
fn declared<T: Setting + Copy>(root: &mut Section<'_>, key: &'static str, only: T, warnings: &mut Vec<String>) -> T {
    if !root.has(key) {
        warnings.push(format!("{key}: missing; the file is read as {}, add it", T::expected()));
    }
    root.or(key, only)
}
