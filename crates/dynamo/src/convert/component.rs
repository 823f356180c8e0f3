//! One service of `v1alpha1` as a component of `v1beta1`, and back.
//!
//! The older version spreads a pod over many fields; the newer one has a pod template with a container `main`. Whatever
//! does not look as it should is passed on as it is: admission will name it.

use grove_api::dynamo::{DEFAULT_NODES, DEFAULT_REPLICAS};
use serde_json::{Map, Value, json};

use super::rename;

const MAIN: &str = "main";
/// Fields of a service that are fields of its main container, and what they are called there.
const OF_MAIN: [(&str, &str); 4] = [
    ("envs", "env"),
    ("livenessProbe", "livenessProbe"),
    ("readinessProbe", "readinessProbe"),
    ("volumeMounts", "volumeMounts"),
];
const GPU: &str = "nvidia.com/gpu";
const ADAPTER: &str = "scalingAdapter";

/// A service or component with what the API server fills in on reading a stored one: the defaults of the schema of
/// `v1beta1`, whose fields have the same names in both versions.
pub(super) fn filled(component: &Value) -> Value {
    let Value::Object(component) = component else {
        return component.clone();
    };
    let mut out = component.clone();
    fill(&mut out, "replicas", DEFAULT_REPLICAS);
    if let Some(Value::Object(multinode)) = out.get_mut("multinode") {
        fill(multinode, "nodeCount", DEFAULT_NODES);
    }
    Value::Object(out)
}

/// Whether two of one version differ in nothing but defaults that one of them leaves to be filled in.
pub(super) fn means_the_same(one: &Value, other: &Value) -> bool {
    filled(one) == filled(other)
}

/// A null counts for nothing, as it does to the API server.
fn fill(fields: &mut Map<String, Value>, name: &str, default: i32) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), json!(default));
    }
}

pub(super) fn to_new(service: &Value) -> Value {
    let Value::Object(service) = service else {
        return service.clone();
    };
    let mut out = service.clone();
    put_type(&mut out);
    put_shared_memory_size(&mut out);
    put_adapter(&mut out);
    if !out.contains_key("podTemplate")
        && let Some(template) = template_of(&mut out)
    {
        out.insert("podTemplate".to_owned(), template);
    }
    Value::Object(out)
}

pub(super) fn to_old(component: &Value) -> Value {
    let Value::Object(component) = component else {
        return component.clone();
    };
    let mut out = component.clone();
    put_component_type(&mut out);
    put_shared_memory(&mut out);
    if let Some(Value::Object(adapter)) = out.get_mut(ADAPTER) {
        adapter.entry("enabled").or_insert(json!(true));
    }
    if let Some(Value::Object(template)) = out.remove("podTemplate") {
        spread(&mut out, template);
    }
    Value::Object(out)
}

/// `componentType` and `subComponentType` as `type`.
fn put_type(out: &mut Map<String, Value>) {
    if out.contains_key("type") {
        return;
    }
    let sub = out.get("subComponentType").and_then(Value::as_str);
    if let (Some("worker"), Some(sub @ ("prefill" | "decode"))) =
        (out.get("componentType").and_then(Value::as_str), sub)
    {
        let sub = json!(sub);
        out.remove("componentType");
        out.remove("subComponentType");
        out.insert("type".to_owned(), sub);
    } else {
        rename(out, "componentType", "type");
    }
}

fn put_component_type(out: &mut Map<String, Value>) {
    match out.get("type").and_then(Value::as_str) {
        Some(sub @ ("prefill" | "decode")) => {
            let sub = json!(sub);
            out.remove("type");
            out.insert("componentType".to_owned(), json!("worker"));
            out.insert("subComponentType".to_owned(), sub);
        }
        _ => rename(out, "type", "componentType"),
    }
}

fn put_shared_memory_size(out: &mut Map<String, Value>) {
    let size = match out.get("sharedMemory") {
        Some(Value::Object(memory)) if memory.get("disabled") == Some(&json!(true)) => json!("0"),
        Some(Value::Object(memory)) if memory.get("size").is_some_and(Value::is_string) => memory["size"].clone(),
        _ => return,
    };
    out.remove("sharedMemory");
    out.insert("sharedMemorySize".to_owned(), size);
}

fn put_shared_memory(out: &mut Map<String, Value>) {
    let memory = match out.get("sharedMemorySize") {
        Some(size) if size == "0" => json!({"disabled": true}),
        Some(size @ Value::String(_)) => json!({"size": size}),
        _ => return,
    };
    out.remove("sharedMemorySize");
    out.insert("sharedMemory".to_owned(), memory);
}

/// An adapter that is not enabled is none: in the newer version it is enabled by being there.
fn put_adapter(out: &mut Map<String, Value>) {
    let Some(Value::Object(adapter)) = out.get_mut(ADAPTER) else {
        return;
    };
    match adapter.get("enabled") {
        Some(Value::Bool(true)) => drop(adapter.remove("enabled")),
        None | Some(Value::Bool(false)) if adapter.keys().all(|field| field == "enabled") => drop(out.remove(ADAPTER)),
        _ => {}
    }
}

