//! `grove cluster --data`: a cluster that is killed while many write, again and again, and loses nothing that it said.
//!
//! `GROVE_EXHAUSTIVE=1` kills it two hundred times.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, future};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::operator::{PATIENCE, terminate};

const WRITERS: usize = 8;

/// What a cluster still has to say; who does not listen ends it.
type Voice = Lines<BufReader<ChildStdout>>;

/// Runs `grove cluster` on a directory until it listens.
async fn start(dir: &Path, arguments: &[&str]) -> (Child, Voice) {
    let mut child = command(dir, arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap();
    let first = first.unwrap().unwrap_or_default();
    assert!(first.contains("listens on https://127."), "{first}");
    (child, lines)
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grove"));
    command
        .args(["cluster", "--data"])
        .arg(dir)
        .args(arguments)
        .kill_on_drop(true);
    command
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}

/// What a writer was told of its object, and what it was about to make of it when the cluster was killed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Belief {
    /// The value of the object; `None` is no object.
    told: Option<u64>,
    attempted: Option<u64>,
}

#[derive(Debug, Default)]
struct Ledger {
    beliefs: BTreeMap<String, Belief>,
    /// The newest revision that anybody was shown.
    revision: u64,
    writes: usize,
}

impl Ledger {
    fn saw(&mut self, map: &ConfigMap) {
        let revision = map.resource_version().unwrap_or_default().parse().unwrap();
        self.revision = self.revision.max(revision);
    }
}

fn value(map: &ConfigMap) -> u64 {
    map.data.as_ref().unwrap()["value"].parse().unwrap()
}

fn map(name: &str, value: u64) -> ConfigMap {
    let object = json!({"metadata": {"name": name}, "data": {"value": value.to_string()}});
    serde_json::from_value(object).unwrap()
}

/// Creates, changes and deletes objects until the cluster does not answer any more.
async fn write(api: &Api<ConfigMap>, writer: usize, ledger: &Mutex<Ledger>) {
    for step in 0_u64.. {
        let name = format!("w{writer}-{}", step % 5);
        let belief = ledger.lock().unwrap().beliefs.entry(name.clone()).or_default().clone();
        let next = match belief.told {
            Some(value) if value % 4 == 3 => None,
            Some(value) => Some(value + 1),
            // Values go on across deletions, so that an old state is never taken for a new one.
            None => Some(ledger.lock().unwrap().writes as u64 * 4),
        };
        ledger.lock().unwrap().beliefs.get_mut(&name).unwrap().attempted = next;
        let written = match (belief.told, next) {
            (_, None) => api.delete(&name, &DeleteParams::default()).await.map(|_| None),
            (None, Some(value)) => api.create(&PostParams::default(), &map(&name, value)).await.map(Some),
            (Some(_), Some(value)) => {
                let patch = json!({"data": {"value": value.to_string()}});
                let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
                api.patch(&name, &how, &patch).await.map(Some)
            }
        };
        let Ok(answer) = written else { return };
        let mut ledger = ledger.lock().unwrap();
        ledger.writes += 1;
        answer.iter().for_each(|map| ledger.saw(map));
        ledger.beliefs.insert(
            name,
            Belief {
                told: next,
                attempted: next,
            },
        );
    }
}

/// Notes every revision that a watch shows, until the cluster is gone.
async fn look(api: &Api<ConfigMap>, ledger: &Mutex<Ledger>) {
    let from = ledger.lock().unwrap().revision.to_string();
    let Ok(watch) = api.watch(&WatchParams::default(), &from).await else {
        return;
    };
    let mut watch = std::pin::pin!(watch);
    while let Some(Ok(event)) = watch.next().await {
        if let WatchEvent::Added(map) | WatchEvent::Modified(map) | WatchEvent::Deleted(map) = event {
            ledger.lock().unwrap().saw(&map);
        }
    }
}

