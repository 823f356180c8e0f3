//! Required pod anti-affinity: pods that must not share a host, or a domain of any other node label.
//!
//! A term is a mark of the engine: pods that state it avoid the mark, pods that it speaks of bear it. The wish counts
//! both ways, as in Kubernetes: a pod that runs keeps others away by its own term too.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::selector::{Labels, matches};

/// The label that every namespace has; others are not known here.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// A term, with all that depends on the pod that states it filled in: equal terms mean the same pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    pub(crate) key: String,
    selector: LabelSelector,
    namespaces: BTreeSet<String>,
    namespace_selector: Option<LabelSelector>,
}

impl Term {
    /// Whether the term speaks of a pod.
    pub(crate) fn matches(&self, namespace: &str, labels: &Labels) -> bool {
        let named = || Labels::from([(NAMESPACE_NAME.to_owned(), namespace.to_owned())]);
        let selected = || {
            self.namespace_selector
                .as_ref()
                .is_some_and(|selector| matches(selector, &named()))
        };
        (self.namespaces.contains(namespace) || selected()) && matches(&self.selector, labels)
    }
}

fn required(spec: Option<&PodSpec>) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = spec.and_then(|spec| spec.affinity.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let required = apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref());
    required.into_iter().flatten()
}

/// Whether a term chooses namespaces by labels other than their name: those are not known here.
pub(crate) fn asks_for_namespace_labels(spec: &PodSpec) -> bool {
    let by_other_labels = |selector: &LabelSelector| {
        let labels = selector.match_labels.iter().flatten().map(|(key, _)| key);
        let expressions = selector
            .match_expressions
            .iter()
            .flatten()
            .map(|expression| &expression.key);
        labels.chain(expressions).any(|key| key != NAMESPACE_NAME)
    };
    let mut selectors = required(Some(spec)).filter_map(|term| term.namespace_selector.as_ref());
    selectors.any(by_other_labels)
}

/// The required anti-affinity terms of a pod.
pub(crate) fn terms(pod: &Pod) -> Vec<Term> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let none = Labels::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    required(pod.spec.as_ref())
        .filter_map(|term| read(term, namespace, labels))
        .collect()
}

/// A term without a selector speaks of no pod.
fn read(term: &PodAffinityTerm, namespace: &str, labels: &Labels) -> Option<Term> {
    let mut selector = term.label_selector.clone()?;
    let keys = |keys: &Option<Vec<String>>| keys.clone().unwrap_or_default();
    let same = keys(&term.match_label_keys).into_iter().map(|key| (key, "In"));
    let other = keys(&term.mismatch_label_keys).into_iter().map(|key| (key, "NotIn"));
    for (key, operator) in same.chain(other) {
        let Some(value) = labels.get(&key) else { continue };
        let requirement = LabelSelectorRequirement {
            key,
            operator: operator.to_owned(),
            values: Some(vec![value.clone()]),
        };
        let expressions = selector.match_expressions.get_or_insert_default();
        if !expressions.contains(&requirement) {
            expressions.push(requirement);
        }
    }
    let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
    if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespaces.insert(namespace.to_owned());
    }
    Some(Term {
        key: term.topology_key.clone(),
        selector,
        namespaces,
        namespace_selector: term.namespace_selector.clone(),
    })
}
