//! The dashboard and the alerts on a real Prometheus that scrapes a real operator and scheduler.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use grove_e2e::eventually;
use regex::Regex;
use serde_json::Value;

use crate::prometheus::Prometheus;
use crate::stage::{LIMIT, Stage};

/// A gang that wants less than it requires: it lies in one rack if it can.
const CHOOSY: &str = "
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: choosy}
spec:
  replicas: 1
  template:
    topologyConstraint: {pack: {required: block, preferred: rack}}
    cliques:
    - name: worker
      spec:
        roleName: worker
        replicas: 2
        podSpec:
          containers:
          - {name: server, image: 'registry.example/server:1', resources: {limits: {nvidia.com/gpu: 8}}}
";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> Result<String> {
    let path = file(path);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The queries of the dashboard, by panel.
fn queries() -> Result<Vec<(String, String)>> {
    let dashboard: Value = serde_json::from_str(&read("charts/grove/monitoring/dashboard.json")?)?;
    let panels = dashboard["panels"].as_array().context("a dashboard has panels")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_panel = |panel: &Value| {
        let title = text(&panel["title"]);
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets
            .iter()
            .map(|target| (title.clone(), text(&target["expr"])))
            .collect::<Vec<_>>()
    };
    Ok(panels.iter().flat_map(of_panel).collect())
}

/// The rules of all groups.
fn all_rules(file: &Value) -> Result<Vec<Value>> {
    let groups = file["groups"].as_array().context("there are groups of rules")?;
    let rules = groups.iter().flat_map(|group| group["rules"].as_array());
    Ok(rules.flatten().cloned().collect())
}

