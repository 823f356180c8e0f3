//! `grove cluster` as a person runs it: start it, use what it prints, end it.

use std::process::Stdio;

use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::cli::file;
use crate::operator::{PATIENCE, terminate};
use crate::stage::{lasting, matches};

const NODES: &str = "
kind: Node
metadata: {name: a, labels: {rack: r1}, annotations: {why: repair}}
spec: {unschedulable: true, taints: [{key: gpu, value: only, effect: NoSchedule}]}
status: {capacity: {cpu: 96}, allocatable: {cpu: 90, nvidia.com/gpu: 8}}
---
kind: Node
metadata: {name: b}
";

#[tokio::test]
async fn a_cluster_of_nodes_from_a_file_serves_until_it_is_told_to_end() {
    let folder = TempDir::new().unwrap();
    let (nodes, kubeconfig) = (file(&folder, "nodes.yaml", NODES), folder.path().join("kubeconfig"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_grove"))
        .args(["cluster", "--nodes"])
        .arg(&nodes)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = String::new();
    while !said.contains("Ctrl-C") {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.unwrap().unwrap().expect("it goes on");
        said += &format!("{line}\n");
    }
    let path = kubeconfig.display().to_string();
    matches("cluster", &lasting(&said.replace(&path, "KUBECONFIG")).unwrap());

    let found = Kubeconfig::read_from(&kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(found, &KubeConfigOptions::default())
        .await
        .unwrap();
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    let api: Api<Node> = Api::all(Client::try_from(config).unwrap());
    let ready = kube::runtime::wait::await_condition(api.clone(), "b", |node: Option<&Node>| node.is_some());
    tokio::time::timeout(PATIENCE, ready).await.unwrap().unwrap();
    let node = api.get("a").await.unwrap();
    let (spec, status) = (node.spec.unwrap(), node.status.unwrap());
    assert_eq!(spec.unschedulable, Some(true));
    assert_eq!(spec.taints.unwrap()[0].key, "gpu");
    assert_eq!(node.metadata.annotations.unwrap()["why"], "repair");
    let amount = |of: Option<
        std::collections::BTreeMap<_, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    >| { of.unwrap()["cpu"].0.clone() };
    assert_eq!(
        (amount(status.capacity), amount(status.allocatable)),
        ("96".to_owned(), "90".to_owned())
    );

    let (code, _) = terminate(child).await;
    assert_eq!(code, Some(0));
    assert!(!kubeconfig.exists(), "a kubeconfig of a cluster that is gone");
}

#[tokio::test]
async fn a_kubeconfig_of_somebody_else_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let own = file(&folder, "config", "apiVersion: v1\nkind: Config\n");
    let command = Command::new(env!("CARGO_BIN_EXE_grove"))
        .args(["cluster", "--nodes", "1", "--kubeconfig"])
        .arg(&own)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, command).await.unwrap().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        complaint.contains("config") && complaint.contains("there already"),
        "{complaint}"
    );
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "apiVersion: v1\nkind: Config\n");
}
