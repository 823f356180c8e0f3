//! Helm and kubectl as an administrator runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use grove_e2e::{ControlPlane, Identity};

/// The oldest chart that upgrades begin with, packed.
pub(crate) const BEFORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/before.tgz");

pub(crate) fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/grove")
}

/// The chart as it is shipped: what `helm package` leaves out is not installed.
pub(crate) fn packaged(plane: &ControlPlane, into: &Path) -> Result<String> {
    let (chart, into) = (chart().display().to_string(), into.display().to_string());
    let said = helm(plane, &["package", &chart, "--destination", &into])?;
    let path = said.trim().rsplit(' ').next().unwrap_or_default();
    ensure!(Path::new(path).exists(), "{said}");
    Ok(path.to_owned())
}

/// The chart as it was before its last change, packed; none in a copy without that history.
pub(crate) fn last_change(into: &Path) -> Result<Option<String>> {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts");
    let git = |args: &[&str]| Command::new("git").current_dir(&charts).args(args).output();
    let changes = git(&["rev-list", "--max-count=2", "HEAD", "--", "grove"]).context("cannot run git")?;
    ensure!(changes.status.success(), "git rev-list: {}", text_of(&changes));
    let changes = String::from_utf8(changes.stdout)?;
    let Some(commit) = changes.lines().nth(1) else {
        println!("this copy does not know the chart before its last change: no upgrade from it is tried");
        return Ok(None);
    };
    let path = into.join("last-change.tgz").display().to_string();
    let packed = git(&["archive", "--format=tgz", "--output", &path, commit, "grove"])?;
    ensure!(packed.status.success(), "{}", text_of(&packed));
    Ok(Some(path))
}

pub(crate) fn text_of(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

pub(crate) fn helm(plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let mut helm = Command::new(plane.helm()?);
    helm.arg("--kubeconfig")
        .arg(plane.kubeconfig(Identity::Admin))
        .args(args);
    let output = helm.output()?;
    ensure!(output.status.success(), "helm {args:?}: {}", text_of(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// What one template of the chart becomes.
pub(crate) fn rendered(plane: &ControlPlane, template: &str, more: &[&str]) -> Result<String> {
    let (chart, version) = (chart().display().to_string(), plane.kit().kubernetes_version());
    let args = [
        "template",
        "grove",
        &chart,
        "--kube-version",
        version,
        "--show-only",
        template,
    ];
    helm(plane, &[&args, more].concat())
}

pub(crate) fn kubectl(plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let mut kubectl = Command::new(plane.kubectl());
    kubectl
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(Identity::Admin))
        .args(args);
    let output = kubectl.output()?;
    ensure!(output.status.success(), "kubectl {args:?}: {}", text_of(&output));
    Ok(String::from_utf8(output.stdout)?)
}
