//! Kubernetes objects in the terms of the placement engine.
//!
//! ```text
//! Node, NUMA cells, ClusterTopology, bound Pod, volumes ─▶ Mirror ── keeps ──▶ placement::Cluster
//! PodGang + its pods ─────────────────────────▶ Mirror::gang ────▶ GangRequest ─ placement::Solver ─▶ Plan ─▶ bindings
//! ```
//!
//! One translation for whoever places: the scheduler feeds a [`Mirror`] from its watches, `grove plan` from files. What
//! Kubernetes counts is counted as Kubernetes counts it (init containers, sidecars, overhead, host ports, cordons,
//! taints, affinity). What the engine cannot take into account is [`Unsupported`]: such a pod is named and left alone
//! rather than placed wrongly.
//!
//! Deliberately not here: watching, binding, queues, priorities, and any choice of where a pod goes.

mod apart;
mod cells;
mod eligibility;
mod gang;
mod mirror;
mod node;
mod ports;
pub mod quantity;
pub mod requests;
pub mod rooms;
mod selector;
mod topology;
mod unsupported;
mod view;
mod volumes;

pub use cells::{NodeResourceTopology, Zone, ZoneResource};
pub use gang::{Binding, GangRequest};
pub use mirror::{Holder, Holding, Mirror, PodKey};
pub use selector::matches as selects;
pub use topology::spec as topology_spec;
pub use unsupported::{NotPlaceable, Unsupported};
pub use view::{Placeable, PodView};

/// The engine's word for what is configured.
pub fn packing(configured: grove_api::config::Packing) -> grove_placement::Policy {
    match configured {
        grove_api::config::Packing::FewestHosts => grove_placement::Policy::FewestHosts,
        grove_api::config::Packing::SpareHosts => grove_placement::Policy::SpareHosts,
    }
}
