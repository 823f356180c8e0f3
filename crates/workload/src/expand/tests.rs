use std::collections::BTreeSet;

use grove_api::labels;
use grove_api::podclique::AutoScalingConfig;
use grove_api::podcliqueset::CliqueStartupType;
use grove_api::sharing::{CliqueSharing, ResourceClaimTemplateConfig, SetSharing, SetSharingFilter, SharingScope};
use kube::Resource;
use proptest::prelude::*;

use super::*;
use crate::diff::{Change, Content, changes};
use crate::fixtures::{self, SetBuilder, clique, example, set};
use crate::meta::uid;
use crate::names::Place;

/// What exists in a small world: objects as they were made, with UIDs.
#[derive(Default)]
struct Stored {
    cliques: Vec<PodClique>,
    groups: Vec<PodCliqueScalingGroup>,
}

fn children(set: &PodCliqueSet, stored: &Stored) -> ReplicaChildren {
    expand(set, stored, fixtures::all_children)
}

fn shared(set: &PodCliqueSet, stored: &Stored) -> SharedChildren {
    expand(set, stored, |expansion| expansion.shared_children())
}

/// Everything that the set and its groups become, once all of it is stored.
fn settle(set: &PodCliqueSet) -> Stored {
    let (cliques, groups) = fixtures::settle(set);
    Stored { cliques, groups }
}

fn expand<T>(set: &PodCliqueSet, stored: &Stored, look: impl FnOnce(&Expansion<'_>) -> T) -> T {
    fixtures::expand(set, (&stored.cliques, &stored.groups), look)
}

fn find<'a, K: Resource>(objects: &'a [K], name: &str) -> &'a K {
    objects
        .iter()
        .find(|object| object.meta().name.as_deref() == Some(name))
        .unwrap_or_else(|| panic!("no {name}"))
}

fn label<'a, K: Resource>(object: &'a K, key: &str) -> Option<&'a str> {
    object.meta().labels.as_ref()?.get(key).map(String::as_str)
}

#[test]
fn the_example_of_the_documentation() {
    let set = example().build();
    let children = children(&set, &Stored::default());
    let gangs: Vec<(String, Vec<(String, i32)>)> = children
        .gangs
        .iter()
        .map(|gang| {
            let groups = gang
                .spec
                .pod_groups
                .iter()
                .map(|group| (group.name.clone(), group.min_replicas));
            (gang.name_any(), groups.collect())
        })
        .collect();
    let groups = |pairs: &[(&str, i32)]| {
        pairs
            .iter()
            .map(|(name, min)| ((*name).to_owned(), *min))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        gangs,
        [
            (
                "a-0".to_owned(),
                groups(&[("a-0-fe", 1), ("a-0-pf-0-pl", 1), ("a-0-pf-0-pw", 2)])
            ),
            ("a-0-pf-0".to_owned(), groups(&[("a-0-pf-1-pl", 1), ("a-0-pf-1-pw", 2)])),
            ("a-0-pf-1".to_owned(), groups(&[("a-0-pf-2-pl", 1), ("a-0-pf-2-pw", 2)])),
        ]
    );
    assert_eq!(label(&children.gangs[0], labels::BASE_PODGANG), None);
    assert_eq!(label(&children.gangs[2], labels::BASE_PODGANG), Some("a-0"));
    assert_eq!(
        label(&children.gangs[2], labels::SCHEDULER_NAME),
        Some("grove-scheduler")
    );
    assert_eq!(label(&children.gangs[2], labels::NAME), None);
    let shared = shared(&set, &Stored::default());
    assert!(shared.role.is_none() && shared.role_binding.is_none(), "nothing waits");
}

#[test]
fn cliques_carry_their_labels_owner_and_finalizer() {
    let set = example().build();
    let stored = settle(&set);
    let standalone = find(&stored.cliques, "a-0-fe");
    assert_eq!(label(standalone, labels::COMPONENT), Some("pcs-podclique"));
    assert_eq!(label(standalone, labels::PODGANG), Some("a-0"));
    assert_eq!(standalone.owner_references()[0].uid, "uid-a");
    assert_eq!(standalone.finalizers(), ["grove.io/podclique.grove.io"]);

    let member = find(&stored.cliques, "a-0-pf-2-pw");
    for (key, value) in [
        (labels::MANAGED_BY, "grove-operator"),
        (labels::PART_OF, "a"),
        (labels::COMPONENT, "pcsg-podclique"),
        (labels::NAME, "a-0-pf-2-pw"),
        (labels::PCS_REPLICA_INDEX, "0"),
        (labels::SCALING_GROUP, "a-0-pf"),
        (labels::SCALING_GROUP_REPLICA_INDEX, "2"),
        (labels::PODGANG, "a-0-pf-1"),
        (labels::BASE_PODGANG, "a-0"),
    ] {
        assert_eq!(label(member, key), Some(value), "{key}");
    }
    assert_eq!(member.owner_references()[0].kind, "PodCliqueScalingGroup");
    assert_eq!(member.owner_references()[0].uid, "uid-a-0-pf");
    assert_eq!(label(find(&stored.cliques, "a-0-pf-0-pw"), labels::BASE_PODGANG), None);
}

