//! Kubernetes Events: what a person who looks at an object is told about it.
//!
//! They are few: failures when they are news, and steps of note. What is news is decided by what the object's status says
//! already, so a failure that is seen again, by this process or the next, is no new event.

use grove_api::PodCliqueSetStatus;
use grove_api::podcliqueset::UpdateStrategyType;
use grove_api::status::LastError;
use jiff::Timestamp;
use kube::Resource;

use grove_runtime::Notice;

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
}
