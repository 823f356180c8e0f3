//! What the operator of the release before left of a set; `operator/upgrade.rs` says how it is recorded.

use crate::recorded::Recorded;

pub(crate) const BEFORE: Recorded = Recorded {
    fixture: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/operator/upgrade.jsonl"),
    namespace: "upgrade",
};
pub(crate) const PODS: usize = 4;
