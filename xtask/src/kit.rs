//! `cargo xtask kit`: builds the control plane's programs, and runs a control plane for a person.
//!
//! A test starts its own control plane inside itself and needs none of this. What a person starts outlives the
//! command, so a process in the background holds it; see [`holder`].

mod holder;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Subcommand, ValueEnum};
use grove_e2e::kit::Kit;
use grove_e2e::{ControlPlane, Identity};

use holder::{Slot, State};

/// Nothing runs, or nothing answers; a wrong command line is 2, by clap.
const COULD_NOT_START: u8 = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build all programs: minutes the first time, nothing afterwards
    Build,
    /// Start a control plane in the background and print how to use it
    Up(Wanted),
    /// Stop a control plane and remove its files
    Down(Name),
    /// Print the path of a kubeconfig
    Kubeconfig {
        #[command(flatten)]
        name: Name,
        /// Whose kubeconfig
        #[arg(long, value_enum, default_value_t = Who::Admin)]
        user: Who,
    },
    /// Print the folder that holds the programs
    Path,
    /// Be the background process of `up`
    #[command(hide = true)]
    Hold(Wanted),
}

#[derive(Clone, Debug, clap::Args)]
struct Name {
    /// Tells several control planes apart
    #[arg(long, default_value = "default", value_parser = plain_name)]
    name: String,
}

#[derive(Clone, Debug, clap::Args)]
struct Wanted {
    #[command(flatten)]
    name: Name,
    /// How many fake nodes
    #[arg(long, default_value_t = 10)]
    nodes: usize,
    /// Also run the stock kube-scheduler
    #[arg(long)]
    scheduler: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Who {
    /// May do everything
    Admin,
    /// Has been granted nothing
    User,
    /// The operator's service account
    Operator,
}

impl From<Who> for Identity {
    fn from(user: Who) -> Self {
        match user {
            Who::Admin => Self::Admin,
            Who::User => Self::User,
            Who::Operator => Self::Operator,
        }
    }
}

/// The name becomes a folder's, so nothing that could lead out of it is allowed.
fn plain_name(name: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !name.is_empty() && name.len() <= 40 && name.bytes().all(plain) {
        Ok(name.to_owned())
    } else {
        Err("use 1 to 40 of a-z, 0-9 and -".to_owned())
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    let outcome = match args.command {
        Command::Build => build(),
        Command::Up(wanted) => up(&wanted),
        Command::Down(name) => down(&name),
        Command::Kubeconfig { name, user } => kubeconfig(&name, user.into()),
        Command::Path => Kit::ready()
            .map(|kit| println!("{}", kit.dir().display()))
            .map_err(Into::into),
        Command::Hold(wanted) => hold(&wanted),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(COULD_NOT_START)
        }
    }
}

fn build() -> Result<()> {
    let kit = Kit::ready()?;
    kit.helm()?;
    eprintln!(
        "the kit for Kubernetes {} is in {}",
        kit.kubernetes_version(),
        kit.dir().display()
    );
    Ok(())
}

fn up(wanted: &Wanted) -> Result<()> {
    // Here and not in the background, where nobody would see the progress.
    let kit = Kit::ready()?;
    let slot = Slot::named(&wanted.name.name)?;
    if let Some(state) = slot.running()? {
        eprintln!(
            "control plane `{}` runs already (process {})",
            wanted.name.name, state.pid
        );
        return explain(&kit, &state);
    }
    let mut arguments = vec!["kit", "hold", "--name", &wanted.name.name, "--nodes"];
    let nodes = wanted.nodes.to_string();
    arguments.push(&nodes);
    if wanted.scheduler {
        arguments.push("--scheduler");
    }
    let begun = Instant::now();
    let state = slot.start(&arguments)?;
    let (name, seconds) = (&wanted.name.name, begun.elapsed().as_secs_f64());
    eprintln!("control plane `{name}` is ready after {seconds:.1} s; stop it by `cargo xtask kit down --name {name}`");
    explain(&kit, &state)
}

/// On stdout and nothing else, so that `eval "$(cargo xtask kit up)"` works.
fn explain(kit: &Kit, state: &State) -> Result<()> {
    let kubeconfig = state
        .kubeconfig(Identity::Admin)
        .context("it is still starting; try again in a moment")?;
    println!("export KUBECONFIG={}", kubeconfig.display());
    println!("export PATH=\"{}:$PATH\"", kit.dir().display());
    Ok(())
}

fn down(name: &Name) -> Result<()> {
    let stopped = Slot::named(&name.name)?.stop()?;
    eprintln!(
        "control plane `{}` {}",
        name.name,
        if stopped { "is stopped" } else { "was not running" }
    );
    Ok(())
}

fn kubeconfig(name: &Name, identity: Identity) -> Result<()> {
    let state = Slot::named(&name.name)?.running()?;
    let path = state.as_ref().and_then(|state| state.kubeconfig(identity));
    let path = path.with_context(|| {
        format!(
            "no control plane `{0}` is ready: start it by `cargo xtask kit up --name {0}`",
            name.name
        )
    })?;
    println!("{}", path.display());
    Ok(())
}

fn hold(wanted: &Wanted) -> Result<()> {
    let builder = ControlPlane::builder().nodes(wanted.nodes).scheduler(wanted.scheduler);
    Slot::named(&wanted.name.name)?.hold(builder)
}

#[cfg(test)]
mod tests {
    use super::plain_name;

    #[test]
    fn names_cannot_leave_their_folder() {
        assert!(plain_name("default").is_ok());
        assert!(plain_name("v1-36").is_ok());
        for bad in ["", "..", "a/b", "A", "a b", &"a".repeat(41)] {
            assert!(plain_name(bad).is_err(), "{bad}");
        }
    }
}
