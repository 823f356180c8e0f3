//! One instance as both sides see it: the judge's plain numbers, and the engine's cluster and gang.

use std::collections::BTreeMap;

use grove_placement::{
    Amounts, Attribute, Budget, Cluster, Gang, Group, Level, Mark, NodeId, NodeSpec, Outcome, Pack, Plan, PodGroup,
    Replica, Requirement, Resource, Rules, Shape, Solver, Stance, Test, TopologySpec, Traits,
};
use grove_plancheck::{Instance, Put, check, key};

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) gang: Gang,
    pub(crate) hosts: Vec<NodeId>,
}

/// What the engine answered, in the judge's terms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Placed {
        puts: Vec<Put>,
        key: Vec<u64>,
        optimal: bool,
    },
    Infeasible,
    Undecided,
}

fn word(depth: usize) -> String {
    format!("level-{depth}")
}

/// Builds the engine's view. The first scope of the instance is the gang, or the replica when `replica` is set.
pub(crate) fn build(instance: &Instance) -> World {
    let mut cluster = Cluster::new();
    let resources: Vec<_> = (0..instance.totals.len())
        .map(|index| cluster.resource(&format!("r{index}")))
        .collect();
    let level = |depth| Level {
        word: word(depth),
        key: format!("key/{depth}"),
    };
    let levels: Vec<Level> = (1..=instance.levels + 2).map(level).collect();
    let topology = cluster.set_topology(TopologySpec {
        name: "t".to_owned(),
        levels,
        host: Some(instance.levels),
    });
    let hosts: Vec<NodeId> = (0..instance.hosts.len())
        .map(|host| add_host(&mut cluster, instance, host, &resources))
        .collect();
    let node = |host: &usize| hosts[*host];
    let pack = |scope: usize| {
        let scope = &instance.scopes[scope];
        let stated = |depth: usize| (depth > 0).then(|| word(depth));
        Pack {
            required: stated(scope.required),
            preferred: stated(scope.preferred),
        }
    };
    // The scopes are: a replica if the first has others, the gang, groups, and one per pod-group.
    let has_replica = !instance.scopes[0].others.is_empty();
    let own = usize::from(has_replica);
    let replica = has_replica.then(|| Replica {
        required: word(instance.scopes[0].required),
        bound: instance.scopes[0].others.iter().map(node).collect(),
    });
    let marks: Vec<Mark> = (0..instance.aparts.len())
        .map(|apart| add_mark(&mut cluster, instance, apart, &hosts))
        .collect();
    let is_group = |scope: &usize| instance.scopes[*scope].tier == 1;
    let groups: Vec<usize> = (0..instance.scopes.len()).filter(is_group).collect();
    let mut pod_groups = Vec::new();
    for (index, group) in instance.groups.iter().enumerate() {
        let allowed = (0..hosts.len())
            .filter(|host| group.eligible[*host])
            .map(|host| format!("h{host}"))
            .collect();
        let everywhere = group.eligible.iter().all(|eligible| *eligible);
        let rules = Rules {
            allowed_nodes: (!everywhere).then_some(allowed),
            preferred: preferences(&group.dislikes),
            ..Rules::default()
        };
        let requests = resources
            .iter()
            .zip(&group.request)
            .map(|(resource, amount)| (*resource, *amount))
            .collect();
        let parent = instance.scopes[group.scope].parent;
        let bound: Vec<NodeId> = group.bound.iter().map(node).collect();
        pod_groups.push(PodGroup {
            name: format!("p{index}"),
            group: groups.iter().position(|scope| Some(*scope) == parent),
            pack: pack(group.scope),
            shape: cluster.shape(&Shape {
                requests,
                rules,
                marks: marks_of(&marks, instance, index),
            }),
            minimum: group.minimum + bound.len() as u32,
            desired: group.desired + bound.len() as u32,
            bound,
        });
    }
    let group = |scope: &usize| Group {
        name: format!("g{scope}"),
        pack: pack(*scope),
    };
    let gang = Gang {
        name: "gang".to_owned(),
        topology,
        replica,
        pack: pack(own),
        groups: groups.iter().map(group).collect(),
        pod_groups,
    };
    World { cluster, gang, hosts }
}

/// Each host that is disliked is told by its name: a pod prefers all others.
fn preferences(dislikes: &[u64]) -> Vec<(u32, Vec<Requirement>)> {
    let disliked = dislikes.iter().enumerate().filter(|(_, penalty)| **penalty > 0);
    let preference = |(host, penalty): (usize, &u64)| {
        let requirement = Requirement {
            of: Attribute::Name,
            is: Test::NotIn(vec![format!("h{host}")]),
        };
        (*penalty as u32, vec![requirement])
    };
    disliked.map(preference).collect()
}

