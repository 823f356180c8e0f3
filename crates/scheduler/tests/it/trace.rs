//! What happens to a cluster in half an hour, made from a seed: gangs come and go, nodes fail and return. And what a
//! scheduler that takes the first room it finds makes of the same: the yardstick for the real one.

use std::collections::BTreeMap;

pub(crate) const NODE_GPUS: usize = 8;

/// Blocks, racks in each, hosts in each of those.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) blocks: usize,
    pub(crate) racks: usize,
    pub(crate) hosts: usize,
}

impl Site {
    pub(crate) fn nodes(self) -> usize {
        self.blocks * self.racks * self.hosts
    }

    /// The name that the node of an index has on the embedded cluster.
    pub(crate) fn name(self, node: usize) -> String {
        let (rack, host) = (node / self.hosts, node % self.hosts);
        format!("b{}r{}h{}", rack / self.racks + 1, rack % self.racks + 1, host + 1)
    }
}

/// A gang that somebody wants for a while. Times are seconds since the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) pods: usize,
    pub(crate) gpus: usize,
    pub(crate) level: &'static str,
    pub(crate) comes: u64,
    pub(crate) goes: u64,
}

impl Job {
    pub(crate) fn gpus_in_all(&self) -> usize {
        self.pods * self.gpus
    }
}

/// A node that nobody hears of for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) node: usize,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) site: Site,
    pub(crate) seconds: u64,
    pub(crate) jobs: Vec<Job>,
    pub(crate) outages: Vec<Outage>,
}

/// Pods, GPUs of each, and the level that holds them; the smaller ones come more often.
const KINDS: [(usize, usize, &str); 8] = [
    (1, 8, "rack"),
    (1, 4, "rack"),
    (2, 8, "rack"),
    (4, 8, "rack"),
    (8, 4, "rack"),
    (8, 1, "host"),
    (5, 8, "rack"),
    (20, 8, "block"),
];

/// Seconds between two looks at the cluster.
pub(crate) const TICK: u64 = 5;

impl Trace {
    /// People ask for nine tenths of what the nodes that are up have, no more and hardly less.
    pub(crate) fn new(seed: u64, site: Site, seconds: u64) -> Self {
        let mut dice = Dice(seed);
        let outages = outages(&mut dice, site, seconds);
        let mut jobs: Vec<Job> = Vec::new();
        let mut wanted = 0;
        for now in (0..seconds).step_by(TICK as usize) {
            let gone = jobs.iter().filter(|job| job.goes == now).map(Job::gpus_in_all);
            wanted -= gone.sum::<usize>();
            let down = outages
                .iter()
                .filter(|outage| (outage.from..outage.to).contains(&now))
                .count();
            let allowed = (site.nodes() - down) * NODE_GPUS * 9 / 10;
            // At first everybody comes at once; later a few with every tick.
            let most = if now == 0 { usize::MAX } else { 1 + site.nodes() / 100 };
            for _ in 0..most {
                let (pods, gpus, level) = KINDS[dice.below(KINDS.len())];
                if wanted + pods * gpus > allowed {
                    break;
                }
                wanted += pods * gpus;
                let lasts = TICK * (24 + dice.below(160) as u64);
                jobs.push(Job {
                    name: format!("j{}", jobs.len()),
                    pods,
                    gpus,
                    level,
                    comes: now,
                    goes: now + lasts,
                });
            }
        }
        Self {
            site,
            seconds,
            jobs,
            outages,
        }
    }
}

/// Five nodes of a hundred fail, one after the other, and return after four minutes.
fn outages(dice: &mut Dice, site: Site, seconds: u64) -> Vec<Outage> {
    let mut outages: Vec<Outage> = Vec::new();
    let times: Vec<u64> = (60..seconds.saturating_sub(300)).step_by(TICK as usize).collect();
    let share = (site.nodes() / 20).max(1);
    let every = (times.len() / share).max(1);
    for from in times.into_iter().step_by(every) {
        let node = dice.below(site.nodes());
        if outages.iter().all(|known| known.node != node) {
            let to = from + 240;
            outages.push(Outage { node, from, to });
        }
    }
    outages
}

/// Numbers that a seed repeats (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Result {
    /// GPU-seconds of gangs that had all their pods on nodes.
    pub(crate) gpu_seconds: u64,
    /// Racks of the gangs that may use several, and how many such gangs there were.
    pub(crate) racks: usize,
    pub(crate) spread: usize,
}

impl Result {
    pub(crate) fn racks_per_gang(&self) -> f64 {
        self.racks as f64 / self.spread.max(1) as f64
    }
}

/// First come, first served, each on the first nodes with room in the first domain that holds all of it. A pod whose
/// node fails takes the gang with it: it starts again at the end of the queue.
pub(crate) fn first_fit(trace: &Trace) -> Result {
    let site = trace.site;
    let mut free = vec![NODE_GPUS; site.nodes()];
    let mut is_up = vec![true; site.nodes()];
    let mut queue: Vec<&Job> = Vec::new();
    let mut placed: BTreeMap<&str, (&Job, Vec<usize>)> = BTreeMap::new();
    let mut result = Result::default();
    for now in (0..trace.seconds).step_by(TICK as usize) {
        for outage in &trace.outages {
            is_up[outage.node] &= outage.from != now;
            is_up[outage.node] |= outage.to == now;
        }
        let broken = |nodes: &Vec<usize>| nodes.iter().any(|node| !is_up[*node]);
        let ended: Vec<&str> = placed
            .iter()
            .filter(|(_, (job, nodes))| job.goes <= now || broken(nodes))
            .map(|(name, _)| *name)
            .collect();
        for name in ended {
            let Some((job, nodes)) = placed.remove(name) else {
                continue;
            };
            nodes.iter().for_each(|node| free[*node] += job.gpus);
            queue.push(job);
        }
        queue.extend(trace.jobs.iter().filter(|job| job.comes == now));
        queue.retain(|job| job.goes > now);
        queue.retain(|job| match first_room(site, &free, &is_up, job) {
            None => true,
            Some(nodes) => {
                nodes.iter().for_each(|node| free[*node] -= job.gpus);
                if job.level == "block" {
                    let mut racks: Vec<usize> = nodes.iter().map(|node| node / site.hosts).collect();
                    racks.dedup();
                    result.racks += racks.len();
                    result.spread += 1;
                }
                placed.insert(&job.name, (job, nodes));
                false
            }
        });
        let gpus: usize = placed.values().map(|(job, _)| job.gpus_in_all()).sum();
        result.gpu_seconds += gpus as u64 * TICK;
    }
    result
}

/// The first nodes, in order, on which a gang has room in one domain.
fn first_room(site: Site, free: &[usize], is_up: &[bool], job: &Job) -> Option<Vec<usize>> {
    let size = match job.level {
        "host" => 1,
        "rack" => site.hosts,
        _ => site.hosts * site.racks,
    };
    (0..site.nodes()).step_by(size).find_map(|first| {
        let nodes = (first..first + size).filter(|node| is_up[*node]);
        let rooms = nodes.flat_map(|node| std::iter::repeat_n(node, free[node] / job.gpus));
        let nodes: Vec<usize> = rooms.take(job.pods).collect();
        (nodes.len() == job.pods).then_some(nodes)
    })
}
