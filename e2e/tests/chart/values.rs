//! What the chart makes of its values: rights, and the configuration.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use grove_api::rights::{self, Home};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::helm::{chart, helm, rendered};
use crate::{NAMESPACE, PLANE};

/// The Roles of the chart are those that `grove rbac` prints; Leases elsewhere are allowed where they are.
#[tokio::test(flavor = "multi_thread")]
async fn roles_allow_what_the_replicas_need_and_no_more() -> Result<()> {
    let plane = PLANE.get().await?;
    let roles = |more: &[&str]| -> Result<BTreeMap<(String, String), Value>> {
        let text = rendered(
            plane,
            "templates/rbac.yaml",
            &[&["--namespace", NAMESPACE], more].concat(),
        )?;
        let mut roles = BTreeMap::new();
        for document in text.split("---\n").filter(|document| document.contains("kind: Role\n")) {
            let role: Value = serde_saphyr::from_str(document)?;
            let named = |key: &str| role["metadata"][key].as_str().unwrap_or_default().to_owned();
            roles.insert((named("namespace"), named("name")), role["rules"].clone());
        }
        Ok(roles)
    };
    let home = Home {
        namespace: NAMESPACE,
        secret: "grove-webhook-server-cert",
        lease: "grove-operator-leader-election",
    };
    let operator = serde_json::to_value(rights::role(&home).rules)?;
    let scheduler = serde_json::to_value(rights::scheduler::role(NAMESPACE).rules)?;
    let at = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    let expected = [(rights::OPERATOR, &operator), (rights::scheduler::NAME, &scheduler)];
    let expected: BTreeMap<_, _> = expected
        .map(|(name, rules)| (at(NAMESPACE, name), rules.clone()))
        .into();
    ensure!(roles(&[])? == expected, "{:#?} is not {expected:#?}", roles(&[])?);
    let elsewhere = roles(&["--set", "config.leaderElection.resourceNamespace=leases"])?;
    ensure!(
        elsewhere[&at("leases", rights::scheduler::NAME)] == scheduler,
        "{elsewhere:#?}"
    );
    let (own, theirs) = (
        &elsewhere[&at(NAMESPACE, rights::OPERATOR)],
        &elsewhere[&at("leases", rights::OPERATOR)],
    );
    let both: Vec<&Value> = [own, theirs]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
        .collect();
    ensure!(json!(both) == operator, "{elsewhere:#?}");
    Ok(())
}

/// Every configuration that the operator takes can be given to the chart, and comes out as it went in.
#[tokio::test(flavor = "multi_thread")]
async fn values_take_every_good_configuration_and_refuse_what_is_unknown() -> Result<()> {
    let plane = PLANE.get().await?;
    let folder = TempDir::new()?;
    let chart = chart().display().to_string();
    helm(plane, &["lint", "--strict", &chart])?;
    let path = folder.path().join("values.json");
    let values = path.display().to_string();
    let template = || rendered(plane, "templates/config.yaml", &["--values", &values]);
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/api/tests/config/good");
    let mut judged = 0;
    for entry in good.read_dir()? {
        let text = fs::read_to_string(entry?.path())?;
        let Ok(Value::Object(mut config)) = serde_saphyr::from_str::<Value>(&text) else {
            continue;
        };
        config.remove("apiVersion");
        config.remove("kind");
        // To Helm a null says that a value is taken away, and to the operator that it has its default.
        config.values_mut().for_each(drop_nulls);
        config.retain(|_, value| !value.is_null());
        fs::write(&path, json!({"config": config}).to_string())?;
        let rendered: Value = serde_saphyr::from_str(&template()?)?;
        let inside = rendered["data"]["config.yaml"].as_str().context("a configuration")?;
        let inside: Value = serde_saphyr::from_str(inside)?;
        for (key, value) in &config {
            ensure!(is_within(value, &inside[key]), "{key}: {value} became {}", inside[key]);
        }
        judged += 1;
    }
    ensure!(judged > 10, "{judged} files were found");
    fs::write(&path, json!({"config": {"logLevl": "debug"}}).to_string())?;
    let refused = template().map_or_else(|error| error.to_string(), |_| "nothing".to_owned());
    ensure!(refused.contains("'logLevl' not allowed"), "{refused}");
    Ok(())
}

/// What the values of parts that are left out, or of clusters that are built otherwise, become.
#[tokio::test(flavor = "multi_thread")]
async fn values_reach_the_alerts_and_the_network() -> Result<()> {
    let plane = PLANE.get().await?;
    let rules = |more: &[&str]| -> Result<Vec<String>> {
        let values = [&["--set", "metrics.rules.enabled=true"], more].concat();
        let rule: Value = serde_saphyr::from_str(&rendered(plane, "templates/monitoring.yaml", &values)?)?;
        let groups = rule["spec"]["groups"].as_array().context("groups of alerts")?;
        Ok(groups.iter().map(|group| group["name"].to_string()).collect())
    };
    ensure!(rules(&[])? == ["\"grove\"", "\"grove-scheduler\""], "{:?}", rules(&[])?);
    let alone = rules(&["--set", "scheduler.enabled=false"])?;
    ensure!(
        alone == ["\"grove\""],
        "nobody waits for a scheduler that is not started: {alone:?}"
    );
    let policy = |more: &[&str]| rendered(plane, "templates/networkpolicy.yaml", more);
    ensure!(!policy(&[])?.contains("8443"), "{}", policy(&[])?);
    let more = policy(&["--set", "networkPolicy.egressPorts={8443,16443}"])?;
    for port in ["- { port: 8443 }", "- { port: 16443 }"] {
        ensure!(more.matches(port).count() == 2, "of both programs: {more}");
    }
    Ok(())
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(drop_nulls);
        fields.retain(|_, value| !value.is_null());
    }
}

/// Whether a value is what was given, with what the chart's own values add to it.
fn is_within(given: &Value, rendered: &Value) -> bool {
    match (given, rendered) {
        (Value::Object(given), Value::Object(rendered)) => given
            .iter()
            .all(|(key, value)| rendered.get(key).is_some_and(|found| is_within(value, found))),
        (Value::Number(given), Value::Number(rendered)) => given.as_f64() == rendered.as_f64(),
        (given, rendered) => given == rendered,
    }
}
