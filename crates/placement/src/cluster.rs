//! The cluster as the engine sees it: nodes, what runs on them, topologies, and shapes with their counts.
//!
//! It is told of every change (a node came, changed, went; pods were bound or ended) and updates what the change
//! touches: O(levels) sums at once, and per shape when the shape is next asked for. It decides nothing.

use std::collections::HashMap;

use crate::cells::Cells;
use crate::eligibility::{Rules, Traits, Verdict};
use crate::gang::Gang;
use crate::marks::{Mark, Marks, Stance, Tally};
use crate::plan::{Assignment, Stale};
use crate::resources::{Amounts, Ledger, Resource, signed};
use crate::shapes::{Log, RuleSet, Shape, ShapeId, ShapeState, Sources, make_room};
use crate::topology::{TopologyId, TopologySpec, Tree};

/// Handle of a node. It stays the node's own while the node exists and returns with it under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// A node as it is reported.
#[derive(Clone, Debug, Default)]
pub struct NodeSpec {
    pub traits: Traits,
    pub allocatable: Amounts,
}

#[derive(Debug, Default)]
pub struct Cluster {
    pub(crate) ledger: Ledger,
    pub(crate) cells: Cells,
    pub(crate) nodes: Vec<Traits>,
    present: Vec<bool>,
    by_name: HashMap<String, u32>,
    pub(crate) trees: Vec<Tree>,
    pub(crate) marks: Marks,
    pub(crate) rule_sets: Vec<RuleSet>,
    pub(crate) shapes: Vec<ShapeState>,
    by_shape: HashMap<Shape, u32>,
    log: Log,
    asked: u64,
}

impl Cluster {
    pub fn new() -> Self {
        Cluster::default()
    }

    /// A resource that nodes state.
    pub fn resource(&mut self, name: &str) -> Resource {
        self.resource_everywhere(name, 0)
    }

    /// A resource that every node has `amount` of unless it states another: a host port, a pod count.
    pub fn resource_everywhere(&mut self, name: &str, amount: u64) -> Resource {
        if let Some(known) = self.ledger.find(name) {
            return known;
        }
        let resource = self.ledger.push_resource(name, amount, &self.present);
        for tree in &mut self.trees {
            tree.push_resource();
        }
        for node in 0..self.nodes.len() as u32 {
            self.learn_free(node, Some(resource));
        }
        resource
    }

    pub fn resource_name(&self, resource: Resource) -> &str {
        self.ledger.name(resource)
    }

    /// Adds a topology over the nodes, those that exist and those to come; one of the same name is replaced.
    pub fn set_topology(&mut self, spec: TopologySpec) -> TopologyId {
        match self.topology(&spec.name) {
            Some(known) if self.trees[known.0 as usize].spec == spec => known,
            Some(known) => {
                self.trees[known.0 as usize] = self.grow_tree(spec);
                self.judge_all_again();
                known
            }
            None => {
                let tree = self.grow_tree(spec);
                self.trees.push(tree);
                TopologyId(self.trees.len() as u32 - 1)
            }
        }
    }

    /// The tree of a topology over the nodes that exist.
    fn grow_tree(&self, spec: TopologySpec) -> Tree {
        let mut tree = Tree::new(spec);
        for _ in self.ledger.resources() {
            tree.push_resource();
        }
        for node in 0..self.nodes.len() as u32 {
            tree.push_node();
            if self.present[node as usize] {
                tree.link(node, &self.nodes[node as usize].labels);
                for resource in self.ledger.resources() {
                    tree.shift_free(node, resource.0, 0, self.ledger.free(node, resource));
                }
            }
        }
        tree
    }

    /// A tree was replaced: rules may look at it, and all that was counted in it is void.
    fn judge_all_again(&mut self) {
        for index in 0..self.rule_sets.len() {
            let judge = |node| self.judge(&self.rule_sets[index].rules, node);
            self.rule_sets[index].verdicts = (0..self.nodes.len() as u32).map(judge).collect();
        }
        for shape in &mut self.shapes {
            shape.forget_counts();
        }
    }

