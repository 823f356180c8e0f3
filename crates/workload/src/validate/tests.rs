use grove_api::podclique::AutoScalingConfig;
use grove_api::podcliqueset::CliqueStartupType;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixtures::{clique, set};

fn valid() -> PodCliqueSet {
    let mut set = set("w")
        .with_clique(clique("a").sized(2, 1))
        .with_clique(clique("z"))
        .with_group("g", (3, 1), vec![clique("b"), clique("c")])
        .build();
    crate::default::fill(&mut set);
    set
}

type Edit = fn(&mut PodCliqueSet);

/// The one violation that an edit of a valid set leads to.
fn only(found: Vec<Violation>) -> (String, String, Reason) {
    assert_eq!(found.len(), 1, "{found:?}");
    let violation = found.into_iter().next().unwrap();
    (violation.path, violation.message, violation.reason)
}

fn scaling(min: i32, max: i32) -> Option<AutoScalingConfig> {
    Some(AutoScalingConfig {
        min_replicas: Some(min),
        max_replicas: max,
        metrics: vec![],
    })
}

#[test]
fn a_valid_set_is_admitted() {
    assert_eq!(create(&valid(), &Rules::default()), []);
    assert_eq!(update(&valid(), &valid()), []);
}

#[test]
fn every_rule_of_both_operations_has_its_field_and_message() {
    use Reason::{Duplicate, Forbidden, Invalid, Required};
    let length = "combined resource name length 46 exceeds 45-character limit required for pod naming. Consider \
                  shortening: PodCliqueSet 'w' or PodClique 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz'";
    let cases: &[(Edit, &str, &str, Reason)] = &[
        (
            |s| s.spec.replicas = -1,
            "spec.replicas",
            "must be greater than or equal to 0",
            Invalid,
        ),
        (
            |s| s.spec.template.cliques[1].name = "z".repeat(45),
            "spec.template.cliques[1].name",
            length,
            Invalid,
        ),
        (
            |s| s.spec.template.cliques[1].name = "a".into(),
            "spec.template.cliques[1].name",
            "duplicate value 'a'",
            Duplicate,
        ),
        (
            |s| s.spec.template.cliques[1].name = String::new(),
            "spec.template.cliques[1].name",
            "field cannot be empty",
            Required,
        ),
        (
            |s| s.spec.template.cliques[1].spec.role_name = "a".into(),
            "spec.template.cliques[1].spec.roleName",
            "duplicate value 'a'",
            Duplicate,
        ),
        (
            |s| s.spec.template.cliques[0].spec.min_available = Some(0),
            "spec.template.cliques[0].spec.minAvailable",
            "must be greater than 0",
            Invalid,
        ),
        (
            |s| s.spec.template.cliques[0].spec.min_available = Some(3),
            "spec.template.cliques[0].spec.minAvailable",
            "minAvailable must not be greater than replicas",
            Invalid,
        ),
        (
            |s| s.spec.template.cliques[0].spec.auto_scaling_config = scaling(0, 2),
            "spec.template.cliques[0].spec.autoScalingConfig.minReplicas",
            "must be greater than or equal to podCliqueSpec.minAvailable",
            Invalid,
        ),
        (
            |s| s.spec.template.cliques[0].spec.auto_scaling_config = scaling(3, 2),
            "spec.template.cliques[0].spec.autoScalingConfig.maxReplicas",
            "must be greater than or equal to podCliqueSpec.autoScalingConfig.minReplicas",
            Invalid,
        ),
        (
            |s| s.spec.template.cliques[0].spec.auto_scaling_config = scaling(1, 1),
            "spec.template.cliques[0].spec.autoScalingConfig.maxReplicas",
            "must be greater than or equal to podCliqueSpec.replicas",
            Invalid,
        ),
        (
            |s| s.spec.template.cliques[2].spec.auto_scaling_config = scaling(1, 1),
            "spec.template.cliques[2].spec.autoScalingConfig",
            "AutoScalingConfig is not allowed to be defined for PodClique that is part of scaling group",
            Invalid,
        ),
        (
            |s| s.spec.template.scaling_groups[0].clique_names.push("x".into()),
            "spec.template.podCliqueScalingGroups[0].cliqueNames",
            "unidentified PodClique names found: 'x'; defined: 'a', 'z', 'b', 'c'",
            Invalid,
        ),
        (
            |s| s.spec.template.scaling_groups[0].replicas = Some(0),
            "spec.template.podCliqueScalingGroups[0].replicas",
            "must be greater than 0",
            Invalid,
        ),
        (
            |s| s.spec.template.scaling_groups[0].min_available = Some(4),
            "spec.template.podCliqueScalingGroups[0].minAvailable",
            "minAvailable must not be greater than replicas",
            Invalid,
        ),
        (
            |s| s.spec.template.scaling_groups[0].scale_config = scaling(0, 2),
            "spec.template.podCliqueScalingGroups[0].scaleConfig.minReplicas",
            "scaleConfig.minReplicas must be greater than or equal to minAvailable",
            Invalid,
        ),
        (
            |s| s.spec.template.scaling_groups[0].scale_config = scaling(2, 1),
            "spec.template.podCliqueScalingGroups[0].scaleConfig.maxReplicas",
            "must be greater than or equal to scaleConfig.minReplicas",
            Invalid,
        ),
        (
            |s| s.spec.template.termination_delay = Some(grove_api::duration::DurationString("0s".into())),
            "spec.template.terminationDelay",
            "terminationDelay must be greater than 0",
            Invalid,
        ),
        (
            |s| {
                s.spec.template.resource_sharing =
                    serde_json::from_value(json!([{"name": "", "scope": "PerReplica"}])).unwrap()
            },
            "spec.template.resourceSharing[0].name",
            "reference name is required",
            Required,
        ),
        (
            |s| {
                s.spec.template.resource_sharing =
                    serde_json::from_value(json!([{"name": "x", "scope": "PerReplica", "filter": {}}])).unwrap()
            },
            "spec.template.resourceSharing[0].filter",
            "filter must specify at least one childCliqueNames or childScalingGroupNames entry",
            Required,
        ),
        (
            |s| {
                s.spec.template.resource_sharing = serde_json::from_value(
                    json!([{"name": "x", "scope": "PerReplica", "filter": {"childCliqueNames": ["q"]}}]),
                )
                .unwrap()
            },
            "spec.template.resourceSharing[0].filter.childCliqueNames[0]",
            "'q' is not defined here; known names: a, z, b, c",
            Invalid,
        ),
        (
            |s| {
                s.spec.template.resource_claim_templates = serde_json::from_value(
                    json!([{"name": "", "templateSpec": {"spec": {"devices": {"requests": [{"name": "r"}]}}}}]),
                )
                .unwrap()
            },
            "spec.template.resourceClaimTemplates[0].name",
            "template name is required",
            Required,
        ),
        (
            |s| {
                s.spec.template.resource_claim_templates =
                    serde_json::from_value(json!([{"name": "x", "templateSpec": {"spec": {}}}])).unwrap()
            },
            "spec.template.resourceClaimTemplates[0].templateSpec.spec.devices.requests",
            "at least one device request is required",
            Required,
        ),
        (
            |s| {
                s.spec.template.resource_claim_templates = serde_json::from_value(
                    json!([{"name": "x", "templateSpec": {"spec": {"devices": {"requests": [{"name": "r"}]}}}}]),
                )
                .unwrap();
                s.spec.template.resource_sharing =
                    serde_json::from_value(json!([{"name": "x", "namespace": "n", "scope": "PerReplica"}])).unwrap();
            },
            "spec.template.resourceSharing[0].namespace",
            "namespace must be empty when name matches an internal resourceClaimTemplate",
            Forbidden,
        ),
        (
            |s| {
                s.spec.template.cliques[0].spec.pod_spec.containers[0].env =
                    serde_json::from_value(json!([{"name": "A=B"}])).unwrap()
            },
            "spec.template.cliques[0].spec.podSpec.containers[0].env[0].name",
            "must consist of printable ASCII characters other than '='",
            Invalid,
        ),
        (
            |s| {
                s.spec.template.cliques[0].spec.pod_spec.containers[0].env =
                    serde_json::from_value(json!([{"name": "A"}, {"name": "A"}])).unwrap()
            },
            "spec.template.cliques[0].spec.podSpec.containers[0].env[1].name",
            "duplicate value 'A'",
            Duplicate,
        ),
        (
            |s| s.spec.template.cliques[0].spec.replicas = 10_000,
            "spec.template",
            "a gang may have at most 10000 pods, and one of this template has 10003",
            Invalid,
        ),
    ];
    for (edit, path, message, reason) in cases {
        let mut set = valid();
        edit(&mut set);
        assert_eq!(
            only(create(&set, &Rules::default())),
            ((*path).into(), (*message).into(), *reason)
        );
    }
}

