//! Converts graphs made at random there and back, as many as asked for:
//! `cargo run --release -p grove-dynamo --example convert_round_trip -- 100000`.

#[path = "../tests/it/generate.rs"]
mod generate;

use std::process::ExitCode;
use std::time::Instant;

use grove_dynamo::convert::convert;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

const VERSIONS: [&str; 2] = ["nvidia.com/v1alpha1", "nvidia.com/v1beta1"];

fn round_trips(name: &str, cases: u32, objects: impl Strategy<Value = Value>) -> Result<(), String> {
    let begin = Instant::now();
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&objects, |object| {
        let other = VERSIONS
            .into_iter()
            .find(|version| object["apiVersion"] != *version)
            .expect("two versions");
        let back = object["apiVersion"].as_str().expect("a version");
        let there = convert(&object, other).expect("well-formed");
        let returned = convert(&there, back).expect("well-formed");
        prop_assert_eq!(&returned, &object);
        if other == VERSIONS[1] {
            // What was stored comes back from a read, which fills in defaults.
            let stored = generate::read_from_storage(there);
            prop_assert_eq!(convert(&stored, back).expect("well-formed"), object);
        }
        Ok(())
    });
    outcome.map_err(|failure| format!("{name}: {failure}"))?;
    println!(
        "{name}: {cases} objects came back as they were, in {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let cases = asked.unwrap_or(100_000);
    let old = round_trips("v1alpha1", cases / 2, generate::old());
    // Nobody sees one without its defaults.
    let newer = generate::new().prop_map(generate::read_from_storage);
    match old.and_then(|()| round_trips("v1beta1", cases - cases / 2, newer)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
