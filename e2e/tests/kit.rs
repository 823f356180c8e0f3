//! The control plane that the other end-to-end tests stand on is what they take it for: real programs of the pinned
//! version, with authorization, admission, garbage collection, nodes and, where wanted, a scheduler.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use grove_e2e::{ControlPlane, Identity, Shared, eventually, node};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use rustix::process::{Pid, test_kill_process};
use serde_json::{from_value, json};

const NODES: usize = 50;
const LIMIT: Duration = Duration::from_secs(30);

static PLANE: Shared = Shared::new(|| ControlPlane::builder().nodes(NODES).scheduler(true));

fn create() -> PostParams {
    PostParams::default()
}

fn pod(name: &str, scheduler: &str) -> Result<Pod> {
    Ok(from_value(json!({
        "metadata": { "name": name },
        "spec": { "schedulerName": scheduler, "containers": [{ "name": "main", "image": "example.com/none" }] },
    }))?)
}

/// Waits until kwok reports the pod as ready, and returns the node it is on.
async fn ready(pods: &Api<Pod>, name: &str) -> Result<String> {
    let node = eventually(format!("pod {name} to be ready"), LIMIT, async || -> Result<String> {
        let pod = pods.get(name).await?;
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        ensure!(
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            "its conditions: {conditions:?}"
        );
        pod.spec.and_then(|spec| spec.node_name).context("it has no node")
    });
    Ok(node.await?)
}

/// Waits until the object is gone.
async fn gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let missing = eventually(format!("{name} to be gone"), LIMIT, async || -> Result<()> {
        ensure!(api.get_opt(name).await?.is_none(), "it is still there");
        Ok(())
    });
    Ok(missing.await?)
}

#[tokio::test]
async fn the_server_has_the_pinned_version() -> Result<()> {
    let plane = PLANE.get().await?;
    let version = plane.client(Identity::Admin).await?.apiserver_version().await?;
    assert_eq!(version.git_version, "v1.36.3");
    assert_eq!(version.git_version, plane.kit().kubernetes_version());
    Ok(())
}

#[tokio::test]
async fn a_user_without_rights_is_refused_by_name() -> Result<()> {
    let secrets: Api<Secret> = Api::default_namespaced(PLANE.get().await?.client(Identity::User).await?);
    let error = secrets.list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(
        error.contains(r#"User "user" cannot list resource "secrets""#),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn the_operator_is_its_service_account() -> Result<()> {
    let reviews: Api<SelfSubjectReview> = Api::all(PLANE.get().await?.client(Identity::Operator).await?);
    let review = reviews.create(&create(), &SelfSubjectReview::default()).await?;
    let user = review
        .status
        .and_then(|status| status.user_info)
        .context("no user in the review")?;
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:grove-system:grove-operator")
    );
    let groups = user.groups.unwrap_or_default();
    for group in [
        "system:serviceaccounts",
        "system:serviceaccounts:grove-system",
        "system:authenticated",
    ] {
        assert!(
            groups.iter().any(|have| have == group),
            "{group} is not among {groups:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn kubectl_works_with_the_kubeconfig_of_each_identity() -> Result<()> {
    let plane = PLANE.get().await?;
    for identity in [Identity::Admin, Identity::User, Identity::Operator] {
        let mut kubectl = Command::new(plane.kubectl());
        kubectl.args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
        let output = kubectl.arg("--kubeconfig").arg(plane.kubeconfig(identity)).output()?;
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            identity.username(),
            "{output:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn webhooks_on_loopback_are_called() -> Result<()> {
    let plane = PLANE.get().await?;
    plane.create_namespace("webhooks").await?;
    let admin = plane.client(Identity::Admin).await?;
    // A port that was free a moment ago: nobody answers, so the refusal shows that the server tried to call.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let configuration: ValidatingWebhookConfiguration = from_value(json!({
        "metadata": { "name": "kit-test" },
        "webhooks": [{
            "name": "kit.grove.io",
            "clientConfig": { "url": format!("https://127.0.0.1:{port}/validate") },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "webhooks" } },
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    }))?;
    Api::<ValidatingWebhookConfiguration>::all(admin.clone())
        .create(&create(), &configuration)
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(admin, "webhooks");
    // The configuration takes effect a moment after it is stored.
    let refusal = eventually("the webhook to be called", LIMIT, async || -> Result<String> {
        let map: ConfigMap = from_value(json!({ "metadata": { "generateName": "m-" } }))?;
        match maps.create(&create(), &map).await {
            Ok(map) => anyhow::bail!("{} was admitted", map.name_any()),
            Err(error) => Ok(error.to_string()),
        }
    })
    .await?;
    assert!(
        refusal.contains(r#"failed calling webhook "kit.grove.io""#),
        "{refusal}"
    );
    assert!(
        refusal.contains(&format!("127.0.0.1:{port}: connect: connection refused")),
        "{refusal}"
    );
    Ok(())
}

#[tokio::test]
async fn every_node_is_ready_with_its_capacity() -> Result<()> {
    let nodes: Api<Node> = Api::all(PLANE.get().await?.client(Identity::Admin).await?);
    let nodes = nodes.list(&ListParams::default()).await?;
    assert_eq!(nodes.items.len(), NODES);
    for node in nodes {
        let name = node.name_any();
        let status = node.status.context("a node without status")?;
        let ready = status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .find(|c| c.type_ == "Ready");
        assert_eq!(ready.map(|c| c.status).as_deref(), Some("True"), "{name}");
        assert_eq!(
            status.allocatable.unwrap_or_default()["nvidia.com/gpu"].0,
            "8",
            "{name}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_bound_pod_runs_and_a_deleted_one_goes() -> Result<()> {
    let plane = PLANE.get().await?;
    plane.create_namespace("binding").await?;
    let admin = plane.client(Identity::Admin).await?;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "binding");
    pods.create(&create(), &pod("bound", "nobody")?).await?;
    bind(&admin, "binding", "bound", "node-7").await?;
    assert_eq!(ready(&pods, "bound").await?, "node-7");
    pods.delete("bound", &DeleteParams::default()).await?;
    gone(&pods, "bound").await
}

async fn bind(client: &Client, namespace: &str, pod: &str, node: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": pod },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding");
    let request = http::Request::post(path).header("content-type", "application/json");
    client
        .request_text(request.body(serde_json::to_vec(&binding)?)?)
        .await?;
    Ok(())
}

#[tokio::test]
async fn garbage_collection_follows_the_owner() -> Result<()> {
    let plane = PLANE.get().await?;
    plane.create_namespace("garbage").await?;
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(Identity::Admin).await?, "garbage");
    let owner = maps
        .create(&create(), &from_value(json!({ "metadata": { "name": "owner" } }))?)
        .await?;
    let reference =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid().context("no uid")? });
    let owned = json!({ "metadata": { "name": "owned", "ownerReferences": [reference] } });
    maps.create(&create(), &from_value(owned)?).await?;
    maps.delete("owner", &DeleteParams::default()).await?;
    gone(&maps, "owned").await
}