#[test]
fn cliques_must_exist_and_be_in_one_group() {
    let mut none = valid();
    none.spec.template.cliques.clear();
    none.spec.template.scaling_groups.clear();
    let (path, message, _) = only(create(&none, &Rules::default()));
    assert_eq!(
        (path.as_str(), message.as_str()),
        ("spec.template.cliques", "at least one PodClique must be defined")
    );

    let mut twice = valid();
    let mut second = twice.spec.template.scaling_groups[0].clone();
    second.name = "h".into();
    second.clique_names = vec!["b".into()];
    twice.spec.template.scaling_groups.push(second);
    let (path, message, reason) = only(create(&twice, &Rules::default()));
    assert_eq!(path, "spec.template.podCliqueScalingGroups[1].cliqueNames");
    assert_eq!(
        (message.as_str(), reason),
        ("clique 'b' is in another scaling group already", Reason::Duplicate)
    );
}

/// Whether a name is spelt wrong or too long is told apart, and the name is in the message.
#[test]
fn a_bad_name_is_named_and_so_is_what_is_wrong_with_it() {
    let message = |name: &str| {
        let mut set = valid();
        set.spec.template.scaling_groups[0].name = name.to_owned();
        let found = create(&set, &Rules::default());
        let mut about = found
            .into_iter()
            .filter(|violation| violation.path.ends_with("Groups[0].name"));
        about.next().unwrap().message
    };
    assert!(message("Big").starts_with("invalid PodCliqueScalingGroupConfig name 'Big': must be a DNS label"));
    let long = message(&"g".repeat(64));
    assert!(
        long.ends_with("g': must have at most 63 characters, and has 64"),
        "{long}"
    );
}

