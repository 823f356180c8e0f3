//! What every controller stands on: watches that fill ordered stores, and one queue of things to look at.
//!
//! ```text
//! watch ─▶ Feed ─▶ Store ─▶ (what changed) ─▶ Queue ─▶ workers
//!                    ▲                                    │
//!                    └── what the API server answered ◀───┘
//! ```
//!
//! A store also takes the answers to our own writes, so that the next look at an object sees them without waiting for
//! the watch. Everything is ordered and nothing draws random numbers: with a given API server a run can be repeated.
//! Why not the controller that comes with the client library: `docs/decisions/004-controller-runtime.md`.

mod agenda;
mod backoff;
mod feed;
mod key;
mod looks;
mod notice;
mod queue;
mod store;
pub mod trace;
mod write;

pub use agenda::Agenda;
pub use backoff::Backoff;
pub use feed::{Arrival, Feed, Trusted, Unreadable, all_synced};
pub use key::ObjectKey;
pub use looks::Looks;
pub use notice::{Notice, announce, publish, publish_until};
pub use queue::{Outcome, Queue};
pub use store::{Change, Shelf, Stamp, Store};
pub use write::{WriteError, outcome};
