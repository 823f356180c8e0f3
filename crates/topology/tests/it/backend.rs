//! Topology resources of other schedulers.

use grove_api::config::{Overrides, ProfileName, Scheduler, parse};
use grove_api::podgang::{GangTopologyConstraint, PackConstraint};
use grove_topology::backend::{Backend, Step, backend_constraint, backends, desired, release, relies_on, step};
use grove_topology::{Topology, TopologyKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use proptest::prelude::*;
use serde_json::json;

use crate::fixtures::{at, binding, cluster_topology, enabled, from_domain, grove_topology, key, topology_domain};
use crate::levels::any_words;

fn kai(words: &[&str]) -> DynamicObject {
    desired(
        Backend::Kai,
        "v1alpha1",
        &Topology::from(&grove_topology(words)),
        "uid-1",
    )
}

fn kai_step(desired: &DynamicObject, existing: &DynamicObject) -> Step {
    step(Backend::Kai, desired, Some(existing))
}

fn owner(object: &mut DynamicObject) -> &mut OwnerReference {
    &mut object
        .metadata
        .owner_references
        .as_mut()
        .expect("desired objects have an owner")[0]
}

fn scheduler(profiles: &str) -> Scheduler {
    let file = format!("scheduler: {{profiles: [{profiles}]}}");
    let loaded = parse(file.as_bytes(), &Overrides::default()).unwrap_or_else(|problems| panic!("{problems:?}"));
    loaded.configuration.scheduler
}

// shows: V2-12, V2-13, V2-14, V1-17
#[test]
fn v1_and_v2_the_kueue_topology_of_a_topology_domain() {
    let domain = topology_domain("default", &["zone", "rack", "host"]);
    let object = desired(Backend::Kueue, "v1alpha1", &Topology::from(&domain), "uid-1");
    assert_eq!(
        serde_json::to_value(object).unwrap(),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1alpha1",
            "kind": "Topology",
            "metadata": {
                "name": "default",
                "labels": {"app.kubernetes.io/managed-by": "grove-operator"},
                "ownerReferences": [{
                    "apiVersion": "grove.run.ai/v1alpha1",
                    "kind": "TopologyDomain",
                    "name": "default",
                    "uid": "uid-1",
                    "controller": true,
                }],
            },
            "spec": {"levels": [
                {"nodeLabel": "topology.kubernetes.io/zone"},
                {"nodeLabel": "topology.kubernetes.io/rack"},
                {"nodeLabel": "kubernetes.io/hostname"},
            ]},
        })
    );
}

// shows: V3-24, V3-25, G244-42
#[test]
fn g244_and_e2e_top_1_the_kai_topology_of_a_cluster_topology() {
    // Listed narrow first, and with a level below the host that KAI does not take.
    let object = serde_json::to_value(kai(&["numa", "host", "rack"])).unwrap();
    assert_eq!(object["apiVersion"], "kai.scheduler/v1alpha1");
    assert_eq!(object["metadata"]["name"], "grove-topology");
    assert_eq!(
        object["metadata"]["ownerReferences"][0]["apiVersion"],
        "grove.io/v1alpha1"
    );
    assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "ClusterTopology");
    assert_eq!(
        object["spec"]["levels"],
        json!([{"nodeLabel": key("rack")}, {"nodeLabel": "kubernetes.io/hostname"}])
    );
}

#[test]
fn the_resource_of_a_binding_is_owned_by_it() {
    let object = desired(
        Backend::Kai,
        "v1alpha1",
        &Topology::from(&binding("b", &["hall"])),
        "uid-1",
    );
    let owners = object.metadata.owner_references.unwrap();
    assert_eq!(
        (owners[0].kind.as_str(), owners[0].api_version.as_str()),
        ("ClusterTopologyBinding", "grove.io/v1alpha1")
    );
}

// shows: V3-22
#[test]
fn a_missing_resource_is_created_and_an_equal_one_kept() {
    let desired = kai(&["rack", "host"]);
    assert_eq!(step(Backend::Kai, &desired, None), Step::Create);
    let mut existing = desired.clone();
    existing.metadata.resource_version = Some("7".into());
    assert_eq!(kai_step(&desired, &existing), Step::Keep);
    // An alias is the admin's own; only the labels and their order count.
    existing.data["spec"]["levels"][0]["alias"] = json!("rack");
    assert_eq!(kai_step(&desired, &existing), Step::Keep);
}

