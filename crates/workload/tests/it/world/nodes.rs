//! Nodes: a placer that binds the minimum of a gang or nothing, and kubelets that start what is bound.

use std::collections::BTreeMap;

use grove_api::labels;
use grove_workload::observed::{Phase, Readiness};
use kube::ResourceExt;

use super::{World, WorldPod};

impl World {
    /// Binds the minimum of each gang or nothing, base gangs first, then whatever else fits.
    pub(super) fn place(&mut self) {
        let mut gangs = self.gangs.clone();
        gangs.sort_by_key(|gang| (gang.labels().contains_key(labels::BASE_PODGANG), gang.name_any()));
        for gang in &gangs {
            let mut minimum = Vec::new();
            let mut is_complete = true;
            for group in &gang.spec.pod_groups {
                let of_group = |pod: &&WorldPod| pod.clique == group.name && pod.seen.gang == gang.name_any();
                let placed = self
                    .pods
                    .values()
                    .filter(of_group)
                    .filter(|pod| pod.seen.is_scheduled())
                    .count();
                let missing = (group.min_replicas as usize).saturating_sub(placed);
                let waiting: Vec<String> = self
                    .waiting(&group.name, &gang.name_any())
                    .into_iter()
                    .take(missing)
                    .collect();
                is_complete &= waiting.len() == missing;
                minimum.extend(waiting);
            }
            if is_complete && minimum.len() <= self.free_places() {
                self.bind(&minimum);
            }
        }
        for gang in &gangs {
            for group in &gang.spec.pod_groups {
                let placed = self
                    .pods_of(&group.name)
                    .iter()
                    .filter(|pod| pod.seen.is_scheduled())
                    .count();
                if placed >= group.min_replicas as usize {
                    let more: Vec<String> = self.waiting(&group.name, &gang.name_any());
                    let more: Vec<String> = more.into_iter().take(self.free_places()).collect();
                    self.bind(&more);
                }
            }
        }
    }

    fn waiting(&self, clique: &str, gang: &str) -> Vec<String> {
        let waits = |pod: &&WorldPod| {
            pod.clique == clique
                && pod.seen.gang == gang
                && pod.seen.is_live()
                && !pod.seen.is_gated
                && pod.seen.node.is_empty()
        };
        self.pods
            .values()
            .filter(waits)
            .map(|pod| pod.seen.name.clone())
            .collect()
    }

    fn free_places(&self) -> usize {
        let taken = self
            .pods
            .values()
            .filter(|pod| !pod.seen.node.is_empty() && pod.seen.node != "dead")
            .count();
        self.places.saturating_sub(taken)
    }

    fn bind(&mut self, pods: &[String]) {
        for name in pods {
            let pod = self.pods.get_mut(name).unwrap();
            pod.seen.node = format!("node-of-{name}");
            self.writes += 1;
        }
    }

    /// Kubelets start what is placed, and remove what is told to go unless the node is dead.
    pub(super) fn run_pods(&mut self) {
        self.pods
            .retain(|_, pod| !pod.seen.is_terminating || pod.seen.node == "dead");
        let ready: BTreeMap<String, i32> = self
            .cliques
            .iter()
            .map(|clique| {
                (
                    clique.name_any(),
                    clique.status.as_ref().map_or(0, |status| status.ready_replicas),
                )
            })
            .collect();
        for pod in self
            .pods
            .values_mut()
            .filter(|pod| pod.seen.is_scheduled() && !pod.seen.is_ready())
        {
            let may_start = pod
                .waits_for
                .iter()
                .all(|(name, count)| ready.get(name).is_some_and(|ready| ready >= count));
            pod.seen.phase = Phase::Running;
            if self.broken_image.as_ref() == Some(&pod.image) {
                pod.seen.readiness = Readiness::Crashed;
            } else if may_start {
                pod.seen.readiness = Readiness::Ready;
                pod.ready_at = Some(self.now);
                self.writes += 1;
            }
        }
    }
}
