//! The init container that waits until the cliques before this one are ready.
//!
//! It runs last of all init containers, with a token of the pod's own service account that is projected for it alone
//! and lives an hour, so that nothing else in the pod gains a right. It runs under the strictest profile, and its
//! limits equal its requests, so that a pod that is guaranteed its resources stays so.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath,
    ObjectFieldSelector, PodSpec, ProjectedVolumeSource, ResourceRequirements, SeccompProfile, SecurityContext,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::expand::order::Parent;

const CONTAINER: &str = "grove-initc";
const CREDENTIALS: &str = "grove-wait-credentials";
/// Where a client in a cluster looks for its credentials. As the place is taken, the API server does not mount a
/// second token there.
const CREDENTIALS_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_SECONDS: i64 = 3600;
/// Any user but root, whatever user the rest of the pod runs as.
const USER: i64 = 65_532;

/// Lets a pod of `clique` wait for these.
pub(super) fn add(spec: &mut PodSpec, (clique, parents): (&str, &[Parent]), image: &str) {
    spec.volumes.get_or_insert_default().push(credentials());
    spec.init_containers
        .get_or_insert_default()
        .push(container(clique, parents, image));
}

fn container(clique: &str, parents: &[Parent], image: &str) -> Container {
    let waits = parents
        .iter()
        .map(|parent| format!("--podcliques={}:{}", parent.name, parent.ready));
    let waits = waits.chain([format!("--of={clique}")]);
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        args: Some(std::iter::once("wait-for".to_owned()).chain(waits).collect()),
        resources: Some(resources()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: CREDENTIALS.to_owned(),
            mount_path: CREDENTIALS_PATH.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

fn resources() -> ResourceRequirements {
    let quantities: BTreeMap<String, Quantity> = [("cpu", "100m"), ("memory", "64Mi")]
        .map(|(name, value)| (name.to_owned(), Quantity(value.to_owned())))
        .into();
    ResourceRequirements {
        limits: Some(quantities.clone()),
        requests: Some(quantities),
        claims: None,
    }
}

fn credentials() -> Volume {
    let token = ServiceAccountTokenProjection {
        path: "token".to_owned(),
        expiration_seconds: Some(TOKEN_SECONDS),
        audience: None,
    };
    let authority = ConfigMapProjection {
        name: "kube-root-ca.crt".to_owned(),
        items: Some(vec![KeyToPath {
            key: "ca.crt".to_owned(),
            path: "ca.crt".to_owned(),
            mode: None,
        }]),
        optional: None,
    };
    let namespace = DownwardAPIVolumeFile {
        path: "namespace".to_owned(),
        field_ref: Some(ObjectFieldSelector {
            api_version: None,
            field_path: "metadata.namespace".to_owned(),
        }),
        ..DownwardAPIVolumeFile::default()
    };
    let sources = vec![
        VolumeProjection {
            service_account_token: Some(token),
            ..VolumeProjection::default()
        },
        VolumeProjection {
            config_map: Some(authority),
            ..VolumeProjection::default()
        },
        VolumeProjection {
            downward_api: Some(DownwardAPIProjection {
                items: Some(vec![namespace]),
            }),
            ..VolumeProjection::default()
        },
    ];
    Volume {
        name: CREDENTIALS.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(sources),
            default_mode: None,
        }),
        ..Volume::default()
    }
}
