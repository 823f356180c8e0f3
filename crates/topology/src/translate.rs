//! From the words of a PodCliqueSet to the node label keys of its PodGangs.
//!
//! Owns which scope of the set constrains which part of a gang, the wishes that the operator adds by itself
//! (`preferredPacking`), and what is left when levels, or the whole topology, are gone. Does not decide which gangs
//! there are or what they are called: the caller describes each gang as a [`GangShape`].

use std::collections::BTreeMap;

use grove_api::config::PreferredPacking;
use grove_api::labels::annotation;
use grove_api::podgang::{GangTopologyConstraint, PackConstraint, TopologyConstraintGroupConfig};
use grove_api::{PodCliqueSet, PodGang, TopologyConstraint};

use crate::levels::Topology;
use crate::resolve::Resolution;
use crate::scopes::{self, Scope};

/// A gang as far as its constraints depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangShape<'a> {
    pub name: &'a str,
    pub kind: GangKind<'a>,
    pub pod_groups: Vec<PodGroupShape<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GangKind<'a> {
    /// The minimum that makes a PodCliqueSet replica work.
    Base,
    /// One replica of this scaling group above its minimum.
    Scaled { scaling_group: &'a str },
}

/// A pod-group of a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodGroupShape<'a> {
    /// Name of the PodClique object.
    pub name: &'a str,
    /// Name of its clique in the template.
    pub clique: &'a str,
    /// The replica of a scaling group that it is part of.
    pub group_replica: Option<GroupReplica<'a>>,
}

/// A replica of a scaling group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupReplica<'a> {
    /// Name of the PodCliqueScalingGroup object and the index of the replica.
    pub name: &'a str,
    /// Name of the group in the template.
    pub scaling_group: &'a str,
}

/// The topology part of a PodGang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangTopology {
    /// Name of the topology: `spec.topologyRef` and the annotation `grove.io/topology-name`.
    pub topology_name: Option<String>,
    /// Annotation `grove.io/replica-pack-required`: key of the level that all gangs of a replica share.
    pub replica_required: Option<String>,
    pub constraint: Option<GangTopologyConstraint>,
    pub group_configs: Vec<TopologyConstraintGroupConfig>,
    /// By name of the pod-group; a pod-group without a constraint is not in it.
    pub pod_groups: BTreeMap<String, GangTopologyConstraint>,
    /// Annotation `grove.io/preferred-by-policy`: scopes that prefer what their author did not ask for.
    pub preferred_by_policy: Option<String>,
}

impl GangTopology {
    /// Writes every topology field of `gang`, and removes what no longer holds.
    pub fn apply_to(self, gang: &mut PodGang) {
        let mut annotations = gang.metadata.annotations.take().unwrap_or_default();
        let mut annotate = |key: &str, value: Option<&String>| match value {
            Some(value) => annotations.insert(key.to_owned(), value.clone()),
            None => annotations.remove(key),
        };
        annotate(annotation::TOPOLOGY_NAME, self.topology_name.as_ref());
        annotate(annotation::REPLICA_PACK_REQUIRED, self.replica_required.as_ref());
        annotate(annotation::PREFERRED_BY_POLICY, self.preferred_by_policy.as_ref());
        gang.metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
        gang.spec.topology_ref = self.topology_name;
        gang.spec.topology_constraint = self.constraint;
        gang.spec.topology_constraint_group_configs = self.group_configs;
        for pod_group in &mut gang.spec.pod_groups {
            pod_group.topology_constraint = self.pod_groups.get(&pod_group.name).cloned();
        }
    }
}

/// The topology part of the gang `shape`. `resolution` is that of [`crate::resolve::packing_reference`]; `existing` is
/// the stored PodGang, if there is one.
///
/// While the topology is gone or the feature is off, nothing can be required: a scheduler could not fulfil it and would
/// hold the pods for ever. What an existing gang merely prefers is left as found, so that its pods' scheduler sees no
/// change; a new gang gets nothing.
pub fn translate(
    set: &PodCliqueSet,
    resolution: &Resolution,
    packing: PreferredPacking,
    shape: &GangShape<'_>,
    existing: Option<&PodGang>,
) -> GangTopology {
    match resolution {
        Resolution::Unused => GangTopology::default(),
        Resolution::Disabled | Resolution::Missing { .. } => {
            existing.map_or_else(GangTopology::default, |gang| without_required(gang, shape))
        }
        Resolution::InForce { topology, .. } => Translation::new(set, topology, packing).gang(shape),
    }
}

