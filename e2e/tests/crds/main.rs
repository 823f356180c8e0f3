//! Our CRDs on a real kube-apiserver: they are established, every rule holds, nothing that a user writes is lost.
//! The embedded cluster must keep every rule with the same words.

mod broken;
mod coverage;
#[path = "../common/embedded.rs"]
mod embedded;
mod pod_template;
mod table;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use grove_e2e::{ControlPlane, Identity, Shared, eventually};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use embedded::Embedded;
use table::{Case, Table};

static PLANE: Shared = Shared::new(ControlPlane::builder);
static INSTALLED: OnceCell<()> = OnceCell::const_new();
pub(crate) static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(grove_api::crds::all);

/// As many requests at once as a busy laptop's API server takes well.
pub(crate) const CONCURRENCY: usize = 16;
const LIMIT: Duration = Duration::from_secs(30);

/// The control plane with our CRDs established, and an admin's client of it.
pub(crate) async fn cluster() -> Result<(&'static ControlPlane, Client)> {
    let plane = PLANE.get().await?;
    let client = plane.client(Identity::Admin).await?;
    INSTALLED.get_or_try_init(|| install(plane, &client)).await?;
    Ok((plane, client))
}

async fn install(plane: &ControlPlane, client: &Client) -> Result<()> {
    apply_crds(plane)?;
    established(client).await
}

