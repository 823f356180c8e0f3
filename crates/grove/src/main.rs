//! The `grove` binary: arguments and wiring, nearly no logic.

#![allow(
    dead_code,
    reason = "the operator command, which comes next, is the first user of these modules"
)]

mod exit;
mod lease;

fn main() {}
