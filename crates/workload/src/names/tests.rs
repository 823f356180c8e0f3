use std::collections::BTreeMap;

use grove_api::PodClique;
use proptest::prelude::*;

use super::*;
use crate::fixtures::{clique, example, set};

#[test]
fn names_are_what_others_rely_on() {
    assert_eq!(podclique("a", 0, "fe"), "a-0-fe");
    assert_eq!(scaling_group("a", 1, "pf"), "a-1-pf");
    assert_eq!(member_podclique("a-1-pf", 2, "pl"), "a-1-pf-2-pl");
    assert_eq!(base_gang("a", 3), "a-3");
    assert_eq!(scaled_gang("a-0-pf", 2, 1), "a-0-pf-1");
    assert_eq!(gang_of_group_replica("a", 0, "a-0-pf", 0, 1), "a-0");
    assert_eq!(gang_of_group_replica("a", 0, "a-0-pf", 1, 1), "a-0-pf-0");
    assert_eq!(service("a", 0), "a-0");
    assert_eq!(service_domain("a", 0, "ns"), "a-0.ns.svc.cluster.local");
    assert_eq!(role("a"), "grove.io:pcs:a");
    assert_eq!(compute_domain("a", 0, "nv"), "a-0-nv");
    assert_eq!(claim_of_all("a-0-pf", "gpu"), "a-0-pf-all-gpu");
    assert_eq!(claim_of_one("a-0-fe", 4, "gpu"), "a-0-fe-4-gpu");
    assert_eq!(hostname("a-0-fe", 4), "a-0-fe-4");
}

fn labelled(name: &str, labels: &[(&str, &str)]) -> PodClique {
    let mut clique = PodClique::new(name, Default::default());
    let labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    clique.metadata.labels = Some(labels.collect::<BTreeMap<_, _>>());
    clique
}

#[test]
fn a_clique_is_found_by_its_whole_name() {
    // `worker` is the end of `x-worker`: who matches by suffix confuses the two.
    let set = set("a")
        .with_clique(clique("x-worker"))
        .with_clique(clique("worker"))
        .with_group("g", (2, 1), vec![clique("g-worker")])
        .build();
    let standalone = labelled("a-0-x-worker", &[(labels::PCS_REPLICA_INDEX, "0")]);
    let place = Place::of(&set, &standalone).unwrap();
    assert_eq!((place.template.name.as_str(), place.member), ("x-worker", None));

    let member = labelled(
        "a-0-g-1-g-worker",
        &[
            (labels::PCS_REPLICA_INDEX, "0"),
            (labels::SCALING_GROUP, "a-0-g"),
            (labels::SCALING_GROUP_REPLICA_INDEX, "1"),
        ],
    );
    let place = Place::of(&set, &member).unwrap();
    assert_eq!(place.template.name, "g-worker");
    assert_eq!(place.member.unwrap().group_replica, 1);

    for stranger in [
        labelled("a-0-gone", &[(labels::PCS_REPLICA_INDEX, "0")]),
        labelled("a-0-worker", &[(labels::PCS_REPLICA_INDEX, "1")]),
        labelled("a-0-worker", &[]),
        labelled("a-0-worker", &[(labels::PCS_REPLICA_INDEX, "-1")]),
    ] {
        assert_eq!(Place::of(&set, &stranger), None);
    }
}

#[test]
fn standalone_cliques_and_members_keep_their_orders() {
    let set = example().build();
    let names = |cliques: Vec<&PodCliqueTemplate>| cliques.iter().map(|clique| clique.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(standalone(&set).collect()), ["fe"]);
    assert_eq!(
        names(members(&set, &set.spec.template.scaling_groups[0]).collect()),
        ["pl", "pw"]
    );
}

fn key<'a>(index: i32, hash: &'a str, predecessors: &'a [&'a str]) -> PodKey<'a> {
    PodKey {
        clique: "a-0-fe",
        clique_uid: "u1",
        index,
        template_hash: hash,
        predecessors,
    }
}

#[test]
fn a_pod_gets_another_name_for_everything_that_makes_it_another_pod() {
    let free = BTreeSet::new();
    let name = pod(&key(0, "h", &[]), &free);
    assert_eq!(name, pod(&key(0, "h", &[]), &free), "a repeated create finds the first");
    let other_clique = PodKey {
        clique_uid: "u2",
        ..key(0, "h", &[])
    };
    for other in [key(1, "h", &[]), key(0, "i", &[]), key(0, "h", &["dead"]), other_clique] {
        assert_ne!(name, pod(&other, &free));
    }
    assert_eq!(
        pod(&key(0, "h", &["x", "y"]), &free),
        pod(&key(0, "h", &["y", "x"]), &free)
    );
}

#[test]
fn five_thousand_pods_have_five_thousand_names() {
    let mut taken = BTreeSet::new();
    for index in 0..5_000 {
        taken.insert(pod(&key(index, "h", &[]), &taken));
    }
    assert_eq!(taken.len(), 5_000);
    let plain: BTreeSet<String> = (0..5_000)
        .map(|index| pod(&key(index, "h", &[]), &BTreeSet::new()))
        .collect();
    assert!(plain.len() < 5_000, "the test is of no use when no two letters collide");
}

proptest! {
    #[test]
    fn names_are_legal(
        set in "[a-z]([-a-z0-9]{0,13}[a-z0-9])?",
        group in "[a-z]([-a-z0-9]{0,13}[a-z0-9])?",
        clique in "[a-z]([-a-z0-9]{0,13}[a-z0-9])?",
        (replica, group_replica, index) in (0..10_000, 0..10_000, 0..10_000),
    ) {
        let group = scaling_group(&set, replica, &group);
        let clique = member_podclique(&group, group_replica, &clique);
        let key = PodKey { clique: &clique, clique_uid: "u", index, template_hash: "h", predecessors: &[] };
        for name in [pod(&key, &BTreeSet::new()), hostname(&clique, index), scaled_gang(&group, group_replica, 0)] {
            prop_assert!(name.len() <= 63, "{name} is too long for a host name and a label");
            prop_assert!(name.starts_with(|c: char| c.is_ascii_lowercase()));
            prop_assert!(name.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()));
        }
    }

    #[test]
    fn a_place_is_found_for_every_name_that_is_made(replica in 0..50, group_replica in 0..50) {
        let set = example().build();
        let group = scaling_group("a", replica, "pf");
        for template in ["pl", "pw"] {
            let name = member_podclique(&group, group_replica, template);
            let (replica_text, group_replica_text) = (replica.to_string(), group_replica.to_string());
            let clique = labelled(&name, &[
                (labels::PCS_REPLICA_INDEX, &replica_text),
                (labels::SCALING_GROUP, &group),
                (labels::SCALING_GROUP_REPLICA_INDEX, &group_replica_text),
            ]);
            let place = Place::of(&set, &clique).unwrap();
            prop_assert_eq!(place.replica, replica);
            prop_assert_eq!(place.template.name.as_str(), template);
            prop_assert_eq!(place.member.unwrap().group_replica, group_replica);
        }
    }
}
