//! Every metric, read from registries like those of running processes. A family tells its labels by a series, so each gets
//! one here; a metric that got none is an error, not a gap in the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use super::cell;
use crate::commands::{operator, scheduler};
use crate::controllers::Telemetry;
use crate::metrics::Metrics;

const HEAD: &str = "# Metrics

<!-- Written by `cargo xtask gen` from the registries of the program; do not edit. -->

What `/metrics` of the operator and of the scheduler tells (`server.metrics` of the [configuration](../configuration.md)). No
pod, gang, node or namespace has a series of its own. An operator with the profile `default-scheduler` places gangs itself:
then it tells what the scheduler tells. [operate.md](../operate.md) says what to look at.

| metric | type | labels | of | |
|---|---|---|---|---|
";

/// What is told of one metric.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    kind: String,
    help: String,
    labels: Vec<String>,
    by: Vec<&'static str>,
}

/// The whole page.
pub(super) fn page() -> Result<String> {
    let telemetry = Telemetry::with_a_series_each();
    let processes = [
        ("operator", operator::metrics(&telemetry, false)),
        ("scheduler", scheduler::metrics(&telemetry.placing)),
    ];
    let mut all: BTreeMap<String, Told> = BTreeMap::new();
    for (process, metrics) in processes {
        metrics.writes.count("pods", "create", Some(201));
        for (name, told) in told(&metrics).with_context(|| format!("the metrics of the {process}"))? {
            all.entry(name).or_insert(told).by.push(process);
        }
    }
    let mut page = HEAD.to_owned();
    for (name, told) in &all {
        let labels: Vec<String> = told.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(
            page,
            "| `{name}` | {} | {} | {} | {} |",
            told.kind,
            labels.join(", "),
            told.by.join(", "),
            cell(&told.help)
        );
    }
    Ok(page)
}

/// The metrics of one process by the names that a query uses.
fn told(metrics: &Metrics) -> Result<BTreeMap<String, Told>> {
    let text = metrics.render()?;
    let silent = metrics.silent(&text);
    ensure!(
        silent.is_empty(),
        "no series, and so no labels: {}; give each a series in `with_a_series_each`, or here",
        silent.join(", ")
    );
    Ok(read(&text))
}

/// Reads what a scrape would.
fn read(text: &str) -> BTreeMap<String, Told> {
    let mut all: BTreeMap<String, Told> = BTreeMap::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            family = name.to_owned();
            all.entry(family.clone()).or_default().help = help.trim_end_matches('.').to_owned();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            all.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if !line.starts_with('#')
            && let Some(told) = all.get_mut(&family)
        {
            told.labels = labels(line);
        }
    }
    all.into_iter()
        .map(|(name, told)| (queried(name, &told.kind), told))
        .collect()
}

/// The labels of a series, but for that of a histogram's buckets.
fn labels(series: &str) -> Vec<String> {
    let inside = series.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    let labels = inside.map_or("", |(inside, _)| inside).split("\",");
    let names = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
    names.filter(|name| name != "le").collect()
}

/// The name that a query uses; a histogram has several, all of which begin with its own.
fn queried(name: String, kind: &str) -> String {
    match kind {
        "counter" => name + "_total",
        "info" => name + "_info",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_types_labels_and_help_are_those_of_a_scrape() {
        let page = page().unwrap();
        for expected in [
            "| `grove_api_writes_total` | counter | `resource`, `verb`, `code` | operator, scheduler | Writes to the API server",
            "| `grove_gangs` | gauge | `state`, `reason` | scheduler | Gangs by",
            "| `grove_placement_duration_seconds` | histogram | `result` | scheduler |",
            "| `grove_build_info` | info | `version` | operator, scheduler |",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
    }

    /// Who adds a family gives it a series, or hears of it.
    #[test]
    fn a_metric_that_tells_nothing_is_found() {
        let placing = grove_scheduler::Metrics::default();
        let error = told(&scheduler::metrics(&placing)).unwrap_err().to_string();
        assert!(
            error.contains("grove_placement_duration") && error.contains("grove_api_writes"),
            "{error}"
        );
    }
}
