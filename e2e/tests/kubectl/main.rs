//! kubectl itself on both clusters: the same commands, the same words.
//!
//! `sessions.yaml` holds commands as data. A session runs in a namespace of its own; what it prints is compared once
//! ages, uids, revisions, addresses and the widths of columns are out of the way.

#[path = "../common/mod.rs"]
mod common;
mod session;

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use futures::{StreamExt, stream};
use grove_e2e::Identity;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use common::RUNTIME;
use session::{Kubectl, Session};

/// kubectl is a process of its own each time; two cores take a few at once.
const CONCURRENCY: usize = 4;

static DIRECTORY: OnceCell<TempDir> = OnceCell::const_new();

/// kubectl for both clusters, the real one first, each with caches of its own.
async fn both() -> Result<[Kubectl; 2]> {
    // Makes sure that the one is whole before the other starts.
    let _ = common::clients().await?;
    let real = common::real().await?;
    let dir = DIRECTORY.get_or_try_init(async || TempDir::new()).await?;
    let file: PathBuf = dir.path().join("embedded.kubeconfig");
    fs::write(&file, common::embedded().await?.kubeconfig())?;
    let kubectl = |name: &'static str, kubeconfig: PathBuf| Kubectl {
        program: real.kubectl(),
        kubeconfig,
        cache: dir.path().join(name),
    };
    Ok([
        kubectl("real", real.kubeconfig(Identity::Admin)),
        kubectl("embedded", file),
    ])
}

#[test]
fn kubectl_says_the_same_on_both_clusters() -> Result<()> {
    let sessions: Vec<Session> = serde_saphyr::from_str(include_str!("sessions.yaml"))?;
    let filter = std::env::var("SESSION").unwrap_or_default();
    let chosen = sessions.iter().filter(|session| session.name.contains(&filter));
    RUNTIME.block_on(async {
        let [real, embedded] = both().await?;
        let outcomes = stream::iter(chosen.enumerate()).map(async |(index, session)| {
            let namespace = format!("k{index}");
            let (real, embedded) = tokio::join!(session.run(&real, &namespace), session.run(&embedded, &namespace));
            let report = match (real, embedded) {
                (Ok(real), Ok(embedded)) => session::differences(&real, &embedded),
                (real, embedded) => [real.err(), embedded.err()]
                    .into_iter()
                    .flatten()
                    .map(|error| format!("  {error:#}\n"))
                    .collect(),
            };
            (session.name.clone(), report)
        });
        let outcomes: Vec<(String, String)> = outcomes.buffered(CONCURRENCY).collect().await;
        let count = outcomes.len();
        let different = outcomes.into_iter().filter(|(_, report)| !report.is_empty());
        let different: Vec<String> = different.map(|(name, report)| format!("{name}\n{report}")).collect();
        println!("{count} sessions");
        ensure!(
            different.is_empty(),
            "{} of {count} sessions differ\n\n{}",
            different.len(),
            different.join("\n")
        );
        Ok(())
    })
}
