//! Who holds what a pending gang lacks, domain by domain: the people to ask, or the pods to wait for.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use grove_api::labels;
use grove_kubeplace::Holder;
use grove_placement::{Gang, NodeId, Proof, Resource, domain_name};

use crate::state::State;

/// The schema takes no more for one domain.
const BLOCKERS_MAX: usize = 3;
/// What every node has. A gang that asks for anything rarer is not kept off a node by who uses only these.
const COMMON: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

/// One who holds something in a domain.
#[derive(Debug, Default)]
struct Held {
    pods: usize,
    priority: i32,
}

impl State {
    /// For each of the nearest domains of a proof, those who hold most there: "serve-0 (2 pods, priority 0)".
    pub(crate) fn blockers(&self, gang: &Gang, proof: &Proof) -> Vec<Vec<String>> {
        let wanted = self.rarest(gang);
        let level = proof.level.as_deref();
        let mut held: Vec<BTreeMap<String, Held>> = proof.nearest.iter().map(|_| BTreeMap::new()).collect();
        // By node, because a node has many pods and one domain.
        let mut domains: BTreeMap<NodeId, Option<usize>> = BTreeMap::new();
        for holder in self.mirror.holders() {
            let at = *domains.entry(holder.node).or_insert_with(|| {
                let domain = domain_name(self.mirror.cluster(), gang.topology, level, holder.node)?;
                proof.nearest.iter().position(|near| near.domain == domain)
            });
            let is_in_the_way = wanted.iter().any(|resource| holder.amounts.get(*resource) > 0);
            let (Some(at), true) = (at, is_in_the_way) else {
                continue;
            };
            let held = held[at].entry(name(&holder)).or_default();
            held.pods += 1;
            let priority = self.pods.get(holder.pod).and_then(|pod| pod.priority());
            held.priority = held.priority.max(priority.unwrap_or(0));
        }
        held.into_iter().map(told).collect()
    }

    /// The resources that a gang competes for: those that not every node has, if it asks for any.
    fn rarest(&self, gang: &Gang) -> Vec<Resource> {
        let cluster = self.mirror.cluster();
        let waiting = gang.pod_groups.iter().filter(|group| group.missing() > 0);
        let asked = waiting.flat_map(|group| cluster.requests(group.shape).iter());
        let asked: Vec<Resource> = asked.map(|(resource, _)| resource).collect();
        let is_rare = |resource: &Resource| !COMMON.contains(&cluster.resource_name(*resource));
        let rare: Vec<Resource> = asked.iter().copied().filter(is_rare).collect();
        if rare.is_empty() { asked } else { rare }
    }
}

/// The gang that a pod belongs to, or the pod itself.
fn name(holder: &Holder<'_>) -> String {
    let gang = holder.labels.get(labels::PODGANG);
    gang.unwrap_or(&holder.pod.name).clone()
}

fn told(held: BTreeMap<String, Held>) -> Vec<String> {
    let mut held: Vec<(String, Held)> = held.into_iter().collect();
    held.sort_by_key(|(_, held)| Reverse(held.pods));
    let told = held.into_iter().take(BLOCKERS_MAX).map(|(name, held)| {
        let pods = if held.pods == 1 { "pod" } else { "pods" };
        format!("{name} ({} {pods}, priority {})", held.pods, held.priority)
    });
    told.collect()
}
