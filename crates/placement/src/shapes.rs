//! The shapes of pods that gangs ask for: equal requests under equal rules are one shape, counted once.
//!
//! A shape's counts lag behind the cluster on purpose: every change of a node goes to one log, and a shape reads the
//! log when it is next asked. A burst of binds costs each shape one pass, and shapes that nobody asks for cost nothing.

use crate::counts::Counts;
use crate::eligibility::{Rules, Verdict};
use crate::marks::{Mark, Stance};
use crate::resources::{Amounts, Ledger, Resource};
use crate::topology::Tree;

/// Handle of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub(crate) u32);

/// What a pod asks for, and where it may go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    pub requests: Amounts,
    pub rules: Rules,
    /// What it must not share a domain with.
    pub marks: Vec<(Mark, Stance)>,
}

/// Shapes whose counts are kept at hand; the one not asked for longest makes room and is counted again on its return.
const HOT_MAX: usize = 64;

/// Nodes that changed, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    nodes: Vec<u32>,
    /// Number of entries that were dropped from the front.
    dropped: u64,
    /// Changes above which counting everything again is cheaper.
    replay_max: usize,
}

impl Log {
    pub(crate) fn push(&mut self, node: u32, nodes_total: usize) {
        if self.nodes.len() > nodes_total.max(1024) {
            let half = self.nodes.len() / 2;
            self.nodes.drain(..half);
            self.dropped += half as u64;
        }
        self.replay_max = (nodes_total / 8).max(64);
        self.nodes.push(node);
    }

    fn end(&self) -> u64 {
        self.dropped + self.nodes.len() as u64
    }

    /// What changed after `cursor`, unless that is so much that counting everything again is cheaper.
    fn since(&self, cursor: u64) -> Option<&[u32]> {
        let start = usize::try_from(cursor.checked_sub(self.dropped)?).ok()?;
        let changed = self.nodes.get(start..)?;
        (changed.len() <= self.replay_max).then_some(changed)
    }
}

/// One set of rules with its verdict on every node.
#[derive(Debug)]
pub(crate) struct RuleSet {
    pub(crate) rules: Rules,
    pub(crate) verdicts: Vec<Verdict>,
    /// What pods miss of their preferences on each node; empty when they have none.
    pub(crate) penalties: Vec<u32>,
}

impl RuleSet {
    pub(crate) fn penalty(&self, node: u32) -> u64 {
        self.penalties
            .get(node as usize)
            .map_or(0, |penalty| u64::from(*penalty))
    }
}

#[derive(Debug)]
pub(crate) struct ShapeState {
    pub(crate) requests: Amounts,
    pub(crate) marks: Vec<(Mark, Stance)>,
    scarce_first: Vec<(Resource, u64)>,
    pub(crate) rule_set: usize,
    /// How far the log is counted; `None`: nothing is counted.
    cursor: Option<u64>,
    pub(crate) rooms: Vec<u16>,
    /// By topology.
    counts: Vec<Option<Counts>>,
    last_asked: u64,
}

/// What counting reads.
pub(crate) struct Sources<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) verdicts: &'a [Verdict],
    pub(crate) trees: &'a [Tree],
    pub(crate) log: &'a Log,
}

impl ShapeState {
    pub(crate) fn new(shape: &Shape, rule_set: usize) -> Self {
        ShapeState {
            requests: shape.requests.clone(),
            marks: shape.marks.clone(),
            scarce_first: Vec::new(),
            rule_set,
            cursor: None,
            rooms: Vec::new(),
            counts: Vec::new(),
            last_asked: 0,
        }
    }

    pub(crate) fn counts(&self, topology: usize) -> &Counts {
        self.counts[topology]
            .as_ref()
            .expect("a solver asks only for what it brought up to date")
    }

    /// Nothing is counted any more; the memory goes to whoever counts next.
    pub(crate) fn forget_counts(&mut self) -> (Vec<u16>, Vec<Option<Counts>>) {
        self.cursor = None;
        (std::mem::take(&mut self.rooms), std::mem::take(&mut self.counts))
    }

