//! A scheduler that dies at any of its writes, binds that are refused, answers that are lost.
//!
//! Every run kills it at each write that matters when that is stored and not answered, the hardest moment;
//! `GROVE_EXHAUSTIVE=1` at all writes, and also just before and just after.

use grove_api::{PodCliqueScalingGroup, PodCliqueSet};
use grove_simcluster::fault::{Match, Moment, RequestFault, Rule};
use grove_simcluster::history::Outcome;
use grove_simcluster::server::{Intent, Verb};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::priority::{class, important, whole};
use crate::replica::elastic;
use crate::support::{Policies, SCHEDULER, World, nodes, set};

/// Something that a scheduler has to do, and may die of.
trait Scenario {
    /// Brings the cluster to the moment before it.
    async fn prepared() -> World;
    /// What must hold after another scheduler has finished it.
    async fn check(world: &World);
}

/// Kills the scheduler at its n-th write, and lets another one finish. Whether there was such a write.
async fn killed_at<S: Scenario>(write: u64, moment: Moment) -> bool {
    let mut world = S::prepared().await;
    world.settle().await;
    let mut died = world.cluster.faults().kill(SCHEDULER, write, moment);
    world.start_scheduler();
    world.settle().await;
    let has_died = died.try_recv().is_ok();
    world.crash_scheduler().await;
    world.start_scheduler();
    world.settle().await;
    S::check(&world).await;
    world.audit();
    has_died
}

/// The writes of a scheduler that nobody kills, in their order.
async fn writes<S: Scenario>() -> Vec<Intent> {
    let mut world = S::prepared().await;
    world.settle().await;
    let writes = |world: &World| -> Vec<Intent> {
        let history = world.cluster.history().expect("histories of tests are recorded");
        let asked = history.requests().by_user(SCHEDULER);
        let intents = asked.iter().map(|asked| asked.intent.clone());
        intents.filter(|intent| intent.verb.is_write()).collect()
    };
    let before = writes(&world).len();
    world.start_scheduler();
    world.settle().await;
    S::check(&world).await;
    writes(&world).split_off(before)
}

/// Whether a write only tells people something, and nothing is decided by it.
fn is_told(write: &Intent) -> bool {
    let (plural, subresource) = (&*write.resource.plural, write.subresource.as_str());
    plural == "events" || (plural, subresource) == ("pods", "status")
}

/// Kills it at every write that matters, of which there are at least so many.
async fn killed_everywhere<S: Scenario>(deaths_min: usize) {
    let (moments, is_exhaustive): (&[Moment], bool) = match std::env::var_os("GROVE_EXHAUSTIVE") {
        Some(_) => (&[Moment::BeforeWrite, Moment::BeforeReply, Moment::AfterReply], true),
        None => (&[Moment::BeforeReply], false),
    };
    let writes = writes::<S>().await;
    for &moment in moments {
        let mut deaths = 0;
        for (write, _) in (1..).zip(&writes).filter(|(_, write)| is_exhaustive || !is_told(write)) {
            deaths += usize::from(killed_at::<S>(write, moment).await);
        }
        assert!(deaths >= deaths_min, "{moment:?}: {deaths} of {writes:#?}");
    }
}

/// A cluster on which these sets run, and whose scheduler has just died.
async fn running(world: World, sets: &[&str]) -> World {
    let mut world = world;
    world.start_scheduler();
    for name in sets {
        world.create::<PodCliqueSet>(&set(name, 2, 8, "rack")).await;
        world.await_scheduled(&format!("{name}-0"), ("True", "Placed")).await;
    }
    world.settle().await;
    world.crash_scheduler().await;
    world
}

async fn empty(racks: usize, hosts: usize) -> World {
    World::without_scheduler(nodes(1, racks, hosts), Policies::default()).await
}

/// Two gangs that fill the cluster.
struct First;

impl Scenario for First {
    async fn prepared() -> World {
        let world = empty(2, 3).await;
        for name in ["a", "b"] {
            world.create::<PodCliqueSet>(&set(name, 3, 8, "rack")).await;
        }
        world
    }

