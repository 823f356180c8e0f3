//! The thread that keeps what is written.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::{oneshot, watch};

use super::format::{self, Database};
use super::{DataError, Place};
use crate::clock::Clock;
use crate::store::{Journal, Kept, Note, Store, Stored};

/// At most so many notes in one commit: who waits for the first of them shall not wait for long.
const NOTES_MAX: usize = 4096;

/// Keeps a store's writes until it is dropped; then everything that was written is kept.
#[derive(Debug)]
pub(crate) struct Keeper {
    notes: mpsc::Sender<Note>,
    thread: Option<JoinHandle<()>>,
    /// Nobody else uses the directory meanwhile.
    _place: Place,
}

impl Keeper {
    /// Keeps what is written from now on, in the database that `open` makes of the place and of what is stored already.
    /// `failed` hears why nothing can be kept any more.
    pub(crate) fn start(
        store: &Arc<Store>,
        clock: Clock,
        place: Place,
        open: impl FnOnce(&Place, u64, Vec<Stored>) -> Result<Database, DataError>,
        failed: impl FnOnce(&str) + Send + 'static,
    ) -> Result<Self, DataError> {
        let (notes, receiver) = mpsc::channel();
        let (kept, progress) = watch::channel(Kept::UpTo(0));
        let journal = Journal {
            notes: notes.clone(),
            kept: progress,
            clock,
        };
        let (revision, objects) = store.keep(journal);
        let database = open(&place, revision, objects)?;
        kept.send_replace(Kept::UpTo(revision));
        let store = Arc::downgrade(store);
        let work = move || {
            if let Err(error) = run(&database, &receiver, &store, &kept) {
                let why = error.to_string();
                kept.send_replace(Kept::Failed(why.as_str().into()));
                failed(&why);
            }
        };
        let thread = thread::Builder::new().name("keeper".to_owned()).spawn(work);
        let thread = thread.map_err(|source| super::failed(&place.path, source))?;
        Ok(Self {
            notes,
            thread: Some(thread),
            _place: place,
        })
    }

    /// Keeps a fact about the cluster; the answer comes when it is kept.
    pub(crate) fn fact(&self, name: &str, value: &[u8]) -> oneshot::Receiver<()> {
        let (kept, answer) = oneshot::channel();
        let (name, value) = (name.to_owned(), value.to_owned());
        // A thread that is gone drops the sender, and that is the answer.
        let _ = self.notes.send(Note::Fact { name, value, kept });
        answer
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.notes.send(Note::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Commits what was noted, again and again, until nothing follows.
fn run(
    database: &Database,
    notes: &mpsc::Receiver<Note>,
    store: &Weak<Store>,
    kept: &watch::Sender<Kept>,
) -> Result<(), redb::Error> {
    while let Ok(first) = notes.recv() {
        let mut batch = vec![first];
        batch.extend(notes.try_iter().take(NOTES_MAX));
        format::commit(database, &batch)?;
        if settle(batch, store, kept) {
            break;
        }
    }
    Ok(())
}

/// Tells everybody who waits that these notes are kept. Whether nothing follows them.
fn settle(batch: Vec<Note>, store: &Weak<Store>, kept: &watch::Sender<Kept>) -> bool {
    let (mut newest, mut changed, mut is_over) = (None, BTreeSet::new(), false);
    for note in batch {
        match note {
            Note::Write { resource, revision, .. } => {
                newest = Some(revision);
                changed.insert(resource);
            }
            Note::Fact { kept, .. } => drop(kept.send(())),
            Note::End => is_over = true,
        }
    }
    if let Some(revision) = newest {
        if let Some(store) = store.upgrade() {
            store.show(revision, &changed);
        }
        kept.send_replace(Kept::UpTo(revision));
    }
    is_over
}
