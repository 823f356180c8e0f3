//! One test binary for the crate.

mod generate;
mod round_trip;
mod schemas;
