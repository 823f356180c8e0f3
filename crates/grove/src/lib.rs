//! What of the `grove` binary others call in their own process: the start-order wait, which the kubelets of the embedded
//! cluster run for real.

pub mod wait_for;
