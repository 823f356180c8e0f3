//! A trace of gangs that come and go on a cluster, placed by one rule: what the rule makes of the same days.
//!
//! Whoever does not fit when it comes is turned away and does not come again, so that rules differ by what they let in. The
//! rules beside the engine are what schedulers do that place host by host.

use std::collections::{BTreeMap, BTreeSet};

use crate::bench::pod_group;
use crate::{
    Assignment, Budget, Cluster, Gang, Level, NodeId, NodeSpec, Outcome, Pack, Policy, Resource, Shape, ShapeId,
    Solver, TopologyId, TopologySpec, Traits,
};

/// GPUs, thousandths of a core, MiB.
type Vector = [u64; 3];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceHost {
    pub name: String,
    pub block: u32,
    /// Never in two blocks.
    pub rack: u32,
    pub has: Vector,
}

/// Alike pods that come and go together. More than one of them require one block, and prefer one rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceGang {
    pub pods: u32,
    pub asks: Vector,
    pub starts: u64,
    pub ends: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub hosts: Vec<TraceHost>,
    /// In the order in which they come.
    pub gangs: Vec<TraceGang>,
}

/// Who says where pods go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Blocks and hosts in their order.
    FirstFit,
    /// Blocks in their order, and in each the host first that has the fewest GPUs left.
    BestFit,
    /// The fullest rack that holds all of the gang, else the fullest block; then as best fit.
    TightestDomain,
    Engine(Policy),
}

/// What came of it. GPU-time is in the trace's unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub gangs: usize,
    pub gpu_time: u64,
    /// Gangs of more than one pod, and how many racks and hosts they were on.
    pub together: usize,
    pub racks: usize,
    pub hosts: usize,
    /// Free GPUs of hosts of which some are taken, over the time.
    pub stranded: u64,
}

impl TraceGang {
    pub fn gpu_time(&self) -> u64 {
        u64::from(self.pods) * self.asks[0] * self.ends.saturating_sub(self.starts)
    }
}

/// Hosts, by their number in the trace, and how many pods each gets.
type Places = Vec<(usize, u32)>;

/// A gang takes its places, or leaves them.
#[derive(Clone, Copy, Debug)]
pub enum Moment<'a> {
    Comes(&'a TraceGang, &'a [(usize, u32)]),
    Goes(&'a TraceGang, &'a [(usize, u32)]),
}

trait Placer {
    /// Places a gang and takes the room, or changes nothing.
    fn place(&mut self, gang: &TraceGang) -> Option<Places>;
    fn release(&mut self, gang: &TraceGang, places: &Places);
}

/// Plays a trace by a rule; `watch` sees every moment of it.
pub fn replay(trace: &Trace, rule: Rule, watch: impl FnMut(Moment)) -> Replayed {
    match rule {
        Rule::Engine(policy) => play(trace, &mut Engine::new(trace, policy), watch),
        rule => play(trace, &mut Greedy::new(trace, rule), watch),
    }
}

fn play(trace: &Trace, placer: &mut impl Placer, mut watch: impl FnMut(Moment)) -> Replayed {
    let mut sum = Replayed::default();
    let mut leaves: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut running: BTreeMap<usize, Places> = BTreeMap::new();
    let mut waste = Waste::new(trace);
    for (number, gang) in trace.gangs.iter().enumerate() {
        while let Some((time, leaver)) = leaves.first().copied().filter(|(time, _)| *time <= gang.starts) {
            leaves.pop_first();
            waste.pass(time);
            let gone = &trace.gangs[leaver];
            if let Some(places) = running.remove(&leaver) {
                placer.release(gone, &places);
                watch(Moment::Goes(gone, &places));
                waste.change(gone, &places, |free, gpus| free + gpus);
            }
        }
        waste.pass(gang.starts);
        let Some(places) = placer.place(gang) else { continue };
        watch(Moment::Comes(gang, &places));
        sum.gangs += 1;
        sum.gpu_time += gang.gpu_time();
        if gang.pods > 1 {
            let racks: BTreeSet<u32> = places.iter().map(|(host, _)| trace.hosts[*host].rack).collect();
            sum.together += 1;
            sum.racks += racks.len();
            sum.hosts += places.len();
        }
        waste.change(gang, &places, u64::saturating_sub);
        leaves.insert((gang.ends, number));
        running.insert(number, places);
    }
    sum.stranded = waste.over_time;
    sum
}