// shows: V3-23, V3-26, V3-28, G244-41
#[test]
fn other_levels_or_another_order_are_replaced() {
    let desired = kai(&["rack", "host"]);
    assert_eq!(kai_step(&desired, &kai(&["block", "rack", "host"])), Step::Recreate);
    let mut drifted = desired.clone();
    drifted.data["spec"]["levels"].as_array_mut().unwrap().reverse();
    assert_eq!(kai_step(&desired, &drifted), Step::Recreate);
    for broken in [
        json!({}),
        json!({"spec": {"levels": [{}]}}),
        json!({"spec": {"levels": 3}}),
    ] {
        drifted.data = broken;
        assert_eq!(kai_step(&desired, &drifted), Step::Recreate);
    }
}

#[test]
fn a_resource_of_somebody_else_is_never_touched() {
    let desired = kai(&["rack", "host"]);
    let mut unowned = kai(&["zone"]);
    unowned.metadata.owner_references = None;
    unowned.metadata.labels = None;
    assert_eq!(
        kai_step(&desired, &unowned),
        Step::Leave(
            "KAI Topology 'grove-topology' exists and was not made by the operator; \
             delete it, or give the ClusterTopology another name"
                .into()
        )
    );
    let mut foreign = kai(&["zone"]);
    owner(&mut foreign).kind = "TopologyPlan".into();
    assert!(matches!(kai_step(&desired, &foreign), Step::Leave(why) if why.contains("belongs to TopologyPlan")));
    // The same kind of another group, and another object of the same kind.
    let mut group = kai(&["zone"]);
    owner(&mut group).api_version = "example.com/v1".into();
    assert!(matches!(kai_step(&desired, &group), Step::Leave(_)));
    let mut name = kai(&["zone"]);
    owner(&mut name).name = "other".into();
    assert!(matches!(kai_step(&desired, &name), Step::Leave(_)));
    // Not even while it is being deleted.
    foreign.metadata.deletion_timestamp = Some(at(0));
    assert!(matches!(kai_step(&desired, &foreign), Step::Leave(_)));
}

#[test]
fn what_an_earlier_object_of_the_name_left_behind_is_replaced() {
    let desired = kai(&["rack", "host"]);
    let mut stale = desired.clone();
    owner(&mut stale).uid = "uid-of-the-deleted-one".into();
    assert_eq!(kai_step(&desired, &stale), Step::Recreate);
    // The garbage collector is already at it.
    stale.metadata.deletion_timestamp = Some(at(0));
    assert_eq!(kai_step(&desired, &stale), Step::Wait);
}

#[test]
fn a_released_resource_stays_and_is_taken_back_when_wanted() {
    let topology = Topology::from(&grove_topology(&["rack", "host"]));
    let mut existing = kai(&["rack", "host"]);
    existing.metadata.resource_version = Some("7".into());
    let patch = release(&topology, &existing).unwrap();
    assert_eq!(
        patch,
        json!({"metadata": {"ownerReferences": [], "resourceVersion": "7"}})
    );
    existing.metadata.owner_references = None;
    assert_eq!(release(&topology, &existing), None, "nothing left to release");
    assert_eq!(kai_step(&kai(&["rack", "host"]), &existing), Step::Recreate);
    let other = Topology::from(&cluster_topology("other", &["rack"]));
    assert_eq!(release(&other, &kai(&["rack"])), None);
}

