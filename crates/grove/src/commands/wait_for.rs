//! `grove wait-for`: the init container that keeps a start order. Ends with success when all named cliques are ready.

use std::process::ExitCode;

use grove_api::config::ClientConnection;
use grove_controllers::wait_for::{self, Parent, Progress, Wait};

use crate::api_writes::ApiWrites;
use crate::client::Cluster;
use crate::exit::{self, Failure};
use crate::target::Target;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A PodClique and how many of its pods must be ready; may be given several times
    #[arg(long, value_name = "FQN:N", required = true, num_args = 1..)]
    podcliques: Vec<Parent>,
    /// The PodClique whose pod waits: those that it does not start after any more are not waited for
    #[arg(long, value_name = "FQN")]
    of: Option<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    exit::answer(wait(&Wait {
        of: args.of.clone(),
        parents: args.podcliques.clone(),
    }))
}

async fn wait(wait: &Wait) -> Result<ExitCode, Failure> {
    // The only provider in the binary; it can be installed already when commands share a process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::connect(&Target::default(), &ClientConnection::default(), &ApiWrites::default()).await?;
    tokio::select! {
        () = wait_for::run(cluster.client, &cluster.namespace, wait, tell) => Ok(ExitCode::SUCCESS),
        told = exit::told_to_stop() => Err(Failure::NoAnswer(match told {
            Ok(()) => "told to stop before every PodClique was ready".to_owned(),
            Err(error) => format!("cannot listen for signals: {error}"),
        })),
    }
}

fn tell(progress: Progress) {
    match progress {
        Progress::Waiting { parent, ready } => {
            println!(
                "waiting for PodClique {}: {ready} of {} pods are ready",
                parent.name, parent.ready
            );
        }
        Progress::Ready(parent) => println!("PodClique {} is ready", parent.name),
        Progress::Over(parent) => println!("PodClique {} is not waited for any more", parent.name),
        Progress::Trouble { parent, cause } => {
            eprintln!("cannot watch PodClique {}, trying again: {cause}", parent.name);
        }
    }
}