/// Follows the free GPUs of hosts that are broken into.
struct Waste {
    has: Vec<u64>,
    free: Vec<u64>,
    now: u64,
    stranded: u64,
    over_time: u64,
}

impl Waste {
    fn new(trace: &Trace) -> Self {
        let has: Vec<u64> = trace.hosts.iter().map(|host| host.has[0]).collect();
        Self {
            free: has.clone(),
            has,
            now: 0,
            stranded: 0,
            over_time: 0,
        }
    }

    fn pass(&mut self, time: u64) {
        self.over_time += self.stranded * time.saturating_sub(self.now);
        self.now = self.now.max(time);
    }

    fn change(&mut self, gang: &TraceGang, places: &Places, change: impl Fn(u64, u64) -> u64) {
        for (host, pods) in places {
            self.stranded -= self.of(*host);
            self.free[*host] = change(self.free[*host], gang.asks[0] * u64::from(*pods));
            self.stranded += self.of(*host);
        }
    }

    fn of(&self, host: usize) -> u64 {
        if self.free[host] < self.has[host] {
            self.free[host]
        } else {
            0
        }
    }
}

/// Places host by host.
struct Greedy {
    rule: Rule,
    free: Vec<Vector>,
    blocks: Vec<Vec<usize>>,
    racks: Vec<Vec<usize>>,
}

impl Greedy {
    fn new(trace: &Trace, rule: Rule) -> Self {
        let by = |domain: fn(&TraceHost) -> u32| {
            let mut domains: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
            for (number, host) in trace.hosts.iter().enumerate() {
                domains.entry(domain(host)).or_default().push(number);
            }
            domains.into_values().collect()
        };
        Self {
            rule,
            free: trace.hosts.iter().map(|host| host.has).collect(),
            blocks: by(|host| host.block),
            racks: by(|host| host.rack),
        }
    }

    /// The hosts of a domain in the order in which the rule fills them.
    fn ordered(&self, domain: &[usize]) -> Vec<usize> {
        let mut hosts = domain.to_vec();
        if self.rule != Rule::FirstFit {
            hosts.sort_by_key(|host| (self.free[*host][0], *host));
        }
        hosts
    }

    /// Domains, the fullest first.
    fn fullest<'a>(&self, domains: &'a [Vec<usize>]) -> Vec<&'a Vec<usize>> {
        let free = |domain: &Vec<usize>| domain.iter().map(|host| self.free[*host][0]).sum::<u64>();
        let mut domains: Vec<&Vec<usize>> = domains.iter().collect();
        domains.sort_by_cached_key(|domain| free(domain));
        domains
    }

    /// All pods of a gang on the hosts of one domain.
    fn fill(&self, gang: &TraceGang, domain: &[usize]) -> Option<Places> {
        let mut left = gang.pods;
        let mut places = Places::new();
        for host in self.ordered(domain) {
            let fit = fit(&self.free[host], &gang.asks).min(left);
            if fit > 0 {
                places.push((host, fit));
                left -= fit;
            }
            if left == 0 {
                return Some(places);
            }
        }
        None
    }

    fn find(&self, gang: &TraceGang) -> Option<Places> {
        if gang.pods == 1 {
            let all: Vec<usize> = (0..self.free.len()).collect();
            return self.fill(gang, &all);
        }
        if self.rule != Rule::TightestDomain {
            return self.blocks.iter().find_map(|block| self.fill(gang, block));
        }
        let racks = self.fullest(&self.racks);
        let blocks = self.fullest(&self.blocks);
        racks
            .into_iter()
            .chain(blocks)
            .find_map(|domain| self.fill(gang, domain))
    }

    fn change(&mut self, gang: &TraceGang, places: &Places, change: impl Fn(u64, u64) -> u64) {
        for (host, pods) in places {
            for (free, asks) in self.free[*host].iter_mut().zip(gang.asks) {
                *free = change(*free, asks * u64::from(*pods));
            }
        }
    }
}

