//! `grove crds`: the whole API, for `kubectl apply --server-side -f -`.

use std::io::{self, Write};
use std::process::ExitCode;

use grove_api::crds;

pub(crate) fn run() -> ExitCode {
    match print(&mut io::stdout().lock()) {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("cannot print the CRDs: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn print(out: &mut impl Write) -> io::Result<()> {
    for (_, yaml) in crds::YAML {
        write!(out, "---\n{yaml}")?;
    }
    out.flush()
}
