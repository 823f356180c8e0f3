//! Every way by which bytes that others chose come into Grove, as a function of bytes.
//!
//! A [`Target`] does with its input what the product does with it, and panics when something does not hold: that nothing
//! panics, that a refusal says what is wrong and where, that a patch can be applied, that nothing is deleted because of an
//! answer that cannot be read. libFuzzer calls these functions with inputs of its own (`fuzz/`); tests call them with the
//! inputs that were kept (`corpus/`), and with those changed by chance.
//!
//! Deliberately not here: the embedded cluster's own parsers (`crates/simcluster/tests/it/fuzz`), which no cluster runs.

mod admission;
mod configuration;
mod labels;
pub mod panics;
mod replies;

/// A way in.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its folder in `corpus/`, and of its program in `fuzz/`.
    pub name: &'static str,
    run: fn(&[u8]),
}

pub const TARGETS: [Target; 6] = [
    target("admission", admission::review),
    target("conversion", admission::conversion),
    target("configuration", configuration::file),
    target("labels", labels::nodes),
    target("plan", configuration::plan),
    target("replies", replies::answers),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// Does with `input` what the product does with what comes in that way.
///
/// # Panics
/// When something does not hold that must hold of any input, or when there is no target of this name.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("there is no target {name}"));
    // Looks and connections are tasks: one that panics ends alone, and the rest goes on.
    let ((), panics) = panics::heard(|| (target.run)(input));
    assert!(panics.is_empty(), "{name}: {}", panics.join("; "));
}
