//! What a patch must know about a type: its fields, how its lists and maps merge, and which key names a list item.
//!
//! [`Types`] is a set of named types that may refer to each other (and to themselves); [`TypeSchema`] is a cheap view
//! of one of them. Both are made from OpenAPI v3 by [`super::openapi`]. Nothing here validates values against bounds,
//! enums or patterns: that is the business of `crate::schema`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The type of a value that the schema says nothing about: lists and maps are replaced as a whole.
pub(super) const UNTYPED: TypeId = TypeId(0);
/// The type of a value whose shape is taken from the value: maps merge field by field, lists are replaced.
pub(super) const DEDUCED: TypeId = TypeId(1);

/// Named types and the kinds that are served with them.
#[derive(Debug, Clone)]
pub struct Types {
    /// Every named type. References are positions in this list, so that following one costs nothing.
    pub(super) named: Vec<(String, Shapes)>,
    /// `apiVersion` and `kind` to the type.
    pub(super) kinds: BTreeMap<String, BTreeMap<String, TypeId>>,
    /// Whether the kinds are custom ones, which no Go struct holds.
    pub(super) custom: bool,
}

/// A position in [`Types::named`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypeId(pub(super) usize);

/// Every shape that a value of one type may take; `None` is a shape that it may not take.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Shapes {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<ListShape>,
    pub(super) map: Option<MapShape>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Number,
    String,
    /// Text that stands for bytes.
    Bytes,
    Boolean,
    Any,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListShape {
    pub(super) items: Type,
    pub(super) kind: ListKind,
}

/// How two lists become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListKind {
    /// The newer list replaces the older.
    Atomic,
    /// A set of scalars.
    Set,
    /// Items are objects, told apart by the values of these fields.
    Map(Vec<String>),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MapShape {
    pub(super) fields: BTreeMap<String, Field>,
    /// The type of fields that are not declared; `None` forbids them.
    pub(super) elements: Option<Box<Type>>,
    pub(super) atomic: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) ty: Type,
    pub(super) default: Option<Value>,
    pub(super) required: bool,
    pub(super) patch: PatchRule,
}

/// The patch strategy and merge key of a field, for strategic merge patch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PatchRule {
    pub(super) merge: bool,
    pub(super) replace: bool,
    pub(super) merge_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    /// A reference; `atomic` overrides what the named type says about its map.
    Named {
        id: TypeId,
        atomic: Option<bool>,
    },
    Inline(Box<Shapes>),
}

/// A view of one type among the [`Types`] that it may refer to.
#[derive(Debug, Clone, Copy)]
pub struct TypeSchema<'a> {
    types: &'a Types,
    name: Option<&'a str>,
    shapes: &'a Shapes,
    atomic: Option<bool>,
}

/// The one shape that applies to a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape<'a> {
    Map(MapView<'a>),
    Scalar(Scalar),
    List(ListView<'a>),
}

impl Shape<'_> {
    pub(super) fn is_same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct MapView<'a> {
    types: &'a Types,
    shape: &'a MapShape,
    pub(super) atomic: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ListView<'a> {
    pub(super) kind: &'a ListKind,
    pub(super) items: TypeSchema<'a>,
}

impl Default for Types {
    fn default() -> Self {
        let reference = |id| Type::Named { id, atomic: None };
        let any = |elements, atomic| Shapes {
            scalar: Some(Scalar::Any),
            list: Some(ListShape {
                items: reference(UNTYPED),
                kind: ListKind::Atomic,
            }),
            map: Some(MapShape {
                elements: Some(Box::new(reference(elements))),
                atomic,
                ..MapShape::default()
            }),
        };
        let named = vec![
            ("untyped".to_owned(), any(UNTYPED, true)),
            ("deduced".to_owned(), any(DEDUCED, false)),
        ];
        Self {
            custom: false,
            named,
            kinds: BTreeMap::new(),
        }
    }
}

impl Types {
    /// The schema of a kind, if it is known.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<TypeSchema<'_>> {
        let id = self.kinds.get(api_version)?.get(kind)?;
        Some(self.named(*id, None))
    }

    /// The schema of objects about which nothing is known: every map merges, every list is replaced.
    pub fn deduced(&self) -> TypeSchema<'_> {
        self.named(DEDUCED, None)
    }

    fn named(&self, id: TypeId, atomic: Option<bool>) -> TypeSchema<'_> {
        let (name, shapes) = &self.named[id.0];
        TypeSchema {
            types: self,
            name: Some(name),
            shapes,
            atomic,
        }
    }

    fn resolve<'a>(&'a self, ty: &'a Type) -> TypeSchema<'a> {
        match ty {
            Type::Named { id, atomic } => self.named(*id, *atomic),
            Type::Inline(shapes) => TypeSchema {
                types: self,
                name: None,
                shapes,
                atomic: None,
            },
        }
    }
}

