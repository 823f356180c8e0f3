//! Which kinds there are: the built-in ones, described by data, and those that CustomResourceDefinitions add.
//!
//! A [`Registry`] is a value. A change of a CustomResourceDefinition makes a new one; a request works with the one it
//! started with. What objects of a kind must look like is in [`crate::rules`]; this module says which rules apply.

mod builtin;
mod conversion;
pub mod custom;
mod events;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::rules::names::NameRule;
use crate::schema::Schema;
use crate::store::ResourceName;
pub use conversion::Conversion;
pub use custom::CustomVersion;

/// A kind's subresources that are not the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subresource {
    /// Pods: assign a node.
    Binding,
    /// Pods: delete unless a disruption budget forbids it.
    Eviction,
    /// Namespaces: change `spec.finalizers`.
    Finalize,
    /// Replica count of anything that has one.
    Scale,
    /// The object's status.
    Status,
    /// Service accounts: issue a token.
    Token,
}

impl Subresource {
    /// All of them, in the order in which discovery lists them.
    pub const ALL: [Self; 6] = [
        Self::Binding,
        Self::Eviction,
        Self::Finalize,
        Self::Scale,
        Self::Status,
        Self::Token,
    ];

    /// Last segment of its path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Finalize => "finalize",
            Self::Scale => "scale",
            Self::Status => "status",
            Self::Token => "token",
        }
    }

    /// Verbs that discovery tells.
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Binding | Self::Eviction | Self::Token => &["create"],
            Self::Finalize => &["update"],
            Self::Scale | Self::Status => &["get", "patch", "update"],
        }
    }

    /// Group, version and kind of what is sent and answered, where that is not the object itself.
    pub fn answers(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Binding => Some(("", "v1", "Binding")),
            Self::Eviction => Some(("policy", "v1", "Eviction")),
            Self::Scale => Some(("autoscaling", "v1", "Scale")),
            Self::Token => Some(("authentication.k8s.io", "v1", "TokenRequest")),
            Self::Finalize | Self::Status => None,
        }
    }
}

/// What sets one kind apart from another, beyond its names.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// `metadata.generation` counts changes of the desired state.
    pub generation: bool,
    /// A PUT must carry `metadata.resourceVersion`.
    pub locked_update: bool,
    /// A PUT of a missing object creates it.
    pub put_creates: bool,
    /// The collection can be deleted in one request.
    pub delete_collection: bool,
    /// Deletion of a single object answers with the object, even when it is gone at once.
    pub delete_answers_object: bool,
    /// Names that objects may have.
    pub names: NameRule,
}

impl Traits {
    /// What most built-in kinds do.
    pub const USUAL: Self = Self {
        generation: false,
        locked_update: false,
        put_creates: false,
        delete_collection: true,
        delete_answers_object: false,
        names: NameRule::Subdomain,
    };
}

/// How one version of a kind is read and written.
#[derive(Clone, Debug)]
pub enum Form {
    /// A built-in kind: the function decodes an object through its generated type, which checks types and drops
    /// unknown fields.
    Typed(fn(&Value) -> Result<Value, serde_json::Error>),
    /// A built-in kind that is stored in the form of another group (events).
    Converted {
        /// Decodes the served form.
        decode: fn(&Value) -> Result<Value, serde_json::Error>,
        /// Served form to stored form.
        store: fn(Value) -> Value,
        /// Stored form to served form.
        serve: fn(Value) -> Value,
    },
    /// A version of a custom resource.
    Custom(Arc<CustomVersion>),
}

/// One version of a kind.
#[derive(Clone, Debug)]
pub struct Version {
    /// `v1`.
    pub name: String,
    /// How its objects are read and written.
    pub form: Form,
    /// Warning for whoever uses it.
    pub deprecation: Option<String>,
}

/// One kind that the server serves.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Group and plural name under which it is served.
    pub name: ResourceName,
    /// Where its objects are stored.
    pub storage: ResourceName,
    /// `Pod`.
    pub kind: String,
    /// `PodList`.
    pub list_kind: String,
    /// `pod`.
    pub singular: String,
    /// `po`.
    pub short_names: Vec<String>,
    /// Groupings such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Served versions, preferred first.
    pub versions: Vec<Version>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Fields besides name and namespace that field selectors may use.
    pub selectable: Vec<String>,
    /// Whether the error about another field is the general one or lists the known fields.
    pub plain_field_error: bool,
    /// What sets the kind apart.
    pub traits: Traits,
    /// Whether a CustomResourceDefinition made it.
    pub custom: bool,
    /// How the versions of a custom kind become each other.
    pub conversion: Option<Arc<Conversion>>,
}

impl Resource {
    /// Finds a served version.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The schema of a version of a custom kind, served or not.
    pub fn schema(&self, version: &str) -> Option<&Schema> {
        match self.version(version).map(|version| &version.form) {
            Some(Form::Custom(version)) => version.schema.as_ref(),
            Some(Form::Typed(_) | Form::Converted { .. }) => None,
            None => self.conversion.as_ref()?.unserved(version),
        }
    }

