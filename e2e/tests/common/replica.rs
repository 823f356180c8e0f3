//! One replica of the operator or the scheduler as a process, which tests stop and kill.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use grove_e2e::eventually;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// On a machine that tests and compilers share.
const LIMIT: Duration = Duration::from_secs(120);

/// It is killed when dropped.
pub(crate) struct Replica {
    process: Child,
    folder: TempDir,
}

impl Replica {
    /// Starts `grove <command>` with this configuration file, as somebody.
    pub(crate) fn start(grove: &Path, command: &str, config: &str, kubeconfig: &Path) -> Result<Self> {
        let folder = TempDir::new()?;
        let path = folder.path().join("config.yaml");
        fs::write(&path, config)?;
        let process = Command::new(grove)
            .args([command, "--config"])
            .arg(&path)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("log"))?)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { process, folder })
    }

    /// Waits until its log holds these words.
    pub(crate) async fn says(&self, what: &str) -> Result<()> {
        let log = self.folder.path().join("log");
        eventually(what, LIMIT, async || -> Result<()> {
            let text = fs::read_to_string(&log)?;
            ensure!(
                text.contains(what),
                "it says: {}",
                text.lines().last().unwrap_or_default()
            );
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Its process id, while it runs.
    pub(crate) fn id(&self) -> Result<u32> {
        self.process.id().context("a replica that runs")
    }

    /// Sends it a signal: to stop where it stands, to go on, to end.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.id()?.try_into()?).context("a process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Asks it to end, as Kubernetes does.
    pub(crate) async fn terminate(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.process.wait().await?;
        let log = fs::read_to_string(self.folder.path().join("log"))?;
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        ensure!(status.success(), "it ended with {status}: {last:#?}");
        Ok(())
    }

    /// Ends it where it stands, and waits until it is gone.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}
