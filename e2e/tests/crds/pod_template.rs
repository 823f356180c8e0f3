//! What a user writes in a pod template comes back: all of it (invariants 3 and 5).

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{cluster, store};

/// What the API server adds to the template below, by JSON pointer within the pod spec: defaults of list-map keys.
const ADDED: [(&str, &str); 2] = [
    ("/containers/0/ports/0/protocol", "TCP"),
    ("/initContainers/1/ports/0/protocol", "TCP"),
];

#[tokio::test]
async fn a_full_featured_pod_template_comes_back_unpruned() -> Result<()> {
    let (_, client) = cluster().await?;
    let pod_spec: Value = serde_saphyr::from_str(include_str!("pod_spec.yaml"))?;
    for (kind, pointer, object) in holders(&pod_spec) {
        let stored = store(&client, &object, "full-template").await.context(kind)?;
        let found = stored.pointer(pointer).context("the pod spec is gone")?;
        let mut wanted = pod_spec.clone();
        for (pointer, value) in ADDED {
            let (parent, name) = pointer.rsplit_once('/').context("no pointer")?;
            let parent = wanted
                .pointer_mut(parent)
                .with_context(|| format!("{pointer} is not in the template"))?;
            assert_eq!(parent.get(name), None, "{pointer} is written, so it is no default");
            parent[name] = json!(value);
        }
        assert_eq!(found, &wanted, "{kind}");
    }
    Ok(())
}

/// The schemas that our CRDs embed are the ones that this very API server publishes.
#[tokio::test]
async fn the_committed_copy_of_kubernetes_types_is_current() -> Result<()> {
    let (_, client) = cluster().await?;
    let published = grove_e2e::openapi::embedded_types(&client).await?;
    let committed = include_str!("../../../crates/api/openapi/kubernetes.json");
    assert!(
        published == committed,
        "run `cargo xtask gen --openapi` and commit the result"
    );
    Ok(())
}

/// Every kind that holds a pod template, and where.
fn holders(pod_spec: &Value) -> [(&'static str, &'static str, Value); 2] {
    let clique = json!({ "roleName": "full", "replicas": 1, "podSpec": pod_spec });
    let set = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "spec": { "template": { "cliques": [{ "name": "full", "spec": clique }] } },
    });
    let clique = json!({ "apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "spec": clique });
    [
        ("PodCliqueSet", "/spec/template/cliques/0/spec/podSpec", set),
        ("PodClique", "/spec/podSpec", clique),
    ]
}
