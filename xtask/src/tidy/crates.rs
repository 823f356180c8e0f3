//! Which crate may use which: arrows point down only, and what decides does no I/O (invariants 1 and 2).

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Finding;
use crate::root;

/// What each crate may use of the others. A new crate takes its place here first.
const MAY_USE: &[(&str, &[&str])] = &[
    ("grove-api", &[]),
    ("grove-topology", &["grove-api"]),
    ("grove-workload", &["grove-api", "grove-topology"]),
    ("grove-placement", &[]),
    ("grove-plancheck", &[]),
    ("grove-kubeplace", &["grove-api", "grove-topology", "grove-placement"]),
    ("grove-simcluster", &["grove-api"]),
    ("grove-runtime", &[]),
    (
        "grove-admission",
        &[
            "grove-api",
            "grove-dynamo",
            "grove-runtime",
            "grove-topology",
            "grove-workload",
        ],
    ),
    (
        "grove-controllers",
        &[
            "grove-api",
            "grove-runtime",
            "grove-topology",
            "grove-workload",
            "grove-placement",
            "grove-kubeplace",
        ],
    ),
    (
        "grove-scheduler",
        &[
            "grove-api",
            "grove-runtime",
            "grove-topology",
            "grove-placement",
            "grove-kubeplace",
        ],
    ),
    (
        "grove-web",
        &["grove-api", "grove-runtime", "grove-topology", "grove-kubeplace"],
    ),
    (
        "grove-dynamo",
        &["grove-api", "grove-runtime", "grove-topology", "grove-workload"],
    ),
    ("grove-scenarios", &["grove-api", "grove-plancheck", "grove-simcluster"]),
    (
        "grove-campaign",
        &[
            "grove-api",
            "grove-admission",
            "grove-controllers",
            "grove-dynamo",
            "grove-hostile",
            "grove-scenarios",
            "grove-scheduler",
            "grove-simcluster",
        ],
    ),
    (
        "grove-plan",
        &[
            "grove-api",
            "grove-controllers",
            "grove-kubeplace",
            "grove-placement",
            "grove-topology",
            "grove-workload",
        ],
    ),
    (
        "grove-hostile",
        &[
            "grove-api",
            "grove-admission",
            "grove-controllers",
            "grove-dynamo",
            "grove-kubeplace",
            "grove-plan",
            "grove-scheduler",
            "grove-topology",
        ],
    ),
    ("grove-e2e", &[]),
    (
        "grove",
        &[
            "grove-api",
            "grove-topology",
            "grove-workload",
            "grove-placement",
            "grove-plan",
            "grove-plancheck",
            "grove-kubeplace",
            "grove-simcluster",
            "grove-admission",
            "grove-controllers",
            "grove-runtime",
            "grove-scheduler",
            "grove-dynamo",
            "grove-web",
        ],
    ),
    ("xtask", &["grove-api", "grove-workload", "grove-e2e"]),
];

/// Crates that decide and do nothing else.
const PURE: [&str; 6] = [
    "grove-api",
    "grove-topology",
    "grove-workload",
    "grove-placement",
    "grove-plancheck",
    "grove-kubeplace",
];

/// With any of these a crate could wait, call somebody, or roll dice.
const IMPURE: [&str; 8] = [
    "tokio",
    "async-std",
    "kube-client",
    "kube-runtime",
    "hyper",
    "reqwest",
    "rand",
    "tracing-subscriber",
];

/// Crates that need nothing but the standard library.
const STD_ONLY: [&str; 1] = ["grove-placement"];

pub(super) fn check() -> Result<Vec<Finding>> {
    let uses = uses_of_members()?;
    let mut findings = direction(&uses);
    for name in PURE.into_iter().filter(|name| uses.contains_key(*name)) {
        findings.extend(purity(name, &packages_below(name)?));
    }
    Ok(findings)
}

/// The workspace's crates, and what each uses of the others outside its tests.
fn uses_of_members() -> Result<BTreeMap<String, Vec<String>>> {
    let output = cargo(&["metadata", "--format-version", "1", "--no-deps", "--locked"])?;
    let metadata: Value = serde_json::from_str(&output)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let members: Vec<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let uses = |package: &Value| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
        normal
            .map(|dependency| text(&dependency["name"]))
            .filter(|name| members.contains(name))
            .collect()
    };
    Ok(packages
        .iter()
        .map(|package| (text(&package["name"]), uses(package)))
        .collect())
}

fn direction(uses: &BTreeMap<String, Vec<String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, used) in uses {
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| known == name) else {
            findings.push(format!(
                "crate {name} has no place in the architecture; give it one in xtask/src/tidy/crates.rs"
            ));
            continue;
        };
        for other in used.iter().filter(|other| !allowed.contains(&other.as_str())) {
            findings.push(format!("crate {name} must not use {other}: arrows point down only"));
        }
    }
    findings
}

fn purity(name: &str, below: &[String]) -> Vec<Finding> {
    let forbidden = |package: &&String| IMPURE.contains(&package.as_str()) || STD_ONLY.contains(&name);
    let finding = |package| format!("crate {name} must not depend on {package}: it only decides");
    below.iter().filter(forbidden).map(finding).collect()
}

/// All packages that a crate is built from, itself left out, with the features that it asks for itself.
fn packages_below(name: &str) -> Result<Vec<String>> {
    let tree = cargo(&[
        "tree",
        "--package",
        name,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--locked",
    ])?;
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let mut below: Vec<String> = names.filter(|package| *package != name).map(str::to_owned).collect();
    below.sort();
    below.dedup();
    Ok(below)
}

fn cargo(args: &[&str]) -> Result<String> {
    let output = Command::new("cargo")
        .current_dir(root())
        .args(args)
        .output()
        .context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "cargo {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let uses = BTreeMap::from([("grove-api".to_owned(), vec!["grove-simcluster".to_owned()])]);
        assert_eq!(
            direction(&uses),
            ["crate grove-api must not use grove-simcluster: arrows point down only"]
        );
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let uses = BTreeMap::from([("grove-new".to_owned(), vec![])]);
        assert!(direction(&uses)[0].starts_with("crate grove-new has no place"));
    }

    #[test]
    fn a_runtime_below_a_pure_crate_is_found() {
        let below = ["serde".to_owned(), "tokio".to_owned()];
        assert_eq!(
            purity("grove-api", &below),
            ["crate grove-api must not depend on tokio: it only decides"]
        );
        assert_eq!(purity("grove-placement", &below).len(), 2);
    }
}