/// A set beside the topology in force.
struct Translation<'a> {
    constraints: BTreeMap<Scope<'a>, &'a TopologyConstraint>,
    topology: &'a Topology,
    /// Key that is preferred where the author prefers none.
    fill: Option<&'a str>,
}

impl<'a> Translation<'a> {
    fn new(set: &'a PodCliqueSet, topology: &'a Topology, packing: PreferredPacking) -> Self {
        let constraints = scopes::by_scope(&set.spec.template);
        let is_packed = match packing {
            PreferredPacking::Never => false,
            PreferredPacking::Constrained => !constraints.is_empty(),
            PreferredPacking::Always => true,
        };
        Self {
            constraints,
            topology,
            fill: topology
                .strictest()
                .filter(|_| is_packed)
                .map(|level| level.key.as_str()),
        }
    }

    fn gang(&self, shape: &GangShape<'_>) -> GangTopology {
        let constraint = match shape.kind {
            GangKind::Base => self.constraint(Scope::Replica),
            GangKind::Scaled { scaling_group } => self.scaled(scaling_group),
        };
        let group_configs = match shape.kind {
            GangKind::Base => self.group_configs(shape),
            GangKind::Scaled { .. } => Vec::new(),
        };
        let of_group = |group: &PodGroupShape<'_>| {
            let constraint = self.constraint(Scope::Clique(group.clique))?;
            Some((group.name.to_owned(), constraint))
        };
        let pod_groups: BTreeMap<_, _> = shape.pod_groups.iter().filter_map(of_group).collect();
        let in_groups = group_configs.iter().any(|config| config.topology_constraint.is_some());
        let says_something = constraint.is_some() || in_groups || !pod_groups.is_empty();
        let preferred_by_policy = self.filled(shape, constraint.as_ref(), (&group_configs, &pod_groups));
        GangTopology {
            topology_name: says_something.then(|| self.topology.name().to_owned()),
            replica_required: self.required(Scope::Replica).map(str::to_owned),
            constraint,
            group_configs,
            pod_groups,
            preferred_by_policy,
        }
    }

    /// Names of the scopes that prefer something although their author prefers nothing.
    fn filled(
        &self,
        shape: &GangShape<'_>,
        gang: Option<&GangTopologyConstraint>,
        (configs, pod_groups): (
            &[TopologyConstraintGroupConfig],
            &BTreeMap<String, GangTopologyConstraint>,
        ),
    ) -> Option<String> {
        let is_filled = |scope: Scope<'_>, constraint: Option<&GangTopologyConstraint>| {
            let pack = constraint.and_then(|constraint| constraint.pack_constraint.as_ref());
            pack.is_some_and(|pack| pack.preferred.is_some()) && self.preferred(scope).is_none()
        };
        let own = match shape.kind {
            GangKind::Base => Scope::Replica,
            GangKind::Scaled { scaling_group } => self.scaled_scope(scaling_group),
        };
        let mut names: Vec<&str> = Vec::new();
        names.extend(is_filled(own, gang).then_some(shape.name));
        for pod_group in &shape.pod_groups {
            if let Some(replica) = pod_group.group_replica
                && let Some(config) = configs.iter().find(|config| config.name == replica.name)
                && is_filled(
                    Scope::ScalingGroup(replica.scaling_group),
                    config.topology_constraint.as_ref(),
                )
                && !names.contains(&replica.name)
            {
                names.push(replica.name);
            }
            let constraint = pod_groups.get(pod_group.name);
            names.extend(is_filled(Scope::Clique(pod_group.clique), constraint).then_some(pod_group.name));
        }
        (!names.is_empty()).then(|| names.join(","))
    }

    fn constraint(&self, scope: Scope<'_>) -> Option<GangTopologyConstraint> {
        self.packed(self.required(scope), self.preferred(scope))
    }

    /// A scaled gang is bound as its scaling group is; where that says nothing that holds, as the whole replica is.
    fn scaled(&self, scaling_group: &str) -> Option<GangTopologyConstraint> {
        let group = Scope::ScalingGroup(scaling_group);
        let required = self.required(group).or_else(|| self.required(Scope::Replica));
        let preferred = self.preferred(self.scaled_scope(scaling_group));
        self.packed(required, preferred)
    }

    /// Whose wishes a scaled gang has.
    fn scaled_scope<'b>(&self, scaling_group: &'b str) -> Scope<'b> {
        let group = Scope::ScalingGroup(scaling_group);
        match self.constraints.contains_key(&group) {
            true => group,
            false => Scope::Replica,
        }
    }

    /// One for each replica of a constrained scaling group, kept also when its level is gone: the pod-groups still
    /// belong together.
    fn group_configs(&self, shape: &GangShape<'_>) -> Vec<TopologyConstraintGroupConfig> {
        let mut configs: Vec<TopologyConstraintGroupConfig> = Vec::new();
        for pod_group in &shape.pod_groups {
            let Some(replica) = pod_group.group_replica else {
                continue;
            };
            let scope = Scope::ScalingGroup(replica.scaling_group);
            if !self.constraints.contains_key(&scope) {
                continue;
            }
            match configs.iter_mut().find(|config| config.name == replica.name) {
                Some(config) => config.pod_group_names.push(pod_group.name.to_owned()),
                None => configs.push(TopologyConstraintGroupConfig {
                    name: replica.name.to_owned(),
                    pod_group_names: vec![pod_group.name.to_owned()],
                    topology_constraint: self.constraint(scope),
                }),
            }
        }
        configs
    }

    fn required(&self, scope: Scope<'_>) -> Option<&str> {
        self.topology.key(self.constraints.get(&scope)?.required()?)
    }

    /// What the author prefers there, as far as it exists.
    fn preferred(&self, scope: Scope<'_>) -> Option<&str> {
        self.topology.key(self.constraints.get(&scope)?.preferred()?)
    }

    /// A preferred level that is broader than the required one can never be fallen back to. It is left out: other
    /// schedulers take it for an error and hold the pods.
    fn packed(&self, required: Option<&str>, preferred: Option<&str>) -> Option<GangTopologyConstraint> {
        let depth = |key: &str| self.topology.depth(key);
        let preferred = match (required, preferred.or(self.fill)) {
            (Some(required), Some(preferred)) if depth(preferred) < depth(required) => None,
            (_, preferred) => preferred,
        };
        pack_constraint(required.map(str::to_owned), preferred.map(str::to_owned))
    }
}