#[test]
fn live_numbers_are_kept_and_edits_of_the_template_reach_them() {
    let mut set = example().build();
    let mut stored = settle(&set);
    // Somebody scales the group and the standalone clique.
    stored.groups[0].spec.replicas = 5;
    stored.cliques[0].spec.replicas = 4;
    let scaled = children(&set, &stored);
    assert_eq!(scaled.groups[0].spec.replicas, 5);
    assert_eq!(scaled.cliques[0].spec.replicas, 4);
    assert_eq!(scaled.gangs.len(), 5, "one base and four scaled gangs");
    assert_eq!(
        scaled.cliques[0].metadata.resource_version.as_deref(),
        Some("7"),
        "the number is still the number"
    );

    // The author writes another number into the template.
    set.spec.template.scaling_groups[0].replicas = Some(2);
    set.spec.template.cliques[0].spec.replicas = 3;
    let edited = children(&set, &stored);
    assert_eq!(
        (edited.groups[0].spec.replicas, edited.cliques[0].spec.replicas),
        (2, 3)
    );

    // An autoscaler owns the number: the template's is only where it began.
    let autoscaling = Some(AutoScalingConfig {
        max_replicas: 9,
        ..AutoScalingConfig::default()
    });
    set.spec.template.scaling_groups[0].scale_config = autoscaling.clone();
    set.spec.template.cliques[0].spec.auto_scaling_config = autoscaling;
    let autoscaled = children(&set, &stored);
    assert_eq!(
        (autoscaled.groups[0].spec.replicas, autoscaled.cliques[0].spec.replicas),
        (5, 4)
    );
}

#[test]
fn what_is_scaled_to_zero_takes_no_part_in_the_gang() {
    let set = example().build();
    let mut stored = settle(&set);
    stored.groups[0].spec.replicas = 0;
    let gangs = children(&set, &stored).gangs;
    let groups: Vec<&str> = gangs[0]
        .spec
        .pod_groups
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    assert_eq!((gangs.len(), groups), (1, vec!["a-0-fe"]));
}

#[test]
fn a_deleted_set_of_the_same_name_leaves_no_numbers_behind() {
    let set = example().build();
    let mut stored = settle(&set);
    stored.groups[0].spec.replicas = 5;
    stored.groups[0].metadata.owner_references.as_mut().unwrap()[0].uid = "an-earlier-a".into();
    assert_eq!(children(&set, &stored).groups[0].spec.replicas, 3);
}

#[test]
fn a_member_keeps_its_template_until_its_replica_is_replaced() {
    let before = example().build();
    let stored = settle(&before);
    let mut after = before.clone();
    after.spec.template.cliques[1].spec.pod_spec.containers[0].image = Some("registry.example/app:2".into());
    let image = |clique: &PodClique| clique.spec.pod_spec.containers[0].image.clone().unwrap();
    let members = |set: &PodCliqueSet| {
        expand(set, &stored, |expansion| {
            expansion.group_children(&stored.groups[0]).cliques
        })
    };
    let rolling = members(&after);
    assert!(image(find(&rolling, "a-0-pf-0-pl")).ends_with(":1"));
    let hash = |clique: &PodClique| clique.labels()[labels::POD_TEMPLATE_HASH].clone();
    assert_eq!(
        hash(find(&rolling, "a-0-pf-0-pl")),
        hash(find(&stored.cliques, "a-0-pf-0-pl"))
    );

    let on_delete = SetBuilder::from(after).on_delete().build();
    assert!(image(find(&members(&on_delete), "a-0-pf-0-pl")).ends_with(":2"));
}

/// The parents of one clique of a settled set.
fn parents(set: &PodCliqueSet, name: &str) -> Vec<(String, i32)> {
    let stored = settle(set);
    let place = Place::of(set, find(&stored.cliques, name)).unwrap();
    let parents = expand(set, &stored, |expansion| expansion.parents(&place));
    parents.into_iter().map(|parent| (parent.name, parent.ready)).collect()
}

