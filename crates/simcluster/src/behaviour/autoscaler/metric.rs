//! How many replicas one metric asks for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::rules::amounts::{self, quantity};
use crate::rules::kinds::items;
use crate::rules::metadata;

/// Where pods say how much they use: `usage.simcluster.internal/cpu: 300m`.
pub(super) const USAGE: &str = "usage.simcluster.internal/";
/// Where an autoscaler is told of what belongs to no pod: `metric.simcluster.internal/queue-length: "30"`.
pub(super) const METRIC: &str = "metric.simcluster.internal/";

/// So far from its target a metric may be before anything changes.
const TOLERANCE: f64 = 0.1;

/// What a metric asks for, and what the status tells about it.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) replicas: i64,
    pub(super) told: Value,
    /// As conditions name it.
    pub(super) name: String,
}

/// Why a metric asks for nothing: a reason and a text.
pub(super) type Silent = (&'static str, String);

/// What a metric of an autoscaler asks for, with these pods behind its target.
pub(super) fn asked(hpa: &Value, metric: &Value, current: i64, pods: &[Value]) -> Result<Asked, Silent> {
    match metric["type"].as_str() {
        Some("Resource") => resource(&metric["resource"], current, pods),
        Some("Pods") => of_pods(&metric["pods"], current, pods),
        Some("Object") => outside(hpa, "object", &metric["object"], current),
        Some("External") => outside(hpa, "external", &metric["external"], current),
        other => {
            let why = format!("metrics of type {} are not measured here", other.unwrap_or_default());
            Err(("InvalidMetricSourceType", why))
        }
    }
}

/// An amount as Kubernetes divides it.
#[allow(
    clippy::cast_precision_loss,
    reason = "Kubernetes divides floating-point numbers too"
)]
fn float(millis: i128) -> f64 {
    millis as f64
}

#[allow(clippy::cast_possible_truncation, reason = "replicas are few")]
fn rounded_up(replicas: f64) -> i64 {
    replicas.ceil() as i64
}

fn millis(value: &Value) -> Option<i128> {
    quantity(value).map(|quantity| quantity.millis())
}

/// The pods that count, and how much each of them uses.
struct Usage {
    used: BTreeMap<String, i128>,
    /// Pods without a word about it, or not ready.
    silent: Vec<String>,
}

fn usage(pods: &[Value], name: &str) -> Usage {
    let (mut used, mut silent) = (BTreeMap::new(), Vec::new());
    for pod in pods {
        let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        if over || metadata::is_terminating(pod) {
            continue;
        }
        let pod_name = metadata::text(pod, "name").to_owned();
        let ready = items(&pod["status"], "conditions").any(|c| c["type"] == "Ready" && c["status"] == "True");
        match millis(&pod["metadata"]["annotations"][format!("{USAGE}{name}")]) {
            Some(amount) if ready => drop(used.insert(pod_name, amount)),
            _ => silent.push(pod_name),
        }
    }
    Usage { used, silent }
}

fn resource(source: &Value, current: i64, pods: &[Value]) -> Result<Asked, Silent> {
    const FAILED: &str = "FailedGetResourceMetric";
    let name = source["name"].as_str().unwrap_or_default();
    let usage = usage(pods, name);
    if usage.used.is_empty() {
        let why = format!("unable to get metrics for resource {name}: no pod says how much it uses");
        return Err((FAILED, why));
    }
    let target = &source["target"];
    let Some(percent) = target["averageUtilization"].as_i64() else {
        let wanted = millis(&target["averageValue"]).filter(|wanted| *wanted > 0);
        let wanted = wanted.ok_or((FAILED, format!("the target for {name} is no amount")))?;
        let replicas = by_share(&usage, current, |_| Some(wanted)).ok_or((FAILED, String::new()))?;
        let told = json!({"type": "Resource", "resource": {"name": name, "current": averages(&usage)}});
        let name = format!("{name} resource");
        return Ok(Asked { replicas, told, name });
    };
    let mut requests = BTreeMap::new();
    for pod in pods {
        let requested = amounts::of_pod(pod, "requests").get(name).map(|amount| amount.millis());
        requests.insert(metadata::text(pod, "name").to_owned(), requested.unwrap_or_default());
    }
    if let Some(pod) = usage
        .used
        .keys()
        .find(|pod| requests.get(*pod).is_none_or(|amount| *amount <= 0))
    {
        return Err((
            FAILED,
            format!("failed to get {name} utilization: missing request for {name} in Pod {pod}"),
        ));
    }
    let wanted = |pod: &str| requests.get(pod).map(|request| request * i128::from(percent) / 100);
    let replicas = by_share(&usage, current, wanted).ok_or((FAILED, format!("nobody requests {name}")))?;
    let requested: i128 = usage.used.keys().filter_map(|pod| requests.get(pod)).sum();
    let used: i128 = usage.used.values().sum();
    let mut now = averages(&usage);
    now["averageUtilization"] = json!(i64::try_from(used * 100 / requested.max(1)).unwrap_or(i64::MAX));
    let told = json!({"type": "Resource", "resource": {"name": name, "current": now}});
    let name = format!("{name} resource utilization (percentage of request)");
    Ok(Asked { replicas, told, name })
}

