//! The init container of ordered starts, run for real.

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use grove_controllers::wait_for::{self, Wait};
use grove_simcluster::InitRunner;
use kube::Client;
use serde_json::Value;

const CONTAINER: &str = "grove-initc";
/// An init container that never ends, for pods that shall not become ready.
const NEVER: &str = "never";

/// The fleet is told who runs init containers before there is a cluster to ask.
#[derive(Clone, Default)]
pub(crate) struct Waiter(Arc<OnceLock<Client>>);

impl Waiter {
    pub(crate) fn connect(&self, client: Client) {
        self.0.set(client).unwrap_or_else(|_| panic!("connected twice"));
    }

    pub(crate) fn runner(&self) -> InitRunner {
        let connected = self.0.clone();
        Arc::new(move |pod, container| {
            if container["name"] == NEVER {
                return Some(std::future::pending().boxed());
            }
            if container["name"] != CONTAINER {
                return None;
            }
            let client = connected.get().cloned()?;
            let namespace = pod["metadata"]["namespace"].as_str()?.to_owned();
            let arguments = container["args"].as_array()?.iter().filter_map(Value::as_str);
            let wait = Wait::in_arguments(arguments)?;
            let run = async move {
                wait_for::run(client, &namespace, &wait, |_| {}).await;
                0
            };
            Some(run.boxed())
        })
    }
}
