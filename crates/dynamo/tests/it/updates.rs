//! What cannot change, and what always can.

use grove_api::DynamoGraphDeployment;
use grove_dynamo::translate::{Surroundings, keep_order, translate};
use grove_dynamo::validate::{Conditions, create, update};
use serde_json::{Value, json};

use crate::graphs::{graph, merge, with_worker};

const TOPOLOGY: &str = "is immutable and cannot be added, removed, or changed after creation; delete and recreate the \
                        DynamoGraphDeployment to change topology constraints";

fn messages(old: &DynamoGraphDeployment, new: &DynamoGraphDeployment) -> Vec<String> {
    let found = update(old, new, &Conditions::default());
    found.into_iter().map(|violation| violation.message).collect()
}

fn changed(old: &DynamoGraphDeployment, patch: Value) -> DynamoGraphDeployment {
    let mut object = json!(old);
    merge(&mut object, patch);
    serde_json::from_value(object).expect("a graph")
}

// shows: DGD-6, DGD-16
#[test]
fn the_constraint_of_a_graph_cannot_change() {
    let (none, zone) = (
        json!({"spec": {"topologyConstraint": null}}),
        json!({"packDomain": "zone"}),
    );
    let bare = graph(json!({}));
    let zoned = graph(json!({"spec": {"topologyConstraint": zone}}));
    let racked = changed(&zoned, json!({"spec": {"topologyConstraint": {"packDomain": "rack"}}}));
    let renamed = changed(
        &zoned,
        json!({"spec": {"topologyConstraint": {"clusterTopologyName": "h100"}}}),
    );
    let expected = format!("spec.topologyConstraint: Forbidden: {TOPOLOGY}");
    for (old, new) in [
        (&bare, &zoned),
        (&zoned, &changed(&zoned, none)),
        (&zoned, &racked),
        (&zoned, &renamed),
    ] {
        assert_eq!(messages(old, new), [expected.as_str()]);
    }
}

// shows: DGD-17
#[test]
fn the_constraint_of_a_component_cannot_change() {
    let bare = graph(json!({}));
    let racked = with_worker(json!({"topologyConstraint": {"packDomain": "rack"}}));
    let hosted = with_worker(json!({"topologyConstraint": {"packDomain": "host"}}));
    let expected = format!("spec.components[1].topologyConstraint: Forbidden: {TOPOLOGY}");
    for (old, new) in [(&bare, &racked), (&racked, &bare), (&racked, &hosted)] {
        assert_eq!(messages(old, new), [expected.as_str()]);
    }
}

#[test]
fn the_shape_of_a_graph_cannot_change() {
    let bare = graph(json!({}));
    let multinode = |nodes: i32| with_worker(json!({"multinode": {"nodeCount": nodes}}));
    let immutable = "is immutable and cannot be changed after creation";
    let members = "spec.components: Forbidden: component topology is immutable and cannot be modified after creation:";
    let one_less = {
        let mut graph = bare.clone();
        graph.spec.components.remove(0);
        graph
    };
    let cases = [
        (
            &bare,
            &multinode(2),
            "spec.components[1].multinode: Forbidden: cannot change node topology between single-node and \
                                multi-node after creation"
                .to_owned(),
        ),
        (
            &multinode(2),
            &multinode(4),
            format!("spec.components[1].multinode.nodeCount: Forbidden: {immutable}"),
        ),
        (
            &bare,
            &with_worker(json!({"minAvailable": 2})),
            format!("spec.components[1].minAvailable: Forbidden: {immutable}"),
        ),
        (
            &bare,
            &with_worker(json!({"experimental": {"grove": {"forceScalingGroup": true}}})),
            format!("spec.components[1].experimental.grove.forceScalingGroup: Forbidden: {immutable}"),
        ),
        (
            &bare,
            &graph(json!({"spec": {"backendFramework": "vllm"}})),
            format!("spec.backendFramework: Forbidden: {immutable}"),
        ),
        (&one_less, &bare, format!("{members} components added: [Frontend]")),
        (&bare, &one_less, format!("{members} components removed: [Frontend]")),
    ];
    for (old, new, expected) in cases {
        assert_eq!(messages(old, new), [expected]);
    }
}

#[test]
fn the_rest_can_change() {
    let bare = graph(json!({}));
    let image = json!({"podTemplate": {"spec": {"containers": [{"name": "main", "image": "two", "args": ["python3 -m dynamo.vllm"]}]}}});
    for new in [
        with_worker(json!({"replicas": 7})),
        with_worker(image),
        graph(json!({"spec": {"restart": {"id": "1"}}})),
    ] {
        assert_eq!(messages(&bare, &new), Vec::<String>::new());
    }
    let broken = with_worker(json!({"replicas": -1}));
    assert_eq!(messages(&bare, &broken).len(), 1, "what is written is judged");
}

#[test]
fn replicas_of_a_component_with_an_adapter_are_the_adapters() {
    let scaled = |replicas: i32| with_worker(json!({"scalingAdapter": {}, "replicas": replicas}));
    let free = |replicas: i32| with_worker(json!({"replicas": replicas}));
    let expected = "spec.components[1].replicas: Forbidden: cannot be modified directly when scaling adapter is enabled; scale \
                    or update the related DynamoGraphDeploymentScalingAdapter instead";
    for (old, new) in [(scaled(2), scaled(3)), (free(2), scaled(3)), (scaled(2), free(3))] {
        assert_eq!(messages(&old, &new), [expected]);
    }
    for (old, new) in [(free(2), scaled(2)), (scaled(2), free(2)), (free(2), free(3))] {
        assert_eq!(messages(&old, &new), Vec::<String>::new());
    }
}

