//! The CustomResourceDefinitions of every kind.
//!
//! [`all`] makes them from the types; `cargo xtask gen` writes the result to `charts/grove/definitions`, and [`YAML`] is that
//! committed text: what people review is what is installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{
    ClusterTopology, ClusterTopologyBinding, PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, TopologyDomain,
    dynamo,
};

macro_rules! committed {
    ($name:literal) => {
        (
            concat!($name, ".yaml"),
            include_str!(concat!("../../../charts/grove/definitions/", $name, ".yaml")),
        )
    };
}

/// File name and text of every committed definition.
pub const YAML: [(&str, &str); 9] = [
    committed!("grove.io_clustertopologies"),
    committed!("grove.io_clustertopologybindings"),
    committed!("grove.io_podcliques"),
    committed!("grove.io_podcliquescalinggroups"),
    committed!("grove.io_podcliquesets"),
    committed!("grove.run.ai_topologydomains"),
    committed!("nvidia.com_dynamographdeployments"),
    committed!("nvidia.com_dynamographdeploymentscalingadapters"),
    committed!("scheduler.grove.io_podgangs"),
];

/// What `kubectl get` lists all kinds by.
const CATEGORY: &str = "grove";

/// The definitions, made from the types, in the order of their file names.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut definitions = vec![
        ClusterTopology::crd(),
        ClusterTopologyBinding::crd(),
        PodClique::crd(),
        PodCliqueScalingGroup::crd(),
        PodCliqueSet::crd(),
        TopologyDomain::crd(),
        dynamo::definition(),
        dynamo::adapter_definition(),
        PodGang::crd(),
    ];
    for definition in &mut definitions {
        definition.spec.names.categories = Some(vec![CATEGORY.to_owned()]);
        for version in &mut definition.spec.versions {
            if let Some(schema) = version
                .schema
                .as_mut()
                .and_then(|schema| schema.open_api_v3_schema.as_mut())
            {
                polish(schema);
            }
        }
    }
    definitions
}

/// The file that a definition is committed as.
pub fn file_name(definition: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", definition.spec.group, definition.spec.names.plural)
}

/// What a derived schema has that a CRD should not.
///
/// An optional Rust field is marked `nullable`, which would store an explicit null; without the mark the API server
/// takes a null for an absent field. A description keeps the line breaks of the source, where `kubectl explain` and
/// other readers break lines themselves.
fn polish(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    // An optional word is said by leaving it out, too.
    if let Some(words) = &mut schema.enum_ {
        words.retain(|word| !word.0.is_null());
    }
    if let Some(description) = &mut schema.description {
        let paragraphs: Vec<String> = description.split("\n\n").map(|text| text.replace('\n', " ")).collect();
        *description = paragraphs.join("\n\n");
    }
    if let Some(properties) = &mut schema.properties {
        properties.values_mut().for_each(polish);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => polish(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(polish),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        polish(values);
    }
}