#[test]
fn cliques_start_after_their_parents() {
    let ordered = |order, first: &[&str], second: &[&str]| {
        set("w")
            .with_clique(clique("a").sized(2, 1))
            .with_group(
                "sg",
                (3, 2),
                vec![clique("b").after(first), clique("c").sized(3, 2).after(second)],
            )
            .order(order)
            .build()
    };
    let pairs = |pairs: &[(&str, i32)]| {
        pairs
            .iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect::<Vec<_>>()
    };

    let any = ordered(CliqueStartupType::AnyOrder, &["a"], &["b"]);
    assert_eq!(parents(&any, "w-0-sg-0-c"), pairs(&[]));

    let in_order = ordered(CliqueStartupType::InOrder, &[], &[]);
    assert_eq!(parents(&in_order, "w-0-a"), pairs(&[]));
    assert_eq!(parents(&in_order, "w-0-sg-0-b"), pairs(&[("w-0-a", 1)]));
    assert_eq!(
        parents(&in_order, "w-0-sg-1-c"),
        pairs(&[("w-0-sg-0-b", 1), ("w-0-sg-1-b", 1)])
    );
    // A scaled gang starts by itself.
    assert_eq!(parents(&in_order, "w-0-sg-2-b"), pairs(&[]));
    assert_eq!(parents(&in_order, "w-0-sg-2-c"), pairs(&[("w-0-sg-2-b", 1)]));

    let explicit = ordered(CliqueStartupType::Explicit, &["c"], &["a"]);
    assert_eq!(
        parents(&explicit, "w-0-sg-0-b"),
        pairs(&[("w-0-sg-0-c", 2), ("w-0-sg-1-c", 2)])
    );
    assert_eq!(parents(&explicit, "w-0-sg-1-c"), pairs(&[("w-0-a", 1)]));
}

/// What is scaled to zero would be waited for without end; the order of the others holds, and so does the right to read
/// for those that wait already.
#[test]
fn a_role_that_is_scaled_to_zero_is_left_out_of_the_order() {
    let of = |order, after: [&[&str]; 3]| {
        let [b, c, d] = after;
        set("w")
            .with_clique(clique("a"))
            .with_group("x", (2, 2), vec![clique("b").after(b)])
            .with_clique(clique("c").after(c))
            .with_clique(clique("d").after(d))
            .order(order)
            .build()
    };
    let in_order = of(CliqueStartupType::InOrder, [&[], &[], &[]]);
    let explicit = of(CliqueStartupType::Explicit, [&["a"], &["b"], &["c"]]);
    for set in [in_order, explicit] {
        let mut stored = settle(&set);
        let names = |stored: &Stored, clique: &str| -> Vec<String> {
            let place = Place::of(&set, find(&stored.cliques, clique)).unwrap();
            let parents = expand(&set, stored, |expansion| expansion.parents(&place));
            parents.into_iter().map(|parent| parent.name).collect()
        };
        let rights = |stored: &Stored| shared(&set, stored).role.unwrap().rules;
        let before = rights(&stored);
        assert_eq!(names(&stored, "w-0-c"), ["w-0-x-0-b", "w-0-x-1-b"]);
        stored.groups[0].spec.replicas = 1;
        assert_eq!(names(&stored, "w-0-c"), ["w-0-x-0-b"]);
        stored.groups[0].spec.replicas = 0;
        assert_eq!(names(&stored, "w-0-c"), ["w-0-a"]);
        let zero = |stored: &mut Stored, name: &str| {
            let mut cliques = stored.cliques.iter_mut();
            cliques.find(|clique| clique.name_any() == name).unwrap().spec.replicas = 0;
        };
        zero(&mut stored, "w-0-c");
        assert_eq!(names(&stored, "w-0-d"), ["w-0-a"]);
        zero(&mut stored, "w-0-a");
        assert!(names(&stored, "w-0-d").is_empty());
        assert_eq!(rights(&stored), before);
    }
}

