//! What is refused on create, rule by rule, in the words that a user reads.

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::Component;
use grove_dynamo::framework::Reading;
use grove_dynamo::validate::{Conditions, create, needs_topology};
use serde_json::{Value, json};

use crate::graphs::{graph, levels, with_component, with_worker};

fn messages(graph: &DynamoGraphDeployment, reading: Option<&Reading>) -> Vec<String> {
    let found = create(graph, reading, &Conditions::default());
    found.into_iter().map(|violation| violation.message).collect()
}

fn rack_and_zone() -> Reading {
    levels(&["zone", "rack"])
}

// shows: DGD-1, DGD-3
#[test]
fn constraints_are_optional_everywhere() {
    let of_graph = json!({"spec": {"topologyConstraint": {"packDomain": "zone"}}});
    let of_worker = json!({"topologyConstraint": {"packDomain": "rack"}});
    let mut both = with_worker(of_worker.clone());
    both.spec.topology_constraint = graph(of_graph.clone()).spec.topology_constraint;
    assert!(
        !needs_topology(&graph(json!({}))),
        "without a constraint no topology is read"
    );
    assert_eq!(messages(&graph(json!({})), None), Vec::<String>::new());
    for constrained in [graph(of_graph), with_worker(of_worker), both] {
        assert!(needs_topology(&constrained));
        assert_eq!(messages(&constrained, Some(&rack_and_zone())), Vec::<String>::new());
    }
}

// shows: DGD-4, DGD-5, DGD-12, DGD-13, DGD-14
#[test]
fn words_and_hierarchy_are_judged() {
    let both = |of_graph: &str, of_worker: &str| {
        let mut both = with_worker(json!({"topologyConstraint": {"packDomain": of_worker}}));
        let constraint = json!({"packDomain": of_graph});
        both.spec.topology_constraint = Some(serde_json::from_value(constraint).expect("a constraint"));
        both
    };
    let all = levels(&["region", "zone", "datacenter", "block", "rack", "host", "numa"]);
    let words = ["region", "zone", "datacenter", "block", "rack", "host", "numa"];
    for (broad, of_graph) in words.iter().enumerate() {
        for (narrow, of_worker) in words.iter().enumerate() {
            let found = messages(&both(of_graph, of_worker), Some(&all));
            let expected = format!(
                "spec.components[1].topologyConstraint.packDomain: Invalid value: \"{of_worker}\": must be equal to or \
                 narrower than the deployment-level domain \"{of_graph}\""
            );
            let expected: Vec<String> = (narrow < broad).then_some(expected).into_iter().collect();
            assert_eq!(found, expected, "{of_graph} {of_worker}");
        }
    }
    let label = "topology.kubernetes.io/rack";
    let known = "is not a topology domain; use one of region, zone, datacenter, block, rack, host, numa";
    let available = "does not exist in ClusterTopology \"grove-topology\"; available domains: [rack zone]";
    assert_eq!(
        messages(&both(label, "host"), Some(&rack_and_zone())),
        [
            format!("spec.topologyConstraint.packDomain: Invalid value: \"{label}\": {known}"),
            format!("spec.topologyConstraint.packDomain: Invalid value: \"{label}\": {available}"),
            format!("spec.components[1].topologyConstraint.packDomain: Invalid value: \"host\": {available}"),
        ]
    );
}

// shows: DGD-15
#[test]
fn a_topology_that_is_not_there_is_a_refusal() {
    let constrained =
        graph(json!({"spec": {"topologyConstraint": {"clusterTopologyName": "h100", "packDomain": "rack"}}}));
    let missing = Reading::NotFound {
        kind: "ClusterTopology".to_owned(),
        name: "h100".to_owned(),
    };
    assert_eq!(
        messages(&constrained, Some(&missing)),
        [
            "spec.topologyConstraint.clusterTopologyName: Invalid value: \"h100\": references a ClusterTopology resource \
          that was not found"
        ]
    );
    assert_eq!(
        messages(&constrained, Some(&Reading::Disabled)),
        ["spec.topologyConstraint: topology support is not enabled in the operator"]
    );
}

