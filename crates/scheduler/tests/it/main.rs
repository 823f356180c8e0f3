//! The scheduler beside a real operator on the embedded cluster. Every test ends with an audit of its whole history.

mod churn;
mod crash;
mod gangs;
mod labels;
mod metrics;
mod namesake;
mod numa;
mod pins;
mod pods;
mod priority;
mod refused;
mod replica;
mod rights;
mod support;
mod trace;
mod writes;
