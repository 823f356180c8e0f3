//! LimitRanges and ResourceQuotas of a namespace, asked about what is written there.

use serde_json::Value;

use super::Call;
use crate::rules::{amounts, limits, metadata, quota};
use crate::status::ApiError;
use crate::store::{Expect, ResourceName};

fn stored(call: &Call, plural: &str) -> Vec<Value> {
    let namespace = call.place.namespace.as_deref();
    let page = call.server.store.list(&ResourceName::new("", plural), namespace);
    page.items.iter().map(|(_, entry)| entry.value()).collect()
}

/// Gives a new pod what its namespace gives to those that ask for nothing.
pub(crate) fn fill(call: &Call, pod: &mut Value) {
    for range in stored(call, "limitranges") {
        limits::fill(&range, pod);
    }
}

/// Refuses a new pod that asks for more, or less, than its namespace allows.
pub(crate) fn check_limits(call: &Call, pod: &Value) -> Result<(), ApiError> {
    if !call.resource().name.is("", "pods") {
        return Ok(());
    }
    for range in stored(call, "limitranges") {
        let why = match limits::problems(&range, pod).as_slice() {
            [] => continue,
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Err(ApiError::forbidden(
            &call.resource().name,
            metadata::text(pod, "name"),
            why,
        ));
    }
    Ok(())
}

/// Counts what is about to be written, or refuses it if a quota is used up. `old` is what it replaces.
pub(crate) fn charge(call: &Call, object: &Value, old: Option<&Value>, dry_run: bool) -> Result<(), ApiError> {
    let resource = &call.resource().name;
    let is_counted = old.is_none() || resource.is("", "services");
    if !call.resource().namespaced || call.place.subresource.is_some() || !is_counted {
        return Ok(());
    }
    let quotas = ResourceName::new("", "resourcequotas");
    let store = &call.server.store;
    let refused = |why: String| ApiError::forbidden(resource, metadata::text(object, "name"), why);
    let stored = store.list(&quotas, call.place.namespace.as_deref()).items;
    // All are asked before any is charged.
    for (_, entry) in &stored {
        quota::charge(&entry.value(), resource, object, old).map_err(refused)?;
    }
    for (key, _) in stored.iter().filter(|_| !dry_run) {
        while let Some(entry) = store.get(&quotas, key) {
            let mut counted = entry.value();
            let Some(used) = quota::charge(&counted, resource, object, old).map_err(refused)? else {
                break;
            };
            counted["status"]["used"] = amounts::write(&used);
            let expect = Expect::Revision(entry.revision);
            if store.put(&quotas, key, expect, &mut counted).is_ok() {
                break;
            }
        }
    }
    Ok(())
}
