//! Reads [`Types`] from OpenAPI v3: the trimmed document of the built-in kinds, and the schemas of custom resources.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};
use thiserror::Error;

use super::types::{
    DEDUCED, Field, ListKind, ListShape, MapShape, PatchRule, Scalar, Shapes, Type, TypeId, Types, UNTYPED,
};

const BUILTIN_DOCUMENT: &str = include_str!("../../openapi/kubernetes-1.36.json");
const META_TYPES: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// Quantities are described as strings, but clients may send numbers.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// Why a document does not describe types.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OpenApiError {
    #[error("the OpenAPI document has no components.schemas object")]
    NoSchemas,
    #[error("{path}: `{keyword}` cannot be {value}")]
    Keyword {
        path: String,
        keyword: &'static str,
        value: String,
    },
}

/// The types of the built-in kinds, as kube-apiserver 1.36 publishes them.
pub fn builtin_types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| read_builtin(|_| true))
}

/// The types that metadata is made of.
fn metadata_types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| read_builtin(|name| name.starts_with(META_TYPES)))
}

fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT
        .get_or_init(|| serde_json::from_str(BUILTIN_DOCUMENT).expect("the document is part of the program and tested"))
}

/// What the API server publishes of a built-in kind: the name of its schema, and with it all that it refers to.
pub fn published(kind: &Value) -> Option<(String, Map<String, Value>)> {
    let all = document()["components"]["schemas"].as_object()?;
    let of_kind = |schema: &Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.contains(kind))
    };
    let (name, _) = all.iter().find(|(_, schema)| of_kind(schema))?;
    Some((name.clone(), reached(name)))
}

/// The schema of a built-in type, with all that it refers to.
pub fn reached(name: &str) -> Map<String, Value> {
    let (mut found, mut open) = (Map::new(), vec![name.to_owned()]);
    let all = document()["components"]["schemas"].as_object();
    while let Some(next) = open.pop() {
        let schema = all.and_then(|all| all.get(&next));
        if let Some(schema) = schema.filter(|_| !found.contains_key(&next)) {
            references(schema, &mut open);
            found.insert(next, schema.clone());
        }
    }
    found
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(keyword, value)| match (keyword.as_str(), value) {
                ("$ref", Value::String(target)) => found.extend(target.rsplit('/').next().map(str::to_owned)),
                _ => references(value, found),
            }),
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn read_builtin(is_wanted: fn(&str) -> bool) -> Types {
    let mut document = document().clone();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.retain(|name, _| is_wanted(name));
    }
    Types::from_openapi(&document).expect("the document is part of the program and tested")
}

impl Types {
    /// Reads every schema of an OpenAPI v3 document. A kind is known by its `x-kubernetes-group-version-kind`.
    pub fn from_openapi(document: &Value) -> Result<Self, OpenApiError> {
        let schemas = document["components"]["schemas"]
            .as_object()
            .ok_or(OpenApiError::NoSchemas)?;
        let mut types = Self::default();
        let first = types.named.len();
        let ids: Ids = schemas
            .keys()
            .enumerate()
            .map(|(at, name)| (name.as_str(), TypeId(first + at)))
            .collect();
        for (name, schema) in schemas {
            let shapes = match name.as_str() {
                QUANTITY => Shapes {
                    scalar: Some(Scalar::Any),
                    ..Shapes::default()
                },
                RAW_EXTENSION => types.named[UNTYPED.0].1.clone(),
                _ => Reader {
                    path: name,
                    ids: &ids,
                    preserves_unknown: false,
                }
                .shapes(schema)?,
            };
            let id = TypeId(types.named.len());
            types.named.push((name.clone(), shapes));
            for kind in schema["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
            {
                if let Some((api_version, kind)) = api_version_and_kind(kind) {
                    types.kinds.entry(api_version).or_default().insert(kind, id);
                }
            }
        }
        Ok(types)
    }

    /// The types of one custom resource: its structural schema and, from the built-in types, its metadata.
    pub fn from_custom_resource(api_version: &str, kind: &str, schema: &Value) -> Result<Self, OpenApiError> {
        let mut types = metadata_types().clone();
        types.custom = true;
        let object_meta = types.named.iter().position(|(name, _)| name == OBJECT_META).map(TypeId);
        let ids: Ids = object_meta.map(|id| (OBJECT_META, id)).into_iter().collect();
        let name = format!("{api_version}.{kind}");
        let reader = Reader {
            path: &name,
            ids: &ids,
            preserves_unknown: false,
        };
        let mut shapes = reader.shapes(schema)?;
        reader.add_object_fields(shapes.map.get_or_insert_default());
        let id = TypeId(types.named.len());
        types.named.push((name, shapes));
        types
            .kinds
            .entry(api_version.to_owned())
            .or_default()
            .insert(kind.to_owned(), id);
        Ok(types)
    }
}

fn api_version_and_kind(gvk: &Value) -> Option<(String, String)> {
    let (group, version, kind) = (gvk["group"].as_str()?, gvk["version"].as_str()?, gvk["kind"].as_str()?);
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Some((api_version, kind.to_owned()))
}

/// Names of types and where they will stand.
type Ids<'a> = BTreeMap<&'a str, TypeId>;

/// Walks one schema; `preserves_unknown` is inherited by everything below it.
#[derive(Clone, Copy)]
struct Reader<'a> {
    path: &'a str,
    ids: &'a Ids<'a>,
    preserves_unknown: bool,
}

