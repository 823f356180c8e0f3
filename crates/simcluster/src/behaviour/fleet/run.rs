//! The task behind all fake nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

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
/// Longest time that anything is put off.
const DELAY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long pods of a node that is gone are kept.
const LOST_NODE_GRACE: Duration = Duration::from_secs(40);

/// Runs the fleet until its cluster ends.
pub(super) async fn run(actor: Actor, options: FleetOptions, writes: Writes, commands: UnboundedReceiver<Command>) {
    let state = State {
        actor,
        options,
        nodes: BTreeMap::new(),
        pods: BTreeMap::new(),
        due: BTreeMap::new(),
        sequence: 0,
        runs: FuturesUnordered::new(),
        addresses: 0,
    };
    state.run(writes, commands).await;
}

/// A pod on one of the fleet's nodes.
#[derive(Clone, Debug)]
struct Seen {
    uid: String,
    node: String,
    /// Whether its deletion is under way.
    stopping: bool,
}

/// Something that will happen.
#[derive(Clone, Debug)]
enum Due {
    /// The next step of a pod's start: this init container, or (one past the last) its containers.
    Start {
        pod: Key,
        uid: String,
        init: usize,
    },
    InitEnds {
        pod: Key,
        uid: String,
        init: usize,
        code: i64,
    },
    Ready {
        pod: Key,
        uid: String,
    },
    Restart {
        pod: Key,
        uid: String,
        container: String,
    },
    Stop {
        pod: Key,
        uid: String,
    },
    /// The control plane gives the node up.
    NodeLost {
        node: String,
        since: Instant,
    },
    /// The pod may not stay on the lost node any longer.
    Evict {
        pod: Key,
        uid: String,
    },
    /// The pod's node is gone.
    Collect {
        pod: Key,
        uid: String,
    },
}

