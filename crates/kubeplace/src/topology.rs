//! Topologies as the engine takes them.

use grove_api::topology::HOSTNAME_LABEL;
use grove_placement::{Level, TopologySpec};
use grove_topology::Topology;

/// Levels broad to narrow, with the one that is the node itself marked.
pub fn spec(topology: &Topology) -> TopologySpec {
    let mut levels: Vec<Level> = topology
        .levels()
        .iter()
        .map(|level| Level {
            word: level.word.clone(),
            key: level.key.clone(),
        })
        .collect();
    let node_keys = topology.node_keys();
    let last = node_keys.len().saturating_sub(1);
    // The narrowest level that nodes have labels for is the node when it is the host's, and when others lie below it.
    let ends_at_host = node_keys.last() == Some(&HOSTNAME_LABEL) || levels.len() > node_keys.len();
    let is_listed = levels
        .get(last)
        .is_some_and(|level| Some(&level.key.as_str()) == node_keys.last());
    if ends_at_host && !is_listed {
        levels.insert(
            last,
            Level {
                word: "host".to_owned(),
                key: HOSTNAME_LABEL.to_owned(),
            },
        );
    }
    TopologySpec {
        name: topology.name().to_owned(),
        host: (ends_at_host && !levels.is_empty()).then_some(last),
        levels,
    }
}
