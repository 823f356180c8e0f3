//! A namespace on a control plane that serves Grove's kinds, and what tests do in it.

use std::time::Duration;

use anyhow::{Result, ensure};
use grove_api::{PodCliqueSet, rights};
use grove_e2e::{ControlPlane, Identity, eventually};
pub(crate) use grove_scenarios::embedded::{Kind, is_ready};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};

/// Ten times what a test takes on an idle machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A namespace, seen with the rights of an administrator.
pub(crate) struct Space {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Space {
    /// A namespace that is there.
    pub(crate) async fn on(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        Ok(Self {
            client: plane.client(Identity::Admin).await?,
            namespace: namespace.to_owned(),
        })
    }

    pub(crate) fn all<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn list<K: Kind>(&self) -> Result<Vec<K>> {
        Ok(self.all::<K>().list(&ListParams::default()).await?.items)
    }

    pub(crate) async fn create(&self, manifest: &str) -> Result<PodCliqueSet> {
        let set: PodCliqueSet = serde_saphyr::from_str(manifest)?;
        Ok(self.all().create(&PostParams::default(), &set).await?)
    }

    pub(crate) async fn delete<K: Kind>(&self, name: &str) -> Result<()> {
        self.all::<K>().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> Result<bool>) -> Result<()> {
        eventually(what, LIMIT, async || -> Result<()> {
            ensure!(holds(self).await?, "not yet");
            Ok(())
        })
        .await?;
        Ok(())
    }
}

/// Gives the operator's account the rights that the chart gives it, and no others.
pub(crate) async fn grant(plane: &ControlPlane) -> Result<()> {
    let admin = plane.client(Identity::Admin).await?;
    let (cluster_wide, _) = rights::bindings("grove-system");
    let params = PostParams::default();
    Api::all(admin.clone()).create(&params, &rights::cluster_role()).await?;
    Api::all(admin).create(&params, &cluster_wide).await?;
    Ok(())
}
