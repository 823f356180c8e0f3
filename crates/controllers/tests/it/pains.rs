//! What hurt users of other systems, line by line: each test is named after the report that it answers.

use std::time::Duration;

use grove_api::podgang::PodGangPhase;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use grove_simcluster::fault::{Match, Mix, RequestFault, Rule, WatchFault};
use grove_simcluster::server::Verb;
use grove_simcluster::store::{Expect, Key, ResourceName};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use serde_json::json;

use crate::support::workloads::{Minimum, Order, running, simple, workload};
use crate::support::{NAMESPACE, OPERATOR, World};

fn gates(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.map(|gate| gate.name.clone()).collect()
}

/// grove #316: pods stayed gated when they were made while gang objects were recreated.
#[tokio::test(start_paused = true)]
async fn pain_grove_316_gates_come_off_though_gangs_are_recreated() {
    let world = World::with_places(10).await;
    world.create_set(&workload(Minimum::One, Order::Any)).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        for gang in world.list::<PodGang>().await.into_keys() {
            // It may be gone by now, or again.
            let _ = world.all::<PodGang>().delete(&gang, &Default::default()).await;
        }
    }
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    assert_eq!(world.list::<PodGang>().await.len(), 2);
}

/// grove #400, #315: a second update during an update "ended" with nothing updated.
#[tokio::test(start_paused = true)]
async fn pain_grove_400_a_second_update_converges_to_the_newest() {
    let world = running(Minimum::All, 20).await;
    world.scale::<PodCliqueSet>("w", 2).await;
    world.settle().await;
    world.set_image(&["pc-a"], "two").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.set_image(&["pc-a", "pc-b"], "three").await;
    world.update_ends().await;
    let status = world.set_status("w").await;
    assert_eq!(status.updated_replicas, 2, "ended means updated");
    for replica in ["w-0", "w-1"] {
        world.all_run(&format!("{replica}-pc-a"), "three").await;
        world.all_run(&format!("{replica}-sg-x-1-pc-b"), "three").await;
    }
}

/// grove #697: an update deleted every replica of a group in one pass.
#[tokio::test(start_paused = true)]
async fn pain_grove_697_an_update_never_goes_below_the_minimum() {
    let world = World::with_places(20).await;
    let manifest =
        workload(Minimum::One, Order::Any).replace("replicas: 2, minAvailable: 1}", "replicas: 3, minAvailable: 2}");
    world.create_set(&manifest).await;
    world.settle().await;
    assert_eq!(world.ready().await, 14);
    let begin = world.revision();
    world.set_image(&["pc-b", "pc-c"], "two").await;
    world.settle().await;
    world.replay(begin, |scene| {
        let whole = (0..3).filter(|replica| scene.ready(&format!("w-0-sg-x-{replica}")) == 4);
        assert!(whole.count() >= 2);
    });
    world.all_run("w-0-sg-x", "two").await;
}

