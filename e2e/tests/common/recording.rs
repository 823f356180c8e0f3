//! Writes down what an operator leaves behind, for the tests that upgrade from it.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use kube::core::TypeMeta;
use serde_json::Value;

use crate::recorded::Recorded;

pub(crate) fn is_recording() -> bool {
    std::env::var_os("GROVE_RECORD").is_some()
}

impl Recorded {
    /// Writes down the objects of these kinds, owners before what they own: those of the first kind, and what has an owner.
    pub(crate) async fn record(&self, client: &Client, kinds: &[(&str, &str)], keeps_nodes: bool) -> Result<()> {
        let mut lines = String::new();
        for (index, (api_version, kind)) in kinds.iter().enumerate() {
            let types = TypeMeta {
                api_version: (*api_version).to_owned(),
                kind: (*kind).to_owned(),
            };
            let objects = self.api_of(client, &types)?.list(&ListParams::default()).await?;
            for object in objects {
                if index == 0 || object.metadata.owner_references.is_some() {
                    let object = as_written(object, &types, keeps_nodes);
                    writeln!(lines, "{}", serde_json::to_string(&object)?)?;
                }
            }
        }
        fs::write(self.fixture, lines)?;
        Ok(())
    }
}

/// An object without what the API server and the kubelet put in.
fn as_written(mut object: DynamicObject, types: &TypeMeta, keeps_nodes: bool) -> DynamicObject {
    object.types = Some(types.clone());
    let metadata = &mut object.metadata;
    metadata.namespace = None;
    metadata.resource_version = None;
    metadata.creation_timestamp = None;
    metadata.generation = None;
    metadata.managed_fields = None;
    if let Some(spec) = object.data.get_mut("spec").and_then(Value::as_object_mut) {
        match types.kind.as_str() {
            "Pod" if !keeps_nodes => drop(spec.remove("nodeName")),
            // Addresses may be somebody else's there.
            "Service" if spec.get("clusterIP") != Some(&"None".into()) => {
                spec.remove("clusterIP");
                spec.remove("clusterIPs");
            }
            _ => {}
        }
    }
    if types.kind == "Pod"
        && let Some(fields) = object.data.as_object_mut()
    {
        fields.remove("status");
    }
    object
}
