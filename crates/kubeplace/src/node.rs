//! A node as the engine sees it.

use grove_placement::{Amounts, Cluster, Effect, NodeSpec, Taint, Traits};
use k8s_openapi::api::core::v1::{Node, Taint as KubeTaint};

use crate::quantity::{Round, amount};
use crate::requests::PODS;

/// Pods that a kubelet takes when nobody says otherwise; a node in a file seldom says.
const PODS_OF_A_NODE: u64 = 110;

/// What a node has and who may use it. Resources that the cluster does not know yet become known.
pub(crate) fn spec(cluster: &mut Cluster, node: &Node) -> NodeSpec {
    let taints = node.spec.iter().flat_map(|spec| &spec.taints).flatten();
    let traits = Traits {
        name: node.metadata.name.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: taints.filter_map(taint).collect(),
        unschedulable: node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)),
    };
    NodeSpec {
        traits,
        allocatable: allocatable(cluster, node),
    }
}

/// What pods can have; without a word about that, all that the node has.
fn allocatable(cluster: &mut Cluster, node: &Node) -> Amounts {
    let status = node.status.as_ref();
    let stated = status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()));
    let mut amounts = Vec::new();
    if !stated.is_some_and(|stated| stated.contains_key(PODS)) {
        amounts.push((cluster.resource(PODS), PODS_OF_A_NODE));
    }
    for (name, quantity) in stated.into_iter().flatten() {
        amounts.push((cluster.resource(name), amount(name, quantity, Round::Down)));
    }
    amounts.into_iter().collect()
}

/// A taint that keeps pods away; one that only discourages them is none.
fn taint(taint: &KubeTaint) -> Option<Taint> {
    Some(Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: effect(&taint.effect)?,
    })
}

pub(crate) fn effect(text: &str) -> Option<Effect> {
    match text {
        "NoSchedule" => Some(Effect::NoSchedule),
        "NoExecute" => Some(Effect::NoExecute),
        _ => None,
    }
}
