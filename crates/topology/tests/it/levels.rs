use std::cmp::Ordering;

use grove_api::topology::{DomainWord, TopologyLevel};
use grove_topology::levels::compare_words;
use grove_topology::{Topology, TopologyKind};
use proptest::prelude::*;

use crate::fixtures::{binding, cluster_topology, grove_topology, key, topology_domain};

const ALL: [&str; 7] = ["region", "zone", "datacenter", "block", "rack", "host", "numa"];

fn words(topology: &Topology) -> Vec<&str> {
    topology.levels().iter().map(|level| level.word.as_str()).collect()
}

// shows: V3-36, G244-33, V2-3
#[test]
fn a_cluster_topology_is_ordered_by_meaning_and_others_as_listed() {
    let shuffled = ["host", "zone", "numa", "rack"];
    assert_eq!(
        words(&Topology::from(&grove_topology(&shuffled))),
        ["zone", "rack", "host", "numa"]
    );
    assert_eq!(words(&Topology::from(&topology_domain("d", &shuffled))), shuffled);
    assert_eq!(words(&Topology::from(&binding("b", &shuffled))), shuffled);
}

// shows: V3-1, V3-75, G244-10
#[test]
fn words_lead_to_keys_and_nowhere_else() {
    let topology = Topology::from(&grove_topology(&["rack", "host"]));
    assert_eq!(
        (topology.kind(), topology.name()),
        (TopologyKind::ClusterTopology, "grove-topology")
    );
    assert_eq!(topology.key("rack"), Some("topology.kubernetes.io/rack"));
    assert_eq!(topology.key("host"), Some("kubernetes.io/hostname"));
    assert_eq!(topology.key("block"), None);
    assert_eq!(topology.key("topology.kubernetes.io/rack"), None);
    assert_eq!(topology.strictest().unwrap().word, "host");
    assert_eq!(topology.depth("kubernetes.io/hostname"), Some(1));
    assert_eq!(topology.depth("rack"), None);
}

#[test]
fn a_topology_without_levels_has_no_answers() {
    let topology = Topology::from(&grove_topology(&[]));
    assert_eq!(topology.strictest(), None);
    assert!(topology.node_keys().is_empty());
    assert_eq!(topology.node_key("x"), None);
}

#[test]
fn a_repeated_word_or_key_of_a_foreign_object_is_left_out() {
    let mut object = binding("b", &["rack", "rack", "host"]);
    object.spec.levels[1].key = "other".into();
    object.spec.levels.push(grove_api::topology::BoundLevel {
        domain: "node".into(),
        key: key("host"),
    });
    assert_eq!(words(&Topology::from(&object)), ["rack", "host"]);
}

// shows: G244-13
#[test]
fn nodes_are_told_apart_down_to_the_host() {
    let of = |words: &[&str]| Topology::from(&grove_topology(words));
    let rack = key("rack");
    let cases: [(&[&str], &[&str]); 5] = [
        (&["rack"], &[&rack]),
        (&["rack", "host"], &[&rack, "kubernetes.io/hostname"]),
        (&["rack", "host", "numa"], &[&rack, "kubernetes.io/hostname"]),
        // What shares a NUMA node shares a host.
        (&["rack", "numa"], &[&rack, "kubernetes.io/hostname"]),
        (&["numa"], &["kubernetes.io/hostname"]),
    ];
    for (levels, keys) in cases {
        assert_eq!(of(levels).node_keys(), keys, "{levels:?}");
    }
    let topology = of(&["rack", "host", "numa"]);
    assert_eq!(topology.node_key(&key("numa")), Some("kubernetes.io/hostname"));
    assert_eq!(topology.node_key(&rack), Some(rack.as_str()));
    assert_eq!(topology.node_key("unknown"), None);
}

#[test]
fn a_host_level_with_its_own_label_ends_the_levels_of_nodes() {
    let mut object = grove_topology(&["rack", "host", "numa"]);
    object.spec.levels[1].key = "example.com/machine".into();
    assert_eq!(
        Topology::from(&object).node_keys(),
        [key("rack").as_str(), "example.com/machine"]
    );
}

