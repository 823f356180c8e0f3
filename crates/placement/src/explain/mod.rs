//! Why a gang cannot be placed, in words that its author and the cluster's admin can act on.
//!
//! The reason is the smallest change under which the same solver would place the gang, tried from what only a person
//! can change to what time may bring. Each try runs on a copy of the cluster, so explaining is dear; solving is not.

mod scope;
mod survey;
mod words;

pub use survey::{Nearest, Obstacle};

use std::cell::RefCell;

use crate::cluster::Cluster;
use crate::gang::{Gang, Pack, PodGroup, Replica};
use crate::solve::{Budget, Outcome, Solver};
use crate::topology::ROOT;
use scope::{Hold, Scope};
use survey::{Members, fits_when_empty, may_open, nearest, room, verdict};

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The topology, or a level that the gang names, is not there.
    TopologyUnavailable,
    /// A pod is larger than every node, or barred from all of them.
    NoHostFits,
    /// The gang is larger than every domain, even an empty one.
    TooLarge,
    /// Nodes with room lack the topology's labels.
    NodesNotLabelled,
    /// It would fit if its pods might share domains with each other, or with pods that run.
    KeptApart,
    /// It would fit if cordoned or tainted nodes were open.
    NodesUnavailable,
    /// Its running pods hold it in a domain that is full; another one has room.
    ReplicaPinned,
    /// Less is free than it needs.
    InsufficientCapacity,
    /// Enough is free, but not together.
    Fragmented,
}

/// Whether waiting helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waiting {
    Helps,
    /// Somebody has to do something.
    NeedsAction,
    /// Not on this cluster.
    Futile,
}

impl Reason {
    pub fn waiting(self) -> Waiting {
        match self {
            Reason::NoHostFits | Reason::TooLarge => Waiting::Futile,
            Reason::TopologyUnavailable | Reason::NodesNotLabelled | Reason::NodesUnavailable | Reason::KeptApart => {
                Waiting::NeedsAction
            }
            Reason::ReplicaPinned | Reason::InsufficientCapacity | Reason::Fragmented => Waiting::Helps,
        }
    }
}

/// Why a gang cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub reason: Reason,
    /// One sentence: what it needs, what comes closest, what that lacks.
    pub sentence: String,
    /// The scope that does not fit, and the level that it requires.
    pub scope: String,
    pub level: Option<String>,
    /// What that scope needs: pods, what each asks for, and the level that must hold them.
    pub need: String,
    /// How many domains of that level there are.
    pub considered: usize,
    /// The domains that come closest, five at most.
    pub nearest: Vec<Nearest>,
    /// Changes under which it would fit, three at most.
    pub would_fit_if: Vec<String>,
}

const NEAREST_MAX: usize = 5;

/// Explains why the minimum of a gang cannot be placed now; none if it can, or if that cannot be decided in time.
pub fn explain(cluster: &Cluster, gang: &Gang) -> Option<Proof> {
    if let Some(proof) = words::topology_unavailable(cluster, gang) {
        return Some(proof);
    }
    let gang = minimum_of(gang);
    let mut now = cluster.what_if(false, false);
    if Solver::new().solve(&mut now, &gang, Budget::default()) != Outcome::Infeasible {
        return None;
    }
    let case = Case::new(cluster, now, &gang);
    let (reason, sentence) = case.reason();
    Some(Proof {
        reason,
        sentence,
        scope: case.scope.clone(),
        level: case.level.clone(),
        need: case.demand(),
        considered: case.nearest.len(),
        would_fit_if: case.would_fit_if(reason),
        nearest: case.nearest.iter().take(NEAREST_MAX).cloned().collect(),
    })
}

/// One scope of a gang that does not fit, and what there is for it.
struct Case<'a> {
    cluster: &'a Cluster,
    /// A copy to try things on: solving counts, so it needs one that it may change.
    trial: RefCell<Cluster>,
    gang: &'a Gang,
    members: Members<'a>,
    scope: String,
    /// The required level and its depth.
    level: Option<String>,
    depth: u8,
    /// The place that bound pods hold the scope in, and for whom they do; nothing lies outside of the root.
    hold: Hold<'a>,
    /// Every part would fit alone.
    only_together: bool,
    nearest: Vec<Nearest>,
}

impl<'a> Case<'a> {
    /// Finds the smallest scope that does not fit even alone; the gang itself if all do.
    fn new(cluster: &'a Cluster, mut trial: Cluster, gang: &'a Gang) -> Self {
        let tree = &cluster.trees[gang.topology.0 as usize];
        let alone = Scope::inner(gang).into_iter().find(|scope| {
            let members = scope.lacking();
            !members.is_empty() && !fits_alone(&mut trial, gang, scope, &members)
        });
        let only_together = alone.is_none() && Scope::whole(gang).lacking().len() > 1;
        let scope = alone.unwrap_or_else(|| Scope::whole(gang));
        let members = scope.lacking();
        let level = scope.level(cluster, tree).map(str::to_owned);
        let depth = level
            .as_ref()
            .and_then(|word| cluster.depth_of(tree, word))
            .unwrap_or(0);
        let hold = scope.hold(cluster, tree);
        let nearest = nearest(cluster, gang, &members, depth, hold.place);
        Case {
            cluster,
            trial: RefCell::new(trial),
            gang,
            members,
            scope: scope.name.to_owned(),
            level,
            depth,
            hold,
            only_together,
            nearest,
        }
    }

