//! A plain scheduler for pods of `default-scheduler`: the first node that fits, in order of names.
//!
//! It honours node selectors, required node affinity, taints, resource requests and the number of pods, and nothing
//! else: no scores, no preemption, no affinity between pods.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::fleet::tolerates;
use super::{Actor, Writes};
use crate::clock::seconds;
use crate::rules::kinds::set_condition;
use crate::rules::metadata;
use crate::rules::quantity::Quantity;
use crate::store::{Event, EventKind, Key, ResourceName, decode};

const NAME: &str = "default-scheduler";

type Amounts = BTreeMap<String, i128>;

/// What is known of one node.
#[derive(Debug)]
struct Node {
    object: Value,
    free: Amounts,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<String, Node>,
    /// Where pods are and what they take.
    placed: BTreeMap<Key, (String, Amounts)>,
    pending: BTreeSet<Key>,
}

pub(super) async fn run(actor: Actor, mut writes: Writes) {
    let (pods, nodes) = (ResourceName::new("", "pods"), ResourceName::new("", "nodes"));
    let mut state = State::default();
    while let Some((resource, event)) = writes.recv().await {
        let room = if resource == pods {
            state.see_pod(&event)
        } else if resource == nodes {
            state.see_node(&event)
        } else {
            continue;
        };
        let candidates: Vec<Key> = match room {
            // Only more room lets a pod fit that did not fit before.
            Room::More => state.pending.iter().cloned().collect(),
            Room::Same if state.pending.contains(&*event.key) && resource == pods => vec![(*event.key).clone()],
            Room::Same => continue,
        };
        for key in candidates {
            state.try_bind(&actor, &pods, &key).await;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    More,
    Same,
}

impl State {
    fn see_node(&mut self, event: &Event) -> Room {
        let name = &event.key.name;
        if event.kind == EventKind::Deleted {
            self.nodes.remove(name);
            return Room::Same;
        }
        let object = decode(&event.object);
        let mut free = amounts(&object["status"]["allocatable"]);
        for (_, taken) in self.placed.values().filter(|(node, _)| node == name) {
            subtract(&mut free, taken);
        }
        let same = self.nodes.get(name).is_some_and(|node| {
            node.free == free
                && node.object["spec"] == object["spec"]
                && node.object["metadata"]["labels"] == object["metadata"]["labels"]
        });
        self.nodes.insert(name.clone(), Node { object, free });
        if same { Room::Same } else { Room::More }
    }

    fn see_pod(&mut self, event: &Event) -> Room {
        let pod = decode(&event.object);
        let key = (*event.key).clone();
        let over =
            event.kind == EventKind::Deleted || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        if over {
            self.pending.remove(&key);
            return if self.release(&key) { Room::More } else { Room::Same };
        }
        if !node.is_empty() {
            self.pending.remove(&key);
            self.place(key, node, requests(&pod["spec"]));
            return Room::Same;
        }
        let gated = pod["spec"]["schedulingGates"]
            .as_array()
            .is_some_and(|gates| !gates.is_empty());
        let ours = pod["spec"]["schedulerName"] == NAME && !gated && !metadata::is_terminating(&pod);
        let changed = event
            .previous
            .as_ref()
            .is_none_or(|previous| previous.value()["spec"] != pod["spec"]);
        match ours {
            true if changed => drop(self.pending.insert(key)),
            true => {}
            false => drop(self.pending.remove(&key)),
        }
        Room::Same
    }

    fn place(&mut self, key: Key, node: String, taken: Amounts) {
        if self.placed.contains_key(&key) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&node) {
            subtract(&mut node.free, &taken);
        }
        self.placed.insert(key, (node, taken));
    }

    fn release(&mut self, key: &Key) -> bool {
        let Some((name, taken)) = self.placed.remove(key) else {
            return false;
        };
        if let Some(node) = self.nodes.get_mut(&name) {
            for (resource, amount) in taken {
                *node.free.entry(resource).or_default() += amount;
            }
        }
        true
    }

    async fn try_bind(&mut self, actor: &Actor, pods: &ResourceName, key: &Key) {
        let Some(pod) = actor.get(pods, key) else { return };
        if self.placed.contains_key(key) {
            return;
        }
        let asked = requests(&pod["spec"]);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut fitting = None;
        for (name, node) in &self.nodes {
            match misfit(&pod, &asked, node) {
                None => {
                    fitting = Some(name.clone());
                    break;
                }
                Some(reason) => *reasons.entry(reason).or_default() += 1,
            }
        }
        let Some(node) = fitting else {
            return self.report(actor, pods, key, &reasons);
        };
        let uid = metadata::text(&pod, "uid");
        match actor.server.bind_internal(&actor.user, key, uid, &node).await {
            Ok(()) => {
                self.pending.remove(key);
                self.place(key.clone(), node, asked);
            }
            Err(error) => tracing::debug!(pod = key.name, %error, "cannot bind"),
        }
    }

    fn report(&self, actor: &Actor, pods: &ResourceName, key: &Key, reasons: &BTreeMap<String, usize>) {
        let mut parts: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        parts.sort();
        let message = match self.nodes.len() {
            0 => "no nodes available to schedule pods".to_owned(),
            all => format!("0/{all} nodes are available: {}.", parts.join(", ")),
        };
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastProbeTime": null, "lastTransitionTime": seconds(actor.server.clock.now()),
        });
        actor.modify(pods, key, |pod| {
            let before = pod["status"].clone();
            set_condition(&mut pod["status"]["conditions"], condition.clone());
            pod["status"] != before
        });
    }
}

fn amounts(list: &Value) -> Amounts {
    let parse = |value: &Value| value.as_str().and_then(Quantity::parse).map_or(0, Quantity::millis);
    list.as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), parse(value)))
        .collect()
}

