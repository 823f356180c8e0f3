//! The accounts of the operator and of the scheduler, and the least that each must be allowed: what `grove rbac` prints.

use anyhow::{Context, Result};
use grove_api::rights::{self, Home, scheduler};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Creates them in a namespace.
pub(super) async fn grant(client: &Client, home: &Home<'_>) -> Result<()> {
    let namespace = home.namespace;
    let (cluster_wide, at_home) = rights::bindings(namespace);
    inside(client, namespace, &rights::service_account(namespace)).await?;
    everywhere(client, &rights::cluster_role()).await?;
    everywhere(client, &cluster_wide).await?;
    inside(client, namespace, &rights::role(home)).await?;
    inside(client, namespace, &at_home).await?;
    everywhere(client, &rights::dynamo_cluster_role()).await?;
    everywhere(client, &rights::dynamo_binding(namespace)).await?;
    let (cluster_wide, at_home) = scheduler::bindings(namespace);
    inside(client, namespace, &scheduler::service_account(namespace)).await?;
    everywhere(client, &scheduler::cluster_role()).await?;
    everywhere(client, &cluster_wide).await?;
    inside(client, namespace, &scheduler::role(namespace)).await?;
    inside(client, namespace, &at_home).await
}

async fn inside<K>(client: &Client, namespace: &str, object: &K) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    create(&Api::namespaced(client.clone(), namespace), object).await
}

async fn everywhere<K>(client: &Client, object: &K) -> Result<()>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    create(&Api::all(client.clone()), object).await
}

async fn create<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let made = api.create(&PostParams::default(), object).await;
    made.with_context(|| format!("cannot create {} {}", K::kind(&()), object.name_any()))?;
    Ok(())
}
