//! The chart, installed by Helm on a real control plane. The pods of its Deployments are kwok's, which run nothing; so
//! operator and scheduler run beside them as processes, with the configuration that was rendered and as the accounts that
//! were made, with their rights and no others.
//!
//! The upgrade begins with `before.tgz`, the oldest chart that it is promised from, and with what an earlier operator left
//! behind; it goes on over the chart as it was before its last change, which git knows, so that no step is skipped. After a
//! release from which on upgrades are promised: `cd charts && git archive -o ../e2e/tests/chart/before.tgz COMMIT grove`.

#[path = "../common/before.rs"]
mod before;
mod graphs;
mod guards;
mod helm;
#[path = "../common/recorded.rs"]
mod recorded;
#[path = "../common/replica.rs"]
mod replica;
mod values;

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use grove_api::PodCliqueScalingGroup;
use grove_e2e::{ControlPlane, Identity, Shared, binary_for_test, eventually, node};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

use before::{BEFORE, PODS};
use helm::{helm, kubectl, packaged, rendered, text_of};
use replica::Replica;

const NAMESPACE: &str = "grove-system";
const LIMIT: Duration = Duration::from_secs(120);
/// What Helm keeps of a release lies in one Secret, and a Secret takes a mebibyte.
const RELEASE_BYTES_MAX: usize = 800 * 1024;

static PLANE: Shared = Shared::new(|| {
    let capacity = [
        ("cpu", "32"),
        ("memory", "64Gi"),
        ("pods", "50"),
        ("nvidia.com/gpu", "8"),
    ];
    let nodes = (0..4).map(move |index| node(&format!("n{index}"), &[("example.com/rack", "r1")], &capacity));
    ControlPlane::builder().node_objects(nodes).scheduler(true)
});