    /// Brings the counts for a topology up to date.
    pub(crate) fn refresh(&mut self, topology: usize, sources: &Sources, asked: u64) {
        self.last_asked = asked;
        match self.cursor.and_then(|cursor| sources.log.since(cursor)) {
            Some(changed) => {
                for node in changed {
                    self.recount(*node, sources);
                }
            }
            None => self.count_all(sources),
        }
        self.cursor = Some(sources.log.end());
        self.counts
            .resize_with(sources.trees.len().max(self.counts.len()), || None);
        let rooms = &self.rooms;
        self.counts[topology].get_or_insert_with(|| Counts::build(&sources.trees[topology], rooms));
    }

    fn count_all(&mut self, sources: &Sources) {
        self.scarce_first = sources.ledger.scarce_first(&self.requests);
        self.rooms.resize(sources.verdicts.len(), 0);
        sources.ledger.count_rooms(&self.scarce_first, &mut self.rooms);
        for (room, verdict) in self.rooms.iter_mut().zip(sources.verdicts) {
            if *verdict != Verdict::Eligible {
                *room = 0;
            }
        }
        for (tree, counts) in sources.trees.iter().zip(&mut self.counts) {
            if let Some(counts) = counts {
                counts.rebuild(tree, &self.rooms);
            }
        }
    }

    fn recount(&mut self, node: u32, sources: &Sources) {
        let after = self.room_now(node, sources);
        let before = std::mem::replace(&mut self.rooms[node as usize], after);
        if before == after {
            return;
        }
        for (tree, counts) in sources.trees.iter().zip(&mut self.counts) {
            if let Some(counts) = counts.as_mut().filter(|_| tree.is_linked(node)) {
                counts.shift(tree.path(node), Some(before), Some(after));
            }
        }
    }

    fn room_now(&self, node: u32, sources: &Sources) -> u16 {
        if sources.verdicts[node as usize] != Verdict::Eligible {
            return 0;
        }
        sources.ledger.room(node, &self.scarce_first, |_| 0)
    }

    /// Room on a node when some of it is spoken for.
    pub(crate) fn room_with(&self, node: u32, ledger: &Ledger, taken: impl Fn(Resource) -> i64) -> u16 {
        if self.rooms[node as usize] == 0 {
            return 0;
        }
        self.room_on(node, ledger, taken)
    }

    /// The same for a node that is known to be eligible, where less may be taken than the ledger says.
    pub(crate) fn room_on(&self, node: u32, ledger: &Ledger, taken: impl Fn(Resource) -> i64) -> u16 {
        ledger.room(node, &self.scarce_first, taken)
    }

    /// A node is about to leave the trees or to change its place in them.
    pub(crate) fn forget_node(&mut self, node: u32, trees: &[Tree]) {
        let Some(room) = self.rooms.get_mut(node as usize) else {
            return;
        };
        let before = std::mem::take(room);
        for (tree, counts) in trees.iter().zip(&mut self.counts) {
            if let Some(counts) = counts.as_mut().filter(|_| tree.is_linked(node)) {
                counts.shift(tree.path(node), Some(before), None);
            }
        }
    }

    /// A node got its place in the trees; its room follows by the log.
    pub(crate) fn learn_node(&mut self, node: u32, trees: &[Tree]) {
        if self.cursor.is_none() {
            return;
        }
        self.rooms.resize(self.rooms.len().max(node as usize + 1), 0);
        for (tree, counts) in trees.iter().zip(&mut self.counts) {
            if let Some(counts) = counts.as_mut() {
                counts.grow(tree);
                counts.shift(tree.path(node), None, Some(0));
            }
        }
    }
}

/// Hands the memory of the shape that was not asked for longest to one that is to be counted, when enough are kept.
pub(crate) fn make_room(shapes: &mut [ShapeState], wanted: usize, asked: u64) {
    let hot = shapes.iter().enumerate().filter(|(_, shape)| shape.cursor.is_some());
    if shapes[wanted].cursor.is_some() || hot.clone().count() < HOT_MAX {
        return;
    }
    // Those that are asked for now stay, however many they are.
    let earlier = hot.filter(|(_, shape)| shape.last_asked < asked);
    let Some((coldest, _)) = earlier.min_by_key(|(_, shape)| shape.last_asked) else {
        return;
    };
    let (rooms, counts) = shapes[coldest].forget_counts();
    shapes[wanted].rooms = rooms;
    shapes[wanted].counts = counts;
}
