//! Fake GPU nodes in zones, blocks and racks: what `grove cluster` and `grove demo` run on.
//!
//! Pure: a description in, nodes out.

use grove_simcluster::NodeSpec;
use serde::Deserialize;

/// Label keys of the levels, and so what a topology of these nodes names.
pub(crate) const LEVELS: [(&str, &str); 4] = [
    ("zone", "topology.kubernetes.io/zone"),
    ("block", "topology.kubernetes.io/block"),
    ("rack", "topology.kubernetes.io/rack"),
    ("host", "kubernetes.io/hostname"),
];

/// More would be a benchmark, not a demonstration.
pub(crate) const NODES_MAX: usize = 10_000;

/// Up to here a cluster has zones of 32 hosts, beyond it of 2048.
const SMALL_MAX: usize = 512;

/// How many of each are inside the next larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Racks {
    pub(crate) zones: usize,
    pub(crate) blocks: usize,
    pub(crate) racks: usize,
    pub(crate) hosts: usize,
    #[serde(default = "eight")]
    pub(crate) gpus_per_host: u32,
}

fn eight() -> u32 {
    8
}

impl Racks {
    /// The demo's shape, two blocks a zone and four racks of four hosts a block, with as many zones as `nodes` needs. A
    /// large cluster has larger ones: nobody builds three hundred zones.
    pub(crate) fn holding(nodes: usize) -> Self {
        let (blocks, racks, hosts) = match nodes {
            ..=SMALL_MAX => (2, 4, 4),
            _ => (8, 16, 16),
        };
        let zones = nodes.div_ceil(blocks * racks * hosts).max(1);
        Self {
            zones,
            blocks,
            racks,
            hosts,
            gpus_per_host: eight(),
        }
    }

    /// How many hosts there are; none when the number is beyond counting.
    pub(crate) fn count(&self) -> Option<usize> {
        [self.blocks, self.racks, self.hosts]
            .into_iter()
            .try_fold(self.zones, usize::checked_mul)
    }

    /// The nodes, host by host. A name says where its host is: `z1b2r3h4`.
    pub(crate) fn nodes(self) -> impl Iterator<Item = NodeSpec> {
        let gpus = self.gpus_per_host.to_string();
        each(self.zones).flat_map(move |zone| {
            let gpus = gpus.clone();
            each(self.blocks).flat_map(move |block| {
                let gpus = gpus.clone();
                each(self.racks).flat_map(move |rack| {
                    let gpus = gpus.clone();
                    each(self.hosts).map(move |host| node([zone, block, rack, host], &gpus))
                })
            })
        })
    }
}

fn each(count: usize) -> std::ops::RangeInclusive<usize> {
    1..=count
}

fn node([zone, block, rack, host]: [usize; 4], gpus: &str) -> NodeSpec {
    let names = [
        format!("z{zone}"),
        format!("z{zone}b{block}"),
        format!("z{zone}b{block}r{rack}"),
    ];
    let node = NodeSpec::new(&format!("{}h{host}", names[2])).capacity("nvidia.com/gpu", gpus);
    LEVELS
        .iter()
        .zip(&names)
        .fold(node, |node, ((_, key), name)| node.label(key, name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sixty_four_nodes_are_two_zones_of_eight_racks() {
        let racks = Racks::holding(64);
        assert_eq!((racks.zones, racks.count()), (2, Some(64)));
        let nodes: Vec<NodeSpec> = racks.nodes().collect();
        let values = |key: &str| {
            nodes
                .iter()
                .map(|node| node.labels[key].clone())
                .collect::<BTreeSet<_>>()
                .len()
        };
        assert_eq!(values("topology.kubernetes.io/zone"), 2);
        assert_eq!(values("topology.kubernetes.io/block"), 4);
        assert_eq!(values("topology.kubernetes.io/rack"), 16);
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names.len(), 64);
        assert!(names.contains("z2b1r3h4"));
        assert_eq!(nodes[0].capacity["nvidia.com/gpu"], "8");
    }

    #[test]
    fn ten_thousand_nodes_are_five_zones() {
        let racks = Racks::holding(NODES_MAX);
        assert_eq!((racks.zones, racks.blocks, racks.racks, racks.hosts), (5, 8, 16, 16));
        assert_eq!(Racks::holding(SMALL_MAX).zones, 16);
    }

    #[test]
    fn a_shape_beyond_counting_is_none() {
        let racks = Racks {
            zones: usize::MAX,
            blocks: 2,
            racks: 1,
            hosts: 1,
            gpus_per_host: 8,
        };
        assert_eq!(racks.count(), None);
    }
}
