//! Waiting until other PodCliques are ready: the work of the init container that keeps a start order.
//!
//! One watch per clique, each by name, so that a role needs to grant no more than those names. Whatever goes wrong
//! (rights that are not there yet, an API server that is away) is tried again with growing pauses: a pod that gave up
//! would only be started again.
//!
//! Arguments are as old as the pod. What was scaled down since is waited for with the pods that it still asks for, and
//! what the pod's own clique does not start after any more, because it has none, is not waited for at all.

use std::str::FromStr;

use futures::StreamExt as _;
use futures::future::{join_all, pending};
use grove_api::PodClique;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::watch;

/// A clique that must be ready first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The full name of the PodClique.
    pub name: String,
    /// How many of its pods must be ready.
    pub ready: i32,
}

/// Why an argument names no parent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("must be the name of a PodClique and a number of pods, such as set-0-leader:1, not '{0}'")]
pub struct ParentError(String);

impl FromStr for Parent {
    type Err = ParentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parent = text.rsplit_once(':').and_then(|(name, ready)| {
            let ready = ready.parse().ok().filter(|ready| *ready >= 0)?;
            (!name.is_empty()).then(|| Self {
                name: name.to_owned(),
                ready,
            })
        });
        parent.ok_or_else(|| ParentError(text.to_owned()))
    }
}

/// What is worth telling on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The first look at a clique that is not ready; how many of its pods are.
    Waiting {
        parent: Parent,
        ready: i64,
    },
    Ready(Parent),
    /// The clique need not be waited for any more.
    Over(Parent),
    /// The clique cannot be watched; it will be tried again.
    Trouble {
        parent: Parent,
        cause: String,
    },
}

/// Who waits for whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wait {
    /// The full name of the PodClique whose pod waits, if it is known.
    pub of: Option<String>,
    pub parents: Vec<Parent>,
}

impl Wait {
    /// As the arguments of a container say, if it is one that waits (`wait-for --podcliques=FQN:N … --of=FQN`).
    pub fn in_arguments<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut arguments = arguments.into_iter();
        (arguments.next() == Some("wait-for")).then_some(())?;
        let mut wait = Self::default();
        for argument in arguments {
            match argument.split_once('=')? {
                ("--podcliques", parent) => wait.parents.push(parent.parse().ok()?),
                ("--of", clique) => wait.of = Some(clique.to_owned()),
                _ => return None,
            }
        }
        Some(wait)
    }
}

/// Names of the cliques that the waiting one starts after; none before it has been seen.
type StartsAfter = Option<Vec<String>>;

/// Returns when nobody has to be waited for any more; `tell` hears of what happens meanwhile.
pub async fn run(client: Client, namespace: &str, wait: &Wait, tell: impl Fn(Progress)) {
    let resource = ApiResource::erase::<PodClique>(&());
    // Read without our types: an object that these cannot read must not hold up a start.
    let cliques: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let (sender, after) = watch::channel(None);
    let parents = wait.parents.iter();
    let waits = parents.map(|parent| wait_for(cliques.clone(), parent, after.clone(), &tell));
    tokio::select! {
        biased;
        _ = join_all(waits) => {}
        () = follow(cliques.clone(), wait.of.as_deref(), &sender) => {}
    }
}

/// Follows whom the waiting clique starts after. Without the right to see it everybody is waited for.
async fn follow(cliques: Api<DynamicObject>, of: Option<&str>, after: &watch::Sender<StartsAfter>) {
    if let Some(name) = of {
        let mut changes = std::pin::pin!(watch_object(cliques, name).default_backoff());
        while let Some(seen) = changes.next().await {
            if let Ok(Some(clique)) = seen {
                let names = clique.data["spec"]["startsAfter"].as_array().into_iter().flatten();
                let names = names.filter_map(|name| name.as_str().map(str::to_owned));
                after.send_replace(Some(names.collect()));
            }
        }
    }
    pending().await
}

async fn wait_for(
    cliques: Api<DynamicObject>,
    parent: &Parent,
    mut after: watch::Receiver<StartsAfter>,
    tell: &impl Fn(Progress),
) {
    let is_over = |after: &StartsAfter| after.as_ref().is_some_and(|names| !names.contains(&parent.name));
    let over = async {
        if after.wait_for(is_over).await.is_err() {
            pending().await
        }
    };
    tokio::select! {
        biased;
        () = ready(cliques, parent, tell) => tell(Progress::Ready(parent.clone())),
        () = over => tell(Progress::Over(parent.clone())),
    }
}

async fn ready(cliques: Api<DynamicObject>, parent: &Parent, tell: &impl Fn(Progress)) {
    let mut changes = std::pin::pin!(watch_object(cliques, &parent.name).default_backoff());
    let mut is_told = false;
    while let Some(seen) = changes.next().await {
        match seen {
            Ok(clique) => {
                let ready = ready_pods(clique.as_ref());
                if is_enough(clique.as_ref(), parent) {
                    return;
                }
                if !is_told {
                    is_told = true;
                    let parent = parent.clone();
                    tell(Progress::Waiting { parent, ready });
                }
            }
            Err(error) => tell(Progress::Trouble {
                parent: parent.clone(),
                cause: error.to_string(),
            }),
        }
    }
}

