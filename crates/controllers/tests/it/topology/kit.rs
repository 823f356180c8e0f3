//! What the tests of topologies share on the embedded cluster.

pub(crate) use grove_scenarios::{
    BLOCK, DEFAULT, HOST, Look, NUMA, OFF, RACK, clique, kai_definition, keys, levels, node_labels, on, packed,
    placed_by_kai, pod_group_definition, refusal, set, topology_definition, with_kai, with_policies,
};
use grove_scenarios::{CAPACITY, Stage, nodes};
use grove_simcluster::NodeSpec;
use kube::api::{Api, DeleteParams};
use kube::{Client, Resource};

use crate::support::{NAMESPACE, World};

/// Four nodes in two racks.
pub(crate) fn two_racks() -> Vec<NodeSpec> {
    let node = |(name, labels): (&str, [(&str, &str); 3])| {
        let node = labels
            .into_iter()
            .fold(NodeSpec::new(name), |node, (key, value)| node.label(key, value));
        CAPACITY
            .into_iter()
            .fold(node, |node, (resource, amount)| node.capacity(resource, amount))
    };
    nodes().into_iter().map(node).collect()
}

/// A cluster with four nodes in two racks, and an operator.
pub(crate) async fn world(configuration: &str) -> World {
    let mut world = World::without_operator(1, two_racks()).await;
    world.launch(configuration).await.expect("an operator that starts");
    world
}

impl Stage for World {
    fn client(&self) -> &Client {
        &self.client
    }

    fn namespace(&self) -> &str {
        NAMESPACE
    }

    async fn launch(&mut self, configuration: &str) {
        self.launch(configuration).await.expect("an operator that starts");
        self.serve_webhooks(configuration).await;
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        self.eventually(what, holds).await;
    }
}

/// Deletes an object of the whole cluster.
pub(crate) async fn delete<K>(world: &World, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let api = Api::<K>::all(world.client.clone());
    api.delete(name, &DeleteParams::default())
        .await
        .expect("a deletion that is taken");
}
