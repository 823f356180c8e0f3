//! What a pod costs the scheduler in memory: as the API has it, and as it is kept.
//!
//! `cargo bench -p grove-scheduler --bench pod_memory` prints bytes for each pod, its own size and what it holds on the
//! heap.

use grove_scheduler::seen::KeptPod;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const PODS: usize = 1_000;

fn main() -> Result<(), serde_json::Error> {
    let _profiler = dhat::Profiler::builder().testing().build();
    let texts: Vec<String> = (0..PODS).map(|index| pod(index).to_string()).collect();
    println!(
        "{:<32}{:>10}{:>10}{:>10}",
        "bytes for each pod", "itself", "heap", "sum"
    );
    let read = || texts.iter().map(|text| serde_json::from_str::<Pod>(text));
    measure("as the API has it (Pod)", || read().collect())?;
    measure("as it is kept (KeptPod)", || {
        read().map(|pod| Ok(KeptPod::from(pod?))).collect()
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

/// A pod of a clique that runs, with what the operator, the API server and the kubelet put into it.
fn pod(index: usize) -> Value {
    let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example/server:1", "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "GROVE_PCS_NAME", "value": "model"}, {"name": "GROVE_PCLQ_NAME", "value": "model-0-worker"}],
            "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "16", "memory": "128Gi"}},
            "volumeMounts": [{"name": "models", "mountPath": "/models"}],
        })
    };
    json!({
        "metadata": {
            "name": format!("model-0-worker-{index:05}"), "namespace": "serving", "uid": format!("{index:036}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app.kubernetes.io/component": "pcs-podclique", "app.kubernetes.io/managed-by": "grove-operator",
                "app.kubernetes.io/name": "model-0-worker", "app.kubernetes.io/part-of": "model",
                "grove.io/pod-template-hash": "5tbk4wf7sffnwb", "grove.io/podclique": "model-0-worker",
                "grove.io/podclique-pod-index": index.to_string(), "grove.io/podcliqueset-replica-index": "0",
                "grove.io/podgang": "model-0",
            },
        },
        "spec": {
            "initContainers": [container("wait")], "containers": [container("main")],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            "nodeName": format!("node-{}", index / 8), "schedulerName": "grove-scheduler", "priority": 0,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [{
            "name": "main", "ready": true, "restartCount": 0, "image": "registry.example/server:1", "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}},
        }]},
    })
}
