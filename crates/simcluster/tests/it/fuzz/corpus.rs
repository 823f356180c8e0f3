//! Inputs that are kept: a JSON text a line, or bytes in base64 where they are no text.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Longer inputs say nothing new.
const KEPT_BYTES_MAX: usize = 4096;

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/fuzz/corpus");
    folder.join(format!("{name}.jsonl"))
}

pub(super) fn read(name: &str) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{}: {error}", file(name).display()));
    text.lines().map(decoded).collect()
}

fn decoded(line: &str) -> Vec<u8> {
    match serde_json::from_str(line) {
        Ok(Value::String(text)) => text.into_bytes(),
        Ok(bytes) => STANDARD.decode(bytes["base64"].as_str().unwrap()).unwrap(),
        Err(error) => panic!("{line}: {error}"),
    }
}

pub(super) fn add(name: &str, inputs: &[Vec<u8>]) {
    let mut file = fs::OpenOptions::new().append(true).open(file(name)).unwrap();
    for input in inputs.iter().filter(|input| input.len() <= KEPT_BYTES_MAX) {
        let line = match std::str::from_utf8(input) {
            Ok(text) => json!(text),
            Err(_) => json!({"base64": STANDARD.encode(input)}),
        };
        writeln!(file, "{line}").unwrap();
    }
}