impl<'a> TypeSchema<'a> {
    /// The shape for this value. A value of a shape that the type does not allow, null and a missing value get the
    /// type's first shape (map, scalar, list), as there is nothing better to judge them by.
    pub(super) fn shape(self, value: Option<&Value>) -> Option<Shape<'a>> {
        let (map, scalar, list) = (self.map(), self.shapes.scalar, self.list());
        let deduced = match value {
            Some(Value::Object(_)) => map.map(Shape::Map),
            Some(Value::Array(_)) => list.map(Shape::List),
            Some(Value::Null) | None => None,
            Some(_) => scalar.map(Shape::Scalar),
        };
        deduced
            .or(map.map(Shape::Map))
            .or(scalar.map(Shape::Scalar))
            .or(list.map(Shape::List))
    }

    pub(super) fn map(self) -> Option<MapView<'a>> {
        let shape = self.shapes.map.as_ref()?;
        Some(MapView {
            types: self.types,
            shape,
            atomic: self.atomic.unwrap_or(shape.atomic),
        })
    }

    pub(super) fn scalar(self) -> Option<Scalar> {
        self.shapes.scalar
    }

    pub(super) fn list(self) -> Option<ListView<'a>> {
        let shape = self.shapes.list.as_ref()?;
        Some(ListView {
            kind: &shape.kind,
            items: self.types.resolve(&shape.items),
        })
    }

    /// The last word of the type's name, as it is called in Go: `PodSpec` for `io.k8s.api.core.v1.PodSpec`.
    pub(super) fn short_name(self) -> &'a str {
        self.name.and_then(|name| name.rsplit('.').next()).unwrap_or("object")
    }

    /// The object that a kind starts from before anything is written to it. Fields that a Go struct holds by value are
    /// there although nobody set them (`{}`, or null for a required list): they are owned by nobody.
    pub(super) fn zero(self) -> Value {
        let Some(map) = self.map().filter(|_| !self.types.custom) else {
            return Value::Object(Map::new());
        };
        let mut object = Map::new();
        for (name, field) in &map.shape.fields {
            let ty = self.types.resolve(&field.ty);
            let value = match &field.default {
                Some(Value::Object(_)) if ty.shapes.scalar.is_none() => ty.zero(),
                Some(Value::Object(_)) => Value::Null,
                Some(default) => default.clone(),
                None if field.required && ty.shapes.scalar.is_none() => Value::Null,
                // A time that was never set is printed as null by some kinds.
                None if matches!(ty.short_name(), "Time" | "MicroTime") => Value::Null,
                None => continue,
            };
            object.insert(name.clone(), value);
        }
        Value::Object(object)
    }
}

impl<'a> MapView<'a> {
    /// The type of a field, declared or not; `None` where the type forbids it.
    pub(super) fn field(self, name: &str) -> Option<TypeSchema<'a>> {
        let declared = self.shape.fields.get(name).map(|field| &field.ty);
        declared
            .or(self.shape.elements.as_deref())
            .map(|ty| self.types.resolve(ty))
    }

    /// The fields that are never left out.
    pub(super) fn required(self) -> impl Iterator<Item = &'a str> {
        let fields = self.shape.fields.iter();
        fields
            .filter(|(_, field)| field.required)
            .map(|(name, _)| name.as_str())
    }

    pub(super) fn declares(self, name: &str) -> bool {
        self.shape.fields.contains_key(name)
    }

    pub(super) fn default_of(self, name: &str) -> Option<&'a Value> {
        self.shape.fields.get(name)?.default.as_ref()
    }

    /// The type and patch rule of a declared field.
    pub(super) fn patched(self, name: &str) -> Option<(TypeSchema<'a>, &'a PatchRule)> {
        let field = self.shape.fields.get(name)?;
        Some((self.types.resolve(&field.ty), &field.patch))
    }

    /// Whether the type is a plain map (labels, data) and not a struct.
    pub(super) fn is_plain(self) -> bool {
        self.shape.fields.is_empty()
    }
}