    pub fn topology(&self, name: &str) -> Option<TopologyId> {
        let index = self.trees.iter().position(|tree| tree.spec.name == name)?;
        Some(TopologyId(index as u32))
    }

    /// Adds a node, or takes over a change of it. What runs on it stays.
    pub fn set_node(&mut self, spec: NodeSpec) -> NodeId {
        let known = self.by_name.get(&spec.traits.name).copied();
        let node = known.unwrap_or_else(|| self.push_node(&spec.traits.name));
        let moved = !self.present[node as usize] || self.nodes[node as usize] != spec.traits;
        if moved {
            self.unlink(node);
        }
        self.forget_free(node, None);
        self.ledger.set_allocatable(node, Some(&spec.allocatable));
        self.learn_free(node, None);
        if moved {
            self.link(node, spec.traits);
        }
        self.log.push(node, self.nodes.len());
        NodeId(node)
    }

    /// The node is gone, with its capacity. What ran there is released by whoever bound it.
    pub fn remove_node(&mut self, node: NodeId) {
        if !self.present.get(node.0 as usize).copied().unwrap_or(false) {
            return;
        }
        self.unlink(node.0);
        self.ledger.set_allocatable(node.0, None);
        self.cells.set(node.0, &[]);
        for rule_set in &mut self.rule_sets {
            rule_set.verdicts[node.0 as usize] = Verdict::Gone;
        }
        self.log.push(node.0, self.nodes.len());
    }

    /// What each NUMA cell of a node has for pods, in the order of their numbers; none: the node is one cell. A resource
    /// that no cell lists is counted by node only. What runs on the node without being held in a cell counts in each.
    pub fn set_cells(&mut self, node: NodeId, cells: &[Vec<(Resource, u64)>]) {
        if self.present.get(node.0 as usize).copied().unwrap_or(false) {
            self.cells.set(node.0, cells);
        }
    }

    pub fn node(&self, name: &str) -> Option<NodeId> {
        let node = *self.by_name.get(name)?;
        self.present[node as usize].then_some(NodeId(node))
    }

    pub fn node_name(&self, node: NodeId) -> &str {
        &self.nodes[node.0 as usize].name
    }

    pub fn traits(&self, node: NodeId) -> &Traits {
        &self.nodes[node.0 as usize]
    }

    /// The depth at which a level word is met: below the host only where some node states its cells.
    pub(crate) fn depth_of(&self, tree: &Tree, word: &str) -> Option<u8> {
        if self.cells.is_known() {
            tree.depth_with_cells(word)
        } else {
            tree.depth_of(word)
        }
    }

