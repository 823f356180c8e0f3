//! Starting, holding and stopping one control plane.
//!
//! What may go on at the same time does: etcd and the API server start together, and while the API server still
//! writes its roles, the nodes are posted and kwok makes them ready. A control plane is handed out when it is whole:
//! the API ready, every node able to take pods, pods creatable in `default`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::OnceCell;
use tokio::time::sleep;

use crate::credentials::{ClientError, Credentials, CredentialsError, Identity};
use crate::kit::{Kit, KitError, Program};
use crate::nodes;
use crate::process::{Guarded, Sweeper};
use crate::programs::{self, Ports};
use crate::wait::{NotYet, eventually};

/// Ten times what a start takes on an idle machine: tests share theirs with compilers.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a start is tried when another process takes a port between its choice and its use.
const START_TRIES: usize = 3;

/// Why a control plane did not start, or does not run any more.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Kit(#[from] KitError),
    #[error("the build of the kit was interrupted: {0}")]
    Interrupted(tokio::task::JoinError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot get a directory for the control plane: {0}")]
    Directory(io::Error),
    #[error("cannot get a free port on loopback: {0}")]
    Port(io::Error),
    #[error("cannot start {program}: {error}")]
    Spawn { program: &'static str, error: io::Error },
    #[error("{program} ended ({status}); the end of its log:\n{tail}")]
    Ended {
        program: &'static str,
        status: ExitStatus,
        tail: String,
    },
    #[error("{waiting}; the ends of the logs:\n{tails}")]
    NotReady { waiting: NotYet, tails: String },
    #[error("cannot create a node: {0}")]
    Nodes(kube::Error),
    #[error("cannot create namespace {name}: {error}")]
    Namespace { name: String, error: kube::Error },
    #[error("{0}")]
    NamespaceNotReady(NotYet),
}

impl StartError {
    fn is_port_taken(&self) -> bool {
        matches!(self, Self::Ended { tail, .. } if tail.contains("address already in use"))
    }
}

/// What a control plane shall consist of. By default: controller manager, no scheduler, no nodes.
#[derive(Clone, Debug)]
pub struct Builder {
    nodes: Vec<Node>,
    controller_manager: bool,
    scheduler: bool,
    kubelets: bool,
    api_server_flags: Vec<String>,
    node_silence_secs: Option<u32>,
}

impl Builder {
    /// Adds `count` nodes that differ in name only, `node-0` and so on, each with eight GPUs.
    pub fn nodes(mut self, count: usize) -> Self {
        self.nodes.extend(nodes::alike(count));
        self
    }

    /// Adds these nodes; see [`crate::node`].
    pub fn node_objects(mut self, nodes: impl IntoIterator<Item = Node>) -> Self {
        self.nodes.extend(nodes);
        self
    }

    /// Without a controller manager nothing is garbage-collected and no namespace ends, and the start is faster.
    pub fn controller_manager(mut self, on: bool) -> Self {
        self.controller_manager = on;
        self
    }

    /// Without kubelets (kwok plays them) no node gets ready and no pod runs: what a test wrote stays as it is.
    pub fn kubelets(mut self, on: bool) -> Self {
        self.kubelets = on;
        self
    }

    /// Runs the stock kube-scheduler.
    pub fn scheduler(mut self, on: bool) -> Self {
        self.scheduler = on;
        self
    }

    /// How long a node may be silent before it counts as dead, and how soon after that its pods are deleted (at once). A
    /// node is silent while it has the label [`crate::DEAD_KUBELET`].
    pub fn node_silence(mut self, secs: u32) -> Self {
        self.node_silence_secs = Some(secs);
        let tolerated = ["not-ready", "unreachable"].map(|taint| format!("--default-{taint}-toleration-seconds=0"));
        self.api_server_flags.extend(tolerated);
        self
    }

    /// Adds a flag to the API server's command line, as `--name=value`.
    pub fn api_server_flag(mut self, flag: impl Into<String>) -> Self {
        self.api_server_flags.push(flag.into());
        self
    }

    /// Builds the programs if need be, starts them, and returns when everything is ready.
    pub async fn start(self) -> Result<ControlPlane, StartError> {
        // An error means that a provider is installed already, which is all that is wanted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kit = tokio::task::spawn_blocking(Kit::ready)
            .await
            .map_err(StartError::Interrupted)??;
        let mut tries = 1;
        loop {
            match ControlPlane::try_start(&self, kit.clone()).await {
                Err(error) if error.is_port_taken() && tries < START_TRIES => tries += 1,
                result => return result,
            }
        }
    }
}

/// A running control plane. Dropping it stops every program and removes every file.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: the directory goes when nobody writes to it any more.
    programs: Vec<Guarded>,
    _sweeper: Sweeper,
    dir: PathBuf,
    server: String,
    etcd: String,
    credentials: Credentials,
    kit: Kit,
}

