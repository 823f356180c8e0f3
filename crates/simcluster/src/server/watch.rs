//! Watch: the changes of a collection as a stream of JSON lines.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::media::View;
use super::output::{Content, Document, Reply, envelope};
use super::read::{Selection, list_options_invalid};
use super::tables::Columns;
use super::{Call, convert};
use crate::rules::metadata;
use crate::status::{ApiError, FieldError};
use crate::store::{Compacted, Event, EventKind, Subscription};

/// How long a watch stays open when the client does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(45 * 60);
/// How often a client that asked for bookmarks gets one.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long before its end a watch sends a last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

pub(crate) async fn open(call: &Call) -> Result<Reply, ApiError> {
    let selection = Selection::of(call)?;
    let start = Start::of(call)?;
    let timeout = match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => TIMEOUT_DEFAULT,
    };
    // Nobody keeps a watch open for a year, and an instant has an end.
    let end = Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3600));
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let mut pending = VecDeque::new();
    let mut columns = Columns::default();
    let begun = match start {
        Start::After(revision) => Ok(revision),
        Start::Everything { end_mark, not_before } => match call.reach(not_before).await {
            Ok(()) => {
                let (lines, revision) = everything(call, &selection, &mut columns, end_mark && bookmarks).await?;
                pending.extend(Some(lines).filter(|lines| !lines.is_empty()));
                Ok(revision)
            }
            Err(error) => Err(error),
        },
    };
    let subscribed = begun.and_then(|from| {
        let subscription = call.server.store.subscribe(&call.resource().storage, from);
        subscription.map_err(|compacted| too_old(from, compacted))
    });
    let subscription = subscribed.map_err(|error| pending.push_back(told(&error))).ok();
    let state = State {
        call: call.clone(),
        selection,
        pending,
        columns,
        subscription,
        end,
        next_bookmark: bookmarks.then(|| next_bookmark(end)).flatten(),
    };
    let stream = stream::unfold(state, |mut state| async move {
        state.next().await.map(|bytes| (bytes, state))
    });
    let mut reply = Reply::bytes(200, "application/json", Bytes::new());
    reply.content = Content::Stream(stream.boxed());
    Ok(reply)
}

/// All objects that there are, as if they were new, and perhaps the mark behind them; and the revision that this shows.
async fn everything(
    call: &Call,
    selection: &Selection,
    columns: &mut Columns,
    end_mark: bool,
) -> Result<(Bytes, u64), ApiError> {
    let page = call
        .server
        .store
        .list(&call.resource().storage, call.place.namespace.as_deref());
    let mut lines = BytesMut::new();
    let stored = page.items.into_iter().map(|(_, entry)| (entry.revision, entry.bytes));
    for document in convert::load_all(call, stored.collect()).await? {
        if let Some(document) = selected(call, selection, document) {
            put_line(EventKind::Added, &encode(call, document, columns), &mut lines);
        }
    }
    if end_mark {
        lines.put(bookmark(call, page.revision, true));
    }
    Ok((lines.freeze(), page.revision))
}

/// Where a watch begins.
enum Start {
    /// With changes after a revision.
    After(u64),
    /// With all objects there are once a revision is reached, and perhaps a mark behind them.
    Everything { end_mark: bool, not_before: u64 },
}

impl Start {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let query = &call.query;
        let initial = query.has("sendInitialEvents");
        let matching = query.text("resourceVersionMatch");
        if initial && matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let mut problems = vec![FieldError::forbidden("resourceVersionMatch", why)];
            if !matching.is_empty() {
                let allowed = ["NotOlderThan"];
                problems.push(FieldError::not_supported("resourceVersionMatch", matching, &allowed));
            }
            return Err(list_options_invalid(&problems));
        }
        if !initial && !matching.is_empty() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            let forbidden = FieldError::forbidden("resourceVersionMatch", why);
            let allowed = ["NotOlderThan"];
            let unknown =
                (matching != allowed[0]).then(|| FieldError::not_supported("resourceVersionMatch", matching, &allowed));
            let problems: Vec<FieldError> = [Some(forbidden), unknown].into_iter().flatten().collect();
            return Err(list_options_invalid(&problems));
        }
        let revision = call.revision_parameter()?;
        Ok(match revision {
            revision if query.flag("sendInitialEvents") => Start::Everything {
                end_mark: true,
                not_before: revision.unwrap_or(0),
            },
            None | Some(0) if !initial => Start::Everything {
                end_mark: false,
                not_before: 0,
            },
            None => Start::After(call.server.store.revision()),
            Some(revision) => Start::After(revision),
        })
    }
}

struct State {
    call: Call,
    selection: Selection,
    pending: VecDeque<Bytes>,
    columns: Columns,
    /// `None` once the watch has nothing more to say.
    subscription: Option<Subscription>,
    end: Instant,
    next_bookmark: Option<Instant>,
}

