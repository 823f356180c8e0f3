//! What a kubelet writes into a pod's status, step by step. Pure: the pod in, the pod out.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::seconds;
use crate::rules::kinds::set_condition;

/// Longest pause before a crashed container starts again.
const BACKOFF_SECS_MAX: u64 = 300;

/// What a container's end means for its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It starts again after so many seconds.
    Restart { after_secs: u64 },
    /// It stays ended; the pod goes on or is over.
    Ended,
}

fn set(pod: &mut Value, kind: &str, status: bool, reason: &str, now: Timestamp) {
    let mut condition = json!({
        "type": kind, "status": if status { "True" } else { "False" },
        "lastProbeTime": null, "lastTransitionTime": seconds(now),
    });
    if !reason.is_empty() {
        condition["reason"] = json!(reason);
    }
    set_condition(&mut pod["status"]["conditions"], condition);
}

fn containers(pod: &Value, list: &str) -> Vec<Value> {
    pod["spec"][list].as_array().cloned().unwrap_or_default()
}

/// A long-running init container: it is started and not waited for.
pub(super) fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn status_of(container: &Value, state: Value, ready: bool) -> Value {
    json!({
        "name": container["name"], "image": container["image"], "imageID": "", "ready": ready, "restartCount": 0,
        "started": ready, "state": state, "lastState": {},
    })
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

fn running(now: Timestamp) -> Value {
    json!({"running": {"startedAt": seconds(now)}})
}

fn terminated(code: i64, now: Timestamp) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": seconds(now), "finishedAt": seconds(now)}})
}

/// The kubelet has seen the pod.
pub(super) fn accept(pod: &mut Value, now: Timestamp) {
    let inits = containers(pod, "initContainers");
    let first = if inits.is_empty() {
        "ContainerCreating"
    } else {
        "PodInitializing"
    };
    let status = &mut pod["status"];
    status["startTime"] = json!(seconds(now));
    status["hostIP"] = json!("10.0.0.1");
    if !inits.is_empty() {
        let statuses = inits
            .iter()
            .map(|container| status_of(container, waiting("PodInitializing"), false));
        status["initContainerStatuses"] = statuses.collect();
    }
    let statuses: Value = containers(pod, "containers")
        .iter()
        .map(|container| status_of(container, waiting(first), false))
        .collect();
    pod["status"]["containerStatuses"] = statuses;
    set(
        pod,
        "Initialized",
        inits.is_empty(),
        if inits.is_empty() {
            ""
        } else {
            "ContainersNotInitialized"
        },
        now,
    );
    set(pod, "Ready", false, "ContainersNotReady", now);
    set(pod, "ContainersReady", false, "ContainersNotReady", now);
}

/// Init container `index` runs.
pub(super) fn init_started(pod: &mut Value, index: usize, now: Timestamp) {
    let sidecar = containers(pod, "initContainers").get(index).is_some_and(is_sidecar);
    if let Some(status) = pod["status"]["initContainerStatuses"].get_mut(index) {
        status["state"] = running(now);
        status["ready"] = json!(sidecar);
        status["started"] = json!(sidecar);
    }
}

/// Init container `index` ended; a failed one starts again.
pub(super) fn init_ended(pod: &mut Value, index: usize, code: i64, now: Timestamp) -> Outcome {
    let never = pod["spec"]["restartPolicy"] == "Never";
    let Some(status) = pod["status"]["initContainerStatuses"].get_mut(index) else {
        return Outcome::Ended;
    };
    if code == 0 {
        status["state"] = terminated(code, now);
        status["ready"] = json!(true);
        return Outcome::Ended;
    }
    if never {
        status["state"] = terminated(code, now);
        pod["status"]["phase"] = json!("Failed");
        return Outcome::Ended;
    }
    Outcome::Restart {
        after_secs: back_off(status, code, now),
    }
}

/// All init containers are done and the containers run.
pub(super) fn started(pod: &mut Value, ip: &str, now: Timestamp) {
    let statuses: Value = containers(pod, "containers")
        .iter()
        .map(|container| {
            let mut status = status_of(container, running(now), false);
            status["started"] = json!(true);
            status
        })
        .collect();
    let status = &mut pod["status"];
    status["phase"] = json!("Running");
    status["podIP"] = json!(ip);
    status["podIPs"] = json!([{"ip": ip}]);
    status["containerStatuses"] = statuses;
    set(pod, "Initialized", true, "", now);
}

/// Every container that runs is ready.
pub(super) fn ready(pod: &mut Value, now: Timestamp) {
    let mut all = true;
    for status in pod["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
        let runs = status["state"]["running"].is_object();
        status["ready"] = json!(runs);
        all &= runs;
    }
    let reason = if all { "" } else { "ContainersNotReady" };
    set(pod, "Ready", all, reason, now);
    set(pod, "ContainersReady", all, reason, now);
}

/// Nothing in the pod is ready, because its node does not answer.
pub(super) fn unreachable(pod: &mut Value, now: Timestamp) {
    set(pod, "Ready", false, "NodeNotReady", now);
}

