//! The files of the repository, for chores that read them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::root;

/// A text file of the repository.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|own| own == extension)
    }

    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// Text files that are committed or about to be; paths are relative to the root.
pub(crate) fn tracked_files() -> Result<Vec<File>> {
    let read = |path: PathBuf| -> Option<File> {
        // A deleted file is still listed, and a picture is no text: neither can break a rule.
        let text = fs::read_to_string(root().join(&path)).ok()?;
        Some(File { path, text })
    };
    Ok(tracked_paths()?.into_iter().filter_map(read).collect())
}

/// Where all files are that are committed or about to be, or were until now; relative to the root.
pub(crate) fn tracked_paths() -> Result<Vec<PathBuf>> {
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
    let path = |path: &[u8]| Some(Path::new(std::str::from_utf8(path).ok()?).to_owned());
    Ok(paths.filter_map(path).collect())
}
