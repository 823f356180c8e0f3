//! How a decision reaches a pod: bound by this scheduler, or pinned for the cluster's own one to bind.
//!
//! Pinned pods are held by Grove's gate until they are placed. One patch lifts the gate and confines the pod to its
//! node, so there is no moment at which another scheduler could take it elsewhere. What was pinned is read from the pod
//! itself: a restart finds it there.
//!
//! Which host can serve a resource claim only the scheduler that binds knows. A pod with claims is confined to the
//! narrowest domain that it requires, and prefers the host that was found for it.

use grove_api::labels;
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde_json::{Value, json};

use crate::pod::KeptPod;

/// Who binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// This scheduler, by the binding subresource.
    Binds,
    /// The scheduler that the pod names; this one lifts the gate and names the node.
    Pins,
}

/// What a pinned pod may not leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// Its node.
    Node,
    /// The nodes that have a label of this value.
    Domain { key: String, value: String },
    /// Nothing.
    None,
}

const NODE_NAME: &str = "metadata.name";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// As much as a preference can weigh.
const WEIGHT_MAX: i32 = 100;

impl Hand {
    /// Whether a pod wants a node, and nothing holds it back but what this hand lifts.
    pub(crate) fn is_wanted(self, pod: &KeptPod) -> bool {
        let mut gates = pod.gates();
        let is_open = match self {
            Self::Binds => gates.next().is_none(),
            Self::Pins => gates.next() == Some(labels::SCHEDULING_GATE) && gates.next().is_none(),
        };
        is_open && pod.is_live() && !pod.has_place()
    }

    /// The node that a pod without one is on its way to.
    pub(crate) fn destination(self, pod: &KeptPod) -> Option<&str> {
        let is_under_way = self == Self::Pins && pod.gates().next().is_none() && pod.is_live();
        is_under_way.then(|| pin(pod).or_else(|| hint(pod))).flatten()
    }

    /// Whether somebody else still holds a pod back that is about to be let go.
    pub(crate) fn is_held_back(self, pod: &KeptPod) -> bool {
        self == Self::Binds && pod.is_gated_by_grove()
    }
}

/// The node that a pod is pinned to: every term of its required node affinity names it.
fn pin(pod: &KeptPod) -> Option<&str> {
    let affinity = pod.affinity()?.node_affinity.as_ref()?;
    let terms = &affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?
        .node_selector_terms;
    let mut nodes = terms.iter().map(named_node);
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// The node that a pod with claims prefers above all.
fn hint(pod: &KeptPod) -> Option<&str> {
    let affinity = pod.affinity()?.node_affinity.as_ref()?;
    let preferred = affinity
        .preferred_during_scheduling_ignored_during_execution
        .iter()
        .flatten();
    let mut strongest = preferred.filter(|term| term.weight == WEIGHT_MAX && pod.has_claims());
    strongest.find_map(|term| named_node(&term.preference))
}

/// The one node that a term names.
fn named_node(term: &NodeSelectorTerm) -> Option<&str> {
    let mut fields = term.match_fields.iter().flatten();
    let field = fields.find(|field| field.key == NODE_NAME && field.operator == "In")?;
    match field.values.as_deref() {
        Some([node]) => Some(node),
        _ => None,
    }
}

/// The patch that lifts a pod's gate and confines it, if it is still that pod, that gate and that affinity.
pub(crate) fn pin_patch(pod: &KeptPod, node: &str, bounds: &Bounds) -> Value {
    let stated = pod.affinity().map_or(Value::Null, |affinity| json!(affinity));
    let gate = "/spec/schedulingGates/0";
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": pod.uid()}),
        json!({"op": "test", "path": gate, "value": {"name": labels::SCHEDULING_GATE}}),
    ];
    if !stated.is_null() {
        patch.push(json!({"op": "test", "path": "/spec/affinity", "value": stated}));
    }
    patch.push(json!({"op": "remove", "path": gate}));
    patch.push(json!({"op": "add", "path": "/spec/affinity", "value": confined(stated, node, bounds)}));
    Value::Array(patch)
}

