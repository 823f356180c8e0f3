//! `grove completion SHELL`: the script by which a shell completes commands and options.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::exit;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
To have it in every new shell:
  bash  grove completion bash > ~/.local/share/bash-completion/completions/grove
  zsh   grove completion zsh > \"${fpath[1]}/_grove\"
  fish  grove completion fish > ~/.config/fish/completions/grove.fish")]
pub(crate) struct Args {
    /// The shell that completes
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), crate::NAME, &mut script);
    exit::usage(output::write(&String::from_utf8_lossy(&script)).map_err(anyhow::Error::new))
}