#[test]
fn waiting_pods_may_read_what_they_wait_for_and_nothing_else() {
    let set = set("w")
        .with_clique(clique("a"))
        .with_clique(clique("b").edit(|b| b.spec.pod_spec.service_account_name = Some("runner".into())))
        .order(CliqueStartupType::InOrder)
        .replicas(2)
        .build();
    let children = shared(&set, &Stored::default());
    let rules = children.role.unwrap().rules.unwrap();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].resources.clone().unwrap(), ["podcliques"]);
    let names = rules[0].resource_names.clone().unwrap();
    assert_eq!(names, ["w-0-a", "w-0-b", "w-1-a", "w-1-b"], "and what they are pods of");
    assert_eq!(rules[0].verbs, ["get", "list", "watch"]);
    let binding = children.role_binding.unwrap();
    assert_eq!(binding.name_any(), "grove.io:pcs:w");
    assert_eq!(binding.labels()[labels::NAME], "grove.io-pcs-w");
    let subjects: Vec<String> = binding
        .subjects
        .unwrap()
        .into_iter()
        .map(|subject| subject.name)
        .collect();
    assert_eq!(subjects, ["runner"]);
}

#[test]
fn services_and_autoscalers_follow_the_replicas() {
    let mut set = example().replicas(2).build();
    set.spec.template.scaling_groups[0].scale_config = Some(AutoScalingConfig {
        min_replicas: Some(2),
        max_replicas: 6,
        metrics: vec![],
    });
    let children = children(&set, &Stored::default());
    let service = find(&children.services, "a-1").spec.clone().unwrap();
    assert_eq!(service.cluster_ip.as_deref(), Some("None"));
    assert_eq!(service.publish_not_ready_addresses, Some(true));
    assert_eq!(service.selector.unwrap()[labels::PCS_REPLICA_INDEX], "1");
    let names: Vec<String> = children.autoscalers.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["a-0-pf", "a-1-pf"]);
    let spec = &children.autoscalers[1].spec;
    assert_eq!(spec.scale_target_ref.kind, "PodCliqueScalingGroup");
    assert_eq!((spec.min_replicas, spec.max_replicas), (Some(2), 6));
}

#[test]
fn claims_belong_to_the_level_that_declares_them() {
    let mut set = example().replicas(2).build();
    let template = &mut set.spec.template;
    template.resource_claim_templates = vec![ResourceClaimTemplateConfig {
        name: "gpu".into(),
        template_spec: Default::default(),
    }];
    template.resource_sharing = vec![
        SetSharing {
            name: "gpu".into(),
            namespace: None,
            scope: SharingScope::AllReplicas,
            filter: None,
        },
        SetSharing {
            name: "net".into(),
            namespace: Some("infra".into()),
            scope: SharingScope::PerReplica,
            filter: Some(SetSharingFilter {
                child_clique_names: vec!["fe".into()],
                ..SetSharingFilter::default()
            }),
        },
    ];
    template.cliques[0].resource_sharing = vec![CliqueSharing {
        name: "gpu".into(),
        namespace: None,
        scope: SharingScope::PerReplica,
    }];
    let stored = settle(&set);
    let claims = shared(&set, &stored).claims;
    let names: Vec<String> = claims.wanted.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["a-all-gpu"]);
    assert_eq!(
        claims.kept,
        ["a-0-net", "a-1-net"],
        "the other template lives elsewhere and is not known"
    );
    assert_eq!(
        Expansion::external_claim_templates(&set),
        [("infra".to_owned(), "net".to_owned())]
    );

    let fe = find(&stored.cliques, "a-1-fe");
    let own = expand(&set, &stored, |expansion| expansion.clique_claims(fe, &[0, 2])).wanted;
    let names: Vec<String> = own.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["a-1-fe-0-gpu", "a-1-fe-2-gpu"]);
    assert_eq!(own[0].owner_references()[0].uid, uid(fe));

    let used = |name: &str| claims::of_pod(&set, &Place::of(&set, find(&stored.cliques, name)).unwrap(), name, 2);
    assert_eq!(used("a-1-fe"), ["a-all-gpu", "a-1-net", "a-1-fe-2-gpu"]);
    assert_eq!(used("a-1-pf-0-pl"), ["a-all-gpu"]);
}