/// The alerts: their names and expressions.
fn alerts() -> Result<Vec<(String, String)>> {
    let rules: Value = serde_saphyr::from_str(&read("charts/grove/monitoring/alerts.yaml")?)?;
    let rules = all_rules(&rules)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(rules
        .iter()
        .map(|rule| (text(&rule["alert"]), text(&rule["expr"])))
        .collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_the_dashboard_and_every_alert_works_on_a_real_prometheus() -> Result<()> {
    let stage = Stage::start(&[]).await?;
    let [operator, scheduler] = stage.metrics;
    let targets = [("grove-operator", operator), ("grove-scheduler", scheduler)];
    let prometheus = Prometheus::start(&targets, &file("charts/grove/monitoring/alerts.yaml")).await?;
    for job in ["grove-operator", "grove-scheduler"] {
        prometheus.until_told(&format!("up{{job=\"{job}\"}} == 1")).await?;
    }
    stage.apply(&read("examples/demo/llama-disagg.yaml")?).await?;
    stage.apply(CHOOSY).await?;
    stage.apply(&read("examples/demo/dgd-vllm.yaml")?).await?;
    stage.until("dgd-vllm-0", "Ready", ("True", "PodsReady")).await?;
    stage.until("llama-disagg-0", "Ready", ("True", "PodsReady")).await?;
    stage.until("choosy-0", "Scheduled", ("True", "Placed")).await?;
    stage.apply(&read("examples/demo/moe-giant.yaml")?).await?;
    stage.until("moe-giant-0", "Scheduled", ("False", "TooLarge")).await?;

    // A rate is of what is counted after a series was first seen: all of it happens once more.
    for series in [
        "grove_gang_wait_seconds_count",
        "grove_gate_wait_seconds_count",
        "grove_webhook_duration_seconds_count",
    ] {
        prometheus.until_told(&format!("sum({series})")).await?;
    }
    stage.apply(&CHOOSY.replace("name: choosy", "name: again")).await?;
    stage.until("again-0", "Scheduled", ("True", "Placed")).await?;

    let queries = queries()?;
    assert!(queries.len() > 20, "the dashboard has {} queries", queries.len());
    for (panel, query) in &queries {
        prometheus.until_told(query).await.with_context(|| panel.clone())?;
    }
    truths(&prometheus).await?;
    for (alert, expression) in alerts()? {
        mentioned(&prometheus, &expression).await.context(alert)?;
    }
    loaded(&prometheus).await
}

/// A few numbers that this workload makes certain.
async fn truths(prometheus: &Prometheus) -> Result<()> {
    for (expression, expected) in [
        // Four hosts for the prefill workers, two for the decoders, two for each of the choosy ones; 24 for the graph.
        ("grove_topology_gpus{state=\"used\"}", 104.0),
        ("grove_topology_gpus{state=\"free\"}", 408.0),
        ("grove_topology_nodes{state=\"ready\"}", 64.0),
        ("grove_gangs{state=\"pending\",reason=\"TooLarge\"}", 1.0),
        ("grove_preferred_met_ratio{level=\"rack\"}", 1.0),
        ("sum(grove_required_violations)", 0.0),
        // Nothing holds eight hosts of one rack.
        ("grove_topology_slots{level=\"rack\",hosts=\"8\"}", 0.0),
        // The controller of graphs tells of itself as the others do.
        ("sum(grove_queue_depth{controller=\"dynamographdeployment\"})", 0.0),
        (
            "sum(grove_reconcile_duration_seconds_count{controller=\"dynamographdeployment\"}) > bool 1",
            1.0,
        ),
        (
            "sum(grove_api_writes_total{resource=\"dynamographdeployments/status\"}) > bool 0",
            1.0,
        ),
        ("sum by (component) (grove_leader{component=\"operator\"})", 1.0),
    ] {
        eventually(expression, LIMIT, async || -> Result<()> {
            let found = prometheus.query(expression).await?;
            let values: Vec<f64> = found.iter().map(|(_, value)| *value).collect();
            ensure!(values == [expected], "it is {found:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Every metric that an expression names is there: one that is misspelt would never fire.
async fn mentioned(prometheus: &Prometheus, expression: &str) -> Result<()> {
    let names: BTreeSet<&str> = Regex::new("grove_[a-z_]+")?
        .find_iter(expression)
        .map(|name| name.as_str())
        .collect();
    ensure!(!names.is_empty(), "{expression} names no metric of Grove's");
    for name in names {
        prometheus.until_told(&format!("count({name})")).await?;
    }
    Ok(())
}

/// Prometheus takes every rule, and the one that this workload calls for is on its way.
async fn loaded(prometheus: &Prometheus) -> Result<()> {
    let expected: BTreeSet<String> = alerts()?.into_iter().map(|(alert, _)| alert).collect();
    eventually("all rules to be evaluated", LIMIT, async || -> Result<()> {
        let data = prometheus.ask("rules").await?;
        let rules = all_rules(&data)?;
        let names: BTreeSet<String> = rules
            .iter()
            .filter_map(|rule| Some(rule["name"].as_str()?.to_owned()))
            .collect();
        ensure!(names == expected, "there are {names:?}");
        for rule in &rules {
            ensure!(rule["health"] == "ok", "{}: {}", rule["name"], rule["lastError"]);
        }
        let astir: Vec<&Value> = rules.iter().filter(|rule| rule["state"] != "inactive").collect();
        let astir: Vec<&str> = astir.iter().filter_map(|rule| rule["name"].as_str()).collect();
        ensure!(astir == ["GroveGangNeverFits"], "astir are {astir:?}");
        Ok(())
    })
    .await?;
    Ok(())
}

#[test]
fn every_alert_fires_when_it_should_and_none_while_all_is_well() -> Result<()> {
    let cases = "e2e/tests/observe/alerts.yaml";
    let text = read(cases)?;
    for (alert, _) in alerts()? {
        assert!(
            text.contains(&format!("alertname=\"{alert}\"")),
            "{cases} does not show {alert}"
        );
    }
    for arguments in [
        ["check", "rules", "charts/grove/monitoring/alerts.yaml"],
        ["test", "rules", cases],
    ] {
        let output = Command::new("promtool")
            .args(&arguments[..2])
            .arg(file(arguments[2]))
            .output()
            .context("cannot run promtool; is Debian's package prometheus installed?")?;
        let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "promtool {arguments:?}: {told}");
    }
    Ok(())
}