    async fn check(world: &World) {
        for gang in ["a-0", "b-0"] {
            world.await_scheduled(gang, ("True", "Placed")).await;
        }
        assert_eq!(world.unbound().await, 0);
        assert_eq!(world.audit().binds, 6, "no pod was bound twice");
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_every_write_of_two_new_gangs() {
    killed_everywhere::<First>(8).await;
}

/// A replica that grows, in a rack that has just enough room.
struct Scaled;

impl Scenario for Scaled {
    async fn prepared() -> World {
        let mut world = empty(2, 5).await;
        world.start_scheduler();
        world.create::<PodCliqueSet>(&elastic("rack")).await;
        world.await_scheduled("s-0", ("True", "Placed")).await;
        world.settle().await;
        world.crash_scheduler().await;
        let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
        let groups = world.all::<PodCliqueScalingGroup>();
        let scaled = groups.patch("s-0-g", &PatchParams::default(), &patch).await;
        scaled.expect("a scaling group");
        world
    }

    async fn check(world: &World) {
        world.await_scheduled("s-0-g-0", ("True", "Placed")).await;
        assert_eq!(world.unbound().await, 0);
        assert_eq!(world.racks_of("s-0").await.len(), 1);
        assert_eq!(world.audit().binds, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_every_write_of_a_scaled_gang() {
    killed_everywhere::<Scaled>(3).await;
}

/// A gang that lost a pod.
struct Repair;

impl Scenario for Repair {
    async fn prepared() -> World {
        let world = running(empty(3, 3).await, &["w"]).await;
        let pod = world.list::<Pod>().await.into_keys().next().expect("a pod");
        let pods = world.all::<Pod>();
        pods.delete(&pod, &DeleteParams::default()).await.expect("a deletion");
        world
    }

    async fn check(world: &World) {
        world.await_scheduled("w-0", ("True", "Placed")).await;
        assert_eq!(world.unbound().await, 0);
        assert_eq!(world.racks_of("w").await.len(), 1, "it returned to its gang's rack");
        assert_eq!(world.audit().binds, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_every_write_of_a_repair() {
    killed_everywhere::<Repair>(1).await;
}

/// A gang of higher priority on a cluster that is full.
struct Preemption;

impl Scenario for Preemption {
    async fn prepared() -> World {
        let world = running(empty(2, 2).await, &["a", "b"]).await;
        class(&world, "high", 1000).await;
        world.create::<PodCliqueSet>(&important("urgent", 2, "high")).await;
        world
    }

    async fn check(world: &World) {
        world.await_scheduled("urgent-0", ("True", "Placed")).await;
        world.settle().await;
        let left = whole(world, &["a", "b"]).await;
        assert_eq!(left, 1, "one rack is freed, the other is left alone");
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_every_write_of_a_preemption() {
    killed_everywhere::<Preemption>(4).await;
}

/// Two gangs, and room for one.
struct Competing;

impl Scenario for Competing {
    async fn prepared() -> World {
        let world = empty(1, 3).await;
        for name in ["a", "b"] {
            world.create::<PodCliqueSet>(&set(name, 2, 8, "rack")).await;
        }
        world
    }

    async fn check(world: &World) {
        let mut bound = [0, 0];
        for (bound, name) in bound.iter_mut().zip(["a-", "b-"]) {
            *bound = world.nodes_of(name).await.iter().flatten().count();
        }
        bound.sort_unstable();
        assert_eq!(bound, [0, 2], "one is whole, the other waits whole");
        assert_eq!(world.audit().binds, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_every_write_of_two_gangs_that_compete() {
    killed_everywhere::<Competing>(4).await;
}

pub(crate) fn binds() -> Match {
    Match::any()
        .user(SCHEDULER)
        .verb(Verb::Create)
        .resource("", "pods")
        .subresource("binding")
}

#[tokio::test(start_paused = true)]
async fn a_bind_whose_answer_is_lost_is_not_taken_for_refused() {
    let world = World::new(nodes(1, 2, 3)).await;
    let lost = [1, 2, 3].map(|nth| Rule::request(binds(), RequestFault::FailAfter).nth(nth));
    world.cluster.faults().script(lost);
    for name in ["a", "b"] {
        world.create::<PodCliqueSet>(&set(name, 3, 8, "rack")).await;
    }
    for gang in ["a-0", "b-0"] {
        world.await_scheduled(gang, ("True", "Placed")).await;
    }
    world.settle().await;
    assert_eq!(world.audit().binds, 6);
}

/// Whether it was carried out nobody knows: nothing is sent again before the scheduler has decided that.
#[tokio::test(start_paused = true)]
async fn a_bind_that_times_out_is_sent_again_by_the_scheduler_alone() {
    for written in [true, false] {
        let world = World::new(nodes(1, 1, 3)).await;
        let late = Rule::request(binds(), RequestFault::Timeout { written });
        world.cluster.faults().script([late]);
        world.create::<PodCliqueSet>(&set("w", 3, 8, "rack")).await;
        world.await_scheduled("w-0", ("True", "Placed")).await;
        world.settle().await;
        assert_eq!(world.audit().binds, 3);
        let history = world.cluster.history().expect("a history");
        let binds = history.requests().only(|asked| asked.intent.subresource == "binding");
        let late = binds.iter().find(|asked| asked.outcome == Outcome::Answered(504));
        let late = late.expect("a bind that timed out");
        let after = binds.iter().filter(|asked| asked.intent.name == late.intent.name);
        let sent: Vec<_> = after
            .map(|asked| (asked.outcome, asked.time.duration_since(late.time)))
            .collect();
        let [(Outcome::Answered(504), _), (Outcome::Answered(code), waited)] = sent[..] else {
            panic!("sent twice, not {sent:?}");
        };
        assert_eq!(code, if written { 409 } else { 201 });
        assert!(
            waited.as_millis() >= 50,
            "the wait is the scheduler's own, not {waited:?}"
        );
    }
}

/// The gang is bound, and scaled gangs wait for that to be said.
#[tokio::test(start_paused = true)]
async fn a_status_that_could_not_be_written_is_written_soon() {
    let world = World::new(nodes(1, 1, 3)).await;
    let statuses = Match::any()
        .user(SCHEDULER)
        .verb(Verb::Patch)
        .resource("scheduler.grove.io", "podgangs");
    let busy = RequestFault::TooManyRequests { retry_after_secs: 1 };
    world.cluster.faults().script([Rule::request(statuses, busy).times(3)]);
    world.create::<PodCliqueSet>(&set("w", 3, 8, "rack")).await;
    world.await_scheduled("w-0", ("True", "Placed")).await;
    let history = world.cluster.history().expect("a history");
    let said = history.requests().only(|asked| {
        &*asked.intent.resource.plural == "podgangs" && asked.intent.user == SCHEDULER && asked.intent.verb.is_write()
    });
    let first = said.iter().next().expect("a write that was refused").time;
    let last = said.iter().next_back().expect("a write that was not").time;
    let waited = last.duration_since(first);
    assert!(waited.as_secs() < 2, "{waited:?}");
}

/// Two of three pods are bound, the third has no node to go to, and the scheduler is gone.
async fn half_bound() -> World {
    let mut world = World::new(nodes(1, 1, 3)).await;
    // The third bind never arrives, and its node goes meanwhile.
    let never = Rule::request(binds(), RequestFault::FailBefore).nth(3).always();
    world.cluster.faults().script([never]);
    world.create::<PodCliqueSet>(&set("w", 3, 8, "rack")).await;
    world
        .eventually("two are bound", async |world| {
            world.nodes_of("w").await.iter().flatten().count() == 2
        })
        .await;
    world.crash_scheduler().await;
    world.cluster.faults().clear();
    let bound = world.nodes_of("w").await;
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(world.client.clone());
    for host in 1..=3 {
        let name = format!("b1r1h{host}");
        if !bound.contains(&Some(name.clone())) {
            nodes.delete(&name, &DeleteParams::default()).await.expect("a deletion");
        }
    }
    world
}

async fn places_are_given_back(world: &World) {
    world
        .eventually("the places are given back", async |world| {
            let pods = world.list::<Pod>().await;
            pods.len() == 3
                && pods
                    .values()
                    .all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_stays_half_bound_is_released_after_the_grace() {
    let mut world = half_bound().await;
    let before: Vec<String> = world.list::<Pod>().await.into_keys().collect();
    world.start_scheduler();
    places_are_given_back(&world).await;
    let after: Vec<String> = world.list::<Pod>().await.into_keys().collect();
    assert_eq!(
        before.iter().filter(|name| after.contains(name)).count(),
        1,
        "who was not bound stays"
    );
    world.settle().await;
    world.audit();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_does_not_arrive_is_decided_again() {
    let mut world = half_bound().await;
    let releases = Match::any().user(SCHEDULER).verb(Verb::Delete).resource("", "pods");
    let lost = Rule::request(releases, RequestFault::FailBefore).times(2);
    world.cluster.faults().script([lost]);
    world.start_scheduler();
    places_are_given_back(&world).await;
    world.settle().await;
    world.audit();
}
