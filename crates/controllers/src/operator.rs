//! The operator as a whole: watches on one side, workers on the other, the queue in between.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures::future::join_all;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, labels};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ObjectReference, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::affected::Affects;
use crate::events::{self, Notice};
use crate::key::Key;
use crate::kinds::KeptPod;
use crate::runtime::{Feed, Outcome, Unreadable};
use crate::shell::{Settings, Shell};
use crate::{clique, gang, group, replica, set};

type Watching = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The workload operator.
#[derive(Debug)]
pub struct Operator {
    shell: Arc<Shell>,
    notices: Mutex<UnboundedReceiver<Notice>>,
}

impl Operator {
    pub fn new(client: Client, settings: Settings) -> Self {
        let (told, notices) = mpsc::unbounded_channel();
        Self {
            shell: Arc::new(Shell::new(client, settings, told)),
            notices: Mutex::new(notices),
        }
    }

    /// Works until told to stop. Writes that are under way then are finished.
    pub async fn run(&self, stop: CancellationToken) {
        let mut synced = Vec::new();
        // Sets are the users': all of them are watched. Of everything else only what the operator made.
        let watches: Vec<Watching> = vec![
            self.watch::<PodCliqueSet>(None, &mut synced),
            self.watch::<PodCliqueScalingGroup>(MANAGED, &mut synced),
            self.watch::<PodClique>(MANAGED, &mut synced),
            self.watch::<PodGang>(MANAGED, &mut synced),
            self.watch::<KeptPod>(MANAGED, &mut synced),
            self.watch::<Service>(MANAGED, &mut synced),
            self.watch::<HorizontalPodAutoscaler>(MANAGED, &mut synced),
            self.watch::<ControllerRevision>(MANAGED, &mut synced),
            self.watch::<Role>(MANAGED, &mut synced),
            self.watch::<RoleBinding>(MANAGED, &mut synced),
            self.watch::<ResourceClaim>(MANAGED, &mut synced),
        ];
        let mut notices = self.notices.lock().await;
        tokio::select! {
            _ = join_all(watches) => {}
            () = events::publish(&self.shell.client, &mut notices, || self.shell.now()) => {}
            () = self.work(synced, &stop) => {}
        }
    }

    /// Looks at what has changed, once everything has been seen: half a view would look like things that are missing.
    async fn work(&self, synced: Vec<watch::Receiver<bool>>, stop: &CancellationToken) {
        let all_synced = join_all(synced.into_iter().map(|mut synced| async move {
            // An error means that the watch has ended, and then so does everything.
            let _ = synced.wait_for(|synced| *synced).await;
        }));
        if stop.run_until_cancelled(all_synced).await.is_none() {
            return;
        }
        let workers = self.shell.settings.workers;
        let look = |key: Key| {
            let shell = self.shell.clone();
            async move { look(&shell, key).await }
        };
        self.shell.queue.work(workers, stop, look).await;
    }

    fn watch<V>(&self, selector: Option<(&str, &str)>, synced: &mut Vec<watch::Receiver<bool>>) -> Watching
    where
        V: Affects,
    {
        let config = match selector {
            Some((label, value)) => watcher::Config::default().labels(&format!("{label}={value}")),
            None => watcher::Config::default(),
        };
        let feed = Feed::<V::Object, V> {
            api: Api::all(self.shell.client.clone()),
            config,
            read: V::read,
            store: V::store(&self.shell.view).clone(),
        };
        let (sender, receiver) = watch::channel(false);
        synced.push(receiver);
        let (shell, told) = (self.shell.clone(), self.shell.clone());
        Box::pin(feed.run(
            sender,
            move |change| shell.seen(change),
            move |unreadable| report(&told, &unreadable),
        ))
    }

    /// Whether there is nothing to do now.
    pub fn is_idle(&self) -> bool {
        self.shell.queue.is_idle()
    }
}

const MANAGED: Option<(&str, &str)> = Some((labels::MANAGED_BY, labels::MANAGED_BY_OPERATOR));

/// Tells of an object that cannot be read, on that object: nobody else would know why nothing happens.
fn report(shell: &Shell, unreadable: &Unreadable) {
    let Unreadable {
        api_version,
        kind,
        key,
        uid,
        reason,
    } = unreadable;
    if !shell.is_newly_unreadable(uid, reason) {
        return;
    }
    tracing::error!(%key, uid, reason, "{kind} cannot be read and is left alone; correct it");
    let about = ObjectReference {
        api_version: Some(api_version.clone()),
        kind: Some(kind.clone()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: Some(uid.clone()),
        ..ObjectReference::default()
    };
    shell.tell([Notice {
        about,
        is_warning: true,
        reason: "Unreadable".to_owned(),
        action: "Read",
        note: format!("{kind} {key} cannot be read and is left alone; correct it: {reason}"),
        occasion: None,
    }]);
}

async fn look(shell: &Shell, key: Key) -> Outcome {
    match key {
        Key::Set(key) => set::look(shell, &key).await,
        Key::Replica(key, index) => replica::look(shell, &key, index).await,
        Key::Group(key) => group::look(shell, &key).await,
        Key::Clique(key) => clique::look(shell, &key).await,
        Key::Gang(set, replica, name) => gang::look(shell, &set, replica, &name).await,
    }
}
