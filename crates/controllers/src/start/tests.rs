use grove_api::config::{self, Overrides};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const HEAD: &str = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n";
const ON: &str = "topologyAwareScheduling: {enabled: true, levels: [{domain: rack, key: example.com/rack}]}\n";

fn tas(text: &str) -> TopologyAwareScheduling {
    let parsed = config::parse(format!("{HEAD}{text}").as_bytes(), &Overrides::default());
    parsed
        .expect("a valid configuration")
        .configuration
        .topology_aware_scheduling
}

fn made() -> ClusterTopology {
    match default_topology_step(&tas(ON), None) {
        DefaultTopologyStep::Create(object) => *object,
        other => panic!("not a creation: {other:?}"),
    }
}

#[test]
fn it_is_made_with_the_levels_and_the_label() {
    let made = made();
    assert_eq!(made.name_any(), "grove-topology");
    assert_eq!(made.labels()[MANAGED_BY], "grove-operator");
    assert_eq!(made.spec.levels.len(), 1);
    assert_eq!(default_topology_step(&tas(ON), Some(&made)), DefaultTopologyStep::Keep);
}

#[test]
fn what_others_made_of_it_is_overwritten() {
    let mut edited = made();
    edited.spec.levels[0].key = "example.com/other".into();
    edited.metadata.resource_version = Some("7".into());
    let DefaultTopologyStep::Update(patch) = default_topology_step(&tas(ON), Some(&edited)) else {
        panic!("other levels are overwritten");
    };
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(patch["spec"]["levels"][0]["key"], "example.com/rack");
    let mut unlabelled = made();
    unlabelled.metadata.labels = None;
    let step = default_topology_step(&tas(ON), Some(&unlabelled));
    assert!(matches!(step, DefaultTopologyStep::Update(_)), "{step:?}");
}

#[test]
fn it_is_removed_where_none_is_wanted() {
    for off in [
        "",
        "topologyAwareScheduling: {enabled: true, source: TopologyDomain, topologyDomainName: d}\n",
    ] {
        assert_eq!(
            default_topology_step(&tas(off), Some(&made())),
            DefaultTopologyStep::Delete
        );
        assert_eq!(default_topology_step(&tas(off), None), DefaultTopologyStep::Keep);
    }
}

#[test]
fn one_that_is_being_deleted_is_let_go_of_first() {
    let mut leaving = made();
    leaving.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    leaving.metadata.finalizers = Some(vec![finalizer::CLUSTER_TOPOLOGY.into(), "theirs".into()]);
    let DefaultTopologyStep::Release(patch) = default_topology_step(&tas(ON), Some(&leaving)) else {
        panic!("it cannot be kept");
    };
    assert_eq!(patch["metadata"]["finalizers"], json!(["theirs"]));
}
