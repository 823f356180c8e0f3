//! `grove explain` and `grove status` beside a running demo: what they say of gangs that run and of gangs that wait.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use grove_api::{PodCliqueScalingGroup, PodCliqueSet, PodGang};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::operator::{PATIENCE, terminate};

/// More hosts in one rack than any rack has.
const GIANT: &str = "
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: giant, namespace: default}
spec:
  replicas: 1
  template:
    topologyConstraint: {packDomain: rack}
    cliques:
    - name: worker
      spec:
        roleName: worker
        replicas: 40
        minAvailable: 40
        podSpec:
          containers:
          - {name: main, image: registry.example/server:1, resources: {limits: {nvidia.com/gpu: 8}}}
";

/// The demo starts a whole cluster first, which takes a second on an idle machine.
const STORY_MAX: Duration = Duration::from_secs(240);

/// Starts the demo and waits for the end of its story. Its kubeconfig.
async fn demo() -> (Child, PathBuf) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_grove"))
        // Not whole blocks: it has 48.
        .args(["demo", "--nodes", "40"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut kubeconfig = None;
    let story = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(path) = line.trim().strip_prefix("export KUBECONFIG=") {
                kubeconfig = Some(PathBuf::from(path));
            }
            if line.starts_with("Ctrl-C") {
                break;
            }
        }
        // Whoever prints to a pipe that nobody reads would be stopped by it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    };
    timeout(STORY_MAX, story).await.unwrap();
    (child, kubeconfig.expect("the demo tells its kubeconfig"))
}

async fn grove(kubeconfig: &Path, args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_grove"))
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output();
    timeout(PATIENCE, output).await.unwrap().unwrap()
}

async fn explain(kubeconfig: &Path, args: &[&str]) -> Output {
    grove(kubeconfig, &[&["explain"], args].concat()).await
}

async fn client(kubeconfig: &Path) -> Client {
    let found = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(found, &KubeConfigOptions::default()).await;
    let mut config = config.unwrap();
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}

/// A command that goes on, and what it prints.
struct Following {
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Following {
    fn start(kubeconfig: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_grove"))
            .args(args)
            .arg("--watch")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            _child: child,
        }
    }

