//! Get and list.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::output::{Document, Reply};
use super::query::{Query, unreadable_number};
use super::{Call, StaleBy, convert, syntax};
use crate::registry::Form;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, FieldError};
use crate::store::{Key, PageRequest};

/// How long a read waits for a revision that the store has not reached.
const FUTURE_REVISION_WAIT: Duration = Duration::from_secs(3);

/// How many objects are looked at in one go when a selector may drop most of them.
const CHUNK: usize = 2000;

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    let not_before = call.revision_parameter()?;
    if let Some(revision) = not_before {
        call.reach(revision).await?;
    }
    let (store, storage) = (&call.server.store, &call.resource().storage);
    let entry = match call.stale_revision(not_before) {
        Some(revision) => store.get_at(storage, &call.key(), revision),
        None => store.get(storage, &call.key()),
    };
    let entry = entry.ok_or_else(|| call.not_found())?;
    let loaded = convert::load_all(call, vec![(entry.revision, entry.bytes)]).await?;
    let document = loaded.into_iter().next().ok_or_else(|| call.not_found())?;
    Ok(call.reply(200, document))
}

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    let selection = Selection::of(call)?;
    let mut plan = ListPlan::of(call)?;
    plan.at = plan.at.or_else(|| call.stale_revision(plan.not_before));
    if let Some(revision) = plan.not_before {
        call.reach(revision).await?;
    }
    let Collected {
        revision,
        items,
        remaining,
    } = collect(call, &selection, &plan).await?;
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if call.resource().custom {
        metadata["continue"] = json!("");
    }
    if let (true, Some((last, _))) = (remaining > 0, items.last()) {
        metadata["continue"] = json!(
            ContinueToken {
                revision: Some(revision),
                after: (**last).clone()
            }
            .encode(call)
        );
        if selection.is_empty() {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    Ok(call.reply_list(&metadata, items.into_iter().map(|(_, document)| document).collect()))
}

struct Collected {
    revision: u64,
    items: Vec<(Arc<Key>, Document)>,
    /// Objects that were left out by the limit; with a selector only whether there are any.
    remaining: usize,
}

async fn collect(call: &Call, selection: &Selection, plan: &ListPlan) -> Result<Collected, ApiError> {
    // One more than the limit tells whether there is more.
    let wanted = plan.limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
    let chunk = if selection.is_empty() { wanted } else { CHUNK };
    let mut items = Vec::new();
    let mut at = plan.at;
    let mut after = plan.after.clone();
    loop {
        let namespace = call.place.namespace.as_deref();
        let request = PageRequest {
            namespace,
            after: after.as_ref(),
            limit: Some(chunk),
            at,
        };
        let page = call
            .server
            .store
            .page(&call.resource().storage, request)
            .map_err(|_| plan.expired(call))?;
        // All chunks of one answer show one revision.
        at = Some(page.revision);
        after = page.items.last().map(|(key, _)| (**key).clone());
        let (keys, stored): (Vec<_>, Vec<_>) = page
            .items
            .into_iter()
            .map(|(key, entry)| (key, (entry.revision, entry.bytes)))
            .unzip();
        for (key, document) in keys.into_iter().zip(convert::load_all(call, stored).await?) {
            if selection.is_empty() {
                items.push((key, document));
            } else {
                let value = document.into_value();
                if selection.matches(&call.selectable_form(&value)) {
                    items.push((key, Document::Value(value)));
                }
            }
            if items.len() == wanted {
                break;
            }
        }
        let cut = items.len() == wanted;
        if cut {
            items.pop();
        }
        if cut || page.remaining == 0 {
            let remaining = if cut { page.remaining + 1 } else { 0 };
            return Ok(Collected {
                revision: page.revision,
                items,
                remaining,
            });
        }
    }
}

/// Label and field selector of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Selection {
    pub(crate) fn of(call: &Call) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(call.query.text("labelSelector")).map_err(ApiError::bad_request)?;
        let check = |field: &str| call.resource().check_selectable(field);
        let fields = FieldSelector::parse(call.query.text("fieldSelector"), check).map_err(ApiError::bad_request)?;
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }
}

/// Which part of which state a list shows.
#[derive(Debug)]
struct ListPlan {
    limit: Option<usize>,
    after: Option<Key>,
    /// The exact revision to show; `None` is the newest.
    at: Option<u64>,
    /// A revision that must have been reached.
    not_before: Option<u64>,
}

impl ListPlan {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let query = &call.query;
        let (matching, token) = (query.text("resourceVersionMatch"), query.text("continue"));
        check_list_options(query)?;
        let revision = call
            .revision_parameter()
            .map_err(|error| ApiError::bad_request(format!("invalid resource version: {}", error.message)))?;
        let limit = query
            .number("limit")?
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| *limit > 0);
        let newest = Self {
            limit,
            after: None,
            at: None,
            not_before: None,
        };
        if !token.is_empty() {
            let token = ContinueToken::decode(call, token)?;
            if revision.is_some_and(|revision| revision > 0) {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            return Ok(Self {
                after: Some(token.after),
                at: token.revision,
                ..newest
            });
        }
        let exact = matching == "Exact" || (matching.is_empty() && limit.is_some());
        Ok(match revision {
            // The watch cache answers, and it does not page.
            Some(0) => Self { limit: None, ..newest },
            Some(revision) if exact => Self {
                at: Some(revision),
                not_before: Some(revision),
                ..newest
            },
            revision => Self {
                not_before: revision,
                ..newest
            },
        })
    }

    fn expired(&self, call: &Call) -> ApiError {
        let Some(after) = &self.after else {
            return ApiError::expired("The resourceVersion for the provided list is too old.");
        };
        let mut error = ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. \
             You can start a new list without the continue parameter, or use the continue token in this response to \
             retrieve the remainder of the results. Continuing with the provided token results in an inconsistent \
             list - objects that were created, modified, or deleted between the time the first chunk was returned \
             and now may show up in the list.",
        );
        error.continue_token = Some(
            ContinueToken {
                revision: None,
                after: after.clone(),
            }
            .encode(call),
        );
        error
    }
}

