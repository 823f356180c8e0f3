//! The closeness words of a PodCliqueSet on one of its gangs.
//!
//! Joins two crates that do not know each other: which cliques a gang has is the workload's matter, what their words
//! mean is the topology's. Pure; the operator uses it for what it writes, `grove plan` for what it would write.

use grove_api::config::PreferredPacking;
use grove_api::podcliqueset::ScalingGroupTemplate;
use grove_api::{PodCliqueSet, PodGang};
use grove_topology::Resolution;
use grove_topology::translate::{GangKind, GangShape, GroupReplica, PodGroupShape, translate};
use grove_workload::expand::gangs::{GangClique, GangPlan};
use grove_workload::names;
use kube::ResourceExt;

/// Puts the constraints of the set on one of its gangs. `existing` is the stored PodGang, if there is one.
pub fn constrain(
    wanted: &mut PodGang,
    (set, plan): (&PodCliqueSet, &GangPlan<'_>),
    resolution: &Resolution,
    (packing, existing): (PreferredPacking, Option<&PodGang>),
) {
    let groups = GroupNames::of(set, plan);
    translate(set, resolution, packing, &groups.shape(plan), existing).apply_to(wanted);
}

/// For each clique of a plan that is a member of a scaling group: name and index of the group's replica, and the group in
/// the template.
struct GroupNames<'a>(Vec<Option<(String, &'a str)>>);

impl<'a> GroupNames<'a> {
    fn of(set: &'a PodCliqueSet, plan: &GangPlan<'_>) -> Self {
        let groups = &set.spec.template.scaling_groups;
        let set_name = set.name_any();
        let name = |clique: &GangClique<'_>| {
            let (group, index) = clique.group_replica.as_ref()?;
            let is_it = |template: &&ScalingGroupTemplate| {
                names::scaling_group(&set_name, plan.replica, &template.name) == *group
            };
            let template = groups.iter().find(is_it)?;
            Some((format!("{group}-{index}"), template.name.as_str()))
        };
        Self(plan.cliques.iter().map(name).collect())
    }

    fn shape(&'a self, plan: &'a GangPlan<'_>) -> GangShape<'a> {
        let pod_groups = plan.cliques.iter().zip(&self.0).map(|(clique, group)| PodGroupShape {
            name: &clique.name,
            clique: &clique.template.name,
            group_replica: group
                .as_ref()
                .map(|(name, scaling_group)| GroupReplica { name, scaling_group }),
        });
        let scaling_group = self.0.iter().flatten().next().map(|(_, scaling_group)| *scaling_group);
        let kind = match (&plan.base, scaling_group) {
            (Some(_), Some(scaling_group)) => GangKind::Scaled { scaling_group },
            _ => GangKind::Base,
        };
        GangShape {
            name: &plan.name,
            kind,
            pod_groups: pod_groups.collect(),
        }
    }
}
