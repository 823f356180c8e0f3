//! Request bodies in protobuf, as kubectl's generators and some controllers send them, decoded to JSON.
//!
//! A body is the four bytes `k8s\0` and a `runtime.Unknown` that names the kind and holds the object. How an object is
//! laid out is in a table (`messages.txt`), not in generated code. Nothing is ever encoded: answers may be JSON.
//!
//! The input is not trusted: every length is checked against what is left before anything is read or allocated, and
//! nesting is bounded.

mod messages;
mod wire;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use thiserror::Error;

use self::messages::{Field, Mark, Message, Shape, Table, Type};
use self::wire::{Reader, Wire};

/// What every body begins with.
const PREFIX: &[u8] = b"k8s\0";
/// Kubernetes objects nest less than half as deep.
const DEPTH_MAX: usize = 48;

/// Why a body cannot be decoded; the caller answers 400.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    #[error("no kind {kind:?} is registered for version {api_version:?} in protobuf")]
    UnknownKind { api_version: String, kind: String },
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: {0}")]
    Malformed(String),
}

/// Decodes a body to the JSON that would have meant the same, with `apiVersion` and `kind`.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let unknown = body.strip_prefix(PREFIX).ok_or(ProtobufError::NoPrefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader::new(unknown);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(type_meta)) => {
                let mut reader = Reader::new(type_meta);
                while let Some((number, wire)) = reader.next()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let table = Table::get();
    let Some(message) = table.kind(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut object = Map::new();
    object.insert("kind".to_owned(), kind.into());
    object.insert("apiVersion".to_owned(), api_version.into());
    decode_into(table, message, raw, &mut object, 0)?;
    Ok(Value::Object(object))
}

fn decode_into(
    table: &Table,
    message: &Message,
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > DEPTH_MAX {
        return Err(ProtobufError::Malformed(format!(
            "messages nest deeper than {DEPTH_MAX}"
        )));
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        // Fields of a newer version are skipped.
        let Some(field) = message.field(number) else { continue };
        if field.mark == Mark::Inlined
            && let Type::Message(name) = &field.ty
        {
            decode_into(table, table.message(name)?, wire.bytes(&field.name)?, object, depth + 1)?;
            continue;
        }
        match field.shape {
            Shape::One => {
                let value = decode_value(table, &field.ty, &wire, &field.name, depth)?;
                match value.filter(|value| is_meant(field, value)) {
                    Some(value) => object.insert(field.name.clone(), value),
                    None => object.remove(&field.name),
                };
            }
            Shape::List => {
                let list = object.entry(field.name.clone()).or_insert_with(|| json!([]));
                let item = decode_value(table, &field.ty, &wire, &field.name, depth)?;
                if let (Value::Array(list), Some(item)) = (list, item) {
                    list.push(item);
                }
            }
            Shape::Map => {
                let (key, value) = decode_entry(table, field, wire.bytes(&field.name)?, depth)?;
                let map = object.entry(field.name.clone()).or_insert_with(|| json!({}));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

/// Clients write every field that is not a pointer, also those that nobody set: a zero counts only where JSON has it.
fn is_meant(field: &Field, value: &Value) -> bool {
    let is_zero = match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    };
    // An int-or-string is a struct in Go: it is never omitted.
    !is_zero || field.ty == Type::IntOrString || matches!(field.mark, Mark::Pointer | Mark::Kept)
}

/// One entry of a map; a missing key or value is empty.
fn decode_entry(table: &Table, field: &Field, bytes: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let mut key = String::new();
    let mut value = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, wire) => value = decode_value(table, &field.ty, &wire, &field.name, depth)?,
            _ => {}
        }
    }
    Ok((key, value.unwrap_or_else(|| field.ty.empty())))
}

/// A value; `None` is a time that was never set.
fn decode_value(
    table: &Table,
    ty: &Type,
    wire: &Wire<'_>,
    name: &str,
    depth: usize,
) -> Result<Option<Value>, ProtobufError> {
    let value = match ty {
        Type::String => utf8(wire.bytes(name)?)?.into(),
        Type::Int => wire.varint(name)?.cast_signed().into(),
        Type::Bool => (wire.varint(name)? != 0).into(),
        Type::Bytes => STANDARD.encode(wire.bytes(name)?).into(),
        Type::Time => return decode_time(wire.bytes(name)?, "%Y-%m-%dT%H:%M:%SZ"),
        Type::MicroTime => return decode_time(wire.bytes(name)?, "%Y-%m-%dT%H:%M:%S.%6fZ"),
        Type::Quantity => utf8(first_bytes(wire.bytes(name)?)?)?.into(),
        Type::IntOrString => decode_int_or_string(wire.bytes(name)?)?,
        Type::Raw => {
            let raw = first_bytes(wire.bytes(name)?)?;
            serde_json::from_slice(raw).map_err(|error| ProtobufError::Malformed(format!("{name}: {error}")))?
        }
        Type::Strings => {
            let mut items = Vec::new();
            let mut reader = Reader::new(wire.bytes(name)?);
            while let Some((number, wire)) = reader.next()? {
                if number == 1 {
                    items.push(Value::from(utf8(wire.bytes(name)?)?));
                }
            }
            items.into()
        }
        Type::Message(message) => {
            let mut object = Map::new();
            decode_into(
                table,
                table.message(message)?,
                wire.bytes(name)?,
                &mut object,
                depth + 1,
            )?;
            object.into()
        }
    };
    Ok(Some(value))
}

/// The bytes of field 1, of messages that hold nothing else.
fn first_bytes(bytes: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut found = &[][..];
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let (1, Wire::Bytes(bytes)) = (number, wire) {
            found = bytes;
        }
    }
    Ok(found)
}

fn decode_time(bytes: &[u8], format: &str) -> Result<Option<Value>, ProtobufError> {
    let (mut seconds, mut nanos) = (None, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => seconds = Some(wire.varint("seconds")?.cast_signed()),
            2 => nanos = wire.varint("nanos")?.cast_signed(),
            _ => {}
        }
    }
    let Some(seconds) = seconds else { return Ok(None) };
    let out_of_range = || ProtobufError::Malformed(format!("time {seconds} s {nanos} ns is out of range"));
    let nanos = i32::try_from(nanos).map_err(|_| out_of_range())?;
    let time = Timestamp::new(seconds, nanos).map_err(|_| out_of_range())?;
    Ok(Some(time.strftime(format).to_string().into()))
}

fn decode_int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number_value, mut text) = (false, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => is_text = wire.varint("type")? == 1,
            2 => number_value = wire.varint("intVal")?.cast_signed(),
            3 => text = utf8(wire.bytes("strVal")?)?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number_value.into() })
}

fn utf8(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|error| ProtobufError::Malformed(format!("invalid UTF-8: {error}")))
}

#[cfg(test)]
mod tests;