impl Reader<'_> {
    /// A reference. Documents may be trimmed: what they do not describe may hold anything.
    fn named(self, name: &str, atomic: Option<bool>) -> Type {
        Type::Named {
            id: self.ids.get(name).copied().unwrap_or(UNTYPED),
            atomic,
        }
    }

    /// Declares what every object has and no structural schema spells out.
    fn add_object_fields(self, map: &mut MapShape) {
        let field = |ty| Field {
            ty,
            default: None,
            required: false,
            patch: PatchRule::default(),
        };
        let text = || {
            field(Type::Inline(Box::new(Shapes {
                scalar: Some(Scalar::String),
                ..Shapes::default()
            })))
        };
        map.fields.insert("apiVersion".to_owned(), text());
        map.fields.insert("kind".to_owned(), text());
        map.fields
            .insert("metadata".to_owned(), field(self.named(OBJECT_META, None)));
    }

    fn shapes(mut self, schema: &Value) -> Result<Shapes, OpenApiError> {
        self.preserves_unknown |= schema["x-kubernetes-preserve-unknown-fields"] == true;
        let scalar = |scalar| {
            Ok(Shapes {
                scalar: Some(scalar),
                ..Shapes::default()
            })
        };
        match schema["type"].as_str() {
            None => Ok(Shapes {
                scalar: Some(Scalar::Any),
                list: Some(self.list(schema)?),
                map: Some(self.map(schema)?),
            }),
            Some("object") => Ok(Shapes {
                map: Some(self.map(schema)?),
                ..Shapes::default()
            }),
            Some("array") => Ok(Shapes {
                list: Some(self.list(schema)?),
                ..Shapes::default()
            }),
            Some("integer" | "number") => scalar(Scalar::Number),
            Some("boolean") => scalar(Scalar::Boolean),
            // A format means that the text stands for something else (a time, a number), so it is not judged here.
            Some("string") => match schema["format"].as_str() {
                None | Some("") => scalar(Scalar::String),
                Some("byte") => scalar(Scalar::Bytes),
                Some(_) => scalar(Scalar::Any),
            },
            Some(other) => Err(self.bad("type", other)),
        }
    }

    fn map(self, schema: &Value) -> Result<MapShape, OpenApiError> {
        let empty = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        let required = |name: &str| {
            schema["required"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one == name))
        };
        let mut fields = BTreeMap::new();
        for (name, property) in properties {
            let field = Field {
                ty: self.type_of(property)?,
                default: property.get("default").cloned(),
                required: required(name),
                patch: patch_rule(property),
            };
            fields.insert(name.clone(), field);
        }
        let elements = match &schema["additionalProperties"] {
            Value::Object(_) => Some(self.type_of(&schema["additionalProperties"])?),
            Value::Bool(true) => Some(by_id(DEDUCED)),
            Value::Bool(false) => None,
            _ if self.preserves_unknown || properties.is_empty() => Some(by_id(DEDUCED)),
            _ => None,
        };
        let mut map = MapShape {
            fields,
            elements: elements.map(Box::new),
            atomic: self.map_type(schema)? == Some(true),
        };
        if schema["x-kubernetes-embedded-resource"] == true {
            self.add_object_fields(&mut map);
        }
        Ok(map)
    }

    fn list(self, schema: &Value) -> Result<ListShape, OpenApiError> {
        let items = match schema.get("items") {
            Some(items) => self.type_of(items)?,
            None => by_id(UNTYPED),
        };
        Ok(ListShape {
            items,
            kind: self.list_kind(schema)?,
        })
    }

    fn list_kind(self, schema: &Value) -> Result<ListKind, OpenApiError> {
        let keys = || schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
        match schema["x-kubernetes-list-type"].as_str() {
            Some("atomic") => Ok(ListKind::Atomic),
            Some("set") => Ok(ListKind::Set),
            Some("map") => Ok(ListKind::Map(
                keys().filter_map(Value::as_str).map(str::to_owned).collect(),
            )),
            Some(other) => Err(self.bad("x-kubernetes-list-type", other)),
            None => Ok(match patch_rule(schema) {
                PatchRule {
                    merge: true,
                    merge_key: Some(key),
                    ..
                } => ListKind::Map(vec![key]),
                PatchRule { merge: true, .. } => ListKind::Set,
                _ => ListKind::Atomic,
            }),
        }
    }

    /// `Some(true)` for an atomic map, `Some(false)` for a granular one, `None` where the schema does not say.
    fn map_type(self, schema: &Value) -> Result<Option<bool>, OpenApiError> {
        match schema["x-kubernetes-map-type"].as_str() {
            None => Ok(None),
            Some("atomic") => Ok(Some(true)),
            Some("granular") => Ok(Some(false)),
            Some(other) => Err(self.bad("x-kubernetes-map-type", other)),
        }
    }

    fn type_of(self, schema: &Value) -> Result<Type, OpenApiError> {
        // A reference beside other keywords is written as an `allOf` of one.
        let wrapped = &schema["allOf"][0]["$ref"];
        let reference = schema["$ref"].as_str().or(wrapped.as_str());
        match reference.and_then(|path| path.rsplit('/').next()) {
            Some(name) => Ok(self.named(name, self.map_type(schema)?)),
            None => Ok(Type::Inline(Box::new(self.shapes(schema)?))),
        }
    }

    fn bad(self, keyword: &'static str, value: &str) -> OpenApiError {
        OpenApiError::Keyword {
            path: self.path.to_owned(),
            keyword,
            value: format!("{value:?}"),
        }
    }
}

