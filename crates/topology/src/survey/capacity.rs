//! Constraints that no domain could hold even if it were empty.
//!
//! Sums only: what is found here can never be placed; what is not found may still not fit, which the scheduler says. What a
//! pod asks for and a node has is counted by the caller, as Kubernetes counts it.

use std::collections::BTreeMap;

use grove_api::PodCliqueSet;

use super::NodeLabels;
use super::check::{Finding, Severity};
use crate::levels::Topology;
use crate::resolve::Resolution;
use crate::scopes::{self, Scope};
use crate::usage::name_of;

/// Amounts by name of the resource.
pub type Amounts = BTreeMap<String, u64>;

/// What is asked for and what there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// What a pod of each clique of the set asks for, by name of the clique.
    pub per_pod: BTreeMap<String, Amounts>,
    /// What each node has for pods, by name of the node.
    pub rooms: BTreeMap<String, Amounts>,
}

/// Required levels of a set none of whose domains could ever hold the pods that must be in one.
pub fn check_capacity(
    set: &PodCliqueSet,
    resolution: &Resolution,
    nodes: &[NodeLabels],
    capacity: &Capacity,
) -> Vec<Finding> {
    let Some(topology) = resolution.topology() else {
        return Vec::new();
    };
    let constraints = scopes::constraints(&set.spec.template);
    let finding = |scoped: &scopes::ScopedConstraint<'_>| {
        let word = scoped.constraint.required()?;
        let domains = domains(topology, word, nodes, capacity)?;
        let pods = together(set, scoped.scope);
        let demand = Demand::of(&pods, capacity);
        if domains.is_empty() || domains.iter().any(|rooms| demand.may_fit(rooms)) {
            return None;
        }
        let name = name_of(&set.metadata);
        let (count, path) = (pods.iter().map(|(_, count)| count).sum::<u64>(), scoped.required_path());
        Some(Finding {
            severity: Severity::Fail,
            code: "GT023",
            message: format!(
                "PodCliqueSet {}/{}: {path}: no {word} could hold the {count} pods that must be in one{}",
                name.namespace,
                name.name,
                demand.shortage(&domains)
            ),
            fix: "require a broader level, ask for less in each pod, or lower minAvailable".to_owned(),
        })
    };
    constraints.iter().filter_map(finding).collect()
}

/// The pods of a scope that must be placed together: cliques and how many of each.
fn together<'a>(set: &'a PodCliqueSet, scope: Scope<'a>) -> Vec<(&'a str, u64)> {
    let template = &set.spec.template;
    let replicas = |clique: &str| {
        let groups = template.scaling_groups.iter();
        let group = groups
            .into_iter()
            .find(|group| group.clique_names.iter().any(|name| name == clique));
        match (scope, group) {
            (Scope::Replica, None) => 1,
            (Scope::Replica, Some(group)) => group.min_available.unwrap_or(1),
            (Scope::ScalingGroup(name), Some(group)) => i32::from(group.name == name),
            (Scope::ScalingGroup(_), None) => 0,
            (Scope::Clique(name), _) => i32::from(name == clique),
        }
    };
    let count = |number: i32| u64::try_from(number).unwrap_or(0);
    let pods = template.cliques.iter().map(|clique| {
        let minimum = clique.spec.min_available.unwrap_or(clique.spec.replicas);
        (clique.name.as_str(), count(replicas(&clique.name)) * count(minimum))
    });
    pods.filter(|(_, pods)| *pods > 0).collect()
}

/// What the nodes of each domain of a level have; none where the level does not exist.
fn domains<'a>(
    topology: &Topology,
    word: &str,
    nodes: &[NodeLabels],
    capacity: &'a Capacity,
) -> Option<Vec<Vec<&'a Amounts>>> {
    let key = topology.key(word).and_then(|key| topology.node_key(key))?;
    let keys = topology.node_keys();
    let depth = keys.iter().position(|known| *known == key)?;
    let mut domains: BTreeMap<Vec<&str>, Vec<&Amounts>> = BTreeMap::new();
    for node in nodes {
        if let (Some(path), Some(room)) = (node.path(&keys[..=depth]), capacity.rooms.get(&node.name)) {
            domains.entry(path).or_default().push(room);
        }
    }
    Some(domains.into_values().collect())
}

/// What pods that must be together ask for.
struct Demand<'a> {
    total: BTreeMap<&'a str, u64>,
    per_pod: Vec<&'a Amounts>,
}

impl<'a> Demand<'a> {
    fn of(pods: &[(&str, u64)], capacity: &'a Capacity) -> Self {
        let (mut total, mut per_pod) = (BTreeMap::<&str, u64>::new(), Vec::new());
        for (clique, count) in pods {
            let Some(amounts) = capacity.per_pod.get(*clique) else {
                continue;
            };
            per_pod.push(amounts);
            for (resource, amount) in amounts {
                let sum = total.entry(resource).or_default();
                *sum = sum.saturating_add(amount.saturating_mul(*count));
            }
        }
        Self { total, per_pod }
    }

    /// Whether sums leave it open that these nodes hold everything.
    fn may_fit(&self, rooms: &[&Amounts]) -> bool {
        let all_at_once = self
            .total
            .iter()
            .all(|(resource, amount)| sum(rooms, resource) >= *amount);
        let has_room = |pod: &Amounts, room: &Amounts| {
            pod.iter()
                .all(|(resource, amount)| room.get(resource).is_some_and(|has| has >= amount) || *amount == 0)
        };
        let each_alone = self
            .per_pod
            .iter()
            .all(|pod| rooms.iter().any(|room| has_room(pod, room)));
        all_at_once && each_alone
    }

    /// The resource that no domain has enough of, if there is one.
    fn shortage(&self, domains: &[Vec<&Amounts>]) -> String {
        let short = |(resource, needed): (&&str, &u64)| {
            let most = domains.iter().map(|rooms| sum(rooms, resource)).max().unwrap_or(0);
            (most < *needed).then(|| format!(": they ask for {needed} {resource}, the largest has {most}"))
        };
        self.total.iter().find_map(short).unwrap_or_default()
    }
}

fn sum(rooms: &[&Amounts], resource: &str) -> u64 {
    let amounts = rooms.iter().filter_map(|room| room.get(resource));
    amounts.fold(0, |sum, amount| sum.saturating_add(*amount))
}
