//! What the nodes say about a topology: the domains that they form, what is wrong with their labels, and which topology
//! they suggest.
//!
//! How much of a domain is free is the scheduler's to say; what could not fit even an empty one is said here.

mod capacity;
mod check;
mod discover;
mod tree;

use std::collections::BTreeMap;

pub use capacity::{Amounts, Capacity, check_capacity};
pub use check::{Finding, Severity, check_constraints, check_nodes};
pub use discover::{Candidate, Proposal, discover};
pub use tree::{Domain, tree, unlabelled};

/// A node, as far as topologies are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

impl NodeLabels {
    /// The domain that the node is in; a label without a value names none.
    fn domain(&self, key: &str) -> Option<&str> {
        let value = self.labels.get(key).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Its domains at these levels, broadest first; none unless it has all of them.
    fn path(&self, keys: &[&str]) -> Option<Vec<&str>> {
        keys.iter().map(|key| self.domain(key)).collect()
    }
}