    /// Sorts nodes so that those of one domain come one after the other.
    pub fn place_order(&self, topology: TopologyId, node: NodeId) -> (Vec<u32>, NodeId) {
        let tree = self.trees.get(topology.0 as usize);
        (tree.map_or(Vec::new(), |tree| tree.path(node.0).to_vec()), node)
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.nodes.len() as u32)
            .filter(|node| self.present[*node as usize])
            .map(NodeId)
    }

    pub fn free(&self, node: NodeId, resource: Resource) -> i64 {
        self.ledger.free(node.0, resource)
    }

    /// Something runs on a node, whoever put it there.
    pub fn take(&mut self, node: NodeId, amounts: &Amounts) {
        self.change(node.0, amounts, -1);
    }

    /// Something that ran on a node has ended.
    pub fn give_back(&mut self, node: NodeId, amounts: &Amounts) {
        self.change(node.0, amounts, 1);
    }

    /// A mark that keeps pods apart, by its name; `key` is the node label whose values are its domains.
    pub fn mark(&mut self, name: &str, key: &str) -> Mark {
        let present = self.present.iter().zip(&self.nodes);
        let labels = present.map(|(present, traits)| present.then_some(&traits.labels));
        self.marks.find_or_add(name, key, labels)
    }

    /// A pod on a node, whoever put it there, avoids or bears a mark.
    pub fn set_mark(&mut self, node: NodeId, mark: Mark, stance: Stance) {
        self.marks.change(node.0, (mark, stance), 1);
    }

    /// A pod that avoided or bore a mark on a node has ended.
    pub fn clear_mark(&mut self, node: NodeId, mark: Mark, stance: Stance) {
        self.marks.change(node.0, (mark, stance), -1);
    }

    /// The shape of a pod; equal shapes have one handle.
    pub fn shape(&mut self, shape: &Shape) -> ShapeId {
        if let Some(known) = self.by_shape.get(shape) {
            return ShapeId(*known);
        }
        let known = self.rule_sets.iter().position(|set| set.rules == shape.rules);
        let rule_set = known.unwrap_or_else(|| {
            let judge = |node| self.judge(&shape.rules, node);
            let verdicts = (0..self.nodes.len() as u32).map(judge).collect();
            let prefers = !shape.rules.preferred.is_empty();
            let penalty = |traits: &Traits| shape.rules.penalty(traits);
            let penalties = self.nodes.iter().filter(|_| prefers).map(penalty).collect();
            self.rule_sets.push(RuleSet {
                rules: shape.rules.clone(),
                verdicts,
                penalties,
            });
            self.rule_sets.len() - 1
        });
        let id = self.shapes.len() as u32;
        self.shapes.push(ShapeState::new(shape, rule_set));
        self.by_shape.insert(shape.clone(), id);
        ShapeId(id)
    }

    pub fn requests(&self, shape: ShapeId) -> &Amounts {
        &self.shapes[shape.0 as usize].requests
    }

    /// Binds all of a plan's pods, or none when the cluster changed and one of them no longer fits.
    pub fn commit(&mut self, assignments: &[Assignment]) -> Result<(), Stale> {
        // Pods that are held in no cell count in each from then on, so those that are held go first.
        let held = assignments.iter().filter(|assignment| assignment.cell.is_some());
        let others = assignments.iter().filter(|assignment| assignment.cell.is_none());
        let in_order = held.chain(others);
        for (done, assignment) in in_order.clone().enumerate() {
            if !self.accepts(assignment) {
                for earlier in in_order.take(done) {
                    self.move_pods(earlier, 1);
                }
                return Err(Stale {
                    node: assignment.node,
                    pod_group: assignment.pod_group,
                });
            }
            self.move_pods(assignment, -1);
        }
        Ok(())
    }

    /// Gives back what a plan's pods held.
    pub fn release(&mut self, assignments: &[Assignment]) {
        for assignment in assignments {
            self.move_pods(assignment, 1);
        }
    }

    /// Puts back what was released for a trial, whether or not it fits.
    pub(crate) fn retake(&mut self, assignments: &[Assignment]) {
        for assignment in assignments {
            self.move_pods(assignment, -1);
        }
    }

    /// How pods of a shape stand to marks.
    pub fn stances(&self, shape: ShapeId) -> &[(Mark, Stance)] {
        &self.shapes[shape.0 as usize].marks
    }

    /// The marks that pods on a node avoid or bear.
    pub fn marks_on(&self, node: NodeId) -> impl Iterator<Item = Mark> {
        self.marks.on(node.0)
    }

    /// The gang with shapes that nothing keeps apart.
    pub(crate) fn without_marks(&mut self, gang: &Gang) -> Gang {
        let mut gang = gang.clone();
        for pod_group in &mut gang.pod_groups {
            let shape = &self.shapes[pod_group.shape.0 as usize];
            let shape = Shape {
                requests: shape.requests.clone(),
                rules: self.rule_sets[shape.rule_set].rules.clone(),
                marks: Vec::new(),
            };
            pod_group.shape = self.shape(&shape);
        }
        gang
    }

    /// The node labels over which some shapes are kept apart from others.
    pub(crate) fn kept_apart_by(&self, shapes: impl Iterator<Item = ShapeId>) -> Vec<String> {
        let marks = shapes.flat_map(|shape| &self.shapes[shape.0 as usize].marks);
        let mut keys: Vec<String> = marks.map(|(mark, _)| self.marks.key(*mark).to_owned()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// A copy in which nodes are open to all that they keep away, or empty, or both.
    pub(crate) fn what_if(&self, open: bool, empty: bool) -> Cluster {
        let mut copy = Cluster::new();
        for resource in self.ledger.resources() {
            copy.resource(self.ledger.name(resource));
        }
        for tree in &self.trees {
            copy.set_topology(tree.spec.clone());
        }
        for node in 0..self.nodes.len() as u32 {
            let mut traits = self.nodes[node as usize].clone();
            if open {
                traits.unschedulable = false;
                traits.taints.clear();
            }
            let amounts = |of: &dyn Fn(Resource) -> u64| {
                self.ledger
                    .resources()
                    .map(|resource| (resource, of(resource)))
                    .collect()
            };
            let allocatable = |resource| self.ledger.allocatable(node, resource);
            let used = |resource| (signed(allocatable(resource)) - self.ledger.free(node, resource)).max(0) as u64;
            let copied = copy.set_node(NodeSpec {
                traits,
                allocatable: amounts(&allocatable),
            });
            if !empty {
                copy.take(copied, &amounts(&used));
            }
            if !self.present[node as usize] {
                copy.remove_node(copied);
            }
        }
        for shape in &self.shapes {
            let rules = self.rule_sets[shape.rule_set].rules.clone();
            copy.shape(&Shape {
                requests: shape.requests.clone(),
                rules,
                marks: shape.marks.clone(),
            });
        }
        copy.marks = self.marks.copy(empty);
        copy.cells = if empty {
            self.cells.emptied()
        } else {
            self.cells.clone()
        };
        copy
    }

    fn accepts(&self, assignment: &Assignment) -> bool {
        let shape = &self.shapes[assignment.shape.0 as usize];
        let verdict = self.rule_sets[shape.rule_set].verdicts.get(assignment.node.0 as usize);
        let fits = |(resource, amount): (Resource, u64)| {
            let needed = signed(amount.saturating_mul(u64::from(assignment.pods)));
            let in_cell = assignment
                .cell
                .and_then(|cell| self.cells.free(&self.ledger, (assignment.node.0, cell), resource));
            self.ledger.free(assignment.node.0, resource) >= needed && in_cell.is_none_or(|free| free >= needed)
        };
        let apart = self
            .marks
            .room(assignment.node.0, &shape.marks, |_, _| Tally::default());
        verdict == Some(&Verdict::Eligible)
            && shape.requests.iter().all(fits)
            && u32::from(apart) >= assignment.pods.min(u32::from(u16::MAX))
    }

    fn move_pods(&mut self, assignment: &Assignment, sign: i64) {
        let requests = std::mem::take(&mut self.shapes[assignment.shape.0 as usize].requests);
        self.change(assignment.node.0, &requests, sign * i64::from(assignment.pods));
        if let Some(cell) = assignment.cell {
            let pods = i64::from(assignment.pods);
            self.cells.hold((assignment.node.0, cell), &requests, -sign * pods);
        }
        self.shapes[assignment.shape.0 as usize].requests = requests;
        for mark in &self.shapes[assignment.shape.0 as usize].marks {
            self.marks
                .change(assignment.node.0, *mark, -sign * i64::from(assignment.pods));
        }
    }

    fn change(&mut self, node: u32, amounts: &Amounts, times: i64) {
        for (resource, amount) in amounts.iter() {
            let before = self.ledger.free(node, resource);
            self.ledger.change(node, resource, signed(amount).saturating_mul(times));
            let after = self.ledger.free(node, resource);
            for tree in self.trees.iter_mut().filter(|tree| tree.is_linked(node)) {
                tree.shift_free(node, resource.0, before, after);
            }
        }
        self.log.push(node, self.nodes.len());
    }

    /// Brings the counts of some shapes for a topology up to date; they stay so until the next call.
    pub(crate) fn refresh(&mut self, shapes: impl Iterator<Item = ShapeId>, topology: TopologyId) {
        self.asked += 1;
        for shape in shapes {
            make_room(&mut self.shapes, shape.0 as usize, self.asked);
            let state = &mut self.shapes[shape.0 as usize];
            let sources = Sources {
                ledger: &self.ledger,
                verdicts: &self.rule_sets[state.rule_set].verdicts,
                trees: &self.trees,
                log: &self.log,
            };
            state.refresh(topology.0 as usize, &sources, self.asked);
        }
    }

    fn push_node(&mut self, name: &str) -> u32 {
        let node = self.nodes.len() as u32;
        self.by_name.insert(name.to_owned(), node);
        self.nodes.push(Traits::default());
        self.present.push(false);
        self.ledger.push_node();
        self.marks.push_node();
        for tree in &mut self.trees {
            tree.push_node();
        }
        for rule_set in &mut self.rule_sets {
            rule_set.verdicts.push(Verdict::Gone);
            if !rule_set.rules.preferred.is_empty() {
                rule_set.penalties.push(0);
            }
        }
        node
    }

    fn unlink(&mut self, node: u32) {
        if !std::mem::replace(&mut self.present[node as usize], false) {
            return;
        }
        self.forget_free(node, None);
        self.marks.move_node(node, None);
        for shape in &mut self.shapes {
            shape.forget_node(node, &self.trees);
        }
        for tree in &mut self.trees {
            tree.unlink(node);
        }
    }

    fn link(&mut self, node: u32, traits: Traits) {
        self.present[node as usize] = true;
        for tree in &mut self.trees {
            tree.link(node, &traits.labels);
        }
        self.marks.move_node(node, Some(&traits.labels));
        self.nodes[node as usize] = traits;
        self.learn_free(node, None);
        for shape in &mut self.shapes {
            shape.learn_node(node, &self.trees);
        }
        for index in 0..self.rule_sets.len() {
            let rule_set = &mut self.rule_sets[index];
            if let Some(penalty) = rule_set.penalties.get_mut(node as usize) {
                *penalty = rule_set.rules.penalty(&self.nodes[node as usize]);
            }
            self.rule_sets[index].verdicts[node as usize] = self.judge(&self.rule_sets[index].rules, node);
        }
    }

    fn judge(&self, rules: &Rules, node: u32) -> Verdict {
        if !self.present[node as usize] {
            return Verdict::Gone;
        }
        let is_inside = |topology: TopologyId| {
            self.trees
                .get(topology.0 as usize)
                .is_some_and(|tree| tree.is_inside(node))
        };
        rules.judge(&self.nodes[node as usize], is_inside)
    }

    /// Takes what a node has free out of the sums of its domains.
    fn forget_free(&mut self, node: u32, only: Option<Resource>) {
        self.shift_sums(node, only, false);
    }

    /// Adds what a node has free to the sums of its domains.
    fn learn_free(&mut self, node: u32, only: Option<Resource>) {
        self.shift_sums(node, only, true);
    }

    fn shift_sums(&mut self, node: u32, only: Option<Resource>, add: bool) {
        for resource in self
            .ledger
            .resources()
            .filter(|resource| only.is_none_or(|one| one == *resource))
        {
            let free = self.ledger.free(node, resource);
            let (before, after) = if add { (0, free) } else { (free, 0) };
            for tree in self.trees.iter_mut().filter(|tree| tree.is_linked(node)) {
                tree.shift_free(node, resource.0, before, after);
            }
        }
    }
}

#[cfg(test)]
mod tests;
