//! The share of the campaign that every change goes through, and the check that its oracles find bugs.

mod bugs;
mod kept;
mod share;
