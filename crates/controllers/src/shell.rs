//! What all controllers share: what is seen, the queue, and the little that is remembered.
//!
//! What is remembered can be lost at any time: it is computed anew from what is in the API.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use grove_api::config::{ProfileName, Scheduler, TopologyAwareScheduling};
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use grove_runtime::trace::Tracer;
use grove_runtime::{Change, Notice, ObjectKey, Queue};
use grove_workload::expand::claims::ClaimTemplates;
use grove_workload::expand::gangs::named_scheduler;
use grove_workload::expand::{Expansion, Live, Recycled};
use grove_workload::meta::uid;
use grove_workload::names::{self, is_owned_by};
use grove_workload::revision::Hashes;
use grove_workload::status::Failure;
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::affected::Affects;
use crate::key::Key;
use crate::kinds::{KeptPod, View, set_shelf};
use crate::metrics::Metrics;
use crate::served::ServedApis;

/// The most requests that are under way at once.
const WRITES_IN_FLIGHT_MAX: usize = 64;
/// Statuses are written at most this often while changes keep coming, unless something waits for them.
const STATUS_EVERY: Duration = Duration::from_millis(200);
/// Pods and parts of a set change in bursts: one look for a burst is enough.
const BURST: Duration = Duration::from_millis(10);
/// The same for gangs, for which gates wait.
const GANG_BURST: Duration = Duration::from_millis(3);
/// A look at a set as a whole sums up all of its parts.
const SET_BURST: Duration = Duration::from_millis(50);

/// What the administrator and the surroundings decide.
#[derive(Clone)]
pub struct Settings {
    /// The scheduler profiles, and which of them places gangs.
    pub scheduler: Scheduler,
    /// Topologies, as the configuration has them and the start left them.
    pub topology: TopologyAwareScheduling,
    /// The image that holds `grove`, for pods that wait for others.
    pub wait_image: String,
    /// Somebody places the gangs of the `default-scheduler` profile, and lifts each gate in the patch that pins the pod.
    /// Without it the operator lifts the gates of complete gangs, and their pods go where that scheduler likes.
    pub pins: bool,
    /// The most things that are looked at at once.
    pub workers: usize,
    /// The time.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// To whom the operator tells about itself; by default to nobody.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    pub metrics: Metrics,
    pub tracer: Tracer,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("scheduler", &self.scheduler)
            .field("topology", &self.topology)
            .field("wait_image", &self.wait_image)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// What is known of a set besides the set: found by its own look, used by those of its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    /// The set of which it is true, and as which generation of it.
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    pub(crate) hashes: Hashes,
    pub(crate) claim_templates: ClaimTemplates,
}

/// That the API server will not have the pods of a clique with this UID and template hash, however often it is asked.
#[derive(Debug)]
struct Refusal {
    uid: String,
    hash: String,
    words: Vec<String>,
}

#[derive(Debug, Default)]
struct Memory {
    facts: BTreeMap<ObjectKey, Arc<Facts>>,
    /// What went wrong in the last look at something.
    failures: BTreeMap<Key, Vec<Failure>>,
    /// When a status that has changed is written.
    status_due: BTreeMap<Key, Instant>,
    /// Cliques whose pods the API server refuses for good.
    refused: BTreeMap<ObjectKey, Refusal>,
}

