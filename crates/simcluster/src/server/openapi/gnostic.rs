//! `/openapi/v2` in protobuf: the messages of `openapi.v2` (gnostic), with what clients read of them.

use serde_json::Value;

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// A text, unless there is none.
    fn text(self, field: u64, text: &Value) -> Self {
        match text.as_str() {
            Some(text) => self.bytes(field, text.as_bytes()),
            None => self,
        }
    }

    fn message(self, field: u64, message: Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// The same message for each of these.
    fn each<T>(self, field: u64, items: impl IntoIterator<Item = T>, write: impl Fn(T) -> Self) -> Self {
        items
            .into_iter()
            .fold(self, |message, item| message.message(field, write(item)))
    }
}

/// Fields of an object, in their order.
fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A name and a message.
fn named(name: &str, value: Message) -> Message {
    Message::default().bytes(1, name.as_bytes()).message(2, value)
}

/// Anything, as YAML; JSON is YAML.
fn any(value: &Value) -> Message {
    Message::default().bytes(2, format!("{value}\n").as_bytes())
}

/// Keywords of Kubernetes' own.
fn extensions(message: Message, field: u64, value: &Value) -> Message {
    let own = fields(value).filter(|(name, _)| name.starts_with("x-"));
    message.each(field, own, |(name, value)| named(name, any(value)))
}

pub(super) fn encode(document: &Value) -> Vec<u8> {
    let info = Message::default()
        .text(1, &document["info"]["title"])
        .text(2, &document["info"]["version"]);
    let paths = Message::default().each(2, fields(&document["paths"]), |(path, item)| {
        named(path, path_item(item))
    });
    Message::default()
        .text(1, &document["swagger"])
        .message(2, info)
        .message(8, paths)
        .message(9, schemas(&document["definitions"]))
        .0
}

fn path_item(item: &Value) -> Message {
    let methods = [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)];
    let there = methods.into_iter().filter(|(method, _)| item[*method].is_object());
    there.fold(Message::default(), |message, (method, field)| {
        message.message(field, operation(&item[method]))
    })
}

fn operation(operation: &Value) -> Message {
    let parameters = items(&operation["parameters"]).filter(|parameter| parameter["in"] == "query");
    let message = Message::default().each(8, parameters, |parameter| {
        let query = Message::default()
            .text(2, &parameter["in"])
            .text(4, &parameter["name"])
            .text(6, &parameter["type"]);
        // A parameter, not in the body, in the query.
        let wrap = |field, inner| Message::default().message(field, inner);
        wrap(1, wrap(2, wrap(3, query)))
    });
    extensions(message, 13, operation)
}

fn schemas(all: &Value) -> Message {
    Message::default().each(1, fields(all), |(name, value)| named(name, schema(value)))
}

fn schema(value: &Value) -> Message {
    let mut message = Message::default()
        .text(1, &value["$ref"])
        .text(2, &value["format"])
        .text(4, &value["description"]);
    for field in items(&value["required"]) {
        message = message.text(19, field);
    }
    message = message.each(20, items(&value["enum"]), any);
    if value["additionalProperties"].is_object() {
        let values = Message::default().message(1, schema(&value["additionalProperties"]));
        message = message.message(21, values);
    }
    if value["type"].is_string() {
        message = message.message(22, Message::default().text(1, &value["type"]));
    }
    if value["items"].is_object() {
        message = message.message(23, Message::default().message(1, schema(&value["items"])));
    }
    if value["properties"].is_object() {
        message = message.message(25, schemas(&value["properties"]));
    }
    extensions(message, 31, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_fields_of_a_number_and_a_value() {
        let document = json!({"swagger": "2.0", "info": {"title": "T", "version": "1"}, "paths": {},
                              "definitions": {"a": {"type": "string", "x-b": [1]}}});
        let expected = [
            &b"\x0a\x032.0\x12\x06\x0a\x01T\x12\x011\x42\x00"[..],
            b"\x4a\x22\x0a\x20\x0a\x01a\x12\x1b\xb2\x01\x08\x0a\x06string",
            b"\xfa\x01\x0d\x0a\x03x-b\x12\x06\x12\x04[1]\n",
        ];
        assert_eq!(encode(&document), expected.concat());
    }
}
