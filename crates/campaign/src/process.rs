//! The processes of Grove, each a task that can be killed, stopped and started again, as a kubelet would.
//!
//! The operator's process is what `grove operator` runs: workload operator, controller of Dynamo's graphs, webhooks. The
//! lease is not part of it (its own tests are in `crates/grove`): who leads is decided here, by whoever gives orders.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use grove_api::config::{OperatorConfiguration, SchedulerProfile};
use grove_controllers::{Operator, StartError};
use grove_dynamo::controller::Controller;
use grove_dynamo::translate::Surroundings;
use grove_scheduler::{Policy, Scheduler};
use grove_simcluster::clock::Clock;
use grove_simcluster::{Cluster, User};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::webhooks;

/// How long a kubelet takes to start a process that ended.
const RESTART: Duration = Duration::from_secs(1);
/// After how long a standby leads when the leader says nothing more.
const TAKE_OVER: Duration = Duration::from_secs(15);
/// How long a leader that was frozen goes on before it notices that it leads no more.
const NOTICES: Duration = Duration::from_millis(100);

/// The processes of Grove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Operator,
    Scheduler,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::Operator, Self::Scheduler];

    /// The name that the API server knows it by.
    pub fn user(self) -> &'static str {
        match self {
            Self::Operator => "system:serviceaccount:grove-system:grove-operator",
            Self::Scheduler => "system:serviceaccount:grove-system:grove-scheduler",
        }
    }
}

/// Whether a user is one of Grove's processes.
pub(crate) fn is_ours(user: &str) -> bool {
    Role::ALL.iter().any(|role| role.user() == user)
}

/// The words of the levels that the operator is configured with, broad to narrow.
pub(crate) type Levels = &'static [&'static str];

/// The configuration that both processes read.
pub(crate) fn configuration(levels: Levels) -> OperatorConfiguration {
    let text = format!("dynamo: {{enabled: true}}\n{}", grove_scenarios::levels(levels));
    grove_scenarios::configuration(&text, &SchedulerProfile::Grove)
}

/// A process's clock, which may be wrong.
#[derive(Clone, Debug)]
pub(crate) struct Skewed {
    clock: Clock,
    start: Timestamp,
    drift_percent: Arc<AtomicI64>,
}

impl Skewed {
    fn new(clock: Clock) -> Self {
        Self {
            start: clock.now(),
            clock,
            drift_percent: Arc::default(),
        }
    }

    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        let millis = now.duration_since(self.start).as_millis();
        let drift = millis * i128::from(self.drift_percent.load(Ordering::Relaxed)) / 100;
        let drift = SignedDuration::from_millis(i64::try_from(drift).unwrap_or(0));
        now.saturating_add(drift).expect("adding a signed duration saturates")
    }

    fn function(&self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let this = self.clone();
        Arc::new(move || this.now())
    }
}

/// What a process needs to start.
#[derive(Clone, Debug)]
struct Site {
    cluster: Arc<Cluster>,
    role: Role,
    levels: Levels,
    clock: Skewed,
}

/// What can be done to a process.
#[derive(Debug)]
enum Order {
    /// It ends where it stands, and starts again.
    Die,
    /// It ends as after a signal, and starts with another configuration.
    Configure(Levels),
    /// It is frozen; another one leads meanwhile. Then it wakes, and notices.
    Freeze(Duration),
}

/// A process that is kept running.
#[derive(Debug)]
pub(crate) struct Process {
    orders: mpsc::UnboundedSender<Order>,
    drift_percent: Arc<AtomicI64>,
    kills: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Process {
    pub(crate) fn start(cluster: Arc<Cluster>, role: Role, levels: Levels) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let clock = Skewed::new(cluster.clock());
        let drift_percent = clock.drift_percent.clone();
        let site = Site {
            cluster,
            role,
            levels,
            clock,
        };
        let task = tokio::spawn(keep_running(site, received));
        Self {
            orders,
            drift_percent,
            kills: Arc::default(),
            task,
        }
    }

    /// What kills it when its time has come.
    pub(crate) fn killer(&self) -> impl FnOnce() + Send + use<> {
        let (orders, kills) = (self.orders.clone(), self.kills.clone());
        move || {
            kills.fetch_add(1, Ordering::Relaxed);
            // A process that is not kept running any more cannot be killed either.
            let _ = orders.send(Order::Die);
        }
    }

    /// How often it was killed.
    pub(crate) fn kills(&self) -> usize {
        self.kills.load(Ordering::Relaxed)
    }

    pub(crate) fn freezer(&self, time: Duration) -> impl FnOnce() + Send + use<> {
        let orders = self.orders.clone();
        move || drop(orders.send(Order::Freeze(time)))
    }

    pub(crate) fn configure(&self, levels: Levels) {
        // As above.
        let _ = self.orders.send(Order::Configure(levels));
    }