fn by_id(id: TypeId) -> Type {
    Type::Named { id, atomic: None }
}

fn patch_rule(schema: &Value) -> PatchRule {
    let strategies = schema["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
    let has = |strategy| strategies.split(',').any(|one| one == strategy);
    let merge_key = schema["x-kubernetes-patch-merge-key"].as_str().map(str::to_owned);
    PatchRule {
        merge: has("merge"),
        replace: has("replace"),
        merge_key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_document_describes_every_kind_it_was_trimmed_to() {
        let types = builtin_types();
        assert_eq!(types.kinds["v1"].len(), 24);
        for (api_version, kind) in [
            ("v1", "Pod"),
            ("apps/v1", "ControllerRevision"),
            ("apps/v1", "Deployment"),
            ("networking.k8s.io/v1", "NetworkPolicy"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ] {
            assert!(types.kind(api_version, kind).is_some(), "{api_version} {kind}");
        }
        assert!(types.kind("v1", "Nonsense").is_none());
    }

    #[test]
    fn the_zero_object_holds_what_go_structs_hold_by_value() {
        let zero = |api_version, kind| builtin_types().kind(api_version, kind).unwrap().zero();
        let metadata = serde_json::json!({"creationTimestamp": null, "deletionTimestamp": null});
        assert_eq!(zero("v1", "ConfigMap"), serde_json::json!({"metadata": metadata}));
        let pod = zero("v1", "Pod");
        assert_eq!(pod["spec"], serde_json::json!({"containers": null}));
        assert_eq!(pod["status"], serde_json::json!({"startTime": null}));
    }

    #[test]
    fn a_keyword_with_an_unknown_value_is_refused() {
        let schema = serde_json::json!({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}});
        let error = Types::from_custom_resource("a/v1", "A", &schema).unwrap_err();
        assert_eq!(error.to_string(), "a/v1.A: `x-kubernetes-list-type` cannot be \"bag\"");
    }
}
