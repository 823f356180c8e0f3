//! What a pod costs in memory: as the API has it, as a watch reads it, and as it is kept.
//!
//! `cargo bench -p grove-workload --bench pod_memory` prints a table of bytes for each pod, its own size and what it holds
//! on the heap.

use grove_workload::observed::{ObservedPod, PodFields};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const PODS: usize = 1_000;

fn main() -> Result<(), serde_json::Error> {
    let _profiler = dhat::Profiler::builder().testing().build();
    let texts: Vec<String> = (0..PODS).map(|index| pod(index).to_string()).collect();
    let length: usize = texts.iter().map(String::len).sum();
    println!("{PODS} running pods of {} bytes of JSON", length / PODS);
    println!(
        "{:<32}{:>10}{:>10}{:>10}",
        "bytes for each pod", "itself", "heap", "sum"
    );
    measure("as the API has it (Pod)", || {
        texts.iter().map(|text| serde_json::from_str::<Pod>(text)).collect()
    })?;
    measure("as a watch reads it (PodFields)", || {
        texts
            .iter()
            .map(|text| serde_json::from_str::<PodFields>(text))
            .collect()
    })?;
    measure("as it is kept (ObservedPod)", || {
        let fields = texts.iter().map(|text| serde_json::from_str::<PodFields>(text));
        fields.map(|fields| Ok(ObservedPod::from(&fields?))).collect()
    })
}

fn measure<T>(name: &str, make: impl FnOnce() -> serde_json::Result<Vec<T>>) -> serde_json::Result<()> {
    let before = dhat::HeapStats::get().curr_bytes;
    let mut pods = make()?;
    pods.shrink_to_fit();
    let sum = (dhat::HeapStats::get().curr_bytes - before) / pods.len();
    let itself = size_of::<T>();
    println!("{name:<32}{itself:>10}{:>10}{sum:>10}", sum - itself);
    Ok(())
}

/// A pod of a clique that runs, with what the API server, the kubelet and the record of writers add to it.
fn pod(index: usize) -> Value {
    let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("model-0-worker-{index:05}"), "namespace": "serving", "uid": format!("{index:036}"),
            "resourceVersion": "12345", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app.kubernetes.io/component": "pcs-podclique", "app.kubernetes.io/managed-by": "grove-operator",
                "app.kubernetes.io/name": "model-0-worker", "app.kubernetes.io/part-of": "model",
                "grove.io/pod-template-hash": "5tbk4wf7sffnwb", "grove.io/podclique": "model-0-worker",
                "grove.io/podclique-pod-index": index.to_string(), "grove.io/podcliqueset-replica-index": "0",
                "grove.io/podgang": "model-0",
            },
            "ownerReferences": [{"apiVersion": "grove.io/v1alpha1", "blockOwnerDeletion": true, "controller": true,
                "kind": "PodClique", "name": "model-0-worker", "uid": "00000000-0000-0000-0000-000000000000"}],
            "managedFields": [{"manager": "grove-operator", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:grove.io/podclique": {}, "f:grove.io/podgang": {}},
                    "f:ownerReferences": {".": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {},
                    "f:image": {}, "f:name": {}, "f:resources": {}, "f:env": {".": {}}}}, "f:hostname": {}}}}],
        },
        "spec": {
            "containers": [{
                "name": "main", "image": "registry.example/server:1", "imagePullPolicy": "IfNotPresent",
                "args": ["serve", "--model", "/models/large", "--tensor-parallel", "8"],
                "env": [{"name": "GROVE_PCS_NAME", "value": "model"}, {"name": "GROVE_PCS_INDEX", "value": "0"},
                    {"name": "GROVE_PCLQ_NAME", "value": "model-0-worker"},
                    {"name": "GROVE_HEADLESS_SERVICE", "value": "model-0.serving.svc.cluster.local"}],
                "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "16", "memory": "128Gi"}},
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
            }],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
            "nodeName": format!("node-{}", index / 8), "hostname": format!("model-0-worker-{index}"),
            "subdomain": "model-0", "schedulerName": "grove-scheduler", "serviceAccountName": "default",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "startTime": "2026-01-01T00:00:01Z",
            "conditions": conditions,
            "containerStatuses": [{
                "name": "main", "ready": true, "restartCount": 0, "image": "registry.example/server:1",
                "imageID": "registry.example/server@sha256:0", "containerID": "containerd://0",
                "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}, "lastState": {},
            }],
        },
    })
}
