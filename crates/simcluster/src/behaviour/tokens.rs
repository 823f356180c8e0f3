//! Secrets of type `kubernetes.io/service-account-token`: they get their token, and go with their account.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Actor, Writes};
use crate::rules::metadata;
use crate::rules::smaller::{ACCOUNT_NAME, ACCOUNT_TOKEN};
use crate::server::DeleteOptions;
use crate::store::{EventKind, Key, ResourceName};

/// Whose token the Secret holds; written once that is known.
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

fn secrets() -> ResourceName {
    ResourceName::new("", "secrets")
}

pub(super) fn wants(resource: &ResourceName, kind: EventKind) -> bool {
    match kind {
        EventKind::Deleted => resource.is("", "serviceaccounts"),
        EventKind::Added | EventKind::Modified => resource.is("", "secrets"),
    }
}

pub(super) async fn run(actor: Actor, mut writes: Writes) {
    let secrets = secrets();
    while let Some((resource, event)) = writes.recv().await {
        if resource == secrets {
            keep(&actor, &event.key).await;
        } else {
            for (key, _) in actor.server.store.list(&secrets, Some(&event.key.namespace)).items {
                keep(&actor, &key).await;
            }
        }
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

/// Fills a token Secret; one whose account is not there goes. Other Secrets are left alone.
async fn keep(actor: &Actor, key: &Key) {
    let Some(secret) = actor
        .get(&secrets(), key)
        .filter(|secret| secret["type"] == ACCOUNT_TOKEN)
    else {
        return;
    };
    let accounts = ResourceName::new("", "serviceaccounts");
    let account = actor.get(
        &accounts,
        &Key::new(key.namespace.as_str(), annotation(&secret, ACCOUNT_NAME)),
    );
    let named = annotation(&secret, ACCOUNT_UID);
    let account = account.filter(|account| named.is_empty() || named == metadata::text(account, "uid"));
    let Some(account) = account else {
        let options = DeleteOptions {
            uid: Some(metadata::text(&secret, "uid").to_owned()),
            ..DeleteOptions::default()
        };
        actor.delete(&secrets(), key, &options).await;
        return;
    };
    let is_there = |field: &str| secret["data"][field].is_string();
    if !named.is_empty() && ["token", "ca.crt", "namespace"].into_iter().all(is_there) {
        return;
    }
    let maps = ResourceName::new("", "configmaps");
    let authority = actor.get(&maps, &Key::new(key.namespace.as_str(), "kube-root-ca.crt"));
    let authority = authority.and_then(|map| map["data"]["ca.crt"].as_str().map(str::to_owned));
    let wanted = [
        ("token", actor.server.issue_for_secret(&account, &secret)),
        ("ca.crt", authority.unwrap_or_default()),
        ("namespace", key.namespace.clone()),
    ];
    let secrets = secrets();
    let filled = actor
        .server
        .change_internal(&actor.user, (&secrets, key), None, |secret| {
            if !secret["data"].is_object() {
                secret["data"] = json!({});
            }
            for (field, text) in &wanted {
                if !secret["data"][field].is_string() {
                    secret["data"][field] = json!(STANDARD.encode(text));
                }
            }
            secret["metadata"]["annotations"][ACCOUNT_UID] = account["metadata"]["uid"].clone();
        });
    if let Err(error) = filled.await
        && error.code != 404
    {
        tracing::warn!(namespace = key.namespace, name = key.name, %error, "cannot fill a token Secret");
    }
}
