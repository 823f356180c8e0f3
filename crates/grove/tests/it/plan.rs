//! `grove plan` on files.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{file, grove};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/plan")
        .join(name)
}

#[test]
fn the_example_is_planned_as_its_comments_say() {
    let output = grove()
        .args(["plan", "-o", "json", "-f"])
        .arg(example("cluster.yaml"))
        .arg("-f")
        .arg(example("workloads.yaml"))
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gangs = answer["gangs"].as_array().unwrap();
    let of = |set: &str| -> Vec<&Value> { gangs.iter().filter(|gang| gang["podCliqueSet"] == set).collect() };
    for gang in of("chat") {
        assert_eq!(gang["result"], "placed");
        assert_eq!(
            gang["scopes"][0]["domains"]["block"].as_array().unwrap().len(),
            1,
            "{gang}"
        );
    }
    let racks_of = |scope: &str| {
        let scopes = gangs.iter().flat_map(|gang| gang["scopes"].as_array().unwrap());
        let mut found = scopes.filter(|found| found["name"].as_str().unwrap().starts_with(scope));
        found.next().unwrap()["domains"]["rack"].as_array().unwrap().len()
    };
    assert_eq!(racks_of("chat-0-prefill"), 1);
    assert_eq!(of("giant")[0]["result"], "infeasible");
    assert!(of("giant")[0]["reason"].as_str().unwrap().contains("rack"));
    assert_eq!(of("giant")[0]["pods"], json!([]));
    assert_eq!(of("embed")[0]["pods"].as_array().unwrap().len(), 3);
    assert_eq!(answer["summary"]["nodes"], 64);
    assert_eq!(answer["summary"]["infeasible"], 1);
    assert_eq!(gangs[0]["podCliqueSet"], "chat", "the highest priority comes first");
}

#[test]
fn all_formats_and_the_standard_input_are_understood() {
    let text = std::fs::read_to_string(example("cluster.yaml")).unwrap();
    let yaml = grove()
        .args(["plan", "-f", "-", "-o", "yaml"])
        .write_stdin(text)
        .output()
        .unwrap();
    assert_eq!(yaml.status.code(), Some(0), "there is nothing that could be unplaced");
    let answer: Value = serde_saphyr::from_str(&String::from_utf8(yaml.stdout).unwrap()).unwrap();
    assert_eq!(answer["summary"]["nodes"], 64);
    let table = grove()
        .args(["plan", "-f"])
        .arg(example("cluster.yaml"))
        .output()
        .unwrap();
    assert!(String::from_utf8(table.stdout).unwrap().starts_with("GANG"));
}

#[test]
fn bad_input_is_exit_code_2_on_one_line() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing.yaml");
    let broken = file(&folder, "broken.yaml", "kind: [");
    for path in [missing, broken] {
        let output = grove().args(["plan", "-f"]).arg(&path).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(&path.display().to_string()), "{message}");
    }
    grove().arg("plan").assert().code(2);
}

/// 1,000 nodes and 200 sets. The bound is far above what an optimised build needs (it says so on `--nocapture`), and
/// far below what counting every node for every pod would take.
#[test]
fn a_thousand_nodes_and_two_hundred_sets_are_planned_at_once() {
    let folder = TempDir::new().unwrap();
    let node = |at: usize| {
        let labels = json!({"x/block": format!("b{}", at / 200), "x/rack": format!("r{}", at / 20),
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
    let objects: Vec<Value> = (0..1000).map(node).chain((0..200).map(set)).collect();
    let objects = file(
        &folder,
        "all.json",
        &json!({"kind": "List", "items": objects}).to_string(),
    );
    let begun = Instant::now();
    let output = grove()
        .args([
            "plan",
            "-o",
            "json",
            "--levels",
            "block=x/block,rack=x/rack,host=kubernetes.io/hostname",
            "-f",
        ])
        .arg(objects)
        .output()
        .unwrap();
    println!("{:?}", begun.elapsed());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["summary"]["gangs"], 200);
    assert_eq!(answer["summary"]["placed"], 200, "{}", answer["summary"]);
    assert!(begun.elapsed().as_secs() < 20);
}
