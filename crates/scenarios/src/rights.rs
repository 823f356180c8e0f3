//! What a program asked of the API server, beside what its roles grant.

use std::collections::BTreeSet;

use grove_simcluster::history::History;
use grove_simcluster::server::Intent;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// Group of an API, and "verb resource" in it.
pub type Right = (String, String);

/// Everything that rules grant, whatever objects they name.
pub fn granted(rules: impl IntoIterator<Item = PolicyRule>) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        let (groups, resources) = (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default());
        for (group, resource) in groups
            .iter()
            .flat_map(|group| resources.iter().map(move |resource| (group, resource)))
        {
            let verbs = rule.verbs.iter();
            rights.extend(verbs.map(|verb| (group.clone(), format!("{verb} {resource}"))));
        }
    }
    rights
}

/// Everything that a user has asked for.
pub fn used(history: &History, user: &str) -> BTreeSet<Right> {
    let right = |intent: &Intent| {
        let resource = match intent.subresource.as_str() {
            "" => intent.resource.plural.to_string(),
            subresource => format!("{}/{subresource}", intent.resource.plural),
        };
        (intent.resource.group.to_string(), format!("{} {resource}", intent.verb))
    };
    let asked = history.requests().by_user(user);
    asked.iter().map(|asked| right(&asked.intent)).collect()
}
