//! The agenda, shared: whoever sees a change adds to it, workers take from it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Agenda, Backoff};

/// How a look at an object ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Settled,
    /// To be looked at again after this time, if nothing changes before.
    LookAgain(Duration),
    /// Something failed; to be tried again, later each time.
    Failed(String),
}

impl Outcome {
    /// The more urgent of two.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failed(one), Self::Failed(two)) => Self::Failed(format!("{one}; {two}")),
            (failed @ Self::Failed(_), _) | (_, failed @ Self::Failed(_)) => failed,
            (Self::LookAgain(one), Self::LookAgain(two)) => Self::LookAgain(one.min(two)),
            (again @ Self::LookAgain(_), _) | (_, again @ Self::LookAgain(_)) => again,
            (Self::Settled, Self::Settled) => Self::Settled,
        }
    }
}

/// The things to look at.
#[derive(Debug)]
pub struct Queue<K> {
    agenda: Mutex<Agenda<K>>,
    changed: Notify,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            agenda: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl<K: Clone + Ord + fmt::Debug + Send + 'static> Queue<K> {
    fn agenda(&self) -> MutexGuard<'_, Agenda<K>> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, key: K) {
        self.agenda().add(key);
        self.changed.notify_one();
    }

    pub fn add_after(&self, key: K, wait: Duration) {
        self.agenda().add_at(key, Instant::now() + wait);
        self.changed.notify_one();
    }

    /// Whether nothing is due now or being worked on.
    pub fn is_idle(&self) -> bool {
        self.agenda().is_idle()
    }

    /// How many keys of each class are due.
    pub fn depths<C: Ord>(&self, class: impl Fn(&K) -> C) -> BTreeMap<C, usize> {
        self.agenda().depths(class)
    }

    /// Works until told to stop: `look` is called for every key that is due, for at most `workers` keys at once.
    /// A look that panics counts as failed; the others go on.
    pub async fn work<F, W>(&self, workers: usize, stop: &CancellationToken, look: F)
    where
        F: Fn(K) -> W,
        W: Future<Output = Outcome> + Send + 'static,
    {
        let mut looks: JoinSet<Outcome> = JoinSet::new();
        let mut keys: HashMap<Id, K> = HashMap::new();
        loop {
            while looks.len() < workers {
                let Some(key) = self.agenda().take(Instant::now()) else {
                    break;
                };
                let task = looks.spawn(look(key.clone()));
                keys.insert(task.id(), key);
            }
            let next_at = self.agenda().next_at();
            let is_full = looks.len() >= workers;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = looks.join_next_with_id() => {
                    let (id, outcome) = match ended {
                        Ok((id, outcome)) => (id, outcome),
                        Err(error) => (error.id(), Outcome::Failed(format!("broke off: {error}"))),
                    };
                    if let Some(key) = keys.remove(&id) {
                        self.end(&key, outcome);
                    }
                }
                () = self.changed.notified(), if !is_full => {}
                () = sleep_until(next_at), if !is_full => {}
            }
        }
        // What is being written now is finished: an answer that nobody waits for is an unknown outcome.
        while looks.join_next().await.is_some() {}
    }

    fn end(&self, key: &K, outcome: Outcome) {
        let mut agenda = self.agenda();
        match outcome {
            Outcome::Settled => agenda.done(key),
            Outcome::LookAgain(wait) => {
                agenda.done(key);
                agenda.add_at(key.clone(), Instant::now() + wait);
            }
            Outcome::Failed(reason) => {
                let wait = agenda.failed(key, Backoff::OBJECT, Instant::now());
                tracing::warn!(?key, ?wait, reason, "will be tried again");
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_that_panics_is_tried_again_and_disturbs_nobody() {
        let queue = Arc::new(Queue::default());
        let stop = CancellationToken::new();
        let looks = Arc::new(AtomicUsize::new(0));
        queue.add("bad");
        queue.add("good");
        let (counted, stopped) = (looks.clone(), stop.clone());
        let look = move |key: &'static str| {
            let (looks, stop) = (counted.clone(), stopped.clone());
            async move {
                if key == "bad" && looks.fetch_add(1, Ordering::Relaxed) == 0 {
                    panic!("on purpose");
                }
                if key == "bad" {
                    stop.cancel();
                }
                Outcome::Settled
            }
        };
        queue.work(4, &stop, look).await;
        assert_eq!(looks.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn looking_again_takes_its_time() {
        let queue = Arc::new(Queue::default());
        let stop = CancellationToken::new();
        let begin = Instant::now();
        queue.add(());
        let stopped = stop.clone();
        let look = move |()| {
            let stop = stopped.clone();
            async move {
                if begin.elapsed() >= Duration::from_secs(3600) {
                    stop.cancel();
                }
                Outcome::LookAgain(Duration::from_secs(3600))
            }
        };
        queue.work(1, &stop, look).await;
        assert_eq!(begin.elapsed(), Duration::from_secs(3600));
    }

    #[test]
    fn the_more_urgent_outcome_wins() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!(
            Outcome::LookAgain(long).and(Outcome::LookAgain(short)),
            Outcome::LookAgain(short)
        );
        assert_eq!(Outcome::Settled.and(Outcome::LookAgain(long)), Outcome::LookAgain(long));
        let failed = Outcome::Failed("a".into());
        assert_eq!(failed.clone().and(Outcome::LookAgain(long)), failed);
        assert_eq!(failed.and(Outcome::Failed("b".into())), Outcome::Failed("a; b".into()));
    }
}
