//! Tests of the API crate from the outside.

mod config;
mod generate;
mod round_trip;
mod schemas;
