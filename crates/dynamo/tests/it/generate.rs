//! Graphs of either version, made at random from the words that conversion knows, in places where they belong and in
//! places where they do not.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::BoxedStrategy;
use serde_json::{Map, Value, json};

/// Words that mean something to conversion, in one version or the other.
const WORDS: [&str; 41] = [
    "annotations",
    "args",
    "autoscaling",
    "claims",
    "clusterTopologyName",
    "componentType",
    "containers",
    "cpu",
    "custom",
    "disabled",
    "enabled",
    "env",
    "envFrom",
    "envFromSecret",
    "envs",
    "extraPodMetadata",
    "extraPodSpec",
    "gpu",
    "gpuType",
    "image",
    "labels",
    "limits",
    "livenessProbe",
    "mainContainer",
    "metadata",
    "multinode",
    "nodeCount",
    "nvidia.com/gpu",
    "packDomain",
    "podTemplate",
    "replicas",
    "requests",
    "resources",
    "scalingAdapter",
    "secretRef",
    "sharedMemory",
    "sharedMemorySize",
    "size",
    "spec",
    "subComponentType",
    "type",
];
const TEXTS: [&str; 9] = [
    "main", "worker", "prefill", "decode", "frontend", "rack", "8Gi", "0", "1",
];

fn json_value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        select(&TEXTS[..]).prop_map(|text| json!(text)),
        any::<bool>().prop_map(|flag| json!(flag)),
        (0..9).prop_map(|number| json!(number)),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            fields(inner.clone(), 0..4).prop_map(Value::Object),
            (select(&["main", "sidecar"][..]), fields(inner.clone(), 0..3)).prop_map(|(name, mut container)| {
                container.insert("name".to_owned(), json!(name));
                Value::Object(container)
            }),
            vec(inner, 0..3).prop_map(Value::Array),
        ]
    })
    .boxed()
}

fn fields(
    value: impl Strategy<Value = Value> + 'static,
    many: std::ops::Range<usize>,
) -> BoxedStrategy<Map<String, Value>> {
    let fields = btree_map(select(&WORDS[..]), value, many);
    fields
        .prop_map(|fields| {
            fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        })
        .boxed()
}

/// A service as somebody would write it in `v1alpha1`.
fn usual_service() -> BoxedStrategy<Map<String, Value>> {
    let resources = prop_oneof![
        Just(json!({"limits": {"gpu": "8", "cpu": "4"}})),
        Just(json!({"limits": {"gpu": "1", "gpuType": "gpu.intel.com/xe"}, "requests": {"custom": {"rdma/ib": "1"}}})),
        Just(json!({"requests": {"memory": "8Gi"}, "claims": [{"name": "gpus"}]})),
    ];
    let of_main = prop_oneof![
        Just(json!({"mainContainer": {"image": "i", "command": ["python3"]}})),
        Just(json!({"mainContainer": {"image": "i"}, "containers": [{"name": "sidecar"}], "nodeSelector": {"a": "b"}})),
        Just(json!({"nodeSelector": {"a": "b"}})),
    ];
    let pairs = (
        proptest::option::of(resources),
        proptest::option::of(of_main),
        proptest::option::of(Just(json!([{"name": "A", "value": "b"}]))),
        proptest::option::of(prop_oneof![
            Just(json!({"size": "1Gi"})),
            Just(json!({"disabled": true}))
        ]),
        proptest::option::of(select(&["worker", "frontend", "planner"][..])),
        proptest::option::of(select(&["prefill", "decode", "encode"][..])),
        proptest::option::of(any::<bool>()),
        fields(json_value(), 0..2),
    );
    let service = pairs.prop_map(|(resources, pod, envs, memory, type_, sub, adapter, mut more)| {
        let known = [
            ("resources", resources),
            ("extraPodSpec", pod),
            ("envs", envs),
            ("sharedMemory", memory),
            ("componentType", type_.map(|text| json!(text))),
            ("subComponentType", sub.map(|text| json!(text))),
            ("scalingAdapter", adapter.map(|enabled| json!({"enabled": enabled}))),
        ];
        more.extend(
            known
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?))),
        );
        more
    });
    service.boxed()
}

