//! As whom a request is made: its sender, or whom the sender may pretend to be.
//!
//! Who may `impersonate:user-info` somebody and `impersonate-on:user-info:list` pods may list pods as that user; there are
//! such verbs for service accounts and nodes too. Who may just `impersonate` somebody may do so for everything.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::Server;
use super::authorize::{Question, forbidden};
use crate::authorization::{Asked, MASTERS};
use crate::rules::names::subdomain_problem;
use crate::status::ApiError;
use crate::user::User;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// What sort of user somebody wants to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort<'a> {
    User,
    Node(&'a str),
    Account { namespace: &'a str, name: &'a str },
}

impl<'a> Sort<'a> {
    fn of(name: &'a str) -> Self {
        let account = name.strip_prefix("system:serviceaccount:");
        let node = name.strip_prefix("system:node:");
        match (account.and_then(|account| account.split_once(':')), node) {
            (Some((namespace, name)), _) => Self::Account { namespace, name },
            (_, Some(node)) if subdomain_problem(node).is_none() => Self::Node(node),
            _ => Self::User,
        }
    }
}

/// The verbs that are asked about, and the group in which users and their groups are resources.
struct Mode<'a> {
    verb: String,
    group: &'a str,
    is_constrained: bool,
}

impl Server {
    pub(crate) fn impersonate(&self, user: User, parts: &Parts) -> Result<User, ApiError> {
        let Some(wanted) = wanted(&parts.headers)? else {
            return Ok(user);
        };
        let sort = Sort::of(&wanted.name);
        let legacy = Mode {
            verb: "impersonate".to_owned(),
            group: "",
            is_constrained: false,
        };
        let refused = match constrained(sort, &wanted) {
            None => None,
            Some(word) => match self.become_by(&user, (&wanted, sort), word, parts) {
                Ok(user) => return Ok(user),
                Err(error) => Some(error),
            },
        };
        let become_any = self.become_in(&user, (&wanted, sort), &legacy);
        // The first refusal is told.
        become_any.map_err(|error| refused.unwrap_or(error))
    }

    /// Tries the verbs that are for this request only.
    fn become_by(&self, user: &User, wanted: (&User, Sort<'_>), word: &str, parts: &Parts) -> Result<User, ApiError> {
        let question = Question::of(parts).with_verb(|verb| format!("impersonate-on:{word}:{verb}"));
        self.check(user, &question.asked())?;
        let mode = Mode {
            verb: format!("impersonate:{word}"),
            group: AUTHENTICATION,
            is_constrained: true,
        };
        self.become_in(user, wanted, &mode)
    }

    fn become_in(&self, user: &User, (wanted, sort): (&User, Sort<'_>), mode: &Mode<'_>) -> Result<User, ApiError> {
        let asked = |group, plural, subresource, namespace, name| Asked::Resource {
            verb: &mode.verb,
            group,
            plural,
            subresource,
            namespace,
            name,
        };
        let mut becomes = wanted.clone();
        match sort {
            Sort::Account { namespace, name } => {
                if wanted.groups.is_empty() {
                    becomes.groups = vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{namespace}"),
                    ];
                }
                self.check(user, &asked(mode.group, "serviceaccounts", "", namespace, name))?;
            }
            Sort::Node(name) if mode.is_constrained => {
                becomes.groups = vec!["system:nodes".to_owned()];
                self.check(user, &asked(mode.group, "nodes", "", "", name))?;
            }
            Sort::Node(_) | Sort::User => self.check(user, &asked(mode.group, "users", "", "", &wanted.name))?,
        }
        if !wanted.uid.is_empty() {
            self.check(user, &asked(AUTHENTICATION, "uids", "", "", &wanted.uid))?;
        }
        for group in &wanted.groups {
            let asked = asked(mode.group, "groups", "", "", group);
            if mode.is_constrained && group == MASTERS {
                let why = "impersonating the system:masters group is not allowed";
                return Err(forbidden(user, &asked, why));
            }
            self.check(user, &asked)?;
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.check(user, &asked(AUTHENTICATION, "userextras", key, "", value))?;
            }
        }
        add_common_group(&mut becomes);
        Ok(becomes)
    }
}

