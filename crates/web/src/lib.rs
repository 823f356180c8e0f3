//! The page for people: a map of the cluster's topology with every gang on it, read-only and live.
//!
//! ```text
//! watches ─▶ seen ─▶ model::Map ─┬─▶ snapshot ─▶ /api/map, the first message of /api/events
//!                                └─▶ changes, four a second at most ─▶ the other messages
//! ui/*    ─▶ assets ─▶ /
//! ```
//!
//! [`model`] is pure: objects in, what the page shows out. [`Page`] is the shell around it. The page never writes to the
//! cluster, has no memory that a restart would miss, and shows only what the API says: it measures no load itself.
//! How it is embedded: `docs/decisions/005-page.md`.

mod assets;
mod feeds;
pub mod model;
mod page;
mod seen;

pub use page::Page;
pub use seen::{PodState, SeenNode, SeenPod};
