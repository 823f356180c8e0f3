//! The programs of the control plane: which they are, where they lie, how they are built.
//!
//! The versions are pinned by `kit/go.mod` and `kit/go.sum` and nowhere else. A build lands in the user's cache in a
//! folder named after everything that went into it, so a change of a pin is a new kit and two checkouts share one.
//! Each program is written beside its place and renamed, under a lock: whoever sees a program sees all of it.
//! Old kits are not removed; they are a cache, and `rm -r` is safe.

mod recipe;

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::time::Instant;

use recipe::{GO_FLAGS, Recipe};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kit");

/// kwok's own description of nodes that become ready at once and pods that run as soon as they are bound.
const STAGES: &str = "stages.yaml";
const STAGES_MODULE: &str = "sigs.k8s.io/kwok";
const STAGES_FILES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

/// A program of the kit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubectl,
    Kwok,
    Helm,
}

impl Program {
    /// Everything that a control plane needs. Helm is apart: few tests need it, and it takes a minute to build.
    pub const CONTROL_PLANE: [Self; 6] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubectl,
        Self::Kwok,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kwok => "kwok",
            Self::Helm => "helm",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Self::Helm => "helm.sh/helm/v3/cmd/helm",
        }
    }
}

/// Why there is no kit.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    #[error("no cache directory: set HOME or XDG_CACHE_HOME to an absolute path")]
    NoCache,
    #[error("Go is not installed: the kit needs Go {needed} or newer on the PATH (https://go.dev/dl)")]
    NoGo { needed: String },
    #[error("{found} is too old: the kit needs Go {needed} or newer on the PATH (https://go.dev/dl)")]
    OldGo { found: String, needed: String },
    #[error("kit/go.mod has no line `{0} <version>`")]
    NoPin(&'static str),
    #[error("`go build` of {program} failed ({status}); its messages are above")]
    Build { program: &'static str, status: ExitStatus },
    #[error("`go list` could not find {STAGES_MODULE}: {0}")]
    Stages(String),
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
}

/// The built programs of the control plane.
#[derive(Clone, Debug)]
pub struct Kit {
    dir: PathBuf,
    recipe: Recipe,
}

impl Kit {
    /// Finds the control plane's programs and builds what is missing: minutes the first time, nothing afterwards.
    /// Progress goes to stderr.
    pub fn ready() -> Result<Self, KitError> {
        let recipe = Recipe::read(Path::new(SOURCES))?;
        let kit = Self {
            dir: cache_dir()?.join("kit").join(&recipe.hash),
            recipe,
        };
        kit.build(&Program::CONTROL_PLANE)?;
        Ok(kit)
    }

    /// The folder that holds the programs, fit for a `PATH`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where `program` is; [`Program::Helm`] is there only after [`Kit::helm`].
    pub fn path(&self, program: Program) -> PathBuf {
        self.dir.join(program.name())
    }

    /// Finds helm, or builds it.
    pub fn helm(&self) -> Result<PathBuf, KitError> {
        self.build(&[Program::Helm])?;
        Ok(self.path(Program::Helm))
    }

    /// The version of Kubernetes that the pins name, as `v1.2.3`.
    pub fn kubernetes_version(&self) -> &str {
        &self.recipe.kubernetes
    }

    pub(crate) fn stages(&self) -> PathBuf {
        self.dir.join(STAGES)
    }

    fn has(&self, programs: &[Program]) -> bool {
        programs.iter().all(|program| self.path(*program).exists()) && self.stages().exists()
    }

    fn build(&self, programs: &[Program]) -> Result<(), KitError> {
        if self.has(programs) {
            return Ok(());
        }
        fs::create_dir_all(&self.dir).map_err(at(&self.dir))?;
        // Held until the end of the function, and by the kernel's care not longer than this process.
        let _lock = self.lock()?;
        self.recipe.check_go()?;
        for (index, program) in programs.iter().enumerate() {
            if self.path(*program).exists() {
                continue;
            }
            say(&format!(
                "building {} ({} of {}) …",
                program.name(),
                index + 1,
                programs.len()
            ));
            let begun = Instant::now();
            self.build_one(*program)?;
            say(&format!("built {} in {} s", program.name(), begun.elapsed().as_secs()));
        }
        self.write_stages()
    }

    fn lock(&self) -> Result<File, KitError> {
        let path = self.dir.join(".lock");
        let lock = File::create(&path).map_err(at(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                say("another process is building the kit; waiting for it …");
                lock.lock().map_err(at(&path))?;
            }
            Err(TryLockError::Error(error)) => return Err(KitError::File { path, error }),
        }
        Ok(lock)
    }

    fn build_one(&self, program: Program) -> Result<(), KitError> {
        // Fixed, because only the holder of the lock writes it; the rest of a build that was killed is overwritten.
        let partial = self.dir.join(format!(".{}.partial", program.name()));
        let status = self
            .recipe
            .go("build")
            .args(GO_FLAGS)
            .args(["-ldflags", &self.recipe.ldflags, "-o"])
            .args([partial.as_os_str(), program.package().as_ref()])
            .status()
            .map_err(|_| self.recipe.no_go())?;
        if !status.success() {
            return Err(KitError::Build {
                program: program.name(),
                status,
            });
        }
        let place = self.path(program);
        fs::rename(&partial, &place).map_err(at(&place))
    }

    fn write_stages(&self) -> Result<(), KitError> {
        let listing = self
            .recipe
            .go("list")
            .args(["-mod=readonly", "-m", "-f", "{{.Dir}}", STAGES_MODULE])
            .output();
        let listing = listing.map_err(|_| self.recipe.no_go())?;
        let module = stdout(&listing)
            .ok_or_else(|| KitError::Stages(String::from_utf8_lossy(&listing.stderr).trim().to_owned()))?;
        let folder = Path::new(&module).join("kustomize/stage");
        let mut stages = String::new();
        for file in STAGES_FILES {
            let path = folder.join(file);
            stages.push_str(&fs::read_to_string(&path).map_err(at(&path))?);
            stages.push_str("\n---\n");
        }
        let (partial, place) = (self.dir.join(".stages.partial"), self.stages());
        fs::write(&partial, stages).map_err(at(&partial))?;
        fs::rename(&partial, &place).map_err(at(&place))
    }
}

/// Where Grove keeps what can be made again: `$XDG_CACHE_HOME/grove`, else `~/.cache/grove`.
pub fn cache_dir() -> Result<PathBuf, KitError> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("grove"))
        .ok_or(KitError::NoCache)
}

fn stdout(output: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> KitError {
    let path = path.to_owned();
    |error| KitError::File { path, error }
}

/// Not `eprintln!`, which the test harness swallows: a test that builds for minutes must say so.
fn say(line: &str) {
    // Progress is a courtesy; a closed stderr must not stop a build.
    let _ = writeln!(io::stderr(), "kit: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_pinned() {
        let go_mod = fs::read_to_string(Path::new(SOURCES).join("go.mod")).unwrap();
        for program in Program::CONTROL_PLANE.into_iter().chain([Program::Helm]) {
            let tool = program.package();
            assert!(
                go_mod.lines().any(|line| line.trim() == tool),
                "{tool} is not a tool of kit/go.mod"
            );
        }
    }
}
