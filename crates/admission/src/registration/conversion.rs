//! Who converts DynamoGraphDeployments and their scaling adapters: the definitions of the kinds, told of this server.
//!
//! Only with somebody who converts is the older version served: without, the API server would rename it and lose its
//! services. The definitions are the installer's; nothing of them is changed but that.

use futures::{Stream, StreamExt as _, stream};
use grove_api::dynamo::OLD_VERSION;
use grove_api::rights::DYNAMO_DEFINITIONS;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::Endpoint;
use crate::conversion::PATH;

const FIELD_MANAGER: &str = "grove-operator-webhooks";
/// How often somebody else may write a definition between our look and our write.
const TRIES: usize = 5;

/// What must be patched into a definition; nothing if it is as it should be.
fn patch(definition: &CustomResourceDefinition, endpoint: &Endpoint, authorities: Option<&str>) -> Option<Value> {
    let mut versions = definition.spec.versions.clone();
    for version in &mut versions {
        version.served |= version.name == OLD_VERSION;
    }
    let mut client_config = json!(endpoint.client_config(PATH, authorities));
    // The one that is not used may be left from another place that the operator ran at.
    for other in ["service", "url"] {
        if client_config.get(other).is_none() {
            client_config[other] = Value::Null;
        }
    }
    let wanted = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": client_config, "conversionReviewVersions": ["v1"]},
    });
    let is_there = super::upkeep::contains(&json!(definition.spec.conversion), &without_nulls(&wanted));
    (versions != definition.spec.versions || !is_there).then(|| {
        json!({
            "metadata": {"resourceVersion": definition.resource_version()},
            "spec": {"conversion": wanted, "versions": versions},
        })
    })
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect()
        }
        other => other.clone(),
    }
}

/// Tells the definitions where to convert. One that is not installed is no failure: there is nothing to convert.
pub(super) async fn write(client: &Client, endpoint: &Endpoint, authorities: Option<&str>) -> Result<(), kube::Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in DYNAMO_DEFINITIONS {
        let Some(definition) = definitions.get_opt(name).await? else {
            tracing::warn!(
                name,
                "dynamo is enabled but a kind of it is not installed; apply what `grove crds` prints"
            );
            continue;
        };
        if let Some(patch) = patch(&definition, endpoint, authorities) {
            definitions.patch(name, &params(), &Patch::Merge(patch)).await?;
        }
    }
    Ok(())
}

/// What must be patched into a definition so that nobody is asked to convert; nothing where we are not.
///
/// Graphs stay, in the version that they are stored in, and can be read, changed and deleted in it. The older version is not
/// served any more: without conversion the API server would only rename it, and lose its services. Who converts, the fields'
/// managers tell: another operator of the same kinds may do so under the same path.
fn withdrawal(definition: &CustomResourceDefinition) -> Option<Value> {
    let mut managers = definition.managed_fields().iter();
    let is_ours = managers.any(|manager| {
        let fields = manager.fields_v1.as_ref().map(|fields| &fields.0);
        let converts = fields.is_some_and(|fields| !fields["f:spec"]["f:conversion"]["f:webhook"].is_null());
        manager.manager.as_deref() == Some(FIELD_MANAGER) && converts
    });
    let conversion = definition.spec.conversion.as_ref();
    if !is_ours || conversion.is_none_or(|conversion| conversion.strategy != "Webhook") {
        return None;
    }
    let mut versions = definition.spec.versions.clone();
    for version in &mut versions {
        version.served &= version.name != OLD_VERSION;
    }
    Some(json!({
        "metadata": {"resourceVersion": definition.resource_version()},
        "spec": {"conversion": {"strategy": "None", "webhook": null}, "versions": versions},
    }))
}

