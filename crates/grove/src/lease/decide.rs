//! What a replica does about the Lease, as pure functions of what it saw and when.
//!
//! As in client-go, another's claim is timed by our own clock from the moment we *saw* it change; the times written
//! in the Lease are for people. So clocks that differ between hosts cannot make two leaders.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::Terms;
use grove_api::labels::PART_OF;

/// The Lease as last read, and since when it has looked that way to us.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sighting {
    pub(super) lease: Lease,
    pub(super) since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Candidate,
    Leader,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// There is no Lease: make one that is ours.
    Create,
    /// The Lease is free, or its holder is silent for longer than it promised: make it ours.
    Take,
    /// The Lease is ours: say that we are alive.
    Renew,
    /// Another replica leads.
    Wait { holder: String },
    /// We led, and another replica has the Lease now.
    Yield { holder: String },
}

/// Adds a new reading to what was seen: the clock of a claim runs on only while nothing about it changes.
pub(super) fn seen(before: Option<Sighting>, lease: Option<Lease>, now: Instant) -> Option<Sighting> {
    let lease = lease?;
    match before {
        Some(before) if before.lease.spec == lease.spec => Some(Sighting {
            lease,
            since: before.since,
        }),
        _ => Some(Sighting { lease, since: now }),
    }
}

/// Who holds the Lease; empty if nobody does.
pub(super) fn holder(lease: &Lease) -> &str {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder.unwrap_or_default()
}

pub(super) fn decide(role: Role, seen: Option<&Sighting>, terms: &Terms, now: Instant) -> Action {
    let Some(Sighting { lease, since }) = seen else {
        return Action::Create;
    };
    let spec = lease.spec.as_ref();
    let holder = holder(lease);
    if holder == terms.identity {
        return Action::Renew;
    }
    if holder.is_empty() {
        return Action::Take;
    }
    if role == Role::Leader {
        // Even if the other's claim has run out since: it may have led in between.
        return Action::Yield {
            holder: holder.to_owned(),
        };
    }
    // The holder's own promise counts: its configuration may differ from ours while both are rolled out.
    let promised_secs = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|secs| u64::try_from(secs).ok());
    let promised = promised_secs.map_or(terms.lease_duration, Duration::from_secs);
    if now.saturating_duration_since(*since) >= promised {
        Action::Take
    } else {
        Action::Wait {
            holder: holder.to_owned(),
        }
    }
}

/// The Lease that makes us the holder, or keeps us so. Carries the version that was read, so that of two replicas
/// that write at once only one succeeds.
pub(super) fn claimed(seen: Option<&Sighting>, terms: &Terms, wall: Timestamp) -> Lease {
    let old = seen.and_then(|seen| seen.lease.spec.clone()).unwrap_or_default();
    let is_renewal = old.holder_identity.as_deref() == Some(terms.identity.as_str());
    let transitions = old.lease_transitions.unwrap_or(0);
    Lease {
        metadata: metadata(seen, terms),
        spec: Some(LeaseSpec {
            holder_identity: Some(terms.identity.clone()),
            lease_duration_seconds: Some(terms.lease_duration.as_secs().try_into().unwrap_or(i32::MAX)),
            acquire_time: if is_renewal {
                old.acquire_time
            } else {
                Some(MicroTime(wall))
            },
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(if is_renewal || seen.is_none() {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        }),
    }
}

/// The Lease that is nobody's, so that the next leader need not wait for our claim to run out.
pub(super) fn released(seen: &Sighting, terms: &Terms, wall: Timestamp) -> Lease {
    Lease {
        metadata: metadata(Some(seen), terms),
        spec: Some(LeaseSpec {
            // The schema demands more than 0.
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: seen.lease.spec.as_ref().and_then(|spec| spec.lease_transitions),
            ..LeaseSpec::default()
        }),
    }
}

fn metadata(seen: Option<&Sighting>, terms: &Terms) -> ObjectMeta {
    let mut metadata = match seen {
        // Labels and annotations of others survive.
        Some(seen) => ObjectMeta {
            managed_fields: None,
            ..seen.lease.metadata.clone()
        },
        None => ObjectMeta {
            name: Some(terms.name.clone()),
            namespace: Some(terms.namespace.clone()),
            ..ObjectMeta::default()
        },
    };
    // By this an administrator finds it beside the pods.
    let labels = metadata.labels.get_or_insert_default();
    labels.entry(PART_OF.to_owned()).or_insert_with(|| "grove".to_owned());
    metadata
}
