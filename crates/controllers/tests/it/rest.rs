//! At rest nothing is written, and on the way there no more than needed.
//!
//! Budgets are counted at small sizes; `GROVE_EXHAUSTIVE=1` takes those that are promised.

use std::collections::BTreeMap;
use std::time::Duration;

use grove_api::conditions::podgang::INITIALIZED;
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use grove_simcluster::fault::{Match, RequestFault, Rule};
use grove_simcluster::history::{Asked, Outcome, Write};
use grove_simcluster::server::Verb;
use jiff::Timestamp;
use serde_json::Value;

use crate::support::workloads::{Minimum, Order, simple, workload};
use crate::support::{OPERATOR, Placer, World, by_both_profiles, is_exhaustive};

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

/// Sets, their replicas, and the pods of each replica.
#[derive(Clone, Copy)]
struct Shape {
    sets: usize,
    replicas: usize,
    pods: usize,
}

impl Shape {
    fn pods(self) -> usize {
        self.sets * self.replicas * self.pods
    }
}

/// Makes the sets, waits until all pods are ready, and counts what the operator asked for until everything said so. A
/// scaling group costs three (it is made, and says twice how it is), of which the others save two. Where the operator
/// places gangs too, it also says of each where it went: in its status and by an Event.
async fn within_budget(placer: Placer, shape: Shape, manifest: impl Fn(usize) -> String) {
    let world = World::roomy_by(placer, 10, shape.pods().div_ceil(10)).await;
    // The lists with which watches begin are the operator's start, not the sets'.
    world.settle().await;
    let requests = || {
        let is_there = |asked: &Asked| !(asked.intent.verb == Verb::List && asked.outcome == Outcome::Answered(404));
        world.operator_requests().only(is_there)
    };
    let before = requests().count();
    for set in 0..shape.sets {
        world.create_set(&manifest(set)).await;
    }
    world.settle().await;
    assert_eq!(world.ready().await, shape.pods());
    let (cliques, gangs) = (
        world.list::<PodClique>().await.len(),
        world.list::<PodGang>().await.len(),
    );
    let Shape { sets, replicas, pods } = shape;
    let placing = if placer == Placer::Operator { 2 * gangs } else { 0 };
    let promised = 2 * shape.pods() + 3 * cliques + 4 * gangs + 2 * sets * replicas + 8 * sets;
    let groups = world.list::<PodCliqueScalingGroup>().await.len();
    let budget = promised + groups + placing;
    let requests = requests();
    let asked = requests.count() - before;
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for asked in requests.iter().skip(before) {
        let intent = &asked.intent;
        let kind = format!("{:?} {} {}", intent.verb, intent.resource.plural, intent.subresource);
        *kinds.entry(kind).or_default() += 1;
    }
    let case = format!("{sets} sets x {replicas} replicas x {pods} pods by {placer:?}");
    println!("{case}: {asked} requests, {promised} promised, {groups} for groups, {placing} for placing; {kinds:?}");
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

/// Sets × replicas × pods as they are promised, or a smaller shape where tests are not optimised.
async fn shape_within_budget(placer: Placer, promised: [usize; 3], small: [usize; 3]) {
    let [sets, replicas, pods] = if is_exhaustive() { promised } else { small };
    let size = |number: usize| i32::try_from(number).expect("a small number");
    let manifest = |set: usize| simple(&format!("s{set}"), size(replicas), size(pods));
    within_budget(placer, Shape { sets, replicas, pods }, manifest).await;
}

by_both_profiles! {
    write_budget_of_one_set_of_1000_pods,
    write_budget_of_500_replicas_of_2_pods,
    write_budget_of_100_sets_of_50_pods,
    write_budget_of_1000_sets_of_one_pod,
    write_budget_of_5_sets_with_scaling_groups,
}

async fn write_budget_of_one_set_of_1000_pods(placer: Placer) {
    shape_within_budget(placer, [1, 1, 1_000], [1, 1, 100]).await;
}

async fn write_budget_of_500_replicas_of_2_pods(placer: Placer) {
    shape_within_budget(placer, [1, 500, 2], [1, 40, 2]).await;
}

async fn write_budget_of_100_sets_of_50_pods(placer: Placer) {
    shape_within_budget(placer, [100, 1, 50], [4, 1, 50]).await;
}

async fn write_budget_of_1000_sets_of_one_pod(placer: Placer) {
    shape_within_budget(placer, [1_000, 1, 1], [50, 1, 1]).await;
}

async fn write_budget_of_5_sets_with_scaling_groups(placer: Placer) {
    let shape = Shape {
        sets: 5,
        replicas: 1,
        pods: 10,
    };
    let manifest = |set| workload(Minimum::One, Order::Any).replace("name: w\n", &format!("name: w{set}\n"));
    within_budget(placer, shape, manifest).await;
}

/// Whether a write says that a gang is initialized, or is no more: whoever places waits for that, so it comes at once.
fn is_waited_for(write: &Write) -> bool {
    let initialized = |object: Option<Value>| {
        let conditions = object.map(|object| object["status"]["conditions"].clone());
        let conditions = conditions.as_ref().and_then(Value::as_array).into_iter().flatten();
        conditions
            .filter(|condition| condition["type"] == INITIALIZED)
            .any(|condition| condition["status"] == "True")
    };
    &*write.resource.plural == "podgangs" && initialized(write.before()) != initialized(write.after())
}

/// The shortest time between two writes of the same status, while a hundred pods come up.
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
        .filter(|write| write.subresource == "status" && !is_waited_for(write));
    let mut times: BTreeMap<(String, String), Vec<Timestamp>> = BTreeMap::new();
    for write in statuses {
        let of = (write.resource.to_string(), write.key.name.clone());
        times.entry(of).or_default().push(write.time);
    }
    assert_eq!(
        times.len(),
        4 + 4 + 1,
        "cliques, gangs and their set: {:?}",
        times.keys()
    );
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
