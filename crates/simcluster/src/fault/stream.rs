//! The events of one watch on their way to the client: on time, late, twice, or never.
//!
//! Order within a watch is kept, as a real server keeps it. With no fault on, chunks pass as they come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use super::{Faults, WatchFault};
use crate::server::{Intent, ResponseBody};
use crate::status::ApiError;

/// The body of a watch, open to faults.
pub(super) fn faulty(faults: Arc<Faults>, intent: &Intent, born: u64, body: ResponseBody) -> ResponseBody {
    let (orders, lag) = faults.open_watch(intent, born);
    let watch = Watch {
        faults,
        intent: intent.clone(),
        body,
        orders,
        lag,
        queue: VecDeque::new(),
        hold: Duration::ZERO,
        then: Then::GoOn,
    };
    let events = stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|bytes| (Ok(Frame::data(bytes)), watch))
    });
    StreamBody::new(events).boxed_unsync()
}

/// What comes when the queue is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    End,
    Silence,
}

struct Watch {
    faults: Arc<Faults>,
    intent: Intent,
    body: ResponseBody,
    orders: UnboundedReceiver<WatchFault>,
    /// By how much all events of this watch are late.
    lag: Duration,
    /// Lines with the time at which they are told.
    queue: VecDeque<(Instant, Bytes)>,
    /// By how much the next line is later still, by order.
    hold: Duration,
    then: Then,
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let due = self.queue.front().map(|(due, _)| *due);
            if due.is_some_and(|due| due <= Instant::now()) {
                return self.queue.pop_front().map(|(_, line)| line);
            }
            if due.is_none() && self.then == Then::End {
                return None;
            }
            tokio::select! {
                biased;
                Some(order) = self.orders.recv() => match order {
                    // Whatever is on its way is lost with the connection.
                    WatchFault::Cut | WatchFault::Drop => return None,
                    WatchFault::Delay(by) => self.hold += by,
                    WatchFault::Duplicate => {}
                    WatchFault::Gone => self.put(Instant::now(), gone(), Then::End),
                    WatchFault::Freeze => {
                        self.queue.clear();
                        self.then = Then::Silence;
                    }
                },
                frame = self.body.frame(), if self.then == Then::GoOn => match frame {
                    Some(Ok(frame)) => {
                        let chunk = frame.into_data().unwrap_or_default();
                        if !self.faults.is_on() && self.queue.is_empty() && (self.lag + self.hold).is_zero() {
                            return Some(chunk);
                        }
                        self.take(&chunk);
                    }
                    None => self.then = Then::End,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                // Frozen: nothing more will come, and the client has to notice by itself.
                else => std::future::pending().await,
            }
        }
    }

    /// Queues the lines of a chunk, each with its fault.
    fn take(&mut self, chunk: &Bytes) {
        for line in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.then != Then::GoOn {
                return;
            }
            let line = chunk.slice_ref(line);
            let last = self.queue.back().map(|(due, _)| *due);
            let due = Instant::now() + self.lag + std::mem::take(&mut self.hold);
            let due = last.map_or(due, |last| last.max(due));
            match self.fault_of(&line) {
                None => self.put(due, line, Then::GoOn),
                Some(WatchFault::Delay(by)) => self.put(due + by, line, Then::GoOn),
                Some(WatchFault::Duplicate) => {
                    self.put(due, line.clone(), Then::GoOn);
                    self.put(due, line, Then::GoOn);
                }
                Some(WatchFault::Drop) => self.then = Then::End,
                Some(WatchFault::Cut) => self.put(due, line, Then::End),
                Some(WatchFault::Gone) => self.put(due, gone(), Then::End),
                Some(WatchFault::Freeze) => self.then = Then::Silence,
            }
        }
    }

    fn put(&mut self, due: Instant, line: Bytes, then: Then) {
        self.queue.push_back((due, line));
        self.then = then;
    }

    /// Asks for the fault of one event; namespace and name are those of its object.
    fn fault_of(&self, line: &[u8]) -> Option<WatchFault> {
        if !self.faults.is_on() {
            return None;
        }
        let head: Line = serde_json::from_slice(line).unwrap_or_default();
        let intent = Intent {
            namespace: head.object.metadata.namespace,
            name: head.object.metadata.name,
            ..self.intent.clone()
        };
        self.faults.of_event(&intent)
    }
}

/// The part of an event that rules look at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    object: Object,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    namespace: String,
    name: String,
}

fn gone() -> Bytes {
    let error = ApiError::expired("The resourceVersion for the provided watch is too old.");
    let line = json!({"type": "ERROR", "object": error.to_status()});
    Bytes::from(format!("{line}\n"))
}