/// Everybody is in the group of those with a name, or in the other one.
fn add_common_group(user: &mut User) {
    let has = |group: &str| user.groups.iter().any(|known| known == group);
    let common = match user.name.as_str() {
        "system:anonymous" => UNAUTHENTICATED,
        _ if has(UNAUTHENTICATED) => return,
        _ => AUTHENTICATED,
    };
    if !has(common) {
        user.groups.push(common.to_owned());
    }
}

/// The word for impersonation of this sort. Nodes and service accounts are what their name says, and nothing else.
fn constrained(sort: Sort<'_>, wanted: &User) -> Option<&'static str> {
    let only_name = wanted.groups.is_empty() && wanted.uid.is_empty() && wanted.extra.is_empty();
    match sort {
        Sort::User => Some("user-info"),
        Sort::Node(_) => only_name.then_some("arbitrary-node"),
        Sort::Account { .. } => only_name.then_some("serviceaccount"),
    }
}

/// The user that the headers name; `None` if they name nobody.
fn wanted(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    let texts = |name: &str| {
        let values = headers.get_all(name).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        texts.map(str::to_owned).collect::<Vec<String>>()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix("impersonate-extra-"), value.to_str()) {
            let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
            extra.entry(key).or_default().push(value.to_owned());
        }
    }
    let wanted = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: texts("impersonate-group"),
        extra,
    };
    match (wanted.name.is_empty(), wanted == User::default()) {
        (false, _) => Ok(Some(wanted)),
        (true, true) => Ok(None),
        (true, false) => Err(ApiError::bad_request(format!(
            "requested {} without impersonating a user name",
            printed(&wanted)
        ))),
    }
}

/// A user as Go prints its own type.
fn printed(user: &User) -> String {
    let list = |list: &[String]| {
        let quoted: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = match user.groups.is_empty() {
        true => "[]string(nil)".to_owned(),
        false => list(&user.groups),
    };
    let extra = match user.extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => {
            let entries = user
                .extra
                .iter()
                .map(|(key, values)| format!("{key:?}:{}", list(values)));
            format!("map[string][]string{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    };
    let (name, uid) = (&user.name, &user.uid);
    format!("&user.DefaultInfo{{Name:{name:?}, UID:{uid:?}, Groups:{groups}, Extra:{extra}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_sort_of_user() {
        assert_eq!(Sort::of("bob"), Sort::User);
        assert_eq!(Sort::of("system:node:n1"), Sort::Node("n1"));
        assert_eq!(Sort::of("system:node:N!"), Sort::User);
        let account = Sort::of("system:serviceaccount:a:b");
        assert_eq!(
            account,
            Sort::Account {
                namespace: "a",
                name: "b"
            }
        );
        let mut with_groups = User::named("system:serviceaccount:a:b", &[]);
        assert_eq!(constrained(account, &with_groups), Some("serviceaccount"));
        with_groups.groups.push("g".to_owned());
        assert_eq!(constrained(account, &with_groups), None);
    }

    #[test]
    fn groups_of_nobody_are_told_as_go_prints_them() {
        let mut headers = HeaderMap::new();
        assert_eq!(wanted(&headers).unwrap(), None);
        headers.insert("impersonate-group", "g".parse().unwrap());
        let told = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, \
                    Extra:map[string][]string(nil)} without impersonating a user name";
        assert_eq!(wanted(&headers).unwrap_err().message, told);
        headers.insert("impersonate-user", "bob".parse().unwrap());
        assert_eq!(wanted(&headers).unwrap().unwrap().groups, ["g"]);
    }

    #[test]
    fn everybody_is_in_one_of_two_groups() {
        let groups = |name: &str, groups: &[&str]| {
            let mut user = User::named(name, groups);
            add_common_group(&mut user);
            user.groups
        };
        assert_eq!(groups("bob", &["devs"]), ["devs", AUTHENTICATED]);
        assert_eq!(groups("bob", &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
        assert_eq!(groups("system:anonymous", &[]), [UNAUTHENTICATED]);
    }
}
