//! `grove bench`: what it prints for programs.

use std::path::Path;

use serde_json::Value;

use crate::cli::grove;

fn lines(args: &[&str]) -> Value {
    let output = grove().arg("bench").args(args).args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The field names are a contract: runs are compared by them.
#[test]
fn placements_are_an_array_of_cases() {
    let lines = lines(&["placement", "--nodes", "512"]);
    let lines = lines.as_array().unwrap();
    assert!(lines.len() > 10, "{} cases", lines.len());
    for line in lines {
        assert!(line["case"].is_string(), "{line}");
        assert_eq!(line["nodes"], 512);
        assert!(line["pods"].as_u64().unwrap() > 0, "{line}");
        assert!(line["new_shape_us"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["known_shape_us"].is_f64(), "{line}");
        assert_eq!(line["allocations"], 0, "{line}");
        assert!(
            ["placed", "infeasible"].contains(&line["result"].as_str().unwrap()),
            "{line}"
        );
        for (level, fewest) in line["optimal_domains"].as_object().unwrap() {
            let used = &line["domains"][level];
            let is_placed = line["result"] == "placed";
            assert!(!is_placed || used.as_u64() >= fewest.as_u64(), "{level}: {line}");
        }
    }
}

#[test]
fn queues_are_told_under_both_policies_beside_the_peer_and_the_bound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/gang-cases");
    let output = grove().args(["bench", "cases"]).arg(folder).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let count = |word: &str| table.lines().filter(|line| line.contains(word)).count();
    assert_eq!((count("fewest hosts"), count("spare hosts")), (5, 5), "{table}");
    assert!(table.lines().next().unwrap().contains("MOST"), "{table}");
}

#[test]
fn the_steps_of_a_plan_are_measured() {
    let output = grove()
        .args(["bench", "plan", "--nodes", "40", "--sets", "5", "-o", "json"])
        .output()
        .unwrap();
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["gangs"], 5);
    assert_eq!(line["placed"], 5);
    assert_eq!(line["pods"], 3 + 4 + 3 + 4 + 3);
    assert!(
        ["read_ms", "expand_ms", "place_ms"]
            .iter()
            .all(|step| line[*step].is_f64()),
        "{line}"
    );
}
