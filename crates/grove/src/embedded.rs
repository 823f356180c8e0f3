//! The embedded cluster as commands use it: open to `kubectl`, with a kubeconfig in a file.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use grove_controllers::wait_for::{self, Wait};
use grove_simcluster::door::Listener;
use grove_simcluster::{Cluster, DataDir, FleetOptions, InitRunner, NodeSpec, User};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

/// A running cluster that other programs can reach. Dropping it ends it; its kubeconfig goes too, unless the cluster
/// can be started again.
#[derive(Debug)]
pub(crate) struct Embedded {
    pub(crate) cluster: Cluster,
    pub(crate) listener: Listener,
    kubeconfig: PathBuf,
    is_kept: bool,
}

/// What a cluster is asked for.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) nodes: Vec<NodeSpec>,
    /// Where to listen; otherwise where it listened before, or on a free port of the loopback.
    pub(crate) listen: Option<SocketAddr>,
    /// Where to write the kubeconfig.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The directory that the cluster lives in.
    pub(crate) data: Option<DataDir>,
}

/// A free port of the loopback.
const ANYWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Names of what a cluster in a directory remembers for its next start.
const TOKEN: &str = "admin-token";
const ADDRESS: &str = "address";

impl Embedded {
    /// Starts a cluster and writes its kubeconfig.
    pub(crate) async fn start(wanted: Wanted) -> Result<Self> {
        let client = Arc::new(OnceLock::new());
        let fleet = FleetOptions {
            init_runner: Some(waiting(client.clone())),
            ..FleetOptions::default()
        };
        let builder = Cluster::builder()
            .start_time(Timestamp::now())
            .seed(u64::from_be_bytes(random()?))
            .signing_key(&random()?)
            .rbac(true)
            .endpoints(true)
            .autoscaling(true)
            .fleet(fleet)
            .nodes(wanted.nodes);
        let home = wanted.data.as_ref().map(|dir| dir.path().to_owned());
        let cluster = match wanted.data {
            Some(dir) => builder.open(dir).await?,
            None => builder.start(),
        };
        client.get_or_init(|| cluster.client());
        let token = admin_token(&cluster).await?;
        cluster.server().trust_token(&token, User::admin());
        let listener = listen(&cluster, wanted.listen).await?;
        let kubeconfig = match (wanted.kubeconfig, &home) {
            (Some(path), _) => path,
            (None, Some(home)) => home.join("kubeconfig"),
            (None, None) => default_kubeconfig(),
        };
        let is_kept = home.is_some();
        write_private(&kubeconfig, &listener.kubeconfig(&token), is_kept)
            .with_context(|| format!("cannot write the kubeconfig {}", kubeconfig.display()))?;
        Ok(Self {
            cluster,
            listener,
            kubeconfig,
            is_kept,
        })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// The only credential: whoever can read the kubeconfig is the administrator.
async fn admin_token(cluster: &Cluster) -> Result<String> {
    if let Some(token) = cluster.remembered(TOKEN) {
        return Ok(token);
    }
    let bytes: [u8; 16] = random()?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    cluster.remember(TOKEN, &token).await?;
    Ok(token)
}

/// Listens where it is asked to, or where the kubeconfigs of an earlier start lead.
async fn listen(cluster: &Cluster, wanted: Option<SocketAddr>) -> Result<Listener> {
    let before = cluster.remembered(ADDRESS).and_then(|address| address.parse().ok());
    let address = wanted.or(before).unwrap_or(ANYWHERE);
    let listener = cluster.listen(address).await;
    let listener = match wanted.is_none() && before.is_some() {
        true => listener.context("this cluster was there before; name another address with --listen")?,
        false => listener?,
    };
    let address = listener.address();
    if before != Some(address) {
        cluster.remember(ADDRESS, &address.to_string()).await?;
    }
    Ok(listener)
}

/// Runs `grove wait-for` in this process for the init containers that ask for it; others the nodes only pretend to run.
fn waiting(client: Arc<OnceLock<Client>>) -> InitRunner {
    Arc::new(move |pod: &Value, container: &Value| {
        let arguments = container["args"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let wait = Wait::in_arguments(arguments)?;
        let client = client.get()?.clone();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        Some(Box::pin(async move {
            wait_for::run(client, &namespace, &wait, |_| {}).await;
            0
        }))
    })
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if !self.is_kept {
            // It names a cluster that is gone; a file that cannot be removed hurts nobody.
            let _ = std::fs::remove_file(&self.kubeconfig);
        }
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
fn default_kubeconfig() -> PathBuf {
    std::env::temp_dir().join(format!("grove-{}.kubeconfig", std::process::id()))
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    Ok(bytes)
}

/// How our kubeconfigs begin: what begins so may be replaced.
const MARK: &str = "# The kubeconfig of an embedded cluster of grove; ";
/// How the first line goes on.
const UNTIL_THE_END: &str = "it is removed when that ends.\n";
const FOR_LATER: &str = "it is good whenever that runs.\n";

/// Creates a file that only this user can read. Another's file of that name is left alone.
fn write_private(path: &Path, text: &str, is_kept: bool) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // Left by a cluster that was killed, or by this one before.
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
    let rest = if is_kept { FOR_LATER } else { UNTIL_THE_END };
    Ok(file.write_all(format!("{MARK}{rest}{text}").as_bytes())?)
}
