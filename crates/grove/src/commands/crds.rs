//! `grove crds`: the whole API, for `kubectl apply --server-side -f -`.

use std::io::{self, Write};
use std::process::ExitCode;

use grove_api::crds;

use crate::exit;

/// The kind that another Grove may have installed already, and with its own schema.
const BINDING: &str = "grove.io_clustertopologybindings.yaml";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out ClusterTopologyBinding: for clusters that have it from another Grove. We only read it
    #[arg(long)]
    without_binding: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match print(args, &mut io::stdout().lock()) {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("cannot print the CRDs: {error}");
            exit::NO_ANSWER.into()
        }
        _ => ExitCode::SUCCESS,
    }
}

fn print(args: &Args, out: &mut impl Write) -> io::Result<()> {
    for (_, yaml) in crds::YAML
        .iter()
        .filter(|(file, _)| !(args.without_binding && *file == BINDING))
    {
        write!(out, "---\n{yaml}")?;
    }
    out.flush()
}