#[test]
fn explicit_orders_are_complete_and_without_circles() {
    let with = |parents: [&[&str]; 2]| {
        let mut set = valid();
        set.spec.template.clique_startup_type = CliqueStartupType::Explicit;
        for (clique, parents) in set.spec.template.cliques.iter_mut().zip(parents) {
            clique.spec.starts_after = parents.iter().map(|name| (*name).to_owned()).collect();
        }
        create(&set, &Rules::default())
    };
    assert_eq!(with([&[], &["a", "b"]]), []);
    let message = |found| only(found).1;
    assert_eq!(message(with([&[""], &[]])), "clique dependency must not be empty");
    assert_eq!(message(with([&["a"], &[]])), "clique dependency cannot refer to itself");
    assert_eq!(message(with([&["z", "z"], &[]])), "duplicate value 'z'");
    let unknown = "unknown clique names found, all clique dependencies must be defined as cliques: 'q'";
    assert_eq!(message(with([&["q"], &[]])), unknown);
    assert_eq!(
        message(with([&["z"], &["a"]])),
        "clique must not have circular dependencies: 'a', 'z' would never start"
    );
}

#[test]
fn some_rules_are_for_new_sets_only() {
    let cases: &[(Edit, &str, &str)] = &[
        (
            |s| s.metadata.name = Some("1w".into()),
            "metadata.name",
            "invalid name '1w': must start with a letter: the names of Services begin with it",
        ),
        (
            |s| s.spec.template.cliques[0].spec.pod_spec.node_name = Some("n".into()),
            "spec.template.cliques[0].spec.podSpec.nodeName",
            "must not be set",
        ),
        (
            |s| s.spec.template.cliques[0].spec.pod_spec.topology_spread_constraints = Some(vec![Default::default()]),
            "spec.template.cliques[0].spec.podSpec.topologySpreadConstraints",
            "must not be set",
        ),
        (
            |s| s.spec.template.cliques[0].spec.pod_spec.scheduler_name = Some("volcano".into()),
            "spec.template.cliques[0].spec.podSpec.schedulerName",
            "schedulerName must be an enabled scheduler backend; this scheduler is not enabled in OperatorConfiguration: 'volcano'; enabled: ",
        ),
        (
            |s| s.metadata.annotations = Some([("grove.io/mnnvl-group".into(), "nv".into())].into()),
            "metadata.annotations[grove.io/mnnvl-group]",
            "MNNVL is not enabled in the operator configuration. Either enable MNNVL globally or remove the grove.io/mnnvl-group annotation",
        ),
        (
            |s| s.spec.template.cliques[1].name = "g-2-b".into(),
            "spec.template.cliques[1].name",
            "the PodClique of 'g-2-b' would have the name of a replica of 'b' in scaling group 'g'; rename one",
        ),
    ];
    for (edit, path, message) in cases {
        let mut set = valid();
        edit(&mut set);
        let (found_path, found_message, _) = only(create(&set, &Rules::default()));
        assert_eq!((found_path.as_str(), found_message.as_str()), (*path, *message));
        assert_eq!(update(&set, &set), [], "{path}");
    }
}

