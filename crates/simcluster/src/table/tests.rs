use super::*;

/// Tables of kube-apiserver 1.36.3 with the objects they were made of, one kind a line.
#[test]
fn rows_are_those_of_the_api_server() {
    let columns: Vec<Value> = serde_json::from_str(include_str!("../../fixtures/cog-columns.json")).unwrap();
    let mut rows = 0;
    for line in include_str!("../../fixtures/tables.jsonl").lines() {
        let fixture: Value = serde_json::from_str(line).unwrap();
        let kind = fixture["kind"].as_str().unwrap().split('/').next().unwrap();
        let now = Timestamp::from_second(fixture["now"].as_i64().unwrap()).unwrap();
        let printer = if kind == "Cog" {
            Printer::custom(&columns).unwrap()
        } else {
            Printer::builtin(kind)
        };
        if kind == "Cog" {
            assert_eq!(*printer.columns(), fixture["columns"]);
        }
        for row in fixture["rows"].as_array().unwrap() {
            rows += 1;
            let made = printer.row(&row["object"], IncludeObject::Object, now);
            let as_float = |cell: &Value| cell.as_f64().map_or_else(|| cell.clone(), Value::from);
            let cells = |row: &Value| {
                row["cells"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(as_float)
                    .collect::<Vec<_>>()
            };
            assert_eq!(cells(&made), cells(row), "{kind} {}", row["object"]["metadata"]["name"]);
            assert_eq!(made["conditions"], row["conditions"]);
            assert_eq!(printer.columns().as_array().unwrap().len(), cells(row).len(), "{kind}");
        }
    }
    assert!(rows > 50, "{rows}");
}

#[test]
fn a_row_carries_as_much_of_its_object_as_was_asked() {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "b"}});
    let carried = |include: &str| {
        let include = include.parse().unwrap();
        Printer::builtin("ConfigMap").row(&object, include, Timestamp::UNIX_EPOCH)["object"].clone()
    };
    let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "c"}});
    assert_eq!(carried(""), partial);
    assert_eq!(carried("Metadata"), partial);
    assert_eq!(carried("Object"), object);
    assert_eq!(carried("None"), Value::Null);
    let words = "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None', or empty";
    assert_eq!("Foo".parse::<IncludeObject>().unwrap_err().to_string(), words);
}

#[test]
fn a_kind_without_columns_shows_name_and_age() {
    let printer = Printer::custom(&[]).unwrap();
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "1970-01-01T00:00:00Z"}});
    let table = table(
        &printer,
        [&object],
        json!({"resourceVersion": "7"}),
        IncludeObject::None,
        Timestamp::from_second(90).unwrap(),
    );
    assert_eq!(table["rows"][0]["cells"], json!(["x", "90s"]));
    assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(
        Printer::custom(&[json!({"jsonPath": "a["})]).unwrap_err(),
        TableError::Column("a[".to_owned())
    );
}

#[test]
fn rows_of_nonsense_do_not_panic() {
    for kind in [
        "Pod",
        "Node",
        "Service",
        "Event",
        "HorizontalPodAutoscaler",
        "RoleBinding",
        "ResourceClaim",
        "Nonsense",
    ] {
        for object in [
            json!(null),
            json!({"metadata": 1, "spec": [], "status": "x"}),
            json!({"status": {"conditions": [1, null]}}),
        ] {
            Printer::builtin(kind).row(&object, IncludeObject::Metadata, Timestamp::UNIX_EPOCH);
        }
    }
}
