//! Following the changes of one resource.
//!
//! A subscription is a cursor into the table's history, not a queue of its own: a slow reader costs no memory, and one
//! that falls behind the kept history learns so.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Compacted, Event, ResourceName, Store};

/// How many changes one look into the history copies while the lock is held.
const BATCH: usize = 256;

/// A cursor over the changes of one resource.
pub struct Subscription {
    store: Arc<Store>,
    resource: ResourceName,
    signal: watch::Receiver<u64>,
    cursor: u64,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("resource", &self.resource)
            .field("cursor", &self.cursor)
            .finish()
    }
}

impl Subscription {
    pub(super) fn new(store: Arc<Store>, resource: ResourceName, signal: watch::Receiver<u64>, cursor: u64) -> Self {
        Self {
            store,
            resource,
            signal,
            cursor,
        }
    }

    /// The changes after the cursor that are there already; empty when the reader is up to date.
    pub fn ready(&mut self) -> Result<Vec<Event>, Compacted> {
        self.signal.mark_unchanged();
        let mut inner = self.store.lock();
        let now = inner.visible();
        let mut events = inner.table(&self.resource).history.after(self.cursor, BATCH)?;
        events.truncate(events.partition_point(|event| event.revision <= now));
        // A cursor from the future stays there: such a watch is silent until the store catches up.
        self.cursor = match events.last() {
            Some(last) => last.revision,
            None => self.cursor.max(now),
        };
        Ok(events)
    }

    /// Waits for changes and returns them, in order.
    pub async fn next(&mut self) -> Result<Vec<Event>, Compacted> {
        loop {
            let events = self.ready()?;
            if !events.is_empty() {
                return Ok(events);
            }
            // The sender lives in the table, and the table lives as long as the store this subscription holds.
            let _ = self.signal.changed().await;
        }
    }

    /// The revision up to which this reader has seen everything.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }
}