/// A component as somebody would write it in `v1beta1`.
fn usual_component() -> BoxedStrategy<Map<String, Value>> {
    let container = prop_oneof![
        Just(json!({"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8", "rdma/ib": "1"}}})),
        Just(json!({"name": "main", "env": [{"name": "A"}], "envFrom": [{"secretRef": {"name": "s"}}]})),
        Just(json!({"name": "main", "envFrom": [{"configMapRef": {"name": "s"}}], "startupProbe": {}})),
        Just(json!({"name": "sidecar", "image": "i"})),
    ];
    let template = (vec(container, 0..3), any::<bool>()).prop_map(|(containers, metadata)| {
        let mut template = json!({"spec": {"containers": containers}});
        if metadata {
            template["metadata"] = json!({"labels": {"a": "b"}});
        }
        template
    });
    let pairs = (
        proptest::option::of(template),
        proptest::option::of(select(&["worker", "prefill", "decode", "frontend", "epp"][..])),
        proptest::option::of(select(&["0", "8Gi"][..])),
        proptest::option::of(Just(json!({}))),
        fields(json_value(), 0..2),
    );
    let component = pairs.prop_map(|(template, type_, memory, adapter, mut more)| {
        let known = [
            ("podTemplate", template),
            ("type", type_.map(|text| json!(text))),
            ("sharedMemorySize", memory.map(|text| json!(text))),
            ("scalingAdapter", adapter),
        ];
        more.extend(
            known
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?))),
        );
        more
    });
    component.boxed()
}

fn object(version: &'static str, spec: Map<String, Value>, status: Option<Value>, annotated: bool) -> Value {
    let mut object = json!({
        "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment",
        "metadata": {"name": "g", "namespace": "ns", "uid": "u", "resourceVersion": "7"}, "spec": spec,
    });
    if let Some(status) = status {
        object["status"] = status;
    }
    if annotated {
        object["metadata"]["annotations"] = json!({"theirs": "1"});
    }
    object
}

fn rest() -> BoxedStrategy<Map<String, Value>> {
    let constraint = prop_oneof![
        Just(json!({"packDomain": "rack"})),
        Just(json!({"packDomain": "rack", "topologyProfile": "h100"})),
        Just(json!({"packDomain": "rack", "topologyName": "h100"})),
        Just(json!({"clusterTopologyName": "h100"})),
        json_value(),
    ];
    (fields(json_value(), 0..3), proptest::option::of(constraint))
        .prop_map(|(mut rest, constraint)| {
            if let Some(constraint) = constraint {
                rest.insert("topologyConstraint".to_owned(), constraint);
            }
            rest
        })
        .boxed()
}

/// An object of `v1beta1` as the API server has it after a read from storage: with the defaults of its schema.
pub(crate) fn read_from_storage(mut object: Value) -> Value {
    let fill = |fields: &mut Map<String, Value>, name: &str, default: i32| {
        fields.entry(name).or_insert(json!(default));
    };
    let components = object.pointer_mut("/spec/components").and_then(Value::as_array_mut);
    for component in components.into_iter().flatten() {
        if let Some(component) = component.as_object_mut() {
            fill(component, "replicas", 1);
        }
        if let Some(multinode) = component.get_mut("multinode").and_then(Value::as_object_mut) {
            fill(multinode, "nodeCount", 2);
        }
    }
    object
}

/// Objects of `v1alpha1`: services as a list, as a map, or none.
pub(crate) fn old() -> impl Strategy<Value = Value> {
    let service = prop_oneof![usual_service(), fields(json_value(), 0..6)];
    let named = (service.clone(), "[A-Ea-e]{1,2}").prop_map(|(mut service, name)| {
        service.insert("name".to_owned(), json!(name));
        Value::Object(service)
    });
    let services = prop_oneof![
        3 => vec(named, 0..4).prop_map(|list| Some(Value::Array(list))),
        3 => btree_map("[A-Ea-e]{1,2}", service.prop_map(Value::Object), 0..4)
            .prop_map(|map| Some(Value::Object(map.into_iter().collect()))),
        1 => Just(None),
    ];
    let status = proptest::option::of(Just(json!({"state": "pending", "services": {"a": {"replicas": 1}}})));
    (rest(), services, status, any::<bool>()).prop_map(|(mut spec, services, status, annotated)| {
        if let Some(services) = services {
            spec.insert("services".to_owned(), services);
        }
        object("v1alpha1", spec, status, annotated)
    })
}

/// Objects of `v1beta1`, their components in any order.
pub(crate) fn new() -> impl Strategy<Value = Value> {
    let component = prop_oneof![usual_component(), fields(json_value(), 0..6)];
    let components = btree_map("[A-Ea-e]{1,2}", component, 0..4).prop_map(|components| {
        let named = components.into_iter().map(|(name, mut component)| {
            component.insert("name".to_owned(), json!(name));
            Value::Object(component)
        });
        named.collect::<Vec<Value>>()
    });
    let components = proptest::option::of(components.prop_shuffle());
    let status = proptest::option::of(Just(json!({"state": "pending", "components": {"a": {"replicas": 1}}})));
    (rest(), components, status, any::<bool>()).prop_map(|(mut spec, components, status, annotated)| {
        if let Some(components) = components {
            spec.insert("components".to_owned(), Value::Array(components));
        }
        object("v1beta1", spec, status, annotated)
    })
}
