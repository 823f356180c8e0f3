//! Admission webhooks: what others add to an object or refuse, asked on every write.
//!
//! ```text
//! write ─ mutate ─ one hook after another, by name; each sees what those before it made
//!         (defaults, validation)
//!       ─ validate ─ all hooks at once; any refusal counts
//! ```
//!
//! `hook` reads the stored configurations, `rules` and `conditions` decide whom a request concerns, `review` is the
//! question and the judgement of the answer, `client` asks. Not here: a second round of `reinvocationPolicy: IfNeeded`.

mod client;
mod conditions;
mod hook;
mod review;
mod rules;

use futures::future::join_all;
use serde_json::{Value, json};

use super::query::FieldValidation;
use super::update::served_form;
use super::{Call, Place, custom, decode};
use crate::patch::JsonPatch;
use crate::rules::{kinds, metadata};
use crate::status::ApiError;
use hook::Hook;
pub(crate) use hook::Hooks;
pub(crate) use review::options;
use review::{Failure, Verdict};

/// What a request is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A write, as admission looks at it.
///
/// Objects are in stored form or, of a subresource with a kind of its own (Binding, Scale, …), as that kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) operation: Operation,
    /// What is written; nothing on deletion.
    pub(crate) object: Option<&'a Value>,
    /// What is there now; nothing on creation.
    pub(crate) old: Option<&'a Value>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub(crate) options: &'a Value,
    pub(crate) dry_run: bool,
}

impl Write<'_> {
    /// Name that the request is about; a deletion of a collection has none.
    fn name<'a>(&'a self, call: &'a Call) -> &'a str {
        match self.object.map(|object| metadata::text(object, "name")) {
            Some(name) if call.name().is_empty() => name,
            _ => call.name(),
        }
    }

    /// Namespace that the request is about; a namespace is in itself.
    fn namespace<'a>(&'a self, call: &'a Call) -> &'a str {
        match &call.place.namespace {
            Some(namespace) => namespace,
            None if rules::is_namespace(call) => self.name(call),
            None => "",
        }
    }
}

/// Asks the mutating webhooks. Returns what became of the object, if any of them changed it.
pub(crate) async fn mutate(call: &Call, write: Write<'_>) -> Result<Option<Value>, ApiError> {
    let mut changed: Option<Value> = None;
    for hook in call.server.hooks.of(&call.server, true) {
        let write = Write {
            object: changed.as_ref().or(write.object),
            ..write
        };
        let Some(version) = concerns(call, &hook, &write)? else {
            continue;
        };
        let call = &as_version(call, version);
        let patch = match ask(call, &hook, &write).await? {
            Some(Verdict { patch: Some(patch), .. }) => patch,
            _ => continue,
        };
        if let Some(new) = patched(call, &hook, &write, &patch)? {
            changed = Some(new);
        }
    }
    Ok(changed)
}

/// Asks the validating webhooks.
pub(crate) async fn validate(call: &Call, write: Write<'_>) -> Result<(), ApiError> {
    let mut concerned = Vec::new();
    for hook in call.server.hooks.of(&call.server, false) {
        if let Some(version) = concerns(call, &hook, &write)? {
            concerned.push((hook, as_version(call, version)));
        }
    }
    let asked = concerned.iter().map(|(hook, call)| ask(call, hook, &write));
    for answer in join_all(asked).await {
        answer?;
    }
    Ok(())
}

/// The version in which a hook wants to see this write; `None` if it does not want to see it at all.
fn concerns(call: &Call, hook: &Hook, write: &Write<'_>) -> Result<Option<String>, ApiError> {
    if rules::is_exempt(call) {
        return Ok(None);
    }
    let Some(version) = rules::version_for(call, hook, write) else {
        return Ok(None);
    };
    let selected = rules::selects(call, hook, write)
        && conditions::hold(&as_version(call, version.clone()), hook, write).or_else(|error| {
            match hook.ignores_failure {
                true => Ok(false),
                false => Err(ApiError::forbidden(&call.resource().name, write.name(call), error)),
            }
        })?;
    Ok(selected.then_some(version))
}

