//! Server-side apply, and the tracking of who owns which field.
//!
//! Every writer owns the fields that it set last. [`apply`] merges a configuration into the live object: a field that
//! another manager owns with a different value is a conflict, unless forced; a field that this applier set before and
//! left out now is removed, unless somebody else owns it too. [`track_update`] records the owner after any other write.
//!
//! The fields of an entry are taken to have the same paths in every version of a kind: that holds for custom resources
//! without a conversion webhook and for the built-in kinds that are served in one version.

mod compare;
mod fields_v1;
mod fieldset;
mod last_applied;
mod managed;
mod merge;
mod typed;

use std::sync::OnceLock;

use jiff::Timestamp;
use serde_json::{Map, Value};
use thiserror::Error;

use self::compare::Comparison;
pub use self::fieldset::FieldSet;
use self::managed::{Entry, Identity, Managed, Operation};
use super::types::TypeSchema;

/// Stands for everything that was there when the first applier came.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, to what, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    pub kind: &'a str,
    /// `status`, `scale`, or empty.
    pub subresource: &'a str,
    /// Fields that a write to this endpoint cannot change (`status` on the main endpoint), so that nobody owns them by it.
    pub ignored: &'a FieldSet,
    pub now: Timestamp,
}

/// Why a configuration cannot be applied.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ApplyError {
    /// 400.
    #[error("{0}")]
    BadRequest(String),
    /// 500 without a reason.
    #[error("{0}")]
    Schema(String),
    /// 409; every conflict is a cause with the reason `FieldManagerConflict`.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
}

/// A field of the configuration that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager: `"kubectl"`, `"m1" using v1`.
    pub manager: String,
    /// The path of the field: `.spec.items[name="a"].value`.
    pub field: String,
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [Conflict { manager, field }] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {manager}: {field}");
    }
    let mut lines = Vec::new();
    let mut last = None;
    for Conflict { manager, field } in conflicts {
        if last != Some(manager) {
            lines.push(format!("conflicts with {manager}:"));
            last = Some(manager);
        }
        lines.push(format!("- {field}"));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Applies a configuration to the live object, or creates one where there is none. The result is not defaulted and not
/// validated; applied again it changes nothing, not even a time.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    schema: TypeSchema<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    check_config(config, writer)?;
    let zero = schema.zero();
    let mut live = live.unwrap_or(&zero).clone();
    let mut managed = Managed::decode(&live)
        .map_err(|error| ApplyError::Schema(format!("failed to decode managed fields: {error}")))?;
    forget_managed_fields(&mut live);
    if managed.0.is_empty() {
        let before = Writer {
            manager: BEFORE_FIRST_APPLY,
            ..*writer
        };
        update(&zero, &live, &mut managed, schema, &before);
    }
    let errors = typed::errors(schema, config, false);
    if !errors.is_empty() {
        let (name, errors) = (describe(config), one_or_list(errors));
        return Err(ApplyError::Schema(format!(
            "failed to create typed patch object ({name}): {errors}"
        )));
    }
    let attempt = Attempt {
        live: &live,
        config,
        schema,
        writer,
    };
    let (mut object, managed) = match attempt.run(managed.clone(), force) {
        Err(conflicts) => {
            let left = last_applied::unexcused(conflicts, &live, schema, writer);
            if !left.is_empty() {
                return Err(ApplyError::Conflicts(
                    left.into_iter().map(OwnedConflict::tell).collect(),
                ));
            }
            attempt
                .run(managed, true)
                .map_err(|conflicts| ApplyError::Conflicts(conflicts.into_iter().map(OwnedConflict::tell).collect()))?
        }
        Ok(applied) => applied,
    };
    drop_zero_nulls(&mut object, &zero);
    last_applied::renew(&mut object, config, writer);
    managed.encode_into(&mut object);
    Ok(object)
}

