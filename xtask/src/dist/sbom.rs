//! What the shipped program was made from, as a CycloneDX list: every crate of its normal dependencies with version,
//! licence and checksum, as cargo knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

pub(super) fn of_workspace(root: &Path, version: &str) -> Result<String> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root);
    cargo.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        super::TARGET,
    ]);
    let output = cargo.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = serde_json::from_slice(&output.stdout)?;
    Ok(serde_json::to_string_pretty(&list(&metadata, version)?)?)
}

/// The list, from what `cargo metadata` says.
fn list(metadata: &Value, version: &str) -> Result<Value> {
    let packages = index(&metadata["packages"], "id");
    let nodes = index(&metadata["resolve"]["nodes"], "id");
    let is_product = |package: &&&Value| package["name"] == "grove";
    let product = packages.values().find(is_product).context("no package grove")?;
    let mut seen = BTreeSet::new();
    let mut open = vec![text(&product["id"])];
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(dependencies(nodes.get(id).copied()));
        }
    }
    let mut components: Vec<Value> = seen
        .iter()
        .filter_map(|id| packages.get(id))
        .map(|package| component(package))
        .collect();
    components.sort_by_key(|component| component["purl"].to_string());
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "grove", "version": version}},
        "components": components,
    }))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn index<'a>(list: &'a Value, key: &str) -> BTreeMap<&'a str, &'a Value> {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| (text(&item[key]), item)).collect()
}

/// Those that end up in the program: neither for tests nor for building.
fn dependencies(node: Option<&Value>) -> impl Iterator<Item = &str> {
    let dependencies = node.and_then(|node| node["deps"].as_array()).into_iter().flatten();
    let is_normal = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    dependencies
        .filter(is_normal)
        .map(|dependency| text(&dependency["pkg"]))
}

fn component(package: &Value) -> Value {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let mut component = json!({"type": "library", "name": name, "version": version,
        "purl": format!("pkg:cargo/{name}@{version}")});
    if let Some(license) = package["license"].as_str() {
        component["licenses"] = json!([{"expression": license}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_for_tests_is_not_listed() {
        let package = |name: &str| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT"});
        let depends = |on: &str, kind: Value| json!({"pkg": on, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("grove"), package("used"), package("deeper"), package("tester")],
            "resolve": {"nodes": [
                {"id": "grove", "deps": [depends("used", Value::Null), depends("tester", json!("dev"))]},
                {"id": "used", "deps": [depends("deeper", Value::Null), depends("grove", Value::Null)]},
            ]},
        });
        let list = list(&metadata, "0.1.0").unwrap();
        let names: Vec<&str> = list["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| text(&one["name"]))
            .collect();
        assert_eq!(names, ["deeper", "grove", "used"]);
        assert_eq!(list["components"][0]["licenses"][0]["expression"], "MIT");
    }
}
