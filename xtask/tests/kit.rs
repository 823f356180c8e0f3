//! `cargo xtask kit` as a person uses it, on real processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use grove_e2e::kit::cache_dir;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

/// A control plane with a name of its own, stopped also when the test fails.
struct Named(String);

impl Named {
    /// Its name holds the process id, so that two runs of the tests do not meet.
    fn new(purpose: &str) -> Self {
        Self(format!("test-{purpose}-{}", std::process::id()))
    }

    fn kit(&self, command: &str, more: &[&str]) -> Result<Output> {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        Ok(xtask.args(["kit", command, "--name", &self.0]).args(more).output()?)
    }

    fn up(&self) -> Result<Output> {
        let output = self.kit("up", &["--nodes", "1"])?;
        ensure!(output.status.success(), "{output:?}");
        Ok(output)
    }

    /// The holder's process id, those of its programs, and the directory of the control plane.
    fn state(&self) -> Result<(u64, Vec<u64>, PathBuf)> {
        let path = cache_dir()?.join("run").join(&self.0).join("state.json");
        let state: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let programs = state["programs"].as_array().context("no programs")?;
        let dir = state["dir"].as_str().context("no directory")?;
        Ok((
            state["pid"].as_u64().context("no pid")?,
            programs.iter().filter_map(Value::as_u64).collect(),
            PathBuf::from(dir),
        ))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.kit("down", &[]);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn pid(id: u64) -> Result<Pid> {
    Pid::from_raw(id.try_into()?).context("not a process id")
}

/// Ended, though perhaps not yet collected by its parent.
fn ended(id: u64) -> Result<bool> {
    let zombie = std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    Ok(zombie || test_kill_process(pid(id)?).is_err())
}

fn all_gone(programs: &[u64], dir: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        let running: Vec<u64> = programs
            .iter()
            .copied()
            .filter(|id| !ended(*id).unwrap_or(false))
            .collect();
        if running.is_empty() && !dir.exists() {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(10),
            "still there: {running:?}, {}",
            dir.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn up_once_use_and_down() -> Result<()> {
    let plane = Named::new("up");
    let first = plane.up()?;
    let (_, programs, dir) = plane.state()?;
    assert_eq!(programs.len(), 4, "etcd, kube-apiserver, kube-controller-manager, kwok");

    let second = plane.up()?;
    assert!(text(&second.stderr).contains("runs already"), "{second:?}");
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(plane.state()?.1, programs);

    let kubeconfig = text(&plane.kit("kubeconfig", &["--user", "operator"])?.stdout);
    let script = format!(
        "{}kubectl --kubeconfig={} auth whoami",
        text(&first.stdout),
        kubeconfig.trim()
    );
    let whoami = Command::new("sh").args(["-c", &script]).output()?;
    assert!(
        text(&whoami.stdout).contains("system:serviceaccount:grove-system:grove-operator"),
        "{whoami:?}"
    );

    assert!(plane.kit("down", &[])?.status.success());
    all_gone(&programs, &dir)?;
    let after = plane.kit("kubeconfig", &[])?;
    assert_eq!(after.status.code(), Some(3), "{after:?}");
    Ok(())
}

#[test]
fn killing_the_holder_leaves_nothing_behind() -> Result<()> {
    let plane = Named::new("kill");
    plane.up()?;
    let (holder, programs, dir) = plane.state()?;
    kill_process(pid(holder)?, Signal::KILL)?;
    all_gone(&programs, &dir)?;
    // The state file is still there, and not believed.
    let down = plane.kit("down", &[])?;
    assert!(text(&down.stderr).contains("was not running"), "{down:?}");
    Ok(())
}

#[test]
fn a_wrong_name_is_a_usage_error() -> Result<()> {
    let output = Named("../escape".to_owned()).kit("up", &[])?;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    Ok(())
}

#[test]
fn a_missing_go_is_one_clear_line() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask
        .args(["kit", "build"])
        .env("PATH", cache.path())
        .env("XDG_CACHE_HOME", cache.path());
    let output = xtask.output()?;
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{complaint}");
    assert!(
        complaint.contains("Go is not installed: the kit needs Go 1.26"),
        "{complaint}"
    );
    assert_eq!(complaint.trim().lines().count(), 1, "{complaint}");
    Ok(())
}
