//! Tests of the API crate from the outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where it stopped")]

mod config;
mod generate;
mod round_trip;
mod schemas;
