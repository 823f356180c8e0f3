//! Kinds that CustomResourceDefinitions describe.

use std::sync::Arc;

use serde_json::Value;

use super::{Conversion, Form, Resource, Subresource, Traits, Version};
use crate::patch::Types;
use crate::schema::Schema;
use crate::store::ResourceName;

/// One served version of a custom resource.
#[derive(Debug)]
pub struct CustomVersion {
    /// `openAPIV3Schema`, as it is published.
    pub published: Value,
    /// The same, compiled. A definition whose schema does not compile is refused, so that there always is one.
    pub schema: Option<Schema>,
    /// The same as types, which say how server-side apply merges.
    pub types: Option<Types>,
    /// Where the scale subresource finds its numbers.
    pub scale: Option<ScalePaths>,
    /// `additionalPrinterColumns`.
    pub printer_columns: Vec<Value>,
}

/// JSON paths of the scale subresource, without the leading dot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalePaths {
    /// Desired replicas.
    pub spec_replicas: String,
    /// Observed replicas.
    pub status_replicas: String,
    /// Selector, if there is one: a custom kind has it in string form.
    pub label_selector: Option<String>,
}

impl ScalePaths {
    /// Where built-in kinds that can be scaled have them.
    pub(crate) fn builtin() -> Self {
        Self {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            label_selector: Some("spec.selector".to_owned()),
        }
    }
}

/// Describes the kind of a CustomResourceDefinition whose names were accepted.
pub fn resource(definition: &Value) -> Resource {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let name = ResourceName::new(&text(&spec["group"]), &text(&names["plural"]));
    let kind = text(&names["kind"]);
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut served: Vec<&Value> = versions.iter().filter(|version| version["served"] == true).collect();
    served.sort_by_key(|version| std::cmp::Reverse(version_priority(version["name"].as_str().unwrap_or_default())));
    // Subresources and selectable fields may differ by version; discovery and selectors use those of any served one.
    let has = |what: &str| {
        served
            .iter()
            .any(|version| version["subresources"].get(what).is_some_and(|s| !s.is_null()))
    };
    let mut subresources = Vec::new();
    subresources.extend(has("scale").then_some(Subresource::Scale));
    subresources.extend(has("status").then_some(Subresource::Status));
    let mut selectable: Vec<String> = served
        .iter()
        .flat_map(|version| version["selectableFields"].as_array().into_iter().flatten())
        .map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned())
        .collect();
    selectable.sort();
    selectable.dedup();
    Resource {
        storage: name.clone(),
        list_kind: some_or(text(&names["listKind"]), || format!("{kind}List")),
        singular: some_or(text(&names["singular"]), || kind.to_lowercase()),
        short_names: list(&names["shortNames"]),
        categories: list(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        versions: served
            .iter()
            .map(|version| served_version(&name, &kind, version, &served))
            .collect(),
        subresources,
        selectable,
        plain_field_error: true,
        traits: Traits {
            generation: true,
            locked_update: true,
            ..Traits::USUAL
        },
        custom: true,
        conversion: Some(Arc::new(Conversion::of(definition))),
        kind,
        name,
    }
}

fn served_version(name: &ResourceName, kind: &str, version: &Value, served: &[&Value]) -> Version {
    let path = |value: &Value| value.as_str().map(|path| path.trim_start_matches('.').to_owned());
    let scale = &version["subresources"]["scale"];
    let scale = path(&scale["specReplicasPath"]).map(|spec_replicas| ScalePaths {
        spec_replicas,
        status_replicas: path(&scale["statusReplicasPath"]).unwrap_or_default(),
        label_selector: path(&scale["labelSelectorPath"]),
    });
    let version_name = version["name"].as_str().unwrap_or_default();
    let warning = version["deprecationWarning"].as_str().map(str::to_owned);
    let usual = || {
        let better = served.iter().take_while(|other| other["name"] != version["name"]);
        let better = better
            .filter(|other| other["deprecated"] != true)
            .filter_map(|other| other["name"].as_str())
            .next();
        let advice = better
            .map(|better| format!("; use {}/{better} {kind}", name.group))
            .unwrap_or_default();
        format!("{}/{version_name} {kind} is deprecated{advice}", name.group)
    };
    let api_version = format!("{}/{version_name}", name.group);
    let published = version["schema"]["openAPIV3Schema"].clone();
    Version {
        name: version_name.to_owned(),
        deprecation: (version["deprecated"] == true).then(|| warning.unwrap_or_else(usual)),
        form: Form::Custom(Arc::new(CustomVersion {
            schema: Schema::compile("", &published).ok(),
            types: Types::from_custom_resource(&api_version, kind, &published).ok(),
            published,
            scale,
            printer_columns: version["additionalPrinterColumns"]
                .as_array()
                .cloned()
                .unwrap_or_default(),
        })),
    }
}

fn some_or(text: String, other: impl FnOnce() -> String) -> String {
    if text.is_empty() { other() } else { text }
}

/// Kubernetes' order of versions: GA before beta before alpha, higher numbers first, other names last.
///
/// Greater is preferred.
pub fn version_priority(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parsed = name.strip_prefix('v').and_then(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest[..digits].parse().ok()?;
        let (rank, minor) = match &rest[digits..] {
            "" => (3, ""),
            tail if tail.starts_with("beta") => (2, &tail[4..]),
            tail if tail.starts_with("alpha") => (1, &tail[5..]),
            _ => return None,
        };
        let minor = if rank == 3 { 0 } else { minor.parse().ok()? };
        Some((rank, major, minor))
    });
    let (rank, major, minor) = parsed.unwrap_or((0, 0, 0));
    (rank, major, minor, std::cmp::Reverse(name.to_owned()))
}

/// Where the store has, by the name of a definition, the versions in which older objects are. No client sees it.
pub(crate) fn lineages() -> ResourceName {
    ResourceName::new("simcluster.internal", "lineages")
}

/// Whether the kind is served.
pub(crate) fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Established" && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_preferred_as_kubernetes_prefers_them() {
        let mut names = ["v1alpha1", "v10", "foo", "v1beta2", "v2", "v1", "v1beta10", "bar"].map(str::to_owned);
        names.sort_by_key(|name| std::cmp::Reverse(version_priority(name)));
        assert_eq!(
            names,
            ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "bar", "foo"]
        );
    }

    #[test]
    fn a_definition_becomes_a_resource() {
        let made = resource(&json!({"spec": {
            "group": "demo.test", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1beta1", "served": true, "deprecated": true},
                {"name": "v1", "served": true, "selectableFields": [{"jsonPath": ".spec.color"}],
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}},
                {"name": "v2", "served": false},
            ],
        }}));
        let versions: Vec<&str> = made.versions.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(versions, ["v1", "v1beta1"]);
        assert_eq!(made.subresources, [Subresource::Scale, Subresource::Status]);
        assert_eq!(
            (made.singular.as_str(), made.list_kind.as_str()),
            ("widget", "WidgetList")
        );
        assert_eq!(
            made.versions[1].deprecation.as_deref(),
            Some("demo.test/v1beta1 Widget is deprecated; use demo.test/v1 Widget")
        );
        assert!(made.check_selectable("spec.color").is_ok());
        assert!(made.check_selectable("spec.size").is_err());
    }
}
