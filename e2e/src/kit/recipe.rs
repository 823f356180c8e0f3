//! What goes into a build of the kit, read from `kit/go.mod` and `kit/go.sum`: all that may make two kits differ.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{KitError, at, stdout};

pub(super) const GO_FLAGS: [&str; 3] = ["-mod=readonly", "-trimpath", "-buildvcs=false"];

/// The pins, and what follows from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    sources: PathBuf,
    go: String,
    pub(super) kubernetes: String,
    pub(super) ldflags: String,
    pub(super) hash: String,
}

impl Recipe {
    pub(super) fn read(sources: &Path) -> Result<Self, KitError> {
        let read = |name: &str| {
            let path = sources.join(name);
            fs::read_to_string(&path).map_err(at(&path))
        };
        Self::new(sources, &read("go.mod")?, &read("go.sum")?)
    }

    fn new(sources: &Path, go_mod: &str, go_sum: &str) -> Result<Self, KitError> {
        let pin = |name| pin(go_mod, name).ok_or(KitError::NoPin(name));
        let (go, kubernetes) = (pin("go")?, pin("k8s.io/kubernetes")?);
        let ldflags = ldflags(&kubernetes);
        let hash = fingerprint(&[go_mod, go_sum, &ldflags, &GO_FLAGS.join(" ")]);
        Ok(Self {
            sources: sources.to_owned(),
            go,
            kubernetes,
            ldflags,
            hash,
        })
    }

    pub(super) fn go(&self, command: &str) -> Command {
        let mut go = Command::new("go");
        go.arg(command).current_dir(&self.sources);
        go
    }

    pub(super) fn no_go(&self) -> KitError {
        KitError::NoGo {
            needed: self.go.clone(),
        }
    }

    /// Asks for the version in the folder of `go.mod`, where a newer toolchain may be chosen by Go itself.
    pub(super) fn check_go(&self) -> Result<(), KitError> {
        let answer = self.go("env").arg("GOVERSION").output().map_err(|_| self.no_go())?;
        let found = stdout(&answer).ok_or_else(|| self.no_go())?;
        match (version(&found), version(&self.go)) {
            (Some(have), Some(need)) if have < need => Err(KitError::OldGo {
                found,
                needed: self.go.clone(),
            }),
            // A version that cannot be read (a build from source) is left to `go build` to judge.
            _ => Ok(()),
        }
    }
}

/// The programs ask their own version when they start, and a plain `go build` leaves it at `v0.0.0`.
fn ldflags(kubernetes: &str) -> String {
    let mut parts = kubernetes.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let package = "k8s.io/component-base/version";
    format!("-s -w -X {package}.gitVersion={kubernetes} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
}

/// The version that `go.mod` gives to a module, or to `go` itself.
fn pin(go_mod: &str, name: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next() == Some(name) {
            words.next().map(str::to_owned)
        } else {
            None
        }
    })
}

/// `go1.26.8` or `1.26.0` as numbers, for comparison.
fn version(text: &str) -> Option<Vec<u32>> {
    text.trim_start_matches("go")
        .split(['.', '-', ' '])
        .take(3)
        .map(|part| part.parse().ok())
        .collect()
}

/// FNV-1a. A name for a cache folder, not a protection: nobody gains by a collision.
fn fingerprint(parts: &[&str]) -> String {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO_MOD: &str = "module m\n\ngo 1.26.0\n\ntool (\n\tk8s.io/kubernetes/cmd/kubectl\n)\n\nrequire (\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n";

    fn recipe(go_mod: &str, go_sum: &str) -> Recipe {
        Recipe::new(Path::new("kit"), go_mod, go_sum).unwrap()
    }

    #[test]
    fn versions_come_from_go_mod() {
        let recipe = recipe(GO_MOD, "");
        assert_eq!(recipe.go, "1.26.0");
        assert_eq!(recipe.kubernetes, "v1.36.3");
        assert!(recipe.ldflags.contains("gitVersion=v1.36.3 "), "{}", recipe.ldflags);
        assert!(recipe.ldflags.ends_with("gitMinor=36"), "{}", recipe.ldflags);
    }

    #[test]
    fn a_missing_pin_is_named() {
        let error = Recipe::new(Path::new("kit"), "go 1.26.0\n", "").unwrap_err();
        assert_eq!(
            error.to_string(),
            "kit/go.mod has no line `k8s.io/kubernetes <version>`"
        );
    }

    #[test]
    fn every_input_changes_the_folder() {
        let base = recipe(GO_MOD, "sum").hash;
        assert_eq!(base, recipe(GO_MOD, "sum").hash);
        assert_ne!(base, recipe(GO_MOD, "other").hash);
        assert_ne!(base, recipe(&GO_MOD.replace("1.36.3", "1.36.4"), "sum").hash);
        assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
    }

    #[test]
    fn go_versions_compare_as_numbers() {
        assert!(version("go1.9.7") < version("1.26.0"));
        assert!(version("go1.26.8") > version("1.26.0"));
        assert!(version("go1.27") > version("1.26.0"));
        assert_eq!(version("devel +1234"), None);
    }
}
