//! Programs that are measured: started as a user starts them, and asked what they have cost.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use grove_e2e::kit::Program;
use grove_e2e::{ControlPlane, Identity, eventually, guarded};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const START_MAX: Duration = Duration::from_secs(60);
const LOG: &str = "log";

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) cpu_s: f64,
    /// Right now.
    pub(super) rss_mib: f64,
    pub(super) peak_rss_mib: f64,
}

/// A program that is measured. It is killed when dropped, and when we are.
pub(super) struct Measured {
    process: Child,
    name: &'static str,
    folder: TempDir,
    /// Where it tells its metrics, if it does.
    metrics: Option<u16>,
}

impl Measured {
    /// `grove operator`, once it is ready. It lifts gates and leaves it to a scheduler to find places. `more` is added to
    /// its configuration.
    pub(super) async fn operator(grove: &Path, kubeconfig: &Path, more: &str) -> Result<Self> {
        let [health, webhooks, metrics] = free_ports()?;
        let config = format!(
            "server:\n  webhooks: {{bindAddress: 127.0.0.1, port: {webhooks}}}\n  \
             healthProbes: {{bindAddress: 127.0.0.1, port: {health}}}\n  \
             metrics: {{bindAddress: 127.0.0.1, port: {metrics}}}\n{more}"
        );
        let mut operator = Self::grove(grove, "operator", kubeconfig, &config)?;
        operator.metrics = Some(metrics);
        operator.ready(health).await?;
        Ok(operator)
    }

    /// `grove scheduler`, once it is ready. It leads at once: a Lease would outlive a scheduler that is killed.
    pub(super) async fn scheduler(grove: &Path, kubeconfig: &Path, more: &str) -> Result<Self> {
        let [health, metrics] = free_ports()?;
        let config = format!(
            "server:\n  healthProbes: {{bindAddress: 127.0.0.1, port: {health}}}\n  \
             metrics: {{bindAddress: 127.0.0.1, port: {metrics}}}\nleaderElection: {{enabled: false}}\n{more}"
        );
        let mut scheduler = Self::grove(grove, "scheduler", kubeconfig, &config)?;
        scheduler.metrics = Some(metrics);
        scheduler.ready(health).await?;
        Ok(scheduler)
    }

    /// `grove cluster`: an embedded cluster of so many nodes. It is there when its kubeconfig is.
    pub(super) async fn cluster(grove: &Path, nodes: usize, kubeconfig: &Path) -> Result<Self> {
        let mut command = Command::from(guarded(grove));
        command.args(["cluster", "--nodes", &nodes.to_string(), "--kubeconfig"]);
        command.arg(kubeconfig);
        let mut cluster = Self::start("cluster", TempDir::new()?, command)?;
        let log = cluster.folder.path().join(LOG);
        eventually("the embedded cluster to start", START_MAX, async || -> Result<()> {
            if let Some(status) = cluster.process.try_wait()? {
                bail!("it ended with {status}: {}", fs::read_to_string(&log)?);
            }
            // It is written at once, but not in one step.
            let is_whole = fs::read_to_string(kubeconfig).is_ok_and(|text| text.contains("current-context"));
            ensure!(is_whole, "it has written no kubeconfig");
            Ok(())
        })
        .await?;
        Ok(cluster)
    }

    /// The cluster's own scheduler, without the limit on its requests that it has by default.
    pub(super) fn kube_scheduler(plane: &ControlPlane) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(Identity::Scheduler);
        let mut command = Command::from(guarded(plane.kit().path(Program::Scheduler)));
        command.arg("--kubeconfig").arg(kubeconfig).args([
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=100000",
            "--kube-api-burst=100000",
        ]);
        Self::start("kube-scheduler", TempDir::new()?, command)
    }

    fn grove(grove: &Path, name: &'static str, kubeconfig: &Path, config: &str) -> Result<Self> {
        let folder = TempDir::new()?;
        let path = folder.path().join("config.yaml");
        let head = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\nlogLevel: error\n";
        fs::write(&path, format!("{head}{config}"))?;
        let mut command = Command::from(guarded(grove));
        command
            .args([name, "--config"])
            .arg(&path)
            .arg("--kubeconfig")
            .arg(kubeconfig);
        Self::start(name, folder, command)
    }

    fn start(name: &'static str, folder: TempDir, mut command: Command) -> Result<Self> {
        let log = File::create(folder.path().join(LOG))?;
        let process = command
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start the {name}"))?;
        Ok(Self {
            process,
            name,
            folder,
            metrics: None,
        })
    }

    async fn ready(&mut self, health: u16) -> Result<()> {
        let (name, log) = (self.name, self.folder.path().join(LOG));
        let ready = eventually(format!("the {name} to be ready"), START_MAX, async || -> Result<()> {
            if let Some(status) = self.process.try_wait()? {
                bail!("it ended with {status}: {}", fs::read_to_string(&log)?);
            }
            let (code, _) = get(health, "/readyz").await?;
            ensure!(code == "200", "it is not ready: {}", fs::read_to_string(&log)?);
            Ok(())
        });
        Ok(ready.await?)
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        let pid = self
            .process
            .id()
            .with_context(|| format!("the {} has ended", self.name))?;
        let process = procfs::process::Process::new(i32::try_from(pid)?)?;
        let status = process.status()?;
        let [rss_mib, peak_rss_mib] = [status.vmrss, status.vmhwm].map(|kib| kib.map(|kib| kib as f64 / 1024.0));
        let untold = "the kernel does not tell how much memory it has";
        let stat = process.stat()?;
        let ticks = stat.utime + stat.stime;
        Ok(Usage {
            cpu_s: ticks as f64 / procfs::ticks_per_second() as f64,
            rss_mib: rss_mib.context(untold)?,
            peak_rss_mib: peak_rss_mib.context(untold)?,
        })
    }

    /// What it tells of itself.
    pub(super) async fn metrics(&self) -> Result<String> {
        let port = self
            .metrics
            .with_context(|| format!("the {} tells no metrics", self.name))?;
        let (code, body) = get(port, "/metrics").await?;
        ensure!(
            code == "200",
            "the metrics of the {} are answered with {code}",
            self.name
        );
        Ok(body)
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        let name = self.name;
        self.process
            .kill()
            .await
            .with_context(|| format!("cannot end the {name}"))
    }
}

/// Ports that were free a moment ago.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // All are held until all are known, so that they differ.
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// Asks a server on this machine; the code of its answer and what comes with it.
async fn get(port: u16, path: &str) -> Result<(String, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // In HTTP 1.0 an answer comes in one piece.
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer in HTTP")?;
    let code = head.split(' ').nth(1).unwrap_or_default();
    Ok((code.to_owned(), body.to_owned()))
}
