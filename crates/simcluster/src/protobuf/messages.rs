//! The table of messages, read once from `messages.txt`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::ProtobufError;

const TABLE: &str = include_str!("messages.txt");
/// Options may be sent in the version of any group.
const DELETE_OPTIONS: &str = "meta/v1.DeleteOptions";

#[derive(Debug, Default)]
pub(super) struct Table {
    /// `(apiVersion, kind)` to the name of the message.
    kinds: BTreeMap<(String, String), String>,
    messages: BTreeMap<String, Message>,
}

#[derive(Debug, Default)]
pub(super) struct Message {
    fields: BTreeMap<u64, Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) shape: Shape,
    pub(super) mark: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Plain,
    /// Its fields stand in the parent.
    Inlined,
    /// A pointer: if it is there, it was meant.
    Pointer,
    /// Written to JSON even if it is zero.
    Kept,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Type {
    String,
    Int,
    Bool,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Raw,
    Strings,
    Message(String),
}

impl Table {
    pub(super) fn get() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| Table::parse(self::TABLE))
    }

    fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let mut parts = line.split('|');
            let head: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
            match head.as_slice() {
                ["kind", api_version, kind, message] => {
                    let key = ((*api_version).to_owned(), (*kind).to_owned());
                    table.kinds.insert(key, (*message).to_owned());
                }
                [message] => {
                    let fields = parts.filter_map(Field::parse).collect();
                    table.messages.insert((*message).to_owned(), Message { fields });
                }
                _ => {}
            }
        }
        table
    }

    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let name = match kind {
            "DeleteOptions" => DELETE_OPTIONS,
            kind => self.kinds.get(&(api_version.to_owned(), kind.to_owned()))?,
        };
        self.messages.get(name)
    }

    pub(super) fn message(&self, name: &str) -> Result<&Message, ProtobufError> {
        self.messages
            .get(name)
            .ok_or_else(|| ProtobufError::Malformed(format!("message {name} is not described")))
    }
}

impl Message {
    pub(super) fn field(&self, number: u64) -> Option<&Field> {
        self.fields.get(&number)
    }
}

impl Field {
    /// Reads `2 data {string ?`.
    fn parse(text: &str) -> Option<(u64, Self)> {
        let mut words = text.split(' ');
        let (number, name, ty) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        let mark = match words.next() {
            Some("~") => Mark::Inlined,
            Some("?") => Mark::Pointer,
            Some("=") => Mark::Kept,
            _ => Mark::Plain,
        };
        let (shape, ty) = match (ty.strip_prefix('['), ty.strip_prefix('{')) {
            (Some(items), _) => (Shape::List, items),
            (_, Some(values)) => (Shape::Map, values),
            _ => (Shape::One, ty),
        };
        Some((
            number,
            Self {
                name: name.to_owned(),
                ty: Type::parse(ty),
                shape,
                mark,
            },
        ))
    }
}

impl Type {
    fn parse(text: &str) -> Self {
        match text {
            "string" => Self::String,
            "int" => Self::Int,
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "quantity" => Self::Quantity,
            "intorstring" => Self::IntOrString,
            "raw" => Self::Raw,
            "strings" => Self::Strings,
            message => Self::Message(message.to_owned()),
        }
    }

    /// The value of a map entry that has none.
    pub(super) fn empty(&self) -> Value {
        match self {
            Self::Int => json!(0),
            Self::Bool => json!(false),
            Self::Strings => json!([]),
            Self::Message(_) => json!({}),
            _ => json!(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_is_referred_to_is_described() {
        let table = Table::get();
        assert!(table.kinds.values().all(|name| table.messages.contains_key(name)));
        for (name, message) in &table.messages {
            for field in message.fields.values() {
                if let Type::Message(referred) = &field.ty {
                    assert!(
                        table.messages.contains_key(referred),
                        "{name}.{} is of {referred}",
                        field.name
                    );
                }
                assert_eq!(
                    field.name.is_empty(),
                    field.mark == Mark::Inlined,
                    "{name}.{}",
                    field.name
                );
            }
        }
        assert!(table.messages.len() > 200);
    }
}
