//! O3 and O4: every moment of the run, judged with `plancheck`.

use grove_scenarios::audit::{Audit, Moment, RESOURCES, Terms};
use jiff::SignedDuration;

use crate::play::Played;

/// A gang that never was whole gives its places back 30 seconds after its newest bind. Who should do that may itself be dead,
/// blind for the five minutes after which a silent watch is given up, or refused: until faults have ended and ten minutes have
/// passed.
const GRACE: SignedDuration = SignedDuration::from_mins(20);

/// What is wrong: with gangs and domains, and with capacities.
pub(super) fn judge(played: &Played) -> (Vec<String>, Vec<String>) {
    let judged = played
        .changes
        .iter()
        .filter(|change| RESOURCES.contains(&change.plural()));
    let moments = judged.map(|change| Moment {
        resource: change.key.0.clone(),
        namespace: change.key.1.clone(),
        name: change.key.2.clone(),
        object: change.after.as_deref().cloned(),
        time: change.time,
    });
    let terms = Terms {
        spills: false,
        grace: GRACE.saturating_add(played.jumped),
    };
    match Audit::judged(moments, terms) {
        Ok(_) => (Vec::new(), Vec::new()),
        Err(wrong) if wrong.is_overcommitment() => (Vec::new(), vec![wrong.to_string()]),
        Err(wrong) => (vec![wrong.to_string()], Vec::new()),
    }
}
