//! The task behind all fake nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::agenda::{Agenda, Due, Run, Step};
use super::pod::Outcome;
use super::{Command, FleetOptions, node, pod};
use crate::behaviour::{Actor, Writes};
use crate::rules::kinds::{condition, set_condition};
use crate::rules::metadata;
use crate::server::DeleteOptions;
use crate::store::{Event, EventKind, Key, ResourceName, decode};
use crate::user::User;

/// How long a silent node counts as alive.
const NODE_GRACE: Duration = Duration::from_secs(40);
/// How long pods of a node that is gone are kept.
const LOST_NODE_GRACE: Duration = Duration::from_secs(40);

/// Runs the fleet until its cluster ends.
pub(super) async fn run(actor: Actor, options: FleetOptions, writes: Writes, commands: UnboundedReceiver<Command>) {
    let state = State {
        actor,
        options,
        nodes: BTreeMap::new(),
        pods: BTreeMap::new(),
        agenda: Agenda::default(),
        runs: 0,
        inits: FuturesUnordered::new(),
        addresses: 0,
    };
    state.run(writes, commands).await;
}

/// A pod on one of the fleet's nodes.
#[derive(Debug)]
struct Seen {
    uid: String,
    node: String,
    /// Whether its deletion is under way.
    stopping: bool,
    run: Run,
    /// Holds the init container that runs for real: it ends when this is dropped.
    init: Option<oneshot::Sender<()>>,
}

/// A node that does not answer.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Instant,
    /// Whether the control plane has given the node up.
    is_lost: bool,
}

struct State {
    actor: Actor,
    options: FleetOptions,
    /// Our nodes, and which of them are down.
    nodes: BTreeMap<String, Option<Outage>>,
    pods: BTreeMap<Key, Seen>,
    agenda: Agenda,
    /// How many runs there have been.
    runs: u64,
    /// Init containers that run for real; `None` is one that was cancelled.
    inits: FuturesUnordered<BoxFuture<'static, Option<Due>>>,
    addresses: u32,
}

fn pods() -> ResourceName {
    ResourceName::new("", "pods")
}

fn nodes() -> ResourceName {
    ResourceName::new("", "nodes")
}

impl State {
    async fn run(mut self, mut writes: Writes, mut commands: UnboundedReceiver<Command>) {
        let (pods, nodes) = (pods(), nodes());
        loop {
            let next = self.agenda.next();
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                write = writes.recv() => match write {
                    Some((resource, event)) if resource == pods => self.see_pod(&event),
                    Some((resource, event)) if resource == nodes => self.see_node(&event),
                    Some(_) => {}
                    None => return,
                },
                Some(due) = self.inits.next(), if !self.inits.is_empty() => {
                    if let Some(due) = due {
                        self.act(due).await;
                    }
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    if let Some(due) = self.agenda.pop() {
                        self.act(due).await;
                    }
                }
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Add(spec) => {
                let now = self.actor.server.clock.now();
                // Nodes report their own status; the API would drop it from a plain create.
                let (object, key) = (spec.object(now), Key::new("", &spec.name));
                self.actor.create(&nodes(), "", object.clone()).await;
                self.actor.modify(&nodes(), &key, |node| {
                    node["status"] = object["status"].clone();
                    node::taint_by_condition(node, now);
                    true
                });
                self.nodes.insert(spec.name.clone(), None);
                self.take_stock(&spec.name);
            }
            Command::Adopt => self.adopt(),
            Command::Tell(told) => drop(told.send(())),
            Command::SetUp { node, up } => self.set_up(&node, up),
            Command::Exit { pod, container, code } => self.exit(pod, container, code),
        }
    }