/// How many pods fit.
fn fit(free: &Vector, asks: &Vector) -> u32 {
    let fits = free.iter().zip(asks).filter(|(_, asks)| **asks > 0);
    let least = fits.map(|(free, asks)| free / asks).min().unwrap_or(u64::MAX);
    u32::try_from(least).unwrap_or(u32::MAX)
}

impl Placer for Greedy {
    fn place(&mut self, gang: &TraceGang) -> Option<Places> {
        let places = self.find(gang)?;
        self.change(gang, &places, u64::saturating_sub);
        Some(places)
    }

    fn release(&mut self, gang: &TraceGang, places: &Places) {
        self.change(gang, places, |free, given| free + given);
    }
}

/// Places as Grove does.
struct Engine {
    cluster: Cluster,
    topology: TopologyId,
    resources: [Resource; 3],
    solver: Solver,
}

impl Engine {
    fn new(trace: &Trace, policy: Policy) -> Self {
        let mut cluster = Cluster::new();
        let resources = ["gpu", "cpu", "memory"].map(|name| cluster.resource(name));
        let level = |word: &str| Level {
            word: word.to_owned(),
            key: word.to_owned(),
        };
        let topology = cluster.set_topology(TopologySpec {
            name: "trace".to_owned(),
            levels: ["block", "rack", "host"].map(level).to_vec(),
            host: Some(2),
        });
        // Nodes are numbered in the order of the hosts.
        for host in &trace.hosts {
            let labels = [("block", host.block), ("rack", host.rack)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_string()));
            cluster.set_node(NodeSpec {
                traits: Traits {
                    name: host.name.clone(),
                    labels: labels.into(),
                    ..Traits::default()
                },
                allocatable: resources.into_iter().zip(host.has).collect(),
            });
        }
        Self {
            cluster,
            topology,
            resources,
            solver: Solver::with_policy(policy),
        }
    }

    fn shape(&mut self, gang: &TraceGang) -> ShapeId {
        let requests = self.resources.into_iter().zip(gang.asks).collect();
        self.cluster.shape(&Shape {
            requests,
            ..Shape::default()
        })
    }

    fn gang(&mut self, gang: &TraceGang) -> Gang {
        let shape = self.shape(gang);
        let level = |word: &str| (gang.pods > 1).then(|| word.to_owned());
        Gang {
            name: String::new(),
            topology: self.topology,
            replica: None,
            pack: Pack {
                required: level("block"),
                preferred: level("rack"),
            },
            groups: Vec::new(),
            pod_groups: vec![pod_group("workers", Pack::default(), gang.pods, shape)],
        }
    }
}

impl Placer for Engine {
    fn place(&mut self, gang: &TraceGang) -> Option<Places> {
        let wanted = self.gang(gang);
        let Outcome::Placed(plan) = self.solver.solve(&mut self.cluster, &wanted, Budget::default()) else {
            return None;
        };
        // A plan that was just made fits; if it did not, the gang would count as turned away.
        self.cluster.commit(&plan.assignments).ok()?;
        let place = |assignment: &Assignment| (assignment.node.0 as usize, assignment.pods);
        Some(plan.assignments.iter().map(place).collect())
    }

    fn release(&mut self, gang: &TraceGang, places: &Places) {
        let shape = self.shape(gang);
        let assignment = |(host, pods): &(usize, u32)| Assignment {
            pod_group: 0,
            node: NodeId(*host as u32),
            cell: None,
            shape,
            pods: *pods,
        };
        let assignments: Vec<Assignment> = places.iter().map(assignment).collect();
        self.cluster.release(&assignments);
    }
}
