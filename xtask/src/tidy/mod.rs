//! `cargo xtask tidy`: the rules of the architecture that no compiler checks.
//!
//! Each rule is a function from what is in the repository to findings; the texts of the rules are ARCHITECTURE.md's.

mod crates;
mod documents;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::root;

/// Something that breaks a rule, and where.
type Finding = String;

pub(crate) fn run() -> Result<()> {
    let files = tracked_files()?;
    let mut findings = crates::check()?;
    findings.extend(sources::check(&files));
    findings.extend(documents::check(&files));
    for finding in &findings {
        eprintln!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings", findings.len());
    Ok(())
}

/// A text file of the repository.
struct File {
    path: PathBuf,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }

    fn is_markdown(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "md")
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// Files that are committed or about to be; paths are relative to the root.
fn tracked_files() -> Result<Vec<File>> {
    let mut git = Command::new("git");
    git.current_dir(root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().context("cannot run git")?;
    ensure!(
        output.status.success(),
        "git ls-files failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let paths = output.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let read = |path: &[u8]| -> Option<File> {
        let path = Path::new(std::str::from_utf8(path).ok()?).to_owned();
        // A deleted file is still listed, and a picture is no text: neither can break a rule.
        let text = fs::read_to_string(root().join(&path)).ok()?;
        Some(File { path, text })
    };
    Ok(paths.filter_map(read).collect())
}
