//! HorizontalPodAutoscalers: replicas that follow metrics. What pods use, and what else is measured, people say in
//! annotations (`usage.simcluster.internal/cpu` of a pod, `metric.simcluster.internal/queue` of an autoscaler): nothing runs
//! here that could be measured.

mod metric;
mod pace;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{Actor, Writes};
use crate::clock::seconds;
use crate::rules::kinds::{condition, items, set_condition};
use crate::selector::LabelSelector;
use crate::store::{EventKind, Key, ResourceName};
use pace::Past;

/// How soon an autoscaler that is held back looks again.
const AGAIN: Duration = Duration::from_secs(15);

fn autoscalers() -> ResourceName {
    ResourceName::new("autoscaling", "horizontalpodautoscalers")
}

fn pods() -> ResourceName {
    ResourceName::new("", "pods")
}

/// Follows autoscalers, pods, and what is scaled.
pub(super) async fn run(actor: Actor, mut writes: Writes) {
    let mut known: BTreeMap<Key, Past> = BTreeMap::new();
    let mut later: BTreeSet<(Instant, Key)> = BTreeSet::new();
    loop {
        let next = later.first().map(|(at, _)| *at);
        let mut due: BTreeSet<Key> = BTreeSet::new();
        tokio::select! {
            biased;
            write = writes.recv() => {
                let Some(mut write) = write else { return };
                loop {
                    let (resource, event) = write;
                    see(&mut known, &mut due, &resource, (&event.key, event.kind));
                    match writes.recv().now_or_never().flatten() {
                        Some(more) => write = more,
                        None => break,
                    }
                }
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                due.extend(later.pop_first().map(|(_, key)| key));
            }
        }
        for key in due {
            let Some(past) = known.get_mut(&key) else { continue };
            later.retain(|(_, waiting)| *waiting != key);
            if look(&actor, &key, past).await {
                later.insert((Instant::now() + AGAIN, key));
            }
        }
    }
}

/// Whom a write concerns: an autoscaler itself, or all of a namespace where something changed that they may count.
fn see(
    known: &mut BTreeMap<Key, Past>,
    due: &mut BTreeSet<Key>,
    resource: &ResourceName,
    (key, kind): (&Key, EventKind),
) {
    if *resource == autoscalers() {
        match kind {
            EventKind::Deleted => drop(known.remove(key)),
            EventKind::Added | EventKind::Modified => {
                known.entry(key.clone()).or_default();
                due.insert(key.clone());
            }
        }
        return;
    }
    let here = known.keys().filter(|known| known.namespace == key.namespace);
    due.extend(here.cloned());
}

/// What one autoscaler sees and decides. Whether it wants more than it may do now.
async fn look(actor: &Actor, key: &Key, past: &mut Past) -> bool {
    let Some(hpa) = actor.get(&autoscalers(), key) else {
        return false;
    };
    let (target, kind) = (
        &hpa["spec"]["scaleTargetRef"],
        hpa["spec"]["scaleTargetRef"]["kind"].as_str(),
    );
    let api_version = target["apiVersion"].as_str().unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let registry = actor.server.registry();
    let resource = registry
        .iter()
        .find(|r| *r.name.group == *group && Some(r.kind.as_str()) == kind);
    let place = resource.map(|resource| {
        let name = target["name"].as_str().unwrap_or_default();
        (resource.name.clone(), Key::new(key.namespace.clone(), name))
    });
    let scale = match &place {
        Some((resource, key)) => actor.server.scale_internal(&actor.user, (resource, key)).await.ok(),
        None => None,
    };
    let (Some(place), Some(scale)) = (place, scale) else {
        let why = format!("the HPA controller was unable to get the target's current scale: {api_version} {target}");
        write_status(actor, key, |status, now| {
            let able = condition("AbleToScale", false, "FailedGetScale", &why, now);
            set_condition(&mut status["conditions"], able);
        });
        return false;
    };
    let current = scale["spec"]["replicas"].as_i64().unwrap_or_default();
    let decided = decide(
        &hpa,
        current,
        &behind(actor, &scale, &key.namespace),
        past,
        actor.server.clock.now(),
    );
    if decided.replicas != current {
        let (user, at) = (&actor.user, (&place.0, &place.1));
        if let Err(error) = actor.server.rescale_internal(user, at, decided.replicas).await {
            tracing::warn!(autoscaler = key.name, %error, "cannot scale");
        }
    }
    let is_scaled = decided.replicas != current;
    write_status(actor, key, |status, now| {
        status["currentReplicas"] = json!(current);
        status["desiredReplicas"] = json!(decided.replicas);
        status["currentMetrics"] = json!(decided.metrics);
        status["observedGeneration"] = hpa["metadata"]["generation"].clone();
        if is_scaled {
            status["lastScaleTime"] = json!(seconds(now));
        }
        for (kind, is_true, reason, message) in &decided.conditions {
            set_condition(
                &mut status["conditions"],
                condition(kind, *is_true, reason, message, now),
            );
        }
    });
    decided.is_held_back
}

