//! The status of a ClusterTopology or TopologyDomain: `Ready` and `lastErrors`.

use grove_api::conditions::topology::{KAI_CREATE_ERROR_CODE, READY, ready};
use grove_api::status::LastError;
use grove_api::topology::TopologyStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{ConditionState, ConditionStatus, with_condition};
use crate::backend::Backend;
use crate::levels::TopologyKind;

/// Code in `lastErrors` of a failed Kueue Topology.
const KUEUE_CREATE_ERROR_CODE: &str = "KUEUE_TOPOLOGY_CREATE_ERROR";

/// A backend's topology resource that could not be brought up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFailure {
    pub backend: Backend,
    pub step: FailedStep,
    /// What the API server, or the rule that forbade the step, said.
    pub error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedStep {
    /// There was no such resource yet.
    Create,
    /// The resource exists and had to be replaced.
    Change,
}

impl FailedStep {
    fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "update",
        }
    }
}

/// What came of a pass over the backends of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendReport {
    /// All that the topology is written to.
    pub backends: Vec<Backend>,
    /// Those where that failed.
    pub failures: Vec<BackendFailure>,
}

/// The status after a pass; `None` when that is what `existing` says.
///
/// An error that repeats keeps the time at which it was first seen, so that retrying writes nothing.
pub fn updated_topology_status(
    existing: &TopologyStatus,
    kind: TopologyKind,
    generation: i64,
    report: &BackendReport,
    now: &Time,
) -> Option<TopologyStatus> {
    let state = if report.failures.is_empty() {
        is_ready(kind, &report.backends)
    } else {
        has_failed(&report.failures)
    };
    let last_errors = report.failures.iter().map(|failure| {
        let (code, description) = described(failure);
        let mut known = existing.last_errors.iter();
        let known = known.find(|error| error.code == code && error.description == description);
        known.cloned().unwrap_or_else(|| LastError {
            code: code.to_owned(),
            description,
            observed_at: now.clone(),
        })
    });
    let status = TopologyStatus {
        observed_generation: Some(generation),
        conditions: with_condition(&existing.conditions, &state, generation, now),
        last_errors: last_errors.collect(),
    };
    (status != *existing).then_some(status)
}

fn is_ready(kind: TopologyKind, backends: &[Backend]) -> ConditionState {
    let resources: Vec<String> = backends.iter().map(|backend| format!("{backend} Topology")).collect();
    let message = if resources.is_empty() {
        format!("{kind} configured")
    } else {
        format!("{kind} configured and {} created successfully", resources.join(" and "))
    };
    ConditionState {
        type_: READY,
        status: ConditionStatus::True,
        reason: ready::READY,
        message,
    }
}

fn has_failed(failures: &[BackendFailure]) -> ConditionState {
    let messages = failures.iter().map(|failure| {
        let (verb, backend) = (failure.step.verb(), failure.backend);
        format!("Failed to {verb} {backend} Topology CR: {}", failure.error)
    });
    let messages: Vec<String> = messages.collect();
    // One reason for all: that of KAI where it is among them, because others match on it.
    let kai = failures.iter().find(|failure| failure.backend == Backend::Kai);
    let reason = match kai.map(|failure| failure.step) {
        Some(FailedStep::Create) => ready::KAI_CREATION_FAILED,
        Some(FailedStep::Change) => ready::KAI_CREATION_OR_UPDATE_FAILED,
        None => ready::BACKEND_CREATION_FAILED,
    };
    ConditionState {
        type_: READY,
        status: ConditionStatus::False,
        reason,
        message: messages.join("; "),
    }
}

fn described(failure: &BackendFailure) -> (&'static str, String) {
    let code = match failure.backend {
        Backend::Kai => KAI_CREATE_ERROR_CODE,
        Backend::Kueue => KUEUE_CREATE_ERROR_CODE,
    };
    let (verb, backend) = (failure.step.verb(), failure.backend);
    (
        code,
        format!("Failed to {verb} {backend} Topology resource: {}", failure.error),
    )
}
