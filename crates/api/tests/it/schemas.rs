//! The definitions that are committed and printed.

use grove_api::crds;
use serde_json::Value;

#[test]
fn every_definition_is_committed_under_its_name() {
    let names: Vec<String> = crds::all().iter().map(crds::file_name).collect();
    assert_eq!(names, crds::YAML.map(|(name, _)| name));
}

#[test]
fn a_definition_with_two_pod_templates_stays_small() {
    // Beyond 256 KiB a client-side apply fails, and every copy is kept in the API server's memory.
    for definition in crds::all() {
        let size = serde_json::to_string(&definition).unwrap().len();
        assert!(size < 128 * 1024, "{} has {size} bytes", crds::file_name(&definition));
    }
}

#[test]
fn no_field_of_ours_stores_a_null() {
    for definition in crds::all() {
        let text = serde_json::to_string(&definition).unwrap();
        assert!(!text.contains("nullable"), "{}", crds::file_name(&definition));
    }
}

// shows: V3-57, V1-20
#[test]
fn what_was_replaced_by_topology_constraints_is_in_no_schema() {
    let gone = [
        "replicaSpreadConstraints",
        "spreadConstraints",
        "schedulingPolicyConfig",
        "networkPackGroupConfigs",
    ];
    for definition in crds::all() {
        let text = serde_json::to_string(&definition).unwrap();
        for field in gone {
            assert!(
                !text.contains(&format!("\"{field}\"")),
                "{field} in {}",
                crds::file_name(&definition)
            );
        }
    }
}

/// Every field of ours is described: `kubectl explain` is where people look first.
#[test]
fn every_field_of_ours_is_described() {
    fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            // A timestamp without words of its own shows those of the Go type.
            let text = property["description"].as_str();
            if text.is_none_or(|text| text.starts_with("Time is a wrapper")) {
                found.push(path.clone());
            }
            let kubernetes = ["podSpec", "templateSpec", "metrics", "conditions"];
            if !kubernetes.contains(&name.as_str()) {
                undescribed(property, &path, found);
                undescribed(&property["items"], &path, found);
            }
        }
    }
    let mut found = Vec::new();
    for definition in crds::all() {
        let definition = serde_json::to_value(definition).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        undescribed(
            schema,
            definition["spec"]["names"]["kind"].as_str().unwrap(),
            &mut found,
        );
    }
    assert_eq!(found, Vec::<String>::new());
}

/// What people type and see: short names, printer columns (`^` is shown with `-o wide` only), and what scales.
#[test]
fn short_names_columns_and_scales_are_these() {
    let mut report = String::new();
    for definition in crds::all() {
        let (names, version) = (&definition.spec.names, &definition.spec.versions[0]);
        let columns = version.additional_printer_columns.iter().flatten();
        let columns: Vec<String> = columns
            .map(|column| {
                format!(
                    "{}{} {}",
                    column.name,
                    if column.priority == Some(1) { "^" } else { "" },
                    column.json_path
                )
            })
            .collect();
        let scale = version
            .subresources
            .as_ref()
            .and_then(|subresources| subresources.scale.as_ref());
        let scale = scale.map(|s| {
            format!(
                "{} {} {:?}",
                s.spec_replicas_path, s.status_replicas_path, s.label_selector_path
            )
        });
        let short = names
            .short_names
            .iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .join(",");
        report += &format!(
            "{} ({short}, {})\n  {}\n",
            names.kind,
            definition.spec.scope,
            columns.join("\n  ")
        );
        report += &scale.map(|scale| format!("  scale: {scale}\n")).unwrap_or_default();
    }
    insta::assert_snapshot!(report);
}
