//! One session: commands in a row, what they print, and where two clusters differ in it.
//!
//! A step is a command line without `kubectl` (a list where a word has spaces), with
//!   stdin   what it reads from `-f -`
//!   editor  how `edit` changes what it shows: an expression of sed
//!   watch   it runs on until it prints a line that begins with this; of its lines only the set counts
//!   save    what it prints is also the value of `${name}` in later steps
//!   until   it is repeated until it prints this: a part of the real cluster follows the others at a distance
//!   beyond  lines that begin with one of these words are the real cluster's alone: kinds that the other does not serve

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use grove_e2e::eventually;
use regex::Regex;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// No command of a session takes longer on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    pub(crate) program: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) cache: PathBuf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Session {
    #[serde(rename = "session")]
    pub(crate) name: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    run: Words,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    editor: String,
    #[serde(default)]
    watch: Option<String>,
    #[serde(default)]
    save: Option<String>,
    #[serde(default)]
    until: String,
    #[serde(default)]
    beyond: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Words {
    Line(String),
    List(Vec<String>),
}

impl Words {
    /// The same on both clusters, whatever values variables have.
    fn shown(&self) -> String {
        match self {
            Words::Line(line) => line.clone(),
            Words::List(words) => words.join(" "),
        }
    }

    fn all(&self, variables: &BTreeMap<String, String>) -> Vec<String> {
        let words: Vec<String> = match self {
            Words::Line(line) => line.split_whitespace().map(str::to_owned).collect(),
            Words::List(words) => words.clone(),
        };
        words.iter().map(|word| filled(word, variables)).collect()
    }
}

/// A text with the values of its variables.
fn filled(text: &str, variables: &BTreeMap<String, String>) -> String {
    variables.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("${{{name}}}"), value)
    })
}

/// What one command said, normalised.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    command: String,
    lines: Vec<String>,
    /// With which words the lines begin that only the real cluster has.
    beyond: Vec<String>,
}

impl Said {
    fn is_beyond(&self, line: &str) -> bool {
        let word = line.split_whitespace().next().unwrap_or_default();
        self.beyond.iter().any(|beyond| beyond == word)
    }
}

impl Session {
    pub(crate) async fn run(&self, kubectl: &Kubectl, namespace: &str) -> Result<Vec<Said>> {
        kubectl.prepare(&["create", "namespace", namespace]).await?;
        for furnished in ["serviceaccount/default", "configmap/kube-root-ca.crt"] {
            kubectl
                .prepare(&["wait", "--for=create", furnished, "--namespace", namespace])
                .await?;
        }
        let mut variables = BTreeMap::from([("ns".to_owned(), namespace.to_owned())]);
        let mut said = Vec::new();
        let mut watches = Vec::new();
        for step in &self.steps {
            let words = step.run.all(&variables);
            let command = words.join(" ");
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            words.extend(["--namespace", namespace]);
            if let Some(last) = &step.watch {
                watches.push((command, last, kubectl.watch(&words).await?));
                continue;
            }
            let stdin = filled(&step.stdin, &variables);
            let until = filled(&step.until, &variables);
            let text = eventually(&command, LIMIT, async || -> Result<String> {
                let text = kubectl.run(&words, &stdin, &step.editor).await?;
                ensure!(text.contains(&until), "it does not say {until:?} but {text}");
                Ok(text)
            })
            .await?;
            if let Some(name) = &step.save {
                let printed = text.strip_suffix("exit code 0").unwrap_or_default();
                variables.insert(name.clone(), printed.trim().to_owned());
            }
            said.push(Said {
                command: step.run.shown(),
                lines: text.lines().map(normal).collect(),
                beyond: step.beyond.clone(),
            });
        }
        for (command, last, watch) in watches {
            said.push(Said {
                lines: watch.lines(last).await,
                command,
                beyond: Vec::new(),
            });
        }
        Ok(said)
    }
}

impl Kubectl {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(&self.cache)
            .args(words)
            // What it writes goes with its caches.
            .env("TMPDIR", self.cache.parent().unwrap_or(&self.cache))
            .env_remove("HTTPS_PROXY")
            .env_remove("https_proxy")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command that a session stands on.
    async fn prepare(&self, words: &[&str]) -> Result<()> {
        let said = self.run(words, "", "").await?;
        ensure!(said.ends_with("exit code 0"), "kubectl {}: {said}", words.join(" "));
        Ok(())
    }

