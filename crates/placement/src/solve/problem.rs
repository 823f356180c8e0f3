//! A gang in the terms of its tree: words became depths, bound pods became pins, pod-groups became items.

use std::ops::Range;

use crate::cluster::Cluster;
use crate::gang::{Gang, Pack, PodGroup};
use crate::resources::Resource;
use crate::shapes::ShapeId;
use crate::solve::rank::{Objective, Policy};
use crate::topology::{Place, ROOT, Tree};

/// Some pods of one shape that a scope has to place.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) pod_group: usize,
    pub(crate) scope: usize,
    /// Index in `Problem::shapes`.
    pub(crate) shape: usize,
    pub(crate) pods: u32,
}

/// Which tier of the objective a scope's preference counts in.
pub(crate) const GANG: usize = 0;
pub(crate) const GROUP: usize = 1;
pub(crate) const POD_GROUP: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) parent: Option<usize>,
    pub(crate) tier: usize,
    /// Depth that must be one domain; 0 is none.
    pub(crate) required: u8,
    /// Depth that should be one domain, at least as narrow as the required one; 0 is none.
    pub(crate) preferred: u8,
    /// The narrowest place that all bound pods share, if they bind the scope at all.
    pub(crate) pin: Option<Place>,
    /// Its items; items of nested scopes lie inside the range of the outer one.
    pub(crate) items: Range<usize>,
}

impl Scope {
    /// The narrowest depth that the scope asks for.
    pub(crate) fn narrowest(&self) -> u8 {
        self.preferred.max(self.required)
    }
}

/// What a scope states, by name.
#[derive(Clone, Copy)]
struct Stated<'a> {
    name: &'a str,
    required: Option<&'a str>,
    preferred: Option<&'a str>,
}

impl<'a> Stated<'a> {
    fn of(name: &'a str, pack: &'a Pack) -> Self {
        Stated {
            name,
            required: pack.required.as_deref(),
            preferred: pack.preferred.as_deref(),
        }
    }
}

/// A scope names a level that the topology does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownLevel {
    pub(crate) scope: String,
    pub(crate) word: String,
}

#[derive(Debug, Default)]
pub(crate) struct Problem {
    pub(crate) topology: usize,
    pub(crate) items: Vec<Item>,
    pub(crate) scopes: Vec<Scope>,
    /// The scope of every pod-group, whether or not it has pods to place.
    pub(crate) scope_of: Vec<usize>,
    /// Scopes that choose a domain, outer before inner, harder siblings first.
    pub(crate) order: Vec<usize>,
    pub(crate) shapes: Vec<ShapeId>,
    /// Per item and shape: how many pods of the shape one pod of the item keeps out (0: cannot say).
    displaces: Vec<u64>,
    /// Nodes of the gang's own bound pods.
    pub(crate) bound: Vec<u32>,
    /// Every resource that some item asks for.
    pub(crate) resources: Vec<Resource>,
    /// The resource that the gang asks the greatest share of, if it asks for any.
    pub(crate) scarce: Option<Resource>,
    /// What all items ask of it.
    pub(crate) scarce_demand: u64,
    pub(crate) policy: Policy,
    /// What this gang's placements are compared by.
    pub(crate) objective: Objective,
    /// Some pods must not share a domain with others.
    pub(crate) is_apart: bool,
    siblings: Vec<usize>,
}

impl Problem {
    /// Reads a gang; `pods_of` says how many pods of each pod-group are to be placed.
    pub(crate) fn read(
        &mut self,
        cluster: &Cluster,
        gang: &Gang,
        pods_of: impl Fn(&PodGroup) -> u32,
    ) -> Result<(), UnknownLevel> {
        self.clear(gang.topology.0 as usize);
        self.scope_of.resize(gang.pod_groups.len(), 0);
        let tree = &cluster.trees[self.topology];
        let all = || gang.pod_groups.iter().enumerate();
        let replica = self.push_replica(cluster, gang)?;
        let own = self.push_scope(
            cluster,
            (replica, GANG),
            Stated::of(&gang.name, &gang.pack),
            bound(all()),
        )?;
        for (index, group) in gang.groups.iter().enumerate() {
            let members = || all().filter(move |(_, pod_group)| pod_group.group == Some(index));
            let stated = Stated::of(&group.name, &group.pack);
            let scope = self.push_scope(cluster, (Some(own), GROUP), stated, bound(members()))?;
            for member in members() {
                self.push_pod_group(cluster, scope, member, pods_of(member.1))?;
            }
            self.close_scope(scope);
        }
        let ungrouped = all().filter(|(_, pod_group)| pod_group.group.is_none_or(|index| index >= gang.groups.len()));
        for member in ungrouped {
            self.push_pod_group(cluster, own, member, pods_of(member.1))?;
        }
        self.close_scope(own);
        if let Some(replica) = replica {
            self.close_scope(replica);
        }
        self.bound.extend(bound(all()).filter(|node| tree.is_linked(*node)));
        self.weigh(cluster);
        let states_level = self.scopes.iter().any(|scope| scope.narrowest() > 0);
        self.objective = Objective::of(self.policy, states_level);
        let marked = |item: &Item| !cluster.shapes[self.shapes[item.shape].0 as usize].marks.is_empty();
        self.is_apart = self.items.iter().any(marked);
        self.sort_scopes(cluster);
        Ok(())
    }

