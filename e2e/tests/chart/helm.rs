//! Helm and kubectl as an administrator runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use grove_e2e::{ControlPlane, Identity};

/// The chart of an earlier commit, packed.
pub(crate) const BEFORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/before.tgz");

pub(crate) fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/grove")
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