/// The same request as if it had been made in another version of the kind.
fn as_version(call: &Call, version: String) -> Call {
    let asked_version = Some(call.place.version.clone()).filter(|asked| *asked != version);
    Call {
        place: Place {
            version,
            ..call.place.clone()
        },
        asked_version,
        ..call.clone()
    }
}

/// Asks one hook. `None`: it could not be asked, and that does not matter.
async fn ask(call: &Call, hook: &Hook, write: &Write<'_>) -> Result<Option<Verdict>, ApiError> {
    if write.dry_run && !hook.allows_dry_run {
        return Err(ApiError::bad_request(format!(
            "admission webhook {:?} does not support dry run",
            hook.name
        )));
    }
    let uid = call.server.entropy.uid();
    let question = review::question(call, write, &uid);
    let answer = client::post(&call.server, hook, &question).await;
    let verdict = answer.and_then(|answer| review::verdict(&answer, &uid, hook.mutating));
    match verdict {
        Ok(verdict) => {
            call.warn(&verdict.warnings);
            match &verdict.denial {
                Some(status) => Err(review::denied(&hook.name, status)),
                None => Ok(Some(verdict)),
            }
        }
        Err(Failure(why)) if hook.ignores_failure => {
            tracing::warn!(webhook = hook.name, why, "a webhook failed and is ignored");
            Ok(None)
        }
        Err(Failure(why)) => Err(internal(format!("failed calling webhook {:?}: {why}", hook.name))),
    }
}

fn internal(why: String) -> ApiError {
    let message = format!("Internal error occurred: {why}");
    ApiError::new(500, "InternalError", message).with_details(json!({"causes": [{"message": why}]}))
}

/// What a patch makes of the object: again of the right type, and with defaults. `None`: what it was.
fn patched(call: &Call, hook: &Hook, write: &Write<'_>, patch: &Value) -> Result<Option<Value>, ApiError> {
    let patch = JsonPatch::decode(patch).map_err(|error| internal(error.to_string()))?;
    if patch.is_empty() {
        return Ok(None);
    }
    let Some(object) = write.object else {
        let name = &hook.name;
        let why = format!(
            "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
        );
        return Err(internal(why));
    };
    let mut shown = shown(call, object);
    patch.apply(&mut shown).map_err(|error| internal(error.to_string()))?;
    if own_kind(call).is_some() {
        return Ok(Some(shown));
    }
    let decoded = decode::shape(call, shown, FieldValidation::Ignore, decode::Source::Patch);
    let mut new = decoded.map_err(|error| internal(error.message))?.object;
    kinds::default(call.resource(), &mut new);
    custom::default(call, &mut new);
    Ok(Some(new))
}

/// Group, version and kind of what the request carries, where that is not the object itself.
fn own_kind(call: &Call) -> Option<(&'static str, &'static str, &'static str)> {
    call.place.subresource.and_then(|subresource| subresource.answers())
}

/// An object as a hook sees it.
fn shown(call: &Call, object: &Value) -> Value {
    let Some((group, version, kind)) = own_kind(call) else {
        return served_form(call, object);
    };
    let mut shown = object.clone();
    shown["apiVersion"] = match group {
        "" => json!(version),
        group => json!(format!("{group}/{version}")),
    };
    shown["kind"] = json!(kind);
    shown
}

/// Asks all webhooks about what was sent to a subresource with a kind of its own, such as a Binding. Returns what the
/// mutating ones made of it.
pub(crate) async fn admit_part(call: &Call, part: Value, dry_run: bool) -> Result<Value, ApiError> {
    let options = options(call, Operation::Create, dry_run);
    let changed = mutate(call, creation(&part, &options, dry_run)).await?;
    let part = changed.unwrap_or(part);
    validate(call, creation(&part, &options, dry_run)).await?;
    Ok(part)
}

/// The creation of an object, as admission looks at it.
pub(crate) fn creation<'a>(object: &'a Value, options: &'a Value, dry_run: bool) -> Write<'a> {
    Write {
        operation: Operation::Create,
        object: Some(object),
        old: None,
        options,
        dry_run,
    }
}
