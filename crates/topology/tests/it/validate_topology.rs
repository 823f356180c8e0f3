//! Admission of topologies.

use grove_api::ClusterTopology;
use grove_api::labels::{MANAGED_BY, finalizer};
use grove_api::podgang::NamespacedName;
use grove_topology::validate::{
    Cause, ClusterTopologyReview, Request, Verdict, Violation, changes_levels, review_cluster_topology,
    review_topology_domain,
};

use crate::fixtures::{at, cluster_topology, enabled, grove_topology, topology_domain};

fn users(count: usize) -> Vec<NamespacedName> {
    let user = |index| NamespacedName {
        namespace: "ml".into(),
        name: format!("set-{index}"),
    };
    (0..count).map(user).collect()
}

fn by_user(request: Request<'_>) -> Verdict {
    review_cluster_topology(&ClusterTopologyReview {
        request,
        is_operator: false,
        tas: &enabled(""),
        scheduled_users: &[],
    })
}

fn update_in_use(old: &ClusterTopology, new: &ClusterTopology, count: usize) -> Verdict {
    review_cluster_topology(&ClusterTopologyReview {
        request: Request::Update { old, new },
        is_operator: false,
        tas: &enabled(""),
        scheduled_users: &users(count),
    })
}

// shows: V3-21, V3-64, V3-65, V3-66
#[test]
fn v3_only_the_operator_writes_grove_topology() {
    let old = grove_topology(&["rack", "host"]);
    let new = grove_topology(&["block", "rack", "host"]);
    let requests = [
        (Request::Create { new: &new }, "created"),
        (Request::Update { old: &old, new: &new }, "modified"),
        (Request::Delete { old: &old }, "deleted"),
    ];
    for (request, done) in requests {
        let review = ClusterTopologyReview {
            request,
            is_operator: false,
            tas: &enabled(""),
            scheduled_users: &[],
        };
        let verdict = review_cluster_topology(&review);
        let expected = format!("ClusterTopology 'grove-topology' can only be {done} by the operator");
        assert_eq!(verdict.violations[0].message, expected);
        assert_eq!(verdict.violations.len(), 1);
        let operator = ClusterTopologyReview {
            is_operator: true,
            ..review
        };
        assert!(review_cluster_topology(&operator).is_admitted());
        let open = enabled("protectDefaultTopology: false");
        let unprotected = ClusterTopologyReview { tas: &open, ..review };
        assert!(review_cluster_topology(&unprotected).is_admitted());
    }
}

// shows: V3-4, V3-5, V3-67
#[test]
fn v3_users_create_update_and_delete_topologies_of_their_own() {
    let (old, new) = (
        cluster_topology("gb200", &["rack"]),
        cluster_topology("gb200", &["rack", "host"]),
    );
    for request in [
        Request::Create { new: &new },
        Request::Update { old: &old, new: &new },
        Request::Delete { old: &old },
    ] {
        assert_eq!(by_user(request), Verdict::default());
    }
}

#[test]
fn of_grove_topology_the_label_and_the_finalizer_are_protected_and_other_metadata_is_free() {
    let mut old = grove_topology(&["rack"]);
    old.metadata.labels = Some([(MANAGED_BY.to_owned(), "grove-operator".to_owned())].into());
    old.metadata.finalizers = Some(vec![finalizer::CLUSTER_TOPOLOGY.to_owned()]);
    let refused = |change: &dyn Fn(&mut ClusterTopology)| {
        let mut new = old.clone();
        change(&mut new);
        let verdict = by_user(Request::Update { old: &old, new: &new });
        verdict.violations.first().map(|violation| violation.field.clone())
    };
    let refused_label = refused(&|new| new.metadata.labels = None);
    assert_eq!(refused_label.as_deref(), Some("metadata.labels"));
    let lifted = refused(&|new| new.metadata.finalizers = None);
    assert_eq!(lifted.as_deref(), Some("metadata.finalizers"));
    let lifted_while_deleted = refused(&|new| {
        new.metadata.finalizers = None;
        new.metadata.deletion_timestamp = Some(at(0));
    });
    assert_eq!(lifted_while_deleted.as_deref(), Some("metadata.finalizers"));
    assert_eq!(
        refused(&|new| new.metadata.annotations = Some([("a".into(), "b".into())].into())),
        None
    );
    assert_eq!(
        refused(&|new| new
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .extend([("team".to_owned(), "x".to_owned())])),
        None
    );
    // What the garbage collector does on a foreground deletion.
    let collector = |new: &mut ClusterTopology| {
        new.metadata
            .finalizers
            .as_mut()
            .unwrap()
            .push("foregroundDeletion".into())
    };
    assert_eq!(refused(&collector), None);
}

