//! A topology that the operator may not read, or whose kind is not installed: what cannot be promised is refused.
//!
//! On a control plane of its own, with nothing but the webhooks and the rights that are missing.

use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};
use grove_api::{ClusterTopology, ClusterTopologyBinding, rights};
use grove_e2e::{ControlPlane, Identity, eventually};
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::kinds::install_kinds;
use crate::rules::{is_denied, new, old, set};
use crate::stage::{LIMIT, create, start_webhooks};

/// The operator's role without what is about topologies.
fn without_topologies() -> ClusterRole {
    let mut role = rights::cluster_role();
    let is_about = |resource: &String| resource.starts_with("clustertopologies");
    if let Some(rules) = &mut role.rules {
        rules.retain(|rule| !rule.resources.iter().flatten().any(is_about));
    }
    role
}

/// Takes a kind out of the cluster. An API server removes sooner what somebody has asked for.
async fn remove<K>(admin: &Client) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + DeserializeOwned + Debug,
{
    Api::<K>::all(admin.clone()).list(&ListParams::default()).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let name = format!("{}.{}", K::plural(&()), K::group(&()));
    definitions.delete(&name, &DeleteParams::default()).await?;
    eventually(format!("{name} to be gone"), LIMIT, async || -> Result<()> {
        ensure!(definitions.get_opt(&name).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    Ok(())
}

// shows: DGD-15
#[tokio::test(flavor = "multi_thread")]
async fn a_topology_that_cannot_be_read_is_a_refusal() -> Result<()> {
    let plane = ControlPlane::builder().kubelets(false).start().await?;
    install_kinds(&plane, &[]).await?;
    start_webhooks(&plane, without_topologies()).await?;
    let admin = plane.client(Identity::Admin).await?;
    let constrained =
        [new("a"), old("a")].map(|graph| set(graph, "/spec/topologyConstraint", json!({"packDomain": "rack"})));

    let forbidden = format!(
        "spec.topologyConstraint.clusterTopologyName: failed to read ClusterTopology: clustertopologies.grove.io \
         \"grove-topology\" is forbidden: User \"{}\" cannot get resource \"clustertopologies\" in API group \"grove.io\" at the \
         cluster scope; give the operator the rights that `grove rbac` prints",
        Identity::Operator.username()
    );
    for graph in &constrained {
        is_denied(create(&admin, "default", graph, true).await, &forbidden)?;
    }
    for graph in [new("a"), old("a")] {
        let judged = create(&admin, "default", &graph, true).await;
        judged.context("without a constraint nobody reads a topology")?;
    }

    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let granted = Patch::Merge(json!({"rules": rights::cluster_role().rules}));
    roles.patch(rights::OPERATOR, &PatchParams::default(), &granted).await?;
    remove::<ClusterTopology>(&admin).await?;
    remove::<ClusterTopologyBinding>(&admin).await?;
    let absent = "spec.topologyConstraint.clusterTopologyName: Invalid value: \"grove-topology\": references a ClusterTopology \
                  resource that was not found";
    eventually("the right to hold", LIMIT, async || -> Result<()> {
        for graph in &constrained {
            is_denied(create(&admin, "default", graph, true).await, absent)?;
        }
        Ok(())
    })
    .await?;
    Ok(())
}
