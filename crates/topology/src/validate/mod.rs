//! What may be written: every admission rule about topologies.
//!
//! A review reports all violated rules together, each with the field, the sentence for the author and the cause as
//! Kubernetes spells it. Who the caller is and how many pods are scheduled are inputs, read live by whoever asks.
//!
//! What a schema or a CEL rule of the API already refuses (two spellings of one word, a constraint in the wrong place)
//! never gets here and is not judged again. The levels of a topology are the exception: `grove plan` reads them from
//! files that no API server has seen.

mod set;
mod set_update;
mod topology;

pub use set::{SetReview, default_constraint, review_set};
pub use set_update::changes_topology;
pub use topology::{ClusterTopologyReview, Request, changes_levels, review_cluster_topology, review_topology_domain};

/// What is wrong with a field, in the words of `details.causes` of a Kubernetes answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Invalid,
    Forbidden,
    NotFound,
    Duplicate,
}

impl Cause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::Duplicate => "FieldValueDuplicate",
        }
    }
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub field: String,
    pub cause: Cause,
    pub message: String,
}

impl Violation {
    fn new(field: impl Into<String>, cause: Cause, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            cause,
            message: message.into(),
        }
    }
}

/// What a review found. The write is admitted when no rule is violated; warnings are for whoever wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    pub warnings: Vec<String>,
}

impl Verdict {
    pub fn is_admitted(&self) -> bool {
        self.violations.is_empty()
    }
}
