//! Where the commands of the docs run: a folder with the examples and the chart, the programs that they name, and two
//! clusters: that of the demo and a real control plane.
//!
//! What a block writes stays in that folder. `cargo` is a script that runs what is built already: `cargo run --release --`
//! is `grove`, and `cargo xtask kit` gives the control plane that the test holds, so that nothing is left running.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use grove_e2e::{ControlPlane, Identity, binary_for_test};
use tempfile::{NamedTempFile, TempDir};
use tokio::process::Command;
use tokio::time::timeout;

use crate::page::commands;

/// On a machine that tests and compilers share.
const BLOCK_MAX: Duration = Duration::from_secs(240);
/// An earlier command than the last one failed.
const TOO_EARLY: i32 = 125;

const CARGO: &str = r#"#!/bin/sh
real=REAL
user=admin
[ "$4" != --user ] || user="$5"
case "$1 $2 $3" in
"run --release --") shift 3; exec grove "$@" ;;
"xtask kit up") echo "export KUBECONFIG=$real/admin.kubeconfig" ;;
"xtask kit kubeconfig") ls "$real/$user.kubeconfig" ;;
"xtask kit down") ;;
*) echo "the test cannot run cargo $*; say why above the block: <!-- not run: WHY -->" >&2; exit 64 ;;
esac
"#;

pub(crate) struct Stage {
    folder: TempDir,
    real: PathBuf,
    /// The kubeconfig of the demo, once it runs.
    pub(crate) demo: PathBuf,
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

impl Stage {
    pub(crate) async fn build(plane: &ControlPlane) -> Result<Self> {
        let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
        let folder = TempDir::new()?;
        let [work, bin] = ["work", "bin"].map(|name| folder.path().join(name));
        fs::create_dir(&work)?;
        fs::create_dir(&bin)?;
        for part in ["examples", "charts"] {
            symlink(root().join(part), work.join(part))?;
        }
        symlink(&grove, bin.join("grove"))?;
        symlink(&grove, bin.join("kubectl-grove"))?;
        symlink(plane.kubectl(), bin.join("kubectl"))?;
        symlink(plane.helm()?, bin.join("helm"))?;
        let cargo = bin.join("cargo");
        fs::write(&cargo, CARGO.replace("REAL", &plane.dir().display().to_string()))?;
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            folder,
            real: plane.kubeconfig(Identity::Admin),
            demo: PathBuf::new(),
        })
    }

    /// A shell with these commands, in the folder, with the programs and nothing of whoever runs the test.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("bash");
        let bin = self.folder.path().join("bin");
        shell
            .args(["--norc", "-o", "pipefail", "-c", script])
            .current_dir(self.folder.path().join("work"))
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        shell
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.folder.path().join("work").join(name), text)?)
    }

    /// Runs a block on one of the clusters; its last command ends with this code, and all before it with 0. What it prints.
    pub(crate) async fn run(&self, is_real: bool, text: &str, code: i32) -> Result<String> {
        let cluster = match is_real {
            true => &self.real,
            false => &self.demo,
        };
        let mut shell = self.shell(&script(text));
        shell.env("KUBECONFIG", cluster);
        let output = timeout(BLOCK_MAX, shell.output()).await.context("it does not end")??;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(code),
            "it ended with {}, not {code}:\n{text}\n{printed}\n{complaint}",
            output.status
        );
        Ok(printed)
    }

    /// Lets whoever would read a manifest judge it.
    pub(crate) async fn judge(&self, is_real: bool, manifest: &str) -> Result<()> {
        let file = NamedTempFile::new_in(self.folder.path())?;
        fs::write(file.path(), manifest)?;
        let judge = match manifest.contains("kind: OperatorConfiguration") {
            true => "grove operator --check --config",
            false => "kubectl apply --dry-run=server -f",
        };
        self.run(is_real, &format!("{judge} {}", file.path().display()), 0)
            .await?;
        Ok(())
    }
}

/// Commands one after the other in one shell. An earlier one that fails ends it; the last one says how it ended.
fn script(text: &str) -> String {
    let commands = commands(text);
    let last = commands.len().saturating_sub(1);
    let guarded = commands.iter().enumerate().map(|(index, command)| match index == last {
        true => command.clone(),
        false => format!("{command}code=$?; [ $code = 0 ] || {{ echo \"ended with $code\" >&2; exit {TOO_EARLY}; }}\n"),
    });
    guarded.collect()
}