/// Takes out of a service everything that makes up its pod; none if there is nothing.
fn template_of(out: &mut Map<String, Value>) -> Option<Value> {
    let metadata = metadata_of(out);
    let mut spec = match out.remove("extraPodSpec") {
        Some(Value::Object(spec)) => spec,
        Some(other) => {
            out.insert("extraPodSpec".to_owned(), other);
            Map::new()
        }
        None => Map::new(),
    };
    let mut main = match spec.remove("mainContainer") {
        Some(Value::Object(main)) => main,
        _ => Map::new(),
    };
    for (field, name) in OF_MAIN {
        if let Some(value) = out.remove(field) {
            main.insert(name.to_owned(), value);
        }
    }
    if let Some(Value::String(secret)) = out.get("envFromSecret").cloned() {
        out.remove("envFromSecret");
        main.insert("envFrom".to_owned(), json!([{"secretRef": {"name": secret}}]));
    }
    if let Some(resources) = out.remove("resources") {
        main.insert("resources".to_owned(), resources_to_new(resources));
    }
    if !main.is_empty() {
        main.insert("name".to_owned(), json!(MAIN));
        let mut containers = vec![Value::Object(main)];
        if let Some(Value::Array(others)) = spec.remove("containers") {
            containers.extend(others);
        }
        spec.insert("containers".to_owned(), Value::Array(containers));
    }
    let mut template = Map::new();
    if !metadata.is_empty() {
        template.insert("metadata".to_owned(), Value::Object(metadata));
    }
    if !spec.is_empty() {
        template.insert("spec".to_owned(), Value::Object(spec));
    }
    (!template.is_empty()).then_some(Value::Object(template))
}

/// Labels and annotations of the service and of `extraPodMetadata`; the latter win.
fn metadata_of(out: &mut Map<String, Value>) -> Map<String, Value> {
    let mut metadata = Map::new();
    let extra = match out.remove("extraPodMetadata") {
        Some(Value::Object(extra)) => extra,
        Some(other) => {
            out.insert("extraPodMetadata".to_owned(), other);
            Map::new()
        }
        None => Map::new(),
    };
    for field in ["annotations", "labels"] {
        let mut all = match out.remove(field) {
            Some(Value::Object(all)) => all,
            _ => Map::new(),
        };
        if let Some(Value::Object(extra)) = extra.get(field) {
            all.extend(extra.clone());
        }
        if !all.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(all));
        }
    }
    metadata
}

/// Spreads a pod template over the fields of a service.
fn spread(out: &mut Map<String, Value>, mut template: Map<String, Value>) {
    if let Some(metadata) = template.remove("metadata") {
        out.insert("extraPodMetadata".to_owned(), metadata);
    }
    let Some(Value::Object(mut spec)) = template.remove("spec") else {
        return;
    };
    if let Some(Value::Array(containers)) = spec.remove("containers") {
        let (main, others): (Vec<Value>, Vec<Value>) = containers.into_iter().partition(|one| one["name"] == MAIN);
        if let Some(Value::Object(main)) = main.into_iter().next() {
            spread_main(out, &mut spec, main);
        }
        if !others.is_empty() {
            spec.insert("containers".to_owned(), Value::Array(others));
        }
    }
    if !spec.is_empty() {
        out.insert("extraPodSpec".to_owned(), Value::Object(spec));
    }
}

fn spread_main(out: &mut Map<String, Value>, spec: &mut Map<String, Value>, mut main: Map<String, Value>) {
    main.remove("name");
    for (field, name) in OF_MAIN {
        if let Some(value) = main.remove(name) {
            out.insert(field.to_owned(), value);
        }
    }
    if let Some(secret) = only_secret(main.get("envFrom")) {
        main.remove("envFrom");
        out.insert("envFromSecret".to_owned(), secret);
    }
    if let Some(resources) = main.remove("resources") {
        out.insert("resources".to_owned(), resources_to_old(resources));
    }
    if !main.is_empty() {
        spec.insert("mainContainer".to_owned(), Value::Object(main));
    }
}

/// The name in `[{secretRef: {name}}]`.
fn only_secret(env_from: Option<&Value>) -> Option<Value> {
    let [only] = env_from?.as_array()?.as_slice() else {
        return None;
    };
    let name = &only["secretRef"]["name"];
    (*only == json!({"secretRef": {"name": name}}) && name.is_string()).then(|| name.clone())
}

/// Every list of quantities in `resources`, changed.
fn with_each(resources: Value, change: impl Fn(&mut Map<String, Value>)) -> Value {
    let Value::Object(mut resources) = resources else {
        return resources;
    };
    for list in ["limits", "requests"] {
        if let Some(Value::Object(quantities)) = resources.get_mut(list) {
            change(quantities);
        }
    }
    Value::Object(resources)
}

/// `gpu` (of a `gpuType`) and `custom` under the names that Kubernetes has for them.
fn resources_to_new(resources: Value) -> Value {
    with_each(resources, |quantities| {
        let gpu_type = match quantities.get("gpuType").and_then(Value::as_str) {
            Some(gpu_type) => gpu_type.to_owned(),
            None => GPU.to_owned(),
        };
        if quantities.contains_key("gpu") && !quantities.contains_key(&gpu_type) {
            quantities.remove("gpuType");
            rename(quantities, "gpu", &gpu_type);
        }
        if let Some(Value::Object(custom)) = quantities.remove("custom") {
            quantities.extend(custom);
        }
    })
}

fn resources_to_old(resources: Value) -> Value {
    with_each(resources, |quantities| {
        let is_usual = |name: &String| matches!(name.as_str(), "cpu" | "memory" | GPU);
        let (mut usual, custom): (Map<String, Value>, Map<String, Value>) = std::mem::take(quantities)
            .into_iter()
            .partition(|(name, _)| is_usual(name));
        rename(&mut usual, GPU, "gpu");
        if !custom.is_empty() {
            usual.insert("custom".to_owned(), Value::Object(custom));
        }
        *quantities = usual;
    })
}
