//! Tokens: issuing them for service accounts, and knowing their bearers.
//!
//! A token is a JWT as a real cluster's: clients read its claims, and the server believes what it signed, also after a
//! restart. It is good until it expires and as long as all that it is bound to exists: its service account, and the pod,
//! node or Secret that it was asked for.

use std::sync::PoisonError;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::output::Reply;
use super::{Call, Server, part, webhook};
use crate::clock::seconds;
use crate::rules::metadata;
use crate::status::{ApiError, FieldError};
use crate::store::{Key, ResourceName};
use crate::user::User;

const LIFETIME_SECS_DEFAULT: i64 = 3600;
const LIFETIME_SECS_MIN: i64 = 600;
const LIFETIME_SECS_MAX: i64 = 1 << 32;
/// Who issues tokens, which is also the audience that this API server is part of.
const ISSUER: &str = "https://kubernetes.default.svc";
/// The issuer of tokens in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const UNKNOWN: &str = "invalid bearer token";

#[derive(Clone, Debug)]
pub(crate) struct Issued {
    user: User,
    audiences: Vec<String>,
    /// `None` is for ever.
    expires: Option<Timestamp>,
    /// What must exist for the token to be good.
    bound: Vec<Bound>,
}

/// An object that a token is bound to.
#[derive(Clone, Debug)]
struct Bound {
    resource: ResourceName,
    key: Key,
    /// What tells it from others of its name.
    mark: Mark,
}

#[derive(Clone, Debug)]
enum Mark {
    Uid(String),
    /// A Secret holds the token itself.
    Token(String),
}

impl Bound {
    fn to(plural: &str, object: &Value) -> Self {
        let text = |field| metadata::text(object, field);
        Self::by_uid(plural, text("namespace"), text("name"), text("uid"))
    }

    fn by_uid(plural: &str, namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            resource: ResourceName::new("", plural),
            key: Key::new(namespace, name),
            mark: Mark::Uid(uid.to_owned()),
        }
    }

    fn uid(&self) -> &str {
        match &self.mark {
            Mark::Uid(uid) => uid,
            Mark::Token(_) => "",
        }
    }

    fn claim(&self) -> Value {
        json!({"name": self.key.name, "uid": self.uid()})
    }

    /// Whether this is the object.
    fn is(&self, object: &Value) -> bool {
        match &self.mark {
            Mark::Uid(uid) => metadata::text(object, "uid") == uid,
            Mark::Token(token) => object["data"]["token"] == STANDARD.encode(token),
        }
    }
}

/// Reads what a token of ours claims; nothing, if it claims too little.
fn claimed(token: &str, claims: &Value) -> Option<Issued> {
    match claims["iss"].as_str()? {
        LEGACY_ISSUER => claimed_by_secret(token, claims),
        _ => claimed_on_request(claims),
    }
}

fn claimed_by_secret(token: &str, claims: &Value) -> Option<Issued> {
    let claim = |what: &str| claims[format!("kubernetes.io/serviceaccount/{what}")].as_str();
    let (namespace, name) = (claim("namespace")?, claim("service-account.name")?);
    let uid = claim("service-account.uid")?;
    let mut user = User::service_account(namespace, name, uid, "");
    // These tokens have no id that a user could be told by.
    user.extra.clear();
    let secret = Bound {
        resource: ResourceName::new("", "secrets"),
        key: Key::new(namespace, claim("secret.name")?),
        mark: Mark::Token(token.to_owned()),
    };
    Some(Issued {
        user,
        audiences: vec![ISSUER.to_owned()],
        expires: None,
        bound: vec![Bound::by_uid("serviceaccounts", namespace, name, uid), secret],
    })
}

