use grove_api::conditions::podclique::{MIN_AVAILABLE_BREACHED, SCHEDULED};
use grove_api::{PodCliqueScalingGroupStatus, PodCliqueStatus, PodGang};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::*;
use crate::conditions;
use crate::fixtures::{after, clique, podclique, set, settle};
use crate::observed::{ObservedPod, Phase, Readiness};

fn pod(index: i32, node: bool, readiness: Readiness) -> ObservedPod {
    ObservedPod {
        name: format!("p{index}"),
        uid: format!("u{index}"),
        index: Some(index),
        template_hash: "h".into(),
        node: if node { "n".into() } else { String::new() },
        phase: Phase::Running,
        readiness,
        ..ObservedPod::default()
    }
}

fn born(mut clique: PodClique, seconds: i64) -> PodClique {
    clique.metadata.creation_timestamp = Some(Time(after(seconds)));
    clique
}

/// Looks at a clique's pods at a time, and keeps the conditions.
fn look(clique: &mut PodClique, pods: &[ObservedPod], seconds: i64) -> Vec<Condition> {
    let counts = PodCounts::of(clique, pods);
    let conditions = clique_conditions(clique, counts, (false, None), after(seconds));
    clique.status = Some(PodCliqueStatus {
        conditions: conditions.clone(),
        ..PodCliqueStatus::default()
    });
    conditions
}

fn of<'a>(conditions: &'a [Condition], type_: &str) -> (&'a str, &'a str, &'a str) {
    let found = conditions::find(conditions, type_).unwrap();
    (&found.status, &found.reason, &found.message)
}

#[test]
fn conditions_say_what_others_match_on() {
    let ready = |n| {
        (0..n)
            .map(|index| pod(index, true, Readiness::Ready))
            .collect::<Vec<_>>()
    };
    let with = |mut pods: Vec<ObservedPod>, extra| {
        pods.push(extra);
        pods
    };
    let sufficient = "Either sufficient ready or starting pods found. expected at least: 2, found:";
    let insufficient = "Insufficient ready or starting pods. expected at least: 2, found: 1";
    let cases = [
        (
            "one placed",
            ready(1),
            "True",
            "ScheduledReplicasBelowMinAvailable",
            "Scheduled replicas (1) below MinAvailable (2)".into(),
        ),
        (
            "both ready",
            ready(2),
            "False",
            "SufficientReadyPods",
            format!("{sufficient} 2"),
        ),
        (
            "starting is no breach",
            with(ready(1), pod(1, true, Readiness::Starting)),
            "False",
            "SufficientReadyPods",
            format!("{sufficient} 2"),
        ),
        (
            "crashed",
            with(ready(1), pod(1, true, Readiness::Crashed)),
            "True",
            "InsufficientReadyPods",
            insufficient.into(),
        ),
        (
            "lost",
            with(ready(1), pod(1, true, Readiness::Lost)),
            "True",
            "InsufficientReadyPods",
            insufficient.into(),
        ),
    ];
    for (case, pods, status, reason, message) in cases {
        let mut clique = born(podclique("c", 2, "h"), 0);
        assert_eq!(
            of(&look(&mut clique, &pods, 5), MIN_AVAILABLE_BREACHED),
            (status, reason, message.as_str()),
            "{case}"
        );
    }
    let mut clique = born(podclique("c", 2, "h"), 0);
    let found = look(&mut clique, &ready(1), 5);
    let expected = "Insufficient scheduled pods. expected at least: 2, found: 1";
    assert_eq!(of(&found, SCHEDULED), ("False", "InsufficientScheduledPods", expected));
    let found = look(&mut clique, &ready(2), 6);
    let expected = "Sufficient scheduled pods found. expected at least: 2, found: 2";
    assert_eq!(of(&found, SCHEDULED), ("True", "SufficientScheduledPods", expected));
    let updating = clique_conditions(&clique, PodCounts::default(), (true, None), after(7));
    assert_eq!(
        of(&updating, MIN_AVAILABLE_BREACHED),
        ("Unknown", "UpdateInProgress", "Update is in progress")
    );
}

