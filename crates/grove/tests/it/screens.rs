//! What every command prints, beside what is kept of it. Those that ask a cluster ask the embedded one here, and a real one
//! in `e2e/tests/cli.rs`.

use std::path::Path;

use grove_simcluster::{Cluster, NodeSpec, User};
use regex::Regex;

use crate::cli::grove;
use crate::stage::{self, Stage, lasting, matches};
use crate::topology::install;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_ask_a_cluster_print_what_is_kept() {
    let node = |(name, labels): (&str, &[(&str, &str)])| {
        let node = stage::CAPACITY
            .iter()
            .fold(NodeSpec::new(name), |node, (resource, amount)| {
                node.capacity(resource, amount)
            });
        labels.iter().fold(node, |node, (key, value)| node.label(key, value))
    };
    let cluster = Cluster::builder()
        .nodes(stage::NODES.map(node))
        .start_time(jiff::Timestamp::now())
        .start();
    install(&cluster).await;
    stage::furnish(&cluster.client()).await.unwrap();
    cluster.server().trust_token("secret", User::admin());
    let listener = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_grove"));
    let stage = Stage::new(program, &listener.kubeconfig("secret")).unwrap();
    stage.compare().await.unwrap();
    stage.compare_followed(&cluster.client()).await.unwrap();
}

/// What is seen when a command is typed in the folder of the examples.
fn screen(command: &[&str]) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let output = grove().current_dir(examples).args(command).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    let code = output.status.code().unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    let complaint: String = complaint.lines().map(|line| format!("! {line}\n")).collect();
    lasting(&format!(
        "$ grove {}\n{seen}{complaint}(exit code {code})\n\n",
        command.join(" ")
    ))
    .unwrap()
}

fn screens(commands: &[&[&str]]) -> String {
    commands.iter().map(|command| screen(command)).collect()
}

#[test]
fn plans_are_shown_as_tables_and_for_programs() {
    let example = ["plan", "-f", "plan/cluster.yaml", "-f", "plan/workloads.yaml"];
    let as_json = [&example[..], &["-o", "json"]].concat();
    let as_yaml = [&example[..], &["-o", "yaml"]].concat();
    matches("plan", &screens(&[&example, &as_json, &as_yaml]));
}

