//! The built-in kinds as data.

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Form, Resource, Subresource, Traits, Version, events};
use crate::rules::names::NameRule;
use crate::store::ResourceName;

/// One built-in kind. Where the group has several versions, `version` is the one that is served.
struct Builtin {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    subresources: &'static [Subresource],
    selectable: &'static [&'static str],
    traits: Traits,
    form: Form,
}

impl Builtin {
    /// A namespaced kind of version `v1` without anything special.
    const fn new(group: &'static str, plural: &'static str, kind: &'static str, form: Form) -> Self {
        Self {
            group,
            version: "v1",
            plural,
            kind,
            short_names: &[],
            categories: &[],
            namespaced: true,
            subresources: &[],
            selectable: &[],
            traits: Traits::USUAL,
            form,
        }
    }

    const fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn short(mut self, short_names: &'static [&'static str]) -> Self {
        self.short_names = short_names;
        self
    }

    const fn in_categories(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    const fn with(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }

    const fn selectable(mut self, fields: &'static [&'static str]) -> Self {
        self.selectable = fields;
        self
    }

    const fn traits(mut self, traits: Traits) -> Self {
        self.traits = traits;
        self
    }

    fn resource(self) -> Resource {
        let name = ResourceName::new(self.group, self.plural);
        let storage = match self.form {
            Form::Converted { .. } => ResourceName::new("", self.plural),
            Form::Typed(_) | Form::Custom(_) => name.clone(),
        };
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Resource {
            storage,
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind),
            singular: self.kind.to_lowercase(),
            short_names: owned(self.short_names),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            versions: vec![Version {
                name: self.version.into(),
                form: self.form,
                deprecation: None,
            }],
            subresources: self.subresources.to_vec(),
            selectable: owned(self.selectable),
            plain_field_error: PLAIN_FIELD_ERROR.contains(&self.plural),
            traits: self.traits,
            custom: false,
            name,
        }
    }
}

/// Kinds with a field label conversion of their own, which words the error about an unknown field plainly.
const PLAIN_FIELD_ERROR: [&str; 6] = ["pods", "nodes", "namespaces", "services", "secrets", "events"];

const COUNTED: Traits = Traits {
    generation: true,
    ..Traits::USUAL
};
const RBAC: Traits = Traits {
    put_creates: true,
    names: NameRule::PathSegment,
    ..Traits::USUAL
};

/// Decodes through a generated type: wrong types are errors, unknown fields are gone afterwards, and so are empty
/// lists, which Go's types leave out.
fn typed<K: DeserializeOwned + Serialize>(object: Value) -> Result<Value, serde_json::Error> {
    let mut decoded = verbatim::<K>(object)?;
    drop_empty_lists(&mut decoded);
    Ok(decoded)
}

/// Decodes through a generated type that carries somebody else's JSON, in which every list has a meaning.
fn verbatim<K: DeserializeOwned + Serialize>(object: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<K>(object)?)
}

fn drop_empty_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !matches!(field, Value::Array(list) if list.is_empty()));
            fields.values_mut().for_each(drop_empty_lists);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_lists),
        _ => {}
    }
}

pub(super) fn resources() -> Vec<Resource> {
    let all = core().into_iter().chain(rbac()).chain(scheduling()).chain(extension());
    all.map(Builtin::resource).collect()
}

fn core() -> Vec<Builtin> {
    use Subresource::{Binding, Eviction, Finalize, Status, Token};
    use api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, Service, ServiceAccount};
    let namespace = Traits {
        delete_collection: false,
        delete_answers_object: true,
        names: NameRule::Label,
        ..Traits::USUAL
    };
    let service = Traits {
        put_creates: true,
        delete_answers_object: true,
        names: NameRule::ServiceLabel,
        ..Traits::USUAL
    };
    let pod = Traits {
        delete_answers_object: true,
        ..COUNTED
    };
    let event = Traits {
        put_creates: true,
        ..Traits::USUAL
    };
    let service_account = Traits {
        delete_answers_object: true,
        ..Traits::USUAL
    };
    let events = Form::Converted {
        decode: typed::<api::events::v1::Event>,
        store: events::to_core,
        serve: events::from_core,
    };
    vec![
        Builtin::new("", "configmaps", "ConfigMap", Form::Typed(typed::<ConfigMap>)).short(&["cm"]),
        Builtin::new("", "events", "Event", Form::Typed(typed::<Event>))
            .short(&["ev"])
            .selectable(&events::CORE_FIELDS)
            .traits(event),
        Builtin::new("events.k8s.io", "events", "Event", events)
            .short(&["ev"])
            .selectable(&events::EVENTS_FIELDS)
            .traits(event),
        Builtin::new("", "namespaces", "Namespace", Form::Typed(typed::<Namespace>))
            .cluster_scoped()
            .short(&["ns"])
            .with(&[Finalize, Status])
            .selectable(&["status.phase"])
            .traits(namespace),
        Builtin::new("", "nodes", "Node", Form::Typed(typed::<Node>))
            .cluster_scoped()
            .short(&["no"])
            .with(&[Status])
            .selectable(&["spec.unschedulable"]),
        Builtin::new("", "pods", "Pod", Form::Typed(typed::<Pod>))
            .short(&["po"])
            .in_categories(&["all"])
            .with(&[Binding, Eviction, Status])
            .selectable(&POD_FIELDS)
            .traits(pod),
        Builtin::new("", "secrets", "Secret", Form::Typed(typed::<Secret>)).selectable(&["type"]),
        Builtin::new(
            "",
            "serviceaccounts",
            "ServiceAccount",
            Form::Typed(typed::<ServiceAccount>),
        )
        .short(&["sa"])
        .with(&[Token])
        .traits(service_account),
        Builtin::new("", "services", "Service", Form::Typed(typed::<Service>))
            .short(&["svc"])
            .in_categories(&["all"])
            .with(&[Status])
            .selectable(&["spec.clusterIP", "spec.type"])
            .traits(service),
    ]
}

