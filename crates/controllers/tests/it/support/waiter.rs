//! The init container of ordered starts, run for real: it waits until the cliques that its arguments name have so many
//! ready pods, as the API says, and then succeeds.

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use grove_api::PodClique;
use grove_simcluster::InitRunner;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::Value;

const CONTAINER: &str = "grove-initc";
/// An init container that never ends, for pods that shall not become ready.
const NEVER: &str = "never";
const ARGUMENT: &str = "--podcliques=";

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
            Some(wait(Api::namespaced(client, &namespace), parents(container)).boxed())
        })
    }
}

/// The cliques that a container waits for, and how many ready pods of each.
fn parents(container: &Value) -> Vec<(String, i32)> {
    let arguments = container["args"].as_array().into_iter().flatten();
    let parent = |argument: &Value| {
        let (name, ready) = argument.as_str()?.strip_prefix(ARGUMENT)?.rsplit_once(':')?;
        Some((name.to_owned(), ready.parse().ok()?))
    };
    arguments.filter_map(parent).collect()
}

/// The exit code, once everybody is ready.
async fn wait(cliques: Api<PodClique>, parents: Vec<(String, i32)>) -> i64 {
    for (name, needed) in parents {
        let has_enough = move |clique: Option<&PodClique>| {
            let status = clique.and_then(|clique| clique.status.as_ref());
            status.is_some_and(|status| status.ready_replicas >= needed)
        };
        if await_condition(cliques.clone(), &name, has_enough).await.is_err() {
            return 1;
        }
    }
    0
}
