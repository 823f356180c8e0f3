//! The gang scheduler: binds every gang whole, inside the domains that it requires, or says why it cannot.
//!
//! ```text
//! watches ─▶ state ─▶ (stir) ─▶ queue ─▶ attempt ── placement::Solver ──▶ Bind …    ─▶ write ─▶ API
//!              ▲                            └───── statement ───────────▶ Say, Mark ─▶   │
//!              └───────────────────────── what became of it ◀────────────────────────────┘
//! ```
//!
//! [`core`] decides and does nothing else: given what was seen and the time, the same actions. [`Scheduler`] watches,
//! sends and waits. After a restart everything is derived from the API again: a bind that was under way is seen, or is
//! decided again.
//!
//! Deliberately not here: where pods fit (`grove-placement`), what Kubernetes objects mean (`grove-kubeplace`), who leads.

mod attempt;
mod blockers;
mod budgets;
pub mod core;
mod hand;
mod metrics;
mod pod;
mod preempt;
mod quality;
pub mod queue;
mod scheduler;
pub mod seen;
mod state;
pub mod statement;
mod steps;
mod tell;
mod unpin;
pub mod write;

pub use core::Policy;
pub use hand::Hand;
pub use metrics::Metrics;
pub use scheduler::{Scheduler, Settings};
