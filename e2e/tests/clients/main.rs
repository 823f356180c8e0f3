//! Clients that we did not write: the one that Kubernetes publishes for Python, and Helm. They do the same on both
//! clusters and must be told the same.

#[path = "../common/mod.rs"]
mod common;
mod helm;
mod python;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Result, ensure};
use grove_e2e::{Identity, eventually};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;

use common::RUNTIME;

const LIMIT: Duration = Duration::from_secs(60);

fn text_of(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn run(program: &Path, words: &[&str], kubeconfig: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words).env("KUBECONFIG", kubeconfig);
    // The way to loopback never leads through a proxy.
    for variable in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        command.env_remove(variable);
    }
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{} {words:?}: {}",
        program.display(),
        text_of(&output)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The kubeconfig of the embedded cluster, in a file.
async fn embedded(folder: &TempDir) -> Result<PathBuf> {
    let file = folder.path().join("embedded.kubeconfig");
    fs::write(&file, common::embedded().await?.kubeconfig())?;
    Ok(file)
}

/// Makes a namespace that pods can be made in.
async fn prepare(client: &Client, name: &str) -> Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    eventually("its account", LIMIT, async || accounts.get("default").await).await?;
    Ok(())
}

/// What the session in Python was told, line by line.
async fn session(kubeconfig: &Path, namespace: &str) -> Result<Vec<Value>> {
    let (python, kubeconfig) = (python::interpreter()?, kubeconfig.to_owned());
    let (script, namespace) = (python::script(), namespace.to_owned());
    let told = tokio::task::spawn_blocking(move || {
        let words = [script.to_string_lossy(), kubeconfig.to_string_lossy(), namespace.into()];
        run(&python, &words.each_ref().map(|word| &**word), &kubeconfig)
    });
    told.await??
        .lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}

#[test]
fn python_is_told_the_same_on_both_clusters() -> Result<()> {
    const NAMESPACE: &str = "python";
    let folder = TempDir::new()?;
    RUNTIME.block_on(async {
        let real = common::real().await?;
        for client in common::clients().await? {
            prepare(&client, NAMESPACE).await?;
        }
        let (real, embedded) = (real.kubeconfig(Identity::Admin), embedded(&folder).await?);
        let (real, embedded) = tokio::join!(session(&real, NAMESPACE), session(&embedded, NAMESPACE));
        let (real, embedded) = (real?, embedded?);
        for (real, embedded) in real.iter().zip(&embedded) {
            ensure!(
                real == embedded,
                "the real one says {real}\nthe embedded one {embedded}"
            );
        }
        ensure!(
            real.len() == embedded.len(),
            "{} and {} answers",
            real.len(),
            embedded.len()
        );
        println!("{} answers", real.len());
        ensure!(real.len() >= 25, "the session was cut short: {real:?}");
        Ok(())
    })
}
