//! The webhook server as the API server meets it: over TLS on loopback, with the embedded cluster behind it.

mod graphs;
mod kit;
mod modes;
mod registration;
mod replicas;
mod rules;
mod secret;
mod tls;
