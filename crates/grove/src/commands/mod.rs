//! One module per sub-command: its arguments, and what it does with them.

pub(crate) mod crds;
pub(crate) mod operator;