#[test]
fn a_name_without_a_word_says_nothing() {
    let named = graph(json!({"spec": {"topologyConstraint": {"clusterTopologyName": "h100"}}}));
    assert!(needs_topology(&named));
    assert_eq!(
        messages(&named, Some(&rack_and_zone())),
        ["spec.topologyConstraint.packDomain: Required value: is required when no component topologyConstraint is set"]
    );
    for empty in [json!({}), json!({"clusterTopologyName": ""})] {
        let empty = graph(json!({"spec": {"topologyConstraint": empty}}));
        assert!(!needs_topology(&empty), "there is nothing to ask");
        assert_eq!(
            messages(&empty, None),
            [
                "spec.topologyConstraint.packDomain: Required value: is required when no component topologyConstraint is set"
            ]
        );
    }
    let mut of_worker = with_worker(json!({"topologyConstraint": {"packDomain": "rack"}}));
    of_worker.spec.topology_constraint = Some(Default::default());
    assert_eq!(messages(&of_worker, Some(&rack_and_zone())), Vec::<String>::new());
}

#[test]
fn graphs_that_cannot_run_are_refused() {
    let worker = |patch: Value| with_worker(patch);
    let pod = |main: Value| json!({"podTemplate": {"spec": {"containers": [main]}}});
    let many = |count: usize| {
        let mut graph = graph(json!({}));
        let one = graph.spec.components[0].clone();
        let named = |index: usize| Component {
            name: format!("c{index}"),
            ..one.clone()
        };
        graph.spec.components = (0..count).map(named).collect();
        graph
    };
    assert_eq!(messages(&many(25), None), Vec::<String>::new());
    let cases: Vec<(DynamoGraphDeployment, &str)> = vec![
        (many(26), "spec.components: Too many: 26: must have at most 25 items"),
        (
            graph(json!({"spec": {"components": []}})),
            "spec.components: Required value: must have at least one component",
        ),
        (
            worker(json!({"name": "FRONTEND"})),
            "spec.components[1].name: Duplicate value: \"FRONTEND\": names must differ",
        ),
        (
            worker(json!({"name": "a_b"})),
            "spec.components[1].name: Invalid value: \"a_b\": must consist of letters",
        ),
        (
            worker(json!({"replicas": -1})),
            "spec.components[1].replicas: Invalid value: \"-1\": must be greater than",
        ),
        (
            worker(json!({"minAvailable": 0})),
            "spec.components[1].minAvailable: Invalid value: \"0\": must be greater than",
        ),
        (
            worker(json!({"minAvailable": 3})),
            "spec.components[1].minAvailable: Invalid value: \"3\": must not be greater",
        ),
        (
            worker(json!({"multinode": {"nodeCount": 1}})),
            "spec.components[1].multinode.nodeCount: Invalid value: \"1\"",
        ),
        (
            worker(json!({"name": "worker-of-a-model", "multinode": {"nodeCount": 2}})),
            "spec.components[1].name: Invalid value: \"worker-of-a-model\": combined resource name length 46 exceeds the \
             45-character pod-name limit",
        ),
        (
            worker(pod(json!({"name": "main"}))),
            "spec.components[1].podTemplate.spec.containers: Required value: a container \"main\" with an image is required",
        ),
        (
            worker(pod(json!({"name": "main", "image": "i", "comand": []}))),
            "spec.components[1].podTemplate.spec.containers[0].comand: unknown field; correct or remove it",
        ),
        (
            worker(json!({"podTemplate": {"spec": 7}})),
            "spec.components[1].podTemplate.spec: invalid type: integer `7`",
        ),
        (
            with_component(0, json!({"multinode": {"nodeCount": 2}})),
            "spec.components[0].multinode: Invalid value: several nodes need a container \"main\" that starts python3 -m",
        ),
        (
            graph(json!({"spec": {"backendFramework": "sglang"}})),
            "spec.backendFramework: Invalid value: \"sglang\": component \"Worker\" starts dynamo.vllm; let both say the same",
        ),
        (
            graph(json!({"metadata": {"annotations": {"nvidia.com/grove-update-strategy": "Fast"}}})),
            "metadata.annotations[nvidia.com/grove-update-strategy]: Invalid value: \"Fast\": must be RollingRecreate or OnDelete",
        ),
        (
            graph(json!({"spec": {"restart": {"id": "1"}}})),
            "spec.restart: Forbidden: must be unset on create; set it later to restart the pods",
        ),
    ];
    for (graph, expected) in cases {
        let found = messages(&graph, None);
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{expected}\n{found:#?}"
        );
    }
}

#[test]
fn a_service_that_could_not_be_named_is_refused() {
    let mut long = with_worker(json!({"name": "w".repeat(30)}));
    long.metadata.name = Some("g".repeat(40));
    let found = messages(&long, None);
    assert!(
        found.len() == 1 && found[0].ends_with("the name of its Service would have 71 characters, and 63 are allowed"),
        "{found:#?}"
    );
}

