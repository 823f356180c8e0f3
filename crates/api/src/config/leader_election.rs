//! `leaderElection`: which Lease the replicas compete for, and how patient they are.

use serde::Serialize;

use super::duration::GoDuration;
use super::names::{is_dns_label, is_dns_subdomain};
use super::section::{Section, shown};
use super::words::words;

words! {
    /// The kind of object that is the lock. Kubernetes has had others; only Leases are left.
    pub enum ResourceLock { Leases = "leases" }
}

/// Timing follows client-go's rules: `leaseDuration > renewDeadline > retryPeriod`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElection {
    pub enabled: bool,
    /// How long others wait after the last renewal before they take the Lease. Whole seconds: a Lease stores seconds.
    pub lease_duration: GoDuration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: GoDuration,
    /// Pause between two tries.
    pub retry_period: GoDuration,
    pub resource_lock: ResourceLock,
    pub resource_name: String,
    /// Empty: the namespace that the operator runs in.
    pub resource_namespace: String,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: false,
            lease_duration: GoDuration::from_secs(15),
            renew_deadline: GoDuration::from_secs(10),
            retry_period: GoDuration::from_secs(2),
            resource_lock: ResourceLock::Leases,
            resource_name: "grove-operator-leader-election".into(),
            resource_namespace: String::new(),
        }
    }
}

impl LeaderElection {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        let election = Self {
            enabled: section.or("enabled", default.enabled),
            lease_duration: section.or("leaseDuration", default.lease_duration),
            renew_deadline: section.or("renewDeadline", default.renew_deadline),
            retry_period: section.or("retryPeriod", default.retry_period),
            resource_lock: section.or("resourceLock", default.resource_lock),
            resource_name: section.or("resourceName", default.resource_name),
            resource_namespace: section.or("resourceNamespace", default.resource_namespace),
        };
        election.judge_durations(section);
        election.judge_names(section);
        election
    }

    fn judge_durations(&self, section: &mut Section<'_>) {
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        let durations = [
            ("leaseDuration", lease),
            ("renewDeadline", renew),
            ("retryPeriod", retry),
        ];
        let mut is_positive = true;
        for (key, duration) in durations {
            if duration.0.is_zero() {
                section.problem(key, format!("must be longer than 0s, not {duration}"));
                is_positive = false;
            }
        }
        if lease.0.subsec_nanos() != 0 || i32::try_from(lease.0.as_secs()).is_err() {
            section.problem(
                "leaseDuration",
                format!("must be whole seconds that fit in a Lease, not {lease}"),
            );
        }
        // A zero is already reported; to compare it as well would say the same thing twice.
        if is_positive && lease <= renew {
            let message =
                format!("{lease} must be longer than renewDeadline {renew}, or two replicas could lead at once");
            section.problem("leaseDuration", message);
        }
        if is_positive && renew <= retry {
            let message = format!("{renew} must be longer than retryPeriod {retry}, or the leader could not retry");
            section.problem("renewDeadline", message);
        }
    }

    fn judge_names(&self, section: &mut Section<'_>) {
        if !is_dns_subdomain(&self.resource_name) {
            let name = shown(&self.resource_name.as_str().into());
            section.problem(
                "resourceName",
                format!("must be the name of a Lease such as grove-operator, not {name}"),
            );
        }
        if !self.resource_namespace.is_empty() && !is_dns_label(&self.resource_namespace) {
            let namespace = shown(&self.resource_namespace.as_str().into());
            let message = format!("must be the name of a namespace, or empty for the operator's own, not {namespace}");
            section.problem("resourceNamespace", message);
        }
    }
}
