//! Whom a write concerns, by rules and selectors.

use serde_json::Value;

use super::super::Call;
use super::hook::Hook;
use super::{Operation, Write, shown};
use crate::store::{Key, ResourceName};

/// Operations and resources that a hook asks for.
#[derive(Debug)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

/// A request, as far as rules look at it.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    operation: Operation,
    group: &'a str,
    version: &'a str,
    plural: &'a str,
    subresource: &'a str,
    is_namespaced: bool,
}

impl Rule {
    pub(super) fn parse(rule: &Value) -> Self {
        let texts = |field: &str| {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn matches(&self, request: Request<'_>) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let in_scope = match self.scope.as_str() {
            "Namespaced" => request.is_namespaced,
            "Cluster" => !request.is_namespaced,
            _ => true,
        };
        in_scope
            && any(&self.operations, request.operation.word())
            && any(&self.groups, request.group)
            && any(&self.versions, request.version)
            && self.resources.iter().any(|resource| names(resource, request))
    }
}

/// Whether `pods`, `pods/status`, `pods/*`, `*/scale`, `*` or `*/*` names what the request is about.
fn names(pattern: &str, request: Request<'_>) -> bool {
    let (plural, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (plural == "*" || plural == request.plural) && (subresource == "*" || subresource == request.subresource)
}

/// Webhooks do not decide about webhooks: a broken one could never be removed.
pub(super) fn is_exempt(call: &Call) -> bool {
    let name = &call.resource().name;
    &*name.group == "admissionregistration.k8s.io"
        && matches!(
            &*name.plural,
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations"
        )
}

pub(super) fn is_namespace(call: &Call) -> bool {
    let name = &call.resource().name;
    name.group.is_empty() && &*name.plural == "namespaces"
}

/// The version in which the hook's rules ask for this write: the request's own if they name it, else an equivalent one.
pub(super) fn version_for(call: &Call, hook: &Hook, write: &Write<'_>) -> Option<String> {
    let resource = call.resource();
    let asks = |version: &str| {
        let request = Request {
            operation: write.operation,
            group: &resource.name.group,
            version,
            plural: &resource.name.plural,
            subresource: call.place.subresource.map_or("", |subresource| subresource.path()),
            is_namespaced: resource.namespaced,
        };
        hook.rules.iter().any(|rule| rule.matches(request))
    };
    let own = Some(call.place.version.as_str()).filter(|version| asks(version));
    let others = resource.versions.iter().map(|version| version.name.as_str());
    let equivalent = || others.filter(|_| !hook.is_exact).find(|version| asks(version));
    own.or_else(equivalent).map(str::to_owned)
}

/// Whether both selectors of a hook take the write.
pub(super) fn selects(call: &Call, hook: &Hook, write: &Write<'_>) -> bool {
    let in_namespace = hook.namespaces.is_empty() || namespace_fits(call, hook, write);
    let mut objects = [write.object, write.old].into_iter().flatten();
    in_namespace && (hook.objects.is_empty() || objects.any(|object| hook.objects.matches(&shown(call, object))))
}

/// A namespace is judged by its own labels, an object by those of its namespace; objects outside of namespaces fit.
fn namespace_fits(call: &Call, hook: &Hook, write: &Write<'_>) -> bool {
    if is_namespace(call) && write.operation == Operation::Create {
        return write.object.is_some_and(|object| hook.namespaces.matches(object));
    }
    match write.namespace(call) {
        "" => true,
        name => {
            let namespaces = ResourceName::new("", "namespaces");
            let stored = call.server.store.get(&namespaces, &Key::new("", name));
            stored.is_some_and(|entry| hook.namespaces.matches(&entry.value()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request<'a>(plural: &'a str, subresource: &'a str) -> Request<'a> {
        Request {
            operation: Operation::Update,
            group: "apps",
            version: "v1",
            plural,
            subresource,
            is_namespaced: true,
        }
    }

    #[test]
    fn patterns_name_resources_and_subresources() {
        for (pattern, plural, subresource, wanted) in [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("pods/*", "pods", "status", true),
            ("pods/*", "pods", "", true),
            ("*/scale", "widgets", "scale", true),
            ("*/scale", "widgets", "status", false),
            ("*/*", "pods", "binding", true),
            ("pods/binding", "nodes", "binding", false),
        ] {
            assert_eq!(
                names(pattern, request(plural, subresource)),
                wanted,
                "{pattern} {plural}/{subresource}"
            );
        }
    }

    #[test]
    fn every_part_of_a_rule_must_fit() {
        let rule = |change: (&str, Value)| {
            let mut rule = json!({"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
                                  "resources": ["pods"], "scope": "Namespaced"});
            rule[change.0] = change.1;
            Rule::parse(&rule).matches(request("pods", ""))
        };
        assert!(rule(("scope", json!("*"))));
        assert!(rule(("operations", json!(["*"]))));
        assert!(!rule(("operations", json!(["CREATE", "CONNECT"]))));
        assert!(!rule(("apiGroups", json!([""]))));
        assert!(!rule(("apiVersions", json!(["v2"]))));
        assert!(!rule(("scope", json!("Cluster"))));
    }
}
