//! What a request asks for, read off its line without looking into the registry.
//!
//! Faults are matched and the history is kept by it. Whether there is such a resource is not decided here.

use std::fmt;

use http::{Method, request::Parts};
use serde::Deserialize;

use super::query::Query;
use super::route::Route;
use crate::store::ResourceName;

/// The verbs of the API, as audit logs name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// Make an object, or use a subresource that takes a POST.
    Create,
    /// Replace an object.
    Update,
    /// Change an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl Verb {
    /// Whether the request may write.
    pub fn is_write(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

/// `create`, `deletecollection`.
impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        })
    }
}

/// One request: who wants to do what to which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Name of the user.
    pub user: String,
    /// What is to be done.
    pub verb: Verb,
    /// The collection.
    pub resource: ResourceName,
    /// `status`, `binding`, …; empty for the object itself.
    pub subresource: String,
    /// Namespace; empty for cluster-scoped objects and for collections across namespaces.
    pub namespace: String,
    /// Name, as the path has it, or the body of a create; empty for collections and generated names.
    pub name: String,
    /// Whether nothing shall be stored.
    pub dry_run: bool,
}

impl Intent {
    /// Reads the intent; `None` for requests that are not about a resource, such as discovery.
    pub(crate) fn of(parts: &Parts, body: &[u8], user: &str) -> Option<Self> {
        let Route::Resource(target) = Route::parse(parts.uri.path()) else {
            return None;
        };
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let named = target.name.is_some();
        let verb = match parts.method {
            Method::GET | Method::HEAD if named => Verb::Get,
            Method::GET | Method::HEAD if query.flag("watch") => Verb::Watch,
            Method::GET | Method::HEAD => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if named => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ => return None,
        };
        let name = match verb {
            Verb::Create if !named => name_in(body),
            _ => target.name.unwrap_or_default(),
        };
        Some(Self {
            user: user.to_owned(),
            verb,
            resource: ResourceName::new(&target.group, &target.plural),
            subresource: target.subresource.unwrap_or_default(),
            namespace: target.namespace.unwrap_or_default(),
            name,
            dry_run: query.has("dryRun"),
        })
    }
}

/// The name that a JSON body gives its object; empty if it gives none, or is no JSON.
fn name_in(body: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        name: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object {
        metadata: Metadata,
    }
    serde_json::from_slice::<Object>(body).unwrap_or_default().metadata.name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(method: &str, uri: &str, body: &str) -> Option<(String, String, String)> {
        let (parts, ()) = http::Request::builder()
            .method(method)
            .uri(uri)
            .body(())
            .unwrap()
            .into_parts();
        let intent = Intent::of(&parts, body.as_bytes(), "u")?;
        Some((intent.verb.to_string(), intent.resource.to_string(), intent.name))
    }

    #[test]
    fn a_request_line_tells_verb_resource_and_name() {
        let some = |verb: &str, resource: &str, name: &str| Some((verb.into(), resource.into(), name.into()));
        assert_eq!(intent("GET", "/api/v1/pods?watch=1", ""), some("watch", "pods", ""));
        assert_eq!(
            intent("GET", "/api/v1/namespaces/a/pods/p", ""),
            some("get", "pods", "p")
        );
        let body = r#"{"metadata":{"name":"x"}}"#;
        assert_eq!(
            intent("POST", "/apis/g.io/v1/cogs", body),
            some("create", "cogs.g.io", "x")
        );
        assert_eq!(
            intent("POST", "/apis/g.io/v1/cogs", "{"),
            some("create", "cogs.g.io", "")
        );
        assert_eq!(
            intent("DELETE", "/api/v1/nodes", ""),
            some("deletecollection", "nodes", "")
        );
        assert_eq!(intent("GET", "/healthz", ""), None);
    }
}
