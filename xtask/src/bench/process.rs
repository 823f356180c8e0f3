//! The operator as a process: started as a user starts it, and asked what it has cost.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use grove_e2e::eventually;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const START_MAX: Duration = Duration::from_secs(60);

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) cpu_s: f64,
    pub(super) peak_rss_mib: f64,
}

/// A running `grove operator`. It is killed when dropped.
pub(super) struct Operator {
    process: Child,
    _folder: TempDir,
}

impl Operator {
    pub(super) async fn start(grove: &Path, kubeconfig: &Path) -> Result<Self> {
        let folder = TempDir::new()?;
        let [health, webhooks] = free_ports()?;
        let config = format!(
            "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\nlogLevel: error\n\
             server:\n  webhooks: {{bindAddress: 127.0.0.1, port: {webhooks}}}\n  \
             healthProbes: {{bindAddress: 127.0.0.1, port: {health}}}\n  metrics: {{port: 0}}\n\
             scheduler: {{profiles: [{{name: default-scheduler, default: true}}]}}\n"
        );
        let (path, log) = (folder.path().join("operator.yaml"), folder.path().join("log"));
        fs::write(&path, config)?;
        let mut process = Command::new(grove)
            .args(["operator", "--config"])
            .arg(&path)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", grove.display()))?;
        eventually("the operator to be ready", START_MAX, async || -> Result<()> {
            if let Some(status) = process.try_wait()? {
                bail!("it ended with {status}: {}", fs::read_to_string(&log)?);
            }
            ensure!(
                is_ready(health).await?,
                "it is not ready: {}",
                fs::read_to_string(&log)?
            );
            Ok(())
        })
        .await?;
        Ok(Self {
            process,
            _folder: folder,
        })
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        let pid = self.process.id().context("the operator has ended")?;
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
        self.process.kill().await.context("cannot end the operator")
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