/// grove #565: numbers that change fast rolled the gang.
#[tokio::test(start_paused = true)]
async fn pain_grove_565_numbers_that_change_fast_roll_nothing() {
    let world = running(Minimum::One, 30).await;
    let before = world.uids_of("w-0").await;
    for replicas in [3, 2, 4, 2, 5, 2] {
        world.scale::<PodClique>("w-0-pc-a", replicas).await;
        world.scale::<PodCliqueScalingGroup>("w-0-sg-x", replicas).await;
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    let status = world.set_status("w").await;
    assert!(status.update_progress.is_none());
    let kept = world.uids_of("w-0-sg-x-0").await;
    assert!(kept.is_subset(&before), "nothing below the lowest number was touched");
}

/// grove #840, lws #567: a bad update used up the budget, and the one that mends it was held up.
#[tokio::test(start_paused = true)]
async fn pain_grove_840_a_fixing_update_is_not_held_up_by_broken_pods() {
    let world = running(Minimum::All, 30).await;
    world.scale::<PodCliqueSet>("w", 3).await;
    world.settle().await;
    let begin = world.revision();
    // An init container that never ends: the new pods do not become ready.
    let stuck = json!([{"name": "never", "image": "bad"}]);
    world
        .edit_set("w", |set| {
            let containers = serde_json::from_value(stuck.clone()).expect("containers");
            set.spec.template.cliques[0].spec.pod_spec.init_containers = Some(containers);
        })
        .await;
    world.pass(300).await;
    let available = async || world.set_status("w").await.available_replicas;
    assert_eq!(available().await, 2, "one replica was lost to the bad template");
    world
        .edit_set("w", |set| {
            set.spec.template.cliques[0].spec.pod_spec.init_containers = None;
            set.spec.template.cliques[0].spec.pod_spec.containers[0].image = Some("good".into());
        })
        .await;
    world.settle().await;
    assert_eq!(available().await, 3);
    for replica in 0..3 {
        world.all_run(&format!("w-{replica}-pc-a"), "good").await;
    }
    world.replay(begin, |scene| {
        let whole = (0..3).filter(|replica| scene.ready(&format!("w-{replica}-pc-a")) == 2);
        assert!(whole.count() >= 2, "two of three replicas work at every moment");
    });
}

/// grove #711: a status that somebody else wrote over was never repaired. One at a time: no other change brings a look.
#[tokio::test(start_paused = true)]
async fn pain_grove_711_a_status_that_is_written_over_is_repaired() {
    let world = running(Minimum::All, 10).await;
    world
        .merge_status::<PodCliqueSet>("w", json!({"availableReplicas": 7}))
        .await;
    world.settle().await;
    assert_eq!(world.set_status("w").await.available_replicas, 1);

    world
        .merge_status::<PodCliqueScalingGroup>("w-0-sg-x", json!({"availableReplicas": 7}))
        .await;
    world.settle().await;
    let group = world.get::<PodCliqueScalingGroup>("w-0-sg-x").await;
    assert_eq!(group.status.map(|status| status.available_replicas), Some(2));

    let wrong = json!({"readyReplicas": 0, "scheduledReplicas": 0});
    world.merge_status::<PodClique>("w-0-pc-a", wrong).await;
    world.settle().await;
    assert_eq!(world.clique_status("w-0-pc-a").await.ready_replicas, 2);

    world.merge_status::<PodGang>("w-0", json!({"phase": "Pending"})).await;
    world.settle().await;
    let gang = world.get::<PodGang>("w-0").await.status;
    assert_eq!(gang.map(|status| status.phase), Some(PodGangPhase::Running));
}

/// grove #847: a gate waited for a resync of three minutes.
#[tokio::test(start_paused = true)]
async fn pain_grove_847_gates_of_scaled_gangs_come_off_at_once() {
    let world = World::with_places(0).await;
    world.create_set(&workload(Minimum::One, Order::Any)).await;
    world.settle().await;
    world.grow_to(3);
    let begin = tokio::time::Instant::now();
    world
        .eventually("no pod is gated", async |world| {
            world.pods().await.iter().all(|pod| gates(pod).is_empty())
        })
        .await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

/// grove #723: gates of other controllers were removed.
#[tokio::test(start_paused = true)]
async fn pain_grove_723_gates_of_others_are_left_alone() {
    let world = World::with_places(10).await;
    let mut set: PodCliqueSet = serde_saphyr::from_str(&simple("w", 1, 2)).expect("a set");
    let theirs = PodSchedulingGate {
        name: "example.com/quota".into(),
    };
    set.spec.template.cliques[0].spec.pod_spec.scheduling_gates = Some(vec![theirs]);
    world.create(&set).await;
    world.settle().await;
    let pods = world.pods().await;
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        assert_eq!(gates(pod), ["example.com/quota"]);
        let lifted = json!({"spec": {"schedulingGates": null}});
        world.merge::<Pod>(&pod.name_any(), lifted).await;
    }
    world.settle().await;
    assert_eq!(world.ready().await, 2);
}

/// grove #122, kuberay #715: what was not seen yet was made again.
#[tokio::test(start_paused = true)]
async fn pain_grove_122_late_watches_and_lost_replies_make_no_extra_pods() {
    let world = World::with_places(10).await;
    let pods = || Match::any().user(OPERATOR).resource("", "pods");
    let late = WatchFault::Delay(Duration::from_secs(2));
    world.cluster.faults().script([
        Rule::event(pods().verb(Verb::Watch), late).times(20),
        Rule::request(pods().verb(Verb::Create), RequestFault::FailAfter).times(4),
    ]);
    world.create_set(&workload(Minimum::All, Order::Any)).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world.replay(0, |scene| {
        assert!(scene.of("w-0-pc-a").count() <= 2 && scene.of("w-0").count() <= 10);
    });
    // The last of the late news: only then there is nothing left to do.
    world.pass(120).await;
}

/// grove #286, #226, #498: errors were silent. A pod that the API server refuses is told where people look.
#[tokio::test(start_paused = true)]
async fn pain_grove_286_a_refused_pod_is_told_once_and_tried_again_when_the_template_changes() {
    let world = World::with_places(10).await;
    let mut set: PodCliqueSet = serde_saphyr::from_str(&simple("w", 1, 2)).expect("a set");
    // The schema of a PodClique lets the name through; the rules for pods do not.
    set.spec.template.cliques[0].spec.pod_spec.containers[0].name = "Main".into();
    world.create(&set).await;
    world.settle().await;
    let errors = world.clique_status("w-0-a").await.last_errors;
    assert!(errors.iter().any(|error| error.code == "ERR_CREATE_POD"), "{errors:?}");
    assert!(errors[0].description.contains("spec.containers[0].name"), "{errors:?}");
    let conditions = world.set_status("w").await.conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let said = ready.map(|ready| ready.message.as_str()).unwrap_or_default();
    let expected = "0 of 1 replicas are available; replica 0: PodClique w-0-a cannot make its pods: ";
    assert!(
        said.starts_with(expected) && said.contains("spec.containers[0].name"),
        "{said}"
    );
    let asked = || world.operator_requests().of_kind("", "pods").count();
    let before = asked();
    world.pass(3_600).await;
    assert_eq!(asked(), before, "asking again would not help");
    let events = world.list::<Event>().await;
    let about = |event: &&Event| {
        event
            .regarding
            .as_ref()
            .is_some_and(|object| object.name.as_deref() == Some("w-0-a"))
    };
    let told: Vec<&Event> = events.values().filter(about).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].reason.as_deref(), Some("CreatePodFailed"));
    assert_eq!(told[0].type_.as_deref(), Some("Warning"));

    world
        .edit_set("w", |set| {
            set.spec.template.cliques[0].spec.pod_spec.containers[0].name = "main".into();
        })
        .await;
    world.settle().await;
    assert_eq!(world.ready().await, 2);
    let errors = world.clique_status("w-0-a").await.last_errors;
    assert!(errors.is_empty(), "a clean pass clears old errors: {errors:?}");
}

