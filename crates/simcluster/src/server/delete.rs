//! Delete: marks and removals, grace periods, finalizers and propagation.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::output::{Document, Reply};
use super::read::{Selection, check_list_options};
use super::webhook::{self, Operation, Write};
use super::{Call, convert, part};
use crate::clock::seconds;
use crate::rules::{kinds, metadata};
use crate::status::{ApiError, FieldError, named};
use crate::store::{Entry, Key};

/// What a deletion asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_secs: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// The options as they were sent, for webhooks.
    pub(crate) sent: Value,
    /// Whether the deletion needs no admission: an eviction was admitted as such, and the API server's own hand is free.
    pub(crate) is_admitted: bool,
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

impl DeleteOptions {
    /// Reads the options from the body or, if there is none, from the query.
    fn of(call: &Call) -> Result<Self, ApiError> {
        if !call.body.bytes.is_empty() {
            return Self::read(&part::delete_options(&call.body)?);
        }
        let query = &call.query;
        let mut options = Self::read(&json!({
            "gracePeriodSeconds": query.number("gracePeriodSeconds")?,
            "propagationPolicy": Some(query.text("propagationPolicy")).filter(|text| !text.is_empty()),
            "orphanDependents": query.has("orphanDependents").then(|| query.flag("orphanDependents")),
        }))?;
        options.dry_run = query.dry_run("DeleteOptions")?;
        Ok(options)
    }

    /// Reads a `DeleteOptions` object.
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        let invalid = |error| Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        let policy = &body["propagationPolicy"];
        let propagation = match (policy.as_str(), body["orphanDependents"].as_bool()) {
            (Some(_), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                return invalid(FieldError::invalid("propagationPolicy", policy, why));
            }
            (Some("Background"), _) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, Some(false)) => Some(Propagation::Background),
            (None, None) => None,
            (Some(_), None) => {
                let allowed = ["Foreground", "Background", "Orphan", "nil"];
                return invalid(FieldError::not_supported("propagationPolicy", policy, &allowed));
            }
        };
        if let Some(list) = body["dryRun"]
            .as_array()
            .filter(|list| list.iter().any(|item| item != "All"))
        {
            return invalid(FieldError::not_supported("dryRun", list, &["All"]));
        }
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(Self {
            grace_secs: body["gracePeriodSeconds"]
                .as_i64()
                .map(|secs| if secs < 0 { 1 } else { secs }),
            propagation,
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            dry_run: body["dryRun"]
                .as_array()
                .is_some_and(|list| list.iter().any(|item| item == "All")),
            sent: body.clone(),
            is_admitted: false,
        })
    }
}

/// How a deletion ended.
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Value),
    /// The object is marked and waits for finalizers or its grace period.
    Marked(Value),
}

pub(crate) async fn delete(call: &Call) -> Result<Reply, ApiError> {
    let options = DeleteOptions::of(call)?;
    match delete_object(call, &call.key(), &options).await? {
        Deleted::Marked(object) => Ok(call.reply(200, Document::Value(object))),
        Deleted::Gone(object) if call.resource().traits.delete_answers_object => {
            Ok(call.reply(200, Document::Value(object)))
        }
        Deleted::Gone(object) => {
            let mut details = named(&call.resource().name, call.name());
            details["uid"] = object["metadata"]["uid"].clone();
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            Ok(Reply::json(200, &status))
        }
    }
}

