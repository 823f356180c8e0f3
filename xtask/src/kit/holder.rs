//! The background process behind `cargo xtask kit up`.
//!
//! It holds the control plane, and with it a lock on a file in its slot, a folder under the user's cache. The lock
//! is the truth about "runs": the kernel gives it back however the process ends, so a state file left by a crash is
//! never believed and its process id, which may be someone else's by now, never signalled.
//!
//! ```text
//! <cache>/grove/run/<name>/lock         locked while the control plane runs
//!                          state.json   who holds it and where its files are
//!                          log          what the holder said
//! ```

use std::fs::{self, File, TryLockError};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use grove_e2e::kit::cache_dir;
use grove_e2e::{Builder, Identity};
use rustix::process::{Pid, Signal, kill_process, setsid};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

const PAUSE: Duration = Duration::from_millis(20);
/// Killing five processes takes a tenth of a second.
const STOP_LIMIT: Duration = Duration::from_secs(15);
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

/// What the holder tells the world about itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// The holder. Ending it ends all programs.
    pub(super) pid: u32,
    /// The programs, once all are ready; for the eye only.
    programs: Vec<u32>,
    /// The control plane's files, once it is ready.
    dir: Option<PathBuf>,
}

impl State {
    pub(super) fn kubeconfig(&self, identity: Identity) -> Option<PathBuf> {
        self.dir.as_deref().map(|dir| identity.kubeconfig_in(dir))
    }
}

/// The place of one named control plane.
#[derive(Debug)]
pub(super) struct Slot {
    dir: PathBuf,
}

impl Slot {
    pub(super) fn named(name: &str) -> Result<Self> {
        Ok(Self {
            dir: cache_dir()?.join("run").join(name),
        })
    }

    /// What runs here now, if anything does.
    pub(super) fn running(&self) -> Result<Option<State>> {
        if !self.dir.exists() || self.lock()?.is_some() {
            return Ok(None);
        }
        self.read().map(Some)
    }

    /// Starts a holder by running this program again with `arguments`, and waits until its control plane is ready.
    pub(super) fn start(&self, arguments: &[&str]) -> Result<State> {
        fs::create_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        let log = File::create(self.log()).with_context(|| self.log().display().to_string())?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut holder = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the background process")?;
        // Ends, because the holder gives up on a start that takes too long.
        loop {
            if holder.try_wait()?.is_some() {
                bail!(
                    "the control plane did not start\n{}",
                    fs::read_to_string(self.log())?.trim_end()
                );
            }
            match self.read() {
                Ok(state) if state.pid == holder.id() && state.dir.is_some() => return Ok(state),
                _ => sleep(PAUSE),
            }
        }
    }

    /// Stops what runs here and removes the slot. Tells whether anything ran.
    pub(super) fn stop(&self) -> Result<bool> {
        if !self.dir.exists() {
            return Ok(false);
        }
        let begun = Instant::now();
        let mut signalled = None;
        while self.lock()?.is_none() {
            if signalled.is_none() {
                let pid = self.read()?.pid;
                let target = i32::try_from(pid)
                    .ok()
                    .and_then(Pid::from_raw)
                    .context("the state file is damaged")?;
                kill_process(target, Signal::TERM).with_context(|| format!("cannot stop process {pid}"))?;
                signalled = Some(pid);
            }
            if let Some(pid) = signalled.filter(|_| begun.elapsed() > STOP_LIMIT) {
                bail!("process {pid} does not stop; its log is {}", self.log().display());
            }
            sleep(PAUSE);
        }
        fs::remove_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        Ok(signalled.is_some())
    }

    /// Runs a control plane until a signal asks to stop, or one of its programs ends.
    pub(super) fn hold(&self, wanted: Builder) -> Result<()> {
        let _lock = self.lock()?.context("it runs already")?;
        let pid = std::process::id();
        self.write(&State {
            pid,
            programs: Vec::new(),
            dir: None,
        })?;
        // Out of the reach of the terminal that `up` was typed in.
        setsid().context("cannot leave the terminal")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            let stop = async {
                tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            };
            tokio::pin!(stop);
            let mut plane = tokio::select! { plane = wanted.start() => plane?, () = &mut stop => return Ok(()) };
            self.write(&State {
                pid,
                programs: plane.pids(),
                dir: Some(plane.dir().to_owned()),
            })?;
            loop {
                tokio::select! {
                    () = &mut stop => return Ok(()),
                    () = tokio::time::sleep(HEALTH_INTERVAL) => plane.check()?,
                }
            }
        })
    }

    fn lock(&self) -> Result<Option<File>> {
        let path = self.dir.join("lock");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    fn read(&self) -> Result<State> {
        let path = self.dir.join("state.json");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Renamed into place: a reader sees the old state or the new one.
    fn write(&self, state: &State) -> Result<()> {
        let (partial, path) = (self.dir.join("state.json.partial"), self.dir.join("state.json"));
        fs::write(&partial, serde_json::to_vec_pretty(state)?).with_context(|| partial.display().to_string())?;
        fs::rename(&partial, &path).with_context(|| path.display().to_string())
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }
}
