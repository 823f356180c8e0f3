//! The steps of one gang's way from apply to running, as whoever takes them tells of them.
//!
//! A step is told when it has ended, with its own times: nothing stays open however long a gang waits. Which trace it
//! belongs to travels with the objects, as text in an annotation ([`Context`]). Who collects the steps is not known here,
//! and where nobody does, nothing is made up to be told.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// For how long steps go into the trace of the apply that they follow from. Those after it are traces of their own with a
/// link to it: gangs live for months, and traces are looked at whole.
const TRACE_MAX: Duration = Duration::from_secs(15 * 60);

/// A span of a trace, as one process tells it to another (W3C Trace Context, `traceparent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: u128,
    pub span: u64,
    pub is_sampled: bool,
}

impl FromStr for Context {
    type Err = ();

    /// Reads version 00, and of later ones what they share with it.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('-');
        let mut part = |length: usize| {
            let part = parts.next().filter(|part| part.len() == length).ok_or(())?;
            let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            is_hex.then_some(part).ok_or(())
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let context = Self {
            trace: u128::from_str_radix(trace, 16).map_err(drop)?,
            span: u64::from_str_radix(span, 16).map_err(drop)?,
            is_sampled: u8::from_str_radix(flags, 16).map_err(drop)? & 1 == 1,
        };
        let is_whole = version != "ff" && (version != "00" || parts.next().is_none());
        (is_whole && context.trace != 0 && context.span != 0)
            .then_some(context)
            .ok_or(())
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}

/// How a step came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Of itself.
    Root,
    /// As a part of this span.
    Within(Context),
    /// Because of this span, in a trace of its own.
    After(Context),
}

impl Origin {
    /// Of a step that follows from an apply of this age.
    pub fn following(context: Context, age: Duration) -> Self {
        match age < TRACE_MAX {
            true => Self::Within(context),
            false => Self::After(context),
        }
    }
}

/// Something that was done, and how long it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// From a closed set: what it was about is in the attributes.
    pub name: &'static str,
    pub origin: Origin,
    pub begun: Timestamp,
    pub ended: Timestamp,
    pub attributes: Vec<(&'static str, String)>,
    /// What went wrong.
    pub error: Option<String>,
}

/// Whoever collects steps.
pub trait Recorder: Send + Sync {
    /// Takes a step, and says which span it became.
    fn record(&self, step: Step) -> Context;
}

/// The way to the recorder, if there is one. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<dyn Recorder>>);

impl Tracer {
    pub fn new(recorder: Arc<dyn Recorder>) -> Self {
        Self(Some(recorder))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Tells of a step, which is only put together if somebody listens.
    pub fn record(&self, step: impl FnOnce() -> Step) -> Option<Context> {
        self.0.as_ref().map(|recorder| recorder.record(step()))
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("is_on", &self.is_on()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_reads_back_as_it_was_written() {
        let context: Context = TEXT.parse().unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.span, 0x00f0_67aa_0ba9_02b7);
        assert_eq!(context.to_string(), TEXT);
    }

    #[test]
    fn what_is_no_context_is_none() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<Context>(), Err(()), "{text}");
        }
        assert!(TEXT.replacen("00", "01", 1).parse::<Context>().is_ok());
    }

    #[test]
    fn what_comes_long_after_an_apply_is_a_trace_of_its_own() {
        let context: Context = TEXT.parse().unwrap();
        assert_eq!(Origin::following(context, Duration::ZERO), Origin::Within(context));
        assert_eq!(Origin::following(context, TRACE_MAX), Origin::After(context));
    }

    #[test]
    fn nothing_is_put_together_for_nobody() {
        assert_eq!(Tracer::default().record(|| panic!("nobody listens")), None);
    }
}