    /// Runs to the end; what it printed, what it complained about, and how it ended.
    async fn run(&self, words: &[&str], stdin: &str, editor: &str) -> Result<String> {
        let mut command = self.command(words);
        command.env("KUBE_EDITOR", format!("sed -i -e '{editor}'"));
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("kubectl has no input")?;
        input.write_all(stdin.as_bytes()).await?;
        drop(input);
        let output = timeout(LIMIT, child.wait_with_output())
            .await
            .context("it does not end")??;
        Ok(format!(
            "{}{}exit code {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            output.status.code().unwrap_or(-1)
        ))
    }

    /// Starts and comes back when the first line is there: from then on nothing is missed.
    async fn watch(&self, words: &[&str]) -> Result<Watch> {
        let mut child = self.command(words).stdin(Stdio::null()).spawn()?;
        let stdout = child.stdout.take().context("kubectl has no output")?;
        let mut watch = Watch {
            _child: child,
            stdout: BufReader::new(stdout),
            lines: Vec::new(),
        };
        watch.read("").await;
        Ok(watch)
    }
}

struct Watch {
    /// Killed when it is dropped.
    _child: Child,
    stdout: BufReader<ChildStdout>,
    lines: Vec<String>,
}

impl Watch {
    /// Reads on to a line that begins with this.
    async fn read(&mut self, last: &str) {
        let all = async {
            let mut line = String::new();
            while let Ok(1..) = self.stdout.read_line(&mut line).await {
                let is_last = line.starts_with(last);
                self.lines.push(normal(line.trim_end()));
                if is_last {
                    break;
                }
                line.clear();
            }
        };
        // A line that never comes is a difference that the comparison shows.
        let _ = timeout(LIMIT, all).await;
    }

    async fn lines(mut self, last: &str) -> Vec<String> {
        self.read(last).await;
        self.lines.sort();
        self.lines
    }
}

fn normal(line: &str) -> String {
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let patterns = [
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
            (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
            (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "<token>"),
            (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}", "<time>"),
            (r"\S*/(LIVE|MERGED)-\d+", "$1"),
            (r"https://127\.0\.0\.1:\d+", "<server>"),
            (r"10\.\d+\.\d+\.\d+", "<ip>"),
            (r#"(resourceVersion"?: ?"?|Resource Version: +)\d+"#, "$1<rv>"),
            (r"\S*kubectl-edit-\d+", "<copy>"),
            (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<5>"),
            (r"\b(\d+[smhd]){1,2}( ago)?$", "<age>"),
            (r"(\s)(\d+[smhd]){1,2}(\s)", "$1<age>$3"),
            (r"(\S) {2,}", "$1  "),
        ];
        let compiled = patterns.map(|(pattern, word)| (Regex::new(pattern).expect("a constant pattern"), word));
        compiled.into()
    });
    let replaced = PATTERNS.iter().fold(line.to_owned(), |line, (pattern, word)| {
        pattern.replace_all(&line, *word).into_owned()
    });
    replaced.trim_end().to_owned()
}

/// Empty if both said the same.
pub(crate) fn differences(real: &[Said], embedded: &[Said]) -> String {
    let mut report = String::new();
    for (real, embedded) in real.iter().zip(embedded).filter(|(real, embedded)| real != embedded) {
        let mut lines = String::new();
        for (mark, these, those) in [("real    ", real, embedded), ("embedded", embedded, real)] {
            // Definitions of other sessions come and go.
            let is_excused = |line: &str| !real.beyond.is_empty() && (real.is_beyond(line) || line.contains(".test"));
            let missing = these.lines.iter().filter(|line| !those.lines.contains(line));
            for line in missing.filter(|line| !is_excused(line)) {
                let _ = writeln!(lines, "    {mark} | {line}");
            }
        }
        if !lines.is_empty() || real.beyond.is_empty() {
            let _ = write!(report, "  kubectl {}\n{lines}", real.command);
        }
    }
    report
}
