//! What a cluster must offer for scenarios to be played on it.

use kube::Client;

/// A cluster without workloads and topologies, with four nodes in two racks and Grove's kinds.
#[expect(async_fn_in_trait, reason = "a scenario runs on the thread of its test")]
pub trait Stage {
    /// A client that may do everything, and is not the operator.
    fn client(&self) -> &Client;

    /// The namespace that the scenario has to itself.
    fn namespace(&self) -> &str;

    /// Starts an operator with this configuration and its webhooks, as its process does. The one before, if there is one,
    /// has ended.
    async fn launch(&mut self, configuration: &str);

    /// Waits until something holds, and fails the test when it does not come to hold.
    async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool);
}