pub(crate) struct Shell {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) view: View,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) telemetry: Telemetry,
    /// Which of the APIs that can be missing are served.
    pub(crate) served: ServedApis,
    pub(crate) in_flight: Semaphore,
    notices: UnboundedSender<Notice>,
    memory: Mutex<Memory>,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Shell {
    pub(crate) fn new(
        client: Client,
        (settings, telemetry): (Settings, Telemetry),
        notices: UnboundedSender<Notice>,
    ) -> Self {
        let queue = Arc::new(Queue::default());
        telemetry.metrics.follow(&queue);
        Self {
            client,
            view: View::new(settings.topology.clone()),
            settings,
            queue,
            telemetry,
            served: ServedApis::default(),
            in_flight: Semaphore::new(WRITES_IN_FLIGHT_MAX),
            notices,
            memory: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.settings.clock)()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a change, wherever it was learnt of: everything that it concerns will be looked at.
    pub(crate) fn seen<V: Affects>(&self, change: &Change<V>) {
        for key in V::affected(change, &self.view) {
            match key {
                Key::Set(_) if V::BURSTS => self.queue.add_after(key, SET_BURST),
                // Gates wait for gangs; but a look at one reads all of its pods, and they come by the thousand.
                Key::Gang(..) => self.queue.add_after(key, GANG_BURST),
                _ if V::BURSTS => self.queue.add_after(key, BURST),
                _ => self.queue.add(key),
            }
        }
    }

    /// What is known of the set as it is now; none until its own look has found it out.
    pub(crate) fn facts(&self, set: &PodCliqueSet) -> Option<Arc<Facts>> {
        let facts = self.memory().facts.get(&ObjectKey::of(&set.metadata)).cloned();
        facts.filter(|facts| facts.uid == uid(set) && facts.generation == set.metadata.generation)
    }

    /// Remembers what was found out. True if it is news.
    pub(crate) fn learn(&self, set: &ObjectKey, facts: Facts) -> bool {
        let facts = Arc::new(facts);
        let known = self.memory().facts.insert(set.clone(), facts.clone());
        known != Some(facts)
    }

    /// Forgets everything about something that is gone or about to go.
    pub(crate) fn forget(&self, key: &Key) {
        let mut memory = self.memory();
        match key {
            Key::Set(set) => {
                memory.facts.remove(set);
                memory.failures.retain(|key, _| !key.belongs_to(set));
                memory.status_due.retain(|key, _| !key.belongs_to(set));
            }
            Key::Clique(clique) => drop(memory.refused.remove(clique)),
            Key::Replica(..) | Key::Group(_) | Key::Gang(..) | Key::ComputeDomain(_) | Key::Topology(..) => {}
        }
        memory.failures.remove(key);
        memory.status_due.remove(key);
    }

    /// Remembers what went wrong in a look; whoever reports it looks again when that has changed.
    pub(crate) fn report(&self, key: &Key, failures: Vec<Failure>, reporter: &Key) {
        let mut memory = self.memory();
        let known = memory.failures.get(key).cloned().unwrap_or_default();
        if known == failures {
            return;
        }
        match failures.is_empty() {
            true => drop(memory.failures.remove(key)),
            false => drop(memory.failures.insert(key.clone(), failures)),
        }
        drop(memory);
        self.queue.add(reporter.clone());
    }

    /// What went wrong in the parts of a set.
    pub(crate) fn failures_of(&self, set: &ObjectKey) -> Vec<Failure> {
        let memory = self.memory();
        let its = memory.failures.iter().filter(|(key, _)| key.belongs_to(set));
        let mut all: Vec<Failure> = its.flat_map(|(_, failures)| failures.clone()).collect();
        all.dedup();
        all
    }

    /// The words with which the API server refused pods of this template before.
    pub(crate) fn refusal(&self, clique: &PodClique, hash: &str) -> Option<Vec<String>> {
        let memory = self.memory();
        let refused = memory.refused.get(&ObjectKey::of(&clique.metadata));
        let refused = refused.filter(|refused| refused.uid == uid(clique) && refused.hash == hash);
        refused.map(|refused| refused.words.clone())
    }

    pub(crate) fn refuse(&self, clique: &PodClique, hash: &str, words: Vec<String>) {
        let refusal = Refusal {
            uid: uid(clique).to_owned(),
            hash: hash.to_owned(),
            words,
        };
        self.memory().refused.insert(ObjectKey::of(&clique.metadata), refusal);
    }

    /// How long a status that has changed still waits; none if it is written now.
    pub(crate) fn status_wait(&self, key: &Key, is_urgent: bool) -> Option<Duration> {
        let now = Instant::now();
        let mut memory = self.memory();
        let due = *memory.status_due.entry(key.clone()).or_insert(now + STATUS_EVERY);
        if is_urgent || due <= now {
            memory.status_due.remove(key);
            return None;
        }
        Some(due - now)
    }

    /// Takes note that a status is as it should be.
    pub(crate) fn status_settled(&self, key: &Key) {
        self.memory().status_due.remove(key);
    }

    /// Tells whoever looks at an object; nobody waits for it to be written.
    pub(crate) fn tell(&self, notices: impl IntoIterator<Item = Notice>) {
        for notice in notices {
            // Refused only when the operator has ended, and then nobody writes.
            let _ = self.notices.send(notice);
        }
    }

    /// Pods that a clique owns.
    pub(crate) fn pods(&self, clique: &PodClique) -> Vec<Arc<KeptPod>> {
        self.view.pods.of(uid(clique))
    }
}

/// One replica of a set, as its parts see it.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) set: Arc<PodCliqueSet>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) cliques: Vec<Arc<PodClique>>,
    pub(crate) groups: Vec<Arc<PodCliqueScalingGroup>>,
    /// The base gang of the replica, if it is about one.
    pub(crate) base: Option<Arc<PodGang>>,
}

impl Surroundings {
    /// None if there is no such set, if it is being deleted, or if too little is known of it yet.
    pub(crate) fn of(shell: &Shell, set: &ObjectKey, replica: Option<i32>) -> Option<Self> {
        let shelf = set_shelf(set);
        let namespace = &set.namespace;
        let set = shell
            .view
            .sets
            .get(set)
            .filter(|set| set.metadata.deletion_timestamp.is_none())?;
        let facts = shell.facts(&set)?;
        let (cliques, groups) = match replica {
            Some(replica) => (
                shell.view.cliques.of_part(&shelf, replica),
                shell.view.groups.of_part(&shelf, replica),
            ),
            None => (shell.view.cliques.of(&shelf), shell.view.groups.of(&shelf)),
        };
        let base = replica.and_then(|replica| {
            let name = names::base_gang(&set.name_any(), replica);
            shell.view.gangs.get(&ObjectKey::new(namespace.clone(), name))
        });
        let base = base.filter(|gang| is_owned_by(&gang.metadata, uid(&*set)));
        Some(Self {
            set,
            facts,
            cliques,
            groups,
            base,
        })
    }

    pub(crate) fn live(&self) -> Live<'_> {
        let recycled = self.base.as_deref().map(Recycled::on).unwrap_or_default();
        Live::of(&self.set, &self.cliques, &self.groups).with_recycled(recycled)
    }

    /// Who places the set's gangs.
    pub(crate) fn profile(&self, shell: &Shell) -> ProfileName {
        shell.settings.scheduler.profile(named_scheduler(&self.set))
    }

    pub(crate) fn expansion<'a>(&'a self, shell: &'a Shell, live: &'a Live<'a>) -> Expansion<'a> {
        Expansion {
            set: &self.set,
            hashes: &self.facts.hashes,
            scheduler: self.profile(shell).as_str(),
            live,
            claim_templates: &self.facts.claim_templates,
        }
    }
}
