//! Programs of this workspace, built and found, for what must run as a process of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    #[error("cannot run cargo to build {package}: {error}")]
    Cargo { package: String, error: io::Error },
    #[error("{package} does not build; cargo says why")]
    Build { package: String },
    #[error("package {package} has no program of its own name")]
    Missing { package: String },
}

/// Builds a package as its users do, in a profile (`dev`, `release`), if need be. The path of its program.
pub fn binary(package: &str, profile: &str) -> Result<PathBuf, BinaryError> {
    built(package, &["--package", package, "--profile", profile])
}

/// The same for a test, from what `cargo test --workspace` has compiled already: a test named beside the program makes
/// cargo choose the features of dependencies as it does there; otherwise everything would be compiled once more.
pub fn binary_for_test(package: &str) -> Result<PathBuf, BinaryError> {
    built(package, &["--workspace", "--bin", package, "--test", "kit"])
}

/// Cargo as a person calls it. What cargo tells the programs that it runs about their package would be taken by build scripts
/// below for a change, and half of the dependencies would be compiled once more.
pub fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    for (name, _) in std::env::vars_os() {
        let told = |prefix: &str| name.to_string_lossy().starts_with(prefix);
        if told("CARGO_MANIFEST_") || told("CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    command
}

fn built(package: &str, what: &[&str]) -> Result<PathBuf, BinaryError> {
    let output = cargo()
        .args(["build", "--quiet", "--message-format", "json-render-diagnostics"])
        .args(what)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| BinaryError::Cargo {
            package: package.to_owned(),
            error,
        })?;
    if !output.status.success() {
        return Err(BinaryError::Build {
            package: package.to_owned(),
        });
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs = messages.lines().filter_map(|line| program_in(line, package));
    programs.next_back().ok_or_else(|| BinaryError::Missing {
        package: package.to_owned(),
    })
}

/// The program that one of cargo's messages tells of.
fn program_in(line: &str, name: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = message["executable"].as_str()?;
    (message["target"]["name"] == name).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test itself is told, as cargo runs it.
    #[test]
    fn cargo_is_told_nothing_about_a_package() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = cargo();
        let mut changes = command.get_envs();
        assert!(changes.any(|change| change == ("CARGO_MANIFEST_DIR".as_ref(), None)));
    }

    #[test]
    fn the_program_is_found_among_the_messages() {
        let other = r#"{"reason":"compiler-artifact","target":{"name":"serde"},"executable":null}"#;
        let ours = r#"{"reason":"compiler-artifact","target":{"name":"grove"},"executable":"/t/grove"}"#;
        assert_eq!(program_in(other, "grove"), None);
        assert_eq!(program_in(ours, "grove"), Some(PathBuf::from("/t/grove")));
        assert_eq!(program_in("not JSON", "grove"), None);
    }
}
