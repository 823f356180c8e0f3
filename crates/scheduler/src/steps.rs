//! The scheduler's steps on a gang's way from apply to running, for whoever collects traces.
//!
//! The first attempt belongs to the trace of the apply, which the gang's annotation names; those after it are traces of
//! their own with a link to it: a gang may wait for days. Binds end one by one, so that their gang's is told by the last.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grove_api::PodGang;
use grove_api::labels::annotation;
use grove_runtime::trace::{Context, Origin, Step, Tracer};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::statement::{Statement, reason};

/// Binds of one gang that are told one by one: enough to see what is slow.
const BINDS_TOLD_MAX: usize = 16;

type Attributes = Vec<(&'static str, String)>;

/// Tells of an attempt that has just ended. Those who carry out what it decided share what is returned.
pub(crate) fn planned(
    tracer: &Tracer,
    gang: Option<&PodGang>,
    (begun, ended): (Timestamp, Timestamp),
    (result, visited): (&'static str, Option<u64>),
) -> Option<Arc<Binds>> {
    let gang = gang.filter(|_| tracer.is_on())?;
    let origin = origin(gang, begun)?;
    let about = about(gang);
    let context = tracer.record(|| {
        let mut attributes = about.clone();
        attributes.push(("grove.result", result.to_owned()));
        attributes.extend(visited.map(|visited| ("grove.domains_visited", visited.to_string())));
        Step {
            name: "plan gang",
            origin,
            begun,
            ended,
            attributes,
            error: None,
        }
    })?;
    Some(Arc::new(Binds {
        tracer: tracer.clone(),
        context,
        about,
        begun: ended,
        told: Mutex::default(),
    }))
}

/// Where an attempt belongs. A gang of which nothing was said yet, but that it was incomplete, is tried for the first time.
fn origin(gang: &PodGang, now: Timestamp) -> Option<Origin> {
    let context: Context = gang.annotations().get(annotation::TRACE_CONTEXT)?.parse().ok()?;
    let made = gang.metadata.creation_timestamp.as_ref()?;
    let age = Duration::try_from(now.duration_since(made.0)).unwrap_or_default();
    Some(
        match Statement::stored(gang).filter(|said| said.reason != reason::NOT_FORMED) {
            None => Origin::following(context, age),
            Some(_) => Origin::After(context),
        },
    )
}

fn about(gang: &PodGang) -> Attributes {
    vec![
        ("k8s.namespace.name", gang.namespace().unwrap_or_default()),
        ("grove.podgang.name", gang.name_any()),
        ("grove.podgang.uid", gang.uid().unwrap_or_default()),
    ]
}

/// The binds of an attempt that are under way.
#[derive(Debug)]
pub(crate) struct Binds {
    tracer: Tracer,
    context: Context,
    about: Attributes,
    begun: Timestamp,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    pods: usize,
    refused: Option<String>,
    first: Vec<(Attributes, Timestamp, Timestamp, Option<String>)>,
    ended: Option<Timestamp>,
}

impl Binds {
    /// One of them has ended.
    pub(crate) fn ended(&self, about: Attributes, (begun, ended): (Timestamp, Timestamp), refused: Option<String>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.pods += 1;
        told.ended = told.ended.max(Some(ended));
        told.refused = told.refused.take().or_else(|| refused.clone());
        if told.first.len() < BINDS_TOLD_MAX {
            told.first.push((about, begun, ended, refused));
        }
    }
}

/// The last of those who carry it out is done.
impl Drop for Binds {
    fn drop(&mut self) {
        let told = std::mem::take(self.told.get_mut().unwrap_or_else(PoisonError::into_inner));
        let Some(ended) = told.ended else { return };
        let of_gang = self.tracer.record(|| {
            let mut attributes = self.about.clone();
            attributes.push(("grove.pods", told.pods.to_string()));
            Step {
                name: "bind gang",
                origin: Origin::Within(self.context),
                begun: self.begun,
                ended,
                attributes,
                error: told.refused,
            }
        });
        let Some(of_gang) = of_gang else { return };
        for (attributes, begun, ended, error) in told.first {
            self.tracer.record(|| Step {
                name: "bind pod",
                origin: Origin::Within(of_gang),
                begun,
                ended,
                attributes,
                error,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use grove_api::PodGangSpec;
    use grove_runtime::trace::Recorder;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    #[derive(Default)]
    struct Steps(Mutex<Vec<Step>>);

    impl Recorder for Steps {
        fn record(&self, step: Step) -> Context {
            let mut steps = self.0.lock().unwrap();
            steps.push(step);
            Context {
                trace: 1,
                span: steps.len() as u64,
                is_sampled: true,
            }
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn gang() -> PodGang {
        let mut gang = PodGang::new("g", PodGangSpec::default());
        gang.metadata.creation_timestamp = Some(Time(at(0)));
        let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let key = annotation::TRACE_CONTEXT.to_owned();
        gang.annotations_mut().insert(key, context.to_owned());
        gang
    }

    #[test]
    fn the_first_attempt_belongs_to_the_apply_and_later_ones_are_linked_to_it() {
        let mut gang = gang();
        assert!(matches!(origin(&gang, at(5)), Some(Origin::Within(_))));
        assert!(matches!(origin(&gang, at(50_000)), Some(Origin::After(_))));
        let said = |reason: &str| {
            serde_json::from_value(json!({"phase": "Pending", "conditions": [{
                "type": "Scheduled", "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}))
            .unwrap()
        };
        gang.status = said("Fragmented");
        assert!(matches!(origin(&gang, at(5)), Some(Origin::After(_))));
        gang.status = said("NotFormed");
        assert!(matches!(origin(&gang, at(5)), Some(Origin::Within(_))));
        gang.annotations_mut().clear();
        assert_eq!(origin(&gang, at(5)), None);
    }

    #[test]
    fn the_last_bind_tells_of_all_and_only_a_few_are_told_one_by_one() {
        let steps = Arc::new(Steps::default());
        let tracer = Tracer::new(steps.clone());
        let binds = planned(&tracer, Some(&gang()), (at(1), at(2)), ("placed", Some(3))).unwrap();
        for pod in 0..20 {
            let refused = (pod == 7).then(|| "taken".to_owned());
            binds.clone().ended(vec![], (at(3), at(4 + pod)), refused);
        }
        assert_eq!(steps.0.lock().unwrap().len(), 1, "the plan; binds are under way");
        drop(binds);
        let steps = steps.0.lock().unwrap();
        assert_eq!(steps.len(), 2 + BINDS_TOLD_MAX);
        let of_gang = &steps[1];
        assert_eq!(
            (of_gang.name, of_gang.begun, of_gang.ended),
            ("bind gang", at(2), at(23))
        );
        assert_eq!(of_gang.error.as_deref(), Some("taken"));
        assert!(of_gang.attributes.contains(&("grove.pods", "20".to_owned())));
    }

    #[test]
    fn an_attempt_that_binds_nothing_is_a_plan_alone() {
        let steps = Arc::new(Steps::default());
        let tracer = Tracer::new(steps.clone());
        drop(planned(&tracer, Some(&gang()), (at(1), at(2)), ("unplaced", None)));
        assert_eq!(steps.0.lock().unwrap().len(), 1);
        assert!(planned(&Tracer::default(), Some(&gang()), (at(1), at(2)), ("placed", None)).is_none());
    }
}
