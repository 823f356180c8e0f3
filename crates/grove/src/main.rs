//! The `grove` binary: arguments and wiring, nearly no logic.

fn main() {}
