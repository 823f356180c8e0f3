//! The row of a pod: its status is what its containers do, told in one word.

use jiff::Timestamp;
use serde_json::Value;

use super::age::since;
use super::builtin::{age, array, int, or_none, text, time};

/// What the containers of a pod sum up to.
#[derive(Debug, Default)]
struct Summary {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summarize(pod);
    let sidecars = array(pod, "/spec/initContainers")
        .filter(|container| is_sidecar(container))
        .count();
    let total = array(pod, "/spec/containers").count() + sidecars;
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => format!("{} ({} ago)", summary.restarts, since(Some(last), now)),
        _ => summary.restarts.to_string(),
    };
    vec![
        text(pod, "/metadata/name").into(),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now),
        or_none(text(pod, "/status/podIPs/0/ip")),
        or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        readiness_gates(pod),
    ]
}

fn is_sidecar(init_container: &Value) -> bool {
    init_container["restartPolicy"] == "Always"
}

fn condition<'a>(pod: &'a Value, ty: &str) -> Option<&'a Value> {
    array(pod, "/status/conditions").find(|condition| condition["type"] == ty)
}

fn summarize(pod: &Value) -> Summary {
    let phase = text(pod, "/status/phase");
    let own_reason = text(pod, "/status/reason");
    let mut summary = Summary {
        reason: if own_reason.is_empty() { phase } else { own_reason }.to_owned(),
        ..Summary::default()
    };
    if condition(pod, "PodScheduled").is_some_and(|scheduled| scheduled["reason"] == "SchedulingGated") {
        summary.reason = "SchedulingGated".to_owned();
    }
    let (is_initializing, of_sidecars) = add_init_containers(pod, &mut summary);
    let is_initialized = condition(pod, "Initialized").is_some_and(|initialized| initialized["status"] == "True");
    if !is_initializing || is_initialized {
        (summary.restarts, summary.last_restart) = of_sidecars;
        add_containers(pod, &mut summary);
    }
    if pod
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
    {
        if own_reason == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if !matches!(phase, "Failed" | "Succeeded") {
            summary.reason = "Terminating".to_owned();
        }
    }
    summary
}

/// Follows the init containers to the first that is not done. Returns whether there is one, and the restarts of those
/// that keep running beside the others.
fn add_init_containers(pod: &Value, summary: &mut Summary) -> (bool, (i64, Option<Timestamp>)) {
    let mut of_sidecars = (0, None);
    let count = array(pod, "/spec/initContainers").count();
    for (at, status) in array(pod, "/status/initContainerStatuses").enumerate() {
        let spec = array(pod, "/spec/initContainers").find(|container| container["name"] == status["name"]);
        let is_sidecar = spec.is_some_and(is_sidecar);
        let ended = time(status, "/lastState/terminated/finishedAt");
        summary.restarts += int(status, "/restartCount");
        summary.last_restart = summary.last_restart.max(ended);
        if is_sidecar {
            of_sidecars = (of_sidecars.0 + int(status, "/restartCount"), of_sidecars.1.max(ended));
        }
        let terminated = status.pointer("/state/terminated").filter(|state| !state.is_null());
        if terminated.is_some_and(|state| int(state, "/exitCode") == 0) {
            continue;
        }
        if is_sidecar && status["started"] == true {
            summary.ready += usize::from(status["ready"] == true);
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        summary.reason = match terminated {
            Some(state) => format!("Init:{}", end_reason(state)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{at}/{count}"),
        };
        return (true, of_sidecars);
    }
    (false, of_sidecars)
}

fn add_containers(pod: &Value, summary: &mut Summary) {
    let mut has_running = false;
    let mut error = None;
    let statuses: Vec<&Value> = array(pod, "/status/containerStatuses").collect();
    for status in statuses.into_iter().rev() {
        summary.restarts += int(status, "/restartCount");
        summary.last_restart = summary
            .last_restart
            .max(time(status, "/lastState/terminated/finishedAt"));
        let state = |name: &str| status["state"].get(name).filter(|state| !state.is_null());
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if let Some(terminated) = state("terminated") {
            summary.reason = end_reason(terminated);
            if int(terminated, "/exitCode") != 0 {
                error = Some(summary.reason.clone());
            }
        } else if status["ready"] == true && state("running").is_some() {
            has_running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        let is_ready = condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True");
        summary.reason = match error {
            _ if has_running && is_ready => "Running".to_owned(),
            Some(error) => error,
            None if has_running => "NotReady".to_owned(),
            None => "Completed".to_owned(),
        };
    }
}

/// Why a container ended: its reason, else the signal, else the exit code.
fn end_reason(terminated: &Value) -> String {
    match (text(terminated, "/reason"), int(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", int(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> Value {
    let gates: Vec<&str> = array(pod, "/spec/readinessGates")
        .filter_map(|gate| gate["conditionType"].as_str())
        .collect();
    if gates.is_empty() {
        return or_none("");
    }
    let open = gates
        .iter()
        .filter(|gate| condition(pod, gate).is_some_and(|condition| condition["status"] == "True"));
    format!("{}/{}", open.count(), gates.len()).into()
}
