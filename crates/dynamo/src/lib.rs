//! DynamoGraphDeployments on Grove: what such a graph becomes, what may be written, and how it is told about.
//!
//! ```text
//! v1alpha1 ◀─convert─▶ v1beta1 ─validate─▶ stored ─translate─▶ PodCliqueSet, Services, access
//!                                             ▲                      │
//!                                             └────────status────────┘
//! ```
//!
//! [`convert`], [`validate`], [`translate`] and [`status`] are pure functions. [`controller`] is the shell around the last
//! two: it watches and writes, and decides nothing. The shell of the first two is admission's.
//!
//! The controller never reads a topology, and nothing here makes one: which words there are is asked of the framework that
//! places gangs ([`framework`]), when a graph is created.

pub mod controller;
pub mod convert;
pub mod framework;
pub mod status;
pub mod translate;
pub mod validate;
