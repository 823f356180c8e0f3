//! Whether a gang that runs would be placed better today: the engine is asked again, on the cluster as it is now and
//! without the gang's own pods.

use std::collections::BTreeMap;

use grove_api::topology::DEFAULT_TOPOLOGY_NAME;
use grove_api::{ClusterTopology, PodGang};
use grove_kubeplace::{Mirror, PodKey};
use grove_placement::{Budget, Outcome, ScopeReport, Solver, Standing, score};
use grove_topology::Topology;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

/// The cluster as far as placing depends on it.
pub(super) struct Today {
    mirror: Mirror,
    pods: BTreeMap<PodKey, Pod>,
}

impl Today {
    /// Reads all nodes and pods, for which not everybody has the rights.
    pub(super) async fn read(client: &Client) -> kube::Result<Self> {
        let all = ListParams::default();
        let mut mirror = Mirror::new(DEFAULT_TOPOLOGY_NAME);
        for topology in Api::<ClusterTopology>::all(client.clone()).list(&all).await? {
            mirror.set_topology(&Topology::from(&topology));
        }
        for node in Api::<Node>::all(client.clone()).list(&all).await? {
            mirror.set_node(&node);
        }
        let mut pods = BTreeMap::new();
        for pod in Api::<Pod>::all(client.clone()).list(&all).await? {
            mirror.set_pod(&pod);
            let key = PodKey {
                namespace: pod.namespace().unwrap_or_default(),
                name: pod.name_any(),
            };
            pods.insert(key, pod);
        }
        Ok(Self { mirror, pods })
    }

    /// What a restart would gain a gang, in a sentence.
    pub(super) fn better(&mut self, gang: &PodGang) -> String {
        let own: Vec<PodKey> = gang
            .spec
            .pod_groups
            .iter()
            .flat_map(|group| group.pod_references.clone())
            .collect();
        own.iter().for_each(|pod| self.mirror.remove_pod(pod));
        let told = self.told(gang, &own);
        for pod in own.iter().filter_map(|pod| self.pods.get(pod)) {
            self.mirror.set_pod(pod);
        }
        told
    }

    fn told(&mut self, gang: &PodGang, own: &[PodKey]) -> String {
        // As if they waited.
        let unbound: BTreeMap<&PodKey, Pod> = own
            .iter()
            .filter_map(|key| {
                let mut pod = self.pods.get(key)?.clone();
                pod.spec.as_mut()?.node_name = None;
                Some((key, pod))
            })
            .collect();
        let request = match self.mirror.gang(gang, |key| unbound.get(key)) {
            Ok(request) => request,
            Err(why) => return format!("cannot tell: {why}"),
        };
        let mut solver = Solver::new();
        let plan = match solver.solve(self.mirror.cluster_mut(), &request.gang, Budget::default()) {
            Outcome::Placed(plan) => plan.clone(),
            Outcome::Infeasible => return "it would not be placed again as things are".to_owned(),
            Outcome::Undecided => return "cannot tell: the search took too long".to_owned(),
        };
        let scopes = request.report(self.mirror.cluster(), &plan.assignments);
        let now = gang.status.as_ref().and_then(|status| status.placement_score);
        if score(&scopes) <= now.unwrap_or(1.0) {
            return "no better place is free".to_owned();
        }
        let better = scopes.iter().filter(|scope| scope.standing == Standing::Met);
        let better: Vec<String> = better.filter_map(whole).collect();
        format!("{} would hold it; only a restart moves it", better.join(", "))
    }
}

/// "rack r7": the domain of the level that a scope prefers.
fn whole(scope: &ScopeReport) -> Option<String> {
    let preferred = scope.preferred.as_ref()?;
    let (word, domains) = scope.domains.iter().find(|(word, _)| word == preferred)?;
    Some(format!("{word} {}", domains.join(", ")))
}
