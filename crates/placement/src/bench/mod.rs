//! What measurements run on: a cluster that is as full as real ones, gangs of many sizes, queues of gangs on 1,000
//! hosts that other schedulers have been measured on, and traces of gangs that come and go. Pure like the rest: whoever measures brings the clock.

mod queue;
mod replay;

pub use queue::{Queue, QueueGang, QueueHost, Result as QueueResult, Tally, place_all, tally};
pub use replay::{Moment, Replayed, Rule, Trace, TraceGang, TraceHost, replay};

use std::collections::BTreeMap;

use crate::{
    Amounts, Cluster, Gang, Level, NodeSpec, Pack, PodGroup, Resource, Shape, ShapeId, TopologyId, TopologySpec, Traits,
};

/// A cluster of 8-GPU hosts: 16 hosts a rack, 16 racks a block; 35 % of the hosts are empty, 25 % full, the rest mixed.
#[derive(Debug)]
pub struct Instance {
    pub cluster: Cluster,
    pub topology: TopologyId,
    resources: [Resource; 4],
}

/// One gang to measure.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub pods: u32,
    pub gang: Gang,
}

impl Instance {
    pub fn new(nodes: usize) -> Self {
        let mut cluster = Cluster::new();
        let resources = ["gpu", "cpu", "memory", "pods"].map(|name| cluster.resource(name));
        let level = |word: &str| Level {
            word: word.to_owned(),
            key: format!("bench/{word}"),
        };
        let levels = ["block", "rack", "host"].map(level).to_vec();
        let topology = cluster.set_topology(TopologySpec {
            name: "bench".to_owned(),
            levels,
            host: Some(2),
        });
        let mut instance = Instance {
            cluster,
            topology,
            resources,
        };
        let mut noise = 42_u64;
        let mut roll = |sides: u64| {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise % sides
        };
        for index in 0..nodes {
            let used = match roll(100) {
                0..35 => 0,
                35..60 => 8,
                _ => 1 + roll(7),
            };
            instance.add_host(index, used);
        }
        instance
    }

    fn add_host(&mut self, index: usize, used: u64) {
        let label = |word: &str, value: usize| (format!("bench/{word}"), format!("{word}{value}"));
        let labels = BTreeMap::from([label("block", index / 256), label("rack", index / 16)]);
        let traits = Traits {
            name: format!("n{index:06}"),
            labels,
            ..Traits::default()
        };
        let node = self.cluster.set_node(NodeSpec {
            traits,
            allocatable: self.amounts([8, 96_000, 1_000, 110]),
        });
        self.cluster
            .take(node, &self.amounts([used, used * 11_000, used * 100, used]));
    }

    fn amounts(&self, amounts: [u64; 4]) -> Amounts {
        self.resources.into_iter().zip(amounts).collect()
    }

    /// The shape of a pod with some GPUs and its share of the host. `variant` makes it another shape of the same size.
    pub fn shape(&mut self, gpus: u64, variant: u64) -> ShapeId {
        let requests = self.amounts([gpus, gpus * 10_000 - variant, gpus * 90, 1]);
        self.cluster.shape(&Shape {
            requests,
            ..Shape::default()
        })
    }

    /// A gang of one pod-group.
    pub fn gang(&self, required: Option<&str>, preferred: Option<&str>, pods: u32, shape: ShapeId) -> Gang {
        let pack = Pack {
            required: required.map(str::to_owned),
            preferred: preferred.map(str::to_owned),
        };
        Gang {
            name: "gang".to_owned(),
            topology: self.topology,
            replica: None,
            pack,
            groups: Vec::new(),
            pod_groups: vec![pod_group("workers", Pack::default(), pods, shape)],
        }
    }

    /// One pod-group: required rack, required block, preferred rack; then three pod-groups nested under one block.
    pub fn cases(&mut self) -> Vec<Case> {
        let single = [
            ("required", "rack", [(8, 1), (64, 1), (4, 8), (8, 8)].as_slice()),
            (
                "required",
                "block",
                &[(8, 1), (64, 1), (256, 1), (1000, 1), (64, 8), (1000, 8)],
            ),
            (
                "preferred",
                "rack",
                &[(8, 1), (64, 1), (256, 1), (1000, 1), (64, 8), (256, 8), (1000, 8)],
            ),
        ];
        let mut cases = Vec::new();
        for (kind, level, sizes) in single {
            for (pods, gpus) in sizes {
                let shape = self.shape(*gpus, 0);
                let (required, preferred) = if kind == "required" {
                    (Some(level), None)
                } else {
                    (None, Some(level))
                };
                let gang = self.gang(required, preferred, *pods, shape);
                cases.push(Case {
                    name: format!("{pods} x {gpus} GPU {kind} {level}"),
                    pods: *pods,
                    gang,
                });
            }
        }
        cases.push(self.nested_case());
        cases
    }

    /// Two pods of eight GPUs for each of two roles, which have a rack each, in one block.
    pub fn two_roles(&mut self) -> Gang {
        let rack = Pack {
            required: Some("rack".to_owned()),
            preferred: None,
        };
        let whole_host = self.shape(8, 0);
        let mut gang = self.gang(Some("block"), None, 0, whole_host);
        gang.pod_groups = ["prefill", "decode"]
            .map(|name| pod_group(name, rack.clone(), 2, whole_host))
            .to_vec();
        gang
    }

    fn nested_case(&mut self) -> Case {
        let rack = Pack {
            required: Some("rack".to_owned()),
            preferred: None,
        };
        let (decode, prefill, router) = (self.shape(8, 0), self.shape(4, 0), self.shape(1, 0));
        let mut gang = self.gang(Some("block"), None, 0, router);
        gang.pod_groups = vec![
            pod_group("prefill", rack.clone(), 6, prefill),
            pod_group("decode", rack, 6, decode),
            pod_group("router", Pack::default(), 4, router),
        ];
        Case {
            name: "6 x 4 + 6 x 8 + 4 x 1 GPU nested in a block".to_owned(),
            pods: 16,
            gang,
        }
    }
}

fn pod_group(name: &str, pack: Pack, pods: u32, shape: ShapeId) -> PodGroup {
    PodGroup {
        name: name.to_owned(),
        group: None,
        pack,
        shape,
        minimum: pods,
        desired: pods,
        bound: Vec::new(),
    }
}
