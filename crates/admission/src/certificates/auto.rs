//! Certificates that the operator makes itself and keeps in a Secret of its namespace.
//!
//! Every replica runs this. They need not agree beforehand: whoever writes first wins, and the others take what it wrote.
//! Nothing is polled: the loop sleeps until the Secret changes, the API server has been told of other authorities, or the
//! plan's next moment comes.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Certificates, Change, Lifetimes, Material, Plan, Trusted, carry_out, plan, publish};

const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The Secret, and what it is to hold.
#[derive(Clone)]
pub struct Auto {
    pub client: Client,
    pub namespace: String,
    pub secret: String,
    /// DNS names and addresses that are served.
    pub names: Vec<String>,
    pub lifetimes: Lifetimes,
}

impl std::fmt::Debug for Auto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auto")
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Error)]
enum WriteError {
    #[error("cannot make a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("cannot write the Secret: {0}")]
    Api(#[from] kube::Error),
}

impl WriteError {
    /// Another replica was faster.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 409)
    }
}

impl Auto {
    /// Keeps the Secret in order and tells `sender` what it holds. Ends only with the future.
    pub async fn run(
        self,
        sender: watch::Sender<Option<Certificates>>,
        mut trusted: Trusted,
        clock: impl Fn() -> Timestamp,
    ) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut changes = std::pin::pin!(watch_object(secrets.clone(), &self.secret).default_backoff());
        let mut current: Option<Secret> = None;
        let mut is_known = false;
        let mut retry = RETRY_MIN;
        loop {
            let mut wait = None;
            if is_known {
                let now = clock();
                let material = current.as_ref().and_then(read);
                let bundle = material.as_ref().map(Material::bundle);
                let is_trusted = bundle.is_some() && *trusted.borrow_and_update() == bundle;
                let plan = plan(now, material.as_ref(), &self.names, &self.lifetimes, is_trusted);
                self.tell(&sender, material.as_ref(), plan);
                match plan {
                    Plan::Keep { until } => wait = Some(duration(now, until)),
                    Plan::Write(change) => match self.write(&secrets, change, current.as_ref(), now).await {
                        Ok(written) => {
                            tracing::info!(secret = self.secret, ?change, "wrote the webhook certificates");
                            current = Some(written);
                            retry = RETRY_MIN;
                            continue;
                        }
                        Err(error) => {
                            // Theirs arrives by the watch; in case it already has, try again after a while.
                            if !error.is_conflict() {
                                tracing::warn!(secret = self.secret, ?change, %error, "will try again");
                            }
                            wait = Some(retry);
                            retry = (retry * 2).min(RETRY_MAX);
                        }
                    },
                }
            }
            tokio::select! {
                Some(seen) = changes.next() => if self.take(seen, &mut current) { is_known = true },
                Ok(()) = trusted.changed() => {}
                () = sleep(wait.unwrap_or(RETRY_MAX)), if wait.is_some() => {}
            }
        }
    }

    /// Whether it is now known what the Secret holds.
    fn take(&self, seen: Result<Option<Secret>, watcher::Error>, current: &mut Option<Secret>) -> bool {
        match seen {
            Ok(secret) => {
                *current = secret;
                true
            }
            Err(error) => {
                tracing::warn!(secret = self.secret, %error, "cannot watch the webhook certificates; will try again");
                false
            }
        }
    }

    fn tell(&self, sender: &watch::Sender<Option<Certificates>>, material: Option<&Material>, plan: Plan) {
        // What is about to be made anew is of no use to anybody.
        let Some(material) = material.filter(|_| plan != Plan::Write(Change::Everything)) else {
            return;
        };
        match material.certificates() {
            Ok(certificates) => {
                if publish(sender, certificates) {
                    tracing::info!(secret = self.secret, "webhook certificates in force");
                }
            }
            Err(error) => tracing::warn!(secret = self.secret, %error, "cannot use the webhook certificates"),
        }
    }

    async fn write(
        &self,
        secrets: &Api<Secret>,
        change: Change,
        current: Option<&Secret>,
        now: Timestamp,
    ) -> Result<Secret, WriteError> {
        let material = current.and_then(read);
        let material = carry_out(change, material.as_ref(), &self.names, now, &self.lifetimes)?;
        let params = PostParams::default();
        let written = match current {
            // Carries its resourceVersion: if somebody else wrote since, this fails.
            Some(secret) => {
                let mut secret = secret.clone();
                secret.data.get_or_insert_default().extend(material.data());
                secrets.replace(&self.secret, &params, &secret).await?
            }
            None => {
                let secret = Secret {
                    metadata: ObjectMeta {
                        name: Some(self.secret.clone()),
                        ..ObjectMeta::default()
                    },
                    type_: Some("kubernetes.io/tls".to_owned()),
                    data: Some(material.data()),
                    ..Secret::default()
                };
                secrets.create(&params, &secret).await?
            }
        };
        Ok(written)
    }
}

fn read(secret: &Secret) -> Option<Material> {
    Material::read(secret.data.as_ref()?)
}

fn duration(now: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}
