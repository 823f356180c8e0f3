//! How components are reached, and what their pods may do: Services, accounts and roles.

use std::collections::BTreeMap;

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::{ADAPTERS, Component, ComponentType, GROUP, words};
use k8s_openapi::api::core::v1::{Service, ServiceAccount, ServicePort, ServiceSpec};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{Surroundings, lowered, owned, pod};

const RBAC: &str = "rbac.authorization.k8s.io";
const SEE: &[&str] = &["get", "list", "watch"];
const KEEP: &[&str] = &["create", "get", "list", "watch", "update", "patch", "delete"];

/// What a role allows: group, resources, verbs.
type Right = (&'static str, &'static [&'static str], &'static [&'static str]);

/// What every component may do: find the others, and say what it is.
const DISCOVERY: &[Right] = &[
    ("", &["pods", "endpoints"], SEE),
    ("discovery.k8s.io", &["endpointslices"], SEE),
    (GROUP, &["dynamoworkermetadatas"], KEEP),
];
/// What a planner may do besides: change how many there are.
const PLANNING: &[Right] = &[
    (
        GROUP,
        &["dynamographdeployments"],
        &["get", "list", "watch", "update", "patch"],
    ),
    (GROUP, &[ADAPTERS], SEE),
    (
        GROUP,
        &["dynamographdeploymentscalingadapters/scale"],
        &["get", "update", "patch"],
    ),
];

#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) accounts: Vec<ServiceAccount>,
    pub(super) roles: Vec<Role>,
    pub(super) role_bindings: Vec<RoleBinding>,
}

fn discovery(graph: &DynamoGraphDeployment) -> String {
    format!("{}-k8s-service-discovery", graph.name_any())
}

fn planner(graph: &DynamoGraphDeployment) -> String {
    format!("{}-planner", graph.name_any())
}

/// The account that a component's pods run as, where nobody names another; none where the namespace's own will do.
pub(super) fn account_of(
    graph: &DynamoGraphDeployment,
    component: &Component,
    around: &Surroundings,
) -> Option<String> {
    match component.type_ {
        Some(ComponentType::Planner) => Some(planner(graph)),
        _ => around.has_discovery().then(|| discovery(graph)),
    }
}

pub(super) fn of(graph: &DynamoGraphDeployment, around: &Surroundings) -> Access {
    let mut access = Access::default();
    let mut all: Vec<Right> = Vec::new();
    if around.has_discovery() {
        access.add(graph, discovery(graph), DISCOVERY);
        all.extend(DISCOVERY);
    }
    let is_planner = |component: &Component| component.type_ == Some(ComponentType::Planner);
    if graph.spec.components.iter().any(is_planner) {
        all.extend(PLANNING);
        access.add(graph, planner(graph), &all);
    }
    access
}

impl Access {
    fn add(&mut self, graph: &DynamoGraphDeployment, name: String, rights: &[Right]) {
        let metadata = owned(graph, name.clone(), labels(graph));
        self.accounts.push(ServiceAccount {
            metadata: metadata.clone(),
            ..ServiceAccount::default()
        });
        self.roles.push(Role {
            metadata: metadata.clone(),
            rules: Some(rights.iter().map(rule).collect()),
        });
        self.role_bindings.push(RoleBinding {
            metadata,
            role_ref: RoleRef {
                api_group: Some(RBAC.to_owned()),
                kind: "Role".to_owned(),
                name: name.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name,
                namespace: graph.namespace(),
                ..Subject::default()
            }]),
        });
    }
}

fn rule((group, resources, verbs): &Right) -> PolicyRule {
    let owned = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    PolicyRule {
        api_groups: Some(owned(&[group])),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn labels(graph: &DynamoGraphDeployment) -> BTreeMap<String, String> {
    let mut labels = graph.spec.labels.clone();
    labels.insert(words::GRAPH.to_owned(), graph.name_any());
    labels
}

/// A Service for each component: clients come to the frontend, components find each other.
pub(super) fn services(graph: &DynamoGraphDeployment, around: &Surroundings) -> Vec<Service> {
    let is_reached = |component: &&Component| {
        let is_frontend = component.type_ == Some(ComponentType::Frontend);
        is_frontend || around.has_discovery()
    };
    let reached = graph.spec.components.iter().filter(is_reached);
    reached.map(|component| service(graph, component)).collect()
}

fn service(graph: &DynamoGraphDeployment, component: &Component) -> Service {
    let (port, number) = match component.type_ {
        Some(ComponentType::Frontend) => ("http", pod::HTTP_PORT),
        _ => ("system", pod::SYSTEM_PORT),
    };
    let mut selector = BTreeMap::from([
        (words::COMPONENT.to_owned(), component.name.clone()),
        (words::NAMESPACE.to_owned(), pod::dynamo_namespace(graph, component)),
    ]);
    if let Some(type_) = component.type_ {
        selector.insert(words::COMPONENT_TYPE.to_owned(), type_.as_str().to_owned());
    }
    let name = format!("{}-{}", graph.name_any(), lowered(component)).replace('.', "-");
    let mut labels = labels(graph);
    labels.insert(words::COMPONENT.to_owned(), component.name.clone());
    Service {
        metadata: owned(graph, name, labels),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector),
            ports: Some(vec![ServicePort {
                name: Some(port.to_owned()),
                port: number,
                target_port: Some(IntOrString::String(port.to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
