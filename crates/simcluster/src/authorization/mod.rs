//! Who may do what, by the Roles, ClusterRoles and bindings that are stored.
//!
//! [`Policy`] is all of them, read once for each state of the store; its answers are pure functions of it. Requests,
//! reviews and the answer to whoever may not are [`crate::server`]'s matter. What a cluster has from its first moment
//! on is in `bootstrap`.

pub(crate) mod bootstrap;
mod rule;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub(crate) use rule::{Asked, Rule, missing};

use crate::rules::metadata;
use crate::store::{ResourceName, Store};
use crate::user::User;

/// The group whose members may do everything, whatever is stored.
pub(crate) const MASTERS: &str = "system:masters";
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// What is decided about one question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) is_allowed: bool,
    /// Who allowed it, or what was wrong with those who might have.
    pub(crate) reason: String,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Debug)]
struct Binding {
    name: String,
    /// Empty for a ClusterRoleBinding.
    namespace: String,
    role_kind: String,
    role_name: String,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// Everything that is stored about rights.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// Rules of roles by namespace and name; those of cluster roles have no namespace.
    roles: BTreeMap<(String, String), Arc<Vec<Rule>>>,
    bindings: Vec<Binding>,
}

impl Policy {
    pub(crate) fn read(store: &Store) -> Self {
        let all = |plural: &str| store.list(&ResourceName::new(GROUP, plural), None).items;
        let roles = all("clusterroles").into_iter().chain(all("roles"));
        let bindings = all("clusterrolebindings").into_iter().chain(all("rolebindings"));
        Self {
            roles: roles
                .map(|(key, entry)| {
                    let key = (key.namespace.clone(), key.name.clone());
                    (key, Arc::new(Rule::of(&entry.value())))
                })
                .collect(),
            bindings: bindings.map(|(_, entry)| Binding::parse(&entry.value())).collect(),
        }
    }

    /// The revision of the newest change of anything that a policy is made of.
    pub(crate) fn revision(store: &Store) -> u64 {
        let plurals = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];
        let changed = plurals.map(|plural| store.changed(&ResourceName::new(GROUP, plural)));
        changed.into_iter().max().unwrap_or_default()
    }

    /// Whether a user may.
    pub(crate) fn decide(&self, user: &User, asked: &Asked<'_>) -> Decision {
        if is_master(user) {
            return Decision {
                is_allowed: true,
                reason: String::new(),
            };
        }
        let mut problems = Vec::new();
        for (binding, subject) in self.bound(user, asked.namespace()) {
            match self.rules_of(binding) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    return Decision {
                        is_allowed: true,
                        reason: format!("RBAC: allowed by {}", binding.told(subject)),
                    };
                }
                Ok(_) => {}
                Err(problem) => problems.push(problem),
            }
        }
        Decision {
            is_allowed: false,
            reason: match problems.as_slice() {
                [] => String::new(),
                [one] => format!("RBAC: {one}"),
                many => format!("RBAC: [{}]", many.join(", ")),
            },
        }
    }

    /// All rules that hold for a user in a namespace, and what is wrong with bindings that should give some.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        for (binding, _) in self.bound(user, namespace) {
            match self.rules_of(binding) {
                Ok(given) => rules.extend(given.iter().cloned()),
                Err(problem) => problems.push(problem),
            }
        }
        (rules, problems)
    }

    /// The rules of the role that a `roleRef` in a namespace names; `None` if there is no such role.
    pub(crate) fn referenced(&self, role: &Value, namespace: &str) -> Option<Arc<Vec<Rule>>> {
        let text = |field: &str| role[field].as_str().unwrap_or_default();
        self.role(text("kind"), text("name"), namespace).cloned()
    }

    fn role(&self, kind: &str, name: &str, namespace: &str) -> Option<&Arc<Vec<Rule>>> {
        let namespace = if kind == "Role" { namespace } else { "" };
        self.roles.get(&(namespace.to_owned(), name.to_owned()))
    }

    fn rules_of(&self, binding: &Binding) -> Result<&Arc<Vec<Rule>>, String> {
        let (kind, name) = (binding.role_kind.as_str(), &binding.role_name);
        let rules = self.role(kind, name, &binding.namespace);
        rules.ok_or_else(|| format!("{}.{GROUP} {name:?} not found", kind.to_lowercase()))
    }

    /// The bindings that hold for a user in a namespace, each with the first of its subjects that names the user.
    fn bound<'a>(&'a self, user: &'a User, namespace: &'a str) -> impl Iterator<Item = (&'a Binding, &'a Subject)> {
        let here = move |binding: &&Binding| binding.namespace.is_empty() || binding.namespace == namespace;
        self.bindings.iter().filter(here).filter_map(move |binding| {
            let mut subjects = binding.subjects.iter();
            Some((binding, subjects.find(|subject| subject.is(user, &binding.namespace))?))
        })
    }
}

/// Whether a user may do everything.
pub(crate) fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// A user as errors about rights tell it: name and groups.
pub(crate) fn told(user: &User) -> String {
    format!("user {:?} (groups={})", user.name, rule::quoted(&user.groups))
}

impl Binding {
    fn parse(binding: &Value) -> Self {
        let role = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default().to_owned();
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        Self {
            name: metadata::text(binding, "name").to_owned(),
            namespace: metadata::text(binding, "namespace").to_owned(),
            role_kind: role("kind"),
            role_name: role("name"),
            subjects: subjects
                .map(|subject| {
                    let text = |field: &str| subject[field].as_str().unwrap_or_default().to_owned();
                    Subject {
                        kind: text("kind"),
                        name: text("name"),
                        namespace: text("namespace"),
                    }
                })
                .collect(),
        }
    }

    /// As reasons tell it.
    fn told(&self, subject: &Subject) -> String {
        let (kind, name) = match self.namespace.as_str() {
            "" => ("ClusterRoleBinding", self.name.clone()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        let subject_name = match (subject.kind.as_str(), subject.namespace.as_str()) {
            ("ServiceAccount", "") => format!("{}/{}", subject.name, self.namespace),
            ("ServiceAccount", namespace) => format!("{}/{namespace}", subject.name),
            _ => subject.name.clone(),
        };
        let (role_kind, role_name, subject_kind) = (&self.role_kind, &self.role_name, &subject.kind);
        format!("{kind} {name:?} of {role_kind} {role_name:?} to {subject_kind} {subject_name:?}")
    }
}

impl Subject {
    fn is(&self, user: &User, binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.groups.contains(&self.name),
            "ServiceAccount" => {
                let namespace = match self.namespace.as_str() {
                    "" => binding_namespace,
                    namespace => namespace,
                };
                let account = user.name.strip_prefix("system:serviceaccount:");
                !namespace.is_empty()
                    && account.and_then(|account| account.split_once(':')) == Some((namespace, &self.name))
            }
            _ => false,
        }
    }
}
