//! The roles and bindings that every cluster has from its first moment on, as far as people touch them.

use serde_json::{Value, json};

use super::{GROUP, MASTERS};

/// Groups, resources and verbs of one rule.
type Row = (
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

const CORE: &[&str] = &[""];
const EVENTS: &[&str] = &["", "events.k8s.io"];
const AUTHENTICATION: &[&str] = &["authentication.k8s.io"];
const AUTHORIZATION: &[&str] = &["authorization.k8s.io"];
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const BOTH: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const CREATE: &[&str] = &["create"];

/// Who joins the rules of roles, and so gives away what it does not have.
const AGGREGATOR: &str = "system:controller:clusterrole-aggregation-controller";

const ADMIN: &[Row] = &[
    (AUTHORIZATION, &["localsubjectaccessreviews"], CREATE),
    (&[GROUP], &["rolebindings", "roles"], BOTH),
];

const EDIT: &[Row] = &[
    (
        CORE,
        &[
            "pods/attach",
            "pods/exec",
            "pods/portforward",
            "pods/proxy",
            "secrets",
            "services/proxy",
        ],
        READ,
    ),
    (CORE, &["serviceaccounts"], &["impersonate"]),
    (
        CORE,
        &["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"],
        WRITE,
    ),
    (CORE, &["pods/eviction"], CREATE),
    (
        CORE,
        &[
            "configmaps",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "secrets",
            "serviceaccounts",
            "services",
            "services/proxy",
        ],
        WRITE,
    ),
    (CORE, &["serviceaccounts/token"], CREATE),
    (EVENTS, &["events"], WRITE),
    (
        &["apps"],
        &[
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "replicasets",
            "replicasets/scale",
            "statefulsets",
            "statefulsets/scale",
        ],
        WRITE,
    ),
    (&["autoscaling"], &["horizontalpodautoscalers"], WRITE),
    (&["batch"], &["cronjobs", "jobs"], WRITE),
    (
        &["extensions"],
        &[
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "ingresses",
            "networkpolicies",
            "replicasets",
            "replicasets/scale",
            "replicationcontrollers/scale",
        ],
        WRITE,
    ),
    (&["policy"], &["poddisruptionbudgets"], WRITE),
    (&["networking.k8s.io"], &["ingresses", "networkpolicies"], WRITE),
    (&["coordination.k8s.io"], &["leases"], BOTH),
    (
        &["resource.k8s.io"],
        &["resourceclaims", "resourceclaimtemplates"],
        WRITE,
    ),
];

const VIEW: &[Row] = &[
    (
        CORE,
        &[
            "configmaps",
            "endpoints",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
            "services/status",
        ],
        READ,
    ),
    (
        CORE,
        &[
            "bindings",
            "limitranges",
            "namespaces/status",
            "pods/log",
            "pods/status",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
        ],
        READ,
    ),
    (CORE, &["namespaces"], READ),
    (EVENTS, &["events"], READ),
    (&["discovery.k8s.io"], &["endpointslices"], READ),
    (
        &["apps"],
        &[
            "controllerrevisions",
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ],
        READ,
    ),
    (
        &["autoscaling"],
        &["horizontalpodautoscalers", "horizontalpodautoscalers/status"],
        READ,
    ),
    (
        &["batch"],
        &["cronjobs", "cronjobs/status", "jobs", "jobs/status"],
        READ,
    ),
    (
        &["extensions"],
        &[
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "ingresses",
            "ingresses/status",
            "networkpolicies",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "replicationcontrollers/scale",
        ],
        READ,
    ),
    (
        &["policy"],
        &["poddisruptionbudgets", "poddisruptionbudgets/status"],
        READ,
    ),
    (
        &["networking.k8s.io"],
        &["ingresses", "ingresses/status", "networkpolicies"],
        READ,
    ),
    (
        &["resource.k8s.io"],
        &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"],
        READ,
    ),
];

const DISCOVERY: &[&str] = &[
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];
const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// What there is, each with the plural name of its kind.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let delegator: &[Row] = &[
        (AUTHENTICATION, &["tokenreviews"], CREATE),
        (AUTHORIZATION, &["subjectaccessreviews"], CREATE),
    ];
    let basic: &[Row] = &[
        (
            AUTHORIZATION,
            &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            CREATE,
        ),
        (AUTHENTICATION, &["selfsubjectreviews"], CREATE),
    ];
    let aggregator: &[Row] = &[(
        &[GROUP],
        &["clusterroles"],
        &["escalate", "get", "list", "patch", "update", "watch"],
    )];
    let mut objects = vec![
        role("cluster-admin", None, everything),
        aggregate("admin", None),
        aggregate("edit", Some("admin")),
        aggregate("view", Some("edit")),
        role("system:aggregate-to-admin", Some("admin"), rules(ADMIN)),
        role("system:aggregate-to-edit", Some("edit"), rules(EDIT)),
        role("system:aggregate-to-view", Some("view"), rules(VIEW)),
        role("system:auth-delegator", None, rules(delegator)),
        role("system:basic-user", None, rules(basic)),
        role("system:discovery", None, paths(DISCOVERY)),
        role("system:public-info-viewer", None, paths(PUBLIC)),
    ];
    let (known, unknown) = ("system:authenticated", "system:unauthenticated");
    for (role, groups) in [
        ("cluster-admin", &[MASTERS][..]),
        ("system:basic-user", &[known]),
        ("system:discovery", &[known]),
        ("system:public-info-viewer", &[known, unknown]),
    ] {
        objects.push(binding(role, groups));
    }
    objects.push(role(AGGREGATOR, None, rules(aggregator)));
    let account = json!({"kind": "ServiceAccount", "name": "clusterrole-aggregation-controller",
                         "namespace": "kube-system"});
    objects.push(binding_to(AGGREGATOR, json!([account])));
    objects
}

fn rules(rows: &[Row]) -> Value {
    let rules = rows
        .iter()
        .map(|(groups, resources, verbs)| json!({"apiGroups": groups, "resources": resources, "verbs": verbs}));
    rules.collect()
}

fn paths(paths: &[&str]) -> Value {
    json!([{"nonResourceURLs": paths, "verbs": ["get"]}])
}

fn metadata(name: &str, part_of: Option<&str>) -> Value {
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    if let Some(whole) = part_of {
        labels[label(whole)] = json!("true");
    }
    json!({"name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

/// Who has it is part of a role.
fn label(role: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{role}")
}

fn role(name: &str, part_of: Option<&str>, rules: Value) -> (&'static str, Value) {
    (
        "clusterroles",
        json!({"metadata": metadata(name, part_of), "rules": rules}),
    )
}

fn aggregate(name: &str, part_of: Option<&str>) -> (&'static str, Value) {
    let selector = json!({"matchLabels": {label(name): "true"}});
    let rule = json!({"clusterRoleSelectors": [selector]});
    let role = json!({"metadata": metadata(name, part_of), "aggregationRule": rule, "rules": null});
    ("clusterroles", role)
}

fn binding(role: &str, groups: &[&str]) -> (&'static str, Value) {
    let subject = |group: &&str| json!({"apiGroup": GROUP, "kind": "Group", "name": group});
    binding_to(role, groups.iter().map(subject).collect())
}

fn binding_to(role: &str, subjects: Value) -> (&'static str, Value) {
    let reference = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": role});
    let binding = json!({"metadata": metadata(role, None), "roleRef": reference, "subjects": subjects});
    ("clusterrolebindings", binding)
}