const POD_FIELDS: [&str; 9] = [
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

fn rbac() -> Vec<Builtin> {
    use api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
    const GROUP: &str = "rbac.authorization.k8s.io";
    vec![
        Builtin::new(
            GROUP,
            "clusterrolebindings",
            "ClusterRoleBinding",
            Form::Typed(typed::<ClusterRoleBinding>),
        )
        .cluster_scoped()
        .traits(Traits {
            put_creates: false,
            ..RBAC
        }),
        Builtin::new(GROUP, "clusterroles", "ClusterRole", Form::Typed(typed::<ClusterRole>))
            .cluster_scoped()
            .traits(RBAC),
        Builtin::new(GROUP, "rolebindings", "RoleBinding", Form::Typed(typed::<RoleBinding>)).traits(RBAC),
        Builtin::new(GROUP, "roles", "Role", Form::Typed(typed::<Role>)).traits(RBAC),
    ]
}

fn scheduling() -> Vec<Builtin> {
    use Subresource::Status;
    use api::apps::v1::ControllerRevision;
    use api::autoscaling::v2::HorizontalPodAutoscaler;
    use api::coordination::v1::Lease;
    use api::policy::v1::PodDisruptionBudget;
    use api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
    use api::scheduling::v1::PriorityClass;
    let lease = Traits {
        locked_update: true,
        put_creates: true,
        ..Traits::USUAL
    };
    let budget = Traits {
        locked_update: true,
        ..COUNTED
    };
    let mut autoscaler = Builtin::new(
        "autoscaling",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        Form::Typed(typed::<HorizontalPodAutoscaler>),
    )
    .short(&["hpa"])
    .in_categories(&["all"])
    .with(&[Status]);
    autoscaler.version = "v2";
    const DRA: &str = "resource.k8s.io";
    vec![
        autoscaler,
        Builtin::new(
            "apps",
            "controllerrevisions",
            "ControllerRevision",
            Form::Typed(verbatim::<ControllerRevision>),
        ),
        Builtin::new("coordination.k8s.io", "leases", "Lease", Form::Typed(typed::<Lease>)).traits(lease),
        Builtin::new(
            "policy",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            Form::Typed(typed::<PodDisruptionBudget>),
        )
        .short(&["pdb"])
        .with(&[Status])
        .traits(budget),
        Builtin::new(DRA, "deviceclasses", "DeviceClass", Form::Typed(typed::<DeviceClass>))
            .cluster_scoped()
            .traits(COUNTED),
        Builtin::new(
            DRA,
            "resourceclaims",
            "ResourceClaim",
            Form::Typed(typed::<ResourceClaim>),
        )
        .with(&[Status]),
        Builtin::new(
            DRA,
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            Form::Typed(typed::<ResourceClaimTemplate>),
        ),
        Builtin::new(
            DRA,
            "resourceslices",
            "ResourceSlice",
            Form::Typed(typed::<ResourceSlice>),
        )
        .cluster_scoped()
        .selectable(&["spec.nodeName", "spec.driver"])
        .traits(COUNTED),
        Builtin::new(
            "scheduling.k8s.io",
            "priorityclasses",
            "PriorityClass",
            Form::Typed(typed::<PriorityClass>),
        )
        .cluster_scoped()
        .short(&["pc"])
        .traits(COUNTED),
    ]
}

fn extension() -> Vec<Builtin> {
    use api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
    const ADMISSION: &str = "admissionregistration.k8s.io";
    const CATEGORY: &[&str] = &["api-extensions"];
    let definition = Traits {
        locked_update: true,
        ..COUNTED
    };
    vec![
        Builtin::new(
            ADMISSION,
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            Form::Typed(typed::<MutatingWebhookConfiguration>),
        )
        .cluster_scoped()
        .in_categories(CATEGORY)
        .traits(COUNTED),
        Builtin::new(
            ADMISSION,
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            Form::Typed(typed::<ValidatingWebhookConfiguration>),
        )
        .cluster_scoped()
        .in_categories(CATEGORY)
        .traits(COUNTED),
        Builtin::new(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            Form::Typed(verbatim::<CustomResourceDefinition>),
        )
        .cluster_scoped()
        .short(&["crd", "crds"])
        .in_categories(CATEGORY)
        .with(&[Subresource::Status])
        .traits(definition),
    ]
}
