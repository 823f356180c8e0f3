//! New inputs from old ones.

use serde_json::{Map, Value, json};

/// Longer inputs only take longer.
const BYTES_MAX: usize = 32 * 1024;

/// Words that mean something to somebody.
const WORDS: &[&str] = &[
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "9223372036854775808",
    "-9223372036854775809",
    "0.1",
    "\"\"",
    "{}",
    "[]",
    "{",
    "]",
    "\\u0000",
    "\\ud800",
    "~1",
    "~0",
    "/-",
    "/0",
    "$patch",
    "$retainKeys",
    "$setElementOrder/",
    "$deleteFromPrimitiveList/",
    "metadata",
    "name",
    "namespace",
    "labels",
    "managedFields",
    "fieldsV1",
    "f:",
    "k:{",
    "v:",
    "spec",
    "status",
    "items",
    "type",
    "object",
    "array",
    "integer",
    "properties",
    "additionalProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    "x-kubernetes-preserve-unknown-fields",
    "default",
    "enum",
    "pattern",
    "nullable",
    "self",
    "oldSelf",
    ".all(",
    ".exists(",
    ".map(",
    "has(",
    "in ",
    "notin ",
    "!=",
    "==",
    "!",
    ",",
    "(",
    ")",
    "[?(@.",
    "..",
    "*",
    "{range",
    "{end}",
    "Ki",
    "Ei",
    "m",
    "e-3",
    "+",
    "999999999999999999",
    "?watch=1",
    "&resourceVersion=",
    "&limit=1",
    "&continue=",
    "&fieldSelector=metadata.name=",
    "&labelSelector=",
    "?dryRun=All",
    "/status",
    "/scale",
    "/eviction",
    "/binding",
    "/token",
    "%2F",
    "%00",
    "%ff",
    "\r\n",
    "impersonate-user: ",
    "content-type: ",
    "accept: ",
    "\u{feff}",
    "\u{202e}",
    "é",
    "&a",
    "*a",
    "<<: ",
    "- ",
    ": ",
    "\n---\n",
];

/// A small generator with a long period (splitmix64).
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % (end.max(1) as u64)).unwrap_or_default()
    }

    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// One of the inputs, changed in one to four places.
pub(super) fn changed(inputs: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = dice.pick(inputs).clone();
    for _ in 0..=dice.below(4) {
        input = match serde_json::from_slice::<Value>(&input) {
            Ok(tree) if dice.below(3) > 0 => in_tree(tree, inputs, dice),
            _ => in_bytes(input, inputs, dice),
        };
    }
    input.truncate(BYTES_MAX);
    input
}

/// Two places in the input, in order.
fn range(input: &[u8], dice: &mut Dice) -> (usize, usize) {
    let from = dice.below(input.len() + 1);
    let length = dice.below(16) * dice.below(16);
    (from, (from + length).min(input.len()))
}

fn in_bytes(mut input: Vec<u8>, inputs: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let (from, to) = range(&input, dice);
    match dice.below(7) {
        0 if from < input.len() => input[from] ^= 1 << dice.below(8),
        1 => input.insert(from, u8::try_from(dice.below(256)).unwrap_or_default()),
        2 => drop(input.drain(from..to)),
        3 => {
            let copy = input[from..to].repeat(1 + dice.below(8));
            input.splice(from..from, copy);
        }
        4 => {
            let other = dice.pick(inputs);
            let (start, _) = range(other, dice);
            input.truncate(from);
            input.extend_from_slice(&other[start..]);
        }
        _ => {
            let word = dice.pick(WORDS).bytes();
            input.splice(from..to.min(from + dice.below(4)), word);
        }
    }
    input
}

fn in_tree(mut tree: Value, inputs: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let place = dice.below(size(&tree));
    let other = serde_json::from_slice::<Value>(dice.pick(inputs).as_slice()).unwrap_or_default();
    let from = dice.below(size(&other));
    let foreign = at(&other, from).cloned().unwrap_or_default();
    if let Some(node) = at_mut(&mut tree, place) {
        let old = node.take();
        *node = match dice.below(8) {
            0 => json!([old]),
            1 => json!({ *dice.pick(WORDS): old }),
            2 => foreign,
            3 => scalar(dice),
            4 => without_one(old, dice),
            5 => doubled(old, dice),
            6 => renamed(old, dice),
            _ => mixed(old, foreign),
        };
    }
    tree.to_string().into_bytes()
}

fn scalar(dice: &mut Dice) -> Value {
    let word = dice.pick(WORDS);
    match dice.below(6) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => json!(dice.roll().cast_signed()),
        3 => json!(f64::from_bits(dice.roll())),
        4 => json!(word.repeat(dice.below(200))),
        _ => json!(word),
    }
}

fn without_one(mut value: Value, dice: &mut Dice) -> Value {
    match &mut value {
        Value::Array(items) if !items.is_empty() => drop(items.remove(dice.below(items.len()))),
        Value::Object(fields) if !fields.is_empty() => {
            let key = fields.keys().nth(dice.below(fields.len())).cloned().unwrap_or_default();
            fields.remove(&key);
        }
        _ => value = Value::Null,
    }
    value
}

fn doubled(mut value: Value, dice: &mut Dice) -> Value {
    if let Value::Array(items) = &mut value
        && !items.is_empty()
    {
        let item = dice.pick(items).clone();
        items.insert(dice.below(items.len()), item);
    }
    value
}

fn renamed(mut value: Value, dice: &mut Dice) -> Value {
    if let Value::Object(fields) = &mut value
        && let Some(key) = fields.keys().nth(dice.below(fields.len())).cloned()
    {
        let inner = fields.remove(&key).unwrap_or_default();
        fields.insert((*dice.pick(WORDS)).to_owned(), inner);
    }
    value
}

fn mixed(mut value: Value, foreign: Value) -> Value {
    match (&mut value, foreign) {
        (Value::Object(fields), Value::Object(more)) => fields.extend(more),
        (Value::Array(items), more) => items.push(more),
        (_, more) => value = more,
    }
    value
}

/// How many values there are in a tree, itself included.
fn size(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.values().map(size).sum::<usize>(),
        _ => 0,
    }
}

/// The value of a number, counted from the root.
fn at(tree: &Value, place: usize) -> Option<&Value> {
    let mut open = vec![tree];
    for _ in 0..place {
        let next = open.pop()?;
        match next {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.values()),
            _ => {}
        }
    }
    open.pop()
}

fn at_mut(tree: &mut Value, place: usize) -> Option<&mut Value> {
    let mut open = vec![tree];
    for _ in 0..place {
        let next = open.pop()?;
        match next {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(Map::values_mut(fields)),
            _ => {}
        }
    }
    open.pop()
}

#[test]
fn the_same_number_makes_the_same_inputs() {
    let inputs = [br#"{"a":[1,{"b":null}]}"#.to_vec(), b"a in (b)".to_vec()];
    let made = |number: u64| {
        let mut dice = Dice(number);
        (0..200).map(|_| changed(&inputs, &mut dice)).collect::<Vec<_>>()
    };
    assert_eq!(made(1), made(1));
    assert_ne!(made(1), made(2));
    assert!(made(3).iter().any(|input| !inputs.contains(input)));
}
