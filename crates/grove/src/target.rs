//! Which cluster a command talks to: a kubeconfig and a context of it, as people name them.

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::exit::{Failure, one_line};
use crate::words::proposal;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Target {
    /// The cluster to talk to; by default that of the environment
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use; by default its current one
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
}

impl Target {
    /// That of a program in a cluster: its kubeconfig has one context.
    pub(crate) fn of(kubeconfig: Option<&Path>) -> Self {
        Self {
            kubeconfig: kubeconfig.map(Path::to_owned),
            context: None,
        }
    }

    /// How to reach it. Without a file the usual places are tried: `$KUBECONFIG`, the home directory, then the pod's
    /// service account, which has no contexts.
    pub(crate) async fn config(&self) -> Result<Config, Failure> {
        let (name, found) = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => (format!("kubeconfig {}", path.display()), Kubeconfig::read_from(path)),
            (None, Some(_)) => ("the kubeconfig of the environment".to_owned(), Kubeconfig::read()),
            (None, None) => return inferred().await,
        };
        let unusable = |error: KubeconfigError| {
            let cause = one_line(error);
            Failure::Usage(format!("cannot use {name}: {cause}; check --kubeconfig"))
        };
        let found = found.map_err(unusable)?;
        if let Some(context) = &self.context {
            let known: Vec<String> = found.contexts.iter().map(|context| context.name.clone()).collect();
            if !known.contains(context) {
                let next = proposal(context, &known);
                return Err(Failure::Usage(format!("{name} has no context \"{context}\"; {next}")));
            }
        }
        let chosen = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        Config::from_custom_kubeconfig(found, &chosen).await.map_err(unusable)
    }
}

async fn inferred() -> Result<Config, Failure> {
    Config::infer().await.map_err(|error| {
        // That this is no pod either needs no saying: what is wrong with the kubeconfig is what a person can mend.
        let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<KubeconfigError>());
        Failure::Usage(match cause {
            Some(cause) if !is_absent(cause) => format!(
                "no cluster: cannot use the kubeconfig of the environment: {}; mend it, give --kubeconfig, or try: grove demo",
                one_line(anyhow::anyhow!("{cause}"))
            ),
            _ => "no cluster: neither $KUBECONFIG nor ~/.kube/config names one; give --kubeconfig, or try: grove demo"
                .to_owned(),
        })
    })
}

/// Whether there is no kubeconfig at all, other than one that cannot be used.
fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(cause, _) => cause.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}