fn pack_constraint(required: Option<String>, preferred: Option<String>) -> Option<GangTopologyConstraint> {
    (required.is_some() || preferred.is_some()).then_some(GangTopologyConstraint {
        pack_constraint: Some(PackConstraint { required, preferred }),
    })
}

/// What an existing gang merely prefers, as far as its parts are still there.
fn without_required(gang: &PodGang, shape: &GangShape<'_>) -> GangTopology {
    let preferred = |constraint: Option<&GangTopologyConstraint>| {
        let pack = constraint?.pack_constraint.as_ref()?;
        pack_constraint(None, pack.preferred.clone())
    };
    let spec = &gang.spec;
    let is_part = |name: &str| shape.pod_groups.iter().any(|pod_group| pod_group.name == name);
    let pod_groups = spec.pod_groups.iter().filter(|pod_group| is_part(&pod_group.name));
    let pod_groups = pod_groups.filter_map(|pod_group| {
        let constraint = preferred(pod_group.topology_constraint.as_ref())?;
        Some((pod_group.name.clone(), constraint))
    });
    let group_configs = spec.topology_constraint_group_configs.iter().map(|config| {
        let names = config.pod_group_names.iter().filter(|name| is_part(name));
        TopologyConstraintGroupConfig {
            name: config.name.clone(),
            pod_group_names: names.cloned().collect(),
            topology_constraint: preferred(config.topology_constraint.as_ref()),
        }
    });
    let annotations = gang.metadata.annotations.as_ref();
    let annotated = |key| annotations.and_then(|annotations| annotations.get(key));
    GangTopology {
        topology_name: annotated(annotation::TOPOLOGY_NAME)
            .or(spec.topology_ref.as_ref())
            .cloned(),
        replica_required: None,
        constraint: preferred(spec.topology_constraint.as_ref()),
        group_configs: group_configs
            .filter(|config| !config.pod_group_names.is_empty())
            .collect(),
        pod_groups: pod_groups.collect(),
        preferred_by_policy: annotated(annotation::PREFERRED_BY_POLICY).cloned(),
    }
}
