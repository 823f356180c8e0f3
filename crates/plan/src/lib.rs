//! Where the gangs of PodCliqueSets would go, without any cluster: texts in, places and reasons out.
//!
//! ```text
//! texts ─ read ─▶ Input ─ expand ─▶ gangs with their pods ─ place ─▶ Answer
//! ```
//! The same functions decide here as in a cluster: what a set becomes, what its words mean, where pods go. No file is
//! opened here, and nothing is printed.

mod expand;
mod place;
mod read;

use grove_api::config::Packing;
use thiserror::Error;

pub use expand::{PlannedGang, gangs};
pub use place::{Answer, GangAnswer, PodAnswer, ScopeAnswer, Summary, Verdict, place};
pub use read::Input;

/// What is wrong with a text: where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// The plan of one text.
pub fn plan(text: &str, source: &str) -> Result<Answer, Invalid> {
    let mut input = Input::new(None);
    input.add(text, source)?;
    input.complete(&[])?;
    Ok(place(&input, &gangs(&input)?, Packing::FewestHosts))
}