    /// The next line that is as it should be.
    async fn line(&mut self, is_so: impl Fn(&str) -> bool) -> String {
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if is_so(&line) {
                    return line;
                }
            }
            panic!("it ended")
        };
        timeout(PATIENCE, found).await.expect("such a line")
    }

    /// Waits for an answer in JSON that says this of a set: why it waits, or that it is not there.
    async fn says(&mut self, name: &str, reason: Option<&str>) -> Vec<String> {
        let items = |line: &str| {
            let answer: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            answer["items"].as_array().cloned().unwrap_or_default()
        };
        let is_so = |line: &str| {
            let found = items(line).into_iter().find(|item| item["name"] == name);
            found.map(|item| item["reason"].as_str().map(str::to_owned)) == reason.map(|reason| Some(reason.to_owned()))
        };
        let line = self.line(is_so).await;
        items(&line)
            .iter()
            .map(|item| item["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

#[tokio::test]
async fn gangs_that_run_tell_where_and_gangs_that_wait_tell_why() {
    let (demo, kubeconfig) = demo().await;

    let running = explain(&kubeconfig, &["pcs", "llama-disagg", "--deep"]).await;
    let text = String::from_utf8(running.stdout).unwrap();
    assert_eq!(running.status.code(), Some(0), "{text}");
    assert!(text.contains("llama-disagg-0  RUNNING"), "{text}");
    assert!(text.contains("required"), "{text}");
    assert!(text.contains("now   no better place is free"), "{text}");

    // What goes on tells what was there, and then what changes.
    let mut all = Following::start(&kubeconfig, &["status", "-A", "-o", "json"]);
    let names = all.says("moe-giant", Some("TooLarge")).await;
    assert_eq!(names, ["dgd-vllm", "llama-disagg", "moe-giant", "qwen-elastic"]);

    let client = client(&kubeconfig).await;
    let sets: Api<PodCliqueSet> = Api::default_namespaced(client.clone());
    let giant: PodCliqueSet = serde_saphyr::from_str(GIANT).unwrap();
    sets.create(&PostParams::default(), &giant).await.unwrap();
    let gangs: Api<PodGang> = Api::default_namespaced(client.clone());
    let is_explained = |gang: Option<&PodGang>| {
        let status = gang.and_then(|gang| gang.status.as_ref());
        status
            .and_then(|status| status.pending.as_ref())
            .is_some_and(|pending| pending.reason == "TooLarge")
    };
    let explained = await_condition(gangs, "giant-0", is_explained);
    timeout(PATIENCE, explained).await.unwrap().unwrap();

    assert_eq!(all.says("giant", Some("TooLarge")).await.len(), 5);
    let mut one = Following::start(&kubeconfig, &["explain", "pcs", "giant"]);
    one.line(|line| line.contains("giant-0  PENDING")).await;

    let waiting = explain(&kubeconfig, &["pcs", "giant"]).await;
    let text = String::from_utf8(waiting.stdout).unwrap();
    assert_eq!(waiting.status.code(), Some(1), "{text}");
    assert!(
        text.contains("giant-0  PENDING") && text.contains("TooLarge: needs 40 pods"),
        "{text}"
    );
    assert!(text.contains("HELD BY"), "{text}");

    let waiting = explain(&kubeconfig, &["pg", "giant-0", "-o", "json"]).await;
    assert_eq!(waiting.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&waiting.stdout).unwrap();
    assert_eq!(answer["items"][0]["pending"]["waiting"], "Never");
    let need = answer["items"][0]["pending"]["need"].as_str().unwrap();
    assert!(
        need.starts_with("40 pods of giant-0-worker (") && need.ends_with(" in one rack"),
        "{need}"
    );

    let status = grove(&kubeconfig, &["status", "-A"]).await;
    let text = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.status.code(), Some(0), "{text}");
    let line = |name: &str| {
        text.lines()
            .find(|line| line.split_whitespace().nth(1) == Some(name))
            .unwrap()
    };
    assert!(
        line("giant").contains("0/40") && line("giant").ends_with(" TooLarge"),
        "{text}"
    );
    assert!(line("llama-disagg").contains(" Running"), "{text}");
    assert!(text.ends_with("next: grove explain pcs giant -n default\n"), "{text}");
    let unknown = grove(&kubeconfig, &["status", "gian"]).await;
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(
        (unknown.status.code(), said.contains("did you mean \"giant\"?")),
        (Some(2), true),
        "{said}"
    );

    let unknown = explain(&kubeconfig, &["pcs", "gaint"]).await;
    assert_eq!(unknown.status.code(), Some(2));
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(
        said.contains("not found in namespace default; did you mean \"giant\"?"),
        "{said}"
    );

    sets.delete("giant", &DeleteParams::default()).await.unwrap();
    one.line(|line| line == "no gangs any more").await;
    assert_eq!(all.says("giant", None).await, names);

    lost_members_and_full_blocks_are_explained(&kubeconfig, &client).await;
    graphs_are_written_in_both_versions(&client).await;
    let (code, _) = terminate(demo).await;
    assert_eq!(code, Some(0));
}

/// A gang that loses a member is told of with what holds the lost pod: the rack of its siblings, though others of the
/// gang run in other racks. A group that grows beyond its block is told of that block.
async fn lost_members_and_full_blocks_are_explained(kubeconfig: &Path, client: &Client) {
    let (pods, nodes): (Api<Pod>, Api<Node>) = (Api::default_namespaced(client.clone()), Api::all(client.clone()));
    let prefill = ListParams::default().labels("grove.io/podclique=llama-disagg-0-prefill");
    let pod = pods.list(&prefill).await.unwrap().items.remove(0);
    let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap();
    let rack = host.rsplit_once('h').unwrap().0;
    let cordon = |is_closed: bool| Patch::Merge(json!({"spec": {"unschedulable": is_closed}}));
    let params = PatchParams::default();
    nodes.patch(&host, &params, &cordon(true)).await.unwrap();
    let name = pod.metadata.name.unwrap();
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    let gangs: Api<PodGang> = Api::default_namespaced(client.clone());
    let reason = |reason: &'static str| {
        move |gang: Option<&PodGang>| {
            let pending = gang.and_then(|gang| gang.status.as_ref()?.pending.as_ref());
            pending.is_some_and(|pending| pending.reason == reason)
        }
    };
    let lost = await_condition(gangs.clone(), "llama-disagg-0", reason("NodesUnavailable"));
    timeout(PATIENCE, lost).await.unwrap().unwrap();

    let told = explain(kubeconfig, &["pcs", "llama-disagg"]).await;
    let text = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(1), "{text}");
    assert!(text.starts_with("llama-disagg-0  DEGRADED 6/7 "), "{text}");
    assert!(
        text.contains(&format!("rack {rack}, where its pods run, has room for 0")),
        "{text}"
    );
    assert!(text.contains(&format!("{host} (cordoned)")), "{text}");
    let rows = text.lines().filter(|line| line.contains("room for 1 pod ")).count();
    assert_eq!(rows, 1, "only that rack can take it: {text}");
    let status = grove(kubeconfig, &["status", "llama-disagg"]).await;
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(text.contains("Degraded 6/7, NodesUnavailable"), "{text}");
    assert_eq!(status.status.code(), Some(1), "{text}");
    let folder = tempfile::TempDir::new().unwrap();
    let plugin = folder.path().join("kubectl-grove");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_grove"), &plugin).unwrap();
    let mut plugin = Command::new(plugin);
    let status = plugin.arg("status").arg("--kubeconfig").arg(kubeconfig).output();
    let text = String::from_utf8(timeout(PATIENCE, status).await.unwrap().unwrap().stdout).unwrap();
    assert!(
        text.ends_with("next: kubectl grove explain pcs llama-disagg -n default\n"),
        "{text}"
    );
    assert!(
        text.contains(&format!("block {}", rack.rsplit_once('r').unwrap().0)),
        "{text}"
    );

    nodes.patch(&host, &params, &cordon(false)).await.unwrap();
    let is_whole = |gang: Option<&PodGang>| {
        let scheduled = gang.and_then(|gang| gang.status.as_ref()?.scheduled());
        scheduled.is_some_and(|condition| condition.status == "True")
    };
    let whole = await_condition(gangs.clone(), "llama-disagg-0", is_whole);
    timeout(PATIENCE, whole).await.unwrap().unwrap();

    let groups: Api<PodCliqueScalingGroup> = Api::default_namespaced(client.clone());
    let scale = Patch::Merge(json!({"spec": {"replicas": 12}}));
    groups
        .patch_scale("qwen-elastic-0-server", &params, &scale)
        .await
        .unwrap();
    let full = await_condition(gangs, "qwen-elastic-0-server-9", reason("ReplicaPinned"));
    timeout(PATIENCE, full).await.unwrap().unwrap();
    let told = explain(kubeconfig, &["pg", "qwen-elastic-0-server-9"]).await;
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("racks in block z"), "{text}");
}

