//! Label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

pub(crate) type Labels = BTreeMap<String, String>;

/// Whether labels match. An empty selector matches all; an operator that is not known matches nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    let holds = |requirement: &LabelSelectorRequirement| {
        let value = labels.get(&requirement.key);
        let listed = |value: &String| requirement.values.iter().flatten().any(|known| known == value);
        match requirement.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    selector.match_labels.iter().flatten().all(equal) && selector.match_expressions.iter().flatten().all(holds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let labels = Labels::from([("app".to_owned(), "llm".to_owned())]);
        let check = |selector: serde_json::Value| matches(&serde_json::from_value(selector).unwrap(), &labels);
        let expression = |operator: &str, key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        assert!(check(json!({})));
        assert!(check(json!({"matchLabels": {"app": "llm"}})));
        assert!(!check(json!({"matchLabels": {"app": "x"}})));
        assert!(check(expression("In", "app", &["x", "llm"])));
        assert!(!check(expression("NotIn", "app", &["llm"])));
        assert!(
            check(expression("NotIn", "role", &["llm"])),
            "without the label there is nothing to exclude"
        );
        assert!(check(expression("DoesNotExist", "role", &[])));
        assert!(!check(expression("Near", "app", &["llm"])));
    }
}
