//! The scheduler as a whole: watches on one side, requests on the other, and one loop in between that decides.
//!
//! The loop owns all state, so nothing is locked and decisions follow one after the other; requests are under way beside
//! it, many at once, and their answers come back as one more thing that was seen.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use grove_api::{ClusterTopology, ClusterTopologyBinding, PodGang, TopologyDomain};
use grove_kubeplace::NodeResourceTopology;
use grove_runtime::trace::Tracer;
use grove_runtime::{Change, Feed, Notice, Store, Unreadable, all_synced};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Client;
use kube::api::Api;
use kube::core::TypeMeta;
use kube::runtime::watcher;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::core::{Core, Decided, Policy};
use crate::metrics::Metrics;
use crate::seen::{Kept, Seen};
use crate::steps::{self, Binds};
use crate::write::{Action, Done, Writer};

/// How long answers are waited for at the end: another replica is to lead within three seconds.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Between two counts of everybody.
const SHOW_EVERY: Duration = Duration::from_secs(1);

type Watching = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a scheduler goes by.
#[derive(Clone)]
pub struct Settings {
    pub policy: Policy,
    /// Binds, and deletions that make room, that are under way at once.
    pub binds_max: usize,
    /// Requests that tell people something and are under way at once.
    pub writes_max: usize,
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pub metrics: Metrics,
    pub tracer: Tracer,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            binds_max: 64,
            writes_max: 16,
            clock: Arc::new(Timestamp::now),
            metrics: Metrics::default(),
            tracer: Tracer::default(),
        }
    }
}

impl Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// The gang scheduler.
pub struct Scheduler {
    client: Client,
    settings: Settings,
}

impl Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    pub fn new(client: Client, settings: Settings) -> Self {
        Self { client, settings }
    }

    /// Works until told to stop. Binds that are under way then are finished.
    pub async fn run(&self, stop: CancellationToken) {
        let (seen, inbox) = mpsc::unbounded_channel();
        let (told, mut notices) = mpsc::unbounded_channel();
        let mut synced = Vec::new();
        let watches: Vec<Watching> = vec![
            self.watch::<Node>(&seen, &mut synced),
            self.watch::<NodeResourceTopology>(&seen, &mut synced),
            self.watch::<Pod>(&seen, &mut synced),
            self.watch::<PodGang>(&seen, &mut synced),
            self.watch::<ClusterTopology>(&seen, &mut synced),
            self.watch::<ClusterTopologyBinding>(&seen, &mut synced),
            self.watch::<TopologyDomain>(&seen, &mut synced),
            self.watch::<PriorityClass>(&seen, &mut synced),
            self.watch::<PodDisruptionBudget>(&seen, &mut synced),
            self.watch::<PersistentVolumeClaim>(&seen, &mut synced),
            self.watch::<PersistentVolume>(&seen, &mut synced),
        ];
        let clock = &self.settings.clock;
        tokio::select! {
            // In this order every time: a run can be repeated.
            biased;
            _ = join_all(watches) => {}
            () = grove_runtime::publish(&self.client, &self.settings.policy.name, &mut notices, || clock()) => {}
            () = self.decide(inbox, told, synced, &stop) => {}
        }
    }

    /// Decides, once everything has been seen: half a view would look like room.
    async fn decide(
        &self,
        mut inbox: UnboundedReceiver<Seen>,
        told: UnboundedSender<Notice>,
        synced: Vec<watch::Receiver<bool>>,
        stop: &CancellationToken,
    ) {
        if stop.run_until_cancelled(all_synced(synced)).await.is_none() {
            return;
        }
        let mut core = Core::new(self.settings.policy.clone());
        let mut requests = Requests::new(self);
        let (mut is_shown, mut show_at) = (false, Timestamp::MIN);
        loop {
            while let Ok(seen) = inbox.try_recv() {
                core.see(seen);
            }
            while let Some(done) = requests.under_way.try_join_next() {
                core.done(done.unwrap_or(Done::Other), (self.settings.clock)());
            }
            let now = (self.settings.clock)();
            let begun = Instant::now();
            if let Some(decided) = core.step(now) {
                let metrics = &self.settings.metrics;
                metrics.decided(result(&decided), begun.elapsed(), core.visited());
                if let Some(wait) = decided.waited {
                    metrics.waited(&self.settings.policy.name, wait);
                }
                let ended = (self.settings.clock)();
                let what = (result(&decided), core.visited());
                let binds = steps::planned(&self.settings.tracer, core.tried().as_deref(), (now, ended), what);
                is_shown = false;
                decided.notices.into_iter().for_each(|notice| drop(told.send(notice)));
                for action in decided.actions {
                    requests.send(action, binds.clone());
                }
                drop(binds);
                // Watches and answers have their turn before the next decision.
                tokio::task::yield_now().await;
                if stop.is_cancelled() {
                    break;
                }
                continue;
            }
            is_shown &= !core.has_moved();
            if !is_shown && now >= show_at {
                self.settings.metrics.show(core.census());
                (is_shown, show_at) = (true, now + SHOW_EVERY);
            }
            let due = (!is_shown).then_some(show_at);
            let wait = core.next_at().into_iter().chain(due).min().map(|at| wait(now, at));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(done) = requests.under_way.join_next() => core.done(done.unwrap_or(Done::Other), (self.settings.clock)()),
                seen = inbox.recv() => match seen {
                    Some(seen) => core.see(seen),
                    None => break,
                },
                () = sleep(wait) => {}
            }
        }
        // An answer that nobody waits for is an unknown outcome; but with an API server that is gone none would come, and
        // whoever leads next finds out what became of the binds.
        let answers = async { while requests.under_way.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_MAX, answers).await.is_err() {
            tracing::warn!("requests are still under way; ending without their answers");
        }
    }

    fn watch<K>(&self, seen: &UnboundedSender<Seen>, synced: &mut Vec<watch::Receiver<bool>>) -> Watching
    where
        K: Kept,
    {
        let (is_synced, receiver) = watch::channel(false);
        synced.push(receiver);
        let feed: Feed<K, K::Slim, K::Watched> = Feed {
            kind: TypeMeta::resource::<K>(),
            api: Api::all(self.client.clone()),
            config: watcher::Config::default(),
            read: K::slim,
            store: Arc::new(Store::new(|_: &K::Slim| None)),
        };
        let seen = seen.clone();
        Box::pin(async move {
            let changed = |change: &Change<K::Slim>| {
                // The loop has ended, and everything with it.
                let _ = seen.send(K::seen(change.key.clone(), change.new.clone()));
            };
            feed.run(&is_synced, changed, report).await;
        })
    }
}