fn claimed_on_request(claims: &Value) -> Option<Issued> {
    let own = &claims["kubernetes.io"];
    let namespace = own["namespace"].as_str()?;
    let object = |kind: &str| Some((own[kind]["name"].as_str()?, own[kind]["uid"].as_str()?));
    let (name, uid) = object("serviceaccount")?;
    let mut user = User::service_account(namespace, name, uid, claims["jti"].as_str()?);
    let mut bound = vec![Bound::by_uid("serviceaccounts", namespace, name, uid)];
    for (kind, namespace) in [("pod", namespace), ("node", ""), ("secret", namespace)] {
        let Some((name, uid)) = object(kind) else { continue };
        // The node of a pod is told, but only the pod must exist.
        if bound.len() == 1 {
            bound.push(Bound::by_uid(&format!("{kind}s"), namespace, name, uid));
        }
        if kind != "secret" {
            for (what, value) in [("name", name), ("uid", uid)] {
                let fact = format!("authentication.kubernetes.io/{kind}-{what}");
                user.extra.insert(fact, vec![value.to_owned()]);
            }
        }
    }
    Some(Issued {
        user,
        audiences: texts(&claims["aud"]),
        expires: Some(Timestamp::from_second(claims["exp"].as_i64()?).ok()?),
        bound,
    })
}

/// The bearer of a good token, and which of the audiences it was asked for it is meant for.
#[derive(Clone, Debug)]
pub(crate) struct Bearer {
    pub(crate) user: User,
    pub(crate) audiences: Vec<String>,
}

impl Server {
    /// Makes `token` a credential of `user` that does not expire.
    pub fn trust_token(&self, token: &str, user: User) {
        let audiences = vec![ISSUER.to_owned()];
        let issued = Issued {
            user,
            audiences,
            expires: None,
            bound: Vec::new(),
        };
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.insert(token.to_owned(), issued);
    }

    /// The user that a bearer token stands for.
    pub fn authenticate(&self, token: &str) -> Option<User> {
        self.bearer(token, &[]).ok().map(|bearer| bearer.user)
    }

    /// Who bears a token that is meant for one of these audiences (none: this API server), or what is wrong with it.
    pub(crate) fn bearer(&self, token: &str, audiences: &[String]) -> Result<Bearer, String> {
        let trusted = || {
            let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            tokens.get(token).cloned()
        };
        let signed = || claimed(token, &self.signer.claims(token)?);
        let issued = trusted().or_else(signed).ok_or(UNKNOWN)?;
        let here = [ISSUER.to_owned()];
        let wanted = if audiences.is_empty() { &here } else { audiences };
        let refused = |why: &str| Err(format!("[{UNKNOWN}, {why}]"));
        if issued.expires.is_some_and(|end| end <= self.clock.now()) {
            return refused("service account token has expired");
        }
        let meant: Vec<String> = wanted
            .iter()
            .filter(|a| issued.audiences.contains(a))
            .cloned()
            .collect();
        if meant.is_empty() && issued.bound.is_empty() {
            return Err(UNKNOWN.to_owned());
        }
        if meant.is_empty() {
            let quoted = |list: &[String]| list.iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(" ");
            let (its, theirs) = (quoted(&issued.audiences), quoted(wanted));
            return refused(&format!(
                "token audiences [{its}] is invalid for the target audiences [{theirs}]"
            ));
        }
        for (i, bound) in issued.bound.iter().enumerate() {
            let found = self.store.get(&bound.resource, &bound.key).map(|entry| entry.value());
            match found {
                Some(found) if bound.is(&found) => {}
                // The first is the account itself.
                None if i == 0 => return refused(&ApiError::not_found(&bound.resource, &bound.key.name).message),
                _ => return refused("service account token has been invalidated"),
            }
        }
        Ok(Bearer {
            user: issued.user,
            audiences: meant,
        })
    }

    /// Issues the token of a Secret: it does not expire, and ends with the Secret or the account.
    pub(crate) fn issue_for_secret(&self, account: &Value, secret: &Value) -> String {
        let text = metadata::text;
        let (namespace, name, uid) = (text(account, "namespace"), text(account, "name"), text(account, "uid"));
        let subject = User::service_account(namespace, name, uid, "").name;
        let claims = json!({
            "iss": LEGACY_ISSUER, "sub": subject,
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": text(secret, "name"),
            "kubernetes.io/serviceaccount/service-account.name": name,
            "kubernetes.io/serviceaccount/service-account.uid": uid,
        });
        self.signer.sign(&claims)
    }
}