fn averages(usage: &Usage) -> Value {
    let used: i128 = usage.used.values().sum();
    let average = used / i128::try_from(usage.used.len().max(1)).unwrap_or(1);
    json!({"averageValue": told(average)})
}

/// Thousandths as a quantity.
fn told(millis: i128) -> String {
    match millis % 1000 {
        0 => (millis / 1000).to_string(),
        _ => format!("{millis}m"),
    }
}

fn of_pods(source: &Value, current: i64, pods: &[Value]) -> Result<Asked, Silent> {
    const FAILED: &str = "FailedGetPodsMetric";
    let name = source["metric"]["name"].as_str().unwrap_or_default();
    let usage = usage(pods, name);
    let wanted = millis(&source["target"]["averageValue"]).filter(|wanted| *wanted > 0);
    let (Some(wanted), false) = (wanted, usage.used.is_empty()) else {
        return Err((
            FAILED,
            format!("unable to get metric {name}: no pod says how much it is"),
        ));
    };
    let replicas = by_share(&usage, current, |_| Some(wanted)).ok_or((FAILED, String::new()))?;
    let told = json!({"type": "Pods", "pods": {"metric": {"name": name}, "current": averages(&usage)}});
    let name = format!("pods metric {name}");
    Ok(Asked { replicas, told, name })
}

/// A metric of something else than the pods: the autoscaler itself is told what it is.
fn outside(hpa: &Value, kind: &str, source: &Value, current: i64) -> Result<Asked, Silent> {
    let (reason, word) = match kind {
        "object" => ("FailedGetObjectMetric", "Object"),
        _ => ("FailedGetExternalMetric", "External"),
    };
    let name = source["metric"]["name"].as_str().unwrap_or_default();
    let now = millis(&hpa["metadata"]["annotations"][format!("{METRIC}{name}")]);
    let now = now.ok_or_else(|| (reason, format!("unable to get {kind} metric {name}: nobody has set it")))?;
    let target = |field: &str| millis(&source["target"][field]).filter(|wanted| *wanted > 0);
    let (replicas, told_now) = match (target("averageValue"), target("value")) {
        (Some(average), _) => {
            let share = float(now) / (float(average) * float(i128::from(current.max(1))));
            let replicas = if is_near(share) {
                current
            } else {
                rounded_up(float(now) / float(average))
            };
            (
                replicas,
                json!({"averageValue": told(now / i128::from(current.max(1)))}),
            )
        }
        (None, Some(value)) => {
            let ratio = float(now) / float(value);
            let replicas = if is_near(ratio) {
                current
            } else {
                rounded_up(ratio * float(i128::from(current)))
            };
            (replicas, json!({"value": told(now)}))
        }
        (None, None) => return Err((reason, format!("the target for {name} is no amount"))),
    };
    let mut told = json!({"type": word, kind: {"metric": {"name": name}, "current": told_now}});
    if kind == "object" {
        told[kind]["describedObject"] = source["describedObject"].clone();
    }
    let name = format!("{kind} metric {name}");
    Ok(Asked { replicas, told, name })
}

fn is_near(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= TOLERANCE
}

