//! The shell of graphs: it watches, asks [`crate::translate`] and [`crate::status`] what should be, and writes it.
//!
//! ```text
//! watches ─▶ stores ─▶ (whose graph) ─▶ queue ─▶ a look at one graph ─▶ writes
//! ```
//!
//! A look keeps nothing, so it can end anywhere and be taken up by the next one. What a graph owns follows it when it is
//! deleted; there is nothing to hold it for. Topologies are not read here: the framework keeps the constraints, and says in
//! the set's status whether it can.

mod kinds;
mod look;
mod scaling;
mod write;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use grove_api::{
    DynamoGraphDeployment, DynamoGraphDeploymentScalingAdapter, PodClique, PodCliqueScalingGroup, PodCliqueSet,
};
use grove_runtime::{Change, Feed, Looks, Notice, ObjectKey, Queue, Unreadable, all_synced};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::Api;
use kube::core::{DeserializeGuard, TypeMeta};
use kube::runtime::watcher;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::translate::Surroundings;
use kinds::{Kept, View};

type Watching<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The name under which fields are written.
pub const FIELD_MANAGER: &str = "grove-dynamo";

/// Whose looks these are, for those who count.
const CONTROLLERS: [&str; 1] = ["dynamographdeployment"];

/// What the surroundings decide.
#[derive(Clone)]
pub struct Settings {
    pub around: Surroundings,
    /// The most graphs that are looked at at once.
    pub workers: usize,
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("around", &self.around)
            .finish_non_exhaustive()
    }
}

/// What looks share.
struct Shell {
    client: Client,
    settings: Settings,
    view: View,
    queue: Arc<Queue<ObjectKey>>,
    looks: Looks,
    notices: UnboundedSender<Notice>,
}

impl Shell {
    fn now(&self) -> Timestamp {
        (self.settings.clock)()
    }

    fn seen<K: Kept>(&self, change: &Change<K>) {
        for object in [&change.old, &change.new].into_iter().flatten() {
            if let Some(graph) = object.graph(&self.view) {
                self.queue.add(graph);
            }
        }
    }

    fn tell(&self, notices: impl IntoIterator<Item = Notice>) {
        for notice in notices {
            // Refused only when the controller has ended, and then nobody writes.
            let _ = self.notices.send(notice);
        }
    }

    fn report(&self, unreadable: &Unreadable) {
        let Unreadable {
            kind, key, uid, reason, ..
        } = unreadable;
        tracing::error!(%key, uid, reason, "{kind} cannot be read and is left alone; correct it");
        self.tell([Notice::unreadable(unreadable)]);
    }
}

/// The controller of DynamoGraphDeployments.
pub struct Controller {
    shell: Arc<Shell>,
    notices: Mutex<UnboundedReceiver<Notice>>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller")
            .field("settings", &self.shell.settings)
            .finish_non_exhaustive()
    }
}

impl Controller {
    pub fn new(client: Client, settings: Settings) -> Self {
        Self::with_looks(client, settings, Looks::default())
    }

    /// One whose looks are counted here.
    pub fn with_looks(client: Client, settings: Settings, looks: Looks) -> Self {
        let (told, notices) = mpsc::unbounded_channel();
        let queue = Arc::new(Queue::default());
        looks.follow(&queue, &CONTROLLERS, |_| CONTROLLERS[0]);
        let shell = Shell {
            client,
            settings,
            view: View::default(),
            queue,
            looks,
            notices: told,
        };
        Self {
            shell: Arc::new(shell),
            notices: Mutex::new(notices),
        }
    }

    /// Works until told to stop. Writes that are under way then are finished.
    pub async fn run(&self, stop: CancellationToken) {
        let mut synced = Vec::new();
        let watches = vec![
            self.watch::<DynamoGraphDeployment>(&mut synced),
            self.watch::<PodCliqueSet>(&mut synced),
            self.watch::<PodClique>(&mut synced),
            self.watch::<PodCliqueScalingGroup>(&mut synced),
            self.watch::<Service>(&mut synced),
            self.watch::<ServiceAccount>(&mut synced),
            self.watch::<Role>(&mut synced),
            self.watch::<RoleBinding>(&mut synced),
            self.watch::<DynamoGraphDeploymentScalingAdapter>(&mut synced),
        ];
        let mut notices = self.notices.lock().await;
        tokio::select! {
            // In this order every time: a run can be repeated.
            biased;
            _ = join_all(watches) => {}
            () = grove_runtime::publish(&self.shell.client, FIELD_MANAGER, &mut notices, || self.shell.now()) => {}
            () = self.work(synced, &stop) => {}
        }
    }

    /// Looks at graphs that changed, once everything has been seen.
    async fn work(&self, synced: Vec<watch::Receiver<bool>>, stop: &CancellationToken) {
        if stop.run_until_cancelled(all_synced(synced)).await.is_none() {
            return;
        }
        let look = |graph: ObjectKey| {
            let shell = self.shell.clone();
            async move {
                let begun = Instant::now();
                let outcome = look::look(&shell, &graph).await;
                shell.looks.looked(CONTROLLERS[0], &outcome, begun.elapsed());
                outcome
            }
        };
        self.shell.queue.work(self.shell.settings.workers, stop, look).await;
    }

    fn watch<K: Kept>(&self, synced: &mut Vec<watch::Receiver<bool>>) -> Watching<'_> {
        let (sender, receiver) = watch::channel(false);
        synced.push(receiver);
        let shell = &self.shell;
        let config = match K::SELECTOR {
            Some(selector) => watcher::Config::default().labels(selector),
            None => watcher::Config::default(),
        };
        let feed = Feed::<K, K, DeserializeGuard<K>> {
            kind: TypeMeta::resource::<K>(),
            api: Api::all(shell.client.clone()),
            config,
            read: kinds::read,
            store: K::store(&shell.view).clone(),
        };
        Box::pin(async move {
            feed.run(
                &sender,
                |change: &Change<K>| shell.seen(change),
                |unreadable| shell.report(&unreadable),
            )
            .await;
        })
    }
}
