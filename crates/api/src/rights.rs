//! What Grove's programs may do in a cluster: the least that their code needs, kind by kind. The operator's list is here,
//! the scheduler's in [`scheduler`].
//!
//! The ClusterRoles of the chart are written from these lists (`cargo xtask gen`), and `grove rbac` prints them. Tests hold
//! the programs to them: on the embedded cluster no request of any scenario goes beyond and every right is used by one,
//! and on a real API server they run with these rights and no others.

pub mod cleanup;
pub mod scheduler;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::core::ObjectMeta;

use crate::dynamo;
use crate::{GROUP, SCHEDULER_GROUP, TOPOLOGY_DOMAIN_GROUP};

/// Name of the operator's account, and of the roles that are bound to it.
pub const OPERATOR: &str = "grove-operator";
/// Name of the role that is added where graphs of Dynamo are served, and of its binding.
pub const DYNAMO: &str = "grove-operator-dynamo";

/// The webhook configurations that the operator keeps.
pub const WEBHOOK_CONFIGURATIONS: [&str; 7] = [
    "authorizer-webhook",
    "clustertopology-validating-webhook",
    "dynamographdeployment-validating-webhook",
    "podcliqueset-defaulting-webhook",
    "podcliqueset-validating-webhook",
    "replicas-validating-webhook",
    "topologydomain-validating-webhook",
];

/// The definitions that the operator tells where to convert.
pub const DYNAMO_DEFINITIONS: [&str; 2] = [
    "dynamographdeployments.nvidia.com",
    "dynamographdeploymentscalingadapters.nvidia.com",
];

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

const SEE: &[&str] = &["get", "list", "watch"];
/// What the operator makes it also mends and removes.
const OWN: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
/// What it makes and never changes but for labels that somebody took away, or by a patch of one field.
const OWN_BY_PATCH: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// What is somebody else's and gets a finalizer.
const HOLD: &[&str] = &["get", "list", "watch", "patch"];

/// What is only followed.
const FOLLOW: &[&str] = &["list", "watch"];