#[test]
fn schedulers_agree_and_are_enabled() {
    let mut set = valid();
    set.spec.template.cliques[0].spec.pod_spec.scheduler_name = Some("kai-scheduler".into());
    let rules = Rules {
        schedulers: vec!["kai-scheduler".into(), "grove-scheduler".into()],
        ..Rules::default()
    };
    assert_eq!(create(&set, &rules), []);
    set.spec.template.cliques[1].spec.pod_spec.scheduler_name = Some("grove-scheduler".into());
    assert_eq!(
        only(create(&set, &rules)).1,
        "the schedulerName for all pods have to be the same; found 'grove-scheduler', 'kai-scheduler'"
    );
}

#[test]
fn what_may_not_change() {
    let cases: &[(Edit, &str, &str)] = &[
        (
            |s| s.spec.template.cliques[0].spec.role_name = "r".into(),
            "spec.template.cliques[0].spec.roleName",
            "field is immutable",
        ),
        (
            |s| s.spec.template.cliques[0].spec.min_available = Some(2),
            "spec.template.cliques[0].spec.minAvailable",
            "field is immutable",
        ),
        (
            |s| s.spec.template.cliques[0].spec.starts_after = vec!["z".into()],
            "spec.template.cliques[0].spec.startsAfter",
            "field is immutable",
        ),
        (
            |s| s.spec.template.cliques[0].spec.pod_spec.scheduler_name = Some("x".into()),
            "spec.template.cliques[0].spec.podSpec.schedulerName",
            "field is immutable",
        ),
        (
            |s| {
                s.spec.template.cliques[0].resource_sharing =
                    serde_json::from_value(json!([{"name": "x", "scope": "PerReplica"}])).unwrap()
            },
            "spec.template.cliques[0].resourceSharing",
            "field is immutable",
        ),
        (
            |s| s.spec.template.clique_startup_type = CliqueStartupType::InOrder,
            "spec.template.cliqueStartupType",
            "field is immutable",
        ),
        (
            |s| s.spec.template.scaling_groups[0].clique_names.reverse(),
            "spec.template.podCliqueScalingGroups[0].cliqueNames",
            "field is immutable",
        ),
        (
            |s| s.spec.template.scaling_groups[0].min_available = Some(2),
            "spec.template.podCliqueScalingGroups[0].minAvailable",
            "field is immutable",
        ),
        (
            |s| s.spec.template.cliques.truncate(0),
            "spec.template.cliques",
            "not allowed to change clique composition",
        ),
        (
            |s| s.spec.template.cliques[1].name = "y".into(),
            "spec.template.cliques[1].name",
            "not allowed to change clique composition, new clique name 'y' is not allowed",
        ),
        (
            |s| s.spec.template.scaling_groups[0].name = "h".into(),
            "spec.template.podCliqueScalingGroups",
            "not allowed to add or remove PodCliqueScalingGroupConfigs",
        ),
        (
            |s| s.metadata.annotations = Some([("grove.io/mnnvl-group".into(), "nv".into())].into()),
            "metadata.annotations[grove.io/mnnvl-group]",
            "annotation grove.io/mnnvl-group cannot be added after PodCliqueSet creation",
        ),
    ];
    for (edit, path, message) in cases {
        let mut new = valid();
        edit(&mut new);
        let found = update(&valid(), &new);
        assert!(
            found.iter().any(|one| one.path == *path && one.message == *message),
            "{path}: {found:?}"
        );
    }
}