    /// Our nodes of an earlier life: their kubelets start, and go on from what they find.
    fn adopt(&mut self) {
        let (store, now) = (self.actor.server.store.clone(), self.actor.server.clock.now());
        for (key, entry) in store.list(&nodes(), None).items {
            if !node::is_ours(&entry.value()) {
                continue;
            }
            self.nodes.insert(key.name.clone(), None);
            self.actor.modify(&nodes(), &key, |node| {
                let before = node.clone();
                node::set_ready(node, now);
                *node != before
            });
        }
        for (key, entry) in store.list(&pods(), None).items {
            let pod = entry.value();
            self.addresses = self.addresses.max(pod::address(&pod));
            self.resume(&key, &pod);
        }
    }

    /// A container ends by itself. On a node that is down nothing runs that could.
    fn exit(&mut self, key: Key, container: String, code: i64) {
        let Some(seen) = self.pods.get(&key).filter(|seen| self.is_up(&seen.node)) else {
            return;
        };
        let (run, now) = (seen.run, self.actor.server.clock.now());
        let mut outcome = None;
        self.actor.modify(&pods(), &key, |pod| {
            outcome = pod::exited(pod, &container, code, now);
            outcome.is_some()
        });
        if let Some(Outcome::Restart { after_secs }) = outcome {
            self.step_after(Duration::from_secs(after_secs), key, run, Step::Restart { container });
        }
    }

    fn is_up(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(Option::is_none)
    }

    fn step_after(&mut self, delay: Duration, pod: Key, run: Run, step: Step) {
        self.agenda.after(delay, Due::Step { pod, run, step });
    }

    fn next_run(&mut self) -> Run {
        self.runs += 1;
        Run(self.runs)
    }

    fn set_up(&mut self, name: &str, up: bool) {
        let Some(outage) = self.nodes.get_mut(name) else {
            return;
        };
        if up == outage.is_none() {
            return;
        }
        let since = Instant::now();
        *outage = (!up).then_some(Outage { since, is_lost: false });
        if !up {
            self.interrupt(name);
            let node = name.to_owned();
            return self.agenda.after(NODE_GRACE, Due::NodeLost { node, since });
        }
        let now = self.actor.server.clock.now();
        self.actor.modify(&nodes(), &Key::new("", name), |node| {
            let before = node.clone();
            node::set_ready(node, now);
            *node != before
        });
        self.take_stock(name);
    }

    /// The node's kubelet is gone, and with it whatever it was about to do.
    fn interrupt(&mut self, node: &str) {
        for key in self.pods_on(node) {
            let run = self.next_run();
            if let Some(seen) = self.pods.get_mut(&key) {
                (seen.run, seen.init) = (run, None);
            }
        }
    }

    /// A kubelet that starts goes on from what it finds: what was due before has not happened.
    fn take_stock(&mut self, node: &str) {
        for key in self.pods_on(node) {
            self.pods.remove(&key);
            if let Some(pod) = self.actor.get(&pods(), &key) {
                self.resume(&key, &pod);
            }
        }
    }

    /// Goes on with a pod that a kubelet finds when it starts.
    fn resume(&mut self, key: &Key, pod: &Value) {
        let is_ours = pod["spec"]["nodeName"].as_str().is_some_and(|node| self.is_up(node));
        if is_ours && pod["status"]["phase"] == "Running" && !metadata::is_terminating(pod) {
            let now = self.actor.server.clock.now();
            self.write(key, |pod| pod::resumed(pod, now));
        }
        self.look_at(key, pod);
    }

