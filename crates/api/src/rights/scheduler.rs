//! What `grove scheduler` may do in a cluster.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

use super::{FOLLOW, Right, account, bound, election, named, rule};
use crate::{GROUP, SCHEDULER_GROUP, TOPOLOGY_DOMAIN_GROUP};

/// Name of the scheduler's account, and of the roles that are bound to it.
pub const NAME: &str = "grove-scheduler";
/// The Lease of its leader.
pub const LEASE: &str = "grove-scheduler-leader-election";

const CLUSTER_WIDE: &[Right] = &[
    // What is placed, and by which topologies.
    (SCHEDULER_GROUP, &["podgangs"], FOLLOW),
    (GROUP, &["clustertopologies", "clustertopologybindings"], FOLLOW),
    (TOPOLOGY_DOMAIN_GROUP, &["topologydomains"], FOLLOW),
    // Where to, and at whose expense.
    ("", &["nodes", "persistentvolumes", "persistentvolumeclaims"], FOLLOW),
    ("topology.node.k8s.io", &["noderesourcetopologies"], FOLLOW),
    ("scheduling.k8s.io", &["priorityclasses"], FOLLOW),
    ("policy", &["poddisruptionbudgets"], FOLLOW),
    // Who is bound already is asked of the API server itself; half a gang is given back.
    ("", &["pods"], &["get", "list", "watch", "delete"]),
    ("", &["pods/binding", "pods/eviction"], &["create"]),
    // What is told of it.
    ("", &["pods/status"], &["patch"]),
    (SCHEDULER_GROUP, &["podgangs/status"], &["patch"]),
    ("events.k8s.io", &["events"], &["create"]),
];

/// What the scheduler may do in the whole cluster.
pub fn cluster_role() -> ClusterRole {
    ClusterRole {
        metadata: named(NAME, None),
        rules: Some(CLUSTER_WIDE.iter().map(|right| rule(*right, &[])).collect()),
        aggregation_rule: None,
    }
}

/// What the scheduler may do in the namespace that it runs in.
pub fn role(namespace: &str) -> Role {
    Role {
        metadata: named(NAME, Some(namespace)),
        rules: Some(election(LEASE).into()),
    }
}

/// The scheduler's account, in the namespace that it runs in.
pub fn service_account(namespace: &str) -> ServiceAccount {
    account(NAME, namespace)
}

/// Both roles, bound to the scheduler's account.
pub fn bindings(namespace: &str) -> (ClusterRoleBinding, RoleBinding) {
    bound(NAME, namespace)
}
