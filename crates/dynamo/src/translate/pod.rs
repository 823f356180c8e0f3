//! The pod of a component: what the user wrote, with the defaults of its type where nothing was written.

use std::collections::BTreeMap;

use grove_api::DynamoGraphDeployment;
use grove_api::config::DynamoServices;
use grove_api::dynamo::{Component, ComponentType};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector,
    PodSecurityContext, PodSpec, Probe, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::cliques::{Part, Scene};
use super::{Untranslatable, access, launch, template};

pub(super) const MAIN: &str = "main";
const GRACE_SECONDS: i64 = 60;
const FS_GROUP: i64 = 1000;
const SHARED_MEMORY: &str = "8Gi";
const SHARED_MEMORY_VOLUME: &str = "shared-memory";

pub(super) const HTTP_PORT: i32 = 8000;
pub(super) const SYSTEM_PORT: i32 = 9090;
const NIXL_PORT: i32 = 19090;
const PLANNER_PORT: i32 = 9085;

/// A pod, and what its metadata says.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) spec: PodSpec,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

pub(super) fn of(scene: Scene<'_>, part: Part) -> Result<Made, Untranslatable> {
    let path = scene.path();
    let written = template::read(scene.component, &path)?;
    let metadata = written.metadata.unwrap_or_default();
    let mut spec = written.spec.unwrap_or_default();
    let (mut mains, sidecars): (Vec<_>, Vec<_>) = std::mem::take(&mut spec.containers)
        .into_iter()
        .partition(|container| container.name == MAIN);
    let mut main = mains.pop().unwrap_or_else(|| Container {
        name: MAIN.to_owned(),
        ..Container::default()
    });
    if main.image.as_deref().is_none_or(str::is_empty) {
        return Err(Untranslatable::new(
            format!("{path}.podTemplate.spec.containers"),
            "Required value: a container \"main\" with an image is required",
        ));
    }
    put_defaults(&scene, &mut main)?;
    launch::put_command(&scene, part, &mut spec, &mut main)?;
    put_shared_memory(scene.component, &mut spec, &mut main);
    spec.containers = [main].into_iter().chain(sidecars).collect();
    spec.termination_grace_period_seconds.get_or_insert(GRACE_SECONDS);
    spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
    spec.security_context.get_or_insert_with(|| PodSecurityContext {
        fs_group: Some(FS_GROUP),
        ..PodSecurityContext::default()
    });
    spec.service_account_name = spec
        .service_account_name
        .or_else(|| access::account_of(scene.graph, scene.component, scene.around));
    Ok(Made {
        spec,
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default(),
    })
}

/// The namespace in which Dynamo's own processes find each other.
pub(crate) fn dynamo_namespace(graph: &DynamoGraphDeployment, component: &Component) -> String {
    match component.global_dynamo_namespace {
        Some(true) => "dynamo".to_owned(),
        _ => format!("{}-{}", graph.namespace().unwrap_or_default(), graph.name_any()),
    }
}

fn put_defaults(scene: &Scene<'_>, main: &mut Container) -> Result<(), Untranslatable> {
    let type_ = scene.component.type_;
    if main.ports.as_ref().is_none_or(Vec::is_empty) {
        main.ports = Some(ports(type_)).filter(|ports| !ports.is_empty());
    }
    put_probes(type_, main);
    let of_graph = template::read_env(&scene.graph.spec.env)?;
    let mut env = environment(scene);
    for var in of_graph.into_iter().chain(main.env.take().unwrap_or_default()) {
        match env.iter_mut().find(|known| known.name == var.name) {
            Some(known) => *known = var,
            None => env.push(var),
        }
    }
    main.env = Some(env);
    Ok(())
}

