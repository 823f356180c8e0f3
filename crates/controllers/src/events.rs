//! Kubernetes Events: what a person who looks at an object is told about it.
//!
//! They are few: failures when they are news, and steps of note. What is news is decided by what the object's status says
//! already, so a failure that is seen again, by this process or the next, is no new event.

use grove_api::PodCliqueSetStatus;
use grove_api::podcliqueset::UpdateStrategyType;
use grove_api::status::LastError;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
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

/// Conditions that turn with this status, of types that are given with the status that is well. One that is new and says
/// that all is well is no news.
pub(crate) fn turns<K: Resource<DynamicType = ()>>(
    object: &K,
    (stored, new): (&[Condition], &[Condition]),
    types: &[(&str, &str)],
    now: Timestamp,
) -> Vec<Notice> {
    let turn = |(type_, well): &(&str, &str)| {
        let before = stored.iter().find(|condition| condition.type_ == *type_);
        let after = new.iter().find(|condition| condition.type_ == *type_)?;
        let is_well = after.status == *well;
        let is_news = match before {
            Some(before) => (&before.status, &before.reason) != (&after.status, &after.reason),
            None => !is_well,
        };
        let notice = Notice::step(object, (&after.reason, "Reconcile"), after.message.clone(), now);
        is_news.then(|| if is_well { notice } else { notice.into_warning() })
    };
    types.iter().filter_map(turn).collect()
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
    fn a_condition_that_turns_is_told_and_one_that_begins_well_is_not() {
        let condition = |status: &str, reason: &str| Condition {
            type_: "Fine".into(),
            status: status.into(),
            reason: reason.into(),
            message: "m".into(),
            observed_generation: None,
            last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH),
        };
        let told = |before: &[Condition], after: Condition| -> Vec<(bool, String)> {
            let types = [("Fine", "True")];
            let turns = turns(&Pod::default(), (before, &[after]), &types, Timestamp::UNIX_EPOCH);
            turns
                .into_iter()
                .map(|notice| (notice.is_warning, notice.reason))
                .collect()
        };
        let good = condition("True", "Good");
        assert_eq!(told(&[], good.clone()), []);
        assert_eq!(told(&[], condition("False", "Bad")), [(true, "Bad".to_owned())]);
        assert_eq!(
            told(std::slice::from_ref(&good), condition("False", "Bad")),
            [(true, "Bad".to_owned())]
        );
        let worse = [condition("False", "Bad")];
        assert_eq!(told(&worse, condition("False", "Worse")), [(true, "Worse".to_owned())]);
        assert_eq!(told(&worse, good.clone()), [(false, "Good".to_owned())]);
        assert_eq!(told(std::slice::from_ref(&good), good.clone()), []);
    }
}
