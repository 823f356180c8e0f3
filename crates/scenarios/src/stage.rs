//! What a cluster must offer for scenarios to be played on it.

use kube::Client;

/// A cluster without workloads and topologies, with the nodes of [`crate::nodes`] and Grove's kinds.
#[expect(async_fn_in_trait, reason = "a scenario runs on the thread of its test")]
pub trait Stage {
    /// A client that may do everything, and is not the operator.
    fn client(&self) -> &Client;

    /// The namespace that the scenario has to itself.
    fn namespace(&self) -> &str;

    /// Starts an operator with this configuration, its webhooks, and whoever places gangs beside it, as their processes
    /// do. Those before, if there are any, have ended.
    async fn launch(&mut self, configuration: &str);

    /// Waits until something holds, and fails the test when it does not come to hold.
    async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool);
}