#[test]
fn a_clique_without_pods_begins_anew() {
    let pods = [pod(0, true, Readiness::Ready), pod(1, true, Readiness::Ready)];
    let mut clique = born(podclique("c", 2, "h"), 10);
    look(&mut clique, &pods, 20);
    assert!(was_scheduled(&clique));
    clique.spec.replicas = 0;
    let found = look(&mut clique, &[], 30);
    assert_eq!(of(&found, SCHEDULED).0, "True", "it lacks nothing");
    clique.spec.replicas = 2;
    assert!(
        !was_scheduled(&clique),
        "nothing is known of the pods that it asks for now"
    );
    look(&mut clique, &pods[..1], 40);
    assert!(!was_scheduled(&clique));
    // Its gang ran without it: what was said of the gang is not about these pods.
    let counts = PodCounts::of(&clique, &[]);
    let placed = gang("c", "True", 25);
    let conditions = clique_conditions(&clique, counts, (false, Some(&placed)), after(50));
    assert!(!was_scheduled_by(&clique.metadata, &conditions));
    look(&mut clique, &pods, 60);
    assert!(was_scheduled(&clique));
}

/// A gang of one clique that was scheduled, found not to be, or lost pods, at a time.
fn gang(clique: &str, scheduled: &str, seconds: i64) -> PodGang {
    let reason = match scheduled {
        "Lost" => "MembersMissing",
        _ => "R",
    };
    let scheduled = if scheduled == "True" { "True" } else { "False" };
    let condition = serde_json::json!({"type": "Scheduled", "status": scheduled, "reason": reason, "message": "",
        "lastTransitionTime": after(seconds).to_string()});
    let gang = serde_json::json!({"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
        "metadata": {"name": "g"}, "status": {"phase": "Pending", "conditions": [condition]},
        "spec": {"podgroups": [{"name": clique, "podReferences": [], "minReplicas": 2}]}});
    serde_json::from_value(gang).unwrap()
}

/// Pods that are lost before anybody counted them were there, if whoever placed them says so of this clique.
#[test]
fn what_its_gang_knows_of_a_cliques_past_counts() {
    let mut unseen = born(podclique("c", 2, "h"), 10);
    let known = |clique: &PodClique, gang: &PodGang| {
        let conditions = clique_conditions(clique, PodCounts::default(), (false, Some(gang)), after(50));
        was_scheduled_by(&clique.metadata, &conditions)
    };
    assert!(known(&unseen, &gang("c", "True", 12)));
    look(&mut unseen, &[], 11);
    assert!(known(&unseen, &gang("c", "True", 12)));
    assert!(known(&unseen, &gang("c", "Lost", 12)));
    assert!(!known(&unseen, &gang("c", "False", 12)));
    assert!(!known(&unseen, &gang("c", "Lost", 9)));
    assert!(!known(&unseen, &gang("other", "True", 12)));
    assert!(
        !known(&unseen, &gang("c", "True", 9)),
        "that was the clique before this one"
    );
}

#[test]
fn pods_on_their_way_out_are_in_no_count() {
    let leaving = ObservedPod {
        is_terminating: true,
        ..pod(0, true, Readiness::Ready)
    };
    let failed = ObservedPod {
        phase: Phase::Failed,
        ..pod(1, true, Readiness::Crashed)
    };
    assert_eq!(
        PodCounts::of(&podclique("c", 2, "h"), &[leaving, failed]),
        PodCounts::default()
    );
}

#[test]
fn what_was_scheduled_once_is_known_after_a_restart() {
    let mut clique = born(podclique("c", 1, "h"), 0);
    assert!(!was_scheduled(&clique), "nobody has looked yet");
    look(&mut clique, &[], 3);
    assert!(!was_scheduled(&clique));
    look(&mut clique, &[pod(0, false, Readiness::Starting)], 400);
    assert!(!was_scheduled(&clique), "a long wait is no proof");
    look(&mut clique, &[pod(0, true, Readiness::Starting)], 500);
    assert!(was_scheduled(&clique));
    look(&mut clique, &[], 600);
    assert!(was_scheduled(&clique), "and stays so when the pod is lost");

    let mut quick = born(podclique("c", 1, "h"), 0);
    look(&mut quick, &[pod(0, true, Readiness::Ready)], 0);
    look(&mut quick, &[], 0);
    assert!(
        was_scheduled(&quick),
        "even if all of it happened in the second of its birth"
    );
}

