//! Why a command ends without success, and the exit code that says so to programs.

use std::process::ExitCode;

use anyhow::Context as _;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

/// A finding: the command ran, and what it looked at is not as it should be.
pub(crate) const FINDING: u8 = 1;
/// A usage or configuration error: nothing was done, and trying again will not help.
pub(crate) const USAGE: u8 = 2;
/// No answer: the cluster is unreachable, refuses us or takes too long. Not a finding about it.
pub(crate) const NO_ANSWER: u8 = 3;

/// The text is one line: what is wrong, where, and what to do.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NoAnswer(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => USAGE.into(),
            Self::NoAnswer(_) => NO_ANSWER.into(),
        }
    }
}

impl From<grove_plan::Invalid> for Failure {
    fn from(invalid: grove_plan::Invalid) -> Self {
        Self::Usage(invalid.to_string())
    }
}

/// An error and its causes on one line.
pub(crate) fn one_line(error: impl Into<anyhow::Error>) -> String {
    let error: anyhow::Error = error.into();
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        // Many errors print their cause and then also report it as their source.
        if parts.last().is_none_or(|last| !last.ends_with(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

/// The runtime of a command.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("cannot start the runtime; check the limits on threads and files")
}

/// Runs a command to its end; a failure is told on one line.
pub(crate) fn answer(command: impl Future<Output = Result<ExitCode, Failure>>) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return usage(Err(error)),
    };
    runtime.block_on(command).unwrap_or_else(|failure| {
        eprintln!("{failure}");
        failure.exit_code()
    })
}

/// The exit code of a command whose failures are all mistakes of its caller; they are told on one line.
pub(crate) fn usage(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", one_line(error));
            USAGE.into()
        }
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn told_to_stop() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_causes_is_one_line_without_repetition() {
        let root = anyhow::anyhow!("connection\nrefused");
        let error = root
            .context("ServiceError: connection refused")
            .context("cannot connect");
        assert_eq!(one_line(error), "cannot connect: ServiceError: connection refused");
    }
}
