//! Whether the cluster's own tasks live: each tells how far it has come with the store's writes.
//!
//! Nothing here looks by itself. A task that ends is told of at once to who waits for it; one that hangs is noticed by
//! whoever asks for the cluster's health, since it does not catch up with what is stored.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::store::{Event, ResourceName, Store, Wanted};

/// How long a task may take to catch up before it counts as hanging; webhooks that it waits for take up to 30 seconds.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

/// A task that keeps the cluster going has ended, which none does while its cluster lives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster's task \"{task}\" has ended{why}; nothing of what it did happens any more")]
pub struct TaskEnded {
    /// Its name: `garbage`, `fleet`, …
    pub task: &'static str,
    /// Why, where that is known: a colon and the reason.
    pub why: String,
}

/// What is known about all tasks of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    progress: Mutex<Vec<Progress>>,
    /// The first task that ended.
    ended: Arc<watch::Sender<Option<TaskEnded>>>,
}

/// How far a task has come.
#[derive(Clone, Debug)]
struct Progress {
    task: &'static str,
    /// Revision of the last write that was sent to it, and of the last that it has dealt with.
    sent: Arc<AtomicU64>,
    done: watch::Receiver<u64>,
}

impl Vitals {
    /// Gives a new task the writes that it wants, and keeps an eye on it.
    pub(crate) fn follow(&self, task: &'static str, store: &Store, wanted: Wanted) -> Writes {
        let (receiver, sent) = store.tap_of(wanted);
        let (done, progress) = watch::channel(0);
        let progress = Progress {
            task,
            sent,
            done: progress,
        };
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(progress);
        Writes {
            task,
            receiver,
            taken: 0,
            done,
            ended: self.ended.clone(),
        }
    }

    /// Waits for the end of the first task that ends.
    pub(crate) fn ended(&self) -> impl Future<Output = TaskEnded> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            let first = ended
                .wait_for(Option::is_some)
                .await
                .map_or(None, |ended| ended.clone());
            match first {
                Some(ended) => ended,
                // The cluster is gone, and its tasks with it: nobody is left to wait.
                None => std::future::pending().await,
            }
        }
    }

    /// What hears that a task has ended.
    pub(crate) fn mourner(&self, task: &'static str) -> impl FnOnce(&str) + Send + use<> {
        let ended = self.ended.clone();
        move |why: &str| tell(&ended, task, format!(": {why}"))
    }

    /// Which tasks do not do their work, and why.
    pub(crate) async fn problems(&self) -> Vec<String> {
        let tasks = self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let asked = tasks.into_iter().map(Progress::problem);
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }
}

impl Progress {
    /// What is wrong with the task, if it does not catch up with what was sent to it.
    async fn problem(mut self) -> Option<String> {
        let (task, wanted) = (self.task, self.sent.load(Ordering::Relaxed));
        let ended = || Some(format!("{task} failed: it has ended"));
        if self.done.has_changed().is_err() {
            return ended();
        }
        match tokio::time::timeout(CATCH_UP_MAX, self.done.wait_for(|done| *done >= wanted)).await {
            Ok(Ok(_)) => None,
            Ok(Err(_)) => ended(),
            Err(_) => {
                let secs = CATCH_UP_MAX.as_secs();
                Some(format!("{task} failed: it has not caught up within {secs} s"))
            }
        }
    }
}

/// The store's writes, in order, for a task that follows them. Its end is the end of the task.
pub(crate) struct Writes {
    task: &'static str,
    receiver: mpsc::UnboundedReceiver<(ResourceName, Event)>,
    taken: u64,
    done: watch::Sender<u64>,
    ended: Arc<watch::Sender<Option<TaskEnded>>>,
}

impl Writes {
    /// The next write. Who asks for it has done with the one before.
    pub(crate) async fn recv(&mut self) -> Option<(ResourceName, Event)> {
        if *self.done.borrow() != self.taken {
            self.done.send_replace(self.taken);
        }
        let write = self.receiver.recv().await?;
        self.taken = write.1.revision;
        Some(write)
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        tell(&self.ended, self.task, String::new());
    }
}

/// Only the first end is told: others may follow from it.
fn tell(ended: &watch::Sender<Option<TaskEnded>>, task: &'static str, why: String) {
    ended.send_if_modified(|ended| {
        let is_first = ended.is_none();
        ended.get_or_insert(TaskEnded { task, why });
        is_first
    });
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writes")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Expect, Key};

    fn write(store: &Store, plural: &str, name: &str) {
        let maps = ResourceName::new("", plural);
        let mut object = json!({"metadata": {"name": name}});
        store
            .put(&maps, &Key::new("", name), Expect::Absent, &mut object)
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_hangs_and_one_that_ended_are_told() {
        let (store, vitals) = (Store::new(8), Vitals::default());
        let mut writes = vitals.follow("first", &store, |resource, _| resource.is("", "configmaps"));
        assert_eq!(vitals.problems().await, [""; 0]);
        write(&store, "secrets", "a");
        assert_eq!(vitals.problems().await, [""; 0], "what it does not want");
        write(&store, "configmaps", "a");
        assert_eq!(
            vitals.problems().await,
            ["first failed: it has not caught up within 60 s"]
        );
        // Taking a write is not doing the work: only who asks for the next one is done.
        writes.recv().await;
        assert_eq!(vitals.problems().await.len(), 1);
        let waits = tokio::time::timeout(Duration::from_secs(1), writes.recv()).await;
        assert!(waits.is_err());
        assert_eq!(vitals.problems().await, [""; 0]);
        let ended = vitals.ended();
        drop(writes);
        assert_eq!(ended.await.task, "first");
        assert_eq!(vitals.problems().await, ["first failed: it has ended"]);
    }
}