// shows: G244-26, G244-27, G244-28
#[test]
fn g244_levels_cannot_change_while_a_set_that_uses_them_has_scheduled_pods() {
    let (old, new) = (
        cluster_topology("x", &["rack", "host"]),
        cluster_topology("x", &["block", "host"]),
    );
    assert!(update_in_use(&old, &new, 0).is_admitted());
    let verdict = update_in_use(&old, &new, 2);
    assert_eq!(
        verdict.violations,
        [Violation {
            field: "spec.levels".into(),
            cause: Cause::Forbidden,
            message: "topology levels of ClusterTopology 'x' cannot be changed: \
                      topology in use by scheduled workloads: ml/set-0, ml/set-1"
                .into(),
        }]
    );
    let many = update_in_use(&old, &new, 12);
    assert!(many.violations[0].message.ends_with("ml/set-8, ml/set-9 and 2 more"));
    assert!(
        update_in_use(&old, &new, 10).violations[0]
            .message
            .ends_with("ml/set-9")
    );
}

// shows: G244-29
#[test]
fn g244_metadata_and_the_order_of_the_list_can_change_at_any_time() {
    let old = cluster_topology("x", &["rack", "host"]);
    let mut labelled = old.clone();
    labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    assert_eq!(update_in_use(&old, &labelled, 3), Verdict::default());
    let reordered = cluster_topology("x", &["host", "rack"]);
    assert!(!changes_levels(&old, &reordered));
    let verdict = update_in_use(&old, &reordered, 3);
    assert!(verdict.is_admitted());
    assert_eq!(
        verdict.warnings,
        ["spec.levels: listed as host, rack, used by meaning as rack, host"]
    );
    // Said when it was written; a later label is no reason to say it again.
    let mut labelled = reordered.clone();
    labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    assert_eq!(update_in_use(&reordered, &labelled, 3), Verdict::default());
}

// shows: V3-19, V3-20
#[test]
fn v3_words_and_keys_are_unique() {
    let mut new = cluster_topology("x", &["rack", "rack", "host"]);
    new.spec.levels[2].key = new.spec.levels[0].key.clone();
    let fields: Vec<_> = by_user(Request::Create { new: &new })
        .violations
        .into_iter()
        .map(|violation| (violation.field, violation.cause, violation.message))
        .collect();
    let domain = "domain must be unique across all levels".to_owned();
    let key = "key must be unique across all levels".to_owned();
    assert_eq!(
        fields,
        [
            ("spec.levels[1].domain".to_owned(), Cause::Duplicate, domain),
            ("spec.levels[1].key".to_owned(), Cause::Duplicate, key.clone()),
            ("spec.levels[2].key".to_owned(), Cause::Duplicate, key),
        ]
    );
}

// shows: G244-38
#[test]
fn a_host_level_on_another_label_is_admitted_with_a_warning() {
    let mut new = cluster_topology("x", &["rack", "host"]);
    new.spec.levels[1].key = "example.com/machine".into();
    let verdict = by_user(Request::Create { new: &new });
    assert!(verdict.is_admitted());
    assert!(
        verdict.warnings[0].starts_with("spec.levels[1].key: 'example.com/machine' instead of kubernetes.io/hostname")
    );
}

// shows: V2-9, V2-4, V1-13, V1-14
#[test]
fn v2_levels_of_a_topology_domain_are_unique_and_immutable() {
    let old = topology_domain("default", &["zone", "rack"]);
    assert_eq!(review_topology_domain(None, &old), Verdict::default());
    let twice = review_topology_domain(None, &topology_domain("default", &["rack", "rack"]));
    let fields: Vec<_> = twice
        .violations
        .iter()
        .map(|violation| violation.field.as_str())
        .collect();
    assert_eq!(fields, ["spec.levels[1].name", "spec.levels[1].topologyKey"]);
    // The list is ordered, so another order is another topology.
    let new = topology_domain("default", &["rack", "zone"]);
    let verdict = review_topology_domain(Some(&old), &new);
    assert_eq!(verdict.violations[0].message, "levels list is immutable");
    let mut leaving = new.clone();
    leaving.metadata.deletion_timestamp = Some(at(0));
    assert!(review_topology_domain(Some(&old), &leaving).is_admitted());
}
