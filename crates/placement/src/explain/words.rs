//! The sentences of a proof. Each says what is needed, what comes closest, and what that lacks.

use super::survey::{Nearest, Obstacle, fits_when_empty, may_open, nodes_in, obstacle, verdict};
use super::{Case, Proof, Reason, unpinned};
use crate::cluster::Cluster;
use crate::eligibility::Verdict;
use crate::gang::{Gang, PodGroup, Replica};
use crate::report::place_name;
use crate::resources::Resource;
use crate::topology::ROOT;

/// The resource that every pod takes one of.
const PODS: &str = "pods";
/// Names that are listed before "and N more".
const NAMES_MAX: usize = 3;

/// The proof for a gang whose topology or level is not there.
pub(super) fn topology_unavailable(cluster: &Cluster, gang: &Gang) -> Option<Proof> {
    let unavailable = |scope: &str, level: Option<String>, sentence: String| Proof {
        reason: Reason::TopologyUnavailable,
        sentence,
        scope: scope.to_owned(),
        need: level
            .as_ref()
            .map(|level| format!("level '{level}'"))
            .unwrap_or_default(),
        level,
        considered: 0,
        nearest: Vec::new(),
        would_fit_if: Vec::new(),
    };
    let Some(tree) = cluster.trees.get(gang.topology.0 as usize) else {
        return Some(unavailable(
            &gang.name,
            None,
            "the topology that the gang names does not exist".to_owned(),
        ));
    };
    let groups = gang.groups.iter().map(|group| (&group.name, &group.pack));
    let pod_groups = gang
        .pod_groups
        .iter()
        .map(|pod_group| (&pod_group.name, &pod_group.pack));
    let scopes = std::iter::once((&gang.name, &gang.pack))
        .chain(groups)
        .chain(pod_groups);
    let stated = scopes.flat_map(|(name, pack)| {
        [&pack.required, &pack.preferred]
            .into_iter()
            .flatten()
            .map(move |word| (name, word))
    });
    let replica = gang.replica.iter().map(|replica| (&gang.name, &replica.required));
    let (scope, word) = replica.chain(stated).find(|(_, word)| tree.depth_of(word).is_none())?;
    let known: Vec<&str> = tree.spec.levels.iter().map(|level| level.word.as_str()).collect();
    let sentence = format!(
        "{scope} asks for level '{word}', which topology '{}' does not have; it has {}",
        tree.spec.name,
        known.join(", ")
    );
    Some(unavailable(scope, Some(word.clone()), sentence))
}

