//! Admission's steps on a gang's way from apply to running, for whoever collects traces.
//!
//! The way begins here: the span of the apply is written into the set, so that whoever does something for it later can
//! tell which apply it was for. Whoever applies may state a span of their own, and ours becomes a part of it.

use std::sync::Arc;

use grove_api::labels::annotation;
use grove_runtime::trace::{Context, Origin, Step, Tracer};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::metrics::Metrics;
use crate::review::{Answer, Operation, Request};
use crate::webhooks::Webhook;

/// To whom admission tells about itself; by default to nobody.
#[derive(Clone)]
pub struct Telemetry {
    pub metrics: Metrics,
    pub tracer: Tracer,
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            metrics: Metrics::default(),
            tracer: Tracer::default(),
            clock: Arc::new(Timestamp::now),
        }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

impl Telemetry {
    /// Tells of an answer about a new set, and lets the set carry the span on.
    pub(crate) fn answered(&self, webhook: Webhook, request: &Request, answer: Answer, begun: Timestamp) -> Answer {
        let name = match webhook {
            Webhook::DefaultSet => "admit podcliqueset",
            Webhook::ValidateSet => "validate podcliqueset",
            _ => return answer,
        };
        if request.operation != Operation::Create || !self.tracer.is_on() {
            return answer;
        }
        let stated = stated(&request.object);
        let context = self.tracer.record(|| Step {
            name,
            origin: stated.map_or(Origin::Root, Origin::Within),
            begun,
            ended: (self.clock)(),
            attributes: vec![
                ("k8s.namespace.name", request.namespace.clone()),
                ("grove.podcliqueset.name", request.name.clone()),
                ("grove.result", answer.result().to_owned()),
            ],
            error: None,
        });
        match context {
            Some(context) if webhook == Webhook::DefaultSet && stated.is_none() && answer.is_admitted() => {
                answer.and_patch(carry(&request.object, context))
            }
            _ => answer,
        }
    }
}

/// The span that a set already names.
fn stated(object: &Value) -> Option<Context> {
    let text = object["metadata"]["annotations"][annotation::TRACE_CONTEXT].as_str()?;
    text.parse().ok()
}

/// The operation that writes a span into a set.
fn carry(object: &Value, context: Context) -> Value {
    let (key, value) = (annotation::TRACE_CONTEXT, context.to_string());
    match &object["metadata"]["annotations"] {
        Value::Object(_) => {
            let path = format!("/metadata/annotations/{}", key.replace('/', "~1"));
            json!({"op": "add", "path": path, "value": value})
        }
        _ => json!({"op": "add", "path": "/metadata/annotations", "value": {key: value}}),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use grove_runtime::trace::Recorder;

    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[derive(Default)]
    struct Steps(Mutex<Vec<Step>>);

    impl Recorder for Steps {
        fn record(&self, step: Step) -> Context {
            self.0.lock().unwrap().push(step);
            TRACE.parse().unwrap()
        }
    }

    /// The patch with which a set of these annotations is answered, and the steps that were told of.
    fn told(operation: &str, annotations: Value) -> (Value, Vec<Step>) {
        let review = json!({"request": {
            "uid": "u", "kind": {"kind": "PodCliqueSet"}, "resource": {"resource": "podcliquesets"},
            "operation": operation, "name": "a", "namespace": "ns",
            "object": {"metadata": {"annotations": annotations}},
        }});
        let request = Request::parse(review.to_string().as_bytes()).unwrap();
        let steps = Arc::new(Steps::default());
        let telemetry = Telemetry {
            tracer: Tracer::new(steps.clone()),
            ..Telemetry::default()
        };
        let answer = telemetry.answered(Webhook::DefaultSet, &request, Answer::admitted(), Timestamp::UNIX_EPOCH);
        let answer = serde_json::to_value(answer.patch()).unwrap();
        let steps = steps.0.lock().unwrap().clone();
        (answer, steps)
    }

    #[test]
    fn a_new_set_carries_the_span_of_its_apply() {
        let (patch, steps) = told("CREATE", Value::Null);
        let value = json!({"grove.io/traceparent": TRACE});
        assert_eq!(
            patch,
            json!([{"op": "add", "path": "/metadata/annotations", "value": value}])
        );
        assert_eq!((steps.len(), steps[0].origin), (1, Origin::Root));
        let (patch, _) = told("CREATE", json!({"a": "b"}));
        let path = "/metadata/annotations/grove.io~1traceparent";
        assert_eq!(patch, json!([{"op": "add", "path": path, "value": TRACE}]));
    }

    #[test]
    fn a_span_that_somebody_stated_stays_and_ours_is_a_part_of_it() {
        let (patch, steps) = told("CREATE", json!({"grove.io/traceparent": TRACE}));
        assert_eq!(patch, json!([]));
        assert_eq!(steps[0].origin, Origin::Within(TRACE.parse().unwrap()));
    }

    #[test]
    fn an_update_is_no_new_apply() {
        assert_eq!(told("UPDATE", Value::Null), (json!([]), vec![]));
    }
}