pub(crate) async fn issue(call: &Call) -> Result<Reply, ApiError> {
    let request = part::TOKEN_REQUEST.of(call, "CreateOptions")?;
    let named = metadata::text(&request, "name");
    if !named.is_empty() && named != call.name() {
        let why = "must match the service account name if specified";
        return Err(invalid(
            call.name(),
            FieldError::invalid("metadata.name", json!(named), why),
        ));
    }
    let account = call
        .server
        .store
        .get(&call.resource().storage, &call.key())
        .ok_or_else(|| call.not_found())?
        .value();
    let request = webhook::admit_part(call, request, false).await?;
    let lifetime = lifetime_secs(&request["spec"])?;
    let audiences = texts(&request["spec"]["audiences"]);
    let audiences = if audiences.is_empty() {
        vec![ISSUER.to_owned()]
    } else {
        audiences
    };
    let reference = &request["spec"]["boundObjectRef"];
    let bound = match reference.is_object() {
        true => bound_objects(call, &account, reference)?,
        false => Vec::new(),
    };
    let expires = call.now.saturating_add(SignedDuration::from_secs(lifetime));
    let expires = expires.unwrap_or(call.now);
    let token = sign(call, &account, &audiences, expires, &bound);
    let (namespace, name) = (metadata::text(&account, "namespace"), metadata::text(&account, "name"));
    let uid = metadata::text(&account, "uid");
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": seconds(call.now)},
        "spec": {"audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": reference},
        "status": {"token": token, "expirationTimestamp": seconds(expires)},
    });
    Ok(Reply::json(201, &answer))
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    items.map(str::to_owned).collect()
}

fn invalid(name: &str, error: FieldError) -> ApiError {
    ApiError::invalid("authentication.k8s.io", "TokenRequest", name, &[error])
}

fn lifetime_secs(spec: &Value) -> Result<i64, ApiError> {
    let lifetime = spec["expirationSeconds"].as_i64().unwrap_or(LIFETIME_SECS_DEFAULT);
    let why = match lifetime {
        ..LIFETIME_SECS_MIN => "may not specify a duration less than 10 minutes",
        LIFETIME_SECS_MIN..=LIFETIME_SECS_MAX => return Ok(lifetime),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let error = FieldError::invalid("spec.expirationSeconds", json!(lifetime), why);
    Err(invalid("", error))
}

/// What a `boundObjectRef` names: a pod with its node, a node, or a Secret.
fn bound_objects(call: &Call, account: &Value, reference: &Value) -> Result<Vec<Bound>, ApiError> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let (plural, namespace) = match kind {
        "Pod" => ("pods", metadata::text(account, "namespace")),
        "Secret" => ("secrets", metadata::text(account, "namespace")),
        "Node" => ("nodes", ""),
        _ => {
            let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
            return Err(ApiError::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    if name.is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    let stored = |plural: &str, namespace: &str, name: &str| {
        let resource = ResourceName::new("", plural);
        let found = call.server.store.get(&resource, &Key::new(namespace, name));
        found
            .map(|entry| entry.value())
            .ok_or_else(|| ApiError::not_found(&resource, name))
    };
    let object = stored(plural, namespace, name)?;
    let own_account = metadata::text(account, "name");
    if kind == "Pod" && object["spec"]["serviceAccountName"] != own_account {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {own_account:?} to pod running with different serviceaccount name."
        )));
    }
    let bound = Bound::to(plural, &object);
    let uid = text("uid");
    if !uid.is_empty() && uid != bound.uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(&ResourceName::new("", kind), name, why));
    }
    // The node of a pod is told, but only the pod must exist.
    let node = object["spec"]["nodeName"]
        .as_str()
        .filter(|node| kind == "Pod" && !node.is_empty());
    let node = node.and_then(|node| stored("nodes", "", node).ok());
    Ok([Some(bound), node.map(|node| Bound::to("nodes", &node))]
        .into_iter()
        .flatten()
        .collect())
}

/// Makes a token.
fn sign(call: &Call, account: &Value, audiences: &[String], expires: Timestamp, bound: &[Bound]) -> String {
    let id = call.server.entropy.uid();
    let (namespace, name) = (metadata::text(account, "namespace"), metadata::text(account, "name"));
    let uid = metadata::text(account, "uid");
    let mut own = json!({"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}});
    for object in bound {
        own[object.resource.plural.trim_end_matches('s')] = object.claim();
    }
    let claims = json!({
        "aud": audiences, "exp": expires.as_second(), "iat": call.now.as_second(), "nbf": call.now.as_second(),
        "iss": ISSUER, "jti": id, "sub": User::service_account(namespace, name, uid, &id).name, "kubernetes.io": own,
    });
    call.server.signer.sign(&claims)
}
