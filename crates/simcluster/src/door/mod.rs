//! The two doors to one server: a `tower::Service` for `kube::Client` in the same process, and HTTPS on a socket.
//!
//! A door reads the body, finds out who knocks, and passes the request on. It decides nothing about objects.

mod authority;
mod service;
mod socket;

use http::header;
use http::request::Parts;

pub(crate) use authority::Authority;
pub use service::Door;
pub use socket::{ListenError, Listener};

use crate::server::Server;
use crate::status::ApiError;
use crate::user::User;

/// The user behind a request: the bearer of its token, else `default`; and whom that user pretends to be.
fn identify(server: &Server, parts: &Parts, default: Option<&User>) -> Result<User, ApiError> {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let user = match bearer {
        Some(token) => server.authenticate(token.trim()),
        // Where rights are evaluated, there are some that everybody has.
        None => default.cloned().or_else(|| server.rbac.then(User::anonymous)),
    };
    let user = user.ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized"))?;
    server.impersonate(user, parts)
}