/// Group, resources, verbs.
type Right = (&'static str, &'static [&'static str], &'static [&'static str]);

const CLUSTER_WIDE: &[Right] = &[
    // What users and admins write.
    (GROUP, &["podcliquesets"], HOLD),
    (GROUP, &["clustertopologies"], OWN_BY_PATCH),
    (GROUP, &["clustertopologybindings"], SEE),
    (TOPOLOGY_DOMAIN_GROUP, &["topologydomains"], HOLD),
    ("resource.k8s.io", &["resourceclaimtemplates"], &["get"]),
    // What becomes of it.
    (GROUP, &["podcliques", "podcliquescalinggroups"], OWN),
    (SCHEDULER_GROUP, &["podgangs"], OWN),
    ("", &["pods"], OWN_BY_PATCH),
    ("", &["services"], OWN),
    ("autoscaling", &["horizontalpodautoscalers"], OWN),
    ("apps", &["controllerrevisions"], OWN_BY_PATCH),
    ("resource.k8s.io", &["resourceclaims"], OWN),
    // Roles by which waiting pods see the cliques that they wait for; nobody can give away what he has not.
    (RBAC, &["roles", "rolebindings"], OWN),
    ("resource.nvidia.com", &["computedomains"], OWN),
    // Where it goes, when the operator places gangs itself (profile default-scheduler).
    ("", &["nodes", "persistentvolumes", "persistentvolumeclaims"], FOLLOW),
    ("topology.node.k8s.io", &["noderesourcetopologies"], FOLLOW),
    ("scheduling.k8s.io", &["priorityclasses"], FOLLOW),
    ("policy", &["poddisruptionbudgets"], FOLLOW),
    ("", &["pods/eviction"], &["create"]),
    // What is told of it.
    ("", &["pods/status"], &["patch"]),
    (
        GROUP,
        &[
            "podcliquesets/status",
            "podcliques/status",
            "podcliquescalinggroups/status",
            "clustertopologies/status",
        ],
        &["patch"],
    ),
    (SCHEDULER_GROUP, &["podgangs/status"], &["patch"]),
    (TOPOLOGY_DOMAIN_GROUP, &["topologydomains/status"], &["patch"]),
    ("events.k8s.io", &["events"], &["create"]),
    // An owner that waits for what it owns may only be named by those who may hold it.
    (
        GROUP,
        &[
            "podcliquesets/finalizers",
            "podcliques/finalizers",
            "podcliquescalinggroups/finalizers",
        ],
        &["update"],
    ),
    // Other schedulers, and whether their kinds are there at all.
    ("apiextensions.k8s.io", &["customresourcedefinitions"], SEE),
    ("kai.scheduler", &["topologies"], OWN_BY_PATCH),
    ("kueue.x-k8s.io", &["topologies"], OWN_BY_PATCH),
    (
        "scheduling.run.ai",
        &["podgroups"],
        &["list", "watch", "create", "patch"],
    ),
    // Who is asked before our kinds are stored.
    (
        ADMISSION,
        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        &["list", "watch", "create"],
    ),
];

/// What is needed besides where graphs of Dynamo are served.
const DYNAMO_WIDE: &[Right] = &[
    // What users write; planners of graphs are given the rest.
    (
        dynamo::GROUP,
        &["dynamographdeployments"],
        &["get", "list", "watch", "update", "patch"],
    ),
    // What becomes of it.
    (GROUP, &["podcliquesets"], &["create", "delete"]),
    (GROUP, &["podcliques/scale", "podcliquescalinggroups/scale"], &["patch"]),
    ("", &["serviceaccounts"], OWN_BY_PATCH),
    (dynamo::GROUP, &[dynamo::ADAPTERS], OWN_BY_PATCH),
    // What pods of graphs are given: nobody can give away what he has not.
    ("", &["endpoints"], SEE),
    ("discovery.k8s.io", &["endpointslices"], SEE),
    (
        dynamo::GROUP,
        &["dynamoworkermetadatas"],
        &["create", "get", "list", "watch", "update", "patch", "delete"],
    ),
    (
        dynamo::GROUP,
        &["dynamographdeploymentscalingadapters/scale"],
        &["get", "update", "patch"],
    ),
    // What is told of it.
    (
        dynamo::GROUP,
        &[
            "dynamographdeployments/status",
            "dynamographdeploymentscalingadapters/status",
        ],
        &["patch"],
    ),
    (dynamo::GROUP, &["dynamographdeployments/finalizers"], &["update"]),
];

fn rule((group, resources, verbs): Right, names: &[&str]) -> PolicyRule {
    let owned = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    PolicyRule {
        api_groups: Some(owned(&[group])),
        resources: Some(owned(resources)),
        resource_names: Some(owned(names)).filter(|names| !names.is_empty()),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// What the operator may do in the whole cluster.
pub fn cluster_role() -> ClusterRole {
    let mut rules: Vec<PolicyRule> = CLUSTER_WIDE.iter().map(|right| rule(*right, &[])).collect();
    let configurations: [Right; 2] = [
        (ADMISSION, &["mutatingwebhookconfigurations"], &["patch"]),
        // One that is switched off is removed.
        (ADMISSION, &["validatingwebhookconfigurations"], &["patch", "delete"]),
    ];
    rules.extend(configurations.map(|right| rule(right, &WEBHOOK_CONFIGURATIONS)));
    ClusterRole {
        metadata: named(OPERATOR, None),
        rules: Some(rules),
        aggregation_rule: None,
    }
}

/// What the operator may do besides where graphs of Dynamo are served.
pub fn dynamo_cluster_role() -> ClusterRole {
    let mut rules: Vec<PolicyRule> = DYNAMO_WIDE.iter().map(|right| rule(*right, &[])).collect();
    // Who converts graphs is written into the definition of their kind.
    let definition: Right = ("apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"]);
    rules.push(rule(definition, &DYNAMO_DEFINITIONS));
    ClusterRole {
        metadata: ObjectMeta {
            name: Some(DYNAMO.to_owned()),
            ..ObjectMeta::default()
        },
        rules: Some(rules),
        aggregation_rule: None,
    }
}

/// The same, bound to the operator's account.
pub fn dynamo_binding(namespace: &str) -> ClusterRoleBinding {
    let (mut binding, _) = bindings(namespace);
    binding.metadata.name = Some(DYNAMO.to_owned());
    binding.role_ref.name = DYNAMO.to_owned();
    binding
}

/// Where the operator lives, and what it keeps there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home<'a> {
    pub namespace: &'a str,
    /// The Secret of its certificates.
    pub secret: &'a str,
    /// The Lease of its leader.
    pub lease: &'a str,
}

/// What the operator may do at home. One object of a kind can be allowed by name, to create it cannot.
pub fn role(home: &Home<'_>) -> Role {
    let kept = &["list", "watch", "update"];
    let mut rules = vec![
        rule(("", &["secrets"], kept), &[home.secret]),
        rule(("", &["secrets"], &["create"]), &[]),
    ];
    rules.extend(election(home.lease));
    Role {
        metadata: named(OPERATOR, Some(home.namespace)),
        rules: Some(rules),
    }
}

/// What replicas need to elect a leader.
fn election(lease: &str) -> [PolicyRule; 2] {
    let (group, leases): (_, &'static [&str]) = ("coordination.k8s.io", &["leases"]);
    [
        rule((group, leases, &["get", "list", "watch", "update"]), &[lease]),
        rule((group, leases, &["create"]), &[]),
    ]
}

/// The operator's account, in the namespace that it lives in.
pub fn service_account(namespace: &str) -> ServiceAccount {
    account(OPERATOR, namespace)
}

fn account(name: &str, namespace: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: named(name, Some(namespace)),
        ..ServiceAccount::default()
    }
}

/// Both roles, bound to the operator's account.
pub fn bindings(namespace: &str) -> (ClusterRoleBinding, RoleBinding) {
    bound(OPERATOR, namespace)
}

/// The roles of a name, bound to the account of that name.
fn bound(name: &str, namespace: &str) -> (ClusterRoleBinding, RoleBinding) {
    let reference = |kind: &str| RoleRef {
        api_group: Some(RBAC.to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    let account = Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Subject::default()
    };
    let cluster_wide = ClusterRoleBinding {
        metadata: named(name, None),
        role_ref: reference("ClusterRole"),
        subjects: Some(vec![account.clone()]),
    };
    let at_home = RoleBinding {
        metadata: named(name, Some(namespace)),
        role_ref: reference("Role"),
        subjects: Some(vec![account]),
    };
    (cluster_wide, at_home)
}

fn named(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ObjectMeta::default()
    }
}

/// Whether these rules allow a verb on a resource (`pods`, `pods/status`) of a group; `name` is empty where no single
/// object is meant.
pub fn allows(rules: &[PolicyRule], (group, resource): (&str, &str), verb: &str, name: &str) -> bool {
    let has = |words: &Option<Vec<String>>, word: &str| words.iter().flatten().any(|known| known == word);
    rules.iter().any(|rule| {
        has(&rule.api_groups, group)
            && has(&rule.resources, resource)
            && rule.verbs.iter().any(|known| known == verb)
            && (rule.resource_names.is_none() || has(&rule.resource_names, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Home<'static> = Home {
        namespace: "ns",
        secret: "certificates",
        lease: "leader",
    };

    fn of_operator() -> Vec<PolicyRule> {
        let mut rules = cluster_role().rules.unwrap_or_default();
        rules.extend(dynamo_cluster_role().rules.unwrap_or_default());
        rules.extend(role(&HOME).rules.unwrap_or_default());
        rules
    }

    fn of_scheduler() -> Vec<PolicyRule> {
        let mut rules = scheduler::cluster_role().rules.unwrap_or_default();
        rules.extend(scheduler::role("ns").rules.unwrap_or_default());
        rules
    }

    fn judge(rules: &[PolicyRule]) {
        let mut seen = std::collections::BTreeSet::new();
        for rule in rules {
            let groups = rule.api_groups.iter().flatten();
            for (group, resource) in
                groups.flat_map(|group| rule.resources.iter().flatten().map(move |one| (group, one)))
            {
                for verb in &rule.verbs {
                    assert!(
                        seen.insert((group, resource, verb)),
                        "{verb} {resource}.{group} is granted twice"
                    );
                    assert!(
                        [group, resource, verb].iter().all(|word| !word.contains('*')),
                        "{rule:?}"
                    );
                    assert!(
                        !matches!(verb.as_str(), "escalate" | "bind" | "impersonate"),
                        "{rule:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn nothing_is_granted_by_a_wildcard_or_twice_and_no_right_makes_more_rights() {
        judge(&of_operator());
        judge(&of_scheduler());
    }

    // shows: DGD-32
    #[test]
    fn graphs_need_no_right_to_topologies_but_reading_them() {
        let topologies = (GROUP, "clustertopologies");
        assert!(allows(
            &cluster_role().rules.unwrap_or_default(),
            topologies,
            "get",
            "t"
        ));
        let added = dynamo_cluster_role().rules.unwrap_or_default();
        let about = added.iter().flat_map(|rule| rule.resources.iter().flatten());
        let about: Vec<&String> = about.filter(|resource| resource.contains("topolog")).collect();
        assert!(about.is_empty(), "{about:?}");
    }

    #[test]
    fn what_is_allowed_by_name_is_allowed_for_that_name_only() {
        let rules = of_operator();
        assert!(allows(&rules, ("", "secrets"), "watch", "certificates"));
        assert!(!allows(&rules, ("", "secrets"), "watch", "somebody-elses"));
        let leases = ("coordination.k8s.io", "leases");
        assert!(allows(&of_scheduler(), leases, "update", scheduler::LEASE));
        assert!(!allows(&of_scheduler(), leases, "update", "leader"));
        assert!(!allows(
            &cluster_role().rules.unwrap_or_default(),
            ("", "secrets"),
            "watch",
            "certificates"
        ));
        assert!(!allows(&rules, ("", "nodes"), "update", "n1"));
    }
}
