//! The two doors to one server: a `tower::Service` for `kube::Client` in the same process, and HTTPS on a socket.
//!
//! A door reads the body, finds out who knocks, and passes the request on. It decides nothing about objects.

mod service;
mod socket;

use http::{HeaderMap, header};

pub use service::Door;
pub use socket::{ListenError, Listener};

use crate::server::Server;
use crate::status::ApiError;
use crate::user::User;

/// The user behind a request: whoever the bearer token or the impersonation headers name, else `default`.
fn identify(server: &Server, headers: &HeaderMap, default: Option<&User>) -> Result<User, ApiError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let user = match bearer {
        Some(token) => server.authenticate(token.trim()),
        None => default.cloned(),
    };
    let user = user.ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized"))?;
    let Some(name) = text("impersonate-user") else {
        return Ok(user);
    };
    let groups = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|value| value.to_str().ok());
    let groups: Vec<&str> = groups.chain(["system:authenticated"]).collect();
    Ok(User::named(name, &groups))
}
