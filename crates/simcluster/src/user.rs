//! Who sends a request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// An authenticated user. What it may do is the matter of `authorization`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct User {
    /// `system:serviceaccount:ns:name`, `kubernetes-admin`, …
    pub name: String,
    /// Uid, if there is one.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Further facts, such as the credential's id.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The administrator: the identity of a request that brings no credentials of its own.
    pub fn admin() -> Self {
        Self::named("kubernetes-admin", &["system:masters", "system:authenticated"])
    }

    /// Somebody without credentials.
    pub fn anonymous() -> Self {
        Self::named("system:anonymous", &["system:unauthenticated"])
    }

    /// A user with groups.
    pub fn named(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self {
            name: name.to_owned(),
            groups,
            ..Self::default()
        }
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str, uid: &str, token_id: &str) -> Self {
        let groups = [
            "system:serviceaccounts",
            &format!("system:serviceaccounts:{namespace}"),
            "system:authenticated",
        ];
        let mut user = Self::named(&format!("system:serviceaccount:{namespace}:{name}"), &groups);
        user.uid = uid.to_owned();
        user.extra.insert(
            "authentication.kubernetes.io/credential-id".into(),
            vec![format!("JTI={token_id}")],
        );
        user
    }

    /// A controller of kube-controller-manager, which has a service account for each.
    pub fn controller(name: &str) -> Self {
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ];
        Self::named(&format!("system:serviceaccount:kube-system:{name}"), &groups)
    }

    /// The kubelet of a node.
    pub fn node(name: &str) -> Self {
        Self::named(
            &format!("system:node:{name}"),
            &["system:nodes", "system:authenticated"],
        )
    }

    /// `userInfo`, as reviews show it.
    pub fn info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}
