//! Which nodes a pod may use: tolerations, node selector, required node affinity.

use grove_placement::{Attribute, Requirement, Rules, Test, Toleration};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration as KubeToleration};

use crate::node::effect;

pub(crate) fn rules(spec: &PodSpec) -> Rules {
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let preferred =
        affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let preferred = preferred.into_iter().flatten();
    let tolerations = spec.tolerations.iter().flatten();
    Rules {
        tolerations: tolerations.filter_map(toleration).collect(),
        selector: spec.node_selector.clone().unwrap_or_default(),
        affinity: required
            .map(|required| terms(&required.node_selector_terms))
            .unwrap_or_default(),
        preferred: preferred
            .map(|preferred| {
                (
                    u32::try_from(preferred.weight).unwrap_or(0),
                    term(&preferred.preference),
                )
            })
            .filter(|(weight, term)| *weight > 0 && !term.is_empty())
            .collect(),
        ..Rules::default()
    }
}

/// The terms of a node selector, any one of which must hold. A selector without terms matches no node.
pub(crate) fn terms(terms: &[NodeSelectorTerm]) -> Vec<Vec<Requirement>> {
    if terms.is_empty() {
        return vec![Vec::new()];
    }
    terms.iter().map(term).collect()
}

/// The requirements of a term, all of which must hold. A term without any matches no node.
fn term(term: &NodeSelectorTerm) -> Vec<Requirement> {
    let of = |key: &str| Attribute::Label(key.to_owned());
    let labels = term.match_expressions.iter().flatten();
    let labels = labels.map(|expression| requirement(of(&expression.key), expression));
    // The API knows one field, the node's name.
    let fields = term.match_fields.iter().flatten();
    let fields = fields.map(|expression| requirement(Attribute::Name, expression));
    labels.chain(fields).collect()
}

fn requirement(of: Attribute, expression: &NodeSelectorRequirement) -> Requirement {
    let values = expression.values.clone().unwrap_or_default();
    let bound = || values.first().and_then(|value| value.parse::<i64>().ok());
    let is = match expression.operator.as_str() {
        "In" => Test::In(values),
        "NotIn" => Test::NotIn(values),
        "Exists" => Test::Exists,
        "DoesNotExist" => Test::DoesNotExist,
        "Gt" => bound().map_or(never(), Test::GreaterThan),
        "Lt" => bound().map_or(never(), Test::LessThan),
        _ => never(),
    };
    Requirement { of, is }
}

fn never() -> Test {
    Test::In(Vec::new())
}

/// What a pod tolerates; an operator or effect that is not known tolerates nothing.
fn toleration(toleration: &KubeToleration) -> Option<Toleration> {
    let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let value = match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => None,
        "Equal" | "" => Some(toleration.value.clone().unwrap_or_default()),
        _ => return None,
    };
    let effect = match text(&toleration.effect) {
        None => None,
        Some(known) => Some(effect(&known)?),
    };
    let key = text(&toleration.key);
    // Without a key only `Exists` means something: every taint.
    if key.is_none() && value.is_some() {
        return None;
    }
    Some(Toleration { key, value, effect })
}
