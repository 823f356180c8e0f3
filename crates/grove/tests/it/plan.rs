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

/// 1,000 nodes and 200 sets. The bound is far above what an optimised build needs (`grove bench plan` says it), and far
/// below what counting every node for every pod would take.
#[test]
fn a_thousand_nodes_and_two_hundred_sets_are_planned_at_once() {
    let folder = TempDir::new().unwrap();
    let objects = folder.path().join("all.json");
    let said = grove()
        .args(["bench", "plan", "--write"])
        .arg(&objects)
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let begun = Instant::now();
    let output = grove()
        .args(said.split_whitespace().skip(1))
        .args(["-o", "json"])
        .output()
        .unwrap();
    println!("{:?}", begun.elapsed());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["summary"]["nodes"], 1000);
    assert_eq!(answer["summary"]["gangs"], 200);
    assert_eq!(answer["summary"]["placed"], 200, "{}", answer["summary"]);
    assert!(begun.elapsed().as_secs() < 20);
}
