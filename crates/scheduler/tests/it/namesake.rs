//! What decides, fed by hand: objects that take the name of others before anybody looked.

use std::sync::Arc;

use grove_api::PodGang;
use grove_runtime::ObjectKey;
use grove_scheduler::Policy;
use grove_scheduler::core::Core;
use grove_scheduler::seen::{KeptPod, Seen};
use grove_scheduler::write::{Action, Done};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<K: DeserializeOwned>(object: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(object).expect("an object"))
}

fn pod(object: Value) -> Arc<KeptPod> {
    let pod: Pod = serde_json::from_value(object).expect("a pod");
    Arc::new(pod.into())
}

fn gang(uid: &str) -> Arc<PodGang> {
    object(json!({
        "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
        "metadata": {"name": "g", "namespace": "ns", "uid": uid},
        "spec": {"podgroups": [
            {"name": "w", "minReplicas": 1, "podReferences": [{"namespace": "ns", "name": "p"}]},
        ]},
    }))
}

/// The UIDs of the gangs whose status is to be written, until there is nothing to decide.
fn said(core: &mut Core) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(decided) = core.step(Timestamp::UNIX_EPOCH) {
        for action in decided.actions {
            if let Action::Say { gang, .. } = action {
                said.extend(gang.metadata.uid.clone());
            }
        }
    }
    said
}

#[test]
fn a_gang_that_took_the_name_of_another_is_told_of_too() {
    let mut core = Core::new(Policy::default());
    let key = ObjectKey::new("ns", "g");
    core.see(Seen::Node(
        ObjectKey::new("", "n"),
        Some(object(json!({
            "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
        }))),
    ));
    core.see(Seen::Pod(
        ObjectKey::new("ns", "p"),
        Some(pod(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "pod", "labels": {"grove.io/podgang": "g"}},
            "spec": {"schedulerName": "grove-scheduler", "nodeName": "n", "containers": [{"name": "main"}]},
        }))),
    ));
    core.see(Seen::Gang(key.clone(), Some(gang("first"))));
    assert_eq!(said(&mut core), ["first"]);
    let done = |uid: &str| Done::Said {
        gang: key.clone(),
        uid: uid.to_owned(),
        is_written: true,
    };
    core.done(done("first"), Timestamp::UNIX_EPOCH);
    assert!(said(&mut core).is_empty(), "nothing is news");

    // Deleted and made again between two looks.
    core.see(Seen::Gang(key.clone(), None));
    core.see(Seen::Gang(key.clone(), Some(gang("second"))));
    assert_eq!(said(&mut core), ["second"]);
    // An answer about the first says nothing about the second.
    core.done(done("first"), Timestamp::UNIX_EPOCH);
    core.done(done("second"), Timestamp::UNIX_EPOCH);
    assert!(said(&mut core).is_empty());
}