    fn pods_on(&self, node: &str) -> Vec<Key> {
        self.pods
            .iter()
            .filter(|(_, seen)| seen.node == node)
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn see_node(&mut self, event: &Event) {
        if event.kind != EventKind::Deleted {
            let now = self.actor.server.clock.now();
            self.actor.modify(&nodes(), &event.key, |node| {
                let before = node.clone();
                node::taint_by_condition(node, now);
                *node != before
            });
        }
        if event.kind == EventKind::Deleted && self.nodes.remove(&event.key.name).is_some() {
            self.interrupt(&event.key.name);
            for pod in self.pods_on(&event.key.name) {
                let uid = self.pods[&pod].uid.clone();
                self.agenda.after(LOST_NODE_GRACE, Due::Collect { pod, uid });
            }
        }
    }

    fn see_pod(&mut self, event: &Event) {
        if event.kind == EventKind::Deleted {
            self.pods.remove(&*event.key);
            return;
        }
        // Most pods are on no node of ours.
        if self.nodes.contains_key(&event.head.node) {
            self.look_at(&event.key, &decode(&event.object));
        }
    }

    /// Begins what a pod on one of our nodes needs: its containers, or its end.
    fn look_at(&mut self, key: &Key, pod: &Value) {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let Some(outage) = self.nodes.get(node).copied() else {
            return;
        };
        let (uid, stopping) = (metadata::text(pod, "uid"), metadata::is_terminating(pod));
        let known = |seen: &Seen| seen.uid == uid && seen.stopping == stopping;
        if self.pods.get(key).is_some_and(known) {
            return;
        }
        let run = self.next_run();
        let seen = Seen {
            uid: uid.to_owned(),
            node: node.to_owned(),
            stopping,
            run,
            init: None,
        };
        self.pods.insert(key.clone(), seen);
        match outage {
            Some(outage) if outage.is_lost && !stopping => self.evict_in_time(key, pod, outage.since),
            Some(_) => {}
            None if stopping => {
                let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
                let delay = self.options.stop_delay.min(Duration::from_secs(grace));
                self.step_after(delay, key.clone(), run, Step::Stop);
            }
            None if pod["status"]["phase"] == "Pending" => {
                let now = self.actor.server.clock.now();
                self.write(key, |pod| pod::accept(pod, now));
                self.step_after(self.options.start_delay, key.clone(), run, Step::Start { init: 0 });
            }
            None => {}
        }
    }

    /// Changes a pod's status, if that changes anything.
    fn write(&self, key: &Key, change: impl Fn(&mut Value)) {
        self.actor.modify(&pods(), key, |pod| {
            let before = pod.clone();
            change(pod);
            *pod != before
        });
    }

    async fn act(&mut self, due: Due) {
        match due {
            Due::Step { pod, run, step } => {
                if self.pods.get(&pod).is_some_and(|seen| seen.run == run) {
                    self.take(pod, run, step).await;
                }
            }
            Due::NodeLost { node, since } => self.lose(&node, since),
            Due::Evict { pod, uid, since } => self.evict(&pod, uid, since).await,
            Due::Collect { pod, uid } => {
                let node = self.pods.get(&pod).map_or("", |seen| seen.node.as_str());
                if !self.nodes.contains_key(node) {
                    self.remove(&pod, uid).await;
                }
            }
        }
    }

    /// Takes a step of a run that nothing has interrupted.
    async fn take(&mut self, key: Key, run: Run, step: Step) {
        let now = self.actor.server.clock.now();
        match step {
            Step::Start { init } => self.start(key, run, init),
            Step::InitEnds { init, code } => self.end_init(key, run, init, code),
            Step::Ready => self.write(&key, |pod| pod::ready(pod, now)),
            Step::Restart { container } => self.write(&key, |pod| pod::restarted(pod, &container, now)),
            Step::Stop => {
                let uid = self.pods[&key].uid.clone();
                self.remove(&key, uid).await;
            }
        }
    }

    fn start(&mut self, key: Key, run: Run, init: usize) {
        let Some(object) = self.actor.get(&pods(), &key) else {
            return;
        };
        let now = self.actor.server.clock.now();
        let Some(container) = object["spec"]["initContainers"].get(init) else {
            self.addresses += 1;
            let ip = pod::ip(self.addresses);
            self.write(&key, |pod| pod::started(pod, &ip, now));
            return self.step_after(self.options.ready_delay, key, run, Step::Ready);
        };
        self.write(&key, |pod| pod::init_started(pod, init, now));
        if pod::is_sidecar(container) {
            return self.step_after(Duration::ZERO, key, run, Step::Start { init: init + 1 });
        }
        let runner = self.options.init_runner.as_ref();
        match runner.and_then(|runner| runner(&object, container)) {
            Some(real) => self.run_init(key, run, init, real),
            None => self.step_after(self.options.init_time, key, run, Step::InitEnds { init, code: 0 }),
        }
    }

    /// Runs an init container for real, until it ends or the run does.
    fn run_init(&mut self, pod: Key, run: Run, init: usize, real: BoxFuture<'static, i64>) {
        let (hold, released) = oneshot::channel();
        if let Some(seen) = self.pods.get_mut(&pod) {
            seen.init = Some(hold);
        }
        self.inits.push(Box::pin(async move {
            tokio::select! {
                biased;
                _ = released => None,
                code = real => Some(Due::Step { pod, run, step: Step::InitEnds { init, code } }),
            }
        }));
    }

    fn end_init(&mut self, key: Key, run: Run, init: usize, code: i64) {
        let now = self.actor.server.clock.now();
        let mut outcome = Outcome::Ended;
        self.actor.modify(&pods(), &key, |pod| {
            outcome = pod::init_ended(pod, init, code, now);
            true
        });
        match outcome {
            Outcome::Restart { after_secs } => {
                self.step_after(Duration::from_secs(after_secs), key, run, Step::Start { init });
            }
            Outcome::Ended if code == 0 => self.start(key, run, init + 1),
            Outcome::Ended => {}
        }
    }

    /// The pod's processes are gone: so is the pod, unless a finalizer holds it.
    async fn remove(&mut self, key: &Key, uid: String) {
        let options = DeleteOptions {
            grace_secs: Some(0),
            uid: Some(uid),
            ..DeleteOptions::default()
        };
        let node = self.pods.get(key).map_or("", |seen| seen.node.as_str());
        let kubelet = self.actor.named(User::node(node));
        kubelet.delete(&pods(), key, &options).await;
    }

    fn lose(&mut self, name: &str, since: Instant) {
        let outage = self.nodes.get_mut(name).and_then(Option::as_mut);
        let Some(outage) = outage.filter(|outage| outage.since == since) else {
            return;
        };
        outage.is_lost = true;
        let now = self.actor.server.clock.now();
        self.actor.modify(&nodes(), &Key::new("", name), |node| {
            node::set_unknown(node, now);
            true
        });
        for key in self.pods_on(name) {
            if let Some(object) = self.actor.get(&pods(), &key) {
                self.write(&key, |pod| pod::unreachable(pod, now));
                self.evict_in_time(&key, &object, since);
            }
        }
    }

    /// A pod on a lost node stays as long as it tolerates that.
    fn evict_in_time(&mut self, key: &Key, pod: &Value, since: Instant) {
        if let Some(secs) = node::tolerated_secs(pod) {
            let (pod, uid) = (key.clone(), metadata::text(pod, "uid").to_owned());
            self.agenda
                .after(Duration::from_secs(secs), Due::Evict { pod, uid, since });
        }
    }

    async fn evict(&mut self, key: &Key, uid: String, since: Instant) {
        let outage = |seen: &Seen| self.nodes.get(&seen.node).copied().flatten();
        let still = |seen: &Seen| seen.uid == uid && outage(seen).is_some_and(|outage| outage.since == since);
        if !self.pods.get(key).is_some_and(still) {
            return;
        }
        let now = self.actor.server.clock.now();
        self.write(key, |pod| {
            let message = "Taint manager: deleting due to NoExecute taint";
            let target = condition("DisruptionTarget", true, "DeletionByTaintManager", message, now);
            set_condition(&mut pod["status"]["conditions"], target);
        });
        let options = DeleteOptions {
            uid: Some(uid),
            ..DeleteOptions::default()
        };
        self.actor.delete(&pods(), key, &options).await;
    }
}