impl ControlPlane {
    pub fn builder() -> Builder {
        Builder {
            nodes: Vec::new(),
            controller_manager: true,
            scheduler: false,
            kubelets: true,
            api_server_flags: Vec::new(),
            node_silence_secs: None,
        }
    }

    async fn try_start(wanted: &Builder, kit: Kit) -> Result<Self, StartError> {
        let (dir, sweeper) = directory().map_err(StartError::Directory)?;
        let ports = Ports::free().map_err(StartError::Port)?;
        let credentials = Credentials::create(&dir)?;
        credentials.write_kubeconfigs(&ports.server())?;
        let mut plane = Self {
            programs: Vec::new(),
            _sweeper: sweeper,
            dir,
            server: ports.server(),
            etcd: ports.etcd(),
            credentials,
            kit,
        };
        plane.run(Program::Etcd, programs::etcd(ports))?;
        let api_server = programs::api_server(
            ports,
            &plane.credentials,
            wanted.controller_manager,
            &wanted.api_server_flags,
        );
        plane.run(Program::ApiServer, api_server)?;
        plane.complete(wanted).await?;
        Ok(plane)
    }

    /// From an API server that may not answer yet to a control plane that is whole.
    async fn complete(&mut self, wanted: &Builder) -> Result<(), StartError> {
        let admin = self.client(Identity::Admin).await?;
        // Without this namespace kwok cannot take its nodes, and tries again only after a second.
        let leases = "/api/v1/namespaces/kube-node-lease";
        self.wait("the API to answer", async || get(&admin, leases).await)
            .await?;
        if wanted.kubelets {
            self.run(
                Program::Kwok,
                programs::kwok(&self.kit, &self.credentials, wanted.node_silence_secs),
            )?;
        }
        nodes::post_all(&admin, &wanted.nodes)
            .await
            .map_err(StartError::Nodes)?;
        self.wait("the API to be ready", async || get(&admin, "/readyz").await)
            .await?;
        // Not earlier: it asks once a second whether the API is ready, so asking too soon costs a second.
        if wanted.controller_manager {
            let args = programs::controller_manager(&self.credentials, wanted.node_silence_secs);
            self.run(Program::ControllerManager, args)?;
        }
        if wanted.scheduler {
            self.run(Program::Scheduler, programs::scheduler(&self.credentials))?;
        }
        let count = wanted.nodes.len();
        self.wait("the nodes to be ready", async || nodes::all_ready(&admin, count).await)
            .await?;
        if wanted.controller_manager {
            self.wait("the service account of `default`", async || {
                service_account(&admin, "default").await
            })
            .await?;
        }
        self.check()
    }

    fn run(&mut self, program: Program, args: Vec<String>) -> Result<(), StartError> {
        let name = program.name();
        let started = Guarded::spawn(name, &self.kit.path(program), &args, &self.dir)
            .map_err(|error| StartError::Spawn { program: name, error })?;
        self.programs.push(started);
        Ok(())
    }

    /// Waits for a probe, and no longer than until a program ends.
    async fn wait(&mut self, what: &str, probe: impl AsyncFnMut() -> Result<(), String>) -> Result<(), StartError> {
        let outcome = tokio::select! {
            outcome = eventually(what, START_LIMIT, probe) => outcome,
            error = first_end(&mut self.programs) => return Err(error),
        };
        outcome.map_err(|waiting| {
            let tails = self
                .programs
                .iter()
                .map(|program| format!("{}:\n{}", program.name, program.log_tail()));
            StartError::NotReady {
                waiting,
                tails: tails.collect::<Vec<_>>().join("\n"),
            }
        })
    }