pub(crate) async fn delete_collection(call: &Call) -> Result<Reply, ApiError> {
    let options = DeleteOptions::of(call)?;
    let selection = Selection::of(call)?;
    check_list_options(&call.query)?;
    let page = call
        .server
        .store
        .list(&call.resource().storage, call.place.namespace.as_deref());
    let mut items = Vec::new();
    for (key, entry) in page.items {
        let value = convert::load(call, &entry).await?;
        if !selection.matches(&call.selectable_form(&value)) {
            continue;
        }
        match delete_object(call, &key, &options).await {
            Ok(_) => items.push(Document::Value(value)),
            // Somebody else deleted it first, which is what was wanted.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if call.resource().custom {
        metadata["continue"] = json!("");
    }
    Ok(call.reply_list(&metadata, items))
}

/// What one look at a stored object decides.
enum Step {
    Remove,
    Mark(Value),
    /// It is being deleted already, and this request changes nothing.
    Unchanged,
}

/// Deletes one object of the call's kind.
pub(crate) async fn delete_object(call: &Call, key: &Key, options: &DeleteOptions) -> Result<Deleted, ApiError> {
    let (store, resource) = (&call.server.store, call.resource());
    kinds::may_delete(resource, &key.name)?;
    loop {
        let missing = || ApiError::not_found(&resource.name, &key.name);
        let entry = store.get(&resource.storage, key).ok_or_else(missing)?;
        let old = convert::load(call, &entry).await?;
        check_preconditions(call, key, &old, options)?;
        let step = step(call, &old, options);
        if !options.is_admitted && !matches!(step, Step::Unchanged) {
            admit(call, &old, options).await?;
        }
        let done = match step {
            Step::Unchanged => Some(Deleted::Marked(old)),
            Step::Remove if options.dry_run => Some(Deleted::Gone(old)),
            Step::Mark(marked) if options.dry_run => Some(Deleted::Marked(marked)),
            Step::Remove => store
                .delete(&resource.storage, key, entry.revision)
                .ok()
                .map(|gone| Deleted::Gone(at_revision(old, gone.revision))),
            Step::Mark(marked) => mark(call, key, &entry, marked).await?,
        };
        if let Some(done) = done {
            return Ok(done);
        }
    }
}

/// Asks the webhooks. There is nothing that a mutating one could change, but it may refuse.
async fn admit(call: &Call, old: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let mut shown = webhook::options(call, Operation::Delete, options.dry_run);
    for (field, value) in options.sent.as_object().into_iter().flatten() {
        if !value.is_null() && !shown.as_object().is_some_and(|shown| shown.contains_key(field)) {
            shown[field] = value.clone();
        }
    }
    let write = Write {
        operation: Operation::Delete,
        object: None,
        old: Some(old),
        options: &shown,
        dry_run: options.dry_run,
    };
    webhook::mutate(call, write, |_| Ok(())).await?;
    webhook::validate(call, write).await
}

/// The last state of an object, with the revision of its deletion.
fn at_revision(mut object: Value, revision: u64) -> Value {
    metadata::of(&mut object).insert("resourceVersion".to_owned(), json!(revision.to_string()));
    object
}

/// Writes the mark, and removes the object if nothing holds it. `None`: somebody else was first.
async fn mark(call: &Call, key: &Key, entry: &Entry, mut marked: Value) -> Result<Option<Deleted>, ApiError> {
    let (store, resource) = (&call.server.store, call.resource());
    let Some(written) = convert::put(call, key, Some(entry), &mut marked).await? else {
        return Ok(None);
    };
    let waits = !metadata::finalizers(&marked).is_empty()
        || marked["metadata"]["deletionGracePeriodSeconds"] != 0
        || kinds::holds_itself(resource, &marked);
    if !waits {
        // If another writer comes in between, the object is gone or about to go by that writer's hand.
        let gone = store.delete(&resource.storage, key, written.revision);
        let revision = gone.map_or(written.revision, |gone| gone.revision);
        return Ok(Some(Deleted::Gone(at_revision(marked, revision))));
    }
    Ok(Some(Deleted::Marked(marked)))
}

/// Whether the object is the one that was meant.
pub(super) fn check_preconditions(
    call: &Call,
    key: &Key,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let kind = &call.resource().kind;
    let conflict = |why: String| {
        let group = &call.resource().name.group;
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!(
            "Operation cannot be fulfilled on {kind}{dot}{group} \"{}\": {why}",
            key.name
        );
        let mut details = named(&call.resource().name, &key.name);
        details["kind"] = json!(kind);
        Err(ApiError::new(409, "Conflict", message).with_details(details))
    };
    let stored_uid = metadata::text(old, "uid");
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != stored_uid) {
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({stored_uid}). The object might have been deleted and then recreated"
        ));
    }
    let stored = metadata::text(old, "resourceVersion");
    if let Some(version) = options.resource_version.as_deref().filter(|version| *version != stored) {
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({stored}). The object might have been modified"
        ));
    }
    Ok(())
}

fn step(call: &Call, old: &Value, options: &DeleteOptions) -> Step {
    let resource = call.resource();
    let finalizers = finalizers_after(old, options.propagation);
    let held = !finalizers.is_empty() || kinds::holds_itself(resource, old);
    let mut new = old.clone();
    metadata::set_finalizers(&mut new, &finalizers);
    let marked_grace = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    match (
        metadata::is_terminating(old),
        kinds::grace_secs(resource, old, options.grace_secs),
    ) {
        (true, _) if marked_grace == 0 => match held {
            false => Step::Remove,
            true if new != *old => Step::Mark(new),
            true => Step::Unchanged,
        },
        (true, _) => match options.grace_secs.filter(|grace| *grace < marked_grace) {
            Some(grace) => {
                let mark = metadata::text(old, "deletionTimestamp").parse().unwrap_or(call.now);
                set_mark(&mut new, later(mark, grace - marked_grace), grace);
                Step::Mark(new)
            }
            None => Step::Unchanged,
        },
        (false, None) if !held => Step::Remove,
        (false, graceful) => {
            let grace = graceful.unwrap_or(0);
            set_mark(&mut new, later(call.now, grace), grace);
            if let Some(generation) = new["metadata"]["generation"].as_i64() {
                new["metadata"]["generation"] = json!(generation + 1);
            }
            kinds::on_mark(resource, &mut new);
            Step::Mark(new)
        }
    }
}

/// So many seconds later; at the end of time, then.
fn later(time: Timestamp, secs: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(secs)).unwrap_or(time)
}

fn set_mark(object: &mut Value, at: Timestamp, grace_secs: i64) {
    let metadata = metadata::of(object);
    metadata.insert("deletionTimestamp".into(), json!(seconds(at)));
    metadata.insert("deletionGracePeriodSeconds".into(), json!(grace_secs));
}

/// The finalizers with those of garbage collection as the policy wants them.
fn finalizers_after(old: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let before = metadata::finalizers(old);
    let wanted = match propagation {
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(metadata::FOREGROUND),
        Some(Propagation::Orphan) => Some(metadata::ORPHAN),
        // A deletion that says nothing goes on as an earlier one began.
        None => [metadata::ORPHAN, metadata::FOREGROUND]
            .into_iter()
            .find(|finalizer| before.contains(finalizer)),
    };
    // One that is there already stays where it is: only a change of the set is a change.
    let kept = before
        .iter()
        .filter(|f| ![metadata::ORPHAN, metadata::FOREGROUND].contains(f) || Some(**f) == wanted);
    let mut after: Vec<String> = kept.map(|f| (*f).to_owned()).collect();
    if let Some(wanted) = wanted.filter(|wanted| !before.contains(wanted)) {
        after.push(wanted.to_owned());
    }
    after
}
