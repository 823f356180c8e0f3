//! Pods that were pinned and that nobody binds: they are placed again, and elsewhere.
//!
//! Why the scheduler that binds cannot have a pod on its node is not known here: a device that is in use, a volume that
//! cannot be made there. So the nodes on which a gang waited in vain are left out for a while; when nothing else is left,
//! they are tried again.

use std::time::Duration;

use grove_api::PodGang;
use grove_kubeplace::GangRequest;
use grove_placement::{Amounts, Cluster, Gang, NodeId};
use jiff::Timestamp;

use crate::attempt::Answer;
use crate::core::{Core, Decided, Standing};
use crate::hand::Bounds;
use crate::queue::Unit;
use crate::write::Action;

/// How long a gang is tried elsewhere than where it waited in vain.
const AVOIDED: Duration = Duration::from_secs(600);

impl Core {
    /// Pinned pods are somebody else's to bind. One that is not bound in time returns gated, to be placed again; below
    /// the minimum all that are unbound do, as they are placed together.
    pub(crate) fn unpin(
        &mut self,
        unit: &Unit,
        gang: &PodGang,
        standing: &Standing,
        now: Timestamp,
    ) -> Option<Decided> {
        let hand = self.policy.hand;
        let pods = gang.spec.pod_groups.iter().flat_map(|group| self.state.listed(group));
        let pinned = pods.filter(|pod| hand.destination(pod).is_some() && !pod.has_place());
        let pinned: Vec<(String, _)> = pinned.map(|pod| (pod.uid().to_owned(), pod.clone())).collect();
        let record = self.records.entry(unit.clone()).or_default();
        let known = std::mem::take(&mut record.pinned);
        let since = |uid: &String| known.get(uid).copied().unwrap_or(now);
        record.pinned = pinned.iter().map(|(uid, _)| (uid.clone(), since(uid))).collect();
        let until = *record.pinned.values().min()? + self.policy.grace;
        if now < until {
            self.look_at(unit, until);
            return None;
        }
        let mut actions = Vec::new();
        for (uid, pod) in pinned {
            let is_late = now >= since(&uid) + self.policy.grace;
            if let Some(node) = hand.destination(&pod).filter(|_| is_late) {
                let bounds = self.state.bounds(gang, &pod, node);
                let nodes = within(self.state.mirror.cluster(), &bounds, node);
                record
                    .avoided
                    .extend(nodes.into_iter().map(|node| (node, now + AVOIDED)));
            }
            if !standing.is_bound || is_late {
                // It has the grace once more, should it not go.
                record.pinned.insert(uid, now);
                actions.push(Action::Release { pod });
            }
        }
        tracing::warn!(%unit, pods = actions.len(), "pinned pods were not bound in time; they are placed again");
        Some(Decided {
            actions,
            ..Decided::default()
        })
    }

    /// Looks for a place where the gang has not waited in vain, and if there is none, for any.
    pub(crate) fn solve_elsewhere(&mut self, unit: &Unit, request: &GangRequest, now: Timestamp) -> Answer {
        let record = self.records.entry(unit.clone()).or_default();
        record.avoided.retain(|_, until| now < *until);
        if record.avoided.is_empty() {
            return self.solve(request);
        }
        let cluster = self.state.mirror.cluster_mut();
        let closed = record.avoided.keys();
        let closed: Vec<(NodeId, Amounts)> = closed
            .map(|node| (*node, left(cluster, *node, &request.gang)))
            .collect();
        closed.iter().for_each(|(node, left)| cluster.take(*node, left));
        // What is refused now is refused for this one only.
        let refused = std::mem::take(&mut self.refused);
        let answer = self.solve(request);
        self.refused = refused;
        let cluster = self.state.mirror.cluster_mut();
        closed.iter().for_each(|(node, left)| cluster.give_back(*node, left));
        match answer {
            Answer::Placed(plan) if !plan.assignments.is_empty() => Answer::Placed(plan),
            _ => {
                self.records.entry(unit.clone()).or_default().avoided.clear();
                self.solve(request)
            }
        }
    }
}

/// The nodes on which a pod could have been bound that was led to one of them.
fn within(cluster: &Cluster, bounds: &Bounds, node: &str) -> Vec<NodeId> {
    match bounds {
        Bounds::Node => cluster.node(node).into_iter().collect(),
        Bounds::Domain { key, value } => {
            let is_inside = |node: &NodeId| cluster.traits(*node).labels.get(key) == Some(value);
            cluster.nodes().filter(is_inside).collect()
        }
        // It could have been bound anywhere.
        Bounds::None => Vec::new(),
    }
}

/// What a node has left of all that a gang asks for.
fn left(cluster: &Cluster, node: NodeId, gang: &Gang) -> Amounts {
    let asked = gang
        .pod_groups
        .iter()
        .flat_map(|group| cluster.requests(group.shape).iter());
    let mut asked: Vec<_> = asked.map(|(resource, _)| resource).collect();
    asked.sort_unstable();
    asked.dedup();
    let left = asked
        .into_iter()
        .map(|resource| (resource, u64::try_from(cluster.free(node, resource)).unwrap_or(0)));
    left.collect()
}
