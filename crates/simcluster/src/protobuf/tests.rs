use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;

/// Fields that are null in JSON are not in protobuf at all.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

fn fixtures() -> &'static [(Vec<u8>, Value)] {
    static FIXTURES: OnceLock<Vec<(Vec<u8>, Value)>> = OnceLock::new();
    let parse = |line: &str| {
        let fixture: Value = serde_json::from_str(line).unwrap();
        (
            STANDARD.decode(fixture["protobuf"].as_str().unwrap()).unwrap(),
            fixture["json"].clone(),
        )
    };
    FIXTURES.get_or_init(|| {
        include_str!("../../fixtures/protobuf.jsonl")
            .lines()
            .map(parse)
            .collect()
    })
}

/// Objects of every kind, encoded by the serializers of client-go 0.36.3 to protobuf and to JSON.
#[test]
fn protobuf_means_the_same_as_json() {
    let mut wrong = Vec::new();
    for (body, expected) in fixtures() {
        let found = decode(body).unwrap();
        if without_nulls(&found) != without_nulls(expected) {
            wrong.push(format!("{expected}\n  found {found}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} objects differ, such as\n{}",
        wrong.len(),
        wrong[..wrong.len().min(4)].join("\n")
    );
}

/// A field of bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8][..], content].concat()
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [PREFIX, &field(1, &type_meta), &field(2, raw)].concat()
}

#[test]
fn options_are_read_in_the_version_of_any_group() {
    let raw = [&[8, 0][..], &field(4, b"Background")].concat();
    let decoded = decode(&body("coordination.k8s.io/v1", "DeleteOptions", &raw)).unwrap();
    let expected = json!({
        "kind": "DeleteOptions",
        "apiVersion": "coordination.k8s.io/v1",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    });
    assert_eq!(decoded, expected);
}

#[test]
fn hostile_bodies_are_errors() {
    let of = |raw: &[u8]| decode(&body("v1", "ConfigMap", raw)).unwrap_err();
    assert_eq!(decode(b"{}"), Err(ProtobufError::NoPrefix));
    assert_eq!(decode(b"k8s"), Err(ProtobufError::NoPrefix));
    let unknown = ProtobufError::UnknownKind {
        api_version: "v1".to_owned(),
        kind: "Zork".to_owned(),
    };
    assert_eq!(decode(&body("v1", "Zork", b"")), Err(unknown));
    // A length beyond the end, also one that does not fit in memory.
    assert_eq!(of(&[10, 5, 1]), ProtobufError::Truncated);
    assert_eq!(
        of(&[10, 255, 255, 255, 255, 255, 255, 255, 255, 127]),
        ProtobufError::Truncated
    );
    // A number that ends in the middle, and one that never ends.
    assert_eq!(of(&[8, 128]), ProtobufError::Truncated);
    assert_eq!(
        of(&[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ProtobufError::Malformed("integer overflow".to_owned())
    );
    // Groups, field 0, a number where a message belongs, text that is not UTF-8.
    assert_eq!(of(&[11]), ProtobufError::Malformed("illegal wireType 3".to_owned()));
    assert_eq!(of(&[0, 0]), ProtobufError::Malformed("illegal tag 0".to_owned()));
    assert_eq!(
        of(&[8, 1]),
        ProtobufError::Malformed("wrong wireType for field metadata".to_owned())
    );
    assert!(matches!(of(&field(1, &field(1, &[255]))), ProtobufError::Malformed(_)));
    // A time beyond the calendar.
    let created = field(1, &field(8, &[8, 255, 255, 255, 255, 255, 255, 255, 255, 127]));
    assert!(matches!(of(&created), ProtobufError::Malformed(_)));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = decode(&[PREFIX, &bytes].concat());
        let _ = decode(&body("v1", "Pod", &bytes[..bytes.len().min(100)]));
    }

    #[test]
    fn no_damage_panics(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let fixtures = fixtures();
        let mut body = fixtures[which.index(fixtures.len())].0.clone();
        let at = at.index(body.len());
        if cut {
            body.truncate(at);
        } else {
            body[at] = byte;
        }
        let _ = decode(&body);
    }
}