struct State {
    actor: Actor,
    options: FleetOptions,
    /// Our nodes: `None` is up, else since when it is down.
    nodes: BTreeMap<String, Option<Instant>>,
    pods: BTreeMap<Key, Seen>,
    due: BTreeMap<(Instant, u64), Due>,
    sequence: u64,
    /// Init containers that run for real.
    runs: FuturesUnordered<BoxFuture<'static, Due>>,
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
            let next = self.due.keys().next().map(|(at, _)| *at);
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
                Some(due) = self.runs.next(), if !self.runs.is_empty() => self.act(due).await,
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    if let Some((_, due)) = self.due.pop_first() {
                        self.act(due).await;
                    }
                }
            }
        }
    }

    fn after(&mut self, delay: Duration, due: Due) {
        self.sequence += 1;
        // What is further away than anybody waits must not overflow the clock.
        let at = Instant::now() + delay.min(DELAY_MAX);
        self.due.insert((at, self.sequence), due);
    }

    async fn obey(&mut self, command: Command) {
        let now = self.actor.server.clock.now();
        match command {
            Command::Add(spec) => {
                self.nodes.insert(spec.name.clone(), None);
                // Nodes report their own status; the API would drop it from a plain create.
                let (object, key) = (spec.object(now), Key::new("", &spec.name));
                self.actor.create(&nodes(), "", object.clone()).await;
                self.actor.modify(&nodes(), &key, |node| {
                    node["status"] = object["status"].clone();
                    node::taint_by_condition(node, now);
                    true
                });
            }
            Command::SetUp { node, up } => self.set_up(&node, up),
            Command::Exit {
                pod: key,
                container,
                code,
            } => {
                let mut outcome = None;
                self.actor.modify(&pods(), &key, |pod| {
                    outcome = pod::exited(pod, &container, code, now);
                    outcome.is_some()
                });
                if let (Some(Outcome::Restart { after_secs }), Some(seen)) = (outcome, self.pods.get(&key)) {
                    let uid = seen.uid.clone();
                    self.after(
                        Duration::from_secs(after_secs),
                        Due::Restart {
                            pod: key,
                            uid,
                            container,
                        },
                    );
                }
            }
        }
    }

    fn set_up(&mut self, name: &str, up: bool) {
        let Some(down_since) = self.nodes.get_mut(name) else {
            return;
        };
        if up == down_since.is_none() {
            return;
        }
        let instant = Instant::now();
        *down_since = (!up).then_some(instant);
        if !up {
            return self.after(
                NODE_GRACE,
                Due::NodeLost {
                    node: name.to_owned(),
                    since: instant,
                },
            );
        }
        let now = self.actor.server.clock.now();
        self.actor.modify(&nodes(), &Key::new("", name), |node| {
            let before = node.clone();
            node::set_ready(node, now);
            *node != before
        });
        // What was due while the node was down did not happen; its kubelet takes stock again.
        for key in self.pods_on(name) {
            self.pods.remove(&key);
            if let Some(pod) = self.actor.get(&pods(), &key) {
                if pod["status"]["phase"] == "Running" && !metadata::is_terminating(&pod) {
                    self.write(&key, |pod| pod::ready(pod, now));
                }
                self.look_at(&key, &pod);
            }
        }
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
            for key in self.pods_on(&event.key.name) {
                let uid = self.pods[&key].uid.clone();
                self.after(LOST_NODE_GRACE, Due::Collect { pod: key, uid });
            }
        }
    }

    fn see_pod(&mut self, event: &Event) {
        if event.kind == EventKind::Deleted {
            self.pods.remove(&*event.key);
            return;
        }
        // Most pods are on no node of ours, and looking at the node alone is much cheaper than decoding a pod.
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Place {
            node_name: String,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Placed {
            spec: Place,
        }
        let placed: Placed = serde_json::from_slice(&event.object).unwrap_or_default();
        if self.nodes.contains_key(&placed.spec.node_name) {
            self.look_at(&event.key, &decode(&event.object));
        }
    }

    /// Starts what a pod on one of our nodes needs: its containers, or its end.
    fn look_at(&mut self, key: &Key, pod: &Value) {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let uid = metadata::text(pod, "uid");
        if !self.nodes.contains_key(node) {
            return;
        }
        let known = self.pods.get(key).filter(|seen| seen.uid == uid);
        let (is_new, was_stopping) = (known.is_none(), known.is_some_and(|seen| seen.stopping));
        let stopping = metadata::is_terminating(pod);
        let seen = Seen {
            uid: uid.to_owned(),
            node: node.to_owned(),
            stopping,
        };
        self.pods.insert(key.clone(), seen);
        if self.nodes[node].is_some() {
            return;
        }
        let (key, uid) = (key.clone(), uid.to_owned());
        if stopping {
            if !was_stopping {
                let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
                let delay = self.options.stop_delay.min(Duration::from_secs(grace));
                self.after(delay, Due::Stop { pod: key, uid });
            }
        } else if is_new && pod["status"]["phase"] == "Pending" {
            let now = self.actor.server.clock.now();
            self.write(&key, |pod| pod::accept(pod, now));
            self.after(self.options.start_delay, Due::Start { pod: key, uid, init: 0 });
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

    /// The pod, if it is still the same, on a node that is up, and not about to end.
    fn live(&self, key: &Key, uid: &str) -> Option<Value> {
        let seen = self.pods.get(key).filter(|seen| seen.uid == uid && !seen.stopping)?;
        self.nodes.get(&seen.node).filter(|down| down.is_none())?;
        self.actor.get(&pods(), key)
    }

    async fn act(&mut self, due: Due) {
        let now = self.actor.server.clock.now();
        match due {
            Due::Start { pod, uid, init } => self.start(pod, uid, init),
            Due::InitEnds { pod, uid, init, code } => self.end_init(pod, uid, init, code),
            Due::Ready { pod, uid } => {
                if self.live(&pod, &uid).is_some() {
                    self.write(&pod, |pod| pod::ready(pod, now));
                }
            }
            Due::Restart { pod, uid, container } => {
                if self.live(&pod, &uid).is_some() {
                    self.write(&pod, |pod| pod::restarted(pod, &container, now));
                }
            }
            Due::Stop { pod, uid } => {
                let up = |seen: &Seen| self.nodes.get(&seen.node).is_some_and(Option::is_none);
                if self.pods.get(&pod).is_some_and(|seen| seen.uid == uid && up(seen)) {
                    self.remove(&pod, uid).await;
                }
            }
            Due::NodeLost { node, since } => self.lose(&node, since),
            Due::Evict { pod, uid } => self.evict(&pod, uid).await,
            Due::Collect { pod, uid } => self.remove(&pod, uid).await,
        }
    }

    fn start(&mut self, key: Key, uid: String, init: usize) {
        let Some(object) = self.live(&key, &uid) else { return };
        let now = self.actor.server.clock.now();
        let Some(container) = object["spec"]["initContainers"].get(init) else {
            self.addresses += 1;
            let [_, b, c, d] = self.addresses.to_be_bytes();
            let ip = format!("10.{}.{c}.{d}", 128 | (b & 0x7f));
            self.write(&key, |pod| pod::started(pod, &ip, now));
            return self.after(self.options.ready_delay, Due::Ready { pod: key, uid });
        };
        self.write(&key, |pod| pod::init_started(pod, init, now));
        if pod::is_sidecar(container) {
            return self.after(
                Duration::ZERO,
                Due::Start {
                    pod: key,
                    uid,
                    init: init + 1,
                },
            );
        }
        let real = self
            .options
            .init_runner
            .as_ref()
            .and_then(|runner| runner(&object, container));
        match real {
            Some(run) => self.runs.push(Box::pin(async move {
                let code = run.await;
                Due::InitEnds {
                    pod: key,
                    uid,
                    init,
                    code,
                }
            })),
            None => self.after(
                self.options.init_time,
                Due::InitEnds {
                    pod: key,
                    uid,
                    init,
                    code: 0,
                },
            ),
        }
    }

    fn end_init(&mut self, key: Key, uid: String, init: usize, code: i64) {
        if self.live(&key, &uid).is_none() {
            return;
        }
        let now = self.actor.server.clock.now();
        let mut outcome = Outcome::Ended;
        self.actor.modify(&pods(), &key, |pod| {
            outcome = pod::init_ended(pod, init, code, now);
            true
        });
        match outcome {
            Outcome::Restart { after_secs } => {
                self.after(Duration::from_secs(after_secs), Due::Start { pod: key, uid, init });
            }
            Outcome::Ended if code == 0 => self.start(key, uid, init + 1),
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
        if self.nodes.get(name) != Some(&Some(since)) {
            return;
        }
        let now = self.actor.server.clock.now();
        self.actor.modify(&nodes(), &Key::new("", name), |node| {
            node::set_unknown(node, now);
            true
        });
        for key in self.pods_on(name) {
            let Some(object) = self.actor.get(&pods(), &key) else {
                continue;
            };
            self.write(&key, |pod| pod::unreachable(pod, now));
            if let Some(secs) = node::tolerated_secs(&object) {
                let uid = metadata::text(&object, "uid").to_owned();
                self.after(Duration::from_secs(secs), Due::Evict { pod: key, uid });
            }
        }
    }

    async fn evict(&mut self, key: &Key, uid: String) {
        let lost = |seen: &Seen| self.nodes.get(&seen.node).is_some_and(Option::is_some);
        if !self.pods.get(key).is_some_and(|seen| seen.uid == uid && lost(seen)) {
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
