//! The table of rules and the tests that show them: `docs/traceability.md`, made from the lists in `docs/traceability/`
//! and from markers in tests.
//!
//! A marker is a comment right above a test, `// shows: V3-12, G244-7`, or above a case of a table of cases,
//! `# shows: …`. A rule that no test shows, and a marker that names no rule, are findings; so nobody can drop a test, or
//! a rule, without being seen. A list, or a part of one, may say that what it speaks of is not in the product yet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::files::File;

/// Folders of files that are tests without saying so: each function is run by a test on every kind of cluster.
const SCENARIOS: &str = "crates/scenarios/src/";
/// How far below its marker a test begins at most: attributes and a sentence about it.
const REACH: usize = 12;
const HEADER: &str = "<!-- Written by `cargo xtask gen` from docs/traceability and the tests; do not edit. -->\n";
const INTRODUCTION: &str = "# Rules and the tests that show them\n\n\
    Every rule that the design documents state, in our words, and the tests that fail when it does not hold. The lists are\n\
    in [traceability](traceability); a test says what it shows in a comment above it. Newer documents govern: where one\n\
    contradicts an older one, the older rule is kept as a setting and shown under it.\n";

/// The rules of one document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    id: String,
    title: String,
    /// Why none of it can be shown yet.
    absent: Option<String>,
    sections: Vec<Section>,
}

/// The rules under one heading of a document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    heading: String,
    /// Why none of these can be shown yet.
    absent: Option<String>,
    rules: BTreeMap<u32, String>,
}

/// Something that shows a rule, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Proof {
    name: String,
    path: String,
}

/// The table, and what is wrong with it.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) text: String,
    pub(crate) findings: Vec<String>,
}

/// Makes the table from all files of the repository.
pub(crate) fn table(files: &[File]) -> Result<Table> {
    let mut findings = Vec::new();
    let mut proofs: BTreeMap<String, BTreeSet<Proof>> = BTreeMap::new();
    for file in files {
        for marker in markers(file) {
            match marker {
                Ok((rules, proof)) => rules.into_iter().for_each(|rule| {
                    proofs.entry(rule).or_default().insert(proof.clone());
                }),
                Err(finding) => findings.push(finding),
            }
        }
    }
    let documents = documents(files)?;
    let text = write(&documents, &proofs, &mut findings);
    let known: BTreeSet<String> = documents.iter().flat_map(ids).collect();
    for (rule, proofs) in proofs.iter().filter(|(rule, _)| !known.contains(*rule)) {
        let proof = proofs.first().map(|proof| format!("{}: {}", proof.path, proof.name));
        findings.push(format!(
            "{} shows {rule}, but docs/traceability has no such rule",
            proof.unwrap_or_default()
        ));
    }
    Ok(Table { text, findings })
}

/// All lists, the newest document first.
fn documents(files: &[File]) -> Result<Vec<Document>> {
    let lists = files
        .iter()
        .filter(|file| file.shown().starts_with("docs/traceability/") && file.has_extension("yaml"));
    let mut documents = Vec::new();
    for file in lists {
        let document: Document = serde_saphyr::from_str(&file.text).with_context(|| file.shown())?;
        documents.push(document);
    }
    let order = ["G244", "V3", "V2", "V1"];
    let place = |document: &Document| order.iter().position(|id| *id == document.id).unwrap_or(order.len());
    documents.sort_by_key(place);
    Ok(documents)
}

fn ids(document: &Document) -> impl Iterator<Item = String> {
    let numbers = document.sections.iter().flat_map(|section| section.rules.keys());
    numbers.map(|number| format!("{}-{number}", document.id))
}

/// What the markers of a file say: rules and what shows them, or what is wrong with the marker.
fn markers(file: &File) -> Vec<Result<(Vec<String>, Proof), String>> {
    let sign = match (file.has_extension("rs"), file.has_extension("yaml")) {
        (true, _) => "// shows: ",
        (_, true) => "# shows: ",
        _ => return Vec::new(),
    };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let marker = |(index, line): (usize, &&str)| {
        let rules = line.strip_prefix(sign)?;
        let rules = rules.split(',').map(|rule| rule.trim().to_owned()).collect();
        let below = &lines[index + 1..lines.len().min(index + 1 + REACH)];
        let found = if sign.starts_with('/') {
            test_name(below, file.shown().starts_with(SCENARIOS))
        } else {
            case_name(below)
        };
        let place = || format!("{}:{}: no test begins right below this marker", file.shown(), index + 1);
        Some(found.ok_or_else(place).map(|name| {
            let path = file.shown();
            (rules, Proof { name, path })
        }))
    };
    lines.iter().enumerate().filter_map(marker).collect()
}

