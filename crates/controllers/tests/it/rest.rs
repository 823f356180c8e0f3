//! At rest nothing is written, and on the way there no more than needed.

use std::collections::BTreeMap;
use std::time::Duration;

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use grove_simcluster::fault::{Match, RequestFault, Rule};
use grove_simcluster::server::Verb;
use jiff::Timestamp;

use crate::support::workloads::{Minimum, Order, simple, workload};
use crate::support::{OPERATOR, Placer, World};

const TEN_MINUTES: Duration = Duration::from_secs(600);

async fn stays_at_rest(world: &World) {
    let (revision, requests) = (world.revision(), world.operator_requests().count());
    tokio::time::sleep(TEN_MINUTES).await;
    assert_eq!(world.operator_writes(revision).count(), 0);
    assert_eq!(world.operator_requests().count(), requests, "nothing is even asked");
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written_for_ten_minutes() {
    for (minimum, order, places) in [
        (Minimum::All, Order::Any, 10),
        (Minimum::One, Order::Template, 10),
        // The base gang runs, everything else waits for room.
        (Minimum::One, Order::Any, 3),
        // Nothing runs.
        (Minimum::All, Order::Any, 9),
    ] {
        let world = World::with_places(places).await;
        world.create_set(&workload(minimum, order)).await;
        // For a gang that has waited for five minutes room is kept, and that is said.
        world.pass(360).await;
        stays_at_rest(&world).await;
        let wasted = world.history().requests().by_user(OPERATOR).no_ops();
        let wasted: Vec<_> = wasted.iter().collect();
        assert!(wasted.is_empty(), "no write that changes nothing: {wasted:#?}");
    }
}

/// Half a minute between two questions at last, not a fifth of a second.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_asked_for_ever_more_rarely() {
    let world = World::placed_by(Placer::Operator, 1).await;
    let asked = || {
        let requests = world.operator_requests();
        let volumes = requests.only(|asked| &*asked.intent.resource.plural == "persistentvolumes");
        volumes.count()
    };
    world.pass(120).await;
    let before = asked();
    assert!(before > 0, "whoever places asks for volumes");
    tokio::time::sleep(TEN_MINUTES).await;
    assert!(asked() - before <= 20, "{} times in ten minutes", asked() - before);
}

/// What the operator may ask for from the creation of sets until all of their pods are ready. A scaling group counts as
/// a clique does: it is made, and its status is written while it starts and when it runs.
async fn within_budget(case: &str, sets: i32, manifest: impl Fn(i32) -> String, (replicas, pods): (usize, usize)) {
    let world = World::plain(30).await;
    // The lists with which watches begin are the operator's start, not the sets'.
    world.settle().await;
    let before = world.operator_requests().count();
    for i in 0..sets {
        world.create_set(&manifest(i)).await;
    }
    world.settle().await;
    assert_eq!(world.ready().await, pods);
    let (cliques, gangs) = (
        world.list::<PodClique>().await.len(),
        world.list::<PodGang>().await.len(),
    );
    let groups = world.list::<PodCliqueScalingGroup>().await.len();
    let budget = 2 * pods + 3 * (cliques + groups) + 4 * gangs + 2 * replicas + 8 * sets as usize;
    let requests = world.operator_requests();
    let asked = requests.count() - before;
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for asked in requests.iter().skip(before) {
        let intent = &asked.intent;
        let kind = format!("{:?} {} {}", intent.verb, intent.resource.plural, intent.subresource);
        *kinds.entry(kind).or_default() += 1;
    }
    println!("{case}: {asked} requests of {budget} allowed; {kinds:?}");
    assert!(
        asked <= budget,
        "{case}: {asked} requests, {budget} allowed: {kinds:#?}"
    );
    let status = world.list::<PodCliqueSet>().await;
    assert!(status.values().all(|set| {
        let status = set.status.as_ref();
        status.is_some_and(|status| status.available_replicas == set.spec.replicas)
    }));
}

#[tokio::test(start_paused = true)]
async fn write_budget_of_one_set_of_100_pods() {
    within_budget("1 x 100 pods", 1, |_| simple("w", 1, 100), (1, 100)).await;
}

#[tokio::test(start_paused = true)]
async fn write_budget_of_20_replicas_of_2_pods() {
    within_budget("20 replicas x 2", 1, |_| simple("w", 20, 2), (20, 40)).await;
}

#[tokio::test(start_paused = true)]
async fn write_budget_of_20_sets_of_5_pods() {
    within_budget("20 sets x 5", 20, |i| simple(&format!("s{i}"), 1, 5), (20, 100)).await;
}

#[tokio::test(start_paused = true)]
async fn write_budget_of_5_sets_with_scaling_groups() {
    let manifest = |i| workload(Minimum::One, Order::Any).replace("name: w\n", &format!("name: w{i}\n"));
    within_budget("5 sets with groups", 5, manifest, (5, 50)).await;
}

/// The shortest time between two writes of the same status, while a hundred pods come up; gangs are left out, for which
/// whoever places waits.
async fn shortest_between_statuses(slow: Option<Duration>) -> Duration {
    let world = World::plain(30).await;
    let status = Match::any().user(OPERATOR).verb(Verb::Patch).subresource("status");
    let late = slow.map(|slow| Rule::request(status, RequestFault::Slow(slow)).always());
    world.cluster.faults().script(late);
    world.create_set(&simple("w", 4, 25)).await;
    world.settle().await;
    assert_eq!(world.ready().await, 100);
    let writes = world.operator_writes(0);
    let statuses = writes
        .iter()
        .filter(|write| write.subresource == "status" && &*write.resource.plural != "podgangs");
    let mut times: BTreeMap<(String, String), Vec<Timestamp>> = BTreeMap::new();
    for write in statuses {
        let of = (write.resource.to_string(), write.key.name.clone());
        times.entry(of).or_default().push(write.time);
    }
    assert_eq!(times.len(), 4 + 1, "cliques and their set: {:?}", times.keys());
    let between = times.values().flat_map(|times| times.windows(2));
    let between = between.map(|pair| pair[1].duration_since(pair[0]).unsigned_abs());
    between.min().expect("more than one write of a status")
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_at_most_five_times_in_a_second() {
    let between = shortest_between_statuses(None).await;
    assert!(between >= Duration::from_millis(200), "{between:?}");
}

#[tokio::test(start_paused = true)]
async fn one_write_of_a_status_is_under_way_at_a_time() {
    let slow = Duration::from_secs(1);
    let between = shortest_between_statuses(Some(slow)).await;
    assert!(between >= slow, "{between:?}");
}
