//! What Grove tells about itself, asked as those ask who run it: a real Prometheus scrapes it and evaluates the dashboard
//! and the alerts, a collector takes its traces, and its logs are read for what must not be in them.
//!
//! `grove operator` and `grove scheduler` run as processes on an embedded cluster, each test with its own.

mod collector;
mod http;
mod logs;
mod metrics;
mod prometheus;
mod stage;
mod traces;
