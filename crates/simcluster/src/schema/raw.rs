//! What is lost when JSON is parsed into a map: fields that stand twice.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::de::Deserializer;

use super::{child, index};

/// The paths of fields that stand more than once in a JSON text, in the order of their second appearance. Text that is
/// not JSON has none: the parser that reads the object tells what is wrong with it.
pub fn duplicate_fields(json: &[u8]) -> Vec<String> {
    let found = RefCell::new(Vec::new());
    let mut deserializer = Deserializer::from_slice(json);
    let place = Place {
        path: String::new(),
        found: &found,
    };
    // An error ends the walk; what was found before it is still true.
    let _ = serde::de::DeserializeSeed::deserialize(place, &mut deserializer);
    found.into_inner()
}

/// A value of which only the repeated fields are kept.
struct Place<'a> {
    path: String,
    found: &'a RefCell<Vec<String>>,
}

impl<'de> serde::de::DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> serde::de::Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        while items
            .next_element_seed(Place {
                path: index(&self.path, at),
                found: self.found,
            })?
            .is_some()
        {
            at += 1;
        }
        Ok(())
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = child(&self.path, &name);
            if !seen.insert(name) && !self.found.borrow().contains(&path) {
                self.found.borrow_mut().push(path.clone());
            }
            fields.next_value_seed(Place {
                path,
                found: self.found,
            })?;
        }
        Ok(())
    }
}
