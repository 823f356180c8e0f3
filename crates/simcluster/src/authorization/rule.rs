//! One rule of a role: what it allows, and which rules it covers.

use serde_json::{Value, json};

/// A request for a resource or a path, as rules look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        plural: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    Path {
        verb: &'a str,
        path: &'a str,
    },
}

impl Asked<'_> {
    /// Where bindings of roles count: a namespace, or nowhere.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::Path { .. } => "",
        }
    }
}

/// `rules` of a role, one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted)
}

/// Whether the list has it, or the star that stands for all.
fn names(list: &[String], wanted: &str) -> bool {
    has(list, "*") || has(list, wanted)
}

/// Whether `/apis/*` or `/apis` is about a path.
fn path_covers(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}

impl Rule {
    pub(crate) fn parse(rule: &Value) -> Self {
        let texts = |field: &str| {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            paths: texts("nonResourceURLs"),
        }
    }

    /// All rules of a role.
    pub(crate) fn of(role: &Value) -> Vec<Self> {
        let rules = role["rules"].as_array().into_iter().flatten();
        rules.map(Self::parse).collect()
    }

    pub(crate) fn allows(&self, asked: &Asked<'_>) -> bool {
        match *asked {
            Asked::Path { verb, path } => {
                names(&self.verbs, verb) && self.paths.iter().any(|pattern| path_covers(pattern, path))
            }
            Asked::Resource {
                verb,
                group,
                plural,
                subresource,
                name,
                ..
            } => {
                names(&self.verbs, verb)
                    && names(&self.groups, group)
                    && self.is_about(plural, subresource)
                    && (self.names.is_empty() || has(&self.names, name))
            }
        }
    }

    /// Whether `pods`, `pods/status`, `*/scale` or `*` is among the resources.
    fn is_about(&self, plural: &str, subresource: &str) -> bool {
        if subresource.is_empty() {
            return names(&self.resources, plural);
        }
        names(&self.resources, &format!("{plural}/{subresource}")) || has(&self.resources, &format!("*/{subresource}"))
    }

    /// Whether who has this rule has a simple one, as [`Rule::parts`] makes them.
    fn covers(&self, part: &Rule) -> bool {
        let resource = |wanted: &String| {
            let (_, subresource) = wanted.split_once('/').unwrap_or_default();
            names(&self.resources, wanted)
                || !subresource.is_empty() && has(&self.resources, &format!("*/{subresource}"))
        };
        part.verbs.iter().all(|verb| names(&self.verbs, verb))
            && part.groups.iter().all(|group| names(&self.groups, group))
            && part.resources.iter().all(resource)
            && part
                .paths
                .iter()
                .all(|path| self.paths.iter().any(|pattern| path_covers(pattern, path)))
            && (self.names.is_empty() || !part.names.is_empty() && part.names.iter().all(|name| has(&self.names, name)))
    }

    /// The same as rules with one verb and one resource or path each.
    fn parts(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = |names: Vec<String>| Rule {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        names,
                        paths: Vec::new(),
                    };
                    match self.names.is_empty() {
                        true => parts.push(part(Vec::new())),
                        false => parts.extend(self.names.iter().map(|name| part(vec![name.clone()]))),
                    }
                }
            }
        }
        for path in &self.paths {
            parts.extend(self.verbs.iter().map(|verb| Rule {
                verbs: vec![verb.clone()],
                paths: vec![path.clone()],
                ..Rule::default()
            }));
        }
        parts
    }

    /// As errors tell it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    fn told(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let told = fields.iter().filter(|(_, list)| !list.is_empty());
        let told: Vec<String> = told.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
        format!("{{{}}}", told.join(", "))
    }

    /// As `SelfSubjectRulesReview` tells it: about resources, and about paths.
    pub(crate) fn reviewed(&self) -> (Option<Value>, Option<Value>) {
        let resources = (!self.resources.is_empty()).then(|| {
            let mut rule = json!({"verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources});
            if !self.names.is_empty() {
                rule["resourceNames"] = json!(self.names);
            }
            rule
        });
        let paths = (!self.paths.is_empty()).then(|| json!({"verbs": self.verbs, "nonResourceURLs": self.paths}));
        (resources, paths)
    }
}

/// A list as Go prints it with `%q`.
pub(super) fn quoted(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// What of `wanted` nobody with the rules `owned` has, as an error tells it; empty if that is nothing.
pub(crate) fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let parts = wanted.iter().flat_map(Rule::parts);
    let missing = parts.filter(|part| !owned.iter().any(|rule| rule.covers(part)));
    let mut compact: Vec<Rule> = Vec::new();
    for part in missing {
        // Rules about one resource that differ in their verb are told as one.
        let same = compact.iter_mut().find(|rule| {
            rule.paths.is_empty()
                && part.paths.is_empty()
                && (&rule.groups, &rule.resources, &rule.names) == (&part.groups, &part.resources, &part.names)
        });
        match same {
            Some(rule) => {
                let new = part.verbs.into_iter().filter(|verb| !has(&rule.verbs, verb));
                let new: Vec<String> = new.collect();
                rule.verbs.extend(new);
            }
            None => compact.push(part),
        }
    }
    let mut told: Vec<String> = compact.iter().map(Rule::told).collect();
    told.sort();
    told.dedup();
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(value: Value) -> Rule {
        Rule::parse(&value)
    }

    fn asked<'a>(verb: &'a str, plural: &'a str, subresource: &'a str, name: &'a str) -> Asked<'a> {
        Asked::Resource {
            verb,
            group: "",
            plural,
            subresource,
            namespace: "a",
            name,
        }
    }

    #[test]
    fn a_rule_names_verbs_groups_resources_and_objects() {
        let some = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}));
        assert!(some.allows(&asked("get", "pods", "", "p")));
        assert!(!some.allows(&asked("get", "pods", "", "q")));
        assert!(!some.allows(&asked("list", "pods", "", "")));
        assert!(!some.allows(&asked("get", "pods", "log", "p")));
        let scales = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"]}));
        assert!(scales.allows(&asked("patch", "widgets", "scale", "w")));
        assert!(!scales.allows(&asked("patch", "widgets", "", "w")));
        let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(all.allows(&asked("patch", "widgets", "status", "w")));
        assert!(!all.allows(&Asked::Path {
            verb: "get",
            path: "/healthz"
        }));
    }

    #[test]
    fn a_rule_names_paths() {
        let rule = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/api", "/apis/*"]}));
        let allows = |path| rule.allows(&Asked::Path { verb: "get", path });
        assert!(allows("/api") && allows("/apis/apps/v1"));
        assert!(!allows("/api/v1") && !allows("/apis"));
    }

    #[test]
    fn what_is_not_held_is_told_by_resource() {
        let owned = [rule(
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]}),
        )];
        let wanted = [
            rule(json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]})),
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["x/scale", "x/status"]})),
            rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})),
        ];
        assert_eq!(
            missing(&owned, &wanted),
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
                r#"{APIGroups:[""], Resources:["x/status"], Verbs:["get"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
            ]
        );
        let named = [rule(
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}),
        )];
        assert!(missing(&owned, &named).is_empty());
        assert!(!missing(&named, &owned).is_empty(), "a name is less than all");
    }
}