impl State {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.pending.pop_front() {
                return Some(bytes);
            }
            let subscription = self.subscription.as_mut()?;
            let from = subscription.cursor();
            let bookmark_at = self.next_bookmark.unwrap_or(self.end);
            tokio::select! {
                biased;
                events = subscription.next() => match events {
                    Ok(events) => self.take(&events).await,
                    Err(compacted) => self.end_with(&too_old(from, compacted)),
                },
                () = sleep_until(bookmark_at), if self.next_bookmark.is_some() => {
                    self.next_bookmark = next_bookmark(self.end);
                    // Looking once more moves the cursor past what other resources have written.
                    match subscription.ready() {
                        Ok(events) => {
                            let seen = subscription.cursor();
                            self.take(&events).await;
                            self.pending.push_back(bookmark(&self.call, seen, false));
                        }
                        Err(compacted) => self.end_with(&too_old(from, compacted)),
                    }
                }
                () = sleep_until(self.end) => return None,
            }
        }
    }

    /// Says why it has nothing more to say.
    fn end_with(&mut self, error: &ApiError) {
        self.subscription = None;
        self.pending.push_back(told(error));
    }

    async fn take(&mut self, events: &[Event]) {
        let namespace = self.call.place.namespace.as_deref();
        let mut lines = BytesMut::new();
        for event in events
            .iter()
            .filter(|event| namespace.is_none_or(|ns| event.key.namespace == ns))
        {
            match select(&self.call, &self.selection, event).await {
                Ok(Some((kind, document))) => {
                    put_line(kind, &encode(&self.call, document, &mut self.columns), &mut lines);
                }
                Ok(None) => {}
                Err(error) => {
                    self.pending
                        .extend(Some(lines.freeze()).filter(|lines| !lines.is_empty()));
                    return self.end_with(&error);
                }
            }
        }
        if !lines.is_empty() {
            self.pending.push_back(lines.freeze());
        }
    }
}

/// The bookmark after this one: a period from now, or shortly before the end, whichever comes first.
fn next_bookmark(end: Instant) -> Option<Instant> {
    let now = Instant::now();
    let last = end - BOOKMARK_BEFORE_END;
    (last > now).then(|| last.min(now + BOOKMARK_PERIOD))
}

/// What a watcher with a selector sees of a change: objects enter, change within, and leave its selection.
async fn select(call: &Call, selection: &Selection, event: &Event) -> Result<Option<(EventKind, Document)>, ApiError> {
    // What is gone was stored before, in the version of that time.
    let previous = event
        .previous
        .as_ref()
        .map(|entry| (entry.revision, entry.bytes.clone()));
    let written = match (event.kind, &previous) {
        (EventKind::Deleted, Some((revision, _))) => *revision,
        _ => event.revision,
    };
    let object = (written, event.object.clone());
    let stored: Vec<_> = previous
        .filter(|_| !selection.is_empty())
        .into_iter()
        .chain([object])
        .collect();
    let mut loaded = convert::load_all(call, stored).await?;
    let Some(object) = loaded.pop() else { return Ok(None) };
    if selection.is_empty() {
        return Ok(Some((event.kind, object)));
    }
    let (object, previous) = (object.into_value(), loaded.pop().map(Document::into_value));
    Ok(selected_change(call, selection, event, object, previous))
}

fn selected_change(
    call: &Call,
    selection: &Selection,
    event: &Event,
    object: Value,
    previous: Option<Value>,
) -> Option<(EventKind, Document)> {
    let matches = |object: &Value| selection.matches(&call.selectable_form(object));
    let before = previous.as_ref().is_some_and(matches);
    let after = event.kind != EventKind::Deleted && matches(&object);
    match (before, after) {
        (false, false) => None,
        (false, true) => Some((EventKind::Added, Document::Value(object))),
        (true, true) => Some((EventKind::Modified, Document::Value(object))),
        (true, false) if event.kind == EventKind::Deleted => Some((EventKind::Deleted, Document::Value(object))),
        (true, false) => {
            // The watcher is told of the object as it knew it, at the revision of the change.
            let mut known = previous.unwrap_or_default();
            metadata::of(&mut known).insert("resourceVersion".into(), json!(event.revision.to_string()));
            Some((EventKind::Deleted, Document::Value(known)))
        }
    }
}

fn selected(call: &Call, selection: &Selection, document: Document) -> Option<Document> {
    if selection.is_empty() {
        return Some(document);
    }
    let value = document.into_value();
    let matches = selection.matches(&call.selectable_form(&value));
    matches.then_some(Document::Value(value))
}

fn encode(call: &Call, document: Document, columns: &mut Columns) -> Bytes {
    match call.accepted.view {
        View::Table(include) => columns.encode(call, document, include),
        View::Object | View::Metadata | View::AggregatedDiscovery => call.encode(document),
    }
}

fn put_line(kind: EventKind, object: &[u8], lines: &mut BytesMut) {
    let kind = match kind {
        EventKind::Added => "ADDED",
        EventKind::Modified => "MODIFIED",
        EventKind::Deleted => "DELETED",
    };
    lines.put_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    lines.put_slice(object);
    lines.put_slice(b"}\n");
}

fn bookmark(call: &Call, revision: u64, end_of_initial_events: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if end_of_initial_events {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let fields = Bytes::from(json!({"metadata": metadata}).to_string());
    let object = match call.accepted.view {
        View::Table(_) => envelope("meta.k8s.io/v1", "Table", &fields),
        View::Metadata => envelope("meta.k8s.io/v1", "PartialObjectMetadata", &fields),
        View::Object | View::AggregatedDiscovery => envelope(&call.api_version(), &call.resource().kind, &fields),
    };
    let mut line = BytesMut::new();
    line.put_slice(b"{\"type\":\"BOOKMARK\",\"object\":");
    line.put_slice(&object);
    line.put_slice(b"}\n");
    line.freeze()
}

fn too_old(from: u64, compacted: Compacted) -> ApiError {
    ApiError::expired(format!("too old resource version: {from} ({})", compacted.oldest))
}

/// An error as the last line of a watch: the answer has begun, and it was a success.
fn told(error: &ApiError) -> Bytes {
    let line = json!({"type": "ERROR", "object": error.to_status()});
    Bytes::from(format!("{line}\n"))
}
