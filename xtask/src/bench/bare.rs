//! The bare client: it knows the objects beforehand, and writes them as fast as it can.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use grove_api::labels;
use grove_e2e::eventually;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::core::{GroupVersionKind, TypeMeta};
use serde_json::{Value, json};

pub(super) const WORKERS: usize = 32;
/// How long things may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(600);
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
    /// Takes everything that the operator made in a namespace, as the bare client makes it.
    pub(super) async fn take(client: &Client, namespace: &str) -> Result<Self> {
        let mut copies = Self::originals(client, namespace).await?;
        for object in copies.steps.iter_mut().flatten() {
            strip(object);
        }
        Ok(copies)
    }

    /// Everything that the operator made in a namespace, as it is.
    pub(super) async fn originals(client: &Client, namespace: &str) -> Result<Self> {
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
                let typed = |mut object: DynamicObject| {
                    object.types = Some(types.clone());
                    object
                };
                objects.extend(found.items.into_iter().map(typed));
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
        self.of_pods(true).map(ResourceExt::name_any)
    }

    /// The pods, or everything else.
    pub(super) fn of_pods(&self, is_pod: bool) -> impl Iterator<Item = &DynamicObject> {
        let is = |object: &DynamicObject| object.types.as_ref().is_some_and(|types| types.kind == "Pod");
        self.steps.iter().flatten().filter(move |object| is(object) == is_pod)
    }
}

/// An object as its maker sends it: without an owner or a place, and nobody's who watches for what it manages.
fn strip(object: &mut DynamicObject) {
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
    if object.types.as_ref().is_some_and(|types| types.kind == "Pod") {
        object.data["spec"]["schedulingGates"] = json!([{"name": labels::SCHEDULING_GATE}]);
        object.data["spec"]["nodeName"] = Value::Null;
    }
}

/// Selects the copies.
pub(super) fn selector() -> String {
    format!("{}={MANAGER}", labels::MANAGED_BY)
}

fn api_of(client: &Client, namespace: &str, types: &TypeMeta) -> Result<Api<DynamicObject>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    Ok(Api::namespaced_with(client.clone(), namespace, &resource))
}

pub(super) async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await?;
    Ok(())
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

/// Deletes objects, several at once, and waits until they are gone.
pub(super) async fn delete(client: &Client, namespace: &str, objects: &[&DynamicObject]) -> Result<()> {
    let delete = |object: &&DynamicObject| {
        let name = object.name_any();
        let types = object.types.clone();
        async move {
            let api = api_of(client, namespace, &types.context("an object with its kind")?)?;
            match api.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                deleted => deleted.map(drop).map_err(anyhow::Error::new),
            }
        }
    };
    let deletes = stream::iter(objects).map(delete).buffer_unordered(WORKERS);
    deletes.try_collect::<()>().await?;
    let mut kinds: Vec<&TypeMeta> = objects.iter().filter_map(|object| object.types.as_ref()).collect();
    kinds.sort_by_key(|types| &types.kind);
    kinds.dedup();
    let managers: Vec<&String> = objects
        .iter()
        .filter_map(|object| object.labels().get(labels::MANAGED_BY))
        .collect();
    let Some(manager) = managers.first() else {
        return Ok(());
    };
    for types in kinds {
        let api = api_of(client, namespace, types)?;
        let some = ListParams::default()
            .labels(&format!("{}={manager}", labels::MANAGED_BY))
            .limit(1);
        gone(&api, &some).await?;
    }
    Ok(())
}

/// Waits until nothing of a kind is left.
pub(super) async fn gone<K>(api: &Api<K>, wanted: &ListParams) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    eventually("what was deleted to be gone", GONE_MAX, async || -> Result<()> {
        let left = api.list_metadata(wanted).await?;
        ensure!(left.items.is_empty(), "{} is there", left.items[0].name_any());
        Ok(())
    })
    .await?;
    Ok(())
}

/// Binds pods to nodes, so many at once.
pub(super) async fn bind(
    client: &Client,
    namespace: &str,
    places: impl Iterator<Item = (String, String)>,
    at_once: usize,
) -> Result<()> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let bind = |(pod, node): (String, String)| {
        let pods = &pods;
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target});
        async move {
            let parameters = PostParams::default();
            pods.create_subresource::<_, Value>("binding", &pod, &parameters, &binding)
                .await?;
            anyhow::Ok(())
        }
    };
    let binds = stream::iter(places).map(bind).buffer_unordered(at_once);
    binds.try_collect().await
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
