//! Admission of PodCliqueSets, in the words of the scenarios.

mod topologies;
mod updates;
mod words;

use grove_api::config::TopologyAwareScheduling;
use grove_api::{ClusterTopology, PodCliqueSet, TopologyConstraint};
use grove_topology::resolve::Found;
use grove_topology::validate::{SetReview, Verdict, review_set};

use crate::fixtures::{enabled, grove_topology, packed};

const ALL: [&str; 7] = ["region", "zone", "datacenter", "block", "rack", "host", "numa"];

fn found(object: &ClusterTopology) -> Found<'_> {
    Found {
        cluster_topology: Some(object),
        ..Found::default()
    }
}

fn create(new: &PodCliqueSet, tas: &TopologyAwareScheduling, found: Found<'_>) -> Verdict {
    review_set(&SetReview {
        old: None,
        new,
        tas,
        found,
        scheduled_pods: 0,
        unenforceable: None,
        why_host: None,
    })
}

fn update(old: &PodCliqueSet, new: &PodCliqueSet, tas: &TopologyAwareScheduling, found: Found<'_>) -> Verdict {
    review_set(&SetReview {
        old: Some(old),
        new,
        tas,
        found,
        scheduled_pods: 3,
        unenforceable: None,
        why_host: None,
    })
}

/// Created where `grove-topology` has all seven levels.
fn created(new: &PodCliqueSet) -> Verdict {
    create(new, &enabled(""), found(&grove_topology(&ALL)))
}

fn messages(verdict: &Verdict) -> Vec<&str> {
    verdict
        .violations
        .iter()
        .map(|violation| violation.message.as_str())
        .collect()
}

fn on(topology: &str, word: &str) -> TopologyConstraint {
    TopologyConstraint {
        topology_name: Some(topology.to_owned()),
        ..packed(word)
    }
}