fn ports(type_: Option<ComponentType>) -> Vec<ContainerPort> {
    let named: &[(&str, i32)] = match type_ {
        Some(ComponentType::Frontend) => &[("http", HTTP_PORT)],
        Some(ComponentType::Planner) => &[("metrics", PLANNER_PORT), ("system", SYSTEM_PORT)],
        Some(type_) if type_.is_worker() => &[("system", SYSTEM_PORT), ("nixl", NIXL_PORT)],
        _ => &[],
    };
    let port = |(name, number): &(&str, i32)| ContainerPort {
        name: Some((*name).to_owned()),
        container_port: *number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    named.iter().map(port).collect()
}

/// Models take long to load: a worker has two hours to start.
fn put_probes(type_: Option<ComponentType>, main: &mut Container) {
    match type_ {
        Some(ComponentType::Frontend) => {
            main.liveness_probe
                .get_or_insert_with(|| probe("/live", "http", (10, 3), Some(15)));
            main.readiness_probe
                .get_or_insert_with(|| probe("/health", "http", (10, 3), Some(10)));
        }
        Some(type_) if type_.is_worker() => {
            main.liveness_probe
                .get_or_insert_with(|| probe("/live", "system", (5, 1), None));
            main.readiness_probe
                .get_or_insert_with(|| probe("/health", "system", (10, 3), None));
            main.startup_probe
                .get_or_insert_with(|| probe("/live", "system", (10, 720), None));
        }
        _ => {}
    }
}

fn probe(path: &str, port: &str, (period, failures): (i32, i32), delay: Option<i32>) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(port.to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        failure_threshold: Some(failures),
        initial_delay_seconds: delay,
        ..Probe::default()
    }
}

fn environment(scene: &Scene<'_>) -> Vec<EnvVar> {
    let (graph, component) = (scene.graph, scene.component);
    let mut env = vec![
        plain("DYN_NAMESPACE", dynamo_namespace(graph, component)),
        plain("DYN_COMPONENT", component.name.clone()),
        plain("DYN_PARENT_DGD_K8S_NAME", graph.name_any()),
        plain("DYN_PARENT_DGD_K8S_NAMESPACE", graph.namespace().unwrap_or_default()),
    ];
    if scene.around.has_discovery() {
        let backend = scene.around.discovery.as_str();
        env.push(plain("DYN_DISCOVERY_BACKEND", backend.to_owned()));
    }
    env.extend([
        of_field("POD_NAME", "metadata.name"),
        of_field("POD_NAMESPACE", "metadata.namespace"),
        of_field("POD_UID", "metadata.uid"),
    ]);
    env.extend(services(&scene.around.services));
    match component.type_ {
        Some(ComponentType::Frontend) => env.push(plain("DYN_HTTP_PORT", HTTP_PORT.to_string())),
        Some(type_) if type_.is_worker() => env.extend([
            plain("DYN_SYSTEM_ENABLED", "true".to_owned()),
            plain("DYN_SYSTEM_PORT", SYSTEM_PORT.to_string()),
            plain("DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", "[\"generate\"]".to_owned()),
        ]),
        _ => {}
    }
    env
}

/// What the operator's configuration knows of the services that components use.
fn services(services: &DynamoServices) -> impl Iterator<Item = EnvVar> {
    let named = [
        ("NATS_SERVER", &services.nats_address),
        ("ETCD_ENDPOINTS", &services.etcd_address),
        ("MODEL_EXPRESS_URL", &services.model_express_url),
        ("PROMETHEUS_ENDPOINT", &services.prometheus_endpoint),
    ];
    let known = named
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)));
    known.map(|(name, value)| plain(name, value))
}

fn plain(name: &str, value: String) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value),
        value_from: None,
    }
}

fn of_field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector {
        api_version: None,
        field_path: path.to_owned(),
    };
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(field),
            ..EnvVarSource::default()
        }),
    }
}

fn put_shared_memory(component: &Component, spec: &mut PodSpec, main: &mut Container) {
    let size = component.shared_memory_size.as_deref().unwrap_or(SHARED_MEMORY);
    let volumes = spec.volumes.get_or_insert_default();
    if size == "0" || volumes.iter().any(|volume| volume.name == SHARED_MEMORY_VOLUME) {
        spec.volumes = spec.volumes.take().filter(|volumes| !volumes.is_empty());
        return;
    }
    volumes.push(Volume {
        name: SHARED_MEMORY_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(size.to_owned())),
        }),
        ..Volume::default()
    });
    main.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: SHARED_MEMORY_VOLUME.to_owned(),
        mount_path: "/dev/shm".to_owned(),
        ..VolumeMount::default()
    });
}
