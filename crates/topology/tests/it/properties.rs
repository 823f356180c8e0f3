//! What holds for any workload on any topology.

use std::collections::BTreeSet;

use grove_api::config::PreferredPacking;
use grove_api::podgang::{GangTopologyConstraint, PackConstraint};
use grove_api::{PodCliqueSet, PodGang, TopologyConstraint};
use grove_topology::resolve::{Found, Resolution};
use grove_topology::validate::{SetReview, review_set};
use grove_topology::{Topology, TopologyKind};
use proptest::prelude::*;

use crate::fixtures::{Author, enabled, grove_topology, pack, set};
use crate::gangs::planned;
use crate::levels::any_words;

const ALL: [&str; 7] = ["region", "zone", "datacenter", "block", "rack", "host", "numa"];

fn any_word() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&ALL[..])
}

/// The required and the preferred word of a scope, or no constraint.
type Words = Option<(Option<&'static str>, Option<&'static str>)>;

/// The words of replica, group, a standalone clique and the two cliques of the group.
fn any_scopes() -> impl Strategy<Value = [Words; 5]> {
    let words = || (proptest::option::of(any_word()), proptest::option::of(any_word()));
    [(); 5].map(|()| proptest::option::of(words()))
}

fn set_of(scopes: [Words; 5]) -> PodCliqueSet {
    let [replica, group, alone, first, second] =
        scopes.map(|words| words.map(|(required, preferred)| pack(required, preferred)));
    set("a")
        .replica(replica)
        .clique("alone", alone)
        .clique("first", first)
        .clique("second", second)
        .group("g", &["first", "second"], group)
}

fn any_set() -> impl Strategy<Value = PodCliqueSet> {
    any_scopes().prop_map(set_of)
}

/// A topology, and a set that is valid on it: its words are pressed into the levels, and inner scopes into outer ones.
fn any_valid_set() -> impl Strategy<Value = (PodCliqueSet, Vec<&'static str>)> {
    (any_scopes(), any_words()).prop_map(|(scopes, words)| {
        let mut levels = words.clone();
        levels.sort_by_key(|word| rank(word));
        let press = |word: Option<&str>, within: Option<&str>| {
            let depth = |word: &str| levels.iter().position(|level| *level == word).unwrap_or(0);
            let depth_within = within.map_or(0, depth);
            word.map(|word| levels[(rank(word) % levels.len()).max(depth_within)])
        };
        let inside = |inner: Words, outer: Words| {
            let (outer_required, outer_preferred) = outer.unwrap_or_default();
            let (required, preferred) = inner?;
            Some((press(required, outer_required), press(preferred, outer_preferred)))
        };
        // What lies around a clique: the group's word, or the replica's where the group has none.
        let around = |inner: Words, outer: Words| {
            let ((inner_required, inner_preferred), (required, preferred)) =
                (inner.unwrap_or_default(), outer.unwrap_or_default());
            Some((inner_required.or(required), inner_preferred.or(preferred)))
        };
        let [replica, group, alone, first, second] = scopes;
        let replica = inside(replica, None);
        let group = inside(group, replica);
        let in_group = around(group, replica);
        let valid = [
            replica,
            group,
            inside(alone, replica),
            inside(first, in_group),
            inside(second, in_group),
        ];
        (set_of(valid), words)
    })
}

fn rank(word: &str) -> usize {
    ALL.iter()
        .position(|known| *known == word)
        .expect("one of the seven words")
}

fn any_packing() -> impl Strategy<Value = PreferredPacking> {
    proptest::sample::select(PreferredPacking::ALL)
}

fn in_force(words: &[&str]) -> Resolution {
    Resolution::InForce {
        topology: Topology::from(&grove_topology(words)),
        is_terminating: false,
    }
}

/// The rules said again, as plainly as possible: every word is a level, and no scope is wider than one around it.
fn is_valid(set: &PodCliqueSet, levels: &[&str]) -> bool {
    type Part = fn(&TopologyConstraint) -> Option<&str>;
    let template = &set.spec.template;
    let of_clique = |index: usize| template.cliques[index].topology_constraint.as_ref();
    let (replica, group) = (
        template.topology_constraint.as_ref(),
        template.scaling_groups[0].topology_constraint.as_ref(),
    );
    let (alone, first, second) = (of_clique(0), of_clique(1), of_clique(2));
    let parts: [Part; 2] = [TopologyConstraint::required, TopologyConstraint::preferred];
    parts.into_iter().all(|part| {
        let word = |constraint: Option<&'_ TopologyConstraint>| constraint.and_then(part).map(str::to_owned);
        let rank = |constraint| word(constraint).map(|word| rank(&word));
        let all_defined = [replica, group, alone, first, second]
            .into_iter()
            .filter_map(word)
            .all(|word| levels.contains(&word.as_str()));
        let pairs = [
            (replica, group),
            (replica, alone),
            (replica, first),
            (replica, second),
            (group, first),
            (group, second),
        ];
        let nested = pairs
            .into_iter()
            .all(|(parent, child)| match (rank(parent), rank(child)) {
                (Some(parent), Some(child)) => parent <= child,
                _ => true,
            });
        all_defined && nested
    })
}

