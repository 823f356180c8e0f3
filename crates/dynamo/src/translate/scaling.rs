//! Scaling adapters: one for each component that asks for one, and what their numbers mean for the graph.
//!
//! Whoever scales writes the number of an adapter; from there it goes into the graph, and from the graph to what runs. An
//! adapter that is new has the graph's number. So an adapter that is lost costs nothing, and one that is taken away leaves
//! what is there.

use std::collections::BTreeMap;

use grove_api::dynamo::{
    Component, ComponentReference, DynamoGraphDeploymentScalingAdapter, DynamoGraphDeploymentScalingAdapterSpec, words,
};
use grove_api::{DynamoGraphDeployment, DynamoGraphDeploymentSpec};
use grove_workload::validate::Violation;
use kube::ResourceExt;

use super::names::adapter_name;
use super::owned;
use crate::validate::scale;

pub(super) fn adapters(graph: &DynamoGraphDeployment) -> Vec<DynamoGraphDeploymentScalingAdapter> {
    let components = graph.spec.components.iter();
    let asked = components.filter(|component| component.scaling_adapter.is_some());
    asked.map(|component| adapter(graph, component)).collect()
}

fn adapter(graph: &DynamoGraphDeployment, component: &Component) -> DynamoGraphDeploymentScalingAdapter {
    let labels = BTreeMap::from([
        (words::GRAPH.to_owned(), graph.name_any()),
        (words::COMPONENT.to_owned(), component.name.clone()),
    ]);
    DynamoGraphDeploymentScalingAdapter {
        metadata: owned(graph, adapter_name(graph, component), labels),
        spec: DynamoGraphDeploymentScalingAdapterSpec {
            replicas: component.replicas,
            dgd_ref: ComponentReference {
                name: graph.name_any(),
                component_name: component.name.clone(),
            },
        },
        status: None,
    }
}

/// Writes the live numbers into `adapters`: they are whoever's that scales.
pub fn keep_numbers(
    adapters: &mut [DynamoGraphDeploymentScalingAdapter],
    live: &[&DynamoGraphDeploymentScalingAdapter],
) {
    for adapter in adapters {
        if let Some(live) = live.iter().find(|live| live.name_any() == adapter.name_any()) {
            adapter.spec.replicas = live.spec.replicas;
        }
    }
}

/// A number of replicas that an adapter asks for and the graph does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Index of the component.
    pub index: usize,
    pub replicas: i32,
}

/// What the graph's own adapters ask for, and why some of it is not done.
pub fn wishes(
    graph: &DynamoGraphDeployment,
    live: &[&DynamoGraphDeploymentScalingAdapter],
) -> (Vec<Wish>, Vec<Violation>) {
    let (mut wishes, mut refused) = (Vec::new(), Vec::new());
    for (index, component) in graph.spec.components.iter().enumerate() {
        if component.scaling_adapter.is_none() {
            continue;
        }
        let name = adapter_name(graph, component);
        let asked = live.iter().find(|adapter| adapter.name_any() == name);
        let Some(replicas) = asked
            .map(|adapter| adapter.spec.replicas)
            .filter(|asked| *asked != component.replicas)
        else {
            continue;
        };
        match scale(component, replicas) {
            None => wishes.push(Wish { index, replicas }),
            Some(violation) => refused.push(Violation {
                message: format!("DynamoGraphDeploymentScalingAdapter {name}: {}", violation.message),
                ..violation
            }),
        }
    }
    (wishes, refused)
}

/// The spec with these numbers.
pub fn with_wishes(spec: &DynamoGraphDeploymentSpec, wishes: &[Wish]) -> DynamoGraphDeploymentSpec {
    let mut spec = spec.clone();
    for wish in wishes {
        if let Some(component) = spec.components.get_mut(wish.index) {
            component.replicas = wish.replicas;
        }
    }
    spec
}