/// Replicas so that each uses its share. Pods that say nothing count against the change: as idle before there are more,
/// as busy before there are fewer.
fn by_share(usage: &Usage, current: i64, wanted: impl Fn(&str) -> Option<i128>) -> Option<i64> {
    let sum = |pods: &mut dyn Iterator<Item = &String>| pods.map(|pod| wanted(pod)).sum::<Option<i128>>();
    let used: i128 = usage.used.values().sum();
    let share = sum(&mut usage.used.keys())?;
    let ratio = float(used) / float(share.max(1));
    if usage.silent.is_empty() {
        return Some(match is_near(ratio) {
            true => current,
            false => rounded_up(ratio * float(i128::try_from(usage.used.len()).ok()?)),
        });
    }
    let of_silent = sum(&mut usage.silent.iter())?;
    let assumed = if ratio < 1.0 { of_silent } else { 0 };
    let cautious = float(used + assumed) / float((share + of_silent).max(1));
    if is_near(cautious) || (ratio < 1.0) != (cautious < 1.0) {
        return Some(current);
    }
    let all = i128::try_from(usage.used.len() + usage.silent.len()).ok()?;
    let replicas = rounded_up(cautious * float(all));
    let contradicts = (cautious < 1.0 && replicas > current) || (cautious > 1.0 && replicas < current);
    Some(if contradicts { current } else { replicas })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, used: Option<&str>) -> Value {
        let annotations = used.map_or(
            json!({}),
            |used| json!({format!("{USAGE}cpu"): used, format!("{USAGE}rps"): used}),
        );
        json!({"metadata": {"name": name, "annotations": annotations},
               "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
               "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    }

    fn replicas(metric: Value, pods: &[Value]) -> Result<i64, Silent> {
        let hpa = json!({"metadata": {"annotations": {format!("{METRIC}queue"): "30"}}});
        let current = i64::try_from(pods.len()).unwrap();
        asked(&hpa, &metric, current, pods).map(|asked| asked.replicas)
    }

    fn utilization(percent: i64) -> Value {
        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": percent}}})
    }

    #[test]
    fn replicas_follow_what_pods_use_of_what_they_requested() {
        let pods = [pod("a", Some("500m")), pod("b", Some("500m"))];
        assert_eq!(replicas(utilization(50), &pods), Ok(4));
        assert_eq!(replicas(utilization(95), &pods), Ok(2), "near enough");
        assert_eq!(replicas(utilization(200), &pods), Ok(1));
        let told = asked(&json!({}), &utilization(50), 2, &pods).unwrap().told;
        assert_eq!(
            told["resource"]["current"],
            json!({"averageUtilization": 100, "averageValue": "500m"})
        );
    }

    #[test]
    fn pods_that_say_nothing_count_against_the_change() {
        let busy = [pod("a", Some("1")), pod("b", None)];
        assert_eq!(replicas(utilization(100), &busy), Ok(2), "the silent one may be idle");
        let idle = [pod("a", Some("100m")), pod("b", None)];
        assert_eq!(replicas(utilization(100), &idle), Ok(2), "the silent one may be busy");
        let (reason, _) = replicas(utilization(50), &[pod("a", None)]).unwrap_err();
        assert_eq!(reason, "FailedGetResourceMetric");
    }

    #[test]
    fn other_metrics_are_amounts() {
        let pods = [pod("a", Some("20")), pod("b", Some("40"))];
        let metric = json!({"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"averageValue": "10"}}});
        assert_eq!(replicas(metric, &pods), Ok(6));
        let external =
            |target: Value| json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}});
        assert_eq!(replicas(external(json!({"averageValue": "10"})), &pods), Ok(3));
        assert_eq!(replicas(external(json!({"value": "15"})), &pods), Ok(4));
        let unknown = json!({"type": "External", "external": {"metric": {"name": "x"}, "target": {"value": "1"}}});
        assert_eq!(replicas(unknown, &pods).unwrap_err().0, "FailedGetExternalMetric");
        assert_eq!(
            replicas(json!({"type": "ContainerResource"}), &pods).unwrap_err().0,
            "InvalidMetricSourceType"
        );
    }
}
