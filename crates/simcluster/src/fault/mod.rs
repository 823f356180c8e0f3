//! Faults: what goes wrong between a client and the server, decided by a script or by a seed.
//!
//! ```text
//! door ─ gate ─┬─ Faults: which fault?  rules first, then chance
//!              ├─ Server::serve
//!              └─ stream: the events of a watch, late, twice, or never
//! ```
//!
//! Only requests that come through a door meet faults; the cluster's own behaviours never do. Draws come from a stream
//! of their own, so that names stay the same whether faults are on or off. Nothing here changes what a request means:
//! a request that reaches the server is served as ever.

mod gate;
mod rule;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::{mpsc, oneshot};

use crate::clock::{Clock, Entropy};
use crate::server::Intent;
pub use gate::ConnectionLost;
pub(crate) use gate::{Visitor, pass};
pub use rule::{Match, Mix, RequestFault, Rule, WatchFault};

/// Tells the draws of faults from those of names.
const STREAM: u64 = 0x6661_756c_7473;

/// At which moment of a write its sender dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The write never arrives.
    BeforeWrite,
    /// The write is done, and nobody hears the answer.
    BeforeReply,
    /// The answer is through, and nothing after it.
    AfterReply,
}

/// The faults of one cluster. Off, and free of cost, until somebody asks for some.
pub struct Faults {
    on: AtomicBool,
    clock: Clock,
    entropy: Entropy,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    mix: Option<Mix>,
    kills: Vec<Kill>,
    /// Counts deaths: a connection belongs to the life of its user in which it was opened.
    epoch: u64,
    /// Connections of these users are dead if they were opened in this epoch or before.
    died: BTreeMap<String, u64>,
    webhooks_down: BTreeSet<String>,
    watches: Vec<OpenWatch>,
}

struct Kill {
    user: String,
    /// Writes that still pass.
    skip: u64,
    moment: Moment,
    told: oneshot::Sender<Intent>,
}

struct OpenWatch {
    intent: Intent,
    /// The epoch in which the connection was opened.
    born: u64,
    orders: mpsc::UnboundedSender<WatchFault>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("on", &self.is_on())
            .finish_non_exhaustive()
    }
}

impl Faults {
    pub(crate) fn new(clock: Clock, seed: u64) -> Self {
        Self {
            on: AtomicBool::new(false),
            clock,
            entropy: Entropy::seeded(seed ^ STREAM),
            state: Mutex::default(),
        }
    }

    /// Adds rules behind those that are there.
    pub fn script(&self, rules: impl IntoIterator<Item = Rule>) {
        self.lock().rules.extend(rules);
        self.on.store(true, Ordering::Relaxed);
    }

    /// From now on faults come by chance too, drawn from the cluster's seed.
    pub fn mix(&self, mix: Mix) {
        self.lock().mix = Some(mix);
        self.on.store(true, Ordering::Relaxed);
    }