fn stance(avoids: bool, bears: bool) -> Stance {
    Stance { avoids, bears }
}

/// A mark with the pods that run.
fn add_mark(cluster: &mut Cluster, instance: &Instance, apart: usize, hosts: &[NodeId]) -> Mark {
    let spec = &instance.aparts[apart];
    let mark = cluster.mark(&format!("m{apart}"), &format!("apart/{}", spec.depth));
    for (host, avoids, bears) in &spec.running {
        cluster.set_mark(hosts[*host], mark, stance(*avoids, *bears));
    }
    mark
}

fn marks_of(marks: &[Mark], instance: &Instance, group: usize) -> Vec<(Mark, Stance)> {
    let all = marks.iter().zip(&instance.aparts);
    let stances = all.map(|(mark, apart)| (*mark, stance(apart.groups[group].0, apart.groups[group].1)));
    stances.filter(|(_, stance)| *stance != Stance::default()).collect()
}

fn add_host(cluster: &mut Cluster, instance: &Instance, host: usize, resources: &[Resource]) -> NodeId {
    let spec = &instance.hosts[host];
    let values = spec.path.iter().flatten().enumerate();
    let mut labels: BTreeMap<String, String> = values
        .map(|(level, value)| (format!("key/{}", level + 1), value.to_string()))
        .collect();
    // Pods are kept apart by values of one label, so that has to tell equal names under different parents apart.
    for depth in 1..=spec.path.as_ref().map_or(0, Vec::len) {
        let path = spec.path.iter().flatten().take(depth).map(u32::to_string);
        labels.insert(format!("apart/{depth}"), path.collect::<Vec<_>>().join("-"));
    }
    labels.insert(format!("apart/{}", instance.levels + 1), format!("h{host}"));
    // What others use is bound, so that totals differ from what is free as on a real cluster.
    let share = |resource: usize| instance.totals[resource] / instance.hosts.len() as u64;
    let allocatable = resources
        .iter()
        .enumerate()
        .map(|(index, resource)| (*resource, share(index)))
        .collect();
    let traits = Traits {
        name: format!("h{host}"),
        labels,
        ..Traits::default()
    };
    let node = cluster.set_node(NodeSpec { traits, allocatable });
    let used = resources
        .iter()
        .enumerate()
        .map(|(index, resource)| (*resource, share(index) - spec.free[index] as u64));
    let used: Amounts = used.collect();
    cluster.take(node, &used);
    // What others use counts in every cell.
    let stated = |cell: &Vec<Option<i64>>| -> Vec<(Resource, u64)> {
        let all = resources.iter().zip(cell);
        let counted = all.filter_map(|(resource, free)| Some((*resource, (*free)? as u64 + used.get(*resource))));
        counted.collect()
    };
    let cells: Vec<_> = spec.cells.iter().map(stated).collect();
    cluster.set_cells(node, &cells);
    node
}

/// Solves and has the judge look at the plan.
pub(crate) fn solve(world: &mut World, instance: &Instance, solver: &mut Solver, budget: Budget) -> Answer {
    let World { cluster, gang, hosts } = world;
    match solver.solve(cluster, gang, budget) {
        Outcome::Infeasible => Answer::Infeasible,
        Outcome::Undecided => Answer::Undecided,
        Outcome::Placed(plan) => judge(instance, hosts, plan),
    }
}

pub(crate) fn judge(instance: &Instance, hosts: &[NodeId], plan: &Plan) -> Answer {
    let host = |node: NodeId| {
        hosts
            .iter()
            .position(|known| *known == node)
            .expect("the plan names known nodes")
    };
    let puts: Vec<Put> = plan
        .assignments
        .iter()
        .map(|assignment| Put {
            group: assignment.pod_group,
            host: host(assignment.node),
            cell: assignment.cell.map(usize::from),
            pods: assignment.pods,
        })
        .collect();
    assert_eq!(check(instance, &puts), [], "{instance:?}\n{puts:?}");
    let quality = &plan.quality;
    let shortfall = quality.shortfall.iter().map(|levels| u64::from(*levels));
    let domains = quality.domains.iter().map(|domains| u64::from(*domains));
    let opened = std::iter::once(quality.penalty).chain(quality.opened.iter().copied());
    let stated: Vec<u64> = if instance.states_level() {
        shortfall.chain(domains).chain(opened).collect()
    } else {
        shortfall.chain(opened).chain(domains).collect()
    };
    let is_minimum = instance.groups.iter().all(|group| group.minimum == group.desired);
    let key = key(instance, &puts);
    if is_minimum && plan.optimal {
        assert_eq!(
            stated, key,
            "the engine knows how good its plan is\n{instance:?}\n{puts:?}"
        );
    }
    Answer::Placed {
        puts,
        key,
        optimal: plan.optimal,
    }
}