#[test]
fn nvlink_groups_are_inherited_and_only_for_gpus() {
    let gpu = |clique: crate::fixtures::CliqueBuilder| {
        clique.edit(|clique| {
            clique.spec.pod_spec.containers[0].resources =
                serde_json::from_value(serde_json::json!({"limits": {"nvidia.com/gpu": "8"}})).unwrap();
        })
    };
    let annotated = |clique: crate::fixtures::CliqueBuilder, group: &str| {
        clique.edit(|clique| drop(clique.annotations.insert("grove.io/mnnvl-group".into(), group.into())))
    };
    let mut set = set("a")
        .with_clique(gpu(clique("inherits")))
        .with_clique(annotated(gpu(clique("own")), "two"))
        .with_clique(annotated(gpu(clique("out")), "none"))
        .with_clique(clique("cpu"))
        .build();
    set.annotations_mut()
        .insert("grove.io/mnnvl-group".into(), "one".into());
    let groups: Vec<Option<&str>> = set
        .spec
        .template
        .cliques
        .iter()
        .map(|clique| mnnvl_group(&set, clique))
        .collect();
    assert_eq!(groups, [Some("one"), Some("two"), None, None]);
    let domains = children(&set, &Stored::default()).compute_domains;
    let names: Vec<String> = domains.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["a-0-one", "a-0-two"]);
    assert_eq!(
        domains[0].spec.fields["channel"]["resourceClaimTemplate"]["name"],
        "a-0-one"
    );
}

#[test]
fn labels_of_the_set_reach_its_gangs_except_ours_and_kubectls() {
    let mut set = example().build();
    set.labels_mut().insert("kai.scheduler/queue".into(), "team".into());
    set.annotations_mut()
        .insert("grove.io/reconcile-trigger".into(), "1".into());
    set.annotations_mut()
        .insert("kubectl.kubernetes.io/last-applied-configuration".into(), "{}".into());
    let gang = &children(&set, &Stored::default()).gangs[0];
    assert_eq!(label(gang, "kai.scheduler/queue"), Some("team"));
    let taken_over = r#"{"labels":["kai.scheduler/queue"]}"#;
    assert_eq!(
        gang.annotations(),
        &[("grove.io/taken-over".to_owned(), taken_over.to_owned())].into()
    );
}

fn unique<K: Resource>(objects: &[K]) -> bool {
    let names: BTreeSet<String> = objects.iter().map(ResourceExt::name_any).collect();
    names.len() == objects.len()
}

proptest! {
    #[test]
    fn what_is_expanded_and_stored_needs_no_further_write(
        (replicas, standalone, group_replicas, min) in (0..4, 1..4, 0..4, 1..3),
        ordered in any::<bool>(),
    ) {
        let order = if ordered { CliqueStartupType::InOrder } else { CliqueStartupType::AnyOrder };
        let cliques = (0..standalone).fold(set("s").replicas(replicas).order(order), |set, n| {
            set.with_clique(clique(&format!("c{n}")).sized(3, n))
        });
        let set = cliques.with_group("g", (group_replicas, min), vec![clique("x"), clique("y")]).build();
        let stored = settle(&set);
        let (first, again) = (children(&set, &stored), children(&set, &stored));
        prop_assert_eq!(format!("{first:?}"), format!("{again:?}"));
        prop_assert!(unique(&first.cliques) && unique(&first.groups) && unique(&first.gangs) && unique(&first.services));

        let owned: Vec<PodClique> = stored.cliques.iter().filter(|clique| clique.owner_references()[0].uid == "uid-s").cloned().collect();
        prop_assert_eq!(changes("uid-s", first.cliques, &owned, Content::Whole), vec![]);
        prop_assert_eq!(changes("uid-s", first.groups, &stored.groups, Content::Whole), vec![]);
        for group in &stored.groups {
            let members = expand(&set, &stored, |expansion| expansion.group_children(group).cliques);
            let owned: Vec<PodClique> = stored.cliques.iter().filter(|clique| clique.owner_references()[0].uid == uid(group)).cloned().collect();
            prop_assert_eq!(changes(uid(group), members, &owned, Content::Whole), vec![]);
        }
        // Every clique that has pods is in exactly one gang.
        let grouped: Vec<String> = first.gangs.iter().flat_map(|gang| gang.spec.pod_groups.iter().map(|group| group.name.clone())).collect();
        let distinct: BTreeSet<&String> = grouped.iter().collect();
        prop_assert_eq!(distinct.len(), grouped.len());
    }
}

#[test]
fn scaling_in_deletes_what_is_above() {
    let mut set = example().replicas(2).build();
    let stored = settle(&set);
    set.spec.replicas = 1;
    let children = children(&set, &stored);
    let owned: Vec<PodClique> = stored
        .cliques
        .iter()
        .filter(|clique| clique.owner_references()[0].uid == "uid-a")
        .cloned()
        .collect();
    let deleted = changes("uid-a", children.cliques, &owned, Content::Whole);
    assert_eq!(
        deleted,
        [Change::Delete {
            name: "a-1-fe".into(),
            uid: "uid-a-1-fe".into()
        }]
    );
}
