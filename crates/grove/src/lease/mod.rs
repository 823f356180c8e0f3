//! Leader election: of all replicas that share a Lease, at most one leads.
//!
//! A [`Candidate`] waits until the Lease is its own; the [`Leadership`] it gets must be [held](Leadership::hold) for
//! as long as the work goes on, and the work must stop when that ends. A leader that cannot renew gives up after
//! `renewDeadline`, counted from the last renewal it *sent*, which is before any other replica may take over.
//!
//! All branching is in [`mod@decide`]; this file only reads, writes and waits. What is led is of no concern here.

mod decide;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use grove_api::config::LeaderElection;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

use crate::exit::one_line;
use crate::fence::Fence;
use decide::{Action, Role, Sighting, claimed, decide, holder, released, seen};

/// Which Lease, as whom, and with how much patience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Unique among all replicas, past ones included.
    pub(crate) identity: String,
    pub(crate) lease_duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
}

impl Terms {
    pub(crate) fn new(election: &LeaderElection, own_namespace: &str, identity: String) -> Self {
        let namespace = match election.resource_namespace.as_str() {
            "" => own_namespace.to_owned(),
            chosen => chosen.to_owned(),
        };
        Self {
            namespace,
            name: election.resource_name.clone(),
            identity,
            lease_duration: election.lease_duration.0,
            renew_deadline: election.renew_deadline.0,
            retry_period: election.retry_period.0,
        }
    }
}

/// Why a leader leads no more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Lost {
    #[error("lost lease {lease}: {holder} holds it now")]
    Taken { lease: String, holder: String },
    #[error("lost lease {lease}: could not renew it for {secs} s")]
    NotRenewed { lease: String, secs: u64 },
}

/// What one round of reading, deciding and writing came to.
enum Round {
    /// The Lease is ours by a request sent at this time.
    Ours {
        sent_at: Instant,
    },
    Theirs {
        holder: String,
    },
    /// Nobody knows: the API server did not answer, or another write came first.
    Unknown {
        cause: String,
    },
}

/// A replica that wants to lead.
pub(crate) struct Candidate {
    leases: Api<Lease>,
    terms: Terms,
    wall_clock: fn() -> Timestamp,
    seen: Option<Sighting>,
}

impl Candidate {
    /// `wall_clock` only dates the Lease for people; waiting follows tokio's clock, which tests can move.
    pub(crate) fn new(client: Client, terms: Terms, wall_clock: fn() -> Timestamp) -> Self {
        Self {
            leases: Api::namespaced(client, &terms.namespace),
            terms,
            wall_clock,
            seen: None,
        }
    }

    fn lease_name(&self) -> String {
        format!("{}/{}", self.terms.namespace, self.terms.name)
    }

    /// Waits until this replica leads.
    pub(crate) async fn elected(mut self) -> Leadership {
        let lease = self.lease_name();
        let mut sightings = pin!(watch_object(self.leases.clone(), &self.terms.name));
        let mut last_holder = None;
        loop {
            match self.round(Role::Candidate).await {
                Round::Ours { sent_at } => {
                    tracing::info!(lease, identity = self.terms.identity, "elected leader");
                    return Leadership {
                        candidate: self,
                        renewed_at: sent_at,
                    };
                }
                Round::Theirs { holder } if last_holder.as_ref() != Some(&holder) => {
                    tracing::info!(lease, holder, "another replica leads; waiting");
                    last_holder = Some(holder);
                }
                Round::Theirs { .. } => {}
                Round::Unknown { cause } => tracing::warn!(lease, cause, "cannot get the lease; trying again"),
            }
            // The watch saves the wait after a release; without it a candidate is as good, and slower.
            tokio::select! {
                () = sleep(self.terms.retry_period) => {}
                () = freed(&mut sightings) => {}
            }
        }
    }

    /// One round, within half the deadline: a request that hangs must leave time for another.
    async fn round(&mut self, role: Role) -> Round {
        let patience = self.terms.renew_deadline / 2;
        match timeout(patience, self.try_round(role)).await {
            Ok(Ok(round)) => round,
            Ok(Err(error)) => Round::Unknown { cause: one_line(error) },
            Err(_) => Round::Unknown {
                cause: format!("no answer within {patience:?}"),
            },
        }
    }