/// The first function, if it is a test.
fn test_name(lines: &[&str], is_scenario: bool) -> Option<String> {
    let mut is_test = is_scenario;
    for line in lines {
        is_test |= line.starts_with("#[") && line.contains("test");
        if let Some((before, after)) = line.split_once("fn ")
            && ["", "async ", "pub ", "pub async "].contains(&before)
        {
            let name = after.split(['(', '<']).next()?;
            return is_test.then(|| name.to_owned());
        }
    }
    None
}

/// The first case of a table of cases.
fn case_name(lines: &[&str]) -> Option<String> {
    let line = lines.iter().find(|line| line.starts_with("- "))?;
    let (_, rule) = line.split_once("rule: ")?;
    Some(
        rule.split(", kind:")
            .next()
            .unwrap_or(rule)
            .trim_matches('"')
            .to_owned(),
    )
}

fn write(documents: &[Document], proofs: &BTreeMap<String, BTreeSet<Proof>>, findings: &mut Vec<String>) -> String {
    let mut text = format!("{HEADER}{INTRODUCTION}");
    for document in documents {
        let _ = write!(text, "\n## {}: {}\n", document.id, document.title);
        for section in &document.sections {
            let _ = write!(
                text,
                "\n### {}\n\n| rule | says | shown by |\n|---|---|---|\n",
                section.heading
            );
            let absent = section.absent.as_ref().or(document.absent.as_ref());
            for (number, says) in &section.rules {
                let id = format!("{}-{number}", document.id);
                let shown = match (proofs.get(&id), absent) {
                    (Some(proofs), _) => proofs.iter().map(link).collect::<Vec<_>>().join("<br>"),
                    (None, Some(why)) => format!("not yet: {why}"),
                    (None, None) => {
                        findings.push(format!("{id} is shown by no test: {says}"));
                        "**nothing**".to_owned()
                    }
                };
                let _ = writeln!(text, "| {id} | {} | {shown} |", says.replace('|', "\\|"));
            }
        }
    }
    text
}

fn link(proof: &Proof) -> String {
    format!("[{}](../{})", proof.name.replace('_', "\\_"), proof.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "id: A\ntitle: t\nsections:\n- heading: h\n  rules:\n    1: One.\n    2: Two.\n\
                        - heading: later\n  absent: it comes with x\n  rules:\n    3: Three.\n";

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.to_owned(),
        }
    }

    fn made(rust: &str, cases: &str) -> Table {
        let list = file("docs/traceability/a.yaml", LIST);
        table(&[list, file("x.rs", rust), file("y.yaml", cases)]).expect("the list can be read")
    }

    #[test]
    fn tests_and_cases_that_show_a_rule_are_listed_with_it() {
        let rust = "// shows: A-1\n/// Why.\n#[tokio::test(start_paused = true)]\nasync fn one_holds() {}\n";
        let made = made(rust, "# shows: A-1, A-2\n- { rule: a key stands once, kind: X }\n");
        assert_eq!(made.findings, Vec::<String>::new());
        let row = "| A-1 | One. | [a key stands once](../y.yaml)<br>[one\\_holds](../x.rs) |";
        assert!(made.text.contains(row), "{}", made.text);
        assert!(
            made.text.contains("| A-3 | Three. | not yet: it comes with x |"),
            "{}",
            made.text
        );
    }

    #[test]
    fn a_rule_without_a_test_and_a_marker_without_a_rule_are_found() {
        let made = made("// shows: A-1, A-9\n#[test]\nfn one() {}\n", "");
        assert_eq!(
            made.findings,
            [
                "A-2 is shown by no test: Two.",
                "x.rs: one shows A-9, but docs/traceability has no such rule"
            ]
        );
    }

    #[test]
    fn a_marker_that_stands_above_no_test_is_found() {
        let made = made("// shows: A-1\nfn helper() {}\n", "# shows: A-2\n");
        assert_eq!(made.findings[0], "x.rs:1: no test begins right below this marker");
        assert_eq!(made.findings[1], "y.yaml:1: no test begins right below this marker");
    }
}
