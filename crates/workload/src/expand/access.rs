//! What lets pods that wait see the cliques that they wait for.
//!
//! A projected token speaks for the service account of the pod that it is mounted into, so the pods' own accounts are
//! given the right; there is no account, and no long-lived Secret, of ours. The right is as small as it can be: to read
//! the PodCliques that are waited for, and those that wait, by name. A watch of one object by `metadata.name` is judged
//! by that name. It exists only where an order is asked for, and follows from the template: a pod that waits for what is
//! scaled to zero must still see it.

use std::collections::BTreeSet;

use grove_api::{GROUP, labels};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::Expansion;
use crate::meta::child_meta;
use crate::names::{self, Membership, Place};

impl<'a> Expansion<'a> {
    pub(super) fn access(&self) -> Option<(Role, RoleBinding)> {
        let mut read = BTreeSet::new();
        let mut accounts = BTreeSet::new();
        for place in self.places() {
            let parents = self.possible_parents(&place);
            if !parents.is_empty() {
                accounts.insert(service_account(&place));
                read.insert(self.name_at(&place));
            }
            read.extend(parents);
        }
        if read.is_empty() {
            return None;
        }
        let name = names::role(&self.set_name());
        let rule = PolicyRule {
            api_groups: Some(vec![GROUP.to_owned()]),
            resources: Some(vec!["podcliques".to_owned()]),
            resource_names: Some(read.into_iter().collect()),
            verbs: ["get", "list", "watch"].map(str::to_owned).to_vec(),
            ..PolicyRule::default()
        };
        let role = Role {
            metadata: child_meta(self.set, &name, Some(labels::component::POD_ROLE)),
            rules: Some(vec![rule]),
        };
        let subject = |name: String| Subject {
            kind: "ServiceAccount".to_owned(),
            name,
            namespace: self.set.metadata.namespace.clone(),
            ..Subject::default()
        };
        let binding = RoleBinding {
            metadata: child_meta(self.set, &name, Some(labels::component::POD_ROLE_BINDING)),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "Role".to_owned(),
                name,
            },
            subjects: Some(accounts.into_iter().map(subject).collect()),
        };
        Some((role, binding))
    }

    fn name_at(&self, place: &Place<'_>) -> String {
        let (set, clique) = (self.set_name(), &place.template.name);
        match place.member {
            None => names::podclique(&set, place.replica, clique),
            Some(member) => {
                let group = names::scaling_group(&set, place.replica, &member.group.name);
                names::member_podclique(&group, member.group_replica, clique)
            }
        }
    }

    /// The place of every clique of the set, those of a group's minimum included, were it scaled to zero.
    fn places(&self) -> Vec<Place<'a>> {
        let mut places = Vec::new();
        for replica in self.replicas() {
            places.extend(names::standalone(self.set).map(|template| Place {
                replica,
                template,
                member: None,
            }));
            for group in &self.set.spec.template.scaling_groups {
                let name = names::scaling_group(&self.set_name(), replica, &group.name);
                let replicas = self.live.group_replicas(&name, group);
                for group_replica in 0..replicas.max(names::bounded(group.min_available())) {
                    let member = Some(Membership { group, group_replica });
                    places.extend(names::members(self.set, group).map(|template| Place {
                        replica,
                        template,
                        member,
                    }));
                }
            }
        }
        places
    }
}

/// The account that pods of a clique run as.
fn service_account(place: &Place<'_>) -> String {
    let written = place.template.spec.pod_spec.service_account_name.clone();
    written
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}