    fn reason(&self) -> (Reason, String) {
        if let Some(sentence) = self.no_host_fits() {
            return (Reason::NoHostFits, sentence);
        }
        if self.fits_beside_others() {
            return (Reason::KeptApart, self.say_kept_apart());
        }
        let unlabelled = self.unlabelled_room();
        let missing = self
            .nearest
            .first()
            .map_or(0, |nearest| nearest.wanted.saturating_sub(nearest.room));
        let would_help = self.depth > 0 && missing > 0 && unlabelled.1 >= missing;
        if !fits(&mut self.cluster.what_if(true, true), &unpinned(self.gang)) && !would_help {
            return (Reason::TooLarge, self.say_too_large());
        }
        if would_help {
            return (Reason::NodesNotLabelled, self.say_not_labelled(unlabelled));
        }
        if fits(&mut self.cluster.what_if(true, false), self.gang) {
            return (Reason::NodesUnavailable, self.say_unavailable());
        }
        if self.hold.place != ROOT && self.fits_now(&unpinned(self.gang)) {
            return (Reason::ReplicaPinned, self.say_pinned());
        }
        match self.lacking_amount() {
            Some(sentence) => (Reason::InsufficientCapacity, sentence),
            None => (Reason::Fragmented, self.say_fragmented()),
        }
    }

    /// Whether another gang would fit the cluster as it is.
    fn fits_now(&self, gang: &Gang) -> bool {
        fits(&mut self.trial.borrow_mut(), gang)
    }

    /// Whether the gang is kept apart, and would fit the cluster as it is if it were not.
    fn fits_beside_others(&self) -> bool {
        let mut trial = self.trial.borrow_mut();
        let gang = trial.without_marks(self.gang);
        gang != *self.gang && fits(&mut trial, &gang)
    }

    /// Eligible nodes without the topology's labels that have room: how many, and for how many pods of the tightest
    /// pod-group.
    fn unlabelled_room(&self) -> (usize, u32) {
        let tree = &self.cluster.trees[self.gang.topology.0 as usize];
        let Some(tightest) = self.tightest() else { return (0, 0) };
        let outside = self
            .cluster
            .nodes()
            .map(|node| node.0)
            .filter(|node| !tree.is_inside(*node));
        let rooms = outside
            .map(|node| u32::from(room(self.cluster, tightest, (node, None))))
            .filter(|room| *room > 0);
        rooms.fold((0, 0), |(nodes, pods), room| (nodes + 1, pods + room))
    }

    /// The pod-group that finds the least room in the domain that comes closest.
    fn tightest(&self) -> Option<&'a PodGroup> {
        let name = &self.nearest.first()?.pod_group;
        self.members.iter().find(|pod_group| pod_group.name == *name).copied()
    }

    /// A pod-group whose pods fit on no node, whatever ran there and however it were marked.
    fn pod_group_without_host(&self) -> Option<&'a PodGroup> {
        let may_fit = |pod_group: &PodGroup, node: u32| {
            may_open(verdict(self.cluster, pod_group, node)) && fits_when_empty(self.cluster, pod_group, node)
        };
        let has_host = |pod_group: &PodGroup| self.cluster.nodes().any(|node| may_fit(pod_group, node.0));
        self.members.iter().find(|pod_group| !has_host(pod_group)).copied()
    }
}

fn fits(cluster: &mut Cluster, gang: &Gang) -> bool {
    matches!(
        Solver::new().solve(cluster, gang, Budget::default()),
        Outcome::Placed(_)
    )
}

/// Whether the pods that a scope lacks fit, the rest of the gang left out but for where it holds the scope.
fn fits_alone(cluster: &mut Cluster, gang: &Gang, scope: &Scope, members: &Members) -> bool {
    let tree = &cluster.trees[gang.topology.0 as usize];
    let required = scope.level(cluster, tree).map(str::to_owned);
    let hold = scope.hold(cluster, tree);
    let replica = hold.node.map(|node| Replica {
        required: tree.word(hold.place.depth).to_owned(),
        bound: vec![node],
    });
    let mut pod_groups: Vec<PodGroup> = members.iter().map(|pod_group| (*pod_group).clone()).collect();
    for pod_group in &mut pod_groups {
        pod_group.group = None;
    }
    let alone = Gang {
        name: gang.name.clone(),
        topology: gang.topology,
        replica,
        pack: Pack {
            required,
            preferred: None,
        },
        groups: Vec::new(),
        pod_groups,
    };
    fits(cluster, &alone)
}

fn minimum_of(gang: &Gang) -> Gang {
    let mut gang = gang.clone();
    for pod_group in &mut gang.pod_groups {
        pod_group.desired = pod_group.minimum;
    }
    gang
}

/// The gang as if none of its pods ran and it belonged to no replica: only the missing ones are placed.
fn unpinned(gang: &Gang) -> Gang {
    let mut gang = gang.clone();
    gang.replica = None;
    for pod_group in &mut gang.pod_groups {
        pod_group.minimum = pod_group.missing();
        pod_group.desired = pod_group.minimum;
        pod_group.bound.clear();
    }
    gang
}
