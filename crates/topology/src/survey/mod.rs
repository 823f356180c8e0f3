//! What the nodes say about a topology: the domains that they form, what is wrong with their labels, and which topology
//! they suggest.
//!
//! Looks at names and labels of nodes only. How much room a domain has is the scheduler's to say.

mod check;
mod discover;
mod tree;

use std::collections::BTreeMap;

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