/// A label that is too long would keep every clique from being made.
#[test]
fn a_label_that_could_not_be_written_is_refused() {
    let mut long = graph(json!({}));
    long.metadata.namespace = Some("n".repeat(40));
    long.metadata.name = Some("g".repeat(22));
    assert_eq!(messages(&long, None), Vec::<String>::new(), "63 characters");
    let name = "g".repeat(23);
    long.metadata.name = Some(name.clone());
    assert_eq!(
        messages(&long, None),
        [format!(
            "metadata.name: Invalid value: \"{name}\": the label nvidia.com/dynamo-namespace would be the namespace's name and \
             the graph's with 64 characters, and 63 are allowed; shorten one of them, or write globalDynamoNamespace: true"
        )]
    );
    for component in &mut long.spec.components {
        component.global_dynamo_namespace = Some(true);
    }
    assert_eq!(messages(&long, None), Vec::<String>::new());
}

/// What Grove does not do for a graph is never ignored.
#[test]
fn what_is_out_of_scope_is_refused_by_name() {
    let fields = [
        ("eppConfig", "gateways and their endpoint pickers are not supported"),
        ("ingress", "ingresses are not made here"),
        ("modelRef", "DynamoModels are not served"),
        ("checkpoint", "checkpointing is not supported"),
        ("replica", "unknown field; correct or remove it"),
    ];
    for (field, why) in fields {
        let found = messages(&with_worker(json!({field: {}})), None);
        let expected = format!("spec.components[1].{field}: Forbidden: {why}");
        assert!(
            found.len() == 1 && found[0].starts_with(&expected),
            "{expected}\n{found:#?}"
        );
    }
    let experimental = with_worker(json!({"experimental": {"gpuMemoryService": {}}}));
    assert_eq!(
        messages(&experimental, None),
        ["spec.components[1].experimental.gpuMemoryService: Forbidden: the GPU memory service is not supported"]
    );
    let switched = with_worker(json!({"scalingAdapter": {"enabled": false}}));
    assert_eq!(
        messages(&switched, None),
        [
            "spec.components[1].scalingAdapter.enabled: Forbidden: an adapter is enabled by being there; remove scalingAdapter \
             to switch it off"
        ]
    );
    // Also where a field has fields of its own.
    let inside = [
        ("multinode", "leader", "leader and workers have the same podTemplate"),
        ("topologyConstraint", "preferred", "unknown field; correct or remove it"),
        ("experimental", "elastic", "unknown field; correct or remove it"),
    ];
    for (field, name, why) in inside {
        let written = with_worker(json!({field: {name: {}, "packDomain": "rack"}}));
        let expected = format!("spec.components[1].{field}.{name}: Forbidden: {why}");
        let found = messages(&written, None);
        assert!(found.contains(&expected), "{expected}\n{found:#?}");
    }
    let strategy = graph(json!({"spec": {"restart": {"id": "1", "strategy": {"type": "Parallel"}}}}));
    let found = messages(&strategy, None);
    assert!(
        found[0].starts_with("spec.restart.strategy: Forbidden: pods are restarted in the order of updates"),
        "{found:#?}"
    );
    let of_graph = graph(json!({"spec": {"pvcs": []}}));
    assert!(messages(&of_graph, None)[0].starts_with("spec.pvcs: Forbidden: volumes are not made here"));
    let picker = with_component(0, json!({"type": "epp"}));
    assert_eq!(
        messages(&picker, None),
        ["spec.components[0].type: Forbidden: \"epp\": gateways and their endpoint pickers are not supported"]
    );
    for (annotation, value) in [
        ("nvidia.com/enable-grove", "false"),
        ("nvidia.com/workload-provider", "component"),
    ] {
        let other = graph(json!({"metadata": {"annotations": {annotation: value}}}));
        let expected = format!(
            "metadata.annotations[{annotation}]: Forbidden: this operator requires the Grove pathway, but the annotation \
             says \"{value}\"; remove it"
        );
        assert_eq!(messages(&other, None), [expected]);
    }
}

/// What a graph becomes must be a set that a user could have written.
#[test]
fn a_set_that_would_be_refused_refuses_its_graph() {
    let rules = grove_workload::validate::Rules::default();
    let conditions = Conditions {
        rules: Some(&rules),
        ..Conditions::default()
    };
    let found = create(
        &with_worker(json!({"podTemplate": {"spec": {"schedulerName": "volcano"}}})),
        None,
        &conditions,
    );
    assert!(
        found.iter().any(|violation| violation
            .message
            .starts_with("the PodCliqueSet made from it would be refused: spec")),
        "{found:#?}"
    );
}