/// An affinity that keeps the pod inside its bounds, and leads it to the node.
fn confined(affinity: Value, node: &str, bounds: &Bounds) -> Value {
    let name = json!({"key": NODE_NAME, "operator": "In", "values": [node]});
    let mut affinity = if affinity.is_null() { json!({}) } else { affinity };
    let of_nodes = &mut affinity["nodeAffinity"];
    match bounds {
        Bounds::Node => {
            require(of_nodes, "matchFields", name);
            return affinity;
        }
        Bounds::Domain { key, value } => {
            let label = json!({"key": key, "operator": "In", "values": [value]});
            require(of_nodes, "matchExpressions", label);
        }
        Bounds::None => {}
    }
    let preference = json!({"weight": WEIGHT_MAX, "preference": {"matchFields": [name]}});
    match of_nodes.get_mut(PREFERRED).and_then(Value::as_array_mut) {
        Some(preferred) => preferred.push(preference),
        None => of_nodes[PREFERRED] = json!([preference]),
    }
    affinity
}

/// Adds a requirement to every term that there is, or as the only term: the API server takes no new term beside old ones.
fn require(of_nodes: &mut Value, list: &str, requirement: Value) {
    let required = &mut of_nodes[REQUIRED];
    let terms = required.get_mut("nodeSelectorTerms").and_then(Value::as_array_mut);
    match terms.filter(|terms| !terms.is_empty()) {
        Some(terms) => {
            for term in terms {
                match term.get_mut(list).and_then(Value::as_array_mut) {
                    Some(requirements) => requirements.push(requirement.clone()),
                    None => term[list] = json!([requirement]),
                }
            }
        }
        None => *required = json!({"nodeSelectorTerms": [{list: [requirement]}]}),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn kept(pod: &Pod) -> KeptPod {
        pod.clone().into()
    }

    fn gated(affinity: Value) -> Pod {
        let spec =
            json!({"containers": [], "affinity": affinity, "schedulingGates": [{"name": labels::SCHEDULING_GATE}]});
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec})).unwrap()
    }

    /// What the API server makes of a patch, as far as this one goes.
    fn patched(pod: &Pod, node: &str, bounds: &Bounds) -> Pod {
        let patch = pin_patch(&kept(pod), node, bounds);
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
            let waiting = kept(&pod);
            assert!(Hand::Pins.is_wanted(&waiting) && !Hand::Binds.is_wanted(&waiting));
            assert_eq!(Hand::Pins.destination(&waiting), None);
            let pinned = kept(&patched(&pod, "n1", &Bounds::Node));
            assert_eq!(Hand::Pins.destination(&pinned), Some("n1"));
            assert!(!Hand::Pins.is_wanted(&pinned));
        }
    }

    #[test]
    fn old_terms_stay_and_no_new_one_comes_beside_them() {
        let expression = json!({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]});
        let stated = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [expression]}}});
        let confined = confined(stated, "n1", &Bounds::Node);
        let terms = &confined["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let mut term = expression;
        term["matchFields"] = json!([field]);
        assert_eq!(*terms, json!([term]));
    }

    #[test]
    fn a_pod_with_claims_stays_in_its_domain_and_is_led_to_a_host() {
        let mut pod = gated(Value::Null);
        let claims = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
        pod.spec.as_mut().unwrap().resource_claims = Some(serde_json::from_value(claims).unwrap());
        let rack = Bounds::Domain {
            key: "rack".to_owned(),
            value: "r1".to_owned(),
        };
        for bounds in [rack, Bounds::None] {
            let confined = patched(&pod, "n1", &bounds);
            assert_eq!(Hand::Pins.destination(&kept(&confined)), Some("n1"));
            let affinity = json!(confined.spec.unwrap().affinity.unwrap().node_affinity.unwrap());
            let expected = match bounds {
                Bounds::None => Value::Null,
                _ => json!([{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]),
            };
            assert_eq!(affinity[REQUIRED]["nodeSelectorTerms"], expected);
        }
    }

    #[test]
    fn a_pod_with_a_foreign_gate_is_left_alone() {
        let mut pod = gated(Value::Null);
        let gates = pod.spec.as_mut().unwrap().scheduling_gates.as_mut().unwrap();
        gates.push(serde_json::from_value(json!({"name": "example.com/quota"})).unwrap());
        assert!(!Hand::Pins.is_wanted(&kept(&pod)));
    }
}
