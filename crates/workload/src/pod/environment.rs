//! The environment by which a process knows which pod of which gang it is. Names and order are a contract: a user's
//! own variables may refer to them with `$(NAME)`, so they come first.

use grove_api::podcliqueset::ScalingGroupTemplate;
use grove_api::{PodCliqueSet, labels};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, PodSpec};
use kube::ResourceExt;

use crate::names::{self, Place};

/// Adds the variables to every container of the user. A variable of the same name that the user wrote gives way.
pub(super) fn add(spec: &mut PodSpec, set: &PodCliqueSet, place: &Place<'_>, podclique: &str) {
    let ours = variables(set, place, podclique);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let written = container.env.take().unwrap_or_default();
        let kept = written
            .into_iter()
            .filter(|variable| ours.iter().all(|our| our.name != variable.name));
        container.env = Some(ours.iter().cloned().chain(kept).collect());
    }
}

fn variables(set: &PodCliqueSet, place: &Place<'_>, podclique: &str) -> Vec<EnvVar> {
    let set_name = set.name_any();
    let namespace = set.namespace().unwrap_or_default();
    let domain = names::service_domain(&set_name, place.replica, &namespace);
    let mut all = vec![
        plain("GROVE_PCS_NAME", set_name),
        plain("GROVE_PCS_INDEX", place.replica.to_string()),
        plain("GROVE_PCLQ_NAME", podclique.to_owned()),
        plain("GROVE_HEADLESS_SERVICE", domain),
        from_label("GROVE_PCLQ_POD_INDEX", labels::POD_INDEX),
    ];
    if let Some(member) = place.member {
        all.push(from_label("GROVE_PCSG_NAME", labels::SCALING_GROUP));
        all.push(plain(
            "GROVE_PCSG_TEMPLATE_NUM_PODS",
            pods_of(set, member.group).to_string(),
        ));
        all.push(from_label("GROVE_PCSG_INDEX", labels::SCALING_GROUP_REPLICA_INDEX));
    }
    all
}

/// Pods of one replica of a scaling group, as the template has them.
fn pods_of(set: &PodCliqueSet, group: &ScalingGroupTemplate) -> i64 {
    names::members(set, group)
        .map(|clique| i64::from(clique.spec.replicas))
        .sum()
}

fn plain(name: &str, value: String) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value),
        value_from: None,
    }
}

fn from_label(name: &str, label: &str) -> EnvVar {
    let field = ObjectFieldSelector {
        api_version: None,
        field_path: format!("metadata.labels['{label}']"),
    };
    let source = EnvVarSource {
        field_ref: Some(field),
        ..EnvVarSource::default()
    };
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(source),
    }
}
