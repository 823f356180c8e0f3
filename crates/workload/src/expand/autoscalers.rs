//! HorizontalPodAutoscalers of the cliques and scaling groups that scale by themselves.
//!
//! Every field that is ever written is always written, so that one that is taken out of the set's template does not
//! linger in the object.

use grove_api::podclique::AutoScalingConfig;
use grove_api::{PodClique, PodCliqueScalingGroup, labels};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec, MetricTarget,
    ResourceMetricSource,
};
use kube::Resource;

use super::Expansion;
use crate::meta::child_meta;
use crate::names;

impl Expansion<'_> {
    pub(super) fn autoscalers(&self, replica: i32) -> Vec<HorizontalPodAutoscaler> {
        let set = self.set_name();
        let cliques = names::standalone(self.set).filter_map(|clique| {
            let name = names::podclique(&set, replica, &clique.name);
            let config = clique.spec.auto_scaling_config.as_ref()?;
            Some(self.autoscaler::<PodClique>((replica, &name), config, clique.spec.replicas))
        });
        let groups = self.set.spec.template.scaling_groups.iter().filter_map(|group| {
            let name = names::scaling_group(&set, replica, &group.name);
            let config = group.scale_config.as_ref()?;
            Some(self.autoscaler::<PodCliqueScalingGroup>((replica, &name), config, group.replicas()))
        });
        cliques.chain(groups).collect()
    }

    fn autoscaler<Target: Resource<DynamicType = ()>>(
        &self,
        (replica, name): (i32, &str),
        config: &AutoScalingConfig,
        written: i32,
    ) -> HorizontalPodAutoscaler {
        let mut metadata = child_meta(self.set, name, Some(labels::component::AUTOSCALER));
        let index = (labels::PCS_REPLICA_INDEX.to_owned(), replica.to_string());
        metadata.labels.get_or_insert_default().extend([index]);
        let metrics = if config.metrics.is_empty() {
            vec![default_metric()]
        } else {
            config.metrics.clone()
        };
        let spec = HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some(Target::api_version(&()).into_owned()),
                kind: Target::kind(&()).into_owned(),
                name: name.to_owned(),
            },
            min_replicas: Some(config.min_replicas.unwrap_or(written)),
            max_replicas: config.max_replicas,
            metrics: Some(metrics),
            behavior: None,
        };
        HorizontalPodAutoscaler {
            metadata,
            spec,
            status: None,
        }
    }
}

/// What the API server fills in when no metric is written.
fn default_metric() -> MetricSpec {
    MetricSpec {
        type_: "Resource".to_owned(),
        resource: Some(ResourceMetricSource {
            name: "cpu".to_owned(),
            target: MetricTarget {
                type_: "Utilization".to_owned(),
                average_utilization: Some(80),
                ..MetricTarget::default()
            },
        }),
        ..MetricSpec::default()
    }
}
