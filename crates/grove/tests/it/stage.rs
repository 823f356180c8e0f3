//! What the commands that ask a cluster print, on any cluster: the same objects, the same screens. The embedded cluster
//! and a real one are compared with the same files (`crates/grove/tests/snapshots`).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use grove_api::PodGang;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::ChildStdout;

/// Blocks, racks and feeds of the nodes that must be there. Some have no feed, and one has no rack.
pub(crate) const NODES: [(&str, &[(&str, &str)]); 4] = [
    ("n1", &[(BLOCK, "b1"), (RACK, "r1"), (FEED, "f1")]),
    ("n2", &[(BLOCK, "b1"), (RACK, "r2"), (FEED, "f1")]),
    ("n3", &[(BLOCK, "b2"), (RACK, "r3")]),
    ("n4", &[(BLOCK, "b2")]),
];
const BLOCK: &str = "example.com/block";
const RACK: &str = "example.com/rack";
const FEED: &str = "example.com/feed";
/// What each node has.
pub(crate) const CAPACITY: [(&str, &str); 4] = [
    ("cpu", "32"),
    ("memory", "64Gi"),
    ("pods", "50"),
    ("nvidia.com/gpu", "8"),
];

/// An answer of a command that goes on, on a machine that compiles meanwhile.
const FOLLOW_MAX: Duration = Duration::from_secs(60);

/// Screens by the name of their file, each with the commands that are typed.
const SCREENS: [(&str, &[&str]); 5] = [
    (
        "status",
        &[
            "status",
            "status llama",
            "status train",
            "status -n default",
            "status -A",
            "status -A -o json",
            "status llama -o yaml",
            "status --context elsewhere",
            "status -n nothing-here",
        ],
    ),
    (
        "explain",
        &[
            "explain pcs llama",
            "explain pcs llama --deep",
            "explain pcs train",
            "explain pg llama-0 -o json",
            "explain pg train-0 -o yaml",
            "explain pcs fresh --context elsewhere",
        ],
    ),
    (
        "topology",
        &[
            "topology list",
            "topology list -o json",
            "topology tree",
            "topology tree power",
            "topology tree --depth block -o json",
            "topology usage",
            "topology usage -o json",
            "topology check",
            "topology check --strict",
            "topology check -o json",
            "topology discover",
            "topology discover --name found -o json",
        ],
    ),
    (
        "errors",
        &[
            "status lama",
            "status nothing-like-it",
            "explain pcs trian",
            "explain pg llama-1",
            "topology tree pwer",
            "topology tree --depth row",
            "status --context elsewere",
            "status --context nothing-like-it",
        ],
    ),
    ("cleanup", &["cleanup -n default", "cleanup -n default"]),
];

/// Creates the objects, with their status.
pub(crate) async fn furnish(client: &Client) -> Result<()> {
    for object in serde_saphyr::from_multiple::<DynamicObject>(include_str!("../data/screens.yaml"))? {
        let types = object.types.clone().context("an object says its kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api = match object.metadata.namespace.as_deref() {
            Some(namespace) => Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let name = object.metadata.name.clone().context("an object has a name")?;
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| name.clone())?;
        if let Some(status) = object.data.get("status") {
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(&name, &PatchParams::default(), &patch)
                .await
                .with_context(|| name.clone())?;
        }
    }
    Ok(())
}