/// Rules, commands and options are kept elsewhere: in the chart, and in `docs/reference/cli.md`.
#[test]
fn roles_manual_and_completion_are_printed() {
    let lines_of = |screen: String, is_kept: fn(&str) -> bool| -> String {
        let lines = screen.lines().filter(|line| is_kept(line));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let roles = screens(&[&["rbac"], &["rbac", "--dynamo", "-n", "here"]]);
    let is_head = |line: &str| line.starts_with(['$', '(']) || line.contains("kind: ") || line.contains("name");
    matches("rbac", &lines_of(roles, is_head));
    matches("man", &screen(&["man"]));
    let script = screen(&["completion", "fish"]);
    let is_of_status = |line: &str| line.starts_with(['$', '(']) || line.contains("using_subcommand status\"");
    matches("completion", &lines_of(script, is_of_status));
}

/// Numbers are of the day; what is measured, and what came of it, is not.
#[test]
fn measurements_have_these_lines() {
    let number = Regex::new(r"\d+(\.\d+)?").unwrap();
    let spaces = Regex::new(r" +").unwrap();
    let seen = screens(&[
        &["bench", "placement", "--nodes", "512"],
        &["bench", "plan", "--nodes", "40", "--sets", "5"],
        &["bench", "cases", "../crates/grove/tests/data/gang-cases"],
        &["bench", "trace", "../crates/grove/tests/data/trace"],
    ]);
    let seen = number.replace_all(&seen, "N");
    matches("bench", &spaces.replace_all(&seen, " "));
}

/// What is typed first by who knows nothing, and what programs say that are to run inside of a cluster.
#[test]
fn help_is_printed_and_programs_without_a_cluster_say_so() {
    matches(
        "help",
        &screens(&[&["--help"], &["bench", "--help"], &["topology", "--help"]]),
    );
    matches(
        "programs",
        &screens(&[
            &["scheduler", "--help"],
            &["scheduler", "--config", "plan/cluster.yaml"],
            &["wait-for", "--help"],
            &["wait-for", "--podcliques", "a-0-leader"],
            &["wait-for", "--podcliques", "a-0-leader:2"],
        ]),
    );
}

/// The definitions are kept in the chart; which there are is kept here.
#[test]
fn definitions_are_printed() {
    let seen = screen(&["crds"]);
    let is_head =
        |line: &&str| line.starts_with(['$', '(']) || line.starts_with("kind: ") || line.starts_with("  name: ");
    let heads: Vec<&str> = seen.lines().filter(is_head).collect();
    matches("crds", &heads.join("\n"));
}

#[test]
fn configurations_are_judged() {
    matches(
        "check",
        &screens(&[
            &[
                "operator",
                "--check",
                "--config",
                "../crates/grove/src/commands/demo/operator.yaml",
            ],
            &["operator", "--check", "--config", "plan/cluster.yaml"],
            &["scheduler", "--config", "nowhere.yaml"],
        ]),
    );
}

/// The demo as it starts without any option. Times are of the day, and of two places that are as good either may be taken.
#[test]
fn the_demo_tells_its_story_and_ends() {
    let mut demo = grove();
    // On a machine that compiles meanwhile.
    demo.timeout(std::time::Duration::from_secs(240));
    let output = demo.args(["demo", "--once"]).output().unwrap();
    let story = String::from_utf8(output.stdout).unwrap();
    println!("{story}");
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), complaint.as_str()), (Some(0), ""), "{story}");
    let time = Regex::new(r"(?m)^ *\d+\.\ds").unwrap();
    let place = Regex::new(r"\b(z\d)(b\d)?(r\d)?\b").unwrap();
    let shape = |found: &regex::Captures<'_>| {
        let levels = (1..4).filter(|group| found.get(*group).is_some());
        levels.map(|level| ["", "z-", "b-", "r-"][level]).collect::<String>()
    };
    let story = time.replace_all(&story, "TIME");
    let story = place.replace_all(&story, shape);
    let several = Regex::new(r"(z-b-r-)(, z-b-r-)+").unwrap();
    let story = several.replace_all(&story, "$1, ...");
    matches("demo", &lasting(&story).unwrap());
}

/// What is seen on a terminal, which `script` plays.
fn on_a_terminal(refuses_colours: &str) -> String {
    let program = env!("CARGO_BIN_EXE_grove");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let command = format!("{program} plan -f plan/cluster.yaml -f plan/workloads.yaml");
    let output = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .current_dir(examples)
        .envs([("TERM", "xterm"), ("LC_ALL", "C.UTF-8"), ("NO_COLOR", refuses_colours)])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "one of the gangs is not placed");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_terminal_gets_colours_unless_they_are_refused() {
    let coloured = on_a_terminal("");
    for words in ["\x1b[1mGANG", "\x1b[32mplaced\x1b[0m", "\x1b[31minfeasible\x1b[0m"] {
        assert!(coloured.contains(words), "{words:?} is not in {coloured:?}");
    }
    let plain = on_a_terminal("1");
    assert!(plain.contains("infeasible") && !plain.contains('\x1b'), "{plain:?}");
    let piped = screen(&["plan", "-f", "plan/cluster.yaml", "-f", "plan/workloads.yaml"]);
    assert!(piped.contains("infeasible") && !piped.contains('\x1b'), "{piped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_grove_is_told_apart_from_one_that_is_down() {
    let cluster = Cluster::builder().start();
    cluster.server().trust_token("secret", User::admin());
    let listener = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_grove"));
    let stage = Stage::new(program, &listener.kubeconfig("secret")).unwrap();
    let mut seen = String::new();
    for command in ["status", "explain pcs llama", "explain pg llama-0", "topology list"] {
        seen += &stage.screen(command).await.unwrap();
    }
    drop(listener);
    drop(cluster);
    seen += &stage.screen("status").await.unwrap();
    matches("without-grove", &seen);
}
