//! Every command and every argument, from what `--help` says.

use std::fmt::Write as _;

use clap::{Arg, Command};

use super::cell;

const HEAD: &str = "# Commands

<!-- Written by `cargo xtask gen` from what `grove --help` says; do not edit. -->

`kubectl grove` is the same program, where it is installed under the name `kubectl-grove`. `--help` works everywhere.

Exit codes: 0 success, 1 a finding (something waits, or is wrong), 2 a mistake in the arguments or the configuration, 3 no
answer from the cluster.

Commands that ask a cluster find it as `kubectl` does: `--kubeconfig`, else `$KUBECONFIG`, else `~/.kube/config`, else the
account of the pod that they run in; `--context` chooses one of its contexts. Without `-n` they look in the namespace of
the context. Colours and drawn lines are for terminals only, and `NO_COLOR` (with any value) refuses colours.
";

/// The whole page.
pub(super) fn page(command: Command) -> String {
    let mut command = command.bin_name(crate::NAME);
    command.build();
    let mut page = HEAD.to_owned();
    write_all(&mut page, &command);
    page
}

fn write_all(page: &mut String, command: &Command) {
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    for command in command.get_subcommands().filter(shown) {
        // A command of commands has nothing to say that they do not.
        if command.get_subcommands().all(|inside| !shown(&inside)) {
            write_one(page, command);
        }
        write_all(page, command);
    }
}

fn write_one(page: &mut String, command: &Command) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let _ = writeln!(page, "\n## {name}");
    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        let _ = writeln!(page, "\n{about}.");
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(page, "\n```text\n{}\n```", usage.trim_start_matches("Usage: "));
    let arguments: Vec<&Arg> = command.get_arguments().filter(|argument| is_shown(argument)).collect();
    if !arguments.is_empty() {
        page.push_str("\n| argument | default | |\n|---|---|---|\n");
        for argument in arguments {
            write_argument(page, argument);
        }
    }
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        let _ = writeln!(page, "\n```text\n{after}\n```");
    }
}

fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
}

fn write_argument(page: &mut String, argument: &Arg) {
    let short = argument
        .get_short()
        .map(|short| format!("-{short}, "))
        .unwrap_or_default();
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut help = help.map(ToString::to_string).unwrap_or_default();
    let words = argument.get_possible_values();
    if argument.get_action().takes_values() && !words.is_empty() {
        let words: Vec<String> = words.iter().map(|word| format!("`{}`", word.get_name())).collect();
        let _ = write!(help, " ({})", words.join(", "));
    }
    if let Some(variable) = argument.get_env() {
        let _ = write!(help, " (or by the variable `{}`)", variable.to_string_lossy());
    }
    let _ = writeln!(
        page,
        "| `{}` | {} | {} |",
        cell(&format!("{short}{argument}")),
        cell(&defaults.join(", ")),
        cell(&help)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_on_the_page_with_its_arguments() {
        let page = page(crate::command());
        for expected in [
            "## grove status\n",
            "## grove topology discover\n",
            "grove status [OPTIONS] [NAME]",
            "| `-A, --all-namespaces` |  | Those of all namespaces |",
            "| `-o, --output <OUTPUT>` | `table` |",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
        assert!(!page.contains("grove reference"), "it is for the docs only");
    }

    /// Who adds an argument says what it is for.
    #[test]
    fn every_argument_has_a_help() {
        let page = page(crate::command());
        let bare: Vec<&str> = page
            .lines()
            .filter(|line| line.ends_with("|  |") || line.contains("|  (`"))
            .collect();
        assert!(bare.is_empty(), "{}", bare.join("\n"));
    }
}