/// Combinations of options that a list refuses.
fn option_problems(query: &Query) -> Vec<FieldError> {
    let (version, matching) = (query.text("resourceVersion"), query.text("resourceVersionMatch"));
    let forbidden = |why: &str| Some(FieldError::forbidden("resourceVersionMatch", why));
    let mismatch = match (matching, version) {
        ("", _) => None,
        ("Exact" | "NotOlderThan", "") => {
            forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        ("Exact", "0") => forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        ("Exact" | "NotOlderThan", _) => None,
        (other, _) => {
            let allowed = ["Exact", "NotOlderThan", ""];
            Some(FieldError::not_supported(
                "resourceVersionMatch",
                json!(other),
                &allowed,
            ))
        }
    };
    let goes_on = !matching.is_empty() && !query.text("continue").is_empty();
    let paged = goes_on.then(|| forbidden("resourceVersionMatch is forbidden when continue is provided"));
    let initial = query
        .has("sendInitialEvents")
        .then(|| FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    mismatch.into_iter().chain(paged.flatten()).chain(initial).collect()
}

/// Refuses options that make no sense for a list, or for what is done to all of one.
pub(crate) fn check_list_options(query: &Query) -> Result<(), ApiError> {
    match option_problems(query) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(list_options_invalid(&problems)),
    }
}

pub(crate) fn list_options_invalid(problems: &[FieldError]) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", problems)
}

/// Where the next page of a list begins.
struct ContinueToken {
    /// The revision that all pages show; `None` is the newest (an expired list that goes on).
    revision: Option<u64>,
    after: Key,
}

impl ContinueToken {
    fn encode(&self, call: &Call) -> String {
        let start = match (&call.place.namespace, call.resource().namespaced) {
            (None, true) => format!("/{}/{}\0", self.after.namespace, self.after.name),
            _ => format!("/{}\0", self.after.name),
        };
        let revision = self.revision.map_or(json!(-1), |revision| json!(revision));
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(call: &Call, text: &str) -> Result<Self, ApiError> {
        let wrong =
            |why: &str| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| wrong(&error.to_string()))?;
        let token: Value = serde_json::from_slice(&bytes)
            .map_err(|error| wrong(&syntax::problem(&bytes).unwrap_or_else(|| error.to_string())))?;
        if token["v"] != "meta.k8s.io/v1" {
            let version = token["v"].as_str().unwrap_or_default();
            return Err(wrong(&format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let start = token["start"].as_str().unwrap_or_default();
        let start = start.trim_start_matches('/').trim_end_matches('\0');
        let after = match (&call.place.namespace, call.resource().namespaced, start.split_once('/')) {
            (None, true, Some((namespace, name))) => Key::new(namespace, name),
            (None, true, None) => return Err(wrong("it names no namespace")),
            (namespace, _, _) => Key::new(namespace.clone().unwrap_or_default(), start),
        };
        Ok(Self {
            revision: token["rv"].as_u64(),
            after,
        })
    }
}

impl Call {
    /// The `resourceVersion` parameter; `None` if it is missing.
    pub(crate) fn revision_parameter(&self) -> Result<Option<u64>, ApiError> {
        match self.query.text("resourceVersion") {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|error| {
                let why = unreadable_number("ParseUint", text, &error);
                ApiError::plain(format!("resourceVersion: Invalid value: {text:?}: {why}"))
            }),
        }
    }

    /// The revision that a stale read shows; never one before what the client has seen and names.
    fn stale_revision(&self, not_before: Option<u64>) -> Option<u64> {
        let StaleBy(revisions) = self.stale_by?;
        let store = &self.server.store;
        let revision = store.revision().saturating_sub(revisions);
        let kept = store.oldest(&self.resource().storage);
        Some(revision.max(kept).max(not_before.unwrap_or(0)))
    }

    /// Waits for a revision; one that does not come in time is an error.
    pub(crate) async fn reach(&self, revision: u64) -> Result<(), ApiError> {
        let store = &self.server.store;
        if revision <= store.revision() {
            return Ok(());
        }
        let mut writes = store.tap();
        let reached = async {
            // The tap is older than this look, so no write is missed.
            while store.revision() < revision && writes.recv().await.is_some() {}
        };
        let _ = tokio::time::timeout(FUTURE_REVISION_WAIT, reached).await;
        let current = store.revision();
        if revision <= current {
            return Ok(());
        }
        let message = format!("Timeout: Too large resource version: {revision}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        Err(ApiError::new(504, "Timeout", message).with_details(json!({"causes": [cause], "retryAfterSeconds": 1})))
    }

    /// The form of a stored object whose fields selectors speak of.
    pub(crate) fn selectable_form<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        match &self.version().form {
            Form::Converted { serve, .. } => Cow::Owned(serve(object.clone())),
            Form::Typed(_) | Form::Custom(_) => Cow::Borrowed(object),
        }
    }
}
