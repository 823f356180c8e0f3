//! Whether the sender of a request may make it. A cluster that does not evaluate rights lets everybody do everything.

use std::sync::{Arc, PoisonError};

use http::{Method, request::Parts};
use serde_json::json;

use super::Server;
use super::query::Query;
use super::route::{Route, Target};
use crate::authorization::{Asked, Decision, Policy};
use crate::status::{ApiError, named};
use crate::store::ResourceName;
use crate::user::User;

impl Server {
    /// The rights as they are stored now.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let revision = Policy::revision(&self.store);
        let mut known = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != revision {
            *known = (revision, Arc::new(Policy::read(&self.store)));
        }
        known.1.clone()
    }

    /// Whether a user may.
    pub(crate) fn decide(&self, user: &User, asked: &Asked<'_>) -> Decision {
        match self.rbac {
            true => self.policy().decide(user, asked),
            false => Decision {
                is_allowed: true,
                reason: String::new(),
            },
        }
    }

    /// Refuses what a user may not.
    pub(crate) fn check(&self, user: &User, asked: &Asked<'_>) -> Result<(), ApiError> {
        let decision = self.decide(user, asked);
        match decision.is_allowed {
            true => Ok(()),
            false => Err(forbidden(user, asked, &decision.reason)),
        }
    }

    /// Refuses a request that its sender may not make.
    pub(crate) fn authorize(&self, parts: &Parts, user: &User) -> Result<(), ApiError> {
        match self.rbac {
            true => self.check(user, &Question::of(parts).asked()),
            false => Ok(()),
        }
    }
}

/// What a request asks for, read off its line.
#[derive(Debug)]
pub(super) struct Question {
    verb: String,
    path: String,
    /// What a path of a resource names.
    target: Option<Target>,
    /// The one object that a list is about.
    selected: String,
}

impl Question {
    pub(super) fn of(parts: &Parts) -> Self {
        let path = parts.uri.path().to_owned();
        let Route::Resource(target) = Route::parse(&path) else {
            return Self {
                verb: parts.method.as_str().to_lowercase(),
                path,
                target: None,
                selected: String::new(),
            };
        };
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let is_named = target.name.is_some();
        let verb = match parts.method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if is_named => "delete",
            Method::DELETE => "deletecollection",
            Method::GET | Method::HEAD if is_named => "get",
            Method::GET | Method::HEAD if query.flag("watch") => "watch",
            Method::GET | Method::HEAD => "list",
            _ => "",
        };
        let selected = match verb {
            "list" | "watch" => selected_name(query.text("fieldSelector")),
            _ => "",
        };
        Self {
            selected: selected.to_owned(),
            verb: verb.to_owned(),
            target: Some(target),
            path,
        }
    }

    /// The same with another verb.
    pub(super) fn with_verb(self, verb: impl FnOnce(&str) -> String) -> Self {
        Self {
            verb: verb(&self.verb),
            ..self
        }
    }

    pub(super) fn asked(&self) -> Asked<'_> {
        let (verb, path) = (self.verb.as_str(), self.path.as_str());
        let Some(target) = &self.target else {
            return Asked::Path { verb, path };
        };
        // A namespace is in itself: its own roles may speak of it.
        let own = target.name.as_deref().filter(|_| target.plural == "namespaces");
        Asked::Resource {
            verb,
            group: &target.group,
            plural: &target.plural,
            subresource: target.subresource.as_deref().unwrap_or_default(),
            namespace: target.namespace.as_deref().or(own).unwrap_or_default(),
            name: target.name.as_deref().unwrap_or(&self.selected),
        }
    }
}

/// The one object that a field selector asks for.
fn selected_name(selector: &str) -> &str {
    let names = selector
        .split(',')
        .filter_map(|part| part.strip_prefix("metadata.name="));
    names
        .map(|name| name.trim_start_matches('='))
        .next()
        .unwrap_or_default()
}

pub(super) fn forbidden(user: &User, asked: &Asked<'_>, reason: &str) -> ApiError {
    let who = &user.name;
    let reason = match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    match *asked {
        Asked::Path { verb, path } => {
            let message = format!("forbidden: User {who:?} cannot {verb} path {path:?}{reason}");
            ApiError::new(403, "Forbidden", message).with_details(json!({}))
        }
        Asked::Resource {
            verb,
            group,
            plural,
            subresource,
            namespace,
            name,
        } => {
            let what = match subresource {
                "" => plural.to_owned(),
                subresource => format!("{plural}/{subresource}"),
            };
            let place = match namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let why = format!("User {who:?} cannot {verb} resource {what:?} in API group {group:?} {place}{reason}");
            ApiError::forbidden(&ResourceName::new(group, plural), name, why)
                .with_details(named(&ResourceName::new(group, plural), name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_may_name_one_object() {
        assert_eq!(selected_name("metadata.name=a"), "a");
        assert_eq!(selected_name("status.phase=x,metadata.name==a"), "a");
        assert_eq!(selected_name("metadata.name!=a"), "");
    }
}