/// The program, and the cluster that it is to look at.
pub(crate) struct Stage {
    program: PathBuf,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Stage {
    /// Its kubeconfig has two contexts: the current one is at home where the sets are.
    pub(crate) fn new(program: &Path, kubeconfig: &str) -> Result<Self> {
        let mut config: Value = serde_saphyr::from_str(kubeconfig)?;
        config["current-context"] = json!("home");
        config["contexts"][0]["name"] = json!("home");
        let mut elsewhere = config["contexts"][0].clone();
        elsewhere["name"] = json!("elsewhere");
        let contexts = config["contexts"].as_array_mut().context("a kubeconfig has contexts")?;
        contexts[0]["context"]["namespace"] = json!("models");
        contexts.push(elsewhere);
        let folder = TempDir::new()?;
        let path = folder.path().join("kubeconfig");
        fs::write(&path, config.to_string())?;
        Ok(Self {
            program: program.to_owned(),
            kubeconfig: path,
            _folder: folder,
        })
    }

    /// Types every command, and compares what is seen with what was kept.
    pub(crate) async fn compare(&self) -> Result<()> {
        for (name, commands) in SCREENS {
            let mut screens = String::new();
            for command in commands {
                screens += &self.screen(command).await?;
            }
            matches(name, &screens);
        }
        Ok(())
    }

    /// What a command that goes on prints: what there is, and again when something changes.
    pub(crate) async fn compare_followed(&self, client: &Client) -> Result<()> {
        let mut screens = String::new();
        let gangs = Api::<PodGang>::namespaced(client.clone(), "models");
        let commands = [
            "status --watch",
            "status train -o json --watch",
            "explain pg train-0 --watch",
        ];
        for (round, command) in commands.into_iter().enumerate() {
            let mut program = self.command(command);
            let mut child = program.stdout(std::process::Stdio::piped()).spawn()?;
            let mut lines = BufReader::new(child.stdout.take().context("it has an output")?).lines();
            writeln!(screens, "$ grove {command}")?;
            answer(&mut lines, &mut screens).await?;
            let reason = ["Queued", "Preempting", "Queued"][round];
            let patch = Patch::Merge(json!({"status": {"pending": {"reason": reason}}}));
            gangs.patch_status("train-0", &PatchParams::default(), &patch).await?;
            answer(&mut lines, &mut screens).await?;
            child.kill().await?;
        }
        matches("watch", &lasting(&screens)?);
        Ok(())
    }

    fn command(&self, command: &str) -> tokio::process::Command {
        let mut program = tokio::process::Command::new(&self.program);
        program
            .env_clear()
            .env("HOME", "/nonexistent")
            .env("KUBECONFIG", &self.kubeconfig)
            .args(command.split(' '))
            .kill_on_drop(true);
        program
    }

    /// What is seen when a command is typed, without what differs from day to day and from cluster to cluster.
    pub(crate) async fn screen(&self, command: &str) -> Result<String> {
        let output = self.command(command).output().await?;
        let mut seen = format!("$ grove {command}\n{}", String::from_utf8(output.stdout)?);
        for line in String::from_utf8(output.stderr)?.lines() {
            writeln!(seen, "! {line}")?;
        }
        writeln!(
            seen,
            "(exit code {})\n",
            output.status.code().context("it ended by itself")?
        )?;
        lasting(&seen)
    }
}

/// Adds one answer: a line of JSON, or a table up to the empty line after it.
async fn answer(lines: &mut Lines<BufReader<ChildStdout>>, screens: &mut String) -> Result<()> {
    let next = async {
        loop {
            let line = lines.next_line().await?.context("it goes on")?;
            writeln!(screens, "{line}")?;
            // Tables of `explain` have paragraphs; here there is one gang.
            if line.is_empty() || line.starts_with('{') {
                return anyhow::Ok(());
            }
        }
    };
    tokio::time::timeout(FOLLOW_MAX, next).await?
}

/// A text in which times and ages are words.
pub(crate) fn lasting(text: &str) -> Result<String> {
    let replaced = [
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"(RUNNING|PENDING|Pending) \d+[smhd]\d*[smh]?", "$1 AGE"),
        (r"https?://127\.0\.0\.1:\d+/?", "ADDRESS"),
        (r"(/[\w.-]+)+\.kubeconfig", "KUBECONFIG"),
    ];
    replaced.into_iter().try_fold(text.to_owned(), |text, (pattern, word)| {
        Ok(Regex::new(pattern)?.replace_all(&text, word).into_owned())
    })
}

/// Compares with the file of this name. `INSTA_UPDATE=always` writes the files anew.
pub(crate) fn matches(name: &str, screens: &str) {
    let mut settings = insta::Settings::clone_current();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own.ancestors().find(|folder| folder.join("crates").is_dir());
    let root = root.expect("a package lies in the repository");
    settings.set_snapshot_path(root.join("crates/grove/tests/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, screens));
}
