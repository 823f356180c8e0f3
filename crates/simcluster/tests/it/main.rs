//! The server as its clients see it: every test speaks to it through a door.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected must fail")]

mod autoscaling;
mod bad_requests;
mod behaviour;
mod chaos;
mod controller;
mod conversion;
mod data;
mod definitions;
mod deletion;
mod discovery;
mod faults;
mod fleet;
mod fuzz;
mod hook_server;
mod lists;
mod objects;
mod patches;
mod pods;
mod quotas;
mod rbac;
mod schemas;
mod socket;
mod support;
mod tables;
mod tokens;
mod watches;
mod webhooks;
