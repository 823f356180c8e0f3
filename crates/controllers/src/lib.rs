//! The shell of the workload operator: it watches, asks [`grove_workload`] what to do, and does it.
//!
//! ```text
//! watches ─▶ stores ─▶ affected ─▶ queue ─▶ a look at one thing ─▶ writes
//! ```
//!
//! One folder or file for each thing that is looked at: set, replica, group, clique, gang, topology. A look observes (what
//! the stores hold), decides (pure functions of other crates) and writes; it keeps nothing, so it can end anywhere and be
//! taken up by the next one, in this process or another.

mod affected;
mod backends;
mod clique;
mod compute_domain;
mod constrain;
mod events;
mod gang;
mod group;
mod key;
mod kinds;
mod merge;
mod metrics;
mod operator;
mod replica;
mod served;
mod set;
mod shell;
mod start;
mod steps;
mod topology;
pub mod wait_for;
mod write;

pub use constrain::constrain;
pub use key::Key;
pub use metrics::Metrics;
pub use operator::Operator;
pub use shell::{Settings, Telemetry};
pub use start::{StartError, settle, start};

/// How long it is until a moment; nothing for one that has passed.
fn until(now: jiff::Timestamp, at: jiff::Timestamp) -> std::time::Duration {
    std::time::Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
