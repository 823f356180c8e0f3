//! The embedded cluster is trusted because it answers as the real one does: the same requests to both, and the same
//! answers, object by object, word by word, event by event.
//!
//! `cases/*.yaml` hold requests as data, one file for each matter; `random` makes sequences from seeds. A difference is
//! a failure: it is mended in simcluster, or listed with its reason in `docs/embedded-cluster.md`.
//!
//! `CASE=words cargo test -p grove-e2e --test conformance` runs only the cases whose name has these words.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod diff;
mod normal;
mod openapi;
mod random;
mod target;
mod validation;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use grove_e2e::eventually;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use case::{Case, Step};
use common::RUNTIME;
use target::{Sent, Target};

/// As many cases at once as a busy laptop's API server takes well.
const CONCURRENCY: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);
/// Random sequences in every run.
const SEQUENCES: u64 = 1_700;
/// Random sequences on pods and through subresources in every run.
const SUBRESOURCE_SEQUENCES: u64 = 300;
/// A sequence spends most of its time waiting for the end of its watches.
const SEQUENCES_AT_ONCE: usize = 32;
/// Reports of more sequences than this say the same again.
const REPORTED_MAX: usize = 10;

static PREPARED: OnceCell<[Target; 2]> = OnceCell::const_new();
/// Namespaces are numbered through: several tests make them at the same time.
static NAMESPACES: AtomicUsize = AtomicUsize::new(0);

/// Both clusters with the definitions that cases use, the real one first.
async fn targets() -> Result<&'static [Target; 2]> {
    PREPARED
        .get_or_try_init(async || -> Result<[Target; 2]> {
            let [real, embedded] = common::clients().await?;
            let targets = [Target::new("real", real), Target::new("embedded", embedded)];
            for target in &targets {
                install(target).await?;
            }
            Ok(targets)
        })
        .await
}

async fn install(target: &Target) -> Result<()> {
    for definition in serde_saphyr::from_multiple::<Value>(include_str!("definitions.yaml"))? {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        post(target, crds, &definition).await?;
        let plural = definition["spec"]["names"]["plural"].as_str().context("no plural")?;
        let group = definition["spec"]["group"].as_str().context("no group")?;
        let served = Step::get(&format!("/apis/{group}/v1/{plural}"));
        let discovered = Step::get(&format!("/apis/{group}/v1"));
        eventually("the definition to be served", LIMIT, async || -> Result<()> {
            let answer = target.send(&served).await?;
            ensure!(answer.code == 200, "{} answers {}", target.name, answer.code);
            let answer = target.send(&discovered).await?;
            let listed = answer.body["resources"].as_array().into_iter().flatten();
            let mut listed = listed.filter(|resource| resource["name"] == plural);
            ensure!(listed.next().is_some(), "{} does not list {plural}", target.name);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn post(target: &Target, path: &str, object: &Value) -> Result<Value> {
    let sent = Sent {
        method: "POST".to_owned(),
        path: path.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: object.to_string().into_bytes(),
        last: None,
    };
    let answer = target.send(&sent).await?;
    ensure!(answer.code == 201, "{}: {}", target.name, answer.body);
    Ok(answer.body)
}

/// Makes a namespace of one name on both, with all that a namespace gets by itself.
pub(crate) async fn namespace(targets: &[Target; 2]) -> Result<String> {
    let name = format!("c{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
    for target in targets {
        post(target, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
        for furnished in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let request = Step::get(&format!("/api/v1/namespaces/{name}/{furnished}"));
            eventually(furnished, LIMIT, async || -> Result<()> {
                let answer = target.send(&request).await?;
                ensure!(answer.code == 200, "{} answers {}", target.name, answer.code);
                Ok(())
            })
            .await?;
        }
    }
    Ok(name)
}

/// Runs the case on both and tells where they differ; empty if they do not.
async fn judge(case: &Case) -> Result<String> {
    let targets = targets().await?;
    let namespace = namespace(targets).await?;
    let [real, embedded] = targets;
    let (real, embedded) = tokio::join!(case.run(real, &namespace), case.run(embedded, &namespace));
    Ok(match (real, embedded) {
        (Ok(real), Ok(embedded)) => diff::differences(&real, &embedded),
        (real, embedded) => {
            let failed = [real.err(), embedded.err()].into_iter().flatten();
            failed.map(|error| format!("  {error:#}\n")).collect()
        }
    })
}

/// Runs the cases, several at once, and reports those that differ.
async fn judge_all(cases: &[Case], concurrency: usize) -> Vec<String> {
    let outcomes = stream::iter(cases).map(async |case| match judge(case).await {
        Ok(differences) => (case, differences),
        Err(error) => (case, format!("  {error:#}\n")),
    });
    let outcomes = outcomes.buffered(concurrency);
    let different = outcomes.filter(|(_, report)| std::future::ready(!report.is_empty()));
    different
        .map(|(case, report)| format!("{}\n{report}", case.name))
        .collect()
        .await
}

fn run(file: &str, text: &str) -> Result<()> {
    let filter = std::env::var("CASE").unwrap_or_default();
    let mut cases = case::read(text).with_context(|| file.to_owned())?;
    cases.retain(|case| case.name.contains(&filter));
    ensure!(!filter.is_empty() || !cases.is_empty(), "{file} holds no case");
    RUNTIME.block_on(async {
        targets().await?;
        let different = judge_all(&cases, CONCURRENCY).await;
        println!("{file}: {} cases", cases.len());
        ensure!(
            different.is_empty(),
            "{file}: {} of {} cases differ\n\n{}",
            different.len(),
            cases.len(),
            different.join("\n")
        );
        Ok(())
    })
}

/// `SEEDS=1000..2000` runs these instead of the usual ones.
fn seeds(usual: std::ops::Range<u64>) -> Result<Vec<u64>> {
    let Ok(range) = std::env::var("SEEDS") else {
        return Ok(usual.collect());
    };
    let (first, end) = range.split_once("..").unwrap_or((&range, ""));
    let first: u64 = first.parse().context("SEEDS is a number or a range, as in 5..9")?;
    let end = if end.is_empty() { first + 1 } else { end.parse()? };
    Ok((first..end).collect())
}

#[test]
fn random_sequences() -> Result<()> {
    let seeds = seeds(0..SEQUENCES)?;
    sequences("random_sequences", seeds.into_iter().map(random::case).collect())
}

#[test]
fn random_subresources() -> Result<()> {
    let seeds = seeds(0..SUBRESOURCE_SEQUENCES)?;
    sequences(
        "random_subresources",
        seeds.into_iter().map(random::subresources).collect(),
    )
}

fn sequences(test: &str, cases: Vec<Case>) -> Result<()> {
    RUNTIME.block_on(async {
        targets().await?;
        let different = judge_all(&cases, SEQUENCES_AT_ONCE).await;
        if let [replayed] = cases.as_slice() {
            println!("{replayed}");
        }
        ensure!(
            different.is_empty(),
            "{} of {} sequences differ; SEEDS=<seed> cargo test -p grove-e2e --test conformance {test} replays one\n\n{}",
            different.len(),
            cases.len(),
            different
                .iter()
                .take(REPORTED_MAX)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join("\n")
        );
        Ok(())
    })
}

macro_rules! files {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() -> Result<()> {
            let file = concat!(stringify!($name), ".yaml");
            run(file, include_str!(concat!("cases/", stringify!($name), ".yaml")))
        })*
    };
}

files! {
    apply bad costs create custom delete kinds patch pods quotas read rights server tokens update versions views watch webhooks
}
