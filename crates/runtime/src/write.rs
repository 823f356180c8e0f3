//! How a write can fail, and what that means for the look that made it.

use std::fmt::Write as _;
use std::time::Duration;

use crate::{ObjectKey, Outcome};

/// How long a look waits for what somebody else wrote.
const OUTDATED_WAIT: Duration = Duration::from_millis(100);

/// Why a write was not made, or is not known to have been.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Somebody else wrote in between. What they wrote will be seen, and looked at.
    #[error("{0} was changed by somebody else meanwhile")]
    Outdated(ObjectKey),
    /// The name belongs to an object of somebody else.
    #[error("{kind} {key} already exists and belongs to {holder}; rename or delete it")]
    Taken {
        kind: String,
        key: ObjectKey,
        holder: String,
    },
    /// The API server will not have it, however often it is asked.
    #[error("{0}")]
    Refused(String),
    /// Not carried out, or not known to be.
    #[error("{0}")]
    Failed(String),
}

impl WriteError {
    pub fn new(key: &ObjectKey, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 422 => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                let mut message = status.message.clone();
                for cause in causes.filter(|cause| !status.message.contains(&cause.field)) {
                    let _ = write!(message, "; {}: {}", cause.field, cause.message);
                }
                Self::Refused(message)
            }
            kube::Error::Api(status) if status.code == 409 => Self::Outdated(key.clone()),
            kube::Error::Api(status) => Self::Failed(format!("{key}: {}", status.message)),
            error => Self::Failed(format!("{key}: {error}")),
        }
    }
}

/// How a look ended in which these writes failed.
pub fn outcome(errors: &[WriteError]) -> Outcome {
    let ends = errors.iter().map(|error| match error {
        WriteError::Refused(_) => Outcome::Settled,
        // What somebody else wrote is seen soon; should it not be, this look comes first.
        WriteError::Outdated(_) => Outcome::LookAgain(OUTDATED_WAIT),
        WriteError::Taken { .. } | WriteError::Failed(_) => Outcome::Failed(error.to_string()),
    });
    // The first failure tells what is wrong; the others are in the status.
    ends.fold(Outcome::Settled, |worst, end| match worst {
        Outcome::Failed(_) => worst,
        _ => worst.and(end),
    })
}
