//! The embedded cluster as commands use it: open to `kubectl`, with a kubeconfig in a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use grove_controllers::wait_for;
use grove_simcluster::door::Listener;
use grove_simcluster::{Cluster, FleetOptions, InitRunner, NodeSpec, User};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

/// A running cluster that other programs can reach. Dropping it ends it and removes its kubeconfig.
#[derive(Debug)]
pub(crate) struct Embedded {
    pub(crate) cluster: Cluster,
    pub(crate) listener: Listener,
    kubeconfig: PathBuf,
}

impl Embedded {
    /// Starts a cluster with these nodes and writes its kubeconfig.
    pub(crate) async fn start(nodes: Vec<NodeSpec>, listen: SocketAddr, kubeconfig: PathBuf) -> Result<Self> {
        let client = Arc::new(OnceLock::new());
        let fleet = FleetOptions {
            init_runner: Some(waiting(client.clone())),
            ..FleetOptions::default()
        };
        let cluster = Cluster::builder()
            .start_time(Timestamp::now())
            .seed(random()?)
            .fleet(fleet)
            .nodes(nodes)
            .start();
        client.get_or_init(|| cluster.client());
        // The token is the only credential: whoever can read the file is the administrator.
        let token = format!("{:016x}{:016x}", random()?, random()?);
        cluster.server().trust_token(&token, User::admin());
        let listener = cluster.listen(listen).await?;
        write_private(&kubeconfig, &listener.kubeconfig(&token))
            .with_context(|| format!("cannot write the kubeconfig {}", kubeconfig.display()))?;
        Ok(Self {
            cluster,
            listener,
            kubeconfig,
        })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// Runs `grove wait-for` in this process for the init containers that ask for it; others the nodes only pretend to run.
fn waiting(client: Arc<OnceLock<Client>>) -> InitRunner {
    Arc::new(move |pod: &Value, container: &Value| {
        let arguments = container["args"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let parents = wait_for::parents_in(arguments)?;
        let client = client.get()?.clone();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        Some(Box::pin(async move {
            wait_for::run(client, &namespace, &parents, |_| {}).await;
            0
        }))
    })
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // It names a cluster that is gone; a file that cannot be removed hurts nobody.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Reads `--listen`: an address, or a name that the system resolves, such as `localhost:0`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    use std::net::ToSocketAddrs as _;
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|error| format!("{error}; an address is a host and a port, such as 127.0.0.1:6443 or localhost:0"))?;
    addresses.next().ok_or_else(|| "names no address".to_owned())
}

/// Where a kubeconfig goes when nobody says: a file of this process in the temporary directory.
pub(crate) fn default_kubeconfig() -> PathBuf {
    std::env::temp_dir().join(format!("grove-{}.kubeconfig", std::process::id()))
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// The first line of our kubeconfigs: what begins with it may be replaced and removed.
const MARK: &str = "# The kubeconfig of an embedded cluster of grove; it is removed when that ends.\n";

/// Creates a file that only this user can read. Another's file of that name is left alone.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // Left by a cluster that was killed.
    if std::fs::read_to_string(path).is_ok_and(|text| text.starts_with(MARK)) {
        std::fs::remove_file(path)?;
    }
    let mut options = std::fs::OpenOptions::new();
    let mut file = match options.write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("the file is there already and is not of an embedded cluster; name one with --kubeconfig that is not")
        }
        opened => opened?,
    };
    file.write_all(MARK.as_bytes())?;
    Ok(file.write_all(text.as_bytes())?)
}
