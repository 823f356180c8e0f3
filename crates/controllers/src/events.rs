//! Kubernetes Events: what a person who looks at an object is told about it.
//!
//! They are few: failures when they are news, and steps of note. What is news is decided by what the object's status says
//! already, so a failure that is seen again, by this process or the next, is no new event; an event's name is computed
//! from what it says, so even a repeated one is written once. Nothing waits for an event: one that cannot be written is
//! logged and lost, as Events are.

use std::hash::{DefaultHasher, Hash, Hasher};

use grove_api::PodCliqueSetStatus;
use grove_api::podcliqueset::UpdateStrategyType;
use grove_api::status::LastError;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::write::FIELD_MANAGER;

/// The longest text that the API server takes.
const NOTE_MAX: usize = 1024;

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Notice {
    pub(crate) about: ObjectReference,
    pub(crate) is_warning: bool,
    /// Why, in one word for machines.
    pub(crate) reason: String,
    /// What the operator was doing, in one word for machines.
    pub(crate) action: &'static str,
    pub(crate) note: String,
    /// When it happened, for what may happen again; what is a state and not a step has none, and is told once.
    pub(crate) occasion: Option<Timestamp>,
}

impl Notice {
    /// A step that was taken.
    pub(crate) fn step<K: Resource<DynamicType = ()>>(
        object: &K,
        (reason, action): (&str, &'static str),
        note: String,
        now: Timestamp,
    ) -> Self {
        Self {
            about: object.object_ref(&()),
            is_warning: false,
            reason: reason.to_owned(),
            action,
            note,
            occasion: Some(now),
        }
    }

    pub(crate) fn into_warning(self) -> Self {
        Self {
            is_warning: true,
            ..self
        }
    }

    fn event(&self, now: Timestamp) -> Event {
        let mut hasher = DefaultHasher::new();
        (&self.about.uid, &self.reason, &self.note).hash(&mut hasher);
        self.occasion.map(Timestamp::as_nanosecond).hash(&mut hasher);
        let object = self.about.name.clone().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{object}.{:016x}", hasher.finish())),
                namespace: self.about.namespace.clone(),
                ..ObjectMeta::default()
            },
            type_: Some(if self.is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(self.reason.clone()),
            action: Some(self.action.to_owned()),
            note: Some(shortened(&self.note)),
            regarding: Some(self.about.clone()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(format!("grove.io/{FIELD_MANAGER}")),
            reporting_instance: Some(FIELD_MANAGER.to_owned()),
            ..Event::default()
        }
    }
}

fn shortened(note: &str) -> String {
    if note.len() <= NOTE_MAX {
        return note.to_owned();
    }
    let ellipsis = " …";
    let end = note.floor_char_boundary(NOTE_MAX - ellipsis.len());
    format!("{}{ellipsis}", &note[..end])
}

/// Failures that the stored status does not tell of yet.
pub(crate) fn failures<K: Resource<DynamicType = ()>>(
    object: &K,
    stored: &[LastError],
    found: &[LastError],
) -> Vec<Notice> {
    let is_known = |error: &LastError| {
        let mut same = stored.iter();
        same.any(|known| known.code == error.code && known.description == error.description)
    };
    let notice = |error: &LastError| Notice {
        about: object.object_ref(&()),
        is_warning: true,
        reason: reason(&error.code),
        action: "Reconcile",
        note: error.description.clone(),
        occasion: None,
    };
    found.iter().filter(|error| !is_known(error)).map(notice).collect()
}

/// `ERR_CREATE_POD` as Events spell it: `CreatePodFailed`.
fn reason(code: &str) -> String {
    let words = code.trim_start_matches("ERR_").split('_');
    let mut reason: String = words
        .filter_map(|word| {
            let first = word.chars().next()?;
            let rest = word[first.len_utf8()..].to_lowercase();
            Some(format!("{}{rest}", first.to_uppercase()))
        })
        .collect();
    reason.push_str("Failed");
    reason
}

/// An update of a set that begins or ends with this status.
pub(crate) fn update_steps<K: Resource<DynamicType = ()>>(
    set: &K,
    (stored, new): (&PodCliqueSetStatus, &PodCliqueSetStatus),
    strategy: UpdateStrategyType,
    now: Timestamp,
) -> Vec<Notice> {
    let Some(progress) = &new.update_progress else {
        return vec![];
    };
    let before = stored.update_progress.as_ref();
    let has_begun = before.is_none_or(|before| before.update_started_at != progress.update_started_at);
    let has_ended = progress.update_ended_at.is_some()
        && (has_begun || before.is_some_and(|before| before.update_ended_at.is_none()));
    let step = |reason, note: &str| Notice::step(set, (reason, "Update"), note.to_owned(), now);
    match (strategy, has_begun, has_ended) {
        (UpdateStrategyType::OnDelete, true, _) => {
            vec![step(
                "UpdateStarted",
                "The template has changed; pods follow it once they are deleted",
            )]
        }
        (_, true, false) => vec![step(
            "UpdateStarted",
            "The template has changed; pods are replaced one replica at a time",
        )],
        (UpdateStrategyType::RollingRecreate, _, true) => {
            vec![step("UpdateCompleted", "All replicas follow the template")]
        }
        _ => vec![],
    }
}

/// Writes what is to be told, for ever.
pub(crate) async fn publish(client: &Client, notices: &mut UnboundedReceiver<Notice>, now: impl Fn() -> Timestamp) {
    while let Some(notice) = notices.recv().await {
        let event = notice.event(now());
        let api = Api::<Event>::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or("default"));
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            Err(error) => tracing::warn!(?notice, %error, "an Event could not be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn error(code: &str, description: &str) -> LastError {
        LastError {
            code: code.into(),
            description: description.into(),
            observed_at: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn only_failures_that_are_news_are_told() {
        let stored = [error("ERR_CREATE_POD", "no")];
        let found = [error("ERR_CREATE_POD", "no"), error("ERR_CREATE_POD", "never")];
        let told = failures(&Pod::default(), &stored, &found);
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|notice| (notice.reason.as_str(), notice.note.as_str()))
            .collect();
        assert_eq!(told, [("CreatePodFailed", "never")]);
    }

    #[test]
    fn a_state_has_one_name_and_a_step_one_for_each_time() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let step = |seconds| Notice::step(&Pod::default(), ("R", "A"), "n".into(), at(seconds));
        let name = |notice: &Notice| notice.event(at(9)).metadata.name;
        assert_ne!(name(&step(1)), name(&step(2)));
        let state = Notice {
            occasion: None,
            ..step(1)
        };
        assert_eq!(
            name(&state),
            name(&Notice {
                occasion: None,
                ..step(2)
            })
        );
    }

    #[test]
    fn a_long_note_is_cut_where_a_character_ends() {
        let note = "ä".repeat(1_000);
        let cut = shortened(&note);
        assert!(cut.len() <= NOTE_MAX && cut.ends_with('…'), "{}", cut.len());
        assert_eq!(shortened("short"), "short");
    }
}
