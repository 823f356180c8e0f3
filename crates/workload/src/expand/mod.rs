//! What a PodCliqueSet becomes: every object that should exist, given what exists.
//!
//! ```text
//! PodCliqueSet ─┬─ cliques    standalone PodCliques          ┐
//!               ├─ groups     PodCliqueScalingGroups          │ per replica
//!               ├─ gangs      base and scaled PodGangs        │
//!               ├─ services   headless Service                │
//!               ├─ autoscalers  HPA of what scales itself     ┘
//!               └─ access     Role, RoleBinding of waiting pods
//! PodCliqueScalingGroup ── members   its PodCliques, per replica of the group
//! each level ── claims, compute_domains
//! ```
//!
//! What exists matters in one way only: numbers of replicas that somebody else may have set are kept. The objects here
//! are compared with what is stored by [`crate::diff`]. Pod references of gangs are [`crate::gang`]'s, topology
//! constraints are put on by whoever knows the topology.

mod access;
mod autoscalers;
pub mod claims;
mod cliques;
pub(crate) mod compute_domains;
pub mod gangs;
mod groups;
mod live;
pub mod order;
mod recycled;
mod services;

use grove_api::{ComputeDomain, PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;

pub(crate) use compute_domains::NO_GROUP;
pub use compute_domains::{has_mnnvl_group, mnnvl_group};
pub use live::{Live, TEMPLATE_REPLICAS};
pub use recycled::Recycled;

use crate::revision::Hashes;
use claims::{ClaimTemplates, Claims};

/// A set, and what must be known to expand it.
#[derive(Clone, Copy, Debug)]
pub struct Expansion<'a> {
    pub set: &'a PodCliqueSet,
    pub hashes: &'a Hashes,
    /// The scheduler profile that places the set's gangs.
    pub scheduler: &'a str,
    /// What exists.
    pub live: &'a Live<'a>,
    /// Claim templates that the set refers to and that live outside of it.
    pub claim_templates: &'a ClaimTemplates,
}

/// What a set owns for all of its replicas together.
#[derive(Clone, Debug, Default)]
pub struct SharedChildren {
    /// Both or none: only an ordered start needs them.
    pub role: Option<Role>,
    pub role_binding: Option<RoleBinding>,
    pub claims: Claims,
}

/// What a set owns for one of its replicas.
#[derive(Clone, Debug, Default)]
pub struct ReplicaChildren {
    pub cliques: Vec<PodClique>,
    pub groups: Vec<PodCliqueScalingGroup>,
    pub gangs: Vec<PodGang>,
    pub services: Vec<Service>,
    pub autoscalers: Vec<HorizontalPodAutoscaler>,
    pub compute_domains: Vec<ComputeDomain>,
}

/// Everything that one scaling group owns.
#[derive(Clone, Debug, Default)]
pub struct GroupChildren {
    pub cliques: Vec<PodClique>,
    pub claims: Claims,
}

impl<'a> Expansion<'a> {
    pub fn shared_children(&self) -> SharedChildren {
        let (role, role_binding) = self.access().unzip();
        SharedChildren {
            role,
            role_binding,
            claims: self.set_claims(),
        }
    }

    /// What should exist for one replica: nothing for one that the set does not have (any more).
    pub fn replica_children(&self, replica: i32) -> ReplicaChildren {
        if !self.replicas().contains(&replica) {
            return ReplicaChildren::default();
        }
        ReplicaChildren {
            cliques: self.standalone_cliques(replica),
            groups: self.groups(replica),
            gangs: self.gang_plans(replica).iter().map(|plan| self.gang(plan)).collect(),
            services: vec![self.service(replica)],
            autoscalers: self.autoscalers(replica),
            compute_domains: self.compute_domains(replica),
        }
    }

    /// What `group`, which is the set's, should own.
    pub fn group_children(&self, group: &PodCliqueScalingGroup) -> GroupChildren {
        GroupChildren {
            cliques: self.member_cliques(group),
            claims: self.group_claims(group),
        }
    }

    fn set_name(&self) -> String {
        self.set.name_any()
    }

    /// Indices of the replicas that the set should have.
    pub fn replicas(&self) -> std::ops::Range<i32> {
        crate::names::replicas(self.set)
    }
}

#[cfg(test)]
mod tests;
