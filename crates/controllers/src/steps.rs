//! The operator's steps on a gang's way from apply to running, for whoever collects traces.
//!
//! The trace is the one that the set's annotation names; a set without one is not traced.

use std::time::Duration;

use grove_api::conditions::podgang::{READY, SCHEDULED};
use grove_api::labels::annotation;
use grove_api::{PodCliqueSet, PodGang, PodGangStatus};
use grove_runtime::trace::{Context, Origin, Step};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use crate::shell::Shell;

/// A step that was begun; it is told of when it has ended.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    shell: &'a Shell,
    set: &'a PodCliqueSet,
    at: Timestamp,
}

impl Shell {
    /// Begins a step that is done for a set.
    pub(crate) fn begin<'a>(&'a self, set: &'a PodCliqueSet) -> Begun<'a> {
        Begun {
            shell: self,
            set,
            at: self.now(),
        }
    }
}

impl Begun<'_> {
    /// Moves the beginning to when it was.
    pub(crate) fn since(self, at: Timestamp) -> Self {
        Self { at, ..self }
    }

    /// Tells of it; `more` says what it was about beside the set.
    pub(crate) fn end(
        self,
        name: &'static str,
        more: impl FnOnce() -> Vec<(&'static str, String)>,
        errors: &[impl ToString],
    ) {
        let Some(origin) = origin(self.set, self.at) else {
            return;
        };
        let ended = self.shell.now();
        self.shell.telemetry.tracer.record(|| {
            let mut attributes = vec![
                ("k8s.namespace.name", self.set.namespace().unwrap_or_default()),
                ("grove.podcliqueset.name", self.set.name_any()),
                ("grove.podcliqueset.uid", self.set.uid().unwrap_or_default()),
            ];
            attributes.extend(more());
            Step {
                name,
                origin,
                begun: self.at,
                ended,
                attributes,
                error: errors.first().map(ToString::to_string),
            }
        });
    }
}

/// Where a step belongs that is done for a set at a time.
fn origin(set: &PodCliqueSet, at: Timestamp) -> Option<Origin> {
    let context: Context = set.annotations().get(annotation::TRACE_CONTEXT)?.parse().ok()?;
    let made = set.metadata.creation_timestamp.as_ref()?;
    let age = Duration::try_from(at.duration_since(made.0)).unwrap_or_default();
    Some(Origin::following(context, age))
}

/// Hands the trace of a set on to a gang, for whoever places it.
pub(crate) fn hand_on(set: &PodCliqueSet, gang: &mut PodGang) {
    if let Some(context) = set.annotations().get(annotation::TRACE_CONTEXT) {
        let key = annotation::TRACE_CONTEXT.to_owned();
        gang.annotations_mut().insert(key, context.clone());
    }
}

/// Since when a gang was starting that is ready now, if that is news.
pub(crate) fn started(gang: &PodGang, status: &PodGangStatus) -> Option<Timestamp> {
    let holds = |conditions: &[Condition], of: &str| {
        let mut found = conditions.iter();
        let found = found.find(|condition| condition.type_ == of && condition.status == "True");
        found.map(|condition| condition.last_transition_time.0)
    };
    let before = gang.status.as_ref().map(|status| status.conditions.as_slice());
    let was_ready = holds(before.unwrap_or_default(), READY).is_some();
    holds(&status.conditions, READY).filter(|_| !was_ready)?;
    holds(&status.conditions, SCHEDULED)
}

#[cfg(test)]
mod tests {
    use grove_api::PodGangSpec;
    use serde_json::json;

    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn set(trace: Option<&str>) -> PodCliqueSet {
        let mut set: PodCliqueSet = serde_json::from_value(json!({
            "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
            "metadata": {"name": "a", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 1, "template": {"cliques": []}},
        }))
        .unwrap();
        if let Some(trace) = trace {
            let key = annotation::TRACE_CONTEXT.to_owned();
            set.annotations_mut().insert(key, trace.to_owned());
        }
        set
    }

    #[test]
    fn a_step_belongs_to_the_apply_that_it_follows_from() {
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        let context: Context = TRACE.parse().unwrap();
        let soon = origin(&set(Some(TRACE)), at("2026-01-01T00:00:09Z"));
        assert_eq!(soon, Some(Origin::Within(context)));
        let late = origin(&set(Some(TRACE)), at("2026-01-03T00:00:00Z"));
        assert_eq!(late, Some(Origin::After(context)));
        assert_eq!(origin(&set(None), at("2026-01-01T00:00:09Z")), None);
        assert_eq!(origin(&set(Some("nonsense")), at("2026-01-01T00:00:09Z")), None);
    }

    #[test]
    fn a_gang_has_started_once() {
        let status = |conditions: &[(&str, &str, &str)]| -> PodGangStatus {
            let conditions: Vec<_> = conditions
                .iter()
                .map(|(of, holds, since)| {
                    json!({"type": of, "status": holds, "lastTransitionTime": since, "reason": "R", "message": ""})
                })
                .collect();
            serde_json::from_value(json!({"phase": "Running", "conditions": conditions})).unwrap()
        };
        let (placed, ready) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:05Z");
        let running = status(&[(SCHEDULED, "True", placed), (READY, "True", ready)]);
        let mut gang = PodGang::new("g", PodGangSpec::default());
        assert_eq!(started(&gang, &running), placed.parse().ok());
        gang.status = Some(status(&[(SCHEDULED, "True", placed), (READY, "False", placed)]));
        assert_eq!(started(&gang, &running), placed.parse().ok());
        gang.status = Some(running.clone());
        assert_eq!(started(&gang, &running), None);
        assert_eq!(started(&gang, &status(&[(READY, "False", ready)])), None);
    }
}
