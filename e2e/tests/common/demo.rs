//! `grove demo` as a process, as its users start it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The tests run a debug build on a machine that is busy.
const STORY_MAX: Duration = Duration::from_secs(240);
const END_MAX: Duration = Duration::from_secs(20);

pub(crate) struct Demo {
    pub(crate) page: String,
    pub(crate) kubeconfig: PathBuf,
    child: Child,
}

impl Demo {
    /// Starts it by this command and waits for the end of its story.
    pub(crate) async fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("the demo prints")?).lines();
        let (mut page, mut kubeconfig) = (None, None);
        let story = async {
            while let Some(line) = lines.next_line().await? {
                println!("{line}");
                if let Some(path) = line.trim().strip_prefix("export KUBECONFIG=") {
                    kubeconfig = Some(PathBuf::from(path));
                }
                if let Some(address) = line.strip_prefix("Open the map:") {
                    page = Some(address.trim().to_owned());
                }
                if line.starts_with("Ctrl-C") {
                    break;
                }
            }
            anyhow::Ok(())
        };
        timeout(STORY_MAX, story).await.context("the story has no end")??;
        // Whoever prints to a pipe that nobody reads would be stopped by it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self {
            page: page.context("the demo tells the address of its page")?,
            kubeconfig: kubeconfig.context("the demo tells its kubeconfig")?,
            child,
        })
    }

    /// Ends it as Ctrl-C does. It ends well, while somebody still has the page open.
    pub(crate) async fn interrupt(mut self) -> Result<()> {
        let id = self.child.id().context("it still runs")?;
        let pid = Pid::from_raw(id.try_into()?).context("a process has a number")?;
        kill_process(pid, Signal::INT)?;
        let ended = timeout(END_MAX, self.child.wait()).await.context("it does not end")??;
        ensure!(ended.success(), "the demo ended with {ended}");
        ensure!(!self.kubeconfig.exists(), "its kubeconfig is left behind");
        Ok(())
    }
}
