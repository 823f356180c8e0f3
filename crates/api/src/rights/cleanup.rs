//! What `grove cleanup` may do in the whole cluster: stop operator and scheduler, and take away what would need an answer
//! from them. What they keep in their own namespace it may remove by a role of the chart.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::{ADMISSION, DYNAMO_DEFINITIONS, OPERATOR, Right, SEE, WEBHOOK_CONFIGURATIONS, named, rule, scheduler};
use crate::{GROUP, TOPOLOGY_DOMAIN_GROUP};

/// Name of its account, and of the role that is bound to it.
pub const CLEANUP: &str = "grove-cleanup";

/// What a finalizer is taken from.
const TAKE_FROM: &[&str] = &["get", "list", "patch"];

const HELD: &[Right] = &[
    (
        GROUP,
        &[
            "podcliquesets",
            "podcliques",
            "podcliquescalinggroups",
            "clustertopologies",
        ],
        TAKE_FROM,
    ),
    (TOPOLOGY_DOMAIN_GROUP, &["topologydomains"], TAKE_FROM),
    ("resource.nvidia.com", &["computedomains"], TAKE_FROM),
];

pub fn cluster_role() -> ClusterRole {
    let mut rules: Vec<PolicyRule> = HELD.iter().map(|right| rule(*right, &[])).collect();
    let configurations = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    rules.push(rule((ADMISSION, configurations, &["delete"]), &WEBHOOK_CONFIGURATIONS));
    let definitions: Right = (
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["get", "patch"],
    );
    rules.push(rule(definitions, &DYNAMO_DEFINITIONS));
    let parts = [OPERATOR, scheduler::NAME];
    rules.push(rule(("apps", &["deployments"], SEE), &parts));
    rules.push(rule(("apps", &["deployments/scale"], &["patch"]), &parts));
    ClusterRole {
        metadata: named(CLEANUP, None),
        rules: Some(rules),
        aggregation_rule: None,
    }
}