/// The pods behind a target.
fn behind(actor: &Actor, scale: &Value, namespace: &str) -> Vec<Value> {
    let Ok(selector) = LabelSelector::parse(scale["status"]["selector"].as_str().unwrap_or_default()) else {
        return Vec::new();
    };
    if selector.is_empty() {
        return Vec::new();
    }
    let pods = actor.server.store.list(&pods(), Some(namespace)).items;
    let pods = pods.into_iter().map(|(_, entry)| entry.value());
    pods.filter(|pod| selector.matches(pod)).collect()
}

fn write_status(actor: &Actor, key: &Key, change: impl Fn(&mut Value, jiff::Timestamp)) {
    let now = actor.server.clock.now();
    actor.modify(&autoscalers(), key, |hpa| {
        let before = hpa["status"].clone();
        change(&mut hpa["status"], now);
        hpa["status"] != before
    });
}

/// What becomes of an autoscaler's target.
struct Decided {
    replicas: i64,
    metrics: Vec<Value>,
    conditions: Vec<(&'static str, bool, &'static str, String)>,
    is_held_back: bool,
}

fn decide(hpa: &Value, current: i64, pods: &[Value], past: &mut Past, now: jiff::Timestamp) -> Decided {
    let mut decided = Decided {
        replicas: current,
        metrics: Vec::new(),
        conditions: vec![(
            "AbleToScale",
            true,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale".to_owned(),
        )],
        is_held_back: false,
    };
    if current == 0 {
        let why = "scaling is disabled since the replica count of the target is zero".to_owned();
        decided
            .conditions
            .push(("ScalingActive", false, "ScalingDisabled", why));
        return decided;
    }
    let outcomes: Vec<_> = items(&hpa["spec"], "metrics")
        .map(|m| metric::asked(hpa, m, current, pods))
        .collect();
    let silent = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
    let most = outcomes.iter().flatten().max_by_key(|asked| asked.replicas);
    decided.metrics = outcomes.iter().flatten().map(|asked| asked.told.clone()).collect();
    // With one metric unknown there may be more replicas, not fewer.
    let asked = match (most, silent) {
        (Some(most), None) => most,
        (Some(most), Some(_)) if most.replicas > current => most,
        (_, Some((reason, why))) => {
            let why = format!("the HPA was unable to compute the replica count: {why}");
            decided.conditions.push(("ScalingActive", false, reason, why));
            return decided;
        }
        (None, None) => return decided,
    };
    let why = format!(
        "the HPA was able to successfully calculate a replica count from {}",
        asked.name
    );
    decided
        .conditions
        .push(("ScalingActive", true, "ValidMetricFound", why));
    let bound = |field: &str, usual: i64| hpa["spec"][field].as_i64().unwrap_or(usual);
    let (min, max) = (bound("minReplicas", 1), bound("maxReplicas", 1));
    let wanted = asked.replicas.min(max).max(min);
    let (reason, why) = match asked.replicas {
        more if more > max => (
            "TooManyReplicas",
            "the desired replica count is more than the maximum replica count",
        ),
        fewer if fewer < min => (
            "TooFewReplicas",
            "the desired replica count is less than the minimum replica count",
        ),
        _ => ("DesiredWithinRange", "the desired count is within the acceptable range"),
    };
    decided
        .conditions
        .push(("ScalingLimited", asked.replicas != wanted, reason, why.to_owned()));
    // A target outside of its bounds goes there whatever its pace.
    decided.replicas = match current {
        more if more > max => max,
        fewer if fewer < min => min,
        _ => past.paced(hpa, current, wanted, now),
    };
    decided.is_held_back = decided.replicas != wanted;
    decided
}
