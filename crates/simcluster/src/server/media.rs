//! Content negotiation: in which form a client wants the answer, and in which form it sent the body.

use serde_json::json;

use crate::status::ApiError;
use crate::table::{IncludeObject, TableError};

/// The media type of server-side apply.
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// How an answer is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Encoding {
    #[default]
    Json,
    Yaml,
}

/// What an answer shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum View {
    /// The whole object.
    #[default]
    Object,
    /// Only its metadata, as `PartialObjectMetadata`.
    Metadata,
    /// A row of a table, with so much of the object in it.
    Table(IncludeObject),
    /// The groups of discovery in one document.
    AggregatedDiscovery,
}

/// What the API server speaks.
const KNOWN: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// The first form of an `Accept` header that the server can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Accepted {
    pub(crate) encoding: Encoding,
    pub(crate) view: View,
}

impl Accepted {
    /// Picks a form. Protobuf is never picked: answers are JSON or YAML, and every client of Kubernetes takes JSON.
    pub(crate) fn negotiate(header: &str) -> Result<Self, ApiError> {
        if header.trim().is_empty() {
            return Ok(Self::default());
        }
        let first = header.split(',').find_map(Self::clause);
        first.ok_or_else(|| {
            let known = |clause: &str| KNOWN.contains(&media_type(clause)) || clause.trim().starts_with("*/*");
            match header.split(',').any(known) {
                true => {
                    let message = format!("only the following media types are accepted: {}", KNOWN.join(", "));
                    ApiError::new(406, "NotAcceptable", message)
                }
                false => {
                    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", KNOWN.join(", "));
                    ApiError::new(406, "NotAcceptable", message).with_details(json!({}))
                }
            }
        })
    }

    /// The same with the parameter that says how much of each object a table carries.
    pub(crate) fn including(mut self, parameter: &str) -> Result<Self, ApiError> {
        if let View::Table(include) = &mut self.view {
            *include = parameter
                .parse()
                .map_err(|error: TableError| ApiError::bad_request(error.to_string()))?;
        }
        Ok(self)
    }

    fn clause(clause: &str) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        let encoding = match parts.next()? {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            _ => return None,
        };
        let parameter = |name: &str| {
            parts
                .clone()
                .filter_map(|part| part.split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        let view = match (parameter("as"), parameter("g"), parameter("v")) {
            (None, _, _) => View::Object,
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
                View::Metadata
            }
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) => View::Table(IncludeObject::default()),
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => View::AggregatedDiscovery,
            _ => return None,
        };
        Some(Self { encoding, view })
    }
}

/// The media type of a `Content-Type` header, without parameters.
pub(crate) fn media_type(header: &str) -> &str {
    header.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_given_is_taken() {
        let view = |header: &str| Accepted::negotiate(header).map(|accepted| accepted.view);
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(view(metadata), Ok(View::Metadata));
        let protobuf = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(view(protobuf), Ok(View::Object));
        assert_eq!(view(""), Ok(View::Object));
        assert_eq!(view("application/json, */*"), Ok(View::Object));
        assert_eq!(
            Accepted::negotiate("application/yaml").map(|a| a.encoding),
            Ok(Encoding::Yaml)
        );
        assert_eq!(view("application/cbor").unwrap_err().code, 406);
        assert_eq!(
            view("application/json;as=Nothing;g=meta.k8s.io;v=v1").unwrap_err().code,
            406
        );
    }
}