impl Case<'_> {
    /// "4 pods of workers (8 gpu each) in one rack"
    pub(super) fn demand(&self) -> String {
        let pods = |pod_group: &&PodGroup| {
            let pods = count(pod_group.missing() as usize, "pod");
            format!("{pods} of {}{}", pod_group.name, self.amounts(pod_group))
        };
        let pods: Vec<String> = self.members.iter().map(pods).collect();
        let place = self
            .level
            .as_ref()
            .map_or(String::new(), |level| format!(" in one {level}"));
        format!("{}{place}", pods.join(" and "))
    }

    /// " (8 gpu, 4000 cpu each)"; nothing for pods that ask for nothing. That each is one pod goes without saying.
    fn amounts(&self, pod_group: &PodGroup) -> String {
        let requests = self.cluster.requests(pod_group.shape).iter();
        let named = requests.map(|(resource, amount)| (self.cluster.resource_name(resource), amount));
        let asked = named.filter(|(name, _)| *name != PODS);
        let amounts: Vec<String> = asked.map(|(name, amount)| format!("{amount} {name}")).collect();
        match amounts.is_empty() {
            true => String::new(),
            false if pod_group.missing() > 1 => format!(" ({} each)", amounts.join(", ")),
            false => format!(" ({})", amounts.join(", ")),
        }
    }

    /// "the best of 40 racks, r17, has room for 12: 2 nodes full, 2 cordoned"
    fn closest(&self) -> String {
        let Some(nearest) = self.nearest.first() else {
            return "there is none".to_owned();
        };
        let who = if self.members.len() > 1 {
            format!(" of {}", nearest.pod_group)
        } else {
            String::new()
        };
        let tree = &self.cluster.trees[self.gang.topology.0 as usize];
        let held = self.hold.place;
        let where_ = match &self.level {
            None => "the cluster".to_owned(),
            Some(level) if held.depth >= self.depth.min(tree.host_depth()) => {
                format!("{level} {}, where its pods run,", nearest.domain)
            }
            Some(level) if held != ROOT => {
                let (outer, name) = (tree.word(held.depth), place_name(self.cluster, tree, held));
                let best = match self.nearest.len() {
                    1 => format!("the only {level}"),
                    many => format!("the best of {}", count(many, level)),
                };
                format!("{best} in {outer} {name}, where its pods run, {},", nearest.domain)
            }
            Some(level) if self.nearest.len() == 1 => format!("the only {level}, {},", nearest.domain),
            Some(level) => format!("the best of {}, {},", count(self.nearest.len(), level), nearest.domain),
        };
        if nearest.room >= nearest.wanted {
            return format!("{where_} holds each of them, but not all{}", obstacles(nearest));
        }
        format!("{where_} has room for {}{who}{}", nearest.room, obstacles(nearest))
    }

    /// A pod-group whose pods are barred from every node or larger than all that they may use.
    pub(super) fn no_host_fits(&self) -> Option<String> {
        let pod_group = self.pod_group_without_host()?;
        let cluster = self.cluster;
        let nodes: Vec<u32> = cluster.nodes().map(|node| node.0).collect();
        let open: Vec<u32> = nodes
            .iter()
            .copied()
            .filter(|node| may_open(verdict(cluster, pod_group, *node)))
            .collect();
        let most = |resource: Resource| {
            open.iter()
                .max_by_key(|node| cluster.ledger.allocatable(**node, resource))
        };
        let larger = |(resource, amount): (Resource, u64)| {
            let node = *most(resource)?;
            let has = cluster.ledger.allocatable(node, resource);
            let name = cluster.resource_name(resource);
            let largest = &cluster.nodes[node as usize].name;
            let who = &pod_group.name;
            let text = format!(
                "a pod of {who} asks for {amount} {name}; the largest node that it may use, {largest}, has {has}"
            );
            (has < amount).then_some(text)
        };
        let barred = || {
            let why = nodes
                .iter()
                .filter_map(|node| obstacle(cluster, pod_group, (*node, None)));
            format!(
                "no node can run {}: of {}, {}",
                pod_group.name,
                count(nodes.len(), "node"),
                tally(why)
            )
        };
        Some(
            cluster
                .requests(pod_group.shape)
                .iter()
                .find_map(larger)
                .unwrap_or_else(barred),
        )
    }

    pub(super) fn say_too_large(&self) -> String {
        let empty = self.cluster.what_if(true, true);
        let best = super::survey::nearest(&empty, self.gang, &self.members, self.depth, ROOT)
            .into_iter()
            .next();
        let level = self.level.as_deref().unwrap_or("cluster");
        let largest = match best {
            None => format!("there is no {level}"),
            Some(best) if self.only_together || best.room >= best.wanted => {
                format!("even empty, no {level} holds them together")
            }
            Some(best) if self.depth == 0 => format!(
                "even empty, the cluster would hold {} pods of {}",
                best.room, best.pod_group
            ),
            Some(best) => format!(
                "even empty, the largest {level}, {}, would hold {} pods of {}",
                best.domain, best.room, best.pod_group
            ),
        };
        format!("needs {}; {largest}", self.demand())
    }

    pub(super) fn say_not_labelled(&self, (nodes, pods): (usize, u32)) -> String {
        let tree = &self.cluster.trees[self.gang.topology.0 as usize];
        let keys: Vec<&str> = tree.spec.levels[..usize::from(tree.last_depth())]
            .iter()
            .map(|level| level.key.as_str())
            .collect();
        let left_out = if nodes == 1 {
            "1 node was".to_owned()
        } else {
            format!("{nodes} nodes were")
        };
        format!(
            "needs {}; {}; {left_out} left out for want of a label ({}) and would have room for {pods}",
            self.demand(),
            self.closest(),
            keys.join(", ")
        )
    }

    pub(super) fn say_kept_apart(&self) -> String {
        let shapes = self.gang.pod_groups.iter().map(|pod_group| pod_group.shape);
        format!(
            "needs {}; there is room, but not for pods that must not share a value of {}",
            self.demand(),
            list(&self.cluster.kept_apart_by(shapes))
        )
    }

    pub(super) fn say_unavailable(&self) -> String {
        let names = self.closed_nodes();
        format!(
            "needs {}; {}; it would fit if these nodes were open: {}",
            self.demand(),
            self.closest(),
            list(&names)
        )
    }

    pub(super) fn say_pinned(&self) -> String {
        let elsewhere = super::survey::nearest(self.cluster, self.gang, &self.members, self.depth, ROOT);
        let other = elsewhere.iter().find(|nearest| nearest.room >= nearest.wanted);
        let other = other.map_or(String::new(), |nearest| format!("; {} has room", nearest.domain));
        format!("needs {}; {}{other}", self.demand(), self.closest())
    }

    pub(super) fn say_fragmented(&self) -> String {
        let (free, name) = self.scarce().map_or((0, ""), |resource| {
            (self.free(resource), self.cluster.resource_name(resource))
        });
        format!(
            "needs {}; {free} {name} are free, but {}",
            self.demand(),
            self.closest()
        )
    }

    /// A resource of which less is free on the nodes that the gang may use than it needs in all.
    pub(super) fn lacking_amount(&self) -> Option<String> {
        let resources = self.cluster.ledger.resources();
        let needed = |resource: Resource| -> u64 {
            let of = |pod_group: &PodGroup| {
                self.cluster
                    .requests(pod_group.shape)
                    .get(resource)
                    .saturating_mul(u64::from(pod_group.missing()))
            };
            self.hold
                .pod_groups
                .iter()
                .copied()
                .map(of)
                .fold(0, u64::saturating_add)
        };
        let short = resources
            .into_iter()
            .find(|resource| needed(*resource) > self.free(*resource))?;
        let name = self.cluster.resource_name(short);
        Some(format!(
            "needs {} {name}, {} are free; {}",
            needed(short),
            self.free(short),
            self.closest()
        ))
    }

    /// What is free of a resource on nodes that some pod-group may use.
    fn free(&self, resource: Resource) -> u64 {
        let open = |node: &u32| {
            self.gang
                .pod_groups
                .iter()
                .any(|pod_group| verdict(self.cluster, pod_group, *node) == Verdict::Eligible)
        };
        nodes_in(self.cluster, self.gang, self.hold.place)
            .filter(open)
            .map(|node| self.cluster.ledger.free(node, resource).max(0) as u64)
            .sum()
    }

    /// The resource that the largest pod-group asks the greatest share of.
    fn scarce(&self) -> Option<Resource> {
        let pod_group = self.members.first()?;
        let requests = self.cluster.requests(pod_group.shape);
        let left = |(resource, amount): &(Resource, u64)| self.cluster.ledger.total(*resource) / amount;
        requests.iter().min_by_key(left).map(|(resource, _)| resource)
    }

    /// Cordoned and tainted nodes that would have room, in the domain that comes closest first.
    fn closed_nodes(&self) -> Vec<String> {
        let closed = |node: &u32| {
            self.members.iter().any(|pod_group| {
                matches!(
                    verdict(self.cluster, pod_group, *node),
                    Verdict::Cordoned | Verdict::Tainted
                ) && fits_when_empty(self.cluster, pod_group, *node)
            })
        };
        let name = |node: u32| {
            let traits = &self.cluster.nodes[node as usize];
            let rules = self.members.first().map(|pod_group| {
                &self.cluster.rule_sets[self.cluster.shapes[pod_group.shape.0 as usize].rule_set].rules
            });
            match rules.and_then(|rules| rules.untolerated(traits)) {
                Some(taint) if !traits.unschedulable => {
                    format!("{} (tainted {}={})", traits.name, taint.key, taint.value)
                }
                _ => format!("{} (cordoned)", traits.name),
            }
        };
        nodes_in(self.cluster, self.gang, self.hold.place)
            .filter(closed)
            .map(name)
            .collect()
    }

    /// Changes under which the gang would fit, each tried.
    pub(super) fn would_fit_if(&self, reason: Reason) -> Vec<String> {
        let mut changes = Vec::new();
        if reason == Reason::NodesUnavailable {
            changes.push(format!("{} were open", list(&self.closed_nodes())));
        }
        if reason == Reason::KeptApart {
            changes.push("its pods might be together with the others".to_owned());
        }
        if reason == Reason::ReplicaPinned && self.fits_now(&unpinned(self.gang)) {
            changes.push("the replica were free of its domain".to_owned());
        }
        changes.extend(self.broader_level());
        changes.extend(self.fewer_pods());
        changes.truncate(3);
        changes
    }

    /// The next broader level at which it would fit.
    fn broader_level(&self) -> Option<String> {
        let tree = &self.cluster.trees[self.gang.topology.0 as usize];
        (0..self.depth).rev().find_map(|depth| {
            let mut gang = self.gang.clone();
            let widen = |word: &mut Option<String>| {
                if word
                    .as_ref()
                    .and_then(|word| self.cluster.depth_of(tree, word))
                    .is_some_and(|stated| stated > depth)
                {
                    *word = (depth > 0).then(|| tree.word(depth).to_owned());
                }
            };
            widen(&mut gang.pack.required);
            let mut shared = gang.replica.as_ref().map(|replica| replica.required.clone());
            widen(&mut shared);
            gang.replica = gang
                .replica
                .zip(shared)
                .map(|(replica, required)| Replica { required, ..replica });
            gang.groups.iter_mut().for_each(|group| widen(&mut group.pack.required));
            gang.pod_groups
                .iter_mut()
                .for_each(|pod_group| widen(&mut pod_group.pack.required));
            let fits = self.fits_now(&gang);
            fits.then(|| {
                if depth > 0 {
                    format!("the level were {}", tree.word(depth))
                } else {
                    "no level were required".to_owned()
                }
            })
        })
    }

    /// The number of pods that would fit, for a scope of one pod-group.
    fn fewer_pods(&self) -> Option<String> {
        let [pod_group] = self.members.as_slice() else {
            return None;
        };
        let room = self.nearest.first()?.room.min(pod_group.missing().saturating_sub(1));
        let mut gang = self.gang.clone();
        let reduced = gang.pod_groups.iter_mut().find(|known| known.name == pod_group.name)?;
        reduced.minimum -= pod_group.missing() - room;
        let minimum = reduced.minimum;
        let fits = room > 0 && self.fits_now(&gang);
        fits.then(|| format!("{} had at most {}", pod_group.name, count(minimum as usize, "pod")))
    }
}

/// " (nodes: 2 full, 2 cordoned)"
fn obstacles(nearest: &Nearest) -> String {
    let parts: Vec<String> = nearest
        .nodes
        .iter()
        .map(|(obstacle, nodes)| format!("{nodes} {obstacle}"))
        .collect();
    match parts.as_slice() {
        [] => String::new(),
        parts => format!(" (nodes: {})", parts.join(", ")),
    }
}

fn tally(obstacles: impl Iterator<Item = Obstacle>) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for obstacle in obstacles {
        *counts.entry(obstacle).or_insert(0_usize) += 1;
    }
    let parts: Vec<String> = counts
        .into_iter()
        .map(|(obstacle, nodes)| format!("{nodes} {obstacle}"))
        .collect();
    parts.join(", ")
}

fn count(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