    /// Tells whether every program still runs, and else which ended and what it said last.
    pub fn check(&mut self) -> Result<(), StartError> {
        ended(&mut self.programs).map_or(Ok(()), Err)
    }

    /// Kills a program and starts it again, and waits until the API answers. Whatever it had stored it still has.
    pub async fn restart(&mut self, program: Program) -> Result<(), StartError> {
        let name = program.name();
        for running in self.programs.iter_mut().filter(|running| running.name == name) {
            let restarted = running.restart();
            restarted.map_err(|error| StartError::Spawn { program: name, error })?;
        }
        let admin = self.client(Identity::Admin).await?;
        self.wait("the API to be ready again", async || get(&admin, "/readyz").await)
            .await
    }

    /// A new client. It belongs to the async runtime it is made in, so each test makes its own.
    pub async fn client(&self, identity: Identity) -> Result<Client, ClientError> {
        self.credentials.client(identity).await
    }

    /// The kubeconfig file of an identity.
    pub fn kubeconfig(&self, identity: Identity) -> PathBuf {
        self.credentials.kubeconfig(identity)
    }

    /// Creates a namespace and waits until pods can be created in it. Needs the controller manager.
    pub async fn create_namespace(&self, name: &str) -> Result<(), StartError> {
        let admin = self.client(Identity::Admin).await?;
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let api: Api<Namespace> = Api::all(admin.clone());
        let created = api.create(&PostParams::default(), &namespace).await;
        created.map_err(|error| StartError::Namespace {
            name: name.to_owned(),
            error,
        })?;
        let what = format!("the service account of namespace {name}");
        eventually(what, START_LIMIT, async || service_account(&admin, name).await)
            .await
            .map_err(StartError::NamespaceNotReady)
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Where etcd listens, `http://127.0.0.1:<port>`.
    pub fn etcd(&self) -> &str {
        &self.etcd
    }

    /// The directory of this control plane: kubeconfigs, certificates, and `<program>.log` for each program.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn kubectl(&self) -> PathBuf {
        self.kit.path(Program::Kubectl)
    }

    /// Helm, built on first use.
    pub fn helm(&self) -> Result<PathBuf, KitError> {
        self.kit.helm()
    }

    pub fn kit(&self) -> &Kit {
        &self.kit
    }

    /// The process id of each program.
    pub fn pids(&self) -> Vec<u32> {
        self.programs.iter().map(Guarded::id).collect()
    }
}

/// A control plane that all tests of a binary share. It starts with the first use and ends with the process: a
/// `static` is never dropped, but the pipes that hold the programs close all the same.
#[derive(Debug)]
pub struct Shared {
    wanted: fn() -> Builder,
    plane: OnceCell<ControlPlane>,
}

impl Shared {
    pub const fn new(wanted: fn() -> Builder) -> Self {
        Self {
            wanted,
            plane: OnceCell::const_new(),
        }
    }

    pub async fn get(&self) -> Result<&ControlPlane, StartError> {
        self.plane.get_or_try_init(|| (self.wanted)().start()).await
    }
}

/// On disk: etcd does not wait for it, and a directory in memory was measured to be no faster.
fn directory() -> io::Result<(PathBuf, Sweeper)> {
    let dir = tempfile::Builder::new().prefix("grove-kit-").tempdir()?;
    let sweeper = Sweeper::watch(dir.path())?;
    Ok((dir.keep(), sweeper))
}

async fn get(client: &Client, path: &str) -> Result<(), String> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    client
        .request_text(request)
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Pods are refused in a namespace until its service account is there.
async fn service_account(client: &Client, namespace: &str) -> Result<(), String> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    api.get("default").await.map(drop).map_err(|error| error.to_string())
}

async fn first_end(programs: &mut [Guarded]) -> StartError {
    loop {
        if let Some(error) = ended(programs) {
            return error;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn ended(programs: &mut [Guarded]) -> Option<StartError> {
    programs.iter_mut().find_map(|program| {
        let status = program.ended().ok()??;
        Some(StartError::Ended {
            program: program.name,
            status,
            tail: program.log_tail(),
        })
    })
}
