//! The fleet: fake nodes and the kubelets on them.
//!
//! One task runs all nodes. It follows the writes, keeps an `agenda` of what is due when, and changes pods by the steps
//! of `pod`; a step that finds the world changed (pod replaced, node down) does nothing. A node that the fleet did not
//! make is left alone: somebody else runs it.

mod agenda;
mod node;
mod pod;
mod run;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::{Actor, Writes};
use crate::store::Key;
pub(in crate::behaviour) use node::tolerates;
pub use node::{NodeSpec, Taint};

/// Runs an init container for real: gets the pod and the container, and gives the exit code when it is done. The
/// future is dropped when the pod is deleted or its node goes down. `None` leaves the container to the fleet, for which
/// it succeeds after [`FleetOptions::init_time`].
pub type InitRunner = Arc<dyn Fn(&Value, &Value) -> Option<BoxFuture<'static, i64>> + Send + Sync>;

/// How fast fake nodes are.
#[derive(Clone)]
pub struct FleetOptions {
    /// From the binding to the first container.
    pub start_delay: Duration,
    /// How long an init container takes.
    pub init_time: Duration,
    /// From running to ready.
    pub ready_delay: Duration,
    /// From the deletion mark to the end, if the grace period is not shorter.
    pub stop_delay: Duration,
    /// Runs init containers for real.
    pub init_runner: Option<InitRunner>,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            start_delay: Duration::from_secs(1),
            init_time: Duration::from_secs(1),
            ready_delay: Duration::from_secs(1),
            stop_delay: Duration::from_secs(1),
            init_runner: None,
        }
    }
}

impl fmt::Debug for FleetOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetOptions")
            .field("start_delay", &self.start_delay)
            .field("init_time", &self.init_time)
            .field("ready_delay", &self.ready_delay)
            .field("stop_delay", &self.stop_delay)
            .field("init_runner", &self.init_runner.is_some())
            .finish()
    }
}

/// Controls the fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    commands: UnboundedSender<Command>,
}

#[derive(Debug)]
enum Command {
    Add(NodeSpec),
    Adopt,
    Tell(oneshot::Sender<()>),
    SetUp { node: String, up: bool },
    Exit { pod: Key, container: String, code: i64 },
}

impl Fleet {
    /// Makes a node.
    pub fn add(&self, node: NodeSpec) {
        self.send(Command::Add(node));
    }

    /// Runs the nodes that a fleet made in an earlier life of the cluster, with what is on them.
    pub(crate) fn adopt(&self) {
        self.send(Command::Adopt);
    }

    /// Comes back when all that was asked for so far is done.
    pub async fn caught_up(&self) {
        let (told, answer) = oneshot::channel();
        self.send(Command::Tell(told));
        // A fleet that is gone has nothing left to do.
        let _ = answer.await;
    }

    /// Stops a node and all that runs on it without a word: 40 seconds later the control plane gives it up.
    pub fn down(&self, node: &str) {
        self.send(Command::SetUp {
            node: node.to_owned(),
            up: false,
        });
    }

    /// Brings a node back.
    pub fn up(&self, node: &str) {
        self.send(Command::SetUp {
            node: node.to_owned(),
            up: true,
        });
    }

    /// Ends a container of a running pod with an exit code; the pod's restart policy decides what follows. On a node
    /// that is down nothing happens: there is nobody to tell of it.
    pub fn exit(&self, namespace: &str, pod: &str, container: &str, code: i64) {
        self.send(Command::Exit {
            pod: Key::new(namespace, pod),
            container: container.to_owned(),
            code,
        });
    }

    fn send(&self, command: Command) {
        // The task ends only with the cluster, and then there is nothing left to control.
        let _ = self.commands.send(command);
    }
}

/// Prepares the fleet; the future runs it.
pub(super) fn new(actor: Actor, writes: Writes, options: FleetOptions) -> (Fleet, impl Future<Output = ()>) {
    let (commands, receiver) = unbounded_channel();
    (Fleet { commands }, run::run(actor, options, writes, receiver))
}