#[test]
fn a_breach_after_the_first_start_begins_its_own_time() {
    let mut clique = born(podclique("c", 1, "h"), 0);
    look(&mut clique, &[], 1);
    // Placed and crashed between two looks: the wait for a place does not count.
    look(&mut clique, &[pod(0, true, Readiness::Crashed)], 900);
    let conditions = clique.status.unwrap().conditions;
    assert_eq!(
        conditions::since(conditions::find(&conditions, MIN_AVAILABLE_BREACHED).unwrap()),
        after(900)
    );
}

/// A settled set whose cliques were scheduled and are well, and groups that say so.
struct World {
    set: PodCliqueSet,
    cliques: Vec<PodClique>,
    groups: Vec<PodCliqueScalingGroup>,
}

impl World {
    /// W1 (all minima are the numbers) or W2 (all minima are one) of the upstream tests, with a delay of 10 s.
    fn new(minimum: bool) -> Self {
        let size = |n| if minimum { (n, 1) } else { (n, n) };
        let sized = |name: &str, n| clique(name).sized(size(n).0, size(n).1);
        let mut set = set("w")
            .with_clique(sized("pc-a", 2))
            .with_group("sg-x", size(2), vec![sized("pc-b", 1), sized("pc-c", 3)])
            .build();
        set.spec.template.termination_delay = Some(grove_api::duration::DurationString("10s".into()));
        let (mut cliques, groups) = settle(&set);
        for clique in &mut cliques {
            clique.metadata.creation_timestamp = Some(Time(after(0)));
        }
        let mut world = Self { set, cliques, groups };
        for name in world.names() {
            let replicas = world.clique(&name).spec.replicas;
            world.run(&name, replicas, 1);
        }
        world.look_at_groups(1);
        world
    }

    fn names(&self) -> Vec<String> {
        self.cliques
            .iter()
            .map(|clique| clique.metadata.name.clone().unwrap())
            .collect()
    }

    fn clique(&mut self, name: &str) -> &mut PodClique {
        self.cliques
            .iter_mut()
            .find(|clique| clique.metadata.name.as_deref() == Some(name))
            .unwrap()
    }

    /// So many pods of a clique are placed and ready.
    fn run(&mut self, name: &str, pods: i32, seconds: i64) {
        let pods: Vec<ObservedPod> = (0..pods).map(|index| pod(index, true, Readiness::Ready)).collect();
        let clique = self.clique(name);
        look(clique, &pods, seconds);
        clique.status.as_mut().unwrap().ready_replicas = pods.len() as i32;
    }

    fn look_at_groups(&mut self, seconds: i64) {
        for group in &mut self.groups {
            let counts = GroupCounts::of(group, &self.cliques);
            let conditions = group_conditions(group, counts, false, after(seconds));
            group.status = Some(PodCliqueScalingGroupStatus {
                conditions,
                available_replicas: counts.available,
                ..PodCliqueScalingGroupStatus::default()
            });
        }
    }

    /// Replicas of the scaling group, and of the set, that are torn down at a time.
    fn torn_down(&mut self, seconds: i64) -> (Vec<i32>, Vec<i32>) {
        self.look_at_groups(seconds);
        let delay = termination_delay(&self.set);
        let group = of_group(&self.groups[0], &self.cliques, delay, after(seconds));
        let live = Live::of(&self.set, &self.cliques, &self.groups);
        let looks = (0..self.set.spec.replicas)
            .map(|replica| of_replica(&self.set, replica, (&live, &self.cliques), after(seconds)));
        (group.replicas, looks.flat_map(|look| look.replicas).collect())
    }

    fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        let live = Live::of(&self.set, &self.cliques, &self.groups);
        let looks =
            (0..self.set.spec.replicas).map(|replica| of_replica(&self.set, replica, (&live, &self.cliques), now));
        looks.filter_map(|look| look.look_again_at).min()
    }
}

#[test]
fn gt1_a_lost_pod_of_a_standalone_clique_recycles_the_replica_after_the_delay() {
    let mut world = World::new(false);
    assert_eq!(world.torn_down(50), (vec![], vec![]));
    world.run("w-0-pc-a", 1, 100);
    assert_eq!(world.torn_down(109), (vec![], vec![]));
    assert_eq!(world.next_look(after(109)), Some(after(110)));
    assert_eq!(world.torn_down(110), (vec![], vec![0]));
}

#[test]
fn gt1_recovers_when_the_pod_comes_back_in_time() {
    let mut world = World::new(false);
    world.run("w-0-pc-a", 1, 100);
    world.run("w-0-pc-a", 2, 105);
    assert_eq!(world.torn_down(200), (vec![], vec![]));
    assert_eq!(world.next_look(after(200)), None);
}

