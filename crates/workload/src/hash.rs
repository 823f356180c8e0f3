//! Hashes that stay what they are: of pod templates, and of the keys that names are made from.
//!
//! A hash must be the same in every process, release and platform, or an upgrade of the operator would replace pods.
//! So templates are hashed as canonical JSON text (keys sorted here, not by a library's map; what was not written
//! left out), by an algorithm that is written down in this file. Even so a template's hash is only computed for a
//! template that was not seen before; see [`crate::revision`].

use std::collections::BTreeMap;
use std::fmt::Write;

use grove_api::PodCliqueSet;
use grove_api::podcliqueset::PodCliqueTemplate;
use k8s_openapi::api::core::v1::PodSpec;
use serde::Serialize;
use serde_json::Value;

/// The letters of generated names: no vowels, so that no words appear, and nothing that looks alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Letters that hold all 64 bits of a digest.
const HASH_LETTERS: usize = 14;

/// FNV-1a over 64 bits, with MurmurHash3's finalizer so that all letters depend on all input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text. Its length goes first, so that ("ab", "c") and ("a", "bc") differ.
    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(&(text.len() as u64).to_le_bytes()).bytes(text.as_bytes())
    }

    pub(crate) fn number(self, number: i64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }

    pub(crate) fn letters(self, count: usize) -> String {
        let mut rest = self.mixed();
        let mut letters = String::with_capacity(count);
        for _ in 0..count {
            letters.push(char::from(ALPHABET[(rest % 27) as usize]));
            rest /= 27;
        }
        letters
    }

    fn mixed(self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}

/// What makes pods new when it changes: everything that reaches them from the set's template. Not in it, because
/// pods need not be replaced for it: replicas, minimum, start order, topology, sharing, scaling, and what the operator
/// injects.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HashedTemplate<'a> {
    labels: &'a BTreeMap<String, String>,
    annotations: &'a BTreeMap<String, String>,
    pod_spec: &'a PodSpec,
}

/// The canonical text of what reaches the pods of a clique.
pub fn canonical_template(set: &PodCliqueSet, clique: &PodCliqueTemplate) -> String {
    canonical_parts(
        &clique.labels,
        &clique.annotations,
        &with_priority(set, &clique.spec.pod_spec),
    )
}

pub(crate) fn canonical_parts(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    pod_spec: &PodSpec,
) -> String {
    let hashed = HashedTemplate {
        labels,
        annotations,
        pod_spec,
    };
    let value = serde_json::to_value(hashed).expect("maps with text keys and Kubernetes types are JSON");
    canonical(&value)
}

/// The pod of a clique as the set wants it: the set's priority, where it has one, goes before the clique's.
pub fn with_priority(set: &PodCliqueSet, spec: &PodSpec) -> PodSpec {
    let mut spec = spec.clone();
    let priority = set.spec.template.priority_class_name.as_deref();
    if let Some(priority) = priority.filter(|name| !name.is_empty()) {
        spec.priority_class_name = Some(priority.to_owned());
    }
    spec
}

/// The hash of a canonical template.
pub fn template_hash(canonical: &str) -> String {
    Digest::new().text(canonical).letters(HASH_LETTERS)
}

/// The hash of all templates of a set, from the hashes of its cliques by name. The order of cliques reaches no pod,
/// so it is not in the hash.
pub fn generation_hash(cliques: &BTreeMap<String, String>) -> String {
    let digest = cliques
        .iter()
        .fold(Digest::new(), |digest, (name, hash)| digest.text(name).text(hash));
    digest.letters(HASH_LETTERS)
}

/// JSON with sorted keys and without what says nothing: null, and the empty list. An empty object stays: `emptyDir: {}`
/// and `namespaceSelector: {}` mean something else than their absence.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().filter(|(_, field)| !says_nothing(field)).collect();
            out.push('{');
            for (position, (name, field)) in sorted.into_iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(name.as_str()));
                write_canonical(field, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

fn says_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{clique, set};

    #[test]
    fn a_template_hash_is_the_same_in_every_release() {
        let set = set("a").with_clique(clique("fe").replicas(2)).build();
        let canonical = canonical_template(&set, &set.spec.template.cliques[0]);
        assert_eq!(
            canonical,
            r#"{"annotations":{},"labels":{},"podSpec":{"containers":[{"image":"registry.example/app:1","name":"main"}]}}"#
        );
        // A different value here means that upgrading the operator replaces every pod of every user.
        assert_eq!(template_hash(&canonical), "46s96vldfghwfg");
    }

    #[test]
    fn what_does_not_reach_pods_does_not_change_the_hash() {
        let hash = |set: &PodCliqueSet| template_hash(&canonical_template(set, &set.spec.template.cliques[0]));
        let before = set("a").with_clique(clique("fe").replicas(2)).build();
        let mut after = before.clone();
        after.spec.replicas = 7;
        after.spec.template.cliques[0].spec.replicas = 9;
        after.spec.template.cliques[0].spec.min_available = Some(1);
        after.spec.template.cliques[0].spec.starts_after = vec!["x".into()];
        assert_eq!(hash(&before), hash(&after));

        let changes: [fn(&mut PodCliqueSet); 4] = [
            |set| set.spec.template.cliques[0].spec.pod_spec.containers[0].image = Some("other".into()),
            |set| set.spec.template.priority_class_name = Some("high".into()),
            |set| drop(set.spec.template.cliques[0].labels.insert("a".into(), "b".into())),
            |set| drop(set.spec.template.cliques[0].annotations.insert("a".into(), "b".into())),
        ];
        for change in changes {
            let mut changed = before.clone();
            change(&mut changed);
            assert_ne!(hash(&before), hash(&changed));
        }
    }

    #[test]
    fn which_clique_has_which_template_is_in_the_generation_hash() {
        let one = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let swapped = BTreeMap::from([("a".to_owned(), "2".to_owned()), ("b".to_owned(), "1".to_owned())]);
        assert_ne!(generation_hash(&one), generation_hash(&swapped));
    }

    #[test]
    fn empty_objects_mean_something_and_empty_lists_do_not() {
        let text = canonical(&json!({"b": {}, "a": [], "c": null, "d": [{"z": 1, "y": ""}]}));
        assert_eq!(text, r#"{"b":{},"d":[{"y":"","z":1}]}"#);
    }

    proptest! {
        #[test]
        fn canonical_text_is_json_and_canonical_already(keys in prop::collection::vec("[a-z]{0,4}", 0..8), n in any::<i64>()) {
            let fields = keys.iter().map(|key| (key.clone(), json!([key, n, null, {"x": []}])));
            let text = canonical(&Value::Object(fields.collect()));
            let again: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(canonical(&again), text);
        }

        #[test]
        fn digests_tell_where_a_text_ends(a in ".{0,8}", b in ".{0,8}", cut in 0usize..8) {
            let joined = format!("{a}{b}");
            let Some((c, d)) = joined.split_at_checked(cut) else { return Ok(()) };
            prop_assume!(c != a);
            let left = Digest::new().text(&a).text(&b).letters(HASH_LETTERS);
            prop_assert_ne!(left, Digest::new().text(c).text(d).letters(HASH_LETTERS));
        }
    }
}