#[test]
fn of_kueue_the_newest_served_version_is_written_and_of_kai_the_known_one() {
    let kueue = |served: &[&'static str]| Backend::Kueue.version(served.iter().copied());
    assert_eq!(kueue(&["v1alpha1", "v1beta1"]), Some("v1beta1"));
    assert_eq!(kueue(&["v1beta2", "v1beta1", "v1alpha1"]), Some("v1beta2"));
    assert_eq!(kueue(&["v1beta2", "v1"]), Some("v1"));
    assert_eq!(kueue(&["v1alpha1"]), Some("v1alpha1"));
    assert_eq!(kueue(&[]), None);
    assert_eq!(Backend::Kai.version(["v1", "v1alpha1"]), Some("v1alpha1"));
    assert_eq!(Backend::Kai.version(["v1"]), None);
}

// shows: G244-3, G244-5, G244-6, G244-80, V2-15
#[test]
fn backends_follow_profiles_and_the_source() {
    use TopologyKind::{ClusterTopology, ClusterTopologyBinding, TopologyDomain};
    let (clusters, domain) = (enabled(""), from_domain(""));
    let both = scheduler("{name: kai-scheduler}, {name: kueue}");
    let kai = scheduler("{name: kai-scheduler}");
    let off = scheduler("{name: kai-scheduler, config: {createTopologyResources: false}}");
    let none = scheduler("{name: default-scheduler}");
    let cases = [
        (
            ClusterTopology,
            &clusters,
            &both,
            false,
            vec![Backend::Kai, Backend::Kueue],
        ),
        (ClusterTopologyBinding, &clusters, &kai, true, vec![Backend::Kai]),
        (ClusterTopology, &clusters, &off, true, vec![]),
        (ClusterTopology, &clusters, &none, true, vec![]),
        // KAI is told of topologies of either source; of those that are not in use nobody is.
        (TopologyDomain, &domain, &kai, false, vec![Backend::Kai]),
        (TopologyDomain, &clusters, &both, true, vec![]),
        (ClusterTopology, &domain, &both, true, vec![]),
        (TopologyDomain, &domain, &none, true, vec![Backend::Kueue]),
        (TopologyDomain, &domain, &none, false, vec![]),
        (
            TopologyDomain,
            &domain,
            &both,
            false,
            vec![Backend::Kai, Backend::Kueue],
        ),
    ];
    for (kind, tas, scheduler, is_served, expected) in cases {
        assert_eq!(
            backends(kind, tas, scheduler, is_served),
            expected,
            "{kind} {scheduler:?}"
        );
    }
}

// shows: G244-81
#[test]
fn kai_relies_on_others_for_topologies_that_the_operator_does_not_tell_it_of() {
    let own = Topology::from(&cluster_topology("t", &["rack"]));
    let foreign = Topology::from(&binding("b", &["rack"]));
    let told = scheduler("{name: kai-scheduler, default: true}");
    let untold = scheduler("{name: kai-scheduler, default: true, config: {createTopologyResources: false}}");
    let elsewhere = scheduler("{name: default-scheduler, default: true}, {name: kai-scheduler}");
    let kai = ProfileName::KaiScheduler;
    assert_eq!(relies_on(&told, kai, &own), None);
    assert_eq!(relies_on(&untold, kai, &own), Some("t"));
    assert_eq!(relies_on(&told, kai, &foreign), Some("b"));
    assert_eq!(
        relies_on(&elsewhere, kai, &foreign),
        Some("b"),
        "for a set that names KAI"
    );
    assert_eq!(relies_on(&elsewhere, elsewhere.default_profile, &foreign), None);
}

#[test]
fn constraints_below_the_host_reach_a_backend_as_the_host() {
    let constraint = |required: Option<String>, preferred: Option<String>| GangTopologyConstraint {
        pack_constraint: Some(PackConstraint { required, preferred }),
    };
    let topology = Topology::from(&grove_topology(&["rack", "host", "numa"]));
    let clamped = backend_constraint(Some(&topology), Some(&constraint(Some(key("rack")), Some(key("numa")))));
    assert_eq!(
        clamped,
        Some(PackConstraint {
            required: Some(key("rack")),
            preferred: Some(key("host")),
        })
    );
    // A key that is no level any more, and a topology that is not in force.
    let gone = constraint(Some("gone".into()), None);
    assert_eq!(backend_constraint(Some(&topology), Some(&gone)), None);
    assert_eq!(
        backend_constraint(None, Some(&constraint(None, Some(key("host"))))),
        None
    );
    assert_eq!(backend_constraint(Some(&topology), None), None);
}

proptest! {
    #[test]
    fn what_was_written_is_kept_and_only_other_labels_replace_it(first in any_words(), second in any_words()) {
        let (first, second) = (kai(&first), kai(&second));
        prop_assert_eq!(kai_step(&first, &first), Step::Keep);
        let expected = if first.data == second.data { Step::Keep } else { Step::Recreate };
        prop_assert_eq!(kai_step(&second, &first), expected);
    }
}
