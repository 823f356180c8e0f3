//! The eviction subresource: a deletion that asks the disruption budget first.

use serde_json::{Value, json};

use super::delete::{DeleteOptions, check_preconditions, delete_object};
use super::output::Reply;
use super::{Call, part, webhook};
use crate::clock::seconds;
use crate::rules::{kinds, metadata};
use crate::selector::LabelSelector;
use crate::status::ApiError;
use crate::store::{Expect, ResourceName};

pub(crate) async fn evict(call: &Call) -> Result<Reply, ApiError> {
    let eviction = part::EVICTION.of(call, "CreateOptions")?;
    if metadata::text(&eviction, "name") != call.name() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let dry_run = call.query.dry_run("CreateOptions")?;
    let eviction = webhook::admit_part(call, eviction, dry_run).await?;
    let mut options = DeleteOptions::read(&eviction["deleteOptions"])?;
    options.dry_run |= dry_run;
    options.is_admitted = true;
    let entry = call
        .server
        .store
        .get(&call.resource().storage, &call.key())
        .ok_or_else(|| call.not_found())?;
    let pod = entry.value();
    // Before anything is written: a budget is not spent on a pod that was not meant.
    check_preconditions(call, &call.key(), &pod, &options)?;
    if needs_budget(&pod) {
        spend_budget(call, &pod, options.dry_run)?;
    }
    if !options.dry_run && !metadata::is_terminating(&pod) {
        let noted = note_disruption(call, &options)?;
        // Who asked for a revision asked for the one before our own note.
        options.resource_version = options.resource_version.map(|_| noted.to_string());
    }
    delete_object(call, &call.key(), &options).await?;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Reply::json(201, &status))
}

/// A pod that serves nobody can go at any time.
fn needs_budget(pod: &Value) -> bool {
    let idle = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    );
    !idle && !metadata::is_terminating(pod)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Takes one disruption from the pod's budget, if it has one.
fn spend_budget(call: &Call, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
    let budgets = ResourceName::new("policy", "poddisruptionbudgets");
    loop {
        let all = call.server.store.list(&budgets, call.place.namespace.as_deref()).items;
        let covers = |budget: &Value| {
            let selector = &budget["spec"]["selector"];
            selector.is_object() && LabelSelector::from_object(selector).matches(pod)
        };
        let mut covering = all
            .into_iter()
            .map(|(key, entry)| (key, entry.revision, entry.value()))
            .filter(|(_, _, budget)| covers(budget));
        let Some((key, revision, mut budget)) = covering.next() else {
            return Ok(());
        };
        if covering.next().is_some() {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::plain(why));
        }
        let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
        if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
            let why = format!(
                "The disruption budget {} is still being processed by the server.",
                key.name
            );
            return Err(refused(&why));
        }
        let healthy_enough = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        if !is_ready(pod) && (always || healthy_enough) {
            return Ok(());
        }
        if count("disruptionsAllowed") <= 0 {
            let (needs, has) = (count("desiredHealthy"), count("currentHealthy"));
            let why = format!(
                "The disruption budget {} needs {needs} healthy pods and has {has} currently",
                key.name
            );
            return Err(refused(&why));
        }
        budget["status"]["disruptionsAllowed"] = json!(count("disruptionsAllowed") - 1);
        if budget["status"]["disruptedPods"].is_null() {
            budget["status"]["disruptedPods"] = json!({});
        }
        budget["status"]["disruptedPods"][call.name()] = json!(seconds(call.now));
        let expect = Expect::Revision(revision);
        if dry_run || call.server.store.put(&budgets, &key, expect, &mut budget).is_ok() {
            return Ok(());
        }
    }
}

fn refused(why: &str) -> ApiError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let causes = json!([{"reason": "DisruptionBudget", "message": why}]);
    ApiError::new(429, "TooManyRequests", message).with_details(json!({"causes": causes}))
}

/// Tells in the pod's status why it goes, if it is the pod that was meant; the revision with the note.
fn note_disruption(call: &Call, options: &DeleteOptions) -> Result<u64, ApiError> {
    let (store, resource, key) = (&call.server.store, &call.resource().storage, call.key());
    loop {
        let entry = store.get(resource, &key).ok_or_else(|| call.not_found())?;
        let mut pod = entry.value();
        check_preconditions(call, &key, &pod, options)?;
        let mut condition = kinds::condition(
            "DisruptionTarget",
            true,
            "EvictionByEvictionAPI",
            "Eviction API: evicting",
            call.now,
        );
        condition["lastProbeTime"] = Value::Null;
        kinds::set_condition(&mut pod["status"]["conditions"], condition);
        let expect = Expect::Revision(entry.revision);
        if let Ok(written) = store.put(resource, &key, expect, &mut pod) {
            return Ok(written.revision);
        }
    }
}
