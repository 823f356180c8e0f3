//! The built-in kinds as data.

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Form, Resource, Subresource, Traits, Version, events};
use crate::patch::{builtin_types, is_plain};
use crate::rules::names::NameRule;
use crate::store::ResourceName;

/// One built-in kind, served in one version.
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

/// A namespaced kind without anything special; its names are those of the generated type.
fn kind<K: k8s_openapi::Resource + DeserializeOwned + Serialize>(plural: &'static str) -> Builtin {
    Builtin {
        group: K::GROUP,
        version: K::VERSION,
        plural,
        kind: K::KIND,
        short_names: &[],
        categories: &[],
        namespaced: true,
        subresources: &[],
        selectable: &[],
        traits: Traits::USUAL,
        form: Form::Typed(typed::<K>),
    }
}

/// What clients of a kind are told that something newer is for.
fn deprecation(plural: &str) -> Option<String> {
    let warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
    (plural == "endpoints").then(|| warning.to_owned())
}

impl Builtin {
    fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn short(mut self, short_names: &'static [&'static str]) -> Self {
        self.short_names = short_names;
        self
    }

    fn in_categories(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    fn with(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }

    fn selectable(mut self, fields: &'static [&'static str]) -> Self {
        self.selectable = fields;
        self
    }

    fn traits(mut self, traits: Traits) -> Self {
        self.traits = traits;
        self
    }

    fn form(mut self, form: Form) -> Self {
        self.form = form;
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
                deprecation: deprecation(self.plural),
            }],
            subresources: self.subresources.to_vec(),
            selectable: owned(self.selectable),
            plain_field_error: PLAIN_FIELD_ERROR.contains(&self.plural),
            traits: self.traits,
            custom: false,
            conversion: None,
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
///
/// Nearly all objects come out as they went in. To see that costs a fraction of the way through the type.
fn typed<K: k8s_openapi::Resource + DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    let schema = builtin_types().kind(K::API_VERSION, K::KIND);
    // Every object has metadata, though no schema says so.
    let schema = schema.filter(|_| object["metadata"].is_object());
    let mut decoded = match schema.is_some_and(|schema| is_plain(object, schema)) {
        true => object.clone(),
        false => verbatim::<K>(object)?,
    };
    drop_empty_lists(&mut decoded);
    Ok(decoded)
}

/// Decodes through a generated type that carries somebody else's JSON, in which every list has a meaning.
fn verbatim<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(K::deserialize(object)?)
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
    let all = core()
        .into_iter()
        .chain(events())
        .chain(rbac())
        .chain(scheduling())
        .chain(installed())
        .chain(extension());
    all.map(Builtin::resource).collect()
}

/// A kind whose deletion answers with the object.
const ANSWERED: Traits = Traits {
    delete_answers_object: true,
    ..Traits::USUAL
};

fn core() -> Vec<Builtin> {
    use Subresource::{Binding, Eviction, Finalize, Status, Token};
    use api::core::v1::{
        ConfigMap, Endpoints, LimitRange, Namespace, Node, Pod, ResourceQuota, Secret, Service, ServiceAccount,
    };
    use api::discovery::v1::EndpointSlice;
    let put_creates = Traits {
        put_creates: true,
        ..Traits::USUAL
    };
    let namespace = Traits {
        delete_collection: false,
        names: NameRule::Label,
        ..ANSWERED
    };
    let service = Traits {
        put_creates: true,
        names: NameRule::Label,
        ..ANSWERED
    };
    vec![
        kind::<ConfigMap>("configmaps").short(&["cm"]),
        kind::<Endpoints>("endpoints").short(&["ep"]).traits(put_creates),
        kind::<EndpointSlice>("endpointslices").traits(COUNTED),
        kind::<LimitRange>("limitranges").short(&["limits"]).traits(put_creates),
        kind::<Namespace>("namespaces")
            .cluster_scoped()
            .short(&["ns"])
            .with(&[Finalize, Status])
            .selectable(&["status.phase"])
            .traits(namespace),
        kind::<Node>("nodes")
            .cluster_scoped()
            .short(&["no"])
            .with(&[Status])
            .selectable(&["spec.unschedulable"]),
        kind::<Pod>("pods")
            .short(&["po"])
            .in_categories(&["all"])
            .with(&[Binding, Eviction, Status])
            .selectable(&POD_FIELDS)
            .traits(Traits {
                generation: true,
                ..ANSWERED
            }),
        kind::<ResourceQuota>("resourcequotas")
            .short(&["quota"])
            .with(&[Status])
            .traits(Traits {
                put_creates: true,
                ..ANSWERED
            }),
        kind::<Secret>("secrets").selectable(&["type"]),
        kind::<ServiceAccount>("serviceaccounts")
            .short(&["sa"])
            .with(&[Token])
            .traits(ANSWERED),
        kind::<Service>("services")
            .short(&["svc"])
            .in_categories(&["all"])
            .with(&[Status])
            .selectable(&["spec.clusterIP", "spec.type"])
            .traits(service),
    ]
}

