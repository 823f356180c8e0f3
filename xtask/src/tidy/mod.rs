//! `cargo xtask tidy`: the rules of the architecture that no compiler checks.
//!
//! Each rule is a function from what is in the repository to findings; the texts of the rules are ARCHITECTURE.md's.

mod crates;
mod documents;
mod sources;

use anyhow::{Result, ensure};

use crate::files::tracked_files;

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
