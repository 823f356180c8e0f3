//! A topology as every rule sees it: words and node label keys, from the broadest level to the narrowest, whichever
//! kind of object they were read from.
//!
//! Owns the order of levels and the cut at the host, below which no node label exists. Does not know which topology a
//! workload uses ([`crate::resolve`]) nor which domains the nodes are in (that is the scheduler's).

use std::cmp::Ordering;
use std::fmt;

use grove_api::topology::{DomainWord, HOSTNAME_LABEL};
use grove_api::{ClusterTopology, ClusterTopologyBinding, TopologyDomain};

/// The kinds of object that hold a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopologyKind {
    ClusterTopology,
    TopologyDomain,
    ClusterTopologyBinding,
}

impl TopologyKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterTopology => "ClusterTopology",
            Self::TopologyDomain => "TopologyDomain",
            Self::ClusterTopologyBinding => "ClusterTopologyBinding",
        }
    }
}

impl fmt::Display for TopologyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word and the node label that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub word: String,
    pub key: String,
}

/// Levels, broadest first. No word and no key occurs twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    kind: TopologyKind,
    name: String,
    levels: Vec<Level>,
}

impl Topology {
    /// `levels` as listed. A level that repeats a word or a key says nothing new and is left out: the schemas of our
    /// own kinds refuse it, but a ClusterTopologyBinding is somebody else's.
    fn new(kind: TopologyKind, name: Option<&String>, levels: impl Iterator<Item = Level>) -> Self {
        let mut kept: Vec<Level> = Vec::new();
        for level in levels {
            if !kept
                .iter()
                .any(|other| other.word == level.word || other.key == level.key)
            {
                kept.push(level);
            }
        }
        Self {
            kind,
            name: name.cloned().unwrap_or_default(),
            levels: kept,
        }
    }

    pub fn kind(&self) -> TopologyKind {
        self.kind
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// All levels, broadest first.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The node label key that `word` stands for.
    pub fn key(&self, word: &str) -> Option<&str> {
        self.levels
            .iter()
            .find(|level| level.word == word)
            .map(|level| level.key.as_str())
    }

    /// The narrowest level.
    pub fn strictest(&self) -> Option<&Level> {
        self.levels.last()
    }

    /// How narrow the level of `key` is: 0 is the broadest.
    pub fn depth(&self, key: &str) -> Option<usize> {
        self.levels.iter().position(|level| level.key == key)
    }

    /// The labels that tell where a node is, broadest first: the levels down to the host. Other schedulers take
    /// nothing below it, and no node is expected to carry a label for it.
    ///
    /// A topology with a level below the host but none for the host itself still gets one here: whatever shares a
    /// NUMA node shares a host, and a constraint needs a level that it can be clamped to.
    pub fn node_keys(&self) -> Vec<&str> {
        let mut keys = Vec::new();
        for (index, level) in self.levels.iter().enumerate() {
            if self.lies_below_host(index) {
                let ends_at_host = index > 0 && self.is_host(&self.levels[index - 1]);
                if !ends_at_host {
                    keys.push(HOSTNAME_LABEL);
                }
                break;
            }
            keys.push(level.key.as_str());
        }
        keys
    }

    /// The key under which a constraint on `key` reaches another scheduler: `key` itself, or that of the host for what
    /// is below it. `None` where `key` is no level of this topology.
    pub fn node_key(&self, key: &str) -> Option<&str> {
        let keys = self.node_keys();
        let depth = self.depth(key)?;
        keys.get(depth).or(keys.last()).copied()
    }

    /// Whether the level of `word` lies inside a host: nodes have no label for it.
    pub fn is_below_host(&self, word: &str) -> bool {
        let index = self.levels.iter().position(|level| level.word == word);
        index.is_some_and(|index| self.lies_below_host(index))
    }

    fn is_host(&self, level: &Level) -> bool {
        level.key == HOSTNAME_LABEL || (self.is_by_meaning() && level.word == DomainWord::Host.as_str())
    }

    /// Free words have no meaning of their own, so there only the kubelet's label tells the host.
    fn lies_below_host(&self, index: usize) -> bool {
        let after_host = self.levels[..index].iter().any(|level| self.is_host(level));
        after_host || (self.is_by_meaning() && self.levels[index].word == DomainWord::Numa.as_str())
    }

    fn is_by_meaning(&self) -> bool {
        self.kind == TopologyKind::ClusterTopology
    }
}

/// By meaning, however the levels are listed.
impl From<&ClusterTopology> for Topology {
    fn from(object: &ClusterTopology) -> Self {
        let mut levels: Vec<_> = object.spec.levels.iter().collect();
        levels.sort_by_key(|level| level.domain);
        let levels = levels.into_iter().map(|level| Level {
            word: level.domain.as_str().to_owned(),
            key: level.key.clone(),
        });
        Self::new(TopologyKind::ClusterTopology, object.metadata.name.as_ref(), levels)
    }
}

/// In the order of the list.
impl From<&TopologyDomain> for Topology {
    fn from(object: &TopologyDomain) -> Self {
        let levels = object.spec.levels.iter().map(|level| Level {
            word: level.name.clone(),
            key: level.topology_key.clone(),
        });
        Self::new(TopologyKind::TopologyDomain, object.metadata.name.as_ref(), levels)
    }
}

/// In the order of the list.
impl From<&ClusterTopologyBinding> for Topology {
    fn from(object: &ClusterTopologyBinding) -> Self {
        let levels = object.spec.levels.iter().map(|level| Level {
            word: level.domain.clone(),
            key: level.key.clone(),
        });
        Self::new(
            TopologyKind::ClusterTopologyBinding,
            object.metadata.name.as_ref(),
            levels,
        )
    }
}

/// `Less` where `word` is broader than `other`, `Greater` where it is narrower, `None` where nobody can tell.
///
/// The order of the topology counts where it has both words; else the meaning of the seven, so that a workload is told
/// that a rack is wider than a host also where neither is configured.
pub fn compare_words(topology: Option<&Topology>, word: &str, other: &str) -> Option<Ordering> {
    if word == other {
        return Some(Ordering::Equal);
    }
    let position = |topology: &Topology, word| topology.levels.iter().position(|level| level.word == word);
    let listed = topology.and_then(|topology| Some(position(topology, word)?.cmp(&position(topology, other)?)));
    listed.or_else(|| Some(meaning(word)?.cmp(&meaning(other)?)))
}

/// `word` as one of the seven.
pub(crate) fn meaning(word: &str) -> Option<DomainWord> {
    word.parse().ok()
}
