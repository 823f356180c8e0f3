//! The bare client: it knows the objects beforehand, and writes them as fast as it can.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use grove_api::labels;
use kube::Client;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use serde_json::{Value, json};

pub(super) const WORKERS: usize = 32;
/// Who manages the copies.
const MANAGER: &str = "bench";

/// What the operator makes of a set, in the order of dependence: a step needs all of those before it.
pub(super) const STEPS: [&[(&str, &str)]; 4] = [
    &[("apps/v1", "ControllerRevision")],
    &[("v1", "Service"), ("grove.io/v1alpha1", "PodClique")],
    &[("v1", "Pod")],
    &[("scheduler.grove.io/v1alpha1", "PodGang")],
];

/// Objects that the operator made, ready to be made again under other names.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    pub(super) steps: Vec<Vec<DynamicObject>>,
}

impl Copies {
    /// Takes everything that the operator made in a namespace.
    pub(super) async fn take(client: &Client, namespace: &str) -> Result<Self> {
        let mut steps = Vec::new();
        for kinds in STEPS {
            let mut objects = Vec::new();
            for (api_version, kind) in kinds {
                let types = TypeMeta {
                    api_version: (*api_version).to_owned(),
                    kind: (*kind).to_owned(),
                };
                let api = api_of(client, namespace, &types)?;
                let ours = format!("{}={}", labels::MANAGED_BY, labels::MANAGED_BY_OPERATOR);
                let found = api.list(&ListParams::default().labels(&ours)).await?;
                objects.extend(found.items.into_iter().map(|object| stripped(object, &types)));
            }
            steps.push(objects);
        }
        Ok(Self { steps })
    }

    /// The same objects under names that end differently.
    pub(super) fn renamed(&self, ending: &str) -> Self {
        let mut copies = self.clone();
        for object in copies.steps.iter_mut().flatten() {
            let name = format!("{}-{ending}", object.name_any());
            object.metadata.name = Some(name);
        }
        copies
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = String> {
        let all = self.steps.iter().flatten();
        let pods = all.filter(|object| object.types.as_ref().is_some_and(|types| types.kind == "Pod"));
        pods.map(ResourceExt::name_any)
    }
}

/// An object as its maker sends it: without an owner, and nobody's who watches for what it manages.
fn stripped(mut object: DynamicObject, types: &TypeMeta) -> DynamicObject {
    object.types = Some(types.clone());
    let name = object.metadata.name.take();
    let mut labels = object.metadata.labels.take().unwrap_or_default();
    labels.insert(labels::MANAGED_BY.to_owned(), MANAGER.to_owned());
    let annotations = object.metadata.annotations.take();
    object.metadata = kube::core::ObjectMeta {
        name,
        annotations,
        labels: Some(labels),
        ..Default::default()
    };
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("status");
    }
    if types.kind == "Pod" {
        object.data["spec"]["schedulingGates"] = json!([{"name": labels::SCHEDULING_GATE}]);
    }
    object
}

/// Selects the copies.
pub(super) fn selector() -> String {
    format!("{}={MANAGER}", labels::MANAGED_BY)
}

fn api_of(client: &Client, namespace: &str, types: &TypeMeta) -> Result<Api<DynamicObject>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    Ok(Api::namespaced_with(client.clone(), namespace, &resource))
}

/// Makes objects, several at once.
pub(super) async fn create(client: &Client, namespace: &str, objects: &[DynamicObject]) -> Result<()> {
    let create = |object: &DynamicObject| {
        let object = object.clone();
        async move {
            let types = object.types.as_ref().context("an object with its kind")?;
            let api = api_of(client, namespace, types)?;
            api.create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        }
    };
    let creates = stream::iter(objects).map(create).buffer_unordered(WORKERS);
    creates.try_collect().await
}

/// Takes the gates off pods, several at once.
pub(super) async fn lift_gates(client: &Client, namespace: &str, pods: Vec<String>) -> Result<()> {
    let types = TypeMeta {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
    };
    let api = api_of(client, namespace, &types)?;
    let patch: Value = json!([
        {"op": "test", "path": "/spec/schedulingGates/0", "value": {"name": labels::SCHEDULING_GATE}},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]);
    let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
    let lift = |pod: String| {
        let (api, patch) = (&api, &patch);
        async move {
            api.patch(&pod, &PatchParams::default(), patch).await?;
            anyhow::Ok(())
        }
    };
    let lifts = stream::iter(pods).map(lift).buffer_unordered(WORKERS);
    lifts.try_collect().await
}
