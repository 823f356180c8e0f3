//! Makes the table of protobuf messages from the Go types of Kubernetes, whose struct tags hold everything that is
//! needed: JSON name, field number, and whether a field is inlined, a pointer, or omitted when empty.
//! `src/protobuf/README.md` says when and how to run it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use regex::Regex;

/// `(group, package, kinds)`: the kinds whose messages are kept, with what they refer to.
const KINDS: &[(&str, &str, &[&str])] = &[
    (
        "",
        "core/v1",
        &[
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "Pod",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("apps", "apps/v1", &["ControllerRevision", "Deployment"]),
    (
        "admissionregistration.k8s.io",
        "admissionregistration/v1",
        &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
    ),
    (
        "authentication.k8s.io",
        "authentication/v1",
        &["SelfSubjectReview", "TokenRequest", "TokenReview"],
    ),
    (
        "authorization.k8s.io",
        "authorization/v1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("autoscaling", "autoscaling/v1", &["HorizontalPodAutoscaler", "Scale"]),
    ("autoscaling", "autoscaling/v2", &["HorizontalPodAutoscaler"]),
    ("coordination.k8s.io", "coordination/v1", &["Lease"]),
    ("discovery.k8s.io", "discovery/v1", &["EndpointSlice"]),
    ("events.k8s.io", "events/v1", &["Event"]),
    ("networking.k8s.io", "networking/v1", &["NetworkPolicy"]),
    ("policy", "policy/v1", &["Eviction", "PodDisruptionBudget"]),
    (
        "rbac.authorization.k8s.io",
        "rbac/v1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    (
        "resource.k8s.io",
        "resource/v1",
        &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"],
    ),
    ("scheduling.k8s.io", "scheduling/v1", &["PriorityClass"]),
    ("", "meta/v1", &["DeleteOptions"]),
];

/// Go types that have their own form in JSON.
const SPECIAL: &[(&str, &str)] = &[
    ("meta/v1.Time", "time"),
    ("meta/v1.MicroTime", "microtime"),
    ("meta/v1.FieldsV1", "raw"),
    ("resource.Quantity", "quantity"),
    ("intstr.IntOrString", "intorstring"),
    ("runtime.RawExtension", "raw"),
];

struct Source {
    line: Regex,
    structs: BTreeMap<String, Vec<Field>>,
    /// Names for other types: `core/v1.PodPhase` is `string`.
    aliases: BTreeMap<String, String>,
}

/// A field as the struct says it; its type is resolved when every package was read.
struct Field {
    number: String,
    name: String,
    ty: String,
    flags: &'static str,
}

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(api), Some(machinery)) = (arguments.next(), arguments.next()) else {
        bail!("usage: protobuf_table <directory of k8s.io/api> <directory of k8s.io/apimachinery>");
    };
    let line = Regex::new(r#"^\s+(?:\w+\s+)?(\S+)\s+`json:"([^",]*)([^"]*)"[^`]*protobuf:"\w+,(\d+),(\w+)[^"]*""#)?;
    let mut source = Source {
        line,
        structs: BTreeMap::new(),
        aliases: BTreeMap::new(),
    };
    let packages: BTreeSet<&str> = KINDS.iter().map(|(_, package, _)| *package).collect();
    for package in packages {
        let path = match package {
            "meta/v1" => Path::new(&machinery).join("pkg/apis/meta/v1/types.go"),
            package => Path::new(&api).join(package).join("types.go"),
        };
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        source.read(package, &text)?;
    }
    let mut wanted = Vec::new();
    for (group, package, kinds) in KINDS {
        let version = package.rsplit('/').next().unwrap_or_default();
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        for kind in *kinds {
            println!("kind {api_version} {kind} {package}.{kind}");
            wanted.push(format!("{package}.{kind}"));
        }
    }
    let mut done = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if done.contains_key(&name) {
            continue;
        }
        let fields = source.structs.get(&name).with_context(|| format!("no struct {name}"))?;
        let mut line = String::new();
        for Field {
            number,
            name,
            ty,
            flags,
        } in fields
        {
            let ty = source.wire_type(ty);
            line += &format!("|{number} {name} {ty}{flags}");
            let message = ty.trim_start_matches(['[', '{']);
            if message.contains('.') {
                wanted.push(message.to_owned());
            }
        }
        done.insert(name, line);
    }
    done.iter().for_each(|(name, fields)| println!("{name}{fields}"));
    Ok(())
}

impl Source {
    fn read(&mut self, package: &str, text: &str) -> Result<()> {
        let import = Regex::new(r#"^\s+(?:(\w+)\s+)?"k8s.io/(?:api|apimachinery/pkg)/(\S+)"$"#)?;
        let alias = Regex::new(r"^type (\w+) (string|int32|int64|bool|map\[\S+\]\S+|\[\]\S+)$")?;
        let mut imports: BTreeMap<String, String> = BTreeMap::new();
        for found in text.lines().filter_map(|line| import.captures(line)) {
            let path = found[2]
                .replace("apis/meta", "meta")
                .replace("api/resource", "resource")
                .replace("util/intstr", "intstr");
            let name = found
                .get(1)
                .map_or_else(|| path.rsplit('/').next().unwrap_or_default(), |name| name.as_str());
            imports.insert(name.to_owned(), path.clone());
        }
        for found in text.lines().filter_map(|line| alias.captures(line)) {
            self.aliases.insert(
                format!("{package}.{}", &found[1]),
                qualified(&found[2], package, &imports),
            );
        }
        let mut current = None;
        for line in text.lines() {
            if let Some(name) = line
                .strip_prefix("type ")
                .and_then(|rest| rest.strip_suffix(" struct {"))
            {
                current = Some(format!("{package}.{name}"));
                self.structs.entry(format!("{package}.{name}")).or_default();
            }
            if line == "}" {
                current = None;
            }
            let (Some(name), Some(found)) = (&current, self.line.captures(line)) else {
                continue;
            };
            let ty = qualified(&found[1], package, &imports);
            let field = Field {
                number: found[4].to_owned(),
                name: found[2].to_owned(),
                flags: flags(&ty, &found[3]),
                ty,
            };
            self.structs.entry(name.clone()).or_default().push(field);
        }
        Ok(())
    }

    /// The type of a field in the table's words: `[` before the items of a list, `{` before the values of a map.
    fn wire_type(&self, ty: &str) -> String {
        let ty = ty.trim_start_matches('*');
        if ty == "[]byte" {
            return "bytes".to_owned();
        }
        if let Some(items) = ty.strip_prefix("[]") {
            return format!("[{}", self.wire_type(items));
        }
        if let Some((_, values)) = ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return format!("{{{}", self.wire_type(values));
        }
        if let Some((_, word)) = SPECIAL.iter().find(|(name, _)| *name == ty) {
            return (*word).to_owned();
        }
        match self.aliases.get(ty) {
            // A named list is a message of its own.
            Some(list) if list.starts_with("[]") => "strings".to_owned(),
            Some(other) => self.wire_type(other),
            None => match ty {
                "int32" | "int64" | "uint8" => "int".to_owned(),
                "types.UID" | "types.NodeName" => "string".to_owned(),
                other => other.to_owned(),
            },
        }
    }
}

/// A Go type with its package written out.
fn qualified(ty: &str, package: &str, imports: &BTreeMap<String, String>) -> String {
    let start = ty.rfind(['*', ']']).map_or(0, |at| at + 1);
    let (prefix, name) = ty.split_at(start);
    let name = match name.split_once('.') {
        Some((import, name)) => format!("{}.{name}", imports.get(import).map_or(import, String::as_str)),
        None if name.starts_with(char::is_uppercase) => format!("{package}.{name}"),
        None => name.to_owned(),
    };
    format!("{prefix}{name}")
}

/// `~` inlined into its parent, `?` a pointer (so that a zero was meant), `=` written even if it is zero.
fn flags(ty: &str, options: &str) -> &'static str {
    match options {
        _ if options.contains("inline") => " ~",
        _ if ty.starts_with('*') => " ?",
        _ if !options.contains("omitempty") => " =",
        _ => "",
    }
}
