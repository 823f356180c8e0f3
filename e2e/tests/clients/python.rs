//! Python with the client that Kubernetes publishes for it: fetched once by pip into the user's cache directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use grove_e2e::kit::cache_dir;

const VERSION: &str = "37.0.2";
const MISSING: &str = "python3 is missing: install Python 3.10 or newer with its venv module";

/// An interpreter that has the client.
pub(crate) fn interpreter() -> Result<PathBuf> {
    let folder = cache_dir()?.join("tools").join(format!("python-kubernetes-{VERSION}"));
    if !folder.exists() {
        fetch(&folder)?;
    }
    Ok(folder.join("bin/python3"))
}

pub(crate) fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/session.py")
}

/// Two that fetch at once each have a folder of their own, and either one is good.
fn fetch(into: &Path) -> Result<()> {
    let parent = into.parent().context("a folder of tools")?;
    fs::create_dir_all(parent)?;
    let partial = tempfile::TempDir::new_in(parent)?;
    run(Command::new("python3").args(["-m", "venv"]).arg(partial.path()))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let package = format!("kubernetes=={VERSION}");
    run(Command::new(partial.path().join("bin/python3")).args(pip).arg(package))?;
    if fs::rename(partial.path(), into).is_err() {
        ensure!(into.exists(), "{} cannot be written", into.display());
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context(MISSING)?;
    ensure!(
        output.status.success(),
        "{command:?} fails ({MISSING}?): {}",
        super::text_of(&output)
    );
    Ok(())
}