/// Stored while admission was away, then edited by somebody for whom it fills in the rest.
#[test]
fn what_was_never_filled_in_may_be_edited() {
    let bare = set("w")
        .with_clique(clique("a").replicas(2).edit(|clique| clique.spec.min_available = None))
        .with_clique(clique("b").edit(|clique| {
            clique.spec.replicas = 0;
            clique.spec.min_available = None;
        }))
        .with_group("g", (3, 1), vec![clique("c")]);
    let mut bare = bare.build();
    bare.spec.template.scaling_groups[0].min_available = None;
    let mut new = bare.clone();
    new.spec.template.cliques[0].spec.pod_spec.containers[0].image = Some("x".into());
    crate::default::fill(&mut new);
    assert_eq!(update(&bare, &new), []);
    new.spec.template.cliques[0].spec.min_available = Some(1);
    assert_eq!(
        only(update(&bare, &new)).0,
        "spec.template.cliques[0].spec.minAvailable"
    );
}

#[test]
fn what_may_change() {
    let cases: &[Edit] = &[
        |s| s.spec.replicas = 5,
        |s| s.spec.template.cliques[0].spec.replicas = 9,
        |s| s.spec.template.cliques[0].spec.pod_spec.containers[0].image = Some("x".into()),
        |s| drop(s.spec.template.cliques[0].labels.insert("a".into(), "b".into())),
        |s| s.spec.template.priority_class_name = Some("high".into()),
        |s| s.spec.template.cliques[0].spec.auto_scaling_config = scaling(1, 9),
        |s| s.spec.template.scaling_groups[0].replicas = Some(7),
        |s| s.spec.template.termination_delay = Some(grove_api::duration::DurationString("1m".into())),
        |s| s.spec.update_strategy = Some(Default::default()),
        |s| s.spec.template.cliques.swap(0, 1),
    ];
    for (number, edit) in cases.iter().enumerate() {
        let mut new = valid();
        edit(&mut new);
        assert_eq!(update(&valid(), &new), [], "case {number}");
    }
}

#[test]
fn the_order_of_cliques_stays_when_it_matters() {
    let mut old = valid();
    old.spec.template.clique_startup_type = CliqueStartupType::InOrder;
    let mut new = old.clone();
    new.spec.template.cliques.swap(0, 1);
    let message = "clique order cannot be changed when StartupType is InOrder or Explicit. Expected 'a' at position 0, \
                   got 'z'";
    assert_eq!(update(&old, &new)[0].message, message);
}

#[test]
fn what_is_being_deleted_may_change() {
    let mut new = valid();
    new.spec.template.cliques.clear();
    new.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        crate::fixtures::start(),
    ));
    assert_eq!(update(&valid(), &new), []);
}

#[test]
fn scaling_below_the_minimum_is_refused_but_to_zero_is_not() {
    assert_eq!(scale(0, 2), None);
    assert_eq!(scale(2, 2), None);
    let message = "replicas must be 0 or at least minAvailable (2): fewer are of no use";
    assert_eq!(scale(1, 2).unwrap().message, message);
}

#[test]
fn all_violations_are_reported_together() {
    let mut set = valid();
    set.spec.replicas = -1;
    set.spec.template.cliques[0].spec.min_available = Some(0);
    set.spec.template.scaling_groups[0].replicas = Some(0);
    assert!(create(&set, &Rules::default()).len() >= 3);
}

proptest! {
    #[test]
    fn no_numbers_and_no_names_panic(
        numbers in prop::array::uniform5(any::<i32>()),
        names in prop::array::uniform3(".{0,12}"),
    ) {
        let [replicas, clique_replicas, min, group_replicas, group_min] = numbers;
        let mut set = valid();
        set.spec.replicas = replicas;
        for clique in &mut set.spec.template.cliques {
            clique.spec.replicas = clique_replicas;
            clique.spec.min_available = Some(min);
        }
        let group = &mut set.spec.template.scaling_groups[0];
        group.replicas = Some(group_replicas);
        group.min_available = Some(group_min);
        group.name = names[0].clone();
        set.spec.template.cliques[0].name = names[1].clone();
        set.spec.template.cliques[2].name = names[2].clone();
        let found = create(&set, &Rules::default());
        prop_assert_eq!(&found, &create(&set, &Rules::default()));
        update(&valid(), &set);
    }
}
