//! What must not stand in source files.

use std::path::Path;

use super::Finding;
use crate::files::File;

/// Beyond this a file hides its seam.
const LINES_MAX: usize = 800;

/// Folders of crates, and parts of one, that decide and do nothing else.
const PURE: [&str; 10] = [
    "crates/api/src",
    "crates/topology/src",
    "crates/workload/src",
    "crates/placement/src",
    "crates/plancheck/src",
    "crates/kubeplace/src",
    "crates/dynamo/src/convert",
    "crates/dynamo/src/status",
    "crates/dynamo/src/translate",
    "crates/dynamo/src/validate",
];

/// Folders whose programs talk to people.
const SHELLS: [&str; 3] = ["crates/grove", "e2e", "xtask"];

/// In code that decides: text, and what to do instead.
const NOT_IN_PURE: [(&str, &str); 9] = [
    ("SystemTime::now", "take the time as an argument"),
    ("Instant::now", "take the time as an argument"),
    ("Timestamp::now", "take the time as an argument"),
    ("Zoned::now", "take the time as an argument"),
    ("std::env", "take the value as an argument"),
    ("std::fs", "take the content as an argument"),
    ("std::net::Tcp", "leave it to a shell"),
    ("std::process", "leave it to a shell"),
    ("std::thread::sleep", "return when to look again"),
];

/// In any Rust file.
const NOWHERE: [(&str, &str); 3] = [
    (concat!("#[", "ignore"), "a test runs or does not exist"),
    (concat!("TO", "DO"), "finish it, or write it down where it is planned"),
    (concat!("FIX", "ME"), "fix it"),
];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files
        .iter()
        .filter(|file| file.has_extension("rs"))
        .flat_map(check_file)
        .collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings: Vec<Finding> = forgotten_tests(&file.path).into_iter().collect();
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        findings.push(format!(
            "{}: {lines} lines; find a seam below {LINES_MAX}",
            file.shown()
        ));
    }
    let pure = is_below(&file.path, &PURE);
    let quiet = !is_below(&file.path, &SHELLS) && file.path.components().any(|part| part.as_os_str() == "src");
    for (number, line) in file.text.lines().enumerate() {
        let mut find = |rules: &[(&str, &str)]| {
            for (text, instead) in rules.iter().filter(|(text, _)| line.contains(text)) {
                findings.push(format!("{}:{}: no `{text}` here: {instead}", file.shown(), number + 1));
            }
        };
        find(&NOWHERE);
        if pure {
            find(&NOT_IN_PURE);
        }
        if quiet && !line.trim_start().starts_with("//") {
            find(&[
                ("println!", "only the binary talks to people"),
                ("eprintln!", "only the binary talks to people"),
            ]);
        }
    }
    findings
}

/// Binaries of tests that the unit tier runs. Another one would never run.
const TEST_BINARIES: [&str; 2] = ["it", "allocations"];

/// A binary of tests that no tier names.
fn forgotten_tests(path: &Path) -> Option<Finding> {
    let below = path.strip_prefix("crates").ok()?;
    let parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
    let name = match parts.as_slice() {
        [_, "tests", file] => file.strip_suffix(".rs")?,
        [_, "tests", folder, "main.rs"] => folder,
        _ => return None,
    };
    let is_run = TEST_BINARIES.contains(&name);
    (!is_run).then(|| format!("{}: no tier runs these tests; move them to `tests/it`", path.display()))
}

fn is_below(path: &Path, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        check(&[File {
            path: PathBuf::from(path),
            text: text.to_owned(),
        }])
    }

    #[test]
    fn a_clock_in_code_that_decides_is_found_with_its_line() {
        let found = findings("crates/api/src/x.rs", "fn f() {\n    let now = Instant::now();\n}\n");
        assert_eq!(
            found,
            ["crates/api/src/x.rs:2: no `Instant::now` here: take the time as an argument"]
        );
        assert!(findings("crates/scheduler/src/x.rs", "let now = Instant::now();").is_empty());
    }

    #[test]
    fn only_the_binary_talks() {
        assert_eq!(findings("crates/scheduler/src/x.rs", r#"println!("x");"#).len(), 1);
        assert!(findings("crates/grove/src/x.rs", r#"println!("x");"#).is_empty());
    }

    #[test]
    fn tests_that_no_tier_runs_are_found() {
        for forgotten in ["crates/api/tests/more.rs", "crates/api/tests/more/main.rs"] {
            assert_eq!(findings(forgotten, "").len(), 1, "{forgotten}");
        }
        for run in [
            "crates/api/tests/it/more.rs",
            "crates/api/tests/it/main.rs",
            "e2e/tests/more.rs",
        ] {
            assert!(findings(run, "").is_empty(), "{run}");
        }
    }

    #[test]
    fn long_files_and_left_over_work_are_found() {
        assert_eq!(findings("xtask/src/x.rs", &"\n".repeat(LINES_MAX + 1)).len(), 1);
        assert_eq!(findings("xtask/src/x.rs", concat!("// TO", "DO: later")).len(), 1);
    }
}