    async fn try_round(&mut self, role: Role) -> kube::Result<Round> {
        let lease = self.leases.get_opt(&self.terms.name).await?;
        let now = Instant::now();
        self.seen = seen(self.seen.take(), lease, now);
        let ours = claimed(self.seen.as_ref(), &self.terms, (self.wall_clock)());
        let written = match decide(role, self.seen.as_ref(), &self.terms, now) {
            Action::Create => self.leases.create(&PostParams::default(), &ours).await?,
            Action::Take | Action::Renew => {
                self.leases
                    .replace(&self.terms.name, &PostParams::default(), &ours)
                    .await?
            }
            Action::Wait { holder } | Action::Yield { holder } => return Ok(Round::Theirs { holder }),
        };
        self.seen = seen(self.seen.take(), Some(written), now);
        Ok(Round::Ours { sent_at: now })
    }
}

/// Ends when the Lease is seen to be nobody's. A watch that breaks is opened again by the next call.
async fn freed(sightings: &mut (impl Stream<Item = watcher::Result<Option<Lease>>> + Unpin)) {
    while let Some(Ok(lease)) = sightings.next().await {
        if lease.is_none_or(|lease| holder(&lease).is_empty()) {
            return;
        }
    }
    std::future::pending().await
}

/// The Lease is ours, for as long as it is renewed.
pub(crate) struct Leadership {
    candidate: Candidate,
    renewed_at: Instant,
}

impl Leadership {
    /// Renews until that fails for good. Can be dropped and called again. Behind the fence nothing is written once the
    /// Lease may be another's.
    pub(crate) async fn hold(&mut self, fence: &Fence) -> Lost {
        let Terms {
            renew_deadline,
            retry_period,
            ..
        } = self.candidate.terms;
        let lease = self.candidate.lease_name();
        let deadline = |renewed_at: Instant| renewed_at + renew_deadline;
        loop {
            let gives_up_at = deadline(self.renewed_at);
            fence.close_at(gives_up_at);
            let next_round = async {
                sleep(retry_period).await;
                self.candidate.round(Role::Leader).await
            };
            let lost = match tokio::time::timeout_at(gives_up_at, next_round).await {
                Ok(Round::Ours { sent_at }) => {
                    self.renewed_at = sent_at;
                    continue;
                }
                Ok(Round::Unknown { cause }) => {
                    tracing::warn!(lease, cause, "cannot renew the lease; trying again");
                    continue;
                }
                Ok(Round::Theirs { holder }) => Lost::Taken { lease, holder },
                Err(_) => Lost::NotRenewed {
                    lease,
                    secs: renew_deadline.as_secs(),
                },
            };
            fence.close_at(Instant::now());
            tracing::error!(identity = self.candidate.terms.identity, "{lost}");
            return lost;
        }
    }

    /// Hands the Lease back, so that another replica leads at once. Best effort: if it fails, the claim runs out.
    pub(crate) async fn release(mut self, patience: Duration) {
        let lease = self.candidate.lease_name();
        match timeout(patience, self.try_release()).await {
            Ok(Ok(())) => tracing::info!(lease, "released the lease"),
            Ok(Err(error)) => tracing::warn!(lease, cause = one_line(error), "could not release the lease"),
            Err(_) => tracing::warn!(lease, "could not release the lease in time"),
        }
    }

    async fn try_release(&mut self) -> kube::Result<()> {
        let Candidate {
            leases,
            terms,
            wall_clock,
            seen: sighting,
        } = &mut self.candidate;
        *sighting = seen(sighting.take(), leases.get_opt(&terms.name).await?, Instant::now());
        if decide(Role::Leader, sighting.as_ref(), terms, Instant::now()) != Action::Renew {
            return Ok(());
        }
        if let Some(sighting) = sighting {
            let free = released(sighting, terms, wall_clock());
            leases.replace(&terms.name, &PostParams::default(), &free).await?;
        }
        Ok(())
    }
}
