//! `cargo xtask gen`: files that are written from the source, committed, and never edited.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use grove_api::{crds, rights};
use grove_e2e::{ControlPlane, Identity, binary_for_test};

use crate::files::tracked_files;
use crate::{api_reference, root, traceability};

const HEADER: &str = "# Written by `cargo xtask gen` from the types in crates/api; do not edit.\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes nothing; fails when a file differs from what would be written.
    #[arg(long)]
    check: bool,
    /// First fetches the schemas of Kubernetes' own types from the pinned kube-apiserver.
    #[arg(long, conflicts_with = "check")]
    openapi: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.openapi {
        // The types embed this file when they are compiled, so the definitions follow in the next run.
        fetch_openapi()?;
        println!("the schemas are fetched; run `cargo xtask gen` to write the CRDs from them");
        return Ok(());
    }
    if args.check {
        return check_all();
    }
    let table = traceability::table(&tracked_files()?)?;
    let others = [(rules_table(), table.text)].into_iter().chain(cluster_roles()?);
    let others = others.chain(reference()?);
    for (path, text) in definitions()?.into_iter().chain(others) {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    // Written all the same, so that what is missing is seen in its place.
    report(&table.findings)
}

/// Fails when a committed file differs from what the source says.
pub(crate) fn check_all() -> Result<()> {
    let definitions = definitions()?;
    let surplus = surplus(&definitions)?;
    ensure!(
        surplus.is_empty(),
        "no type makes these files, remove them: {}",
        surplus.join(", ")
    );
    let table = traceability::table(&tracked_files()?)?;
    report(&table.findings)?;
    let others = [(rules_table(), table.text)].into_iter().chain(cluster_roles()?);
    let others = others.chain(reference()?);
    check(definitions.into_iter().chain(others))
}

fn rules_table() -> PathBuf {
    root().join("docs/traceability.md")
}

/// The reference: the API from its types, the rest from the program, which alone knows its commands and metrics.
fn reference() -> Result<Vec<(PathBuf, String)>> {
    let grove = binary_for_test("grove")?;
    let asked = |page: &str| -> Result<String> {
        let output = Command::new(&grove).args(["reference", page]).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "grove reference {page}: {complaint}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let folder = root().join("docs/reference");
    Ok(vec![
        (folder.join("api.md"), api_reference::page()),
        (folder.join("cli.md"), asked("cli")?),
        (folder.join("metrics.md"), asked("metrics")?),
    ])
}

/// What the parts may do, for the chart.
fn cluster_roles() -> Result<Vec<(PathBuf, String)>> {
    let roles = [
        ("operator.yaml", rights::cluster_role()),
        ("scheduler.yaml", rights::scheduler::cluster_role()),
        ("dynamo.yaml", rights::dynamo_cluster_role()),
        ("cleanup.yaml", rights::cleanup::cluster_role()),
    ];
    let written = roles.iter().map(|(file, role)| -> Result<(PathBuf, String)> {
        let text = serde_saphyr::to_string(role)?;
        Ok((root().join("charts/grove/rbac").join(file), format!("{HEADER}{text}")))
    });
    written.collect()
}

fn report(findings: &[String]) -> Result<()> {
    for finding in findings {
        eprintln!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings about rules and tests", findings.len());
    Ok(())
}

fn definitions() -> Result<Vec<(PathBuf, String)>> {
    let folder = root().join("charts/grove/definitions");
    let write = |definition| -> Result<(PathBuf, String)> {
        let text = serde_saphyr::to_string(definition)?;
        Ok((folder.join(crds::file_name(definition)), format!("{HEADER}{text}")))
    };
    crds::all().iter().map(write).collect()
}

fn check(files: impl Iterator<Item = (PathBuf, String)>) -> Result<()> {
    let stale: Vec<String> = files
        .filter(|(path, text)| fs::read_to_string(path).ok().as_ref() != Some(text))
        .map(|(path, _)| path.strip_prefix(root()).unwrap_or(&path).display().to_string())
        .collect();
    ensure!(
        stale.is_empty(),
        "out of date, run `cargo xtask gen`: {}",
        stale.join(", ")
    );
    Ok(())
}

/// Definitions that lie in the chart, and so would be installed, although no type makes them any more.
fn surplus(files: &[(PathBuf, String)]) -> Result<Vec<String>> {
    let mut surplus = Vec::new();
    for entry in fs::read_dir(root().join("charts/grove/definitions"))? {
        let path = entry?.path();
        if !files.iter().any(|(known, _)| *known == path) {
            surplus.push(path.strip_prefix(root()).unwrap_or(&path).display().to_string());
        }
    }
    Ok(surplus)
}

fn fetch_openapi() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let text = runtime.block_on(async {
        let plane = ControlPlane::builder().controller_manager(false).start().await?;
        let client = plane.client(Identity::Admin).await?;
        anyhow::Ok(grove_e2e::openapi::embedded_types(&client).await?)
    })?;
    fs::write(root().join("crates/api/openapi/kubernetes.json"), text)?;
    Ok(())
}