    /// The same kind with another past.
    pub(crate) fn converting(self, change: impl FnOnce(Conversion) -> Conversion) -> Self {
        let conversion = self.conversion.and_then(Arc::into_inner).map(change);
        Self {
            conversion: conversion.map(Arc::new),
            ..self
        }
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self, version: &str) -> String {
        match self.name.group.is_empty() {
            true => version.to_owned(),
            false => format!("{}/{version}", self.name.group),
        }
    }

    /// Whether the kind has a subresource.
    pub fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }

    /// Verbs of the main resource, as discovery tells them.
    pub fn verbs(&self) -> Vec<&'static str> {
        let mut verbs = vec![
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ];
        if !self.traits.delete_collection {
            verbs.remove(2);
        }
        if self.custom {
            // The order in which the API server tells the verbs of custom resources.
            verbs.retain(|verb| *verb != "create");
            verbs.insert(5, "create");
        }
        verbs
    }

    /// Whether a field selector may use `field`.
    pub fn check_selectable(&self, field: &str) -> Result<(), String> {
        let always = field == "metadata.name" || (field == "metadata.namespace" && self.namespaced);
        if always || self.selectable.iter().any(|known| known == field) {
            return Ok(());
        }
        Err(match self.plain_field_error {
            true => format!("field label not supported: {field}"),
            false => {
                format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
        })
    }
}

/// Objects that can only be created, never stored: reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// Who am I?
    SelfSubject,
    /// May I?
    SelfSubjectAccess,
    /// May they?
    SubjectAccess,
    /// May they, in this namespace?
    LocalSubjectAccess,
    /// What may I?
    SelfSubjectRules,
    /// Is this token good?
    Token,
}

impl Review {
    /// All of them: group, plural name and kind.
    pub const ALL: [(Self, &'static str, &'static str, &'static str); 6] = [
        (
            Self::SelfSubject,
            "authentication.k8s.io",
            "selfsubjectreviews",
            "SelfSubjectReview",
        ),
        (Self::Token, "authentication.k8s.io", "tokenreviews", "TokenReview"),
        (
            Self::LocalSubjectAccess,
            "authorization.k8s.io",
            "localsubjectaccessreviews",
            "LocalSubjectAccessReview",
        ),
        (
            Self::SelfSubjectAccess,
            "authorization.k8s.io",
            "selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
        ),
        (
            Self::SelfSubjectRules,
            "authorization.k8s.io",
            "selfsubjectrulesreviews",
            "SelfSubjectRulesReview",
        ),
        (
            Self::SubjectAccess,
            "authorization.k8s.io",
            "subjectaccessreviews",
            "SubjectAccessReview",
        ),
    ];

    /// Whether it is asked within a namespace.
    pub fn is_namespaced(self) -> bool {
        self == Self::LocalSubjectAccess
    }

    /// Finds a review by its path.
    pub fn find(group: &str, version: &str, plural: &str) -> Option<(Self, &'static str)> {
        let found = Self::ALL
            .into_iter()
            .find(|(_, g, p, _)| version == "v1" && *g == group && *p == plural)?;
        Some((found.0, found.3))
    }
}

/// The kinds that are served at one moment.
#[derive(Clone, Debug)]
pub struct Registry {
    resources: BTreeMap<ResourceName, Arc<Resource>>,
}

impl Registry {
    /// The built-in kinds.
    pub fn builtin() -> Self {
        let resources = builtin::resources()
            .into_iter()
            .map(|r| (r.name.clone(), Arc::new(r)))
            .collect();
        Self { resources }
    }

    /// The same with one more kind, or with a newer description of it.
    pub fn with(&self, resource: Resource) -> Self {
        let mut next = self.clone();
        next.resources.insert(resource.name.clone(), Arc::new(resource));
        next
    }

    /// The same without a kind.
    pub fn without(&self, name: &ResourceName) -> Self {
        let mut next = self.clone();
        next.resources.remove(name);
        next
    }

    /// Finds a kind by group and plural name.
    pub fn get(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        self.resources.get(name)
    }

    /// Finds a kind by group and kind.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources
            .values()
            .find(|resource| &*resource.name.group == group && resource.kind == kind)
    }

    /// All kinds in order of group and plural name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Served groups with their versions, preferred first.
    pub fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let kinds = self
            .iter()
            .flat_map(|r| r.versions.iter().map(|v| (&*r.name.group, v.name.as_str())));
        let reviews = Review::ALL.iter().map(|(_, group, _, _)| (*group, "v1"));
        for (group, version) in kinds.chain(reviews) {
            let versions = groups.entry(group.to_owned()).or_default();
            if !versions.iter().any(|known| known == version) {
                versions.push(version.to_owned());
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| std::cmp::Reverse(custom::version_priority(version)));
        }
        groups
    }
}
