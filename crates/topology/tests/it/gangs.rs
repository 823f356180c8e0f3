//! The gangs of a PodCliqueSet's first replica, named as the operator names them.

use grove_api::config::PreferredPacking;
use grove_api::labels::annotation;
use grove_api::podgang::{GangTopologyConstraint, PodGroup};
use grove_api::{PodCliqueSet, PodGang, PodGangSpec};
use grove_topology::Resolution;
use grove_topology::translate::{GangKind, GangShape, GroupReplica, PodGroupShape, translate};

/// A gang to be: the strings that a [`GangShape`] borrows.
pub(crate) struct Planned {
    pub(crate) name: String,
    scaled: Option<String>,
    members: Vec<Member>,
}

struct Member {
    name: String,
    clique: String,
    /// Name of the group's replica, and of the group.
    group: Option<(String, String)>,
}

impl Member {
    fn shape(&self) -> PodGroupShape<'_> {
        let replica = self.group.as_ref();
        PodGroupShape {
            name: &self.name,
            clique: &self.clique,
            group_replica: replica.map(|(name, scaling_group)| GroupReplica { name, scaling_group }),
        }
    }
}

/// The base gang, then the scaled ones.
pub(crate) fn planned(set: &PodCliqueSet) -> Vec<Planned> {
    let template = &set.spec.template;
    let replica = format!("{}-0", set.metadata.name.as_deref().expect("a test names its set"));
    let is_grouped = |clique: &str| {
        let mut groups = template.scaling_groups.iter();
        groups.any(|group| group.clique_names.iter().any(|name| name == clique))
    };
    let mut base = Vec::new();
    for clique in template.cliques.iter().filter(|clique| !is_grouped(&clique.name)) {
        base.push(Member {
            name: format!("{replica}-{}", clique.name),
            clique: clique.name.clone(),
            group: None,
        });
    }
    let mut scaled = Vec::new();
    for group in &template.scaling_groups {
        for index in 0..group.replicas() {
            let name = format!("{replica}-{}-{index}", group.name);
            let members = group.clique_names.iter().map(|clique| Member {
                name: format!("{name}-{clique}"),
                clique: clique.clone(),
                group: Some((name.clone(), group.name.clone())),
            });
            if index < group.min_available() {
                base.extend(members);
                continue;
            }
            scaled.push(Planned {
                name: format!("{replica}-{}-{}", group.name, index - group.min_available()),
                scaled: Some(group.name.clone()),
                members: members.collect(),
            });
        }
    }
    let base = Planned {
        name: replica,
        scaled: None,
        members: base,
    };
    std::iter::once(base).chain(scaled).collect()
}

impl Planned {
    pub(crate) fn shape(&self) -> GangShape<'_> {
        GangShape {
            name: &self.name,
            kind: match &self.scaled {
                Some(scaling_group) => GangKind::Scaled { scaling_group },
                None => GangKind::Base,
            },
            pod_groups: self.members.iter().map(Member::shape).collect(),
        }
    }

    /// The PodGang as the operator would write it, over `existing`.
    pub(crate) fn gang(
        &self,
        set: &PodCliqueSet,
        resolution: &Resolution,
        packing: PreferredPacking,
        existing: Option<&PodGang>,
    ) -> PodGang {
        let topology = translate(set, resolution, packing, &self.shape(), existing);
        let pod_groups = self.members.iter().map(|member| PodGroup {
            name: member.name.clone(),
            ..PodGroup::default()
        });
        let fresh = || {
            let spec = PodGangSpec {
                pod_groups: pod_groups.collect(),
                ..PodGangSpec::default()
            };
            PodGang::new(&self.name, spec)
        };
        let mut gang = existing.cloned().unwrap_or_else(fresh);
        topology.apply_to(&mut gang);
        gang
    }
}

/// The topology part of a gang in a few lines: `scope: required / preferred`, keys by their last part.
pub(crate) fn described(gang: &PodGang) -> String {
    let annotations = gang.metadata.annotations.clone().unwrap_or_default();
    let name = annotations.get(annotation::TOPOLOGY_NAME);
    assert_eq!(
        gang.spec.topology_ref.as_ref(),
        name,
        "topologyRef and annotation are one"
    );
    let replica = annotations.get(annotation::REPLICA_PACK_REQUIRED);
    let mut lines = vec![
        format!(
            "topology {}, replica {}",
            name.map_or("-", String::as_str),
            replica.map_or("-", |key| short(key))
        ),
        format!("gang: {}", shown(gang.spec.topology_constraint.as_ref())),
    ];
    for config in &gang.spec.topology_constraint_group_configs {
        let members = config.pod_group_names.join(" ");
        let constraint = shown(config.topology_constraint.as_ref());
        lines.push(format!("group {} ({members}): {constraint}", config.name));
    }
    for pod_group in &gang.spec.pod_groups {
        lines.push(format!(
            "{}: {}",
            pod_group.name,
            shown(pod_group.topology_constraint.as_ref())
        ));
    }
    lines.join("\n")
}

fn shown(constraint: Option<&GangTopologyConstraint>) -> String {
    let Some(constraint) = constraint else {
        return "nothing".to_owned();
    };
    let pack = constraint.pack_constraint.clone().unwrap_or_default();
    let part = |key: &Option<String>| key.as_deref().map_or("-", short).to_owned();
    format!("{} / {}", part(&pack.required), part(&pack.preferred))
}

fn short(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}