#[test]
fn gt2_a_lost_pod_of_a_group_at_its_minimum_recycles_the_replica() {
    let mut world = World::new(false);
    world.run("w-0-sg-x-0-pc-c", 2, 100);
    assert_eq!(world.torn_down(100), (vec![], vec![]));
    assert_eq!(world.torn_down(110), (vec![], vec![0]));
}

#[test]
fn gt3_a_loss_above_the_minimum_is_tolerated() {
    let mut world = World::new(true);
    world.run("w-0-pc-a", 1, 100);
    assert_eq!(world.torn_down(500), (vec![], vec![]));
    world.run("w-0-pc-a", 0, 600);
    assert_eq!(world.torn_down(610), (vec![], vec![0]));
}

#[test]
fn gt4_a_group_recycles_its_replica_first_and_the_set_when_none_is_left() {
    let mut world = World::new(true);
    world.run("w-0-sg-x-0-pc-c", 0, 100);
    assert_eq!(world.torn_down(110), (vec![0], vec![]));
    // Its cliques are recreated and find no place.
    for name in ["w-0-sg-x-0-pc-b", "w-0-sg-x-0-pc-c"] {
        let clique = world.clique(name);
        clique.metadata.creation_timestamp = Some(Time(after(111)));
        clique.status = None;
        world.run(name, 0, 112);
    }
    assert_eq!(
        world.torn_down(200),
        (vec![], vec![]),
        "what never had a place is not recycled"
    );
    world.run("w-0-sg-x-1-pc-c", 0, 300);
    assert_eq!(world.torn_down(300), (vec![], vec![]));
    assert_eq!(world.torn_down(310), (vec![], vec![0]));
}

#[test]
fn a_teardown_fires_once() {
    let mut world = World::new(false);
    world.run("w-0-pc-a", 1, 100);
    world.look_at_groups(100);
    assert_eq!(world.torn_down(110).1, [0]);
    let marked = mark_terminated(&world.groups[0], after(110));
    assert!(conditions::is_true(&marked, "GangTerminationInProgress"));
    // While cliques are missing, and when all are new and wait for a place, nothing is torn down again.
    let kept = world.cliques.clone();
    world.cliques.remove(0);
    assert_eq!(world.torn_down(120), (vec![], vec![]));
    world.cliques = kept;
    for name in world.names() {
        let clique = world.clique(&name);
        clique.metadata.creation_timestamp = Some(Time(after(121)));
        clique.status = None;
        world.run(&name, 0, 122);
    }
    assert_eq!(world.torn_down(10_000), (vec![], vec![]));
}

#[test]
fn a_group_that_is_well_again_has_no_termination_in_progress() {
    let mut world = World::new(false);
    let group = &mut world.groups[0];
    group.status.as_mut().unwrap().conditions = mark_terminated(group, after(5));
    let counts = GroupCounts {
        unbreached: 2,
        ..GroupCounts::default()
    };
    let conditions = group_conditions(&world.groups[0], counts, false, after(6));
    assert_eq!(conditions::find(&conditions, "GangTerminationInProgress"), None);
    let message = "PCSG replicas not in breach (2) meets MinAvailable (2)";
    let reason = "SufficientAvailablePodCliqueScalingGroupReplicas";
    assert_eq!(of(&conditions, "MinAvailableBreached"), ("False", reason, message));
}

#[test]
fn delays_that_make_no_sense_are_the_default() {
    let mut set = World::new(false).set;
    assert_eq!(termination_delay(&set), SignedDuration::from_secs(10));
    for text in ["-1s", "0s", "soon"] {
        set.spec.template.termination_delay = Some(grove_api::duration::DurationString(text.into()));
        assert_eq!(termination_delay(&set), SignedDuration::from_hours(4), "{text}");
    }
    set.spec.template.termination_delay = None;
    assert_eq!(termination_delay(&set), SignedDuration::from_hours(4));
}

#[test]
fn a_replica_is_available_when_every_part_of_it_is() {
    let mut world = World::new(false);
    let available = |world: &World| {
        let live = Live::of(&world.set, &world.cliques, &world.groups);
        is_replica_available(&world.set, 0, &live)
    };
    assert!(available(&world));
    world.run("w-0-sg-x-1-pc-c", 2, 100);
    world.look_at_groups(100);
    assert!(!available(&world));
}
