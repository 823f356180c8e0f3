//! What the audit reads of objects. Of pods it takes plain containers into account: those of the tests have no others.

use serde_json::{Value, json};

/// What is counted on nodes, the number of pods last.
const COUNTED: [&str; 3] = ["nvidia.com/gpu", "cpu", "pods"];

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn label<'a>(object: &'a Value, key: &str) -> &'a Value {
    &object["metadata"]["labels"][key]
}

/// Namespace and name of a pod's gang.
pub(super) fn gang_of(pod: &Value) -> (String, String) {
    (
        text(&pod["metadata"]["namespace"]),
        text(label(pod, "grove.io/podgang")),
    )
}

pub(super) fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

/// Why a pod has no node, as it says itself.
pub(super) fn complaint(pod: &Value) -> Option<&str> {
    let mut conditions = list(&pod["status"]["conditions"]).iter();
    let said = conditions.find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False")?;
    Some(said["message"].as_str().unwrap_or_default())
}

pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

pub(super) fn is_live(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && !has_ended(pod)
}

/// Everything of a gang that says how close its pods must be.
pub(super) fn constraints(gang: &Value) -> Value {
    let spec = &gang["spec"];
    let pod_groups = list(&spec["podgroups"]).iter();
    let pod_groups: Vec<&Value> = pod_groups.map(|group| &group["topologyConstraint"]).collect();
    json!([
        spec["topologyConstraint"],
        spec["topologyConstraintGroupConfigs"],
        pod_groups,
        replica_level(gang)
    ])
}

/// The key of the level that the gangs of a replica share.
pub(super) fn replica_level(gang: &Value) -> &Value {
    &gang["metadata"]["annotations"]["grove.io/replica-pack-required"]
}

/// What a pod asks for.
pub(super) fn request(pod: &Value) -> Vec<u64> {
    let containers = list(&pod["spec"]["containers"]).iter();
    let asked = |resource: &str| -> u64 {
        let amounts = containers
            .clone()
            .map(|container| &container["resources"]["requests"][resource]);
        amounts.map(thousandths).sum()
    };
    let one_pod = |resource: &&str| if *resource == "pods" { 1000 } else { asked(resource) };
    COUNTED.iter().map(one_pod).collect()
}

/// What a node has for pods.
pub(super) fn allocatable(node: &Value) -> Vec<u64> {
    let has = |resource: &&str| thousandths(&node["status"]["allocatable"][*resource]);
    COUNTED.iter().map(has).collect()
}

fn thousandths(quantity: &Value) -> u64 {
    let text = quantity.as_str().unwrap_or("0");
    match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse().expect("a number"),
        None => {
            1000 * text
                .parse::<u64>()
                .unwrap_or_else(|_| panic!("quantities of tests are plain: {text}"))
        }
    }
}

/// The keys of a topology's levels.
pub(super) struct Levels {
    /// Broad to narrow; the host is below them.
    pub(super) above_host: Vec<String>,
    /// The host and what is finer, which is kept as the host.
    below: Vec<String>,
}

const HOST: &str = "kubernetes.io/hostname";
/// By meaning, however they are listed.
const ABOVE_HOST: [&str; 5] = ["region", "zone", "datacenter", "block", "rack"];

impl Levels {
    pub(super) fn of(topology: Option<&Value>) -> Self {
        let levels = topology.map_or(&[][..], |topology| list(&topology["spec"]["levels"]));
        let mut keyed: Vec<(Option<usize>, String)> = levels
            .iter()
            .map(|level| {
                let rank = ABOVE_HOST.iter().position(|word| level["domain"] == *word);
                (rank.filter(|_| level["key"] != HOST), text(&level["key"]))
            })
            .collect();
        keyed.sort();
        let (above, below): (Vec<_>, Vec<_>) = keyed.into_iter().partition(|(rank, _)| rank.is_some());
        let keys = |levels: Vec<(Option<usize>, String)>| levels.into_iter().map(|(_, key)| key).collect();
        Self {
            above_host: keys(above),
            below: keys(below),
        }
    }

    /// Depth of a level as `plancheck` counts; 0 for one that the topology does not have.
    pub(super) fn depth(&self, key: &Value) -> usize {
        let Some(key) = key.as_str() else { return 0 };
        match self.above_host.iter().position(|known| known == key) {
            Some(level) => level + 1,
            None if key == HOST || self.below.iter().any(|known| known == key) => self.above_host.len() + 1,
            None => 0,
        }
    }
}
