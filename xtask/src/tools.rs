//! Programs that the chores need beside the Rust toolchain.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use grove_e2e::kit::cache_dir;

/// cargo-deny, pinned: a newer one may know new lints.
const DENY_VERSION: &str = "0.20.2";

/// The path of cargo-deny. It is compiled once into the user's cache directory, so a fresh clone finds it there.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    let root = cache_dir()?.join("tools").join(format!("cargo-deny-{DENY_VERSION}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        println!("compiling cargo-deny {DENY_VERSION}, once for this machine");
        let mut install = Command::new("cargo");
        install
            .args([
                "install",
                "--quiet",
                "--locked",
                "cargo-deny",
                "--version",
                DENY_VERSION,
                "--root",
            ])
            .arg(&root);
        // The workspace's own target directory must not be mixed with another package's build.
        install.env_remove("CARGO_TARGET_DIR");
        let status = install.status().context("cannot run cargo")?;
        ensure!(
            status.success(),
            "cargo-deny {DENY_VERSION} could not be installed: see above"
        );
    }
    Ok(program)
}
