//! The path of a field, as the API server writes it.

use std::fmt;

/// A field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    pub fn root(field: &str) -> Self {
        Self(field.to_owned())
    }

    pub fn field(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