    fn clear(&mut self, topology: usize) {
        self.topology = topology;
        self.items.clear();
        self.scopes.clear();
        self.scope_of.clear();
        self.order.clear();
        self.shapes.clear();
        self.displaces.clear();
        self.bound.clear();
        self.resources.clear();
    }

    fn push_replica(&mut self, cluster: &Cluster, gang: &Gang) -> Result<Option<usize>, UnknownLevel> {
        let Some(replica) = &gang.replica else { return Ok(None) };
        let stated = Stated {
            name: &gang.name,
            required: Some(&replica.required),
            preferred: None,
        };
        let others = replica.bound.iter().map(|node| node.0);
        let own = bound(gang.pod_groups.iter().enumerate());
        self.push_scope(cluster, (None, GANG), stated, others.chain(own))
            .map(Some)
    }

    fn push_scope(
        &mut self,
        cluster: &Cluster,
        (parent, tier): (Option<usize>, usize),
        stated: Stated,
        bound: impl Iterator<Item = u32>,
    ) -> Result<usize, UnknownLevel> {
        let tree = &cluster.trees[self.topology];
        let unknown = |word: &str| UnknownLevel {
            scope: stated.name.to_owned(),
            word: word.to_owned(),
        };
        let depth = |word: Option<&str>| match word {
            None => Ok(0),
            Some(word) => cluster.depth_of(tree, word).ok_or_else(|| unknown(word)),
        };
        let (required, mut preferred) = (depth(stated.required)?, depth(stated.preferred)?);
        if self.policy == Policy::SpareHosts {
            preferred = preferred.min(tree.last_depth());
        }
        self.scopes.push(Scope {
            parent,
            tier,
            required,
            // A preference broader than what is required is met by meeting that.
            preferred: if preferred <= required { 0 } else { preferred },
            // Bound pods hold the scope where they are, unless they break its required level themselves. Which cells
            // they use is not known: they speak for their host.
            pin: shared_place(tree, bound).filter(|place| place.depth >= required.clamp(1, tree.host_depth())),
            items: self.items.len()..self.items.len(),
        });
        Ok(self.scopes.len() - 1)
    }

    fn close_scope(&mut self, scope: usize) {
        self.scopes[scope].items.end = self.items.len();
    }

    fn push_pod_group(
        &mut self,
        cluster: &Cluster,
        parent: usize,
        (number, pod_group): (usize, &PodGroup),
        pods: u32,
    ) -> Result<(), UnknownLevel> {
        let nodes = pod_group.bound.iter().map(|node| node.0);
        let stated = Stated::of(&pod_group.name, &pod_group.pack);
        let scope = self.push_scope(cluster, (Some(parent), POD_GROUP), stated, nodes)?;
        self.scope_of[number] = scope;
        let known = self.shapes.iter().position(|shape| *shape == pod_group.shape);
        let shape = known.unwrap_or_else(|| {
            self.shapes.push(pod_group.shape);
            self.shapes.len() - 1
        });
        if pods > 0 {
            self.items.push(Item {
                pod_group: number,
                scope,
                shape,
                pods,
            });
        }
        self.close_scope(scope);
        Ok(())
    }

