//! DynamoGraphDeploymentScalingAdapter (`nvidia.com`): one component of a graph, as autoscalers and `kubectl scale` scale
//! it.
//!
//! Both versions say the same; what `v1beta1` calls a component, `v1alpha1` calls a service. As of graphs, the older one is
//! served only while somebody converts it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{GROUP, OLD_VERSION, VERSION};

/// What the resource is called in paths and rights.
pub const PLURAL: &str = "dynamographdeploymentscalingadapters";

/// What an adapter asks for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "nvidia.com",
    version = "v1beta1",
    kind = "DynamoGraphDeploymentScalingAdapter",
    plural = "dynamographdeploymentscalingadapters",
    shortname = "dgdsa",
    namespaced,
    status = "DynamoGraphDeploymentScalingAdapterStatus",
    derive = "PartialEq",
    doc = "A DynamoGraphDeploymentScalingAdapter scales one component of a DynamoGraphDeployment. It is made by the \
           operator for every component with a scalingAdapter.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "DGD", type_ = "string", json_path = ".spec.dgdRef.name"),
    printcolumn(name = "Component", type_ = "string", json_path = ".spec.dgdRef.componentName"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentScalingAdapterSpec {
    /// How many replicas the component is to have. Written by autoscalers and by `kubectl scale`.
    #[schemars(range(min = 0))]
    pub replicas: i32,

    /// The component that is scaled.
    #[x_kube(validation = Rule::new("self == oldSelf").message("an adapter stays with its component"))]
    pub dgd_ref: ComponentReference,
}

/// A component of a graph in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentReference {
    /// Name of the DynamoGraphDeployment.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Name of the component in it.
    #[schemars(length(min = 1))]
    pub component_name: String,
}

/// What an autoscaler must know of the component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentScalingAdapterStatus {
    /// Replicas that the component has.
    #[serde(default)]
    pub replicas: i32,

    /// Selector of the component's pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// The definition with both versions.
pub(crate) fn definition() -> CustomResourceDefinition {
    let mut definition = DynamoGraphDeploymentScalingAdapter::crd();
    let older: Vec<_> = definition.spec.versions.iter().map(old_version).collect();
    definition.spec.versions.extend(older);
    definition
}

/// The same version with a service where the newer one has a component.
fn old_version(newer: &CustomResourceDefinitionVersion) -> CustomResourceDefinitionVersion {
    let mut older = newer.clone();
    older.name = OLD_VERSION.to_owned();
    (older.served, older.storage) = (false, false);
    older.deprecated = Some(true);
    older.deprecation_warning = Some(format!(
        "{GROUP}/{OLD_VERSION} DynamoGraphDeploymentScalingAdapter is deprecated; use {GROUP}/{VERSION}"
    ));
    for column in older.additional_printer_columns.iter_mut().flatten() {
        column.json_path = column.json_path.replace("componentName", "serviceName");
    }
    let schema = older
        .schema
        .as_mut()
        .and_then(|schema| schema.open_api_v3_schema.as_mut());
    if let Some(reference) = schema
        .and_then(|schema| property(schema, "spec"))
        .and_then(|spec| property(spec, "dgdRef"))
    {
        let properties = reference.properties.get_or_insert_default();
        if let Some(name) = properties.remove("componentName") {
            properties.insert("serviceName".to_owned(), name);
        }
        for field in reference.required.iter_mut().flatten() {
            *field = field.replace("componentName", "serviceName");
        }
    }
    older
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}
