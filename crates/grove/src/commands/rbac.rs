//! `grove rbac`: the accounts of the operator and of the scheduler and the least that each must be allowed, for
//! `kubectl apply --server-side -f -`.

use std::io::{self, Write};
use std::process::ExitCode;

use grove_api::rights::{self, Home, scheduler};
use serde::Serialize;

use crate::exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The namespace that both run in
    #[arg(long, short, value_name = "NAMESPACE", default_value = "grove-system")]
    namespace: String,
    /// The Secret of the operator's certificates, as server.webhooks.secretName names it
    #[arg(long, value_name = "NAME", default_value = "grove-webhook-server-cert")]
    secret: String,
    /// The Lease of the operator's leader, as leaderElection.resourceName names it
    #[arg(long, value_name = "NAME", default_value = "grove-operator-leader-election")]
    lease: String,
    /// Also what is needed to serve DynamoGraphDeployments (dynamo.enabled)
    #[arg(long)]
    dynamo: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match print(args, &mut io::stdout().lock()) {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("cannot print the roles: {error}");
            exit::NO_ANSWER.into()
        }
        _ => ExitCode::SUCCESS,
    }
}

fn print(args: &Args, out: &mut impl Write) -> io::Result<()> {
    let home = Home {
        namespace: &args.namespace,
        secret: &args.secret,
        lease: &args.lease,
    };
    let (cluster_wide, at_home) = rights::bindings(&args.namespace);
    document(out, &rights::service_account(&args.namespace))?;
    document(out, &rights::cluster_role())?;
    document(out, &cluster_wide)?;
    document(out, &rights::role(&home))?;
    document(out, &at_home)?;
    let (cluster_wide, at_home) = scheduler::bindings(&args.namespace);
    document(out, &scheduler::service_account(&args.namespace))?;
    document(out, &scheduler::cluster_role())?;
    document(out, &cluster_wide)?;
    document(out, &scheduler::role(&args.namespace))?;
    document(out, &at_home)?;
    if args.dynamo {
        document(out, &rights::dynamo_cluster_role())?;
        document(out, &rights::dynamo_binding(&args.namespace))?;
    }
    out.flush()
}

fn document(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    let text = serde_saphyr::to_string(object).map_err(io::Error::other)?;
    write!(out, "---\n{text}")
}