fn report(unreadable: Unreadable) {
    let Unreadable { kind, key, reason, .. } = unreadable;
    tracing::error!(kind, %key, reason, "an object cannot be read and is left out");
}

/// What came of a decision, for who counts them.
fn result(decided: &Decided) -> &'static str {
    let is_bind = |action: &Action| matches!(action, Action::Bind { .. } | Action::Pin { .. });
    if decided.actions.iter().any(is_bind) {
        "placed"
    } else if decided
        .actions
        .iter()
        .any(|action| matches!(action, Action::Evict { .. }))
    {
        "preempting"
    } else {
        "unplaced"
    }
}

/// Requests that are under way.
struct Requests {
    writer: Writer,
    metrics: Metrics,
    binds: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    under_way: JoinSet<Done>,
}

impl Requests {
    fn new(scheduler: &Scheduler) -> Self {
        Self {
            writer: Writer {
                client: scheduler.client.clone(),
                manager: scheduler.settings.policy.name.clone(),
            },
            metrics: scheduler.settings.metrics.clone(),
            binds: Arc::new(Semaphore::new(scheduler.settings.binds_max)),
            writes: Arc::new(Semaphore::new(scheduler.settings.writes_max)),
            clock: scheduler.settings.clock.clone(),
            under_way: JoinSet::new(),
        }
    }

    fn send(&mut self, action: Action, binds: Option<Arc<Binds>>) {
        // What people read does not hold up what pods wait for, be it room.
        let lane = match action {
            Action::Say { .. } | Action::Mark { .. } => self.writes.clone(),
            Action::Bind { .. } | Action::Pin { .. } | Action::Release { .. } | Action::Evict { .. } => {
                self.binds.clone()
            }
        };
        if let Action::Evict { .. } = action {
            self.metrics.evicts();
        }
        let (writer, clock, metrics) = (self.writer.clone(), self.clock.clone(), self.metrics.clone());
        self.under_way.spawn(async move {
            let _permit = lane.acquire().await;
            let (begun, begun_at) = (Instant::now(), clock());
            let done = writer.carry_out(action, begun_at).await;
            let (result, pod, refused) = match &done {
                Done::Bound { pod } => ("bound", &**pod, None),
                Done::Found { pod } => ("bound", &**pod, None),
                Done::Refused { pod, why } => ("refused", &**pod, Some(why)),
                Done::Said { .. } | Done::Kept { .. } | Done::Stays { .. } | Done::Other => return done,
            };
            metrics.bind_ended(result, begun.elapsed());
            if let Some(binds) = binds {
                let about = vec![
                    ("k8s.pod.name", pod.name().to_owned()),
                    ("k8s.pod.uid", pod.uid().to_owned()),
                ];
                binds.ended(about, (begun_at, clock()), refused.cloned());
            }
            done
        });
    }
}

pub(crate) fn wait(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