#[tokio::test]
async fn the_stock_scheduler_places_pods() -> Result<()> {
    let plane = PLANE.get().await?;
    plane.create_namespace("scheduling").await?;
    let pods: Api<Pod> = Api::namespaced(plane.client(Identity::Admin).await?, "scheduling");
    pods.create(&create(), &pod("placed", "default-scheduler")?).await?;
    let node = ready(&pods, "placed").await?;
    assert!(node.starts_with("node-"), "{node}");
    Ok(())
}

/// A second control plane beside the shared one, without a controller manager and with a node of our own.
#[tokio::test]
async fn stopping_leaves_no_process_and_no_file() -> Result<()> {
    let rack = node("r1-n1", &[("example.com/rack", "r1")], &[("cpu", "4"), ("pods", "10")]);
    let plane = ControlPlane::builder()
        .controller_manager(false)
        .node_objects([rack])
        .start()
        .await?;
    let admin = plane.client(Identity::Admin).await?;
    let pods: Api<Pod> = Api::default_namespaced(admin.clone());
    pods.create(&create(), &pod("alone", "nobody")?).await?;
    bind(&admin, "default", "alone", "r1-n1").await?;
    assert_eq!(ready(&pods, "alone").await?, "r1-n1");

    let (pids, dir) = (plane.pids(), plane.dir().to_owned());
    assert_eq!(pids.len(), 3, "etcd, kube-apiserver, kwok");
    for pid in &pids {
        assert!(runs(*pid)?, "{pid}");
    }
    drop(plane);
    for pid in &pids {
        assert!(!runs(*pid)?, "{pid}");
    }
    assert!(!dir.exists(), "{}", dir.display());
    Ok(())
}

fn runs(pid: u32) -> Result<bool> {
    let pid = Pid::from_raw(pid.try_into()?).context("not a process id")?;
    Ok(test_kill_process(pid).is_ok())
}

#[tokio::test]
async fn a_failed_start_quotes_the_log() -> Result<()> {
    let started = ControlPlane::builder().api_server_flag("--no-such-flag").start().await;
    let error = started.err().context("it started")?.to_string();
    assert!(error.starts_with("kube-apiserver ended (exit status: 1)"), "{error}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
    Ok(())
}

/// The words by which a start that lost its port to another process is recognised and tried again.
#[tokio::test]
async fn a_taken_port_is_recognised() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let flag = format!("--secure-port={}", taken.local_addr()?.port());
    let error = ControlPlane::builder()
        .api_server_flag(flag)
        .start()
        .await
        .err()
        .context("it started")?;
    assert!(error.to_string().contains("address already in use"), "{error}");
    Ok(())
}
