//! O1: the end of a run, without what is another in every run. Where pods are is left out too: any place that the rules allow
//! is right, and O3 and O4 judge it; so is what other controllers wrote, which O7 judges.

use std::collections::BTreeMap;

use grove_scenarios::end::Aliases;
pub(super) use grove_scenarios::end::differences;
use serde_json::Value;

use crate::play::Played;
use crate::trace::state;
use crate::world::{FOREIGN, NAMESPACE};

/// Everything that there is at the end, by kind and name.
pub(super) fn state_of(played: &Played) -> BTreeMap<String, Value> {
    let changes = &played.changes[..played.ended];
    let pods = changes.iter().filter(|change| change.plural() == "pods");
    let aliases = Aliases::of(pods.filter_map(|change| change.after.as_deref()));
    let there = state(changes).into_iter();
    let judged = there.filter(|((plural, namespace, _), _)| {
        let is_here = namespace == NAMESPACE && plural != "leases";
        is_here || plural == "clustertopologies"
    });
    let named = judged.map(|((plural, _, name), object)| {
        (
            format!("{plural} {}", aliases.name(name)),
            aliases.plain(plural, object, FOREIGN),
        )
    });
    named.collect()
}