fn subtract(free: &mut Amounts, taken: &Amounts) {
    for (resource, amount) in taken {
        *free.entry(resource.clone()).or_default() -= amount;
    }
}

/// What a pod takes of a node: the sum of its containers or the largest init container, and its place.
fn requests(spec: &Value) -> Amounts {
    let list = |name: &str| spec[name].as_array().cloned().unwrap_or_default();
    let mut sum = Amounts::new();
    for container in list("containers") {
        for (resource, amount) in amounts(&container["resources"]["requests"]) {
            *sum.entry(resource).or_default() += amount;
        }
    }
    for container in list("initContainers") {
        for (resource, amount) in amounts(&container["resources"]["requests"]) {
            let largest = sum.entry(resource).or_default();
            *largest = amount.max(*largest);
        }
    }
    sum.insert("pods".into(), 1000);
    sum
}

/// Why the pod cannot be on the node, in kube-scheduler's words.
fn misfit(pod: &Value, asked: &Amounts, node: &Node) -> Option<String> {
    let spec = &pod["spec"];
    if node.object["spec"]["unschedulable"] == true {
        return Some("node(s) were unschedulable".into());
    }
    let tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for taint in node.object["spec"]["taints"].as_array().into_iter().flatten() {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        let (key, value, effect) = (text("key"), text("value"), text("effect"));
        let repels = effect == "NoSchedule" || effect == "NoExecute";
        if repels
            && !tolerations
                .iter()
                .any(|toleration| tolerates(toleration, key, value, effect))
        {
            return Some(format!("node(s) had untolerated taint(s) {{{key}: {value}}}"));
        }
    }
    let labels = &node.object["metadata"]["labels"];
    let mut selector = spec["nodeSelector"].as_object().into_iter().flatten();
    let terms =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let affine = terms
        .as_array()
        .is_none_or(|terms| terms.iter().any(|term| term_matches(term, &node.object)));
    if !selector.all(|(key, value)| labels.get(key) == Some(value)) || !affine {
        return Some("node(s) didn't match Pod's node affinity/selector".into());
    }
    let short = asked
        .iter()
        .find(|(name, amount)| **amount > 0 && node.free.get(*name).copied().unwrap_or(0) < **amount);
    short.map(|(name, _)| {
        if name == "pods" {
            "Too many pods".into()
        } else {
            format!("Insufficient {name}")
        }
    })
}

/// Whether a node has all that a term asks for; an empty term matches nothing.
fn term_matches(term: &Value, node: &Value) -> bool {
    let list = |name: &str| term[name].as_array().cloned().unwrap_or_default();
    let (expressions, fields) = (list("matchExpressions"), list("matchFields"));
    let label = |key: &str| node["metadata"]["labels"][key].as_str();
    let field = |key: &str| (key == "metadata.name").then(|| metadata::text(node, "name"));
    !(expressions.is_empty() && fields.is_empty())
        && expressions
            .iter()
            .all(|e| requirement_holds(e, label(e["key"].as_str().unwrap_or_default())))
        && fields
            .iter()
            .all(|e| requirement_holds(e, field(e["key"].as_str().unwrap_or_default())))
}

fn requirement_holds(requirement: &Value, value: Option<&str>) -> bool {
    let values = requirement["values"].as_array().cloned().unwrap_or_default();
    let listed = || value.is_some_and(|value| values.iter().any(|v| v == value));
    let number = || value.and_then(|value| value.parse::<i64>().ok());
    let bound = || {
        values
            .first()
            .and_then(Value::as_str)
            .and_then(|text| text.parse::<i64>().ok())
    };
    match requirement["operator"].as_str() {
        Some("In") => listed(),
        Some("NotIn") => !listed(),
        Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        Some("Gt") => matches!((number(), bound()), (Some(n), Some(b)) if n > b),
        Some("Lt") => matches!((number(), bound()), (Some(n), Some(b)) if n < b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cpu: &str) -> Node {
        let object = json!({"metadata": {"name": name, "labels": {"rack": "r1"}}, "spec": {}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}});
        Node {
            free: amounts(&object["status"]["allocatable"]),
            object,
        }
    }

    fn reason(spec: Value, node: &Node) -> Option<String> {
        let pod = json!({"spec": spec});
        misfit(&pod, &requests(&pod["spec"]), node)
    }

    #[test]
    fn a_pod_goes_where_it_fits() {
        let node = node("n1", "2");
        let cpu = |amount: &str| json!({"containers": [{"resources": {"requests": {"cpu": amount}}}]});
        assert_eq!(reason(cpu("2"), &node), None);
        assert_eq!(reason(cpu("2001m"), &node).unwrap(), "Insufficient cpu");
        assert_eq!(reason(json!({"nodeSelector": {"rack": "r1"}}), &node), None);
        assert_eq!(
            reason(json!({"nodeSelector": {"rack": "r2"}}), &node).unwrap(),
            "node(s) didn't match Pod's node affinity/selector"
        );
        let pinned = |name: &str| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}})
        };
        assert_eq!(reason(pinned("n1"), &node), None);
        assert!(reason(pinned("n2"), &node).is_some());
    }

    #[test]
    fn taints_repel_unless_tolerated() {
        let mut tainted = node("n1", "2");
        tainted.object["spec"]["taints"] = json!([{"key": "gpu", "value": "a", "effect": "NoSchedule"}]);
        assert_eq!(
            reason(json!({}), &tainted).unwrap(),
            "node(s) had untolerated taint(s) {gpu: a}"
        );
        assert_eq!(
            reason(json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}), &tainted),
            None
        );
        tainted.object["spec"] = json!({"unschedulable": true});
        assert_eq!(reason(json!({}), &tainted).unwrap(), "node(s) were unschedulable");
    }
}