async fn established(client: &Client) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    eventually("our CRDs to be established", LIMIT, async || -> Result<()> {
        for crd in crds.list(&ListParams::default()).await? {
            let conditions = crd
                .status
                .clone()
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            let established = conditions
                .iter()
                .any(|c| c.type_ == "Established" && c.status == "True");
            ensure!(established, "{}: {conditions:?}", crd.name_any());
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// What a person does: `grove crds | kubectl apply --server-side -f -`. Returns kubectl's words.
fn apply_crds(plane: &ControlPlane) -> Result<String> {
    let mut kubectl = Command::new(plane.kubectl())
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(Identity::Admin))
        .args(["apply", "--server-side", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let text: String = grove_api::crds::YAML.map(|(_, yaml)| format!("---\n{yaml}")).concat();
    kubectl
        .stdin
        .take()
        .context("kubectl has no input")?
        .write_all(text.as_bytes())?;
    let output = kubectl.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The API of an object by its apiVersion and kind; the plural is the CRD's.
pub(crate) fn api_of(client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
    let (api_version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let (group, version) = api_version.and_then(|v| v.split_once('/')).context("no apiVersion")?;
    let kind = kind.context("no kind")?;
    let definition = DEFINITIONS
        .iter()
        .find(|crd| crd.spec.names.kind == kind)
        .context("not our kind")?;
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &definition.spec.names.plural);
    Ok(match definition.spec.scope.as_str() {
        "Namespaced" => Api::default_namespaced_with(client.clone(), &resource),
        _ => Api::all_with(client.clone(), &resource),
    })
}

/// Stores an object under a name.
pub(crate) async fn store(client: &Client, object: &Value, name: &str) -> Result<Value, kube::Error> {
    let mut object = object.clone();
    object["metadata"]["name"] = name.into();
    let api = api_of(client, &object).map_err(|error| kube::Error::Service(error.into()))?;
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let stored = api.create(&PostParams::default(), &object).await?;
    serde_json::to_value(stored).map_err(kube::Error::SerdeError)
}

#[tokio::test]
async fn our_crds_are_established_and_applying_them_again_changes_nothing() -> Result<()> {
    let (plane, client) = cluster().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    let versions = async || -> Result<BTreeMap<String, Option<String>>> {
        let list = crds.list(&ListParams::default()).await?;
        Ok(list
            .iter()
            .map(|crd| (crd.name_any(), crd.resource_version()))
            .collect())
    };
    let before = versions().await?;
    assert_eq!(before.len(), grove_api::crds::YAML.len());
    let words = apply_crds(plane)?;
    assert_eq!(words.lines().count(), before.len(), "{words}");
    assert_eq!(versions().await?, before);
    Ok(())
}

#[tokio::test]
async fn every_rule_holds() -> Result<()> {
    let (_, client) = cluster().await?;
    judge_all(&client).await
}

#[tokio::test]
async fn every_rule_holds_on_the_embedded_cluster() -> Result<()> {
    let (_cluster, client) = embedded_with_kinds().await?;
    judge_all(&client).await
}

/// The embedded cluster with our CRDs established, and an admin's client of it.
pub(crate) async fn embedded_with_kinds() -> Result<(Embedded, Client)> {
    let cluster = Embedded::start().await?;
    let client = cluster.client().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in DEFINITIONS.iter() {
        crds.create(&PostParams::default(), definition).await?;
    }
    established(&client).await?;
    Ok((cluster, client))
}

async fn judge_all(client: &Client) -> Result<()> {
    let table = Table::read()?;
    let cases = table.cases();
    let outcomes = stream::iter(cases.iter().enumerate())
        .map(|(index, case)| {
            let client = client.clone();
            async move { (case, judge(&client, case, &format!("rule-{index}")).await) }
        })
        .buffered(CONCURRENCY);
    let failures: Vec<(&Case, anyhow::Error)> = outcomes
        .filter_map(async |(case, outcome)| outcome.err().map(|error| (case, error)))
        .collect()
        .await;
    let mut report = String::new();
    for (case, error) in &failures {
        writeln!(report, "{}: {}\n    {error:#}", case.kind(), case.rule)?;
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{report}",
        failures.len(),
        cases.len()
    );
    Ok(())
}

/// Sends what the case describes and compares the answer with what it expects.
async fn judge(client: &Client, case: &Case, name: &str) -> Result<()> {
    let answer = if case.after_create {
        store(client, &case.base, name).await.context("the unchanged object")?;
        let api = api_of(client, &case.base)?;
        let patch = Patch::Merge(&case.changed);
        let answer = match case.status {
            true => api.patch_status(name, &PatchParams::default(), &patch).await,
            false => api.patch(name, &PatchParams::default(), &patch).await,
        };
        answer.and_then(|object| serde_json::to_value(object).map_err(kube::Error::SerdeError))
    } else {
        store(client, &case.changed, name).await
    };
    match (answer, &case.refused) {
        (Ok(_), Some(refused)) => anyhow::bail!("accepted, but {} should be refused", refused.field),
        (Err(kube::Error::Api(status)), Some(refused)) => refused.compare(&status),
        (Err(error), None) => Err(error).context("should be accepted"),
        (Err(error), Some(_)) => Err(error).context("no answer"),
        (Ok(object), None) => case.compare_stored(&object),
    }
}

#[tokio::test]
async fn every_example_is_accepted_unchanged() -> Result<()> {
    let (_, client) = cluster().await?;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            // Whole clusters for `grove plan`, whose own test takes them.
            continue;
        }
        for object in serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(&path)?)? {
            let name = object["metadata"]["name"].as_str().context("no name")?.to_owned();
            let stored = store(&client, &object, &name)
                .await
                .with_context(|| path.display().to_string())?;
            assert_eq!(table::missing(&stored, &object, ""), None, "{}", path.display());
            count += 1;
        }
    }
    ensure!(count >= 8, "only {count} examples");
    Ok(())
}

#[tokio::test]
async fn what_scales_has_a_scale_subresource_with_a_selector() -> Result<()> {
    let (_, client) = cluster().await?;
    let table = Table::read()?;
    let scaled = [
        ("PodCliqueSet", "hpaPodSelector"),
        ("PodClique", "hpaPodSelector"),
        ("PodCliqueScalingGroup", "selector"),
        ("DynamoGraphDeploymentScalingAdapter", "selector"),
    ];
    for (kind, selector) in scaled {
        let object = table.object(kind);
        store(&client, object, "scaled").await.context(kind)?;
        let api = api_of(&client, object)?;
        let status = json!({ "status": { "replicas": 2, selector: "app=x" } });
        api.patch_status("scaled", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        let replicas = json!({ "spec": { "replicas": 3 } });
        api.patch_scale("scaled", &PatchParams::default(), &Patch::Merge(&replicas))
            .await?;
        let scale = serde_json::to_value(api.get_scale("scaled").await?)?;
        assert_eq!(scale["spec"]["replicas"], 3, "{kind}");
        assert_eq!(scale["status"], json!({ "replicas": 2, "selector": "app=x" }), "{kind}");
        assert_eq!(
            serde_json::to_value(api.get("scaled").await?)?["spec"]["replicas"],
            3,
            "{kind}"
        );
    }
    Ok(())
}
