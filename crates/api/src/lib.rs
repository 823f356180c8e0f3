//! The API of Grove: every custom resource with its rules, and every word that others rely on.
//!
//! ```text
//! PodCliqueSet ──owns──▶ PodCliqueScalingGroup ──owns──▶ PodClique ──owns──▶ Pod
//!      │  └─────────owns (standalone)────────────────────▶ ┘
//!      ├──owns──▶ PodGang  (what a scheduler places whole)
//!      └──names─▶ ClusterTopology | TopologyDomain | ClusterTopologyBinding
//! ```
//!
//! Types, defaults, bounds and CEL rules live beside each other and are written once: [`crds`] turns them into the
//! CustomResourceDefinitions that the API server enforces. Labels, annotations, finalizers, condition types and
//! reasons are constants in [`labels`] and [`conditions`].
//!
//! This crate holds no behaviour: no client, no async runtime, no clock.

#![allow(
    unreachable_pub,
    reason = "the schema derive declares copies of our types inside functions"
)]
#![allow(
    clippy::duplicated_attributes,
    reason = "each printer column has its type, and many are integers"
)]

pub mod compute_domain;
pub mod conditions;
pub mod config;
pub mod constraint;
pub mod crds;
pub mod duration;
pub mod dynamo;
pub mod labels;
pub mod podclique;
pub mod podcliqueset;
pub mod podgang;
pub mod rights;
pub mod scaling_group;
pub mod sharing;
pub mod status;
pub mod topology;

mod kubernetes;

/// Group of the workload kinds and of ClusterTopology.
pub const GROUP: &str = "grove.io";
/// Group of PodGang, the contract with schedulers.
pub const SCHEDULER_GROUP: &str = "scheduler.grove.io";
/// Group of TopologyDomain.
pub const TOPOLOGY_DOMAIN_GROUP: &str = "grove.run.ai";
/// The one version that every group serves.
pub const VERSION: &str = "v1alpha1";

pub use compute_domain::{ComputeDomain, ComputeDomainSpec};
pub use constraint::{Pack, TopologyConstraint};
pub use dynamo::{
    DynamoGraphDeployment, DynamoGraphDeploymentScalingAdapter, DynamoGraphDeploymentSpec, DynamoGraphDeploymentStatus,
};
pub use kubernetes::write_quantities_as_text;
pub use podclique::{PodClique, PodCliqueSpec, PodCliqueStatus};
pub use podcliqueset::{PodCliqueSet, PodCliqueSetSpec, PodCliqueSetStatus};
pub use podgang::{PodGang, PodGangSpec, PodGangStatus};
pub use scaling_group::{PodCliqueScalingGroup, PodCliqueScalingGroupSpec, PodCliqueScalingGroupStatus};
pub use topology::{
    ClusterTopology, ClusterTopologyBinding, ClusterTopologyBindingSpec, ClusterTopologySpec, TopologyDomain,
    TopologyDomainSpec,
};
