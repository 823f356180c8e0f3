//! Objects that a release left behind, put back into a cluster.
//!
//! A file holds an object in a line, owners first; `recording.rs` writes it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::{Client, ResourceExt};
use serde_json::json;

/// Where they are written down, and where they were and must be again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    pub(crate) fixture: &'static str,
    pub(crate) namespace: &'static str,
}

impl Recorded {
    pub(crate) fn api_of(&self, client: &Client, types: &TypeMeta) -> Result<Api<DynamicObject>> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
        Ok(Api::namespaced_with(client.clone(), self.namespace, &resource))
    }

    /// Puts the objects into the namespace, which is there, as if their operator had just ended.
    pub(crate) async fn restore(&self, client: &Client) -> Result<()> {
        let mut renamed: BTreeMap<String, String> = BTreeMap::new();
        for line in fs::read_to_string(self.fixture)?.lines() {
            let mut object: DynamicObject = serde_json::from_str(line)?;
            let old = object.metadata.uid.take().context("an object with the UID it had")?;
            for owner in object.metadata.owner_references.iter_mut().flatten() {
                owner.uid = renamed.get(&owner.uid).context("an owner further up")?.clone();
            }
            let api = self.api_of(client, object.types.as_ref().context("an object with its kind")?)?;
            let status = object.data.as_object_mut().and_then(|fields| fields.remove("status"));
            let made = api.create(&PostParams::default(), &object).await?;
            renamed.insert(old, made.uid().context("an object of the API server")?);
            if let Some(status) = status {
                let patch = Patch::Merge(json!({"status": status}));
                api.patch_status(&made.name_any(), &PatchParams::default(), &patch)
                    .await?;
            }
        }
        Ok(())
    }
}