/// A kubeconfig of a service account that the chart made.
fn account(plane: &ControlPlane, name: &str, folder: &Path) -> Result<PathBuf> {
    let token = kubectl(plane, &["create", "token", name, "--namespace", NAMESPACE])?;
    let mut kubeconfig: Value = serde_json::from_str(&fs::read_to_string(plane.kubeconfig(Identity::Admin))?)?;
    kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(NAMESPACE);
    let path = folder.join(format!("{name}.kubeconfig"));
    fs::write(&path, kubeconfig.to_string())?;
    Ok(path)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Values with ports that are free here, and with levels.
fn values(folder: &Path, webhooks: u16, more: &Value) -> Result<String> {
    let mut config = json!({
        "server": {"webhooks": {"bindAddress": "127.0.0.1", "port": webhooks}, "healthProbes": {"port": free_port()?},
            "metrics": {"port": free_port()?}},
        "topologyAwareScheduling": {"enabled": true, "levels": [{"domain": "rack", "key": "example.com/rack"},
            {"domain": "host", "key": "kubernetes.io/hostname"}]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    let path = folder.join("values.json");
    fs::write(&path, json!({"config": config}).to_string())?;
    Ok(path.display().to_string())
}

/// The configuration that the pods of a part mount.
async fn mounted(client: &Client, part: &str) -> Result<String> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let deployment = serde_json::to_value(deployments.get(part).await?)?;
    let name = deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"].as_str();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let map = maps.get(name.context("a ConfigMap is mounted")?).await?;
    ensure!(map.immutable == Some(true), "it can be changed");
    let text = map.data.and_then(|mut data| data.remove("config.yaml"));
    text.context("it holds the configuration")
}

/// The same file for a process on a host where another one has these ports.
fn without_ports(config: &str) -> Result<String> {
    let mut config: Value = serde_saphyr::from_str(config)?;
    config["server"]["healthProbes"]["port"] = json!(0);
    config["server"]["metrics"]["port"] = json!(0);
    Ok(config.to_string())
}

/// UIDs of the pods of a namespace, once this many run and no others are there.
async fn running(client: &Client, namespace: &str, count: usize) -> Result<BTreeSet<String>> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let found = eventually("the workload to run", LIMIT, async || -> Result<BTreeSet<String>> {
        let pods = api.list(&ListParams::default()).await?.items;
        let runs = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running")
        };
        let run = pods.iter().filter(runs).count();
        ensure!((run, pods.len()) == (count, count), "{run} of {} pods run", pods.len());
        Ok(pods.iter().filter_map(ResourceExt::uid).collect())
    });
    Ok(found.await?)
}

/// Installs the chart, or upgrades to it, with the values of a file.
fn deploy(plane: &ControlPlane, verb: &[&str], chart: &str, values: &str) -> Result<()> {
    let release = ["grove", chart, "--namespace", NAMESPACE, "--values", values];
    helm(plane, &[verb, &["--wait", "--timeout", "120s"], &release].concat())?;
    Ok(())
}

/// Operator and scheduler as processes: the configuration is that of the release, the rights are those of its accounts.
async fn start(plane: &ControlPlane, grove: &Path, folder: &Path) -> Result<[Replica; 2]> {
    let client = plane.client(Identity::Admin).await?;
    let config = mounted(&client, "grove-operator").await?;
    let operator = Replica::start(grove, "operator", &config, &account(plane, "grove-operator", folder)?)?;
    let config = without_ports(&mounted(&client, "grove-scheduler").await?)?;
    let scheduler = Replica::start(grove, "scheduler", &config, &account(plane, "grove-scheduler", folder)?)?;
    operator.says("registered the webhooks").await?;
    Ok([operator, scheduler])
}

/// Shows that the operator has taken over the set that the one before it made: a group of it grows and shrinks, and the
/// pods of before are there all the time. The set itself is not written: it was recorded without webhooks, and what they
/// would fill in is another template.
async fn is_taken_over(plane: &ControlPlane, before: &BTreeSet<String>) -> Result<()> {
    let client = plane.client(Identity::Admin).await?;
    let groups = Api::<PodCliqueScalingGroup>::namespaced(client.clone(), BEFORE.namespace);
    let namespace = ["--namespace", BEFORE.namespace, "--show-labels"];
    let told = || kubectl(plane, &[&["get", "pods,podgangs,events"], &namespace[..]].concat());
    for (replicas, pods) in [(3, PODS + 1), (2, PODS)] {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        groups.patch_scale("w-0-sg", &PatchParams::default(), &patch).await?;
        let now = running(&client, BEFORE.namespace, pods).await?;
        ensure!(now.is_superset(before), "an upgrade changed pods: {}", told()?);
    }
    Ok(())
}

/// All objects by kind, namespace and name, but for Events and what Kubernetes' own programs keep for themselves.
fn everything(plane: &ControlPlane) -> Result<BTreeSet<String>> {
    let kinds = kubectl(plane, &["api-resources", "--verbs", "list", "--output", "name"])?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
    let shape = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
    let args = ["get", &kinds.join(","), "--all-namespaces", "--output", shape];
    let objects = kubectl(plane, &args)?;
    let ours = objects.lines().filter(|object| !object.contains(" kube-"));
    Ok(ours.map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_upgraded_and_taken_away() -> Result<()> {
    let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
    let plane = PLANE.get().await?;
    let client = plane.client(Identity::Admin).await?;
    let folder = TempDir::new()?;
    let chart = packaged(plane, folder.path())?;
    let webhooks = free_port()?;
    plane.create_namespace(NAMESPACE).await?;
    plane.create_namespace(BEFORE.namespace).await?;
    plane.create_namespace(graphs::NAMESPACE).await?;
    guards::restrict(plane)?;
    let bare = everything(plane)?;

    let mut config = json!({"leaderElection": {"enabled": true}});
    let first = values(folder.path(), webhooks, &config)?;
    deploy(plane, &["install"], helm::BEFORE, &first)?;
    BEFORE.restore(&client).await?;
    let before = running(&client, BEFORE.namespace, PODS).await?;

    if let Some(chart) = helm::last_change(folder.path())? {
        deploy(plane, &["upgrade"], &chart, &first)?;
    }
    deploy(plane, &["upgrade"], &chart, &first)?;
    release_is_small(&client).await?;
    guards::are_up(plane).await?;
    let [operator, scheduler] = start(plane, &grove, folder.path()).await?;
    is_taken_over(plane, &before).await?;
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/simple.yaml");
    let example = example.display().to_string();
    eventually("the workload to be admitted", LIMIT, async || {
        kubectl(plane, &["apply", "-f", &example])
    })
    .await?;
    let example_pods = running(&client, "default", 4).await?;

    config["logLevel"] = json!("debug");
    config["dynamo"] = json!({"enabled": true, "natsAddress": "nats://nats.dynamo:4222"});
    let second = values(folder.path(), webhooks, &config)?;
    deploy(plane, &["upgrade"], &chart, &second)?;
    let config = mounted(&client, "grove-operator").await?;
    ensure!(config.contains("logLevel: debug"), "{config}");
    operator.terminate().await?;
    let kubeconfig = account(plane, "grove-operator", folder.path())?;
    let operator = Replica::start(&grove, "operator", &config, &kubeconfig)?;
    operator.says("elected leader").await?;
    is_taken_over(plane, &before).await?;
    ensure!(
        running(&client, "default", 4).await? == example_pods,
        "an upgrade changed pods"
    );

    let graph_pods = graphs::are_served(plane, &client, folder.path()).await?;
    graphs::are_converted(plane)?;

    operator.terminate().await?;
    scheduler.kill().await?;
    clean_up(plane, &grove, folder.path()).await?;
    let release = ["uninstall", "grove", "--namespace", NAMESPACE];
    helm(plane, &[&release[..], &["--wait", "--timeout", "120s"]].concat())?;
    ensure!(
        running(&client, "default", 4).await? == example_pods,
        "the workload is the user's"
    );
    ensure!(
        running(&client, BEFORE.namespace, PODS).await? == before,
        "so is the other one"
    );
    graphs::are_kept(plane, &client, &graph_pods).await?;
    kubectl(
        plane,
        &["delete", "dynamographdeployments", "--all", "--all-namespaces"],
    )?;
    kubectl(
        plane,
        &["delete", "podcliquesets", "--all", "--all-namespaces", "--wait=false"],
    )?;
    nothing_is_left(plane, &bare).await
}

/// The newest of the releases that Helm keeps: the older ones are of older charts.
async fn release_is_small(client: &Client) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let releases = secrets
        .list(&ListParams::default().labels("owner=helm,name=grove"))
        .await?;
    let number = |secret: &Secret| secret.labels().get("version")?.parse::<u32>().ok();
    let newest = releases.items.into_iter().max_by_key(number);
    let newest = newest.context("Helm keeps its releases")?;
    ensure!(
        number(&newest) > Some(1),
        "the chart was upgraded: {:?}",
        newest.name_any()
    );
    let stored = newest.data.unwrap_or_default();
    let bytes: usize = stored.values().map(|value| value.0.len()).sum();
    ensure!((1..RELEASE_BYTES_MAX).contains(&bytes), "{bytes} bytes");
    Ok(())
}

/// The arguments of the hook's program.
fn hook_arguments(hook: &str) -> Result<Vec<String>> {
    let job = hook.split("---\n").find(|document| document.contains("kind: Job"));
    let job: Value = serde_saphyr::from_str(job.context("the hook has a Job")?)?;
    let arguments = &job["spec"]["template"]["spec"]["containers"][0]["args"];
    Ok(serde_json::from_value(arguments.clone())?)
}

/// Runs `grove cleanup` as the hook does, with its rights, twice.
async fn clean_up(plane: &ControlPlane, grove: &Path, folder: &Path) -> Result<()> {
    let hook = rendered(plane, "templates/cleanup.yaml", &["--namespace", NAMESPACE])?;
    let rights = hook.split("---\n").filter(|document| !document.contains("kind: Job"));
    let path = folder.join("hook.yaml");
    fs::write(&path, rights.collect::<Vec<_>>().join("---\n"))?;
    kubectl(plane, &["apply", "-f", &path.display().to_string()])?;
    let kubeconfig = account(plane, "grove-cleanup", folder)?;
    for (least, converted) in [(1, 2), (0, 0)] {
        let mut cleanup = Command::new(grove);
        cleanup
            .args(hook_arguments(&hook)?)
            .arg("--kubeconfig")
            .arg(&kubeconfig);
        let output = cleanup.output()?;
        let told = text_of(&output);
        ensure!(output.status.success(), "{told}");
        let lifted = told
            .lines()
            .last()
            .and_then(|line| line.split(' ').nth(2)?.parse::<usize>().ok());
        ensure!(lifted.is_some_and(|lifted| lifted >= least), "{told}");
        let withdrawn = format!("\n{converted} definitions of kinds no longer lead to a conversion webhook\n");
        ensure!(told.contains(&withdrawn), "{told}");
    }
    let left = Api::<ValidatingWebhookConfiguration>::all(plane.client(Identity::Admin).await?);
    let left = left.list(&ListParams::default()).await?.items.len();
    ensure!(left == 0, "{left} webhook configurations are left");
    kubectl(plane, &["delete", "-f", &path.display().to_string()])?;
    Ok(())
}

/// When the user's workloads are gone too, the cluster is as it was before, but for the kinds and the topology that sets
/// may name.
async fn nothing_is_left(plane: &ControlPlane, bare: &BTreeSet<String>) -> Result<()> {
    let stays = |object: &&String| {
        let kinds = ["CustomResourceDefinition ", "APIService "];
        kinds.iter().any(|kind| object.starts_with(kind)) || object.as_str() == "ClusterTopology /grove-topology"
    };
    eventually("nothing of Grove to be left", LIMIT, async || -> Result<()> {
        let now = everything(plane)?;
        let left: Vec<&String> = now.difference(bare).filter(|object| !stays(object)).collect();
        ensure!(left.is_empty(), "{left:#?}");
        Ok(())
    })
    .await?;
    let definitions = kubectl(plane, &["get", "customresourcedefinitions", "--output", "name"])?;
    ensure!(definitions.contains("podcliquesets.grove.io"), "{definitions}");
    Ok(())
}