/// Records the owner of every field that a write other than apply changed. `new` is the object as it will be stored,
/// `live` what it replaces. A client may reset the entries or send them changed; what it sends broken is ignored.
pub fn track_update(live: Option<&Value>, mut new: Value, schema: TypeSchema<'_>, writer: &Writer<'_>) -> Value {
    let of_live = || live.and_then(|live| Managed::decode(live).ok()).unwrap_or_default();
    let mut managed = match managed::raw(&new) {
        _ if !writer.subresource.is_empty() => of_live(),
        Some(entries) if managed::is_reset(entries) => Managed::default(),
        _ => Managed::decode(&new)
            .ok()
            .filter(|sent| !sent.0.is_empty())
            .unwrap_or_else(of_live),
    };
    forget_managed_fields(&mut new);
    // An object whose entries were reset is not tracked until somebody applies.
    if managed.0.is_empty() && live.is_some() {
        return new;
    }
    // The entries themselves are in the live object only; nobody owns them, so that they look removed does no harm.
    let zero = live.is_none().then(|| schema.zero());
    let live = live.or(zero.as_ref()).unwrap_or(&Value::Null);
    update(live, &new, &mut managed, schema, writer);
    managed.cap_updates();
    managed.encode_into(&mut new);
    new
}

fn check_config(config: &Value, writer: &Writer<'_>) -> Result<(), ApplyError> {
    if config["apiVersion"] != writer.api_version || config["kind"] != writer.kind {
        return Err(ApplyError::BadRequest(format!(
            "invalid object type: {}",
            group_version_kind(config)
        )));
    }
    if managed::raw(config).is_some() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    Ok(())
}

fn forget_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// An object as the API server names it in errors: `ns/name; demo.test/v1, Kind=Widget`.
fn describe(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}; {}", text("namespace"), text("name"), group_version_kind(object))
}

fn group_version_kind(object: &Value) -> String {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    format!("{group}/{version}, Kind={}", text("kind"))
}

fn one_or_list(errors: Vec<String>) -> String {
    match errors.as_slice() {
        [only] => only.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    }
}

/// A required list that nobody gave is null in the zero object; it is not part of the result.
fn drop_zero_nulls(object: &mut Value, zero: &Value) {
    let (Value::Object(fields), Value::Object(zero)) = (object, zero) else {
        return;
    };
    for (name, zero) in zero {
        match fields.get_mut(name) {
            Some(Value::Null) if zero.is_null() => {
                fields.remove(name);
            }
            Some(value) => drop_zero_nulls(value, zero),
            None => {}
        }
    }
}

/// A conflict before it is told: the excuses of [`last_applied`] need the path.
struct OwnedConflict {
    owner: Identity,
    path: Vec<fieldset::PathElement>,
}

impl OwnedConflict {
    fn tell(self) -> Conflict {
        let field = self.path.iter().map(ToString::to_string).collect();
        Conflict {
            manager: self.owner.describe(),
            field,
        }
    }
}

struct Attempt<'a> {
    live: &'a Value,
    config: &'a Value,
    schema: TypeSchema<'a>,
    writer: &'a Writer<'a>,
}

