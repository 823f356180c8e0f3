//! The chart, installed by Helm on both clusters: what is stored must be the same, and go again.

use std::path::Path;

use anyhow::{Result, ensure};
use grove_e2e::Identity;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::common::{self, RUNTIME};
use super::{embedded, run};

const NAMESPACE: &str = "grove-system";
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/grove");

/// Where the objects of the chart are.
const COLLECTIONS: [&str; 10] = [
    "/apis/apps/v1/namespaces/grove-system/deployments",
    "/api/v1/namespaces/grove-system/services",
    "/api/v1/namespaces/grove-system/configmaps",
    "/api/v1/namespaces/grove-system/serviceaccounts",
    "/apis/networking.k8s.io/v1/namespaces/grove-system/networkpolicies",
    "/apis/policy/v1/namespaces/grove-system/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/grove-system/roles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/grove-system/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
];

/// What Helm has put into a cluster, but for what the cluster itself says about it.
async fn stored(client: &Client) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for collection in COLLECTIONS {
        let path = format!("{collection}?labelSelector=app.kubernetes.io/managed-by%3DHelm");
        let mut list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        for object in list["items"].as_array_mut().into_iter().flatten() {
            let metadata = &mut object["metadata"];
            let kept = json!({"name": metadata["name"], "labels": metadata["labels"]});
            *metadata = kept;
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            for drawn in ["clusterIP", "clusterIPs"] {
                if let Some(spec) = object["spec"].as_object_mut() {
                    spec.remove(drawn);
                }
            }
            all.push(object.take());
        }
    }
    Ok(all)
}

/// Installs the chart, changes a value, and takes it away again. Nothing runs in the pods, so nobody waits for them.
async fn release(helm: &Path, kubeconfig: &Path, client: &Client) -> Result<[Vec<Value>; 3]> {
    let release = ["grove", CHART, "--namespace", NAMESPACE];
    let name = ["grove", "--namespace", NAMESPACE];
    run(
        helm,
        &[&["install", "--create-namespace"], &release[..]].concat(),
        kubeconfig,
    )?;
    let installed = stored(client).await?;
    run(
        helm,
        &[&["upgrade", "--set", "operator.replicas=3"], &release[..]].concat(),
        kubeconfig,
    )?;
    let upgraded = stored(client).await?;
    let told: Value = serde_json::from_str(&run(
        helm,
        &[&["status", "-o", "json"], &name[..]].concat(),
        kubeconfig,
    )?)?;
    ensure!(told["version"] == 2 && told["info"]["status"] == "deployed", "{told}");
    run(helm, &[&["uninstall", "--no-hooks"], &name[..]].concat(), kubeconfig)?;
    Ok([installed, upgraded, stored(client).await?])
}

#[test]
fn helm_installs_the_chart_alike_on_both_clusters() -> Result<()> {
    let folder = TempDir::new()?;
    RUNTIME.block_on(async {
        let real = common::real().await?;
        let helm = real.helm()?;
        let [on_real, on_embedded] = common::clients().await?;
        let kubeconfig = embedded(&folder).await?;
        let expected = release(&helm, &real.kubeconfig(Identity::Admin), &on_real).await?;
        let told = release(&helm, &kubeconfig, &on_embedded).await?;
        for (expected, told) in expected.iter().zip(&told) {
            for (expected, told) in expected.iter().zip(told) {
                ensure!(expected == told, "the real one has {expected}\nthe embedded one {told}");
            }
            ensure!(
                expected.len() == told.len(),
                "{} and {} objects",
                expected.len(),
                told.len()
            );
        }
        let counts = expected.each_ref().map(Vec::len);
        ensure!(
            counts[0] >= 10 && counts[1] == counts[0] && counts[2] == 0,
            "{counts:?}"
        );
        Ok(())
    })
}
