//! A component as cliques: one, or on several nodes a leader and its workers in a scaling group.

use std::collections::BTreeMap;

use grove_api::dynamo::{BackendFramework, Component, words};
use grove_api::podcliqueset::{PodCliqueTemplate, ScalingGroupTemplate};
use grove_api::{DynamoGraphDeployment, PodCliqueSpec};
use kube::ResourceExt;

use super::names::{CliqueNames, hash};
use super::{Surroundings, Untranslatable, constraint, launch, pod};

/// What KAI calls the queue of graphs that name none.
const DEFAULT_QUEUE: &str = "dynamo";

/// The part that a pod plays in its component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The only kind of pod that there is.
    Alone,
    Leader,
    Worker,
}

/// A component of a graph, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    pub(super) graph: &'a DynamoGraphDeployment,
    pub(super) component: &'a Component,
    pub(super) backend: Option<BackendFramework>,
    pub(super) around: &'a Surroundings,
    pub(super) index: usize,
}

impl Scene<'_> {
    pub(super) fn path(&self) -> String {
        format!("spec.components[{}]", self.index)
    }
}

/// The cliques of a component, and the group that scales them.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) cliques: Vec<PodCliqueTemplate>,
    pub(super) group: Option<ScalingGroupTemplate>,
}

pub(super) fn of(graph: &DynamoGraphDeployment, index: usize, around: &Surroundings) -> Result<Made, Untranslatable> {
    let component = &graph.spec.components[index];
    let scene = Scene {
        graph,
        component,
        backend: launch::backend(graph, index)?,
        around,
        index,
    };
    let names = CliqueNames::of(component);
    let cliques = if component.is_multinode() {
        let workers = component.node_count() - 1;
        let mut leader = clique(scene, Part::Leader, names.leader(), (1, 1))?;
        if scene.backend == Some(BackendFramework::Trtllm) {
            // It reaches into its workers as soon as it runs.
            leader.spec.starts_after = vec![names.worker()];
        }
        vec![leader, clique(scene, Part::Worker, names.worker(), (workers, workers))?]
    } else if component.is_grouped() {
        vec![clique(scene, Part::Alone, names.component.clone(), (1, 1))?]
    } else {
        let size = (component.replicas, component.min_available());
        let mut alone = clique(scene, Part::Alone, names.component.clone(), size)?;
        alone.topology_constraint = word(component).map(constraint);
        vec![alone]
    };
    let group = component.is_grouped().then(|| ScalingGroupTemplate {
        name: names.component,
        clique_names: cliques.iter().map(|clique| clique.name.clone()).collect(),
        annotations: BTreeMap::new(),
        replicas: Some(component.replicas),
        min_available: Some(component.min_available()),
        scale_config: None,
        resource_sharing: Vec::new(),
        // The cliques inherit it: of their own they would be packed apart from each other.
        topology_constraint: word(component).map(constraint),
    });
    Ok(Made { cliques, group })
}

fn word(component: &Component) -> Option<&str> {
    component
        .topology_constraint
        .as_ref()
        .map(|constraint| constraint.pack_domain.as_str())
}

fn clique(
    scene: Scene<'_>,
    part: Part,
    name: String,
    (replicas, min_available): (i32, i32),
) -> Result<PodCliqueTemplate, Untranslatable> {
    let made = pod::of(scene, part)?;
    let mut labels = scene.graph.spec.labels.clone();
    labels.extend(made.labels);
    labels.extend(system_labels(&scene)?);
    let mut annotations = scene.graph.spec.annotations.clone();
    annotations.extend(made.annotations);
    if let Some(restart) = &scene.graph.spec.restart {
        annotations.insert(words::RESTART.to_owned(), restart.id.clone());
    }
    Ok(PodCliqueTemplate {
        labels,
        annotations,
        spec: PodCliqueSpec {
            role_name: name.clone(),
            pod_spec: made.spec,
            replicas,
            min_available: Some(min_available),
            ..PodCliqueSpec::default()
        },
        name,
        ..PodCliqueTemplate::default()
    })
}

/// Labels by which Dynamo finds its pods. Nobody else may set them.
fn system_labels(scene: &Scene<'_>) -> Result<BTreeMap<String, String>, Untranslatable> {
    let (graph, component) = (scene.graph, scene.component);
    let name = super::lowered(component);
    let mut labels = BTreeMap::from([
        (words::SELECTOR.to_owned(), format!("{}-{name}", graph.name_any())),
        (words::GRAPH.to_owned(), graph.name_any()),
        (words::COMPONENT.to_owned(), component.name.clone()),
        (words::NAMESPACE.to_owned(), pod::dynamo_namespace(graph, component)),
    ]);
    if scene.around.has_discovery() {
        let backend = scene.around.discovery.as_str();
        labels.insert(words::DISCOVERY_BACKEND.to_owned(), backend.to_owned());
        labels.insert(words::DISCOVERY.to_owned(), "true".to_owned());
    }
    if let Some(type_) = component.type_ {
        labels.insert(words::COMPONENT_TYPE.to_owned(), type_.as_str().to_owned());
    }
    if component.type_.is_some_and(|type_| type_.is_worker()) {
        labels.insert(words::WORKER_HASH.to_owned(), worker_hash(component));
    }
    if graph
        .annotations()
        .get(words::ENABLE_METRICS)
        .is_none_or(|value| value != "false")
    {
        labels.insert(words::METRICS.to_owned(), "true".to_owned());
    }
    if scene.around.kai {
        labels.insert(words::KAI_QUEUE.to_owned(), queue(graph)?.to_owned());
    }
    Ok(labels)
}

/// The queue of KAI, whose name becomes a label of every pod.
fn queue(graph: &DynamoGraphDeployment) -> Result<&str, Untranslatable> {
    let annotations = graph.annotations();
    let queue = annotations.get(words::QUEUE).map_or(DEFAULT_QUEUE, String::as_str);
    let is_plain = |c: char| c.is_ascii_alphanumeric();
    let is_inside = |c: char| is_plain(c) || matches!(c, '-' | '_' | '.');
    let is_label =
        queue.len() <= 63 && queue.starts_with(is_plain) && queue.ends_with(is_plain) && queue.chars().all(is_inside);
    is_label.then_some(queue).ok_or_else(|| {
        let message = "must be the name of a queue: at most 63 letters, digits, '-', '_' and '.'";
        Untranslatable::new(
            format!("metadata.annotations[{}]", words::QUEUE),
            format!("Invalid value: \"{queue}\": {message}"),
        )
    })
}

/// Hash of what a worker was written as, how many there are left out: workers of one hash run the same.
fn worker_hash(component: &Component) -> String {
    let written = (&component.type_, &component.multinode, &component.pod_template);
    hash(&serde_json::to_string(&written).unwrap_or_default())
}
