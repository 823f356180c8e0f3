//! Kubernetes Events: what a person who looks at an object is told about it.
//!
//! An event's name is computed from what it says, so one that is told again, by this process or the next, is written
//! once. Nothing waits for an event: one that cannot be written is logged and lost, as Events are.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::Unreadable;

/// The longest text that the API server takes.
const NOTE_MAX: usize = 1024;

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub about: ObjectReference,
    pub is_warning: bool,
    /// Why, in one word for machines.
    pub reason: String,
    /// What was being done, in one word for machines.
    pub action: &'static str,
    pub note: String,
    /// When it happened, for what may happen again; what is a state and not a step has none, and is told once.
    pub occasion: Option<Timestamp>,
}

impl Notice {
    /// A step that was taken.
    pub fn step<K: Resource<DynamicType = ()>>(
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

    /// That an object cannot be read, told on that object: nobody else would know why nothing happens.
    pub fn unreadable(unreadable: &Unreadable) -> Self {
        let Unreadable {
            api_version,
            kind,
            key,
            uid,
            reason,
        } = unreadable;
        Self {
            about: ObjectReference {
                api_version: Some(api_version.clone()),
                kind: Some(kind.clone()),
                namespace: Some(key.namespace.clone()),
                name: Some(key.name.clone()),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            },
            is_warning: true,
            reason: "Unreadable".to_owned(),
            action: "Read",
            note: format!("{kind} {key} cannot be read and is left alone; correct it: {reason}"),
            occasion: None,
        }
    }

    pub fn into_warning(self) -> Self {
        Self {
            is_warning: true,
            ..self
        }
    }

    fn event(&self, reporter: &str, now: Timestamp) -> Event {
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
            reporting_controller: Some(format!("grove.io/{reporter}")),
            reporting_instance: Some(reporter.to_owned()),
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

/// Writes what `reporter` has to tell, for ever.
pub async fn publish(
    client: &Client,
    reporter: &str,
    notices: &mut UnboundedReceiver<Notice>,
    now: impl Fn() -> Timestamp,
) {
    publish_until(client, reporter, notices, (now, &CancellationToken::new())).await;
}

/// The same until the end; what there is to tell by then is still told.
pub async fn publish_until(
    client: &Client,
    reporter: &str,
    notices: &mut UnboundedReceiver<Notice>,
    (now, end): (impl Fn() -> Timestamp, &CancellationToken),
) {
    loop {
        let notice = tokio::select! {
            biased;
            notice = notices.recv() => notice,
            () = end.cancelled() => None,
        };
        let Some(notice) = notice else { return };
        announce(client, reporter, &notice, now()).await;
    }
}

/// Writes one notice, for who must know that it is written before going on; whether it is news.
pub async fn announce(client: &Client, reporter: &str, notice: &Notice, now: Timestamp) -> bool {
    let event = notice.event(reporter, now);
    let api = Api::<Event>::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or("default"));
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => false,
        Err(error) => {
            tracing::warn!(?notice, %error, "an Event could not be written");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn a_state_has_one_name_and_a_step_one_for_each_time() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let step = |seconds| Notice::step(&Pod::default(), ("R", "A"), "n".into(), at(seconds));
        let name = |notice: &Notice| notice.event("grove", at(9)).metadata.name;
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
