//! Label and field selectors: parsing with the API server's error texts, and matching.
//!
//! Selectors see decoded objects. Which fields a kind can be selected by is the registry's knowledge.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
