//! Fault campaigns: all of Grove on an embedded cluster in virtual time, thousands of short lives of it, each with faults
//! of its own.
//!
//! ```text
//! scenario  what people do ─┐                     ┌─ oracle  what must hold of any run
//! fault     what goes wrong ┴─ play  one run ─────┴─ campaign  many runs, side by side ─ shrink, table
//! ```
//!
//! A run is a [`Plot`]: scenario, seed and faults, plain data that can be printed and played again. Operator, graphs,
//! webhooks and scheduler are the product's own; only the lease is not in the loop (its tests are in `crates/grove`).
//! Time is virtual and every run has one thread, but a run is not always repeated to the letter: `kube` spreads its
//! retries by chance, and unbiased `select!`s in libraries draw their order from the system. What is judged must not
//! depend on that.

mod campaign;
mod fault;
mod oracle;
mod play;
mod process;
mod scenario;
mod shrink;
mod table;
mod trace;
mod webhooks;
mod world;

pub use campaign::{Campaign, Learned, Verdict};
pub use fault::{Answer, Dice, Fault, Moment, Points, Row, Told};
pub use oracle::{Oracle, Violation};
pub use play::{Actor, PlayError, Plot};
pub use process::Role;
pub use scenario::{Kind, Scenario, Step, all as scenarios};
pub use table::Table;