/// Takes back what [`write`] told the definitions, for when nobody is there to convert any more; how many were told.
pub async fn withdraw_conversion(client: &Client) -> Result<usize, kube::Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut withdrawn = 0;
    for name in DYNAMO_DEFINITIONS {
        for tries_left in (0..TRIES).rev() {
            let found = definitions.get_opt(name).await?;
            let Some(patch) = found.as_ref().and_then(withdrawal) else {
                break;
            };
            match definitions.patch(name, &params(), &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.code == 409 && tries_left > 0 => {}
                answer => {
                    answer?;
                    withdrawn += 1;
                    break;
                }
            }
        }
    }
    Ok(withdrawn)
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// The definitions, whenever one changes; nothing where no graphs are served.
pub(super) fn watched(client: &Client, is_on: bool) -> impl Stream<Item = CustomResourceDefinition> + use<> {
    if !is_on {
        return stream::pending().boxed();
    }
    let watches = DYNAMO_DEFINITIONS.map(|name| {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let events = watcher(Api::all(client.clone()), config)
            .default_backoff()
            .applied_objects();
        events.filter_map(|seen| async { seen.ok() }).boxed()
    });
    stream::select_all(watches).boxed()
}

pub(super) fn is_as_it_should_be(
    definition: &CustomResourceDefinition,
    endpoint: &Endpoint,
    authorities: Option<&str>,
) -> bool {
    patch(definition, endpoint, authorities).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definitions() -> Vec<CustomResourceDefinition> {
        let mut all = grove_api::crds::all();
        all.retain(|definition| DYNAMO_DEFINITIONS.contains(&&*definition.name_any()));
        assert_eq!(all.len(), DYNAMO_DEFINITIONS.len());
        all
    }

    #[test]
    fn the_older_version_is_served_with_somebody_who_converts() {
        definitions().into_iter().for_each(is_converted);
    }

    fn is_converted(mut definition: CustomResourceDefinition) {
        let endpoint = Endpoint::Url("https://127.0.0.1:1".to_owned());
        let served = |definition: &CustomResourceDefinition| -> Vec<(String, bool)> {
            let versions = definition.spec.versions.iter();
            versions.map(|version| (version.name.clone(), version.served)).collect()
        };
        assert_eq!(
            served(&definition),
            [("v1beta1".to_owned(), true), ("v1alpha1".to_owned(), false)]
        );
        let patched = patch(&definition, &endpoint, Some("PEM")).unwrap();
        definition.spec.versions = serde_json::from_value(patched["spec"]["versions"].clone()).unwrap();
        definition.spec.conversion = serde_json::from_value(without_nulls(&patched["spec"]["conversion"])).unwrap();
        assert_eq!(
            served(&definition),
            [("v1beta1".to_owned(), true), ("v1alpha1".to_owned(), true)]
        );
        assert_eq!(patch(&definition, &endpoint, Some("PEM")), None);
        // Certificates are somebody else's: what he wrote stays.
        assert_eq!(patch(&definition, &endpoint, None), None);
        let moved = Endpoint::Service {
            namespace: "ns".to_owned(),
            name: "svc".to_owned(),
            port: 1,
        };
        let patched = patch(&definition, &moved, None).unwrap();
        assert_eq!(
            patched["spec"]["conversion"]["webhook"]["clientConfig"]["url"],
            Value::Null
        );
        is_withdrawn(definition);
    }

    /// A definition that converts, as the API server would have it.
    fn is_withdrawn(mut definition: CustomResourceDefinition) {
        let written_by = |definition: &mut CustomResourceDefinition, manager: &str| {
            let entry = json!({"manager": manager, "operation": "Update", "apiVersion": "apiextensions.k8s.io/v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:conversion": {"f:strategy": {}, "f:webhook": {}}}}});
            definition.metadata.managed_fields = Some(vec![serde_json::from_value(entry).unwrap()]);
        };
        written_by(&mut definition, "dynamo-operator");
        assert_eq!(withdrawal(&definition), None, "somebody else converts");
        written_by(&mut definition, FIELD_MANAGER);
        let patch = withdrawal(&definition).unwrap();
        assert_eq!(
            patch["spec"]["conversion"],
            json!({"strategy": "None", "webhook": null})
        );
        definition.spec.versions = serde_json::from_value(patch["spec"]["versions"].clone()).unwrap();
        definition.spec.conversion = Some(serde_json::from_value(json!({"strategy": "None"})).unwrap());
        let before = definitions()
            .into_iter()
            .find(|one| one.name_any() == definition.name_any());
        assert_eq!(
            Some(&definition.spec.versions),
            before.as_ref().map(|before| &before.spec.versions)
        );
        assert_eq!(withdrawal(&definition), None, "twice is as good as once");
    }
}