/// Graphs from before the rules, and graphs on their way out, are left alone.
#[test]
fn metadata_can_always_change() {
    let old = with_worker(json!({"eppConfig": {}, "topologyConstraint": {"packDomain": "pod"}}));
    let labelled = changed(&old, json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(messages(&old, &labelled), Vec::<String>::new());
    let leaving = changed(
        &with_worker(json!({"replicas": -1})),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    assert_eq!(messages(&old, &leaving), Vec::<String>::new());
}

/// The operator's own changes of a set pass by admission, so what cannot change in a set cannot change through its graph.
#[test]
fn what_is_fixed_in_the_set_cannot_change_through_the_graph() {
    let multinode = |module: &str| {
        with_worker(json!({
            "multinode": {"nodeCount": 2},
            "podTemplate": {"spec": {"containers": [{"name": "main", "image": "server", "command": ["python3"],
                "args": ["-m", module, "--model", "m"], "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
        }))
    };
    let (old, new) = (multinode("dynamo.vllm"), multinode("dynamo.trtllm"));
    let found = messages(&old, &new);
    let opening = "the PodCliqueSet made from it would be refused: spec.template";
    assert!(
        !found.is_empty() && found.iter().all(|told| told.starts_with(opening)),
        "{found:#?}"
    );
}

/// TensorRT-LLM starts leader after workers, so the set's cliques have an order that cannot change. Components have none.
#[test]
fn components_can_be_written_in_another_order() {
    let old = with_worker(json!({
        "multinode": {"nodeCount": 2},
        "podTemplate": {"spec": {"containers": [{"name": "main", "image": "server", "command": ["python3"],
            "args": ["-m", "dynamo.trtllm"], "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
    }));
    let mut new = old.clone();
    new.spec.components.reverse();
    assert_eq!(messages(&old, &new), Vec::<String>::new());
    let around = Surroundings::default();
    let [live, mut wanted] = [&old, &new].map(|graph| translate(graph, &around).expect("a graph").set);
    assert_ne!(live, wanted, "sets follow the order of their graphs");
    keep_order(&mut wanted, &live);
    assert_eq!(live, wanted, "but for those that exist");
}

#[test]
fn another_pathway_cannot_be_asked_for_later() {
    let old = graph(json!({}));
    let elsewhere = json!({"metadata": {"annotations": {"nvidia.com/enable-grove": "false"}}});
    let new = changed(&old, elsewhere);
    assert!(messages(&old, &new).iter().any(|told| told.contains("enable-grove")));
    // One that was stored so can still be edited.
    assert_eq!(messages(&new, &new), Vec::<String>::new());
}

/// On update as on create: an annotation that cannot be followed would stop the graph.
#[test]
fn an_annotation_that_would_stop_the_graph_is_refused() {
    let cases = [
        (
            "nvidia.com/grove-update-strategy",
            "Fast",
            "must be RollingRecreate or OnDelete",
        ),
        (
            "nvidia.com/vllm-distributed-executor-backend",
            "mpi",
            "must be mp or ray",
        ),
        (
            "nvidia.com/kai-scheduler-queue",
            "a queue",
            "must be the name of a queue: at most 63 letters, digits, '-', '_' and '.'",
        ),
    ];
    let conditions = Conditions {
        around: Surroundings {
            kai: true,
            ..Surroundings::default()
        },
        ..Conditions::default()
    };
    for (annotation, value, why) in cases {
        let old = with_worker(json!({"multinode": {"nodeCount": 2}}));
        let new = changed(&old, json!({"metadata": {"annotations": {annotation: value}}}));
        let judged = |old, new| -> Vec<String> {
            let found = update(old, new, &conditions);
            found.into_iter().map(|violation| violation.message).collect()
        };
        let expected = format!("metadata.annotations[{annotation}]: Invalid value: \"{value}\": {why}");
        assert_eq!(judged(&old, &new), [expected]);
        // One that was stored so can still be edited, and mended.
        let labelled = changed(&new, json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(judged(&new, &labelled), Vec::<String>::new());
        assert_eq!(judged(&new, &old), Vec::<String>::new());
    }
}

/// What new sets must keep to follows the configuration; a graph that runs is not refused for what it has had all along.
#[test]
fn a_configuration_that_became_stricter_keeps_nobody_from_scaling() {
    let on = |scheduler: &str, replicas: i32| {
        let mut graph = with_worker(json!({"replicas": replicas}));
        let template = graph.spec.components[1].pod_template.as_mut().expect("a template");
        template["spec"]["schedulerName"] = json!(scheduler);
        graph
    };
    let rules = grove_workload::validate::Rules::default();
    let conditions = Conditions {
        rules: Some(&rules),
        ..Conditions::default()
    };
    assert_eq!(
        create(&on("volcano", 2), None, &conditions).len(),
        1,
        "a new one is refused"
    );
    assert_eq!(update(&on("volcano", 2), &on("volcano", 3), &conditions), []);
    let found = update(&on("volcano", 2), &on("other", 2), &conditions);
    assert!(
        found.iter().any(|violation| violation.message.contains("other")),
        "what is wrong only now is refused: {found:#?}"
    );
}