    /// No faults from now on: rules, chance and planned deaths are forgotten, webhooks are up. The dead stay dead.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.rules.clear();
        state.kills.clear();
        state.webhooks_down.clear();
        state.mix = None;
        let dead = !state.died.is_empty();
        self.on.store(dead, Ordering::Relaxed);
    }

    /// Kills a client at the n-th write (from 1) that it sends from now on. At that moment the receiver gets the
    /// write, open watches of the user end, and every later request over a connection that it has fails, as the
    /// requests of a dead process do. A client made afterwards is a new life of the same user.
    pub fn kill(&self, user: &str, write: u64, moment: Moment) -> oneshot::Receiver<Intent> {
        let (told, hear) = oneshot::channel();
        self.lock().kills.push(Kill {
            user: user.to_owned(),
            skip: write.saturating_sub(1),
            moment,
            told,
        });
        self.on.store(true, Ordering::Relaxed);
        hear
    }

    /// Does something to all open watches that match, now; a delay holds up what comes next. How many there were.
    pub fn strike_watches(&self, matching: &Match, fault: WatchFault) -> usize {
        let state = self.lock();
        let struck = state.watches.iter().filter(|watch| matching.matches(&watch.intent));
        struck.filter(|watch| watch.orders.send(fault).is_ok()).count()
    }

    /// Moves the server's clock forward, or backward. Timers that run already are not moved.
    pub fn jump_clock(&self, by: SignedDuration) {
        self.clock.jump(by);
    }

    /// Lets calls to the webhook of this name fail, or not any more.
    pub fn set_webhook_down(&self, name: &str, down: bool) {
        let mut state = self.lock();
        match down {
            true => drop(state.webhooks_down.insert(name.to_owned())),
            false => drop(state.webhooks_down.remove(name)),
        }
        self.on.store(true, Ordering::Relaxed);
    }

    /// Whether the call that is about to be made to this webhook finds nobody. To be asked once for each call.
    pub fn webhook_down(&self, name: &str) -> bool {
        if !self.is_on() {
            return false;
        }
        let state = self.lock();
        let probability = state.mix.as_ref().map_or(0.0, |mix| mix.webhook_down);
        state.webhooks_down.contains(name) || (probability > 0.0 && self.entropy.chance(probability))
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The epoch of a connection that is opened now.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    fn is_dead(&self, user: &str, born: u64) -> bool {
        self.lock().died.get(user).is_some_and(|died| born <= *died)
    }

    /// Counts a write; if it is the one at which its user dies, the moment, and whom to tell.
    fn planned_death(&self, intent: &Intent) -> Option<Kill> {
        let mut state = self.lock();
        let mut due = None;
        for (i, kill) in state.kills.iter_mut().enumerate() {
            match (kill.user == intent.user, kill.skip) {
                (true, 0) if due.is_none() => due = Some(i),
                (true, skip) => kill.skip = skip.saturating_sub(1),
                (false, _) => {}
            }
        }
        due.map(|i| state.kills.remove(i))
    }

    /// Ends this life of the user and tells who waits for it.
    fn die(&self, kill: Kill, intent: Intent) {
        let mut state = self.lock();
        let epoch = state.epoch;
        state.epoch += 1;
        for watch in &state.watches {
            if watch.intent.user == kill.user && watch.born <= epoch {
                // A watch that is gone already needs no end.
                let _ = watch.orders.send(WatchFault::Cut);
            }
        }
        state.died.insert(kill.user, epoch);
        // Whoever planned the death may have stopped waiting for it.
        let _ = kill.told.send(intent);
    }

    fn of_request(&self, intent: &Intent) -> Option<RequestFault> {
        let mut state = self.lock();
        if let Some(fault) = rule::scripted_request(&mut state.rules, intent) {
            return Some(fault);
        }
        let mix = state.mix.as_ref().filter(|mix| mix.matching.matches(intent))?;
        let drawn = self.entropy.pick(&mix.requests_for(intent))?;
        Some(match drawn {
            RequestFault::Slow(max) => RequestFault::Slow(self.up_to(max)),
            RequestFault::Stale { revisions } => RequestFault::Stale {
                revisions: 1 + self.entropy.below(revisions),
            },
            other => other,
        })
    }

    fn of_event(&self, intent: &Intent) -> Option<WatchFault> {
        let mut state = self.lock();
        if let Some(fault) = rule::scripted_event(&mut state.rules, intent) {
            return Some(fault);
        }
        let mix = state.mix.as_ref().filter(|mix| mix.matching.matches(intent))?;
        Some(match self.entropy.pick(&mix.events)? {
            WatchFault::Delay(max) => WatchFault::Delay(self.up_to(max)),
            other => other,
        })
    }

    /// Registers a watch: the orders it gets, and how late its events are.
    fn open_watch(&self, intent: &Intent, born: u64) -> (mpsc::UnboundedReceiver<WatchFault>, Duration) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let mut state = self.lock();
        state.watches.retain(|watch| !watch.orders.is_closed());
        state.watches.push(OpenWatch {
            intent: intent.clone(),
            born,
            orders,
        });
        let mix = state.mix.as_ref().filter(|mix| mix.matching.matches(intent));
        let lag = mix.map_or(Duration::ZERO, |mix| self.up_to(mix.lag_max));
        (receiver, lag)
    }

    fn up_to(&self, max: Duration) -> Duration {
        let millis = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.entropy.below(millis.saturating_add(1)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every method leaves the lists whole at each step, so a panic of another thread does not spoil them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
