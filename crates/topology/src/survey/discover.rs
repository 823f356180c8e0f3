//! A topology that the labels of nodes suggest.
//!
//! A label counts as a level when its key is known to be one or ends in one of the seven words, and when its domains nest
//! in those of the broader levels. What an admin must still judge is said in the notes.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::topology::{ClusterTopologySpec, DomainWord, HOSTNAME_LABEL, TopologyLevel};
use serde::Serialize;

use super::NodeLabels;

/// Keys that clouds and fabric tools use, and what they mean. `topology.kubernetes.io/…` needs no entry: it ends in words.
const KNOWN: [(&str, DomainWord); 5] = [
    ("network.topology.nvidia.com/core", DomainWord::Datacenter),
    ("network.topology.nvidia.com/spine", DomainWord::Block),
    ("network.topology.nvidia.com/leaf", DomainWord::Rack),
    ("network.topology.nvidia.com/accelerator", DomainWord::Rack),
    ("nvidia.com/gpu.clique", DomainWord::Rack),
];

/// A label that looks like a level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    pub key: String,
    pub word: DomainWord,
    /// How many domains it makes.
    pub domains: usize,
    /// How many nodes carry it.
    pub nodes: usize,
    pub is_proposed: bool,
    /// Why it is not proposed, or what to mind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A topology, and how it came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    pub spec: ClusterTopologySpec,
    /// Broadest first.
    pub candidates: Vec<Candidate>,
}

/// The topology that these nodes suggest; none where no label besides the host's looks like a level.
pub fn discover(nodes: &[NodeLabels]) -> Option<Proposal> {
    let mut candidates = candidates(nodes);
    let mut chosen: Vec<(DomainWord, String)> = Vec::new();
    for candidate in &mut candidates {
        let broader = chosen.last().map(|(_, key)| key.as_str());
        candidate.note = match broader.and_then(|broader| torn_domain(nodes, [broader, &candidate.key])) {
            _ if chosen.iter().any(|(word, _)| *word == candidate.word) => {
                format!("another label is proposed for {}", candidate.word)
            }
            Some((domain, broader)) => format!("{domain} is in several domains of {broader}"),
            None => {
                candidate.is_proposed = true;
                chosen.push((candidate.word, candidate.key.clone()));
                match nodes.len() - candidate.nodes {
                    0 => String::new(),
                    missing => format!("{missing} nodes lack it"),
                }
            }
        };
    }
    if chosen.iter().all(|(word, _)| *word == DomainWord::Host) {
        return None;
    }
    let levels = chosen.into_iter().map(|(domain, key)| TopologyLevel { domain, key });
    let spec = ClusterTopologySpec {
        levels: levels.collect(),
    };
    Some(Proposal { spec, candidates })
}

/// All labels that look like a level: broadest first, then those that most nodes carry.
fn candidates(nodes: &[NodeLabels]) -> Vec<Candidate> {
    let mut found: BTreeMap<&str, (DomainWord, BTreeSet<&str>, usize)> = BTreeMap::new();
    for node in nodes {
        for key in node.labels.keys() {
            let (Some(word), Some(domain)) = (word_of(key), node.domain(key)) else {
                continue;
            };
            let (_, domains, count) = found.entry(key).or_insert((word, BTreeSet::new(), 0));
            domains.insert(domain);
            *count += 1;
        }
    }
    let mut candidates: Vec<Candidate> = found
        .into_iter()
        .map(|(key, (word, domains, nodes))| Candidate {
            key: key.to_owned(),
            word,
            domains: domains.len(),
            nodes,
            is_proposed: false,
            note: String::new(),
        })
        .collect();
    candidates.sort_by(|a, b| (a.word, b.nodes, &a.key).cmp(&(b.word, a.nodes, &b.key)));
    candidates
}

/// The level that a label key stands for.
fn word_of(key: &str) -> Option<DomainWord> {
    if key == HOSTNAME_LABEL {
        return Some(DomainWord::Host);
    }
    let known = KNOWN.iter().find(|(known, _)| *known == key).map(|(_, word)| *word);
    known.or_else(|| {
        let name = key.rsplit('/').next()?;
        let last = name.rsplit(['-', '_', '.']).next()?;
        // The kubelet's label is the only one for hosts, and none exists for what is inside them.
        let words = DomainWord::ALL.into_iter().filter(|word| *word < DomainWord::Host);
        words.into_iter().find(|word| word.as_str() == last)
    })
}

/// A domain of the narrower level that is in several of the broader one.
fn torn_domain<'a>(nodes: &'a [NodeLabels], [broad, narrow]: [&'a str; 2]) -> Option<(String, String)> {
    let mut outer: BTreeMap<&str, &str> = BTreeMap::new();
    for node in nodes {
        let (Some(around), Some(domain)) = (node.domain(broad), node.domain(narrow)) else {
            continue;
        };
        if *outer.entry(domain).or_insert(around) != around {
            return Some((domain.to_owned(), broad.to_owned()));
        }
    }
    None
}
