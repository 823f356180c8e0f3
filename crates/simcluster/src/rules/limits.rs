//! LimitRanges: what containers get that ask for nothing, and how much each, or a pod, may ask for.

use serde_json::{Value, json};

use super::amounts::{self, Amounts};
use super::check::{Findings, text};
use super::kinds::{items, items_mut, set_default};
use super::quantity::Quantity;
use super::{metadata, names};
use crate::status::FieldError;

/// Where a pod says what it was given.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const LISTS: [&str; 5] = ["default", "defaultRequest", "max", "maxLimitRequestRatio", "min"];

/// Fills in what a LimitRange leaves out.
pub(super) fn default(range: &mut Value) {
    for limit in items_mut(&mut range["spec"], "limits") {
        for list in LISTS {
            if let Some(list) = limit.get_mut(list) {
                amounts::canonical(list);
            }
        }
        if limit["type"] != "Container" {
            continue;
        }
        for (from, to) in [
            ("max", "default"),
            ("default", "defaultRequest"),
            ("min", "defaultRequest"),
        ] {
            let given: Vec<(String, Value)> = limit[from]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, amount)| (name.clone(), amount.clone()))
                .collect();
            for (name, amount) in given {
                set_default(limit, to, json!({}));
                set_default(&mut limit[to], &name, amount);
            }
        }
    }
}

/// Judges a LimitRange: its amounts must leave something between them.
pub(super) fn validate(range: &Value) -> Vec<FieldError> {
    let found = &mut Findings::default();
    for (i, limit) in items(&range["spec"], "limits").enumerate() {
        let at = format!("spec.limits[{i}]");
        let kind = text(&limit["type"]);
        if !["Container", "Pod", "PersistentVolumeClaim"].contains(&kind) {
            found.fits(format!("{at}.type"), &limit["type"], names::label_key_problem);
        }
        if kind == "Pod" {
            for list in ["default", "defaultRequest"] {
                if limit[list].is_object() {
                    found.forbidden(format!("{at}.{list}"), "may not be specified when `type` is 'Pod'");
                }
            }
        }
        between(found, limit, &at);
        ratio(found, limit, &at);
    }
    std::mem::take(&mut found.errors)
}

/// Of two lists of amounts the first holds the smaller ones; the message tells the field of the first word.
fn between(found: &mut Findings, limit: &Value, at: &str) {
    let order = [
        ("min", "max", "min"),
        ("min", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "max", "defaultRequest"),
        ("defaultRequest", "default", "defaultRequest"),
        ("min", "default", "default"),
        ("default", "max", "default"),
    ];
    for (less, more, told) in order {
        let most = amounts::read(&limit[more]);
        for (name, amount) in amounts::read(&limit[less]) {
            if most.get(&name).is_some_and(|most| amount.millis() > most.millis()) {
                let why = format!("{less} value is greater than {more} value");
                found.invalid(format!("{at}.{told}[{name}]"), &limit[told][&name], &why);
            }
        }
    }
}

fn ratio(found: &mut Findings, limit: &Value, at: &str) {
    let (min, max) = (amounts::read(&limit["min"]), amounts::read(&limit["max"]));
    for (name, ratio) in amounts::read(&limit["maxLimitRequestRatio"]) {
        let at = format!("{at}.maxLimitRequestRatio[{name}]");
        let value = &limit["maxLimitRequestRatio"][&name];
        if ratio.millis() < 1000 {
            found.invalid(&at, value, &format!("ratio {} is less than 1", text(value)));
        }
        let (Some(min), Some(max)) = (min.get(&name), max.get(&name)) else {
            continue;
        };
        let most = max.millis().saturating_mul(1000).checked_div(min.millis());
        if most.is_some_and(|most| ratio.millis() > most) {
            let why = format!("ratio {} is greater than max/min", text(value));
            found.invalid(at, value, &why);
        }
    }
}

/// Gives the containers of a pod what they do not ask for themselves.
pub(crate) fn fill(range: &Value, pod: &mut Value) {
    let mut given = Vec::new();
    let of_containers = || items(&range["spec"], "limits").filter(|limit| limit["type"] == "Container");
    let merged = |list: &str| {
        let mut merged = Amounts::new();
        for limit in of_containers() {
            merged.extend(amounts::read(&limit[list]));
        }
        merged
    };
    let (limits, requests) = (merged("default"), merged("defaultRequest"));
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        for container in items_mut(&mut pod["spec"], list) {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            let limited = put(&mut container["resources"], "limits", &limits);
            let requested = put(&mut container["resources"], "requests", &requests);
            for (names, what) in [(requested, "request"), (limited, "limit")] {
                if !names.is_empty() {
                    given.push(format!("{} {what} for {word} {name}", names.join(", ")));
                }
            }
        }
    }
    if !given.is_empty() {
        let annotations = metadata::of(pod).entry("annotations").or_insert_with(|| json!({}));
        annotations[ANNOTATION] = json!(format!("LimitRanger plugin set: {}", given.join("; ")));
    }
}

