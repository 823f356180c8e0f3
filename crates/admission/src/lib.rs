//! Admission: what the API server asks before it stores Grove's objects, and everything that lets it ask.
//!
//! ```text
//! API server ──TLS──▶ server ─▶ webhooks ─▶ rules of grove-workload, grove-topology, grove-dynamo
//!                       ▲           └─▶ lookup: live reads
//!       certificates ───┘ serving certificate, renewed and swapped while it serves
//!            └─▶ registration: which webhooks there are, where, and whose certificate to trust
//! ```
//!
//! The rules themselves are pure and live in the crates that own their subjects; here they are given what they need to
//! know. Every replica of the operator serves, leader or not; which of them is asked is told by whoever may register
//! ([`registration::Turn`]). Nothing here remembers anything between two questions.

pub mod certificates;
pub mod conversion;
mod lookup;
mod metrics;
mod patch;
pub mod registration;
pub mod review;
mod run;
pub mod server;
mod steps;
mod webhooks;

pub use lookup::Lookup;
pub use metrics::Metrics;
pub use run::{Admission, Provision};
pub use server::Server;
pub use steps::Telemetry;
pub use webhooks::{Policy, Webhook, Webhooks};
