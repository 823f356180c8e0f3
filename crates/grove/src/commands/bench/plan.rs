//! `grove bench plan`: how long the steps of `grove plan` take on a cluster and workloads that are made up here.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::commands::plan;
use crate::exit::Failure;
use crate::output::{columns, row};

/// The levels of the made-up cluster, as `grove plan --levels` takes them.
const LEVELS: &str = "block=bench/block,rack=bench/rack,host=kubernetes.io/hostname";

const RUNS: usize = 5;

/// One run; each time is the best of several.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    nodes: usize,
    sets: usize,
    gangs: usize,
    placed: usize,
    pods: usize,
    read_ms: f64,
    expand_ms: f64,
    place_ms: f64,
}

/// Nodes of eight GPUs, 20 a rack, 10 racks a block, and sets of two roles, each in a rack of one block: all of them fit
/// where there are two nodes a role.
fn objects(nodes: usize, sets: usize) -> String {
    let node = |at: usize| {
        let labels = json!({"bench/block": format!("b{}", at / 200), "bench/rack": format!("r{}", at / 20),
            "kubernetes.io/hostname": format!("n{at}")});
        json!({"kind": "Node", "metadata": {"name": format!("n{at}"), "labels": labels},
            "status": {"allocatable": {"cpu": "128", "nvidia.com/gpu": "8", "pods": "110"}}})
    };
    let set = |at: usize| {
        let container = json!({"name": "m", "resources": {"limits": {"nvidia.com/gpu": "8"}}});
        let clique = |name: &str, pods: usize| {
            json!({"name": name, "topologyConstraint": {"packDomain": "rack"},
                "spec": {"roleName": name, "replicas": pods, "podSpec": {"containers": [container]}}})
        };
        json!({"kind": "PodCliqueSet", "metadata": {"name": format!("s{at}")}, "spec": {"replicas": 1, "template": {
            "topologyConstraint": {"packDomain": "block"}, "cliques": [clique("p", 1 + at % 2), clique("d", 2)]}}})
    };
    let items: Vec<Value> = (0..nodes).map(node).chain((0..sets).map(set)).collect();
    json!({"kind": "List", "items": items}).to_string()
}

/// Writes the objects for `grove plan`, and says how to call it.
pub(super) fn write(nodes: usize, sets: usize, file: &Path) -> Result<String, Failure> {
    std::fs::write(file, objects(nodes, sets))
        .map_err(|error| Failure::Usage(format!("cannot write {}: {error}", file.display())))?;
    Ok(format!("grove plan --levels {LEVELS} -f {}", file.display()))
}

pub(super) fn measure(nodes: usize, sets: usize) -> Result<Line, Failure> {
    let text = objects(nodes, sets);
    let levels: Vec<String> = LEVELS.split(',').map(str::to_owned).collect();
    let mut best = plan::timed(&text, &levels)?;
    for _ in 1..RUNS {
        best = best.least(plan::timed(&text, &levels)?);
    }
    let millis = |duration: std::time::Duration| (duration.as_secs_f64() * 1e4).round() / 10.0;
    Ok(Line {
        nodes,
        sets,
        gangs: best.gangs,
        placed: best.placed,
        pods: best.pods,
        read_ms: millis(best.read),
        expand_ms: millis(best.expand),
        place_ms: millis(best.place),
    })
}

pub(super) fn table(line: &Line) -> String {
    let numbers = [line.nodes, line.sets, line.gangs, line.placed, line.pods].map(|number| number.to_string());
    let times = [line.read_ms, line.expand_ms, line.place_ms].map(|time| format!("{time:.1}"));
    let head = [
        "NODES",
        "SETS",
        "GANGS",
        "PLACED",
        "PODS",
        "READ MS",
        "EXPAND MS",
        "PLACE MS",
    ];
    columns(&[row(head), numbers.into_iter().chain(times).collect()])
}
