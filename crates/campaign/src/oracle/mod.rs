//! What must hold of every run, whatever goes wrong: ten oracles, each a pure function of what was written.
//! `docs/reliability.md` lists them for people.

mod end;
mod object;
mod ownership;
mod placement;
mod pods;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::play::Played;
use crate::process::is_ours;
use crate::trace::{Change, state};
use crate::world::NAMESPACE;

/// Writes that a run may need more than twice those of the run without faults: the smallest scenarios make a handful.
const WRITES_MORE: usize = 15;
/// As many findings of one oracle as anybody reads.
const SHOWN_MAX: usize = 5;

/// What is asked of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Oracle {
    /// It ends as the run without faults does within ten minutes, and nothing is written then.
    O1,
    /// No clique has more pods than it asks for.
    O2,
    /// No gang is bound below its minimum, no required domain is split.
    O3,
    /// No node holds more than it has.
    O4,
    /// Nobody of ours takes a clique below its minimum.
    O5,
    /// Nothing is left of what was deleted.
    O6,
    /// What others wrote stays.
    O7,
    /// At rest every status is true.
    O8,
    /// At most twice the writes of the run without faults.
    O9,
    /// Nothing is done to what is not ours, nor made for an owner that never was.
    O10,
    /// No process panics, and people can do what they want to do.
    Alive,
}

impl Oracle {
    pub const ALL: [Self; 11] = [
        Self::O1,
        Self::O2,
        Self::O3,
        Self::O4,
        Self::O5,
        Self::O6,
        Self::O7,
        Self::O8,
        Self::O9,
        Self::O10,
        Self::Alive,
    ];
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub oracle: Oracle,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.oracle, self.what)
    }
}

/// What is kept of the run of a scenario in which nothing goes wrong.
#[derive(Clone, Debug)]
pub(crate) struct Clean {
    end: BTreeMap<String, Value>,
    writes: usize,
}

impl Clean {
    pub(crate) fn of(played: &Played) -> Self {
        Self {
            end: end::state_of(played),
            writes: writes(played),
        }
    }
}

/// Judges a run beside the one of the same scenario in which nothing goes wrong.
pub(crate) fn judge(played: &Played, clean: &Clean) -> Vec<Violation> {
    let (split, overfull) = placement::judge(played);
    let asked: [(Oracle, Vec<String>); 11] = [
        (Oracle::Alive, alive(played)),
        (Oracle::O1, esr(played, clean)),
        (Oracle::O2, pods::too_many(played)),
        (Oracle::O3, split),
        (Oracle::O4, overfull),
        (Oracle::O5, pods::below_minimum(played)),
        (Oracle::O6, left(&played.changes)),
        (Oracle::O7, ownership::foreign_touched(played)),
        (Oracle::O8, status::untrue(&state(&played.changes[..played.ended]))),
        (Oracle::O9, too_many_writes(played, clean)),
        (Oracle::O10, ownership::not_ours(played)),
    ];
    let named = |(oracle, findings): (Oracle, Vec<String>)| {
        let shown = findings.into_iter().take(SHOWN_MAX);
        shown.map(move |what| Violation { oracle, what }).collect::<Vec<_>>()
    };
    asked.into_iter().flat_map(named).collect()
}

fn alive(played: &Played) -> Vec<String> {
    let panics = played.panics.iter().map(|said| format!("a process panicked: {said}"));
    panics.chain(played.not_taken.clone()).collect()
}

/// Eventually stable reconciliation: the wanted end is reached, and stays.
fn esr(played: &Played, clean: &Clean) -> Vec<String> {
    let mut findings = end::differences(&end::state_of(played), &clean.end);
    let written = played.at_rest().iter().filter(|change| is_ours(&change.user));
    findings.extend(written.map(|change| format!("written at rest: {}", change.words())));
    findings
}

/// How often our processes wrote while it mattered.
fn writes(played: &Played) -> usize {
    played.acts().iter().filter(|change| is_ours(&change.user)).count()
}

fn too_many_writes(played: &Played, clean: &Clean) -> Vec<String> {
    let (writes, usual) = (writes(played), clean.writes);
    match writes > 2 * usual + WRITES_MORE {
        true => vec![format!("{writes} writes, {usual} without faults")],
        false => Vec::new(),
    }
}

/// What is left of what people and processes made, once all is deleted.
fn left(changes: &[Change]) -> Vec<String> {
    let is_here = |change: &&Change| change.key.1 == NAMESPACE;
    let first = changes
        .iter()
        .position(|change| is_here(&change) && !change.user.is_empty());
    let furniture: BTreeSet<_> = state(&changes[..first.unwrap_or(changes.len())]).into_keys().collect();
    let there = state(changes).into_keys();
    let left = there.filter(|key| key.1 == NAMESPACE && !furniture.contains(key));
    left.map(|(plural, _, name)| format!("{plural} {name} is left"))
        .collect()
}
