//! The checker of web accessibility, as its makers publish it: fetched once by npm into the user's cache directory.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use grove_e2e::kit::cache_dir;
use serde_json::json;

use crate::browser::Browser;

const VERSION: &str = "4.14.0";

fn source() -> Result<String> {
    let folder = cache_dir()?.join("tools").join(format!("axe-core-{VERSION}"));
    let inside = "node_modules/axe-core/axe.min.js";
    if !folder.join(inside).exists() {
        fetch(&folder)?;
    }
    Ok(fs::read_to_string(folder.join(inside))?)
}

/// Two that fetch at once each have a folder of their own, and either one is good.
fn fetch(into: &PathBuf) -> Result<()> {
    let parent = into.parent().context("a folder of tools")?;
    fs::create_dir_all(parent)?;
    let partial = tempfile::TempDir::new_in(parent)?;
    let mut npm = Command::new("npm");
    npm.args([
        "install",
        "--silent",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--prefix",
    ]);
    let output = npm.arg(partial.path()).arg(format!("axe-core@{VERSION}")).output();
    let output = output.context("npm is missing: install Node.js")?;
    ensure!(
        output.status.success(),
        "npm cannot fetch axe-core: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    if fs::rename(partial.path(), into).is_err() {
        ensure!(into.exists(), "{} cannot be written", into.display());
    }
    Ok(())
}

/// What the checker has against the page as it is now, one line each.
pub(crate) async fn check(browser: &mut Browser, when: &str) -> Result<()> {
    let source = json!(tokio::task::spawn_blocking(source).await??);
    browser
        .eval(&format!("window.axe === undefined && void (0, eval)({source})"))
        .await?;
    let found = browser
        .eval(
            "axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations.flatMap((one) =>
                one.nodes.map((node) => `${one.id}: ${node.html} ${node.failureSummary}`)))",
        )
        .await?;
    ensure!(found == json!([]), "{when}: {found:#}");
    Ok(())
}