/// The same while the write of the status that tells of it is lost: the refusal is not forgotten.
#[tokio::test(start_paused = true)]
async fn pain_grove_286_a_refusal_is_told_though_the_first_word_of_it_is_lost() {
    let world = World::with_places(10).await;
    let status = Match::any()
        .user(OPERATOR)
        .resource("grove.io", "podcliques")
        .subresource("status");
    world
        .cluster
        .faults()
        .script([Rule::request(status.verb(Verb::Patch), RequestFault::Conflict).times(3)]);
    let mut set: PodCliqueSet = serde_saphyr::from_str(&simple("w", 1, 2)).expect("a set");
    set.spec.template.cliques[0].spec.pod_spec.containers[0].name = "Main".into();
    world.create(&set).await;
    world.settle().await;
    let errors = world.clique_status("w-0-a").await.last_errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
}

/// Steps of note are told once each: an update that begins and ends, a gang that is recycled.
#[tokio::test(start_paused = true)]
async fn pain_grove_226_steps_of_note_are_told() {
    let world = running(Minimum::All, 10).await;
    assert_eq!(world.told().await, [], "a set that starts well needs no words");
    world.set_image(&["pc-a"], "two").await;
    world.settle().await;
    world.lose_pod("w-0-pc-a").await;
    world.pass(20).await;
    let told = world.told().await.into_iter();
    let mut reasons: Vec<String> = told.filter_map(|event| event.reason).collect();
    // That a member has no place is news each time.
    reasons.retain(|reason| reason != "Unplaced");
    reasons.sort();
    assert_eq!(reasons, ["GangTerminated", "UpdateCompleted", "UpdateStarted"]);
}