fn events() -> Vec<Builtin> {
    let traits = Traits {
        put_creates: true,
        ..Traits::USUAL
    };
    let view = Form::Converted {
        decode: typed::<api::events::v1::Event>,
        store: events::to_core,
        serve: events::from_core,
    };
    vec![
        kind::<api::core::v1::Event>("events")
            .short(&["ev"])
            .selectable(&events::CORE_FIELDS)
            .traits(traits),
        kind::<api::events::v1::Event>("events")
            .short(&["ev"])
            .selectable(&events::EVENTS_FIELDS)
            .traits(traits)
            .form(view),
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
    let updated_only = Traits {
        put_creates: false,
        ..RBAC
    };
    vec![
        kind::<ClusterRoleBinding>("clusterrolebindings")
            .cluster_scoped()
            .traits(updated_only),
        kind::<ClusterRole>("clusterroles").cluster_scoped().traits(RBAC),
        kind::<RoleBinding>("rolebindings").traits(RBAC),
        kind::<Role>("roles").traits(RBAC),
    ]
}

fn scheduling() -> Vec<Builtin> {
    use Subresource::Status;
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
    let counted = Traits {
        generation: true,
        ..ANSWERED
    };
    let budget = Traits {
        locked_update: true,
        ..COUNTED
    };
    vec![
        kind::<HorizontalPodAutoscaler>("horizontalpodautoscalers")
            .short(&["hpa"])
            .in_categories(&["all"])
            .with(&[Status]),
        kind::<Lease>("leases").traits(lease),
        kind::<PodDisruptionBudget>("poddisruptionbudgets")
            .short(&["pdb"])
            .with(&[Status])
            .traits(budget),
        kind::<DeviceClass>("deviceclasses").cluster_scoped().traits(counted),
        kind::<ResourceClaim>("resourceclaims").with(&[Status]).traits(ANSWERED),
        kind::<ResourceClaimTemplate>("resourceclaimtemplates").traits(ANSWERED),
        kind::<ResourceSlice>("resourceslices")
            .cluster_scoped()
            .selectable(&["spec.nodeName", "spec.driver"])
            .traits(counted),
        kind::<PriorityClass>("priorityclasses")
            .cluster_scoped()
            .short(&["pc"])
            .traits(COUNTED),
    ]
}

/// Kinds that are kept for who installs something; nothing follows from them.
fn installed() -> Vec<Builtin> {
    use Subresource::{Scale, Status};
    use api::apps::v1::Deployment;
    use api::networking::v1::NetworkPolicy;
    vec![
        kind::<Deployment>("deployments")
            .short(&["deploy"])
            .in_categories(&["all"])
            .with(&[Scale, Status])
            .traits(COUNTED),
        kind::<NetworkPolicy>("networkpolicies")
            .short(&["netpol"])
            .traits(COUNTED),
    ]
}

fn extension() -> Vec<Builtin> {
    use api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
    use api::apps::v1::ControllerRevision;
    const CATEGORY: &[&str] = &["api-extensions"];
    vec![
        kind::<ControllerRevision>("controllerrevisions").form(Form::Typed(verbatim::<ControllerRevision>)),
        kind::<MutatingWebhookConfiguration>("mutatingwebhookconfigurations")
            .cluster_scoped()
            .in_categories(CATEGORY)
            .traits(COUNTED),
        kind::<ValidatingWebhookConfiguration>("validatingwebhookconfigurations")
            .cluster_scoped()
            .in_categories(CATEGORY)
            .traits(COUNTED),
        kind::<CustomResourceDefinition>("customresourcedefinitions")
            .cluster_scoped()
            .short(&["crd", "crds"])
            .in_categories(CATEGORY)
            .with(&[Subresource::Status])
            .traits(Traits {
                locked_update: true,
                ..COUNTED
            })
            .form(Form::Typed(verbatim::<CustomResourceDefinition>)),
    ]
}