#[test]
fn a_level_on_the_hostname_label_is_the_host_whatever_it_is_called() {
    let object = grove_api::ClusterTopology::new(
        "single-node-racks",
        grove_api::ClusterTopologySpec {
            levels: vec![
                TopologyLevel {
                    domain: DomainWord::Host,
                    key: "example.com/machine".into(),
                },
                TopologyLevel {
                    domain: DomainWord::Rack,
                    key: key("host"),
                },
            ],
        },
    );
    assert_eq!(Topology::from(&object).node_keys(), ["kubernetes.io/hostname"]);
}

#[test]
fn free_words_below_the_hostname_are_cut_and_none_is_guessed() {
    let with_host = Topology::from(&topology_domain("d", &["hall", "host", "socket", "core"]));
    assert_eq!(with_host.node_keys(), [key("hall").as_str(), "kubernetes.io/hostname"]);
    assert_eq!(with_host.node_key(&key("core")), Some("kubernetes.io/hostname"));
    let without_host = Topology::from(&topology_domain("d", &["hall", "numa"]));
    assert_eq!(without_host.node_keys(), [key("hall"), key("numa")]);
}

// shows: V3-60, G244-33
#[test]
fn all_49_pairs_are_ordered_by_meaning_configured_or_not() {
    let configured = Topology::from(&grove_topology(&["rack", "host"]));
    for (outer, word) in ALL.iter().enumerate() {
        for (inner, other) in ALL.iter().enumerate() {
            for topology in [None, Some(&configured)] {
                assert_eq!(
                    compare_words(topology, word, other),
                    Some(outer.cmp(&inner)),
                    "{word} {other}"
                );
            }
        }
    }
}

// shows: V2-27, V1-9, V1-25
#[test]
fn the_list_of_a_topology_domain_outweighs_meaning() {
    let topology = Topology::from(&topology_domain("d", &["host", "rack", "island"]));
    assert_eq!(compare_words(Some(&topology), "rack", "host"), Some(Ordering::Greater));
    assert_eq!(
        compare_words(Some(&topology), "island", "rack"),
        Some(Ordering::Greater)
    );
    // One of the two is not listed: meaning, where there is one.
    assert_eq!(compare_words(Some(&topology), "rack", "zone"), Some(Ordering::Greater));
    assert_eq!(compare_words(Some(&topology), "island", "zone"), None);
    assert_eq!(compare_words(None, "hall", "hall"), Some(Ordering::Equal));
}

/// Any ClusterTopology: some of the seven words, in any order.
pub(crate) fn any_words() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(ALL.to_vec(), 1..=7).prop_shuffle()
}

proptest! {
    #[test]
    fn however_levels_are_listed_the_topology_is_the_same(listed in any_words()) {
        let mut sorted = listed.clone();
        sorted.sort_by_key(|word| ALL.iter().position(|known| known == word));
        let topology = Topology::from(&cluster_topology("t", &listed));
        prop_assert_eq!(words(&topology), sorted);
        prop_assert_eq!(topology, Topology::from(&cluster_topology("t", &words(&Topology::from(&cluster_topology("t", &listed))))));
    }

    #[test]
    fn every_level_reaches_backends_as_one_of_their_keys_and_order_is_kept(listed in any_words()) {
        let topology = Topology::from(&cluster_topology("t", &listed));
        let keys = topology.node_keys();
        prop_assert!(!keys.is_empty());
        prop_assert!(keys.iter().rev().skip(1).all(|key| *key != "kubernetes.io/hostname"), "hostname is last");
        let mut previous = 0;
        for level in topology.levels() {
            let clamped = topology.node_key(&level.key).unwrap();
            let position = keys.iter().position(|key| *key == clamped);
            prop_assert!(position.is_some_and(|position| position >= previous));
            previous = position.unwrap();
        }
    }
}