/// Adds what is missing; the names of what was added.
fn put(resources: &mut Value, field: &str, amounts: &Amounts) -> Vec<String> {
    let mut added = Vec::new();
    for (name, amount) in amounts {
        if resources[field].get(name).is_none() {
            set_default(resources, field, json!({}));
            resources[field][name] = json!(amount.canonical());
            added.push(name.clone());
        }
    }
    added
}

/// What of a pod is outside of a range.
pub(crate) fn problems(range: &Value, pod: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for limit in items(&range["spec"], "limits") {
        match limit["type"].as_str() {
            Some("Container") => {
                let spec = &pod["spec"];
                for container in items(spec, "containers").chain(items(spec, "initContainers")) {
                    let of = |field: &str| amounts::read(&container["resources"][field]);
                    problems.extend(outside("Container", limit, &of("requests"), &of("limits")));
                }
            }
            Some("Pod") => {
                let (requests, limits) = (amounts::of_pod(pod, "requests"), amounts::of_pod(pod, "limits"));
                problems.extend(outside("Pod", limit, &requests, &limits));
            }
            _ => {}
        }
    }
    problems
}

fn outside(kind: &str, limit: &Value, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let mut problems = Vec::new();
    let lists = ["min", "max", "maxLimitRequestRatio"].map(|list| amounts::read(&limit[list]));
    let [min, max, ratio] = &lists;
    for (name, least) in min {
        let (request, limit) = (requests.get(name), limits.get(name));
        let head = format!("minimum {name} usage per {kind} is {}", least.canonical());
        problems.extend(match (request, limit) {
            (None, _) => Some(format!("{head}.  No request is specified")),
            (Some(request), _) if request.millis() < least.millis() => {
                Some(format!("{head}, but request is {}", request.canonical()))
            }
            (_, Some(limit)) if limit.millis() < least.millis() => {
                Some(format!("{head}, but limit is {}", limit.canonical()))
            }
            _ => None,
        });
    }
    for (name, most) in max {
        let (request, limit) = (requests.get(name), limits.get(name));
        let head = format!("maximum {name} usage per {kind} is {}", most.canonical());
        problems.extend(match (limit, request) {
            (None, _) => Some(format!("{head}.  No limit is specified")),
            (Some(limit), _) if limit.millis() > most.millis() => {
                Some(format!("{head}, but limit is {}", limit.canonical()))
            }
            (_, Some(request)) if request.millis() > most.millis() => {
                Some(format!("{head}, but request is {}", request.canonical()))
            }
            _ => None,
        });
    }
    for (name, most) in ratio {
        let head = format!("{name} max limit to request ratio per {kind} is {}", most.canonical());
        let some = |amount: Option<&Quantity>| amount.map(|amount| amount.millis()).filter(|millis| *millis != 0);
        problems.extend(match (some(requests.get(name)), some(limits.get(name))) {
            (None, _) => Some(format!("{head}, but no request is specified or request is 0")),
            (_, None) => Some(format!("{head}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                #[allow(
                    clippy::cast_precision_loss,
                    reason = "Kubernetes divides floating-point numbers too"
                )]
                let ratio = limit as f64 / request as f64;
                #[allow(clippy::cast_precision_loss, reason = "as above")]
                let most = most.millis() as f64;
                (ratio * 1000.0 > most).then(|| format!("{head}, but provided ratio is {ratio:.6}"))
            }
        });
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limit: Value) -> Value {
        let mut range = json!({"spec": {"limits": [limit]}});
        default(&mut range);
        range
    }

    #[test]
    fn a_range_gives_defaults_to_containers() {
        let range = range(json!({"type": "Container", "max": {"cpu": "2000m"}, "min": {"memory": "1Mi"}}));
        let limit = &range["spec"]["limits"][0];
        assert_eq!(limit["default"], json!({"cpu": "2"}));
        assert_eq!(limit["defaultRequest"], json!({"cpu": "2", "memory": "1Mi"}));
        let mut pod =
            json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}});
        fill(&range, &mut pod);
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(
            resources,
            &json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2", "memory": "1Mi"}})
        );
        let told = &pod["metadata"]["annotations"][ANNOTATION];
        assert_eq!(told, "LimitRanger plugin set: cpu, memory request for container c");
    }

    #[test]
    fn what_is_outside_of_a_range_is_told() {
        let range = range(
            json!({"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "500m", "memory": "1Mi"},
                                 "maxLimitRequestRatio": {"cpu": "2"}}),
        );
        let resources = json!({"requests": {"cpu": "400m"}, "limits": {"cpu": "1200m"}});
        let pod = json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(
            problems(&range, &pod),
            [
                "minimum cpu usage per Pod is 500m, but request is 400m",
                "minimum memory usage per Pod is 1Mi.  No request is specified",
                "maximum cpu usage per Pod is 1, but limit is 1200m",
                "cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000",
            ]
        );
    }
}
