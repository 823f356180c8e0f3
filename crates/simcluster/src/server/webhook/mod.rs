//! Admission webhooks: what others add to an object or refuse, asked on every write.
//!
//! ```text
//! write ─ mutate ─ one hook after another, by name; each sees what those before it made, and some are asked again
//!         (defaults, validation)
//!       ─ validate ─ all hooks at once; any refusal counts
//! ```
//!
//! `hook` reads the stored configurations, `rules` and `conditions` decide whom a request concerns, `review` is the
//! question and the judgement of the answer, `client` asks.

pub(crate) mod client;
mod conditions;
mod hook;
mod review;
mod rules;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};

use super::query::FieldValidation;
use super::update::served_form;
use super::{Call, Place, convert, custom, decode};
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

/// Which hooks are asked a second time: those with `reinvocationPolicy: IfNeeded` whose object changed after they saw it.
#[derive(Debug, Default)]
struct Reinvocation {
    /// Asked since the last change, and willing to be asked again.
    previous: BTreeSet<usize>,
    due: BTreeSet<usize>,
}

impl Reinvocation {
    fn changed(&mut self) {
        self.due.append(&mut self.previous);
    }
}

/// Asks the mutating webhooks. Returns what became of the object, if any of them changed it.
///
/// `admit` is what the server itself adds to an object. It runs again over what webhooks made, and whoever wants to
/// know of later changes is asked a second time.
pub(crate) async fn mutate(
    call: &Call,
    write: Write<'_>,
    admit: impl Fn(&mut Value) -> Result<(), ApiError>,
) -> Result<Option<Value>, ApiError> {
    let hooks = call.server.hooks.of(&call.server, true);
    let mut again = Reinvocation::default();
    let mut changed = None;
    round(call, write, &hooks, (&mut again, &mut changed), |_, _| true).await?;
    let Some(object) = &mut changed else {
        return Ok(None);
    };
    let before = object.clone();
    admit(object)?;
    if *object != before {
        again.changed();
    }
    round(call, write, &hooks, (&mut again, &mut changed), |again, i| {
        again.due.contains(&i)
    })
    .await?;
    Ok(changed)
}

async fn round(
    call: &Call,
    write: Write<'_>,
    hooks: &[Arc<Hook>],
    (again, changed): (&mut Reinvocation, &mut Option<Value>),
    is_asked: impl Fn(&Reinvocation, usize) -> bool,
) -> Result<(), ApiError> {
    for (i, hook) in hooks.iter().enumerate() {
        if !is_asked(again, i) {
            continue;
        }
        let write = Write {
            object: changed.as_ref().or(write.object),
            ..write
        };
        let Some(seen) = Seen::by(call, hook, &write).await? else {
            continue;
        };
        let verdict = ask(&seen.call, hook, &seen.write(&write)).await?;
        if let Some(patch) = verdict.and_then(|verdict| verdict.patch)
            && let Some(new) = patched(&seen.call, hook, &seen.write(&write), &patch)?
        {
            let new = seen.back(call, new).await?;
            if Some(&new) != write.object {
                *changed = Some(new);
                again.changed();
            }
        }
        if hook.is_reinvoked {
            again.previous.insert(i);
        }
    }
    Ok(())
}

/// Asks the validating webhooks.
pub(crate) async fn validate(call: &Call, write: Write<'_>) -> Result<(), ApiError> {
    let mut concerned = Vec::new();
    for hook in call.server.hooks.of(&call.server, false) {
        if let Some(seen) = Seen::by(call, &hook, &write).await? {
            concerned.push((hook, seen));
        }
    }
    let asked = concerned
        .iter()
        .map(async |(hook, seen)| ask(&seen.call, hook, &seen.write(&write)).await);
    for answer in join_all(asked).await {
        answer?;
    }
    Ok(())
}

/// A write as one hook sees it: in the version that it asks for.
struct Seen {
    call: Call,
    /// The objects in another version than that of the request; `None` if it is the same.
    converted: Option<(Option<Value>, Option<Value>)>,
}

impl Seen {
    /// `None`: the hook does not want to see this write.
    async fn by(call: &Call, hook: &Hook, write: &Write<'_>) -> Result<Option<Self>, ApiError> {
        if rules::is_exempt(call) {
            return Ok(None);
        }
        let Some(version) = rules::version_for(call, hook, write) else {
            return Ok(None);
        };
        if !rules::selects(call, hook, write) {
            return Ok(None);
        }
        let is_other = version != call.place.version && call.resource().custom && own_kind(call).is_none();
        let converted = match is_other {
            true => Some((
                in_version(call, write.object, &version).await?,
                in_version(call, write.old, &version).await?,
            )),
            false => None,
        };
        let seen = Self {
            call: as_version(call, version),
            converted,
        };
        let holds = conditions::hold(&seen.call, hook, &seen.write(write));
        let holds = holds.or_else(|error| match hook.ignores_failure {
            true => Ok(false),
            false => Err(ApiError::forbidden(&call.resource().name, write.name(call), error)),
        })?;
        Ok(holds.then_some(seen))
    }

    fn write<'a>(&'a self, write: &Write<'a>) -> Write<'a> {
        match &self.converted {
            None => *write,
            Some((object, old)) => Write {
                object: object.as_ref(),
                old: old.as_ref(),
                ..*write
            },
        }
    }

    /// What a hook made of the object, in the version of the request.
    async fn back(&self, call: &Call, object: Value) -> Result<Value, ApiError> {
        if self.converted.is_none() {
            return Ok(object);
        }
        let versions = (self.call.place.version.as_str(), call.place.version.as_str());
        let converted = convert::between(&call.server, call.resource(), vec![object], versions).await;
        Ok(converted.map_err(internal)?.pop().unwrap_or_default())
    }
}

/// An object of the request in another version.
async fn in_version(call: &Call, object: Option<&Value>, version: &str) -> Result<Option<Value>, ApiError> {
    let Some(object) = object else { return Ok(None) };
    let versions = (call.place.version.as_str(), version);
    let converted = convert::between(&call.server, call.resource(), vec![object.clone()], versions).await;
    Ok(converted.map_err(internal)?.pop())
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
    let answer = client::post(&call.server, &hook.name, &hook.remote, &question, review::EXPECTED).await;
    let verdict = answer
        .map_err(Failure::from)
        .and_then(|answer| review::verdict(&answer, &uid, hook.mutating));
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
    let changed = mutate(call, creation(&part, &options, dry_run), |_| Ok(())).await?;
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