    /// Lets its clock run faster, or slower, by so many hundredths.
    pub(crate) fn drift(&self, percent: i64) {
        self.drift_percent.store(percent, Ordering::Relaxed);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_running(mut site: Site, mut orders: mpsc::UnboundedReceiver<Order>) {
    // Leaders that are frozen, and end with this task.
    let mut frozen = JoinSet::new();
    let mut life = Life::begin(&site);
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                None => return,
                Some(Order::Die) => {
                    life.crash().await;
                    tokio::time::sleep(RESTART).await;
                }
                Some(Order::Configure(levels)) => {
                    site.levels = levels;
                    life.end().await;
                }
                Some(Order::Freeze(time)) => {
                    life.freeze();
                    tokio::time::sleep(TAKE_OVER).await;
                    frozen.spawn(life.wake_after(time.saturating_sub(TAKE_OVER)));
                }
            },
            _ = &mut life.task => tokio::time::sleep(RESTART).await,
        }
        life = Life::begin(&site);
    }
}

/// From one start of a process to its end.
#[derive(Debug)]
struct Life {
    stop: CancellationToken,
    frozen: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Life {
    fn begin(site: &Site) -> Self {
        let stop = CancellationToken::new();
        let (frozen, is_frozen) = watch::channel(false);
        let (site, stopped) = (site.clone(), stop.clone());
        let work = async move {
            match site.role {
                Role::Operator => operate(site, stopped).await,
                Role::Scheduler => schedule(site, stopped).await,
            }
        };
        let task = tokio::spawn(freezable(work.boxed(), is_frozen));
        Self { stop, frozen, task }
    }

    /// Where it stands.
    async fn crash(self) {
        self.task.abort();
        // Aborted is what it should be.
        let _ = self.task.await;
    }

    /// As a signal does.
    async fn end(self) {
        self.stop.cancel();
        // A panic at the end would have been one before it: the task is asked again by nobody.
        let _ = self.task.await;
    }

    fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Wakes it after a time, and lets it notice that it leads no more.
    async fn wake_after(self, time: Duration) {
        tokio::time::sleep(time).await;
        self.frozen.send_replace(false);
        tokio::time::sleep(NOTICES).await;
        self.crash().await;
    }
}

/// Does the work, except while it is frozen: then nothing of it runs, as after SIGSTOP.
async fn freezable(mut work: Pin<Box<dyn Future<Output = ()> + Send>>, mut frozen: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            biased;
            // Whoever could freeze it is gone: it works on.
            Ok(_) = frozen.wait_for(|frozen| *frozen) => {}
            () = &mut work => return,
        }
        let _ = frozen.wait_for(|frozen| !*frozen).await;
    }
}

async fn schedule(site: Site, stop: CancellationToken) {
    let settings = grove_scheduler::Settings {
        policy: Policy::new(&configuration(site.levels)),
        clock: site.clock.function(),
        ..grove_scheduler::Settings::default()
    };
    let client = site.cluster.client_as(User::named(site.role.user(), &[]));
    Scheduler::new(client, settings).run(stop).await;
}

/// A start that fails ends the process, and the next one tries again.
async fn operate(site: Site, stop: CancellationToken) {
    let attempts = async {
        while try_to_operate(&site, &stop).await.is_err() {
            tokio::time::sleep(RESTART).await;
        }
    };
    // While it starts nothing is under way that would have to be finished.
    let is_stopped = async {
        stop.cancelled().await;
        tokio::time::sleep(RESTART).await;
    };
    tokio::select! {
        biased;
        () = attempts => {}
        () = is_stopped => {}
    }
}

async fn try_to_operate(site: &Site, stop: &CancellationToken) -> Result<(), StartError> {
    let client = site.cluster.client_as(User::named(site.role.user(), &[]));
    let configuration = configuration(site.levels);
    let settings = grove_controllers::Settings {
        scheduler: configuration.scheduler.clone(),
        topology: configuration.topology_aware_scheduling.clone(),
        wait_image: "grove".to_owned(),
        pins: false,
        workers: 8,
        clock: site.clock.function(),
    };
    let settings = grove_controllers::settle(&client, settings).await?;
    let webhooks = webhooks::serve(&site.cluster, &configuration, client.clone(), stop.clone());
    let work = async {
        grove_controllers::start(&client, &settings).await?;
        let operator = Operator::new(client.clone(), settings);
        let graphs = grove_dynamo::controller::Settings {
            around: Surroundings::default(),
            workers: 4,
            clock: site.clock.function(),
        };
        let graphs = Controller::new(client.clone(), graphs);
        tokio::join!(operator.run(stop.clone()), graphs.run(stop.clone()));
        Ok(())
    };
    tokio::select! {
        biased;
        ended = work => ended,
        () = webhooks => Ok(()),
    }
}
