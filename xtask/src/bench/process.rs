//! Programs that are measured: started as a user starts them, and asked what they have cost.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use grove_e2e::kit::Program;
use grove_e2e::{ControlPlane, Identity, eventually};
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
    pub(super) peak_rss_mib: f64,
}

/// A program that is measured. It is killed when dropped.
pub(super) struct Measured {
    process: Child,
    name: &'static str,
    folder: TempDir,
}

impl Measured {
    /// `grove operator`, once it is ready. It lifts gates and leaves it to a scheduler to find places.
    pub(super) async fn operator(grove: &Path, kubeconfig: &Path) -> Result<Self> {
        let [health, webhooks] = free_ports()?;
        let config = format!(
            "server:\n  webhooks: {{bindAddress: 127.0.0.1, port: {webhooks}}}\n  \
             healthProbes: {{bindAddress: 127.0.0.1, port: {health}}}\n  metrics: {{port: 0}}\n"
        );
        let mut operator = Self::grove(grove, "operator", kubeconfig, &config)?;
        operator.ready(health).await?;
        Ok(operator)
    }

    /// `grove scheduler`, once it is ready. It leads at once: a Lease would outlive a scheduler that is killed.
    pub(super) async fn scheduler(grove: &Path, kubeconfig: &Path) -> Result<Self> {
        let [health] = free_ports()?;
        let config = format!(
            "server:\n  healthProbes: {{bindAddress: 127.0.0.1, port: {health}}}\n  metrics: {{port: 0}}\n\
             leaderElection: {{enabled: false}}\n"
        );
        let mut scheduler = Self::grove(grove, "scheduler", kubeconfig, &config)?;
        scheduler.ready(health).await?;
        Ok(scheduler)
    }

    /// The cluster's own scheduler, without the limit on its requests that it has by default.
    pub(super) fn kube_scheduler(plane: &ControlPlane) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(Identity::Scheduler);
        let mut command = Command::new(plane.kit().path(Program::Scheduler));
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
        let mut command = Command::new(grove);
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
            .with_context(|| format!("cannot start {}", command.as_std().get_program().display()))?;
        Ok(Self { process, name, folder })
    }

    async fn ready(&mut self, health: u16) -> Result<()> {
        let (name, log) = (self.name, self.folder.path().join(LOG));
        let ready = eventually(format!("the {name} to be ready"), START_MAX, async || -> Result<()> {
            if let Some(status) = self.process.try_wait()? {
                bail!("it ended with {status}: {}", fs::read_to_string(&log)?);
            }
            let is_ready = is_ready(health).await?;
            ensure!(is_ready, "it is not ready: {}", fs::read_to_string(&log)?);
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
        let peak_kib = process
            .status()?
            .vmhwm
            .context("the kernel does not tell the peak of the memory")?;
        let stat = process.stat()?;
        let ticks = stat.utime + stat.stime;
        Ok(Usage {
            cpu_s: ticks as f64 / procfs::ticks_per_second() as f64,
            peak_rss_mib: peak_kib as f64 / 1024.0,
        })
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

async fn is_ready(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1) == Some("200"))
}