/// A graph that is written in the older version is read in both.
async fn graphs_are_written_in_both_versions(client: &Client) {
    let graphs = |version: &str| -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("nvidia.com", version, "DynamoGraphDeployment");
        let resource = ApiResource::from_gvk_with_plural(&kind, "dynamographdeployments");
        Api::default_namespaced_with(client.clone(), &resource)
    };
    let pod =
        json!({"nodeSelector": {"nowhere": "at all"}, "mainContainer": {"image": "server", "command": ["sleep"]}});
    let services = json!({"Decode": {"componentType": "worker", "subComponentType": "decode", "replicas": 1,
        "resources": {"limits": {"gpu": "1", "gpuType": "vendor.example/gpu"}}, "extraPodSpec": pod}});
    let graph = json!({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
                       "metadata": {"name": "old-style"}, "spec": {"services": services}});
    let graph: DynamicObject = serde_json::from_value(graph).unwrap();
    let made = graphs("v1alpha1").create(&PostParams::default(), &graph).await.unwrap();
    assert_eq!(made.data["spec"]["services"], services);
    let new = graphs("v1beta1").get("old-style").await.unwrap();
    assert_eq!(new.data["spec"]["components"][0]["name"], "Decode");
    let old = graphs("v1alpha1").list(&ListParams::default()).await.unwrap();
    assert!(old.iter().any(|graph| graph.data["spec"]["services"] == services));
    let gone = DeleteParams::default();
    graphs("v1alpha1").delete("old-style", &gone).await.unwrap();
}