/// A clique that does not exist is not ready, whatever the number: it will be made. One that asks for fewer pods than it
/// did has no more to wait for than those.
fn is_enough(clique: Option<&DynamicObject>, parent: &Parent) -> bool {
    clique.is_some_and(|seen| {
        let asked = seen.data["spec"]["replicas"].as_i64().unwrap_or(i64::MAX);
        ready_pods(clique) >= i64::from(parent.ready).min(asked)
    })
}

fn ready_pods(clique: Option<&DynamicObject>) -> i64 {
    clique
        .and_then(|clique| clique.data["status"]["readyReplicas"].as_i64())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use grove_simcluster::Cluster;
    use kube::api::{Patch, PatchParams, PostParams};
    use serde_json::json;
    use tokio::time::{sleep, timeout};

    use super::*;

    fn parent(name: &str, ready: i32) -> Parent {
        Parent {
            name: name.to_owned(),
            ready,
        }
    }

    fn clique(name: &str, ready: i64) -> DynamicObject {
        let mut clique = DynamicObject::new(name, &ApiResource::erase::<PodClique>(&()));
        let pod = json!({"containers": [{"name": "main", "image": "example.com/none"}]});
        clique.data = json!({
            "spec": {"roleName": "r", "replicas": 2, "minAvailable": 2, "podSpec": pod},
            "status": {"readyReplicas": ready},
        });
        clique
    }

    #[test]
    fn a_container_that_waits_is_known_by_its_arguments() {
        let wait = Wait {
            of: Some("a-0-d".into()),
            parents: vec![parent("a-0-b", 2), parent("a-0-c", 1)],
        };
        let arguments = ["wait-for", "--podcliques=a-0-b:2", "--podcliques=a-0-c:1", "--of=a-0-d"];
        assert_eq!(Wait::in_arguments(arguments), Some(wait));
        assert_eq!(Wait::in_arguments(["serve", "--podcliques=a-0-b:2"]), None);
        assert_eq!(Wait::in_arguments([]), None);
    }

    #[test]
    fn arguments_are_a_name_and_a_number() {
        assert_eq!("a-0-b:2".parse(), Ok(parent("a-0-b", 2)));
        for bad in ["", "a", "a:", ":1", "a:-1", "a:many"] {
            let error = bad.parse::<Parent>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("not '{bad}'")), "{error}");
        }
    }

    #[test]
    fn a_clique_is_enough_with_its_ready_pods_and_not_before_it_exists() {
        assert!(is_enough(Some(&clique("a", 2)), &parent("a", 2)));
        assert!(!is_enough(Some(&clique("a", 1)), &parent("a", 2)));
        assert!(is_enough(Some(&clique("a", 0)), &parent("a", 0)));
        assert!(is_enough(Some(&clique("a", 2)), &parent("a", 3)), "it asks for two");
        assert!(!is_enough(None, &parent("a", 0)));
    }

    /// From a cluster that does not even know the kind to two cliques that become ready one after the other.
    #[tokio::test(start_paused = true)]
    async fn it_ends_when_the_last_clique_is_ready_whatever_happens_before() {
        let cluster = Cluster::builder().start();
        let client = cluster.client();
        let told = Mutex::new(Vec::new());
        let wait = Wait {
            of: Some("d".into()),
            parents: vec![parent("a", 2), parent("b", 1), parent("c", 1)],
        };
        let tell = |progress| told.lock().unwrap().push(progress);
        let waiting = run(client.clone(), "default", &wait, tell);

        let story = async {
            sleep(Duration::from_secs(60)).await;
            let definitions = Api::all(client.clone());
            let definition = grove_api::crds::all()
                .into_iter()
                .find(|definition| definition.spec.names.kind == "PodClique");
            definitions
                .create(&PostParams::default(), &definition.unwrap())
                .await
                .unwrap();
            sleep(Duration::from_secs(60)).await;
            let cliques: Api<DynamicObject> =
                Api::default_namespaced_with(client.clone(), &ApiResource::erase::<PodClique>(&()));
            // The one that waits starts after two of them only: nobody makes the third any more.
            let mut own = clique("d", 0);
            own.data["spec"]["startsAfter"] = json!(["a", "b"]);
            cliques.create(&PostParams::default(), &own).await.unwrap();
            for (name, ready) in [("a", 2), ("b", 1)] {
                cliques.create(&PostParams::default(), &clique(name, 0)).await.unwrap();
                sleep(Duration::from_secs(60)).await;
                assert!(!told.lock().unwrap().contains(&Progress::Ready(parent(name, ready))));
                let status = Patch::Merge(json!({"status": {"readyReplicas": ready}}));
                cliques
                    .patch_status(name, &PatchParams::default(), &status)
                    .await
                    .unwrap();
            }
        };
        timeout(Duration::from_secs(3600), async { tokio::join!(waiting, story) })
            .await
            .unwrap();
        let told = told.lock().unwrap();
        let is_trouble = |progress: &Progress| matches!(progress, Progress::Trouble { .. });
        assert!(is_trouble(&told[0]), "{told:?}");
        assert_eq!(told.last(), Some(&Progress::Ready(parent("b", 1))));
        assert!(told.contains(&Progress::Over(parent("c", 1))), "{told:?}");
    }
}