/// A container ended by itself.
pub(super) fn exited(pod: &mut Value, container: &str, code: i64, now: Timestamp) -> Option<Outcome> {
    let policy = pod["spec"]["restartPolicy"].as_str().unwrap_or("Always").to_owned();
    let statuses = pod["status"]["containerStatuses"].as_array_mut()?;
    let status = statuses.iter_mut().find(|status| status["name"] == container)?;
    let restarts = policy == "Always" || (policy == "OnFailure" && code != 0);
    status["ready"] = json!(false);
    status["started"] = json!(false);
    let outcome = match restarts {
        true => Outcome::Restart {
            after_secs: back_off(status, code, now),
        },
        false => {
            status["state"] = terminated(code, now);
            Outcome::Ended
        }
    };
    let over = statuses.iter().all(|status| status["state"]["terminated"].is_object());
    let failed = statuses.iter().any(|status| {
        status["state"]["terminated"]["exitCode"]
            .as_i64()
            .is_some_and(|c| c != 0)
    });
    if over {
        pod["status"]["phase"] = json!(if failed { "Failed" } else { "Succeeded" });
    }
    let reason = if over && !failed {
        "PodCompleted"
    } else {
        "ContainersNotReady"
    };
    set(pod, "Ready", false, reason, now);
    set(pod, "ContainersReady", false, reason, now);
    Some(outcome)
}

/// A crashed container runs again.
pub(super) fn restarted(pod: &mut Value, container: &str, now: Timestamp) {
    let statuses = pod["status"]["containerStatuses"].as_array_mut();
    if let Some(status) = statuses
        .into_iter()
        .flatten()
        .find(|status| status["name"] == container)
    {
        status["state"] = running(now);
        status["started"] = json!(true);
    }
    ready(pod, now);
}

/// The n-th address for a pod; they begin at 10.128.0.0.
pub(super) fn ip(n: u32) -> String {
    let [_, b, c, d] = n.to_be_bytes();
    format!("10.{}.{c}.{d}", 128 | (b & 0x7f))
}

/// Which address a pod has; 0 if none of ours.
pub(super) fn address(pod: &Value) -> u32 {
    let ip = pod["status"]["podIP"]
        .as_str()
        .and_then(|ip| ip.parse::<std::net::Ipv4Addr>().ok());
    match ip.map(|ip| ip.octets()) {
        Some([10, b @ 128..=255, c, d]) => u32::from_be_bytes([0, b & 0x7f, c, d]),
        _ => 0,
    }
}

/// A kubelet has come back to a pod that ran: it knows nothing of pauses, and starts what had crashed.
pub(super) fn resumed(pod: &mut Value, now: Timestamp) {
    let statuses = pod["status"]["containerStatuses"].as_array_mut();
    for status in statuses.into_iter().flatten() {
        if status["state"]["waiting"].is_object() {
            status["state"] = running(now);
            status["started"] = json!(true);
        }
    }
    ready(pod, now);
}

/// Counts a restart; the pause doubles with each.
fn back_off(status: &mut Value, code: i64, now: Timestamp) -> u64 {
    let restarts = status["restartCount"].as_u64().unwrap_or(0);
    status["restartCount"] = json!(restarts + 1);
    status["lastState"] = terminated(code, now);
    status["state"] = waiting("CrashLoopBackOff");
    10u64.saturating_mul(1 << restarts.min(5)).min(BACKOFF_SECS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn is(pod: &Value, kind: &str) -> bool {
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        conditions.iter().any(|c| c["type"] == kind && c["status"] == "True")
    }

    fn pod(policy: &str) -> Value {
        let mut pod = json!({"spec": {"restartPolicy": policy, "initContainers": [{"name": "i"}],
                             "containers": [{"name": "a"}, {"name": "b"}]}, "status": {"phase": "Pending"}});
        accept(&mut pod, now());
        init_started(&mut pod, 0, now());
        assert_eq!(init_ended(&mut pod, 0, 0, now()), Outcome::Ended);
        started(&mut pod, "10.1.0.1", now());
        ready(&mut pod, now());
        pod
    }

    #[test]
    fn a_pod_becomes_ready_step_by_step() {
        let pod = pod("Always");
        assert_eq!(pod["status"]["phase"], "Running");
        assert!(is(&pod, "Ready") && is(&pod, "Initialized") && is(&pod, "ContainersReady"));
        assert_eq!(
            pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"],
            "Completed"
        );
    }

    #[test]
    fn a_crash_backs_off_longer_each_time() {
        let mut pod = pod("Always");
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let Some(Outcome::Restart { after_secs }) = exited(&mut pod, "a", 1, now()) else {
                panic!("must restart")
            };
            assert!(!is(&pod, "Ready"));
            pauses.push(after_secs);
            restarted(&mut pod, "a", now());
            assert!(is(&pod, "Ready"));
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 7);
    }

    #[test]
    fn a_pod_is_over_when_all_its_containers_are() {
        let mut done = pod("Never");
        assert_eq!(exited(&mut done, "a", 0, now()), Some(Outcome::Ended));
        assert_eq!(done["status"]["phase"], "Running");
        exited(&mut done, "b", 0, now());
        assert_eq!(done["status"]["phase"], "Succeeded");
        let mut failed = pod("Never");
        exited(&mut failed, "a", 0, now());
        exited(&mut failed, "b", 3, now());
        assert_eq!(failed["status"]["phase"], "Failed");
        assert_eq!(exited(&mut failed, "none", 0, now()), None);
    }
}
