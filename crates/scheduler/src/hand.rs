//! How a decision reaches a pod: bound by this scheduler, or pinned for the cluster's own one to bind.
//!
//! Pinned pods are held by Grove's gate until they are placed. One patch lifts the gate and confines the pod to its
//! node, so there is no moment at which another scheduler could take it elsewhere. What was pinned is read from the pod
//! itself: a restart finds it there.

use grove_api::labels;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::pod;

/// Who binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// This scheduler, by the binding subresource.
    Binds,
    /// The scheduler that the pod names; this one lifts the gate and names the node.
    Pins,
}

const NODE_NAME: &str = "metadata.name";

impl Hand {
    /// Whether a pod wants a node, and nothing holds it back but what this hand lifts.
    pub(crate) fn is_wanted(self, pod: &Pod) -> bool {
        let mut gates = pod::gates(pod);
        let is_open = match self {
            Self::Binds => gates.next().is_none(),
            Self::Pins => gates.next() == Some(labels::SCHEDULING_GATE) && gates.next().is_none(),
        };
        is_open && pod::is_live(pod) && !pod::has_place(pod)
    }

    /// The node that a pod without one is on its way to.
    pub(crate) fn destination(self, pod: &Pod) -> Option<&str> {
        let is_under_way = self == Self::Pins && pod::gates(pod).next().is_none() && pod::is_live(pod);
        is_under_way.then(|| pin(pod)).flatten()
    }

    /// Whether somebody else still holds a pod back that is about to be let go.
    pub(crate) fn is_held_back(self, pod: &Pod) -> bool {
        self == Self::Binds && pod::is_gated_by_grove(pod)
    }
}

/// The node that a pod is pinned to: every term of its required node affinity names it.
fn pin(pod: &Pod) -> Option<&str> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?
        .node_selector_terms;
    let mut nodes = terms.iter().map(|term| {
        let mut fields = term.match_fields.iter().flatten();
        let field = fields.find(|field| field.key == NODE_NAME && field.operator == "In")?;
        match field.values.as_deref() {
            Some([node]) => Some(node.as_str()),
            _ => None,
        }
    });
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// The patch that lifts a pod's gate and confines it to a node, if it is still that pod, that gate and that affinity.
pub(crate) fn pin_patch(pod: &Pod, node: &str) -> Value {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let stated = affinity.map_or(Value::Null, |affinity| json!(affinity));
    let gate = "/spec/schedulingGates/0";
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}),
        json!({"op": "test", "path": gate, "value": {"name": labels::SCHEDULING_GATE}}),
    ];
    if !stated.is_null() {
        patch.push(json!({"op": "test", "path": "/spec/affinity", "value": stated}));
    }
    patch.push(json!({"op": "remove", "path": gate}));
    patch.push(json!({"op": "add", "path": "/spec/affinity", "value": confined(stated, node)}));
    Value::Array(patch)
}

/// An affinity with the node's name added to every term that it has, or as its only term: the API server takes no new
/// term beside old ones.
fn confined(affinity: Value, node: &str) -> Value {
    let field = json!({"key": NODE_NAME, "operator": "In", "values": [node]});
    let mut affinity = if affinity.is_null() { json!({}) } else { affinity };
    let terms = "requiredDuringSchedulingIgnoredDuringExecution";
    let required = &mut affinity["nodeAffinity"][terms];
    match required
        .get_mut("nodeSelectorTerms")
        .and_then(Value::as_array_mut)
        .filter(|terms| !terms.is_empty())
    {
        Some(terms) => {
            for term in terms {
                match term.get_mut("matchFields").and_then(Value::as_array_mut) {
                    Some(fields) => fields.push(field.clone()),
                    None => term["matchFields"] = json!([field]),
                }
            }
        }
        None => *required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]}),
    }
    affinity
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gated(affinity: Value) -> Pod {
        let spec =
            json!({"containers": [], "affinity": affinity, "schedulingGates": [{"name": labels::SCHEDULING_GATE}]});
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec})).unwrap()
    }

    /// What the API server makes of a patch, as far as this one goes.
    fn patched(pod: &Pod, node: &str) -> Pod {
        let patch = pin_patch(pod, node);
        let mut pod = json!(pod);
        pod["spec"]["schedulingGates"] = json!([]);
        pod["spec"]["affinity"] = patch.as_array().unwrap().last().unwrap()["value"].clone();
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn what_was_pinned_is_read_from_the_pod() {
        let expression = json!({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]});
        let two = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [expression, expression]}}});
        for affinity in [Value::Null, json!({"podAntiAffinity": {}}), two] {
            let pod = gated(affinity);
            assert!(Hand::Pins.is_wanted(&pod) && !Hand::Binds.is_wanted(&pod));
            assert_eq!(Hand::Pins.destination(&pod), None);
            let pinned = patched(&pod, "n1");
            assert_eq!(Hand::Pins.destination(&pinned), Some("n1"));
            assert!(!Hand::Pins.is_wanted(&pinned));
        }
    }

    #[test]
    fn old_terms_stay_and_no_new_one_comes_beside_them() {
        let expression = json!({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]});
        let stated = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [expression]}}});
        let confined = confined(stated, "n1");
        let terms = &confined["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let mut term = expression;
        term["matchFields"] = json!([field]);
        assert_eq!(*terms, json!([term]));
    }

    #[test]
    fn a_pod_with_a_foreign_gate_is_left_alone() {
        let mut pod = gated(Value::Null);
        let gates = pod.spec.as_mut().unwrap().scheduling_gates.as_mut().unwrap();
        gates.push(serde_json::from_value(json!({"name": "example.com/quota"})).unwrap());
        assert!(!Hand::Pins.is_wanted(&pod));
    }
}