/// The same of an operator that ends right after the step: what it has done last is told too.
#[tokio::test(start_paused = true)]
async fn pain_grove_226_the_last_step_before_the_end_is_told() {
    let mut world = running(Minimum::All, 10).await;
    let events = Match::any().user(OPERATOR).resource("events.k8s.io", "events");
    let slow = RequestFault::Slow(Duration::from_secs(1));
    world
        .cluster
        .faults()
        .script([Rule::request(events.verb(Verb::Create), slow).always()]);
    world.set_image(&["pc-a"], "two").await;
    world
        .eventually("the update begins", async |world| {
            world.set_status("w").await.update_progress.is_some()
        })
        .await;
    world.stop_operator().await;
    let told: Vec<_> = world
        .told()
        .await
        .into_iter()
        .filter_map(|event| event.reason)
        .collect();
    assert_eq!(told, ["UpdateStarted"]);
}

/// volcano #3357: pods were made again after their owner was deleted.
#[tokio::test(start_paused = true)]
async fn pain_volcano_3357_nothing_is_made_for_an_owner_that_is_gone() {
    let world = running(Minimum::All, 20).await;
    // The operator hears of the deletion late.
    let sets = Match::any().user(OPERATOR).resource("grove.io", "podcliquesets");
    world
        .cluster
        .faults()
        .strike_watches(&sets, WatchFault::Delay(Duration::from_secs(5)));
    world.delete::<PodCliqueSet>("w").await;
    for clique in ["w-0-pc-a", "w-0-sg-x-0-pc-b"] {
        let pods = world.pods_of(clique).await;
        for pod in pods {
            let _ = world.all::<Pod>().delete(&pod.name_any(), &Default::default()).await;
        }
    }
    world.pass(60).await;
    assert!(world.pods().await.is_empty() && world.list::<PodClique>().await.is_empty());
}

/// kueue #11372, PR #9029: one request that failed, or an order of events that nobody thought of, left things as they were.
#[tokio::test(start_paused = true)]
async fn pain_kueue_11372_everything_converges_though_much_fails() {
    let world = World::with_places(20).await;
    let mix = Mix::of_everything(Match::any().user(OPERATOR), 0.05);
    world.cluster.faults().mix(mix);
    world.create_set(&workload(Minimum::One, Order::Any)).await;
    world
        .eventually("all pods are ready", async |world| world.ready().await == 10)
        .await;
    world.set_image(&["pc-a", "pc-b"], "two").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.cluster.faults().clear();
    world.update_ends().await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world.all_run("w-0-pc-a", "two").await;
    let status = world.set_status("w").await;
    assert_eq!((status.updated_replicas, status.last_errors.len()), (1, 0));
    world.replay(0, |scene| assert!(scene.of("w-0-pc-a").count() <= 2));
}

/// KAI #1863: one object that nobody can read stopped everything. It is told of on that object, and disturbs nobody.
#[tokio::test(start_paused = true)]
async fn pain_kai_1863_an_object_that_cannot_be_read_is_told_of_and_disturbs_nobody() {
    let world = World::with_places(10).await;
    // As if it had been stored under an older schema, behind the API server's back.
    let mut broken = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": "broken", "namespace": NAMESPACE, "uid": "1-2-3"}, "spec": {"replicas": "many"},
    });
    let resource = ResourceName::new("grove.io", "podcliquesets");
    let key = Key::new(NAMESPACE, "broken");
    let stored = world.cluster.store().put(&resource, &key, Expect::Absent, &mut broken);
    stored.expect("no such object yet");
    world.create_set(&simple("w", 1, 2)).await;
    world.settle().await;
    assert_eq!(world.ready().await, 2);
    let told = world.told().await;
    assert_eq!(told.len(), 1, "{told:?}");
    let about = told[0].regarding.clone().unwrap_or_default();
    assert_eq!(
        (about.name.as_deref(), about.uid.as_deref()),
        (Some("broken"), Some("1-2-3"))
    );
    assert!(
        told[0].note.as_ref().is_some_and(|note| note.contains("correct it")),
        "{told:?}"
    );
}
