//! PodGangs: which cliques are placed together.
//!
//! The base gang of a replica holds its standalone cliques and the minimum of every scaling group; each replica of a
//! scaling group above the minimum is a scaled gang of its own.

use std::collections::BTreeMap;

use grove_api::podcliqueset::PodCliqueTemplate;
use grove_api::podgang::PodGroup;
use grove_api::{PodCliqueSet, PodGang, PodGangSpec, labels};
use kube::ResourceExt;

use super::Expansion;
use crate::meta::{TakenOver, child_meta};
use crate::names;

/// Annotations that `kubectl` keeps for itself; copies of them would only be large.
const KUBECTL: &str = "kubectl.kubernetes.io/";

/// The cliques of one gang.
#[derive(Clone, Debug, PartialEq)]
pub struct GangPlan<'a> {
    pub name: String,
    /// Index of the set's replica.
    pub replica: i32,
    /// The gang that must be scheduled before this one; none for a base gang.
    pub base: Option<String>,
    pub cliques: Vec<GangClique<'a>>,
}

/// One clique of a gang.
#[derive(Clone, Debug, PartialEq)]
pub struct GangClique<'a> {
    /// Name of the PodClique.
    pub name: String,
    pub template: &'a PodCliqueTemplate,
    /// Name of the PodCliqueScalingGroup and index of its replica, for a member of one.
    pub group_replica: Option<(String, i32)>,
    /// How many pods must be placed for the gang to be placed.
    pub min_replicas: i32,
}

/// The scheduler that a set's pods name: all cliques that name one name the same.
pub fn named_scheduler(set: &PodCliqueSet) -> Option<&str> {
    set.spec.template.cliques.iter().find_map(scheduler)
}

pub(crate) fn scheduler(clique: &PodCliqueTemplate) -> Option<&str> {
    let name = clique.spec.pod_spec.scheduler_name.as_deref();
    name.filter(|name| !name.is_empty())
}

impl<'a> Expansion<'a> {
    /// The gangs of a replica, the base gang first.
    pub fn gang_plans(&self, replica: i32) -> Vec<GangPlan<'a>> {
        let set = self.set_name();
        let mut base = GangPlan {
            name: names::base_gang(&set, replica),
            replica,
            base: None,
            cliques: names::standalone(self.set)
                .filter_map(|template| {
                    self.gang_clique(names::podclique(&set, replica, &template.name), template, None)
                })
                .collect(),
        };
        let mut scaled = Vec::new();
        for template in &self.set.spec.template.scaling_groups {
            let group = names::scaling_group(&set, replica, &template.name);
            for index in 0..self.live.group_replicas(&group, template) {
                let cliques = names::members(self.set, template).filter_map(|member| {
                    let name = names::member_podclique(&group, index, &member.name);
                    self.gang_clique(name, member, Some((group.clone(), index)))
                });
                if index < template.min_available() {
                    base.cliques.extend(cliques);
                } else {
                    scaled.push(GangPlan {
                        name: names::scaled_gang(&group, index, template.min_available()),
                        replica,
                        base: Some(base.name.clone()),
                        cliques: cliques.collect(),
                    });
                }
            }
        }
        std::iter::once(base).chain(scaled).collect()
    }

    /// A clique that is scaled to zero has nothing to place.
    fn gang_clique(
        &self,
        name: String,
        template: &'a PodCliqueTemplate,
        group_replica: Option<(String, i32)>,
    ) -> Option<GangClique<'a>> {
        let min_replicas = self.live.clique_minimum(&name, template);
        (min_replicas > 0).then_some(GangClique {
            name,
            template,
            group_replica,
            min_replicas,
        })
    }

    /// The PodGang of a plan, without pods and without constraints.
    pub fn gang(&self, plan: &GangPlan<'_>) -> PodGang {
        let mut metadata = child_meta(self.set, &plan.name, Some(labels::component::PODGANG));
        let own = metadata.labels.take().unwrap_or_default();
        let (mut all, annotations) = (mirrored(self.set.labels()), mirrored(self.set.annotations()));
        let taken_over = TakenOver::new(&all, &annotations);
        all.extend(own);
        all.remove(labels::NAME);
        all.insert(labels::PCS_REPLICA_INDEX.to_owned(), plan.replica.to_string());
        all.insert(labels::SCHEDULER_NAME.to_owned(), self.scheduler.to_owned());
        all.extend(plan.base.clone().map(|base| (labels::BASE_PODGANG.to_owned(), base)));
        metadata.labels = Some(all);
        metadata.annotations = Some(annotations).filter(|all| !all.is_empty());
        taken_over.record(&mut metadata);
        let groups = plan.cliques.iter().map(|clique| PodGroup {
            name: clique.name.clone(),
            pod_references: vec![],
            min_replicas: clique.min_replicas,
            topology_constraint: None,
        });
        let spec = PodGangSpec {
            pod_groups: groups.collect(),
            priority_class_name: self
                .set
                .spec
                .template
                .priority_class_name
                .clone()
                .filter(|name| !name.is_empty()),
            ..PodGangSpec::default()
        };
        PodGang {
            metadata,
            spec,
            status: None,
        }
    }
}

/// The set's own labels or annotations, for schedulers that read them on the gang (a queue's name, for example).
fn mirrored(written: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let theirs = |key: &str| !key.starts_with("grove.io/") && !key.starts_with(KUBECTL) && key != labels::NAME;
    let kept = written.iter().filter(|(key, _)| theirs(key));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}
