//! What containers may ask for.

use serde_json::Value;

use crate::rules::quantity::Quantity;
use crate::status::FieldError;

/// Judges limits and requests.
pub(super) fn validate(resources: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let amounts = |list: &str| {
        resources[list]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
    };
    for list in ["limits", "requests"] {
        for (name, value) in amounts(list) {
            let parsed = value.as_str().and_then(Quantity::parse);
            let field = format!("{path}.{list}[{name}]");
            match parsed.map(Quantity::millis) {
                Some(millis) if millis >= 0 => {
                    if name.contains('/') && millis % 1000 != 0 {
                        errors.push(FieldError::invalid(field, &value, "must be an integer"));
                    }
                }
                _ => errors.push(FieldError::invalid(field, &value, "must be greater than or equal to 0")),
            }
        }
    }
    for (name, request) in amounts("requests") {
        let parse = |value: &Value| value.as_str().and_then(Quantity::parse).map(Quantity::millis);
        let limit = &resources["limits"][&name];
        if let (Some(asked), Some(allowed)) = (parse(&request), parse(limit))
            && asked > allowed
        {
            let why = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            errors.push(FieldError::invalid(format!("{path}.requests"), &request, why));
        }
    }
    errors
}