    /// Works out which resource is scarce, and which shapes stand in each other's way.
    fn weigh(&mut self, cluster: &Cluster) {
        for shape in &self.shapes {
            for (resource, _) in cluster.requests(*shape).iter() {
                if !self.resources.contains(&resource) {
                    self.resources.push(resource);
                }
            }
        }
        self.resources.sort_unstable();
        // The greatest share of what the cluster has: demand / total, compared without division.
        let mut scarce: Option<(Resource, u128, u128)> = None;
        for resource in &self.resources {
            let demand = u128::from(self.demand(cluster, 0..self.items.len(), *resource));
            let total = u128::from(cluster.ledger.total(*resource).max(1));
            if scarce.is_none_or(|(_, most, of)| demand * of > most * total) {
                scarce = Some((*resource, demand, total));
            }
        }
        self.scarce = scarce.map(|(resource, _, _)| resource);
        self.scarce_demand = scarce.map_or(0, |(_, demand, _)| demand as u64);
        for item in &self.items {
            let mine = &cluster.shapes[self.shapes[item.shape].0 as usize];
            for shape in &self.shapes {
                let other = &cluster.shapes[shape.0 as usize];
                let comparable = mine.rule_set == other.rule_set;
                self.displaces.push(if comparable {
                    mine.requests.holds(&other.requests)
                } else {
                    0
                });
            }
        }
    }

    /// The scopes around a scope, itself first.
    pub(crate) fn around(&self, scope: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(scope), |scope| self.scopes[*scope].parent)
    }

    fn demand(&self, cluster: &Cluster, items: Range<usize>, resource: Resource) -> u64 {
        let of = |item: &Item| {
            let amount = cluster.requests(self.shapes[item.shape]).get(resource);
            amount.saturating_mul(u64::from(item.pods))
        };
        self.items[items].iter().map(of).fold(0, u64::saturating_add)
    }

    /// How many pods of a shape one pod of an item keeps out.
    pub(crate) fn displaces(&self, item: usize, shape: usize) -> u64 {
        self.displaces[item * self.shapes.len() + shape]
    }

    /// What some items need, in places for pods of a shape. A place that has fewer cannot hold the items.
    pub(crate) fn places_needed(&self, items: Range<usize>, shape: usize) -> u64 {
        items
            .map(|item| {
                self.displaces(item, shape)
                    .saturating_mul(u64::from(self.items[item].pods))
            })
            .fold(0, u64::saturating_add)
    }

    /// Outer scopes first; of siblings the one that asks for the narrowest domain, then for the most.
    fn sort_scopes(&mut self, cluster: &Cluster) {
        self.siblings.clear();
        self.siblings.extend(0..self.scopes.len());
        let mut siblings = std::mem::take(&mut self.siblings);
        let weight = |scope: &usize| {
            let scope = &self.scopes[*scope];
            let demand = self
                .scarce
                .map_or(0, |scarce| self.demand(cluster, scope.items.clone(), scarce));
            (std::cmp::Reverse(scope.required), std::cmp::Reverse(demand))
        };
        siblings.sort_by_key(|scope| (weight(scope), *scope));
        let mut order = std::mem::take(&mut self.order);
        self.push_children(None, &siblings, &mut order);
        let chooses = |scope: &usize| self.scopes[*scope].narrowest() > 0 && !self.scopes[*scope].items.is_empty();
        order.retain(chooses);
        self.order = order;
        self.siblings = siblings;
    }

    fn push_children(&self, parent: Option<usize>, siblings: &[usize], order: &mut Vec<usize>) {
        for scope in siblings.iter().filter(|scope| self.scopes[**scope].parent == parent) {
            order.push(*scope);
            self.push_children(Some(*scope), siblings, order);
        }
    }
}

/// The nodes of bound pods.
fn bound<'a>(pod_groups: impl Iterator<Item = (usize, &'a PodGroup)>) -> impl Iterator<Item = u32> {
    pod_groups
        .flat_map(|(_, pod_group)| &pod_group.bound)
        .map(|node| node.0)
}

/// The narrowest place that all these nodes lie in; none without nodes.
fn shared_place(tree: &Tree, nodes: impl Iterator<Item = u32>) -> Option<Place> {
    let mut shared: Option<Place> = None;
    for node in nodes.filter(|node| tree.is_linked(*node)) {
        let host = Place {
            depth: tree.host_depth(),
            id: node,
        };
        let mut place = shared.unwrap_or(host);
        while !tree.is_within(host, place) {
            place = tree.widen(place, place.depth - 1);
        }
        shared = Some(if tree.is_inside(node) { place } else { ROOT });
    }
    shared
}
