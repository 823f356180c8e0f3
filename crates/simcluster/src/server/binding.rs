//! The binding subresource: a scheduler's decision.

use serde_json::{Value, json};

use super::Call;
use super::output::Reply;
use super::update::other_uid;
use super::{admission, part, webhook};
use crate::clock::seconds;
use crate::rules::{kinds, metadata};
use crate::status::ApiError;
use crate::store::{Expect, ResourceName};

pub(crate) async fn bind(call: &Call) -> Result<Reply, ApiError> {
    let dry_run = call.query.dry_run("CreateOptions")?;
    bind_pod(call, part::BINDING.of(call, "CreateOptions")?, dry_run).await?;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Reply::json(201, &status))
}

/// Assigns the call's pod to the node that a Binding names.
pub(crate) async fn bind_pod(call: &Call, binding: Value, dry_run: bool) -> Result<(), ApiError> {
    if metadata::text(&binding, "name") != call.name() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    if binding["target"]["name"].as_str().unwrap_or_default().is_empty() {
        return Err(ApiError::plain("target.name: Required value"));
    }
    let kind = binding["target"]["kind"].as_str().unwrap_or_default().to_owned();
    if !["", "Node"].contains(&kind.as_str()) {
        let why = format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\"");
        return Err(ApiError::plain(why));
    }
    let mut binding = binding;
    if kind == "Node" {
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        admission::add_topology(call, &mut binding, &node);
    }
    let binding = &webhook::admit_part(call, binding, dry_run).await?;
    loop {
        let key = call.key();
        let entry = call
            .server
            .store
            .get(&call.resource().storage, &key)
            .ok_or_else(|| call.not_found())?;
        let mut pod = entry.value();
        check(call, binding, &pod)?;
        assign(&mut pod, binding, &seconds(call.now));
        let expect = Expect::Revision(entry.revision);
        if dry_run
            || call
                .server
                .store
                .put(&call.resource().storage, &key, expect, &mut pod)
                .is_ok()
        {
            return Ok(());
        }
    }
}

fn check(call: &Call, binding: &Value, pod: &Value) -> Result<(), ApiError> {
    let name = call.name();
    let conflict = |why: String| Err(ApiError::conflict(&ResourceName::new("", "pods/binding"), name, why));
    let (uid, stored_uid) = (metadata::text(binding, "uid"), metadata::text(pod, "uid"));
    if !uid.is_empty() && uid != stored_uid {
        return Err(other_uid(call, uid, stored_uid));
    }
    if metadata::is_terminating(pod) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return conflict(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

/// Sets the node and the condition, and copies the labels and annotations that the scheduler put on the binding.
fn assign(pod: &mut Value, binding: &Value, now: &str) {
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for field in ["labels", "annotations"] {
        let Some(added) = binding["metadata"][field].as_object() else {
            continue;
        };
        let metadata = metadata::of(pod);
        let known = metadata.entry(field).or_insert_with(|| json!({}));
        for (key, value) in added {
            known[key] = value.clone();
        }
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    kinds::set_condition(&mut pod["status"]["conditions"], condition);
}
