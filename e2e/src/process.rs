//! Processes that cannot outlive the one that started them, and their logs.
//!
//! Each program runs in a process group of its own together with a shell that waits on a pipe. The other end of the
//! pipe is held by us alone; however we end, by return, panic or `kill -9`, the kernel closes it, and the shell
//! kills its group. Nothing is ever killed by a remembered number that may belong to someone else by now.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// `exec` keeps the process id, so the child that Rust knows is the program itself and not the shell.
const GUARD: &str = r#"exec 3<&0
{ read -r _ <&3; kill -KILL 0; } &
exec "$@" 3<&- </dev/null"#;

/// Retries, because a program that is being killed may still write.
const SWEEP: &str = r#"read -r _
for try in 1 2 3 4 5; do rm -rf -- "$1" && exit; sleep 1; done"#;

/// All programs are written in Go and mostly young: collecting garbage less often takes a quarter off their start.
const GARBAGE_PERCENT: &str = "400";

/// How much of a log goes into an error: enough for the cause, little enough to read.
const TAIL_BYTES: u64 = 4096;
const TAIL_LINES: usize = 12;

/// A running program. Dropping it kills it and waits until it is gone.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) name: &'static str,
    command: Vec<OsString>,
    dir: PathBuf,
    child: Child,
    log: PathBuf,
}

impl Guarded {
    /// Starts `program` in `dir` with stdout and stderr in `<dir>/<name>.log`.
    pub(crate) fn spawn(name: &'static str, program: &Path, args: &[String], dir: &Path) -> io::Result<Self> {
        let command: Vec<OsString> = std::iter::once(program.into())
            .chain(args.iter().map(OsString::from))
            .collect();
        let log = dir.join(format!("{name}.log"));
        let child = start(&command, dir, &log)?;
        Ok(Self {
            name,
            command,
            dir: dir.to_owned(),
            child,
            log,
        })
    }

    /// Kills the program where it stands, and starts it again with a log of its own.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = start(&self.command, &self.dir, &self.log)?;
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the program ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log).unwrap_or_else(|error| format!("({} cannot be read: {error})", self.log.display()))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // An error means that it is gone already; `wait` then only collects it. It also closes the pipe.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(command: &[OsString], dir: &Path, log: &Path) -> io::Result<Child> {
    let out = File::create(log)?;
    let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    guarded(program)
        .args(args)
        .current_dir(dir)
        .env("GOGC", GARBAGE_PERCENT)
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
}

/// A command that starts `program`, to which its arguments are added. What it starts has the program's process id, and
/// ends with us, as long as nobody takes its stdin.
pub fn guarded(program: impl AsRef<OsStr>) -> Command {
    let mut command = shell(GUARD);
    command.arg(program);
    command
}

/// Removes a directory when dropped, or when this process ends in any other way.
#[derive(Debug)]
pub(crate) struct Sweeper(Child);

impl Sweeper {
    pub(crate) fn watch(dir: &Path) -> io::Result<Self> {
        shell(SWEEP)
            .arg(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // Closes the pipe, which is what the shell waits for.
        let _ = self.0.wait();
    }
}

/// A shell with the pipe as its stdin, out of reach of the terminal's Ctrl-C.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .stdin(Stdio::piped())
        .process_group(0);
    command
}

/// The last lines of a file.
pub(crate) fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Pid, test_kill_process};

    use super::*;
    use crate::eventually;

    fn alive(id: u32) -> bool {
        let pid = Pid::from_raw(id.try_into().unwrap()).unwrap();
        test_kill_process(pid).is_ok()
    }

    fn sleeper(dir: &Path) -> Guarded {
        Guarded::spawn("sleeper", Path::new("sleep"), &["1000".to_owned()], dir).unwrap()
    }

    #[test]
    fn dropping_kills_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let sleeper = sleeper(dir.path());
        let id = sleeper.id();
        assert!(alive(id));
        drop(sleeper);
        assert!(!alive(id));
    }

    /// Invariant 7.
    #[tokio::test]
    async fn a_closed_pipe_alone_kills_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let mut sleeper = sleeper(dir.path());
        // What the kernel does when we die without a chance to clean up.
        drop(sleeper.child.stdin.take());
        let status = eventually("the program to be killed", Duration::from_secs(10), async || {
            sleeper.ended().unwrap().ok_or("it still runs")
        });
        assert!(!status.await.unwrap().success());
    }

    #[tokio::test]
    async fn an_early_end_is_seen_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let args = ["-c", "echo no such flag >&2; exit 3"].map(str::to_owned);
        let mut program = Guarded::spawn("failing", Path::new("sh"), &args, dir.path()).unwrap();
        let status = eventually("the program to end", Duration::from_secs(10), async || {
            program.ended().unwrap().ok_or("it still runs")
        });
        let status = status.await.unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(program.log_tail(), "no such flag");
    }

    #[test]
    fn the_sweeper_removes_the_directory() {
        let dir = tempfile::tempdir().unwrap().keep();
        std::fs::write(dir.join("file"), "x").unwrap();
        drop(Sweeper::watch(&dir).unwrap());
        assert!(!dir.exists());
    }

    #[test]
    fn a_tail_is_the_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let lines: Vec<String> = (0..5000).map(|n| format!("line {n}")).collect();
        std::fs::write(&log, lines.join("\n")).unwrap();
        assert_eq!(tail(&log).unwrap(), lines[5000 - TAIL_LINES..].join("\n"));
    }
}
