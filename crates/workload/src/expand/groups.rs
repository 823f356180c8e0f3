//! PodCliqueScalingGroups.

use std::collections::BTreeMap;

use grove_api::podcliqueset::ScalingGroupTemplate;
use grove_api::{PodCliqueScalingGroup, PodCliqueScalingGroupSpec, labels};

use super::{Expansion, TEMPLATE_REPLICAS};
use crate::meta::{TakenOver, child_meta};
use crate::names;

impl Expansion<'_> {
    pub(super) fn groups(&self, replica: i32) -> Vec<PodCliqueScalingGroup> {
        let templates = self.set.spec.template.scaling_groups.iter();
        templates.map(|template| self.group(replica, template)).collect()
    }

    fn group(&self, replica: i32, template: &ScalingGroupTemplate) -> PodCliqueScalingGroup {
        let name = names::scaling_group(&self.set_name(), replica, &template.name);
        let mut metadata = child_meta(self.set, &name, Some(labels::component::SCALING_GROUP));
        let index = (labels::PCS_REPLICA_INDEX.to_owned(), replica.to_string());
        metadata.labels.get_or_insert_default().extend([index]);
        let mut annotations = template.annotations.clone();
        annotations.insert(TEMPLATE_REPLICAS.to_owned(), template.replicas().to_string());
        metadata.annotations = Some(annotations);
        TakenOver::new(&BTreeMap::new(), &template.annotations).record(&mut metadata);
        metadata.finalizers = Some(vec![labels::finalizer::SCALING_GROUP.to_owned()]);
        let stored = self.live.group(&name);
        metadata.resource_version = stored.and_then(|stored| stored.metadata.resource_version.clone());
        let spec = PodCliqueScalingGroupSpec {
            replicas: self.live.group_replicas(&name, template),
            min_available: Some(template.min_available()),
            clique_names: template.clique_names.clone(),
        };
        PodCliqueScalingGroup {
            metadata,
            spec,
            status: None,
        }
    }
}
