//! Defaults that admission fills into a PodCliqueSet, so that what is stored says what happens.

use grove_api::PodCliqueSet;
use grove_api::duration::DurationString;
use grove_api::podcliqueset::PodCliqueTemplate;

/// How long a gang may stay below its minimum.
pub const TERMINATION_DELAY: &str = "4h";

const TERMINATION_GRACE_SECONDS: i64 = 30;

/// Fills in what was not written. What was written stays; doing it twice changes nothing more.
pub fn fill(set: &mut PodCliqueSet) {
    let template = &mut set.spec.template;
    template.cliques.iter_mut().for_each(fill_clique);
    for group in &mut template.scaling_groups {
        let replicas = *group.replicas.get_or_insert(1);
        group.min_available.get_or_insert(1);
        if let Some(config) = &mut group.scale_config {
            config.min_replicas.get_or_insert(replicas);
        }
    }
    template
        .termination_delay
        .get_or_insert_with(|| DurationString(TERMINATION_DELAY.to_owned()));
    template.headless_service_config.get_or_insert_default();
}

/// What is filled in otherwise than it was written, in words for whoever wrote it.
pub fn remarks(set: &PodCliqueSet) -> Vec<String> {
    let cliques = set.spec.template.cliques.iter().enumerate();
    let zero = cliques.filter(|(_, clique)| clique.spec.replicas == 0);
    zero.map(|(index, clique)| {
        format!(
            "spec.template.cliques[{index}].spec.replicas: 0 becomes 1 in clique '{}'; to run none of it, scale its \
             PodClique or PodCliqueScalingGroup to 0 once it exists",
            clique.name
        )
    })
    .collect()
}

fn fill_clique(clique: &mut PodCliqueTemplate) {
    let spec = &mut clique.spec;
    if spec.replicas == 0 {
        spec.replicas = 1;
    }
    spec.min_available.get_or_insert(spec.replicas);
    if let Some(config) = &mut spec.auto_scaling_config {
        config.min_replicas.get_or_insert(spec.replicas);
    }
    spec.pod_spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
    spec.pod_spec
        .termination_grace_period_seconds
        .get_or_insert(TERMINATION_GRACE_SECONDS);
}

#[cfg(test)]
mod tests {
    use grove_api::podclique::AutoScalingConfig;

    use super::*;
    use crate::fixtures::{clique, set};
    use crate::validate::{Rules, create};

    #[test]
    fn what_was_not_written_is_filled_in_and_valid() {
        let bare = clique("fe").edit(|clique| {
            clique.spec.replicas = 0;
            clique.spec.min_available = None;
            clique.spec.auto_scaling_config = Some(AutoScalingConfig {
                max_replicas: 3,
                ..AutoScalingConfig::default()
            });
        });
        let mut set = set("a")
            .with_clique(bare)
            .with_group("g", (4, 1), vec![clique("w")])
            .build();
        set.spec.template.scaling_groups[0].scale_config = Some(AutoScalingConfig {
            max_replicas: 9,
            ..AutoScalingConfig::default()
        });
        let told = remarks(&set);
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("spec.template.cliques[0].spec.replicas: 0 becomes 1 in clique 'fe'"),
            "{told:?}"
        );
        fill(&mut set);
        assert!(remarks(&set).is_empty());
        let spec = &set.spec.template.cliques[0].spec;
        assert_eq!((spec.replicas, spec.min_available), (1, Some(1)));
        assert_eq!(spec.auto_scaling_config.as_ref().unwrap().min_replicas, Some(1));
        assert_eq!(spec.pod_spec.restart_policy.as_deref(), Some("Always"));
        assert_eq!(spec.pod_spec.termination_grace_period_seconds, Some(30));
        let template = &set.spec.template;
        assert_eq!(
            template.scaling_groups[0].scale_config.as_ref().unwrap().min_replicas,
            Some(4)
        );
        assert_eq!(template.termination_delay.as_ref().unwrap().0, "4h");
        assert!(
            template
                .headless_service_config
                .as_ref()
                .unwrap()
                .publish_not_ready_addresses
        );
        assert_eq!(create(&set, &Rules::default()), []);

        let once = set.clone();
        fill(&mut set);
        assert_eq!(set, once);
    }

    #[test]
    fn what_was_written_stays() {
        let mut set = set("a").with_clique(clique("fe").sized(5, 2)).build();
        set.spec.template.cliques[0].spec.pod_spec.restart_policy = Some("OnFailure".into());
        set.spec.template.termination_delay = Some(DurationString("1m".into()));
        fill(&mut set);
        assert_eq!(set.spec.template.cliques[0].spec.min_available, Some(2));
        assert_eq!(
            set.spec.template.cliques[0].spec.pod_spec.restart_policy.as_deref(),
            Some("OnFailure")
        );
        assert_eq!(set.spec.template.termination_delay.as_ref().unwrap().0, "1m");
    }
}