impl Attempt<'_> {
    fn run(&self, mut managed: Managed, force: bool) -> Result<(Value, Managed), Vec<OwnedConflict>> {
        let Self {
            live,
            config,
            schema,
            writer,
        } = *self;
        let merged = merge::merge(schema, Some(live), Some(config)).unwrap_or_else(|| Value::Object(Map::new()));
        let identity = Identity::new(writer.manager, Operation::Apply, writer.api_version, writer.subresource);
        let last = managed.0.remove(&identity);
        let fields = typed::field_set(schema, config).difference_below(writer.ignored);
        let time = last.as_ref().and_then(|last| last.time);
        managed.0.insert(
            identity.clone(),
            Entry {
                api_version: writer.api_version.to_owned(),
                time,
                fields,
            },
        );
        let object = match &last {
            Some(last) => self.prune(&merged, &managed, &last.fields),
            None => merged,
        };
        let comparison = Comparison::between(schema, live, &object).without(writer.ignored);
        take_over(&mut managed, &comparison, Some(&identity), force)?;
        strip_metadata(&mut managed, &identity);
        if object != *live
            && let Some(entry) = managed.0.get_mut(&identity)
        {
            entry.time = Some(writer.now);
        }
        Ok((object, managed))
    }

    /// Removes what this applier set last time and left out now, except what somebody (this applier included) owns.
    fn prune(&self, merged: &Value, managed: &Managed, last: &FieldSet) -> Value {
        let schema = self.schema;
        let named = |set: &FieldSet| set.with_named_parents(Some(schema));
        let last = named(last);
        let fields_of = |value: &Value| named(&typed::field_set(schema, value));
        let everything = fields_of(merged);
        let owned = managed
            .0
            .values()
            .fold(FieldSet::default(), |all, entry| all.union(entry.fields.clone()));
        let without_last = merge::remove(schema, merged, &last);
        let kept = fields_of(&without_last).union(named(&owned));
        let pruned = merge::remove(schema, merged, &everything.clone().difference(&kept));
        // Only what this applier owned may go: a container emptied by the removal takes nothing of others with it.
        let gone = everything.difference(&fields_of(&pruned)).intersection(&last);
        merge::remove(schema, merged, &gone)
    }
}

/// Takes changed and removed fields from everyone but `writer`; without force, a changed field of theirs is a conflict.
fn take_over(
    managed: &mut Managed,
    comparison: &Comparison,
    writer: Option<&Identity>,
    force: bool,
) -> Result<(), Vec<OwnedConflict>> {
    let Comparison { changed, removed } = comparison;
    let others = || managed.0.iter().filter(|(identity, _)| Some(*identity) != writer);
    let conflicts = others().flat_map(|(owner, entry)| {
        let paths = entry.fields.intersection(changed).paths();
        paths.into_iter().map(|path| OwnedConflict {
            owner: owner.clone(),
            path,
        })
    });
    if !force {
        let conflicts: Vec<OwnedConflict> = conflicts.collect();
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    for (identity, entry) in &mut managed.0 {
        if Some(identity) != writer {
            entry.fields = std::mem::take(&mut entry.fields)
                .difference(changed)
                .difference(removed);
        }
    }
    managed.0.retain(|_, entry| !entry.fields.is_empty());
    Ok(())
}

fn update(live: &Value, new: &Value, managed: &mut Managed, schema: TypeSchema<'_>, writer: &Writer<'_>) {
    let comparison = Comparison::between(schema, live, new).without(writer.ignored);
    if take_over(managed, &comparison, None, true).is_err() {
        return;
    }
    let changed = comparison.changed.difference(unowned_metadata());
    if changed.is_empty() {
        return;
    }
    let identity = Identity::new(
        writer.manager,
        Operation::Update,
        writer.api_version,
        writer.subresource,
    );
    let before = managed
        .0
        .remove(&identity)
        .map_or_else(FieldSet::default, |entry| entry.fields);
    let entry = Entry {
        api_version: writer.api_version.to_owned(),
        time: Some(writer.now),
        fields: changed.union(before),
    };
    managed.0.insert(identity, entry);
}

/// What the server sets and nobody owns.
fn unowned_metadata() -> &'static FieldSet {
    static FIELDS: OnceLock<FieldSet> = OnceLock::new();
    FIELDS.get_or_init(|| {
        FieldSet::of_fields([
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    })
}

fn strip_metadata(managed: &mut Managed, identity: &Identity) {
    if let Some(entry) = managed.0.get_mut(identity) {
        entry.fields = std::mem::take(&mut entry.fields).difference(unowned_metadata());
        if entry.fields.is_empty() {
            managed.0.remove(identity);
        }
    }
}

#[cfg(test)]
mod tests;