/// Compares what there is with what was told; both are the same from then on.
async fn audit(api: &Api<ConfigMap>, ledger: &mut Ledger) {
    let list = api.list(&Default::default()).await.unwrap();
    let revision: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
    assert!(
        revision >= ledger.revision,
        "revision {} was shown, now it is {revision}",
        ledger.revision
    );
    ledger.revision = revision;
    // The namespace has a map of its own.
    let ours = list.items.iter().filter(|map| map.name_any().starts_with('w'));
    let found: BTreeMap<String, u64> = ours.map(|map| (map.name_any(), value(map))).collect();
    for (name, belief) in &mut ledger.beliefs {
        let now = found.get(name).copied();
        assert!(
            now == belief.told || now == belief.attempted,
            "{name} is {now:?}, and not as in {belief:?}"
        );
        *belief = Belief {
            told: now,
            attempted: now,
        };
    }
}

#[tokio::test]
async fn nothing_that_was_acknowledged_is_lost_when_it_is_killed() {
    let dir = TempDir::new().unwrap();
    let kills = if std::env::var_os("GROVE_EXHAUSTIVE").is_some() {
        200
    } else {
        5
    };
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut kubeconfig = None;
    for round in 0..kills {
        // Where no other test takes the port while nobody listens on it.
        let arguments: &[&str] = if round == 0 { &["--listen", "127.0.7.1:0"] } else { &[] };
        let (mut cluster, _voice) = start(dir.path(), arguments).await;
        let text = std::fs::read_to_string(dir.path().join("kubeconfig")).unwrap();
        assert_eq!(
            *kubeconfig.get_or_insert(text.clone()),
            text,
            "a kubeconfig is good for ever"
        );
        let api: Api<ConfigMap> = Api::namespaced(client(&text).await, "kube-public");
        let nodes: Api<Node> = Api::all(client(&text).await);
        assert_eq!(nodes.list(&Default::default()).await.unwrap().items.len(), 64);
        let mut known = std::mem::take(&mut *ledger.lock().unwrap());
        audit(&api, &mut known).await;
        let before = known.writes;
        *ledger.lock().unwrap() = known;
        let writers = future::join_all((0..WRITERS).map(|writer| write(&api, writer, &ledger)));
        let kill = async {
            // A different moment each time, once there is load.
            while ledger.lock().unwrap().writes < before + 20 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_micros(round * 7919 % 100_000)).await;
            cluster.kill().await.unwrap();
        };
        tokio::join!(writers, kill, look(&api, &ledger));
    }
    let (mut cluster, _voice) = start(dir.path(), &[]).await;
    let api: Api<ConfigMap> = Api::namespaced(client(&kubeconfig.unwrap()).await, "kube-public");
    let mut ledger = std::mem::take(&mut *ledger.lock().unwrap());
    audit(&api, &mut ledger).await;
    println!("{kills} kills, {} acknowledged writes", ledger.writes);
    cluster.kill().await.unwrap();
}

#[tokio::test]
async fn a_directory_is_for_one_process_and_its_kubeconfig_stays() {
    let dir = TempDir::new().unwrap();
    let (cluster, _voice) = start(dir.path(), &["--nodes", "3", "--listen", "127.0.7.2:0"]).await;
    let id = cluster.id().unwrap();
    let second = tokio::time::timeout(PATIENCE, command(dir.path(), &[]).output())
        .await
        .unwrap()
        .unwrap();
    let complaint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(
        (second.status.code(), complaint.lines().count()),
        (Some(2), 1),
        "{complaint}"
    );
    assert!(complaint.contains(&format!("process {id} has it open")), "{complaint}");
    let (code, _) = terminate(cluster).await;
    assert_eq!(code, Some(0));
    let kubeconfig = std::fs::read_to_string(dir.path().join("kubeconfig")).unwrap();

    // Nodes that are asked for come on top of those that there are.
    let (cluster, _voice) = start(dir.path(), &["--nodes", "4"]).await;
    let nodes: Api<Node> = Api::all(client(&kubeconfig).await);
    assert_eq!(nodes.list(&Default::default()).await.unwrap().items.len(), 4);
    terminate(cluster).await;

    std::fs::write(dir.path().join("cluster.redb"), "not a database").unwrap();
    let damaged = tokio::time::timeout(PATIENCE, command(dir.path(), &[]).output())
        .await
        .unwrap()
        .unwrap();
    let complaint = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert_eq!(
        (damaged.status.code(), complaint.lines().count()),
        (Some(2), 1),
        "{complaint}"
    );
    assert!(complaint.contains("damaged"), "{complaint}");
}
