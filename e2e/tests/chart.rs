//! The chart, installed by Helm on a real control plane. The pods of its Deployments are kwok's, which run nothing; so
//! operator and scheduler run beside them as processes, with the configuration that was rendered and as the accounts that
//! were made, with their rights and no others.

#[path = "common/replica.rs"]
mod replica;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use grove_api::rights::{self, Home};
use grove_e2e::{ControlPlane, Identity, Shared, binary_for_test, eventually, node};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

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

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/grove")
}

fn text_of(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn helm(plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let mut helm = Command::new(plane.helm()?);
    helm.arg("--kubeconfig")
        .arg(plane.kubeconfig(Identity::Admin))
        .args(args);
    let output = helm.output()?;
    ensure!(output.status.success(), "helm {args:?}: {}", text_of(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// What one template of the chart becomes.
fn rendered(plane: &ControlPlane, template: &str, more: &[&str]) -> Result<String> {
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

fn kubectl(plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let mut kubectl = Command::new(plane.kubectl());
    kubectl
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(Identity::Admin))
        .args(args);
    let output = kubectl.output()?;
    ensure!(output.status.success(), "kubectl {args:?}: {}", text_of(&output));
    Ok(String::from_utf8(output.stdout)?)
}

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

async fn pods(client: &Client) -> Result<BTreeMap<String, Pod>> {
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let all = pods.list(&ListParams::default()).await?;
    Ok(all.into_iter().filter_map(|pod| Some((pod.uid()?, pod))).collect())
}

/// UIDs of the pods of examples/simple.yaml, once all run.
async fn running(client: &Client) -> Result<Vec<String>> {
    let found = eventually("the workload to run", LIMIT, async || -> Result<Vec<String>> {
        let pods = pods(client).await?;
        let runs = |pod: &&Pod| {
            pod.status
                .as_ref()
                .is_some_and(|status| status.phase.as_deref() == Some("Running"))
        };
        ensure!(pods.values().filter(runs).count() == 4, "{} pods", pods.len());
        Ok(pods.into_keys().collect())
    });
    Ok(found.await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_upgraded_and_taken_away() -> Result<()> {
    let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
    let plane = PLANE.get().await?;
    let client = plane.client(Identity::Admin).await?;
    let folder = TempDir::new()?;
    let chart = chart().display().to_string();
    let webhooks = free_port()?;

    let first = values(folder.path(), webhooks, &json!({"leaderElection": {"enabled": true}}))?;
    let release = ["grove", &chart, "--namespace", NAMESPACE, "--values", &first];
    helm(
        plane,
        &[
            &["install", "--create-namespace", "--wait", "--timeout", "120s"],
            &release[..],
        ]
        .concat(),
    )?;
    release_is_small(&client).await?;
    let [operator, scheduler] = [
        account(plane, "grove-operator", folder.path())?,
        account(plane, "grove-scheduler", folder.path())?,
    ];
    let operator = Replica::start(
        &grove,
        "operator",
        &mounted(&client, "grove-operator").await?,
        &operator,
    )?;
    let config = without_ports(&mounted(&client, "grove-scheduler").await?)?;
    let scheduler = Replica::start(&grove, "scheduler", &config, &scheduler)?;
    operator.says("registered the webhooks").await?;
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/simple.yaml");
    let example = example.display().to_string();
    eventually("the workload to be admitted", LIMIT, async || {
        kubectl(plane, &["apply", "-f", &example])
    })
    .await?;
    let before = running(&client).await?;

    let second = values(
        folder.path(),
        webhooks,
        &json!({"leaderElection": {"enabled": true}, "logLevel": "debug"}),
    )?;
    let release = ["grove", &chart, "--namespace", NAMESPACE, "--values", &second];
    helm(
        plane,
        &[&["upgrade", "--wait", "--timeout", "120s"], &release[..]].concat(),
    )?;
    let config = mounted(&client, "grove-operator").await?;
    ensure!(config.contains("logLevel: debug"), "{config}");
    operator.terminate().await?;
    let kubeconfig = account(plane, "grove-operator", folder.path())?;
    let operator = Replica::start(&grove, "operator", &config, &kubeconfig)?;
    operator.says("elected leader").await?;
    ensure!(running(&client).await? == before, "an upgrade changed pods");

    operator.terminate().await?;
    scheduler.kill().await?;
    clean_up(plane, &grove, folder.path()).await?;
    helm(
        plane,
        &[
            "uninstall",
            "grove",
            "--namespace",
            NAMESPACE,
            "--wait",
            "--timeout",
            "120s",
        ],
    )?;
    nothing_is_left(plane).await?;
    ensure!(running(&client).await? == before, "the workload is the user's");
    kubectl(plane, &["delete", "-f", &example, "--wait=false"])?;
    eventually("the workload to be gone", LIMIT, async || -> Result<()> {
        let left = pods(&client).await?.len();
        ensure!(left == 0, "{left} pods are left");
        Ok(())
    })
    .await?;
    Ok(())
}

async fn release_is_small(client: &Client) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let stored = secrets
        .get("sh.helm.release.v1.grove.v1")
        .await?
        .data
        .unwrap_or_default();
    let bytes: usize = stored.values().map(|value| value.0.len()).sum();
    ensure!((1..RELEASE_BYTES_MAX).contains(&bytes), "{bytes} bytes");
    Ok(())
}

/// Runs `grove cleanup` with the rights of the hook, twice.
async fn clean_up(plane: &ControlPlane, grove: &Path, folder: &Path) -> Result<()> {
    let hook = rendered(plane, "templates/cleanup.yaml", &["--namespace", NAMESPACE])?;
    let rights = hook.split("---\n").filter(|document| !document.contains("kind: Job"));
    let path = folder.join("hook.yaml");
    fs::write(&path, rights.collect::<Vec<_>>().join("---\n"))?;
    kubectl(plane, &["apply", "-f", &path.display().to_string()])?;
    let kubeconfig = account(plane, "grove-cleanup", folder)?;
    for least in [1, 0] {
        let mut cleanup = Command::new(grove);
        cleanup.args(["cleanup", "--kubeconfig"]).arg(&kubeconfig);
        let output = cleanup.output()?;
        let told = text_of(&output);
        ensure!(output.status.success(), "{told}");
        let lifted = told
            .lines()
            .last()
            .and_then(|line| line.split(' ').nth(2)?.parse::<usize>().ok());
        ensure!(lifted.is_some_and(|lifted| lifted >= least), "{told}");
    }
    let left = Api::<ValidatingWebhookConfiguration>::all(plane.client(Identity::Admin).await?);
    let left = left.list(&ListParams::default()).await?.items.len();
    ensure!(left == 0, "{left} webhook configurations are left");
    kubectl(plane, &["delete", "-f", &path.display().to_string()])?;
    Ok(())
}

/// Of all that the chart made, the kinds alone stay.
async fn nothing_is_left(plane: &ControlPlane) -> Result<()> {
    let kinds = "serviceaccounts,configmaps,services,deployments,poddisruptionbudgets,networkpolicies,jobs,roles,rolebindings,\
                 clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations";
    eventually("nothing of the chart to be left", LIMIT, async || -> Result<()> {
        let label = "app.kubernetes.io/part-of=grove";
        let left = kubectl(
            plane,
            &[
                "get",
                kinds,
                "--all-namespaces",
                "--selector",
                label,
                "--output",
                "name",
            ],
        )?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })
    .await?;
    let definitions = kubectl(plane, &["get", "customresourcedefinitions", "--output", "name"])?;
    ensure!(definitions.contains("podcliquesets.grove.io"), "{definitions}");
    Ok(())
}

/// The Roles of the chart are those that `grove rbac` prints; Leases elsewhere are allowed where they are.
#[tokio::test(flavor = "multi_thread")]
async fn roles_allow_what_the_replicas_need_and_no_more() -> Result<()> {
    let plane = PLANE.get().await?;
    let roles = |more: &[&str]| -> Result<BTreeMap<(String, String), Value>> {
        let text = rendered(
            plane,
            "templates/rbac.yaml",
            &[&["--namespace", NAMESPACE], more].concat(),
        )?;
        let mut roles = BTreeMap::new();
        for document in text.split("---\n").filter(|document| document.contains("kind: Role\n")) {
            let role: Value = serde_saphyr::from_str(document)?;
            let named = |key: &str| role["metadata"][key].as_str().unwrap_or_default().to_owned();
            roles.insert((named("namespace"), named("name")), role["rules"].clone());
        }
        Ok(roles)
    };
    let home = Home {
        namespace: NAMESPACE,
        secret: "grove-webhook-server-cert",
        lease: "grove-operator-leader-election",
    };
    let operator = serde_json::to_value(rights::role(&home).rules)?;
    let scheduler = serde_json::to_value(rights::scheduler::role(NAMESPACE).rules)?;
    let at = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    let expected = [(rights::OPERATOR, &operator), (rights::scheduler::NAME, &scheduler)];
    let expected: BTreeMap<_, _> = expected
        .map(|(name, rules)| (at(NAMESPACE, name), rules.clone()))
        .into();
    ensure!(roles(&[])? == expected, "{:#?} is not {expected:#?}", roles(&[])?);
    let elsewhere = roles(&["--set", "config.leaderElection.resourceNamespace=leases"])?;
    ensure!(
        elsewhere[&at("leases", rights::scheduler::NAME)] == scheduler,
        "{elsewhere:#?}"
    );
    let (own, theirs) = (
        &elsewhere[&at(NAMESPACE, rights::OPERATOR)],
        &elsewhere[&at("leases", rights::OPERATOR)],
    );
    let both: Vec<&Value> = [own, theirs]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
        .collect();
    ensure!(json!(both) == operator, "{elsewhere:#?}");
    Ok(())
}

/// Every configuration that the operator takes can be given to the chart, and comes out as it went in.
#[tokio::test(flavor = "multi_thread")]
async fn values_take_every_good_configuration_and_refuse_what_is_unknown() -> Result<()> {
    let plane = PLANE.get().await?;
    let folder = TempDir::new()?;
    let chart = chart().display().to_string();
    helm(plane, &["lint", "--strict", &chart])?;
    let path = folder.path().join("values.json");
    let values = path.display().to_string();
    let template = || rendered(plane, "templates/config.yaml", &["--values", &values]);
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/api/tests/config/good");
    let mut judged = 0;
    for entry in good.read_dir()? {
        let text = fs::read_to_string(entry?.path())?;
        let Ok(Value::Object(mut config)) = serde_saphyr::from_str::<Value>(&text) else {
            continue;
        };
        config.remove("apiVersion");
        config.remove("kind");
        // To Helm a null says that a value is taken away, and to the operator that it has its default.
        config.values_mut().for_each(drop_nulls);
        config.retain(|_, value| !value.is_null());
        fs::write(&path, json!({"config": config}).to_string())?;
        let rendered: Value = serde_saphyr::from_str(&template()?)?;
        let inside = rendered["data"]["config.yaml"].as_str().context("a configuration")?;
        let inside: Value = serde_saphyr::from_str(inside)?;
        for (key, value) in &config {
            ensure!(is_within(value, &inside[key]), "{key}: {value} became {}", inside[key]);
        }
        judged += 1;
    }
    ensure!(judged > 10, "{judged} files were found");
    fs::write(&path, json!({"config": {"logLevl": "debug"}}).to_string())?;
    let refused = template().map_or_else(|error| error.to_string(), |_| "nothing".to_owned());
    ensure!(refused.contains("'logLevl' not allowed"), "{refused}");
    Ok(())
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(drop_nulls);
        fields.retain(|_, value| !value.is_null());
    }
}

/// Whether a value is what was given, with what the chart's own values add to it.
fn is_within(given: &Value, rendered: &Value) -> bool {
    match (given, rendered) {
        (Value::Object(given), Value::Object(rendered)) => given
            .iter()
            .all(|(key, value)| rendered.get(key).is_some_and(|found| is_within(value, found))),
        (Value::Number(given), Value::Number(rendered)) => given.as_f64() == rendered.as_f64(),
        (given, rendered) => given == rendered,
    }
}