fn packs(gang: &PodGang) -> Vec<PackConstraint> {
    let spec = &gang.spec;
    let of_groups = spec
        .topology_constraint_group_configs
        .iter()
        .map(|config| &config.topology_constraint);
    let of_pods = spec.pod_groups.iter().map(|pod_group| &pod_group.topology_constraint);
    std::iter::once(&spec.topology_constraint)
        .chain(of_groups)
        .chain(of_pods)
        .filter_map(|constraint| constraint.as_ref()?.pack_constraint.clone())
        .collect()
}

/// The keys of all constraints are levels; what is required nests from gang to group to pod-group; nothing preferred is
/// broader than what is required beside it.
fn assert_sound(gang: &PodGang, topology: &Topology) {
    let depth = |key: &String| {
        topology
            .depth(key)
            .unwrap_or_else(|| panic!("{key} is no level of {topology:?}"))
    };
    for pack in packs(gang) {
        assert!(pack.required.is_some() || pack.preferred.is_some());
        let (required, preferred) = (pack.required.as_ref().map(depth), pack.preferred.as_ref().map(depth));
        if let (Some(required), Some(preferred)) = (required, preferred) {
            assert!(required <= preferred, "{gang:?}");
        }
    }
    let required = |constraint: &Option<GangTopologyConstraint>| {
        let pack = constraint.as_ref()?.pack_constraint.as_ref()?;
        pack.required.as_ref().map(depth)
    };
    let spec = &gang.spec;
    let outer = required(&spec.topology_constraint);
    for pod_group in &spec.pod_groups {
        let configs = spec.topology_constraint_group_configs.iter();
        let group = configs
            .filter(|config| config.pod_group_names.contains(&pod_group.name))
            .find_map(|config| required(&config.topology_constraint));
        let chain: Vec<usize> = [outer, group, required(&pod_group.topology_constraint)]
            .into_iter()
            .flatten()
            .collect();
        assert!(chain.is_sorted(), "{gang:?}");
    }
}

proptest! {
    #[test]
    fn a_set_is_admitted_exactly_when_the_plain_rules_say_so(set in any_set(), words in any_words()) {
        let object = grove_topology(&words);
        let verdict = review_set(&SetReview {
            old: None,
            new: &set,
            tas: &enabled(""),
            found: Found { cluster_topology: Some(&object), ..Found::default() },
            scheduled_pods: 0,
            unenforceable: None,
            why_host: None,
        });
        prop_assert_eq!(verdict.is_admitted(), is_valid(&set, &words), "{:?}", verdict);
        let said: BTreeSet<_> = verdict.violations.iter().map(|found| (&found.field, &found.message)).collect();
        prop_assert_eq!(said.len(), verdict.violations.len(), "nothing is said twice");
    }

    // shows: V3-80
    #[test]
    fn an_admitted_set_translates_to_levels_that_nest((set, words) in any_valid_set(), packing in any_packing()) {
        prop_assert!(is_valid(&set, &words));
        let resolution = in_force(&words);
        let topology = resolution.topology().unwrap();
        for planned in planned(&set) {
            let gang = planned.gang(&set, &resolution, packing, None);
            assert_sound(&gang, topology);
            // Translating once more changes nothing.
            prop_assert_eq!(&planned.gang(&set, &resolution, packing, Some(&gang)), &gang);
        }
    }

    #[test]
    fn levels_may_change_in_any_way_and_gangs_stay_sound(
        (set, before) in any_valid_set(), after in any_words(), packing in any_packing()
    ) {
        let after = in_force(&after);
        for planned in planned(&set) {
            let existing = planned.gang(&set, &in_force(&before), packing, None);
            let gang = planned.gang(&set, &after, packing, Some(&existing));
            assert_sound(&gang, after.topology().unwrap());
            // A gang is what its set and topology say, not what it was.
            prop_assert_eq!(&planned.gang(&set, &after, packing, None), &gang);
        }
    }

    #[test]
    fn without_a_topology_nothing_is_required_and_preferences_stay(
        set in any_set(), words in any_words(), packing in any_packing()
    ) {
        let gone = Resolution::Missing { kind: TopologyKind::ClusterTopology, name: "grove-topology".into() };
        for planned in planned(&set) {
            let existing = planned.gang(&set, &in_force(&words), packing, None);
            for resolution in [&gone, &Resolution::Disabled] {
                let gang = planned.gang(&set, resolution, packing, Some(&existing));
                let preferred = |gang| packs(gang).into_iter().filter_map(|pack| pack.preferred).collect::<Vec<_>>();
                prop_assert!(packs(&gang).iter().all(|pack| pack.required.is_none()));
                prop_assert_eq!(preferred(&gang), preferred(&existing));
                prop_assert_eq!(&gang.spec.topology_ref, &existing.spec.topology_ref);
            }
        }
    }
}
