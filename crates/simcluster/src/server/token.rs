//! Tokens: issuing them for service accounts, and knowing their bearers.
//!
//! A token looks like the JWT of a real cluster, because clients read its claims, but it is not signed: the server
//! remembers what it issued.

use std::sync::PoisonError;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::output::Reply;
use super::{Call, Server, decode, webhook};
use crate::clock::seconds;
use crate::rules::metadata;
use crate::status::{ApiError, FieldError};
use crate::user::User;

const LIFETIME_SECS_DEFAULT: i64 = 3600;
const LIFETIME_SECS_MIN: i64 = 600;
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

#[derive(Clone, Debug)]
pub(crate) struct Issued {
    user: User,
    /// `None` is for ever.
    expires: Option<Timestamp>,
}

impl Server {
    /// Makes `token` a credential of `user` that does not expire.
    pub fn trust_token(&self, token: &str, user: User) {
        self.remember(token, Issued { user, expires: None });
    }

    /// The user that a bearer token stands for.
    pub fn authenticate(&self, token: &str) -> Option<User> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        tokens
            .get(token)
            .filter(|issued| issued.expires.is_none_or(|end| now < end))
            .map(|issued| issued.user.clone())
    }

    fn remember(&self, token: &str, issued: Issued) {
        self.tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token.to_owned(), issued);
    }
}

pub(crate) async fn issue(call: &Call) -> Result<Reply, ApiError> {
    let account = call
        .server
        .store
        .get(&call.resource().storage, &call.key())
        .ok_or_else(|| call.not_found())?
        .value();
    let request = match call.body.bytes.is_empty() {
        true => json!({}),
        false => decode::value(&call.body, "TokenRequest")?,
    };
    let request = webhook::admit_part(call, request, false).await?;
    let lifetime = request["spec"]["expirationSeconds"]
        .as_i64()
        .unwrap_or(LIFETIME_SECS_DEFAULT);
    if lifetime < LIFETIME_SECS_MIN {
        let why = "may not specify a duration less than 10 minutes";
        let error = FieldError::invalid("spec.expirationSeconds", json!(lifetime), why);
        return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", &[error]));
    }
    let audiences = match request["spec"]["audiences"].as_array() {
        Some(list) if !list.is_empty() => json!(list),
        _ => json!([ISSUER]),
    };
    let expires = call
        .now
        .saturating_add(SignedDuration::from_secs(lifetime))
        .unwrap_or(call.now);
    let id = call.server.entropy.uid();
    let (namespace, name) = (metadata::text(&account, "namespace"), metadata::text(&account, "name"));
    let uid = metadata::text(&account, "uid");
    let subject = User::service_account(namespace, name, uid, &id);
    let claims = json!({
        "aud": audiences, "exp": expires.as_second(), "iat": call.now.as_second(), "nbf": call.now.as_second(),
        "iss": ISSUER, "jti": id, "sub": subject.name,
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
    });
    let token = encode(&claims, &call.server.entropy.uid());
    call.server.remember(
        &token,
        Issued {
            user: subject,
            expires: Some(expires),
        },
    );
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": seconds(call.now)},
        "spec": {"audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": seconds(expires)},
    });
    Ok(Reply::json(201, &answer))
}

fn encode(claims: &Value, signature: &str) -> String {
    let part = |text: String| URL_SAFE_NO_PAD.encode(text);
    let header = json!({"alg": "none", "typ": "JWT"});
    format!(
        "{}.{}.{}",
        part(header.to_string()),
        part(claims.to_string()),
        part(signature.to_owned())
    )
}
