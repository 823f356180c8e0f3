//! A controller that is killed at each of its writes, and another that goes on: together they come to what one that lives
//! comes to, and what they say of constraints is what the set said of them, at every step.
//!
//! Every write of an undisturbed run is a place to die. By default the moment changes from write to write; with
//! `GROVE_EXHAUSTIVE=1` each write is tried at every moment. The campaign (`crates/campaign`) kills the whole process of the
//! operator.

use std::collections::BTreeSet;

use grove_api::{DynamoGraphDeployment, DynamoGraphDeploymentScalingAdapter, PodCliqueSet};
use grove_dynamo::status::{Seen, status};
use grove_scenarios::embedded::Kind;
use grove_simcluster::fault::Moment;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::de::DeserializeOwned;

use super::topologies::{ALL, ENFORCED, GONE, create_topology, lose_topology, on_topology};
use super::world::{CONTROLLER, World};

const MOMENTS: [Moment; 3] = [Moment::BeforeWrite, Moment::BeforeReply, Moment::AfterReply];

/// What happens while the controller dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Create,
    /// It runs, and gets one worker more.
    Scale,
    /// It runs, and its frontend's adapter is scaled.
    ScaleAdapter,
    /// It runs, and its frontend's adapter is no longer wanted.
    DropAdapter,
    /// It runs, and its set is deleted by hand.
    LoseSet,
    /// It runs, and its topology is deleted.
    LoseTopology,
    /// It runs without its topology, which returns.
    ReturnTopology,
}

/// A graph with a constraint, a topology of its own, and an adapter.
fn wanted() -> DynamoGraphDeployment {
    let mut graph = on_topology();
    graph.spec.components[0].scaling_adapter = Some(Default::default());
    graph
}

impl Deed {
    fn pods(self) -> usize {
        match self {
            Self::Scale | Self::ScaleAdapter => 4,
            _ => 3,
        }
    }

    /// What is said of the constraints in the end.
    fn enforced(self) -> (&'static str, &'static str) {
        if self == Self::LoseTopology { GONE } else { ALL }
    }

    /// Writes that it cannot do without, each a place to die: objects, numbers, events, and what the graph's status must go
    /// through.
    fn writes(self) -> usize {
        match self {
            // Account, role and binding, set, two Services, adapter; the event; a status without pods and one with them.
            Self::Create => 10,
            // The number; a status that waits for it and one that has it.
            Self::Scale => 3,
            // The same, the graph's own number, and what the adapter counts.
            Self::ScaleAdapter => 5,
            // The adapter; the status of the new generation.
            Self::DropAdapter => 2,
            // The set; a status without one, with one that waits, and with one that runs.
            Self::LoseSet => 4,
            // The warning and the status.
            Self::LoseTopology => 2,
            // The status.
            Self::ReturnTopology => 1,
        }
    }

    /// What people must have been told of the constraints, each once.
    fn expected(self) -> Vec<&'static str> {
        match self {
            Self::LoseTopology | Self::ReturnTopology => vec!["TopologyConstraintsApplied", GONE.1],
            _ => vec!["TopologyConstraintsApplied"],
        }
    }

    /// What they were told of this graph, by reason.
    async fn told(world: &World) -> Vec<String> {
        let uid = world.get::<DynamoGraphDeployment>("g").await.uid();
        let events = world.list::<Event>().await.into_iter();
        let about = events.filter(|event| event.regarding.as_ref().is_some_and(|about| about.uid == uid));
        let mut reasons: Vec<String> = about.filter_map(|event| event.reason).collect();
        reasons.sort();
        reasons
    }

    async fn begin(self, world: &World) {
        create_topology(world).await;
        if self == Self::Create {
            return;
        }
        world.create(&wanted()).await;
        world.settle().await;
        if self == Self::ReturnTopology {
            lose_topology(world).await;
            world.settle().await;
        }
    }

    async fn happen(self, world: &World) {
        match self {
            Self::Create => drop(world.create(&wanted()).await),
            Self::Scale => world.edit("g", |components| components[1].replicas = 3).await,
            Self::ScaleAdapter => {
                world
                    .scale::<DynamoGraphDeploymentScalingAdapter>("g-frontend", 2)
                    .await
            }
            Self::DropAdapter => world.edit("g", |components| components[0].scaling_adapter = None).await,
            Self::LoseSet => world.delete::<PodCliqueSet>("g").await,
            Self::LoseTopology => lose_topology(world).await,
            Self::ReturnTopology => create_topology(world).await,
        }
    }

    /// Takes everything away; nothing of the graph stays.
    async fn end(self, world: &World) {
        world.delete::<DynamoGraphDeployment>("g").await;
        if self != Self::LoseTopology {
            lose_topology(world).await;
        }
        world.settle().await;
        assert_eq!(objects(world).await, BTreeSet::new(), "{self:?}");
    }

    /// Plays it once, from nothing to nothing; whether the controller lived to send the write at which it dies.
    async fn play(self, world: &mut World, death: Option<(u64, Moment)>) -> (bool, BTreeSet<String>) {
        let begin = world.cluster.store().revision();
        self.begin(world).await;
        let told = death.map(|(write, moment)| world.cluster.faults().kill(CONTROLLER, write, moment));
        self.happen(world).await;
        let died = match told {
            None => true,
            Some(told) => {
                let died = tokio::select! {
                    died = told => died.is_ok(),
                    () = world.settle() => false,
                };
                world.cluster.faults().clear();
                world.crash_controller().await;
                world.start_controller();
                died
            }
        };
        world.settle().await;
        assert_eq!(world.ready_pods().await.len(), self.pods(), "{self:?} {death:?}");
        for (type_, (said, reason)) in [
            ("Ready", ("True", "all_resources_are_ready")),
            (ENFORCED, self.enforced()),
        ] {
            let expected = Some((said.to_owned(), reason.to_owned()));
            assert_eq!(world.condition("g", type_).await, expected, "{self:?} {death:?}");
        }
        let told = Self::told(world).await;
        assert_eq!(told, self.expected(), "{self:?} {death:?}");
        assert_true_at_each_step(world, begin, &format!("{self:?} {death:?}"));
        let made = objects(world).await;
        self.end(world).await;
        (died, made)
    }
}

/// Names of everything that a graph owns.
async fn objects(world: &World) -> BTreeSet<String> {
    async fn names<K: Kind>(world: &World) -> Vec<String> {
        let ours = world
            .list::<K>()
            .await
            .into_iter()
            .filter(|object| !object.owner_references().is_empty());
        ours.map(|object| format!("{} {}", K::kind(&()), object.name_any()))
            .collect()
    }
    let mut all = names::<PodCliqueSet>(world).await;
    all.extend(names::<Service>(world).await);
    all.extend(names::<ServiceAccount>(world).await);
    all.extend(names::<Role>(world).await);
    all.extend(names::<RoleBinding>(world).await);
    all.extend(names::<DynamoGraphDeploymentScalingAdapter>(world).await);
    all.into_iter().collect()
}

/// The objects of a kind as they were written since `begin`, with their revisions; nothing where one was deleted.
fn written<K: DeserializeOwned>(world: &World, (group, plural): (&str, &str), begin: u64) -> Vec<(u64, Option<K>)> {
    let history = world.cluster.history().expect("histories of tests are recorded");
    let writes = history.writes().of_kind(group, plural).after(begin);
    let object = |value| serde_json::from_value(value).expect("an object of its kind");
    writes
        .iter()
        .map(|write| (write.revision, write.after().map(object)))
        .collect()
}

/// Graphs as they were written since `begin`.
pub(super) fn graph_writes(world: &World, begin: u64) -> Vec<(u64, Option<DynamoGraphDeployment>)> {
    written(world, ("nvidia.com", "dynamographdeployments"), begin)
}

fn enforced(conditions: &[Condition]) -> Option<(String, String)> {
    let found = conditions.iter().find(|condition| condition.type_ == ENFORCED)?;
    Some((found.status.clone(), found.reason.clone()))
}

pub(super) fn is_ready(graph: &DynamoGraphDeployment) -> bool {
    let conditions = graph.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}

/// Whatever a graph says of its constraints, its set says so at that moment, or said so since the graph spoke last: what is
/// said may be late, and is never made up. And a graph that says that it is ready has a set that was seen as it is.
fn assert_true_at_each_step(world: &World, begin: u64, context: &str) {
    let sets = written::<PodCliqueSet>(world, ("grove.io", "podcliquesets"), begin);
    let mut known = 0;
    let mut steps = 0;
    for (revision, graph) in graph_writes(world, begin) {
        let Some((graph, Some(said))) = graph.and_then(|graph| {
            let said = graph.status.as_ref().map(|status| enforced(&status.conditions));
            Some((graph, said?))
        }) else {
            continue;
        };
        // Before the first set there is none, and one on its way out counts for none.
        let means = |index: usize| {
            let set = index.checked_sub(1).and_then(|index| sets[index].1.as_ref());
            let seen = Seen {
                set: set.filter(|set| set.metadata.deletion_timestamp.is_none()),
                ..Seen::default()
            };
            enforced(&status(&graph, seen, Timestamp::UNIX_EPOCH).conditions)
        };
        let until = sets.iter().filter(|(written, _)| *written < revision).count();
        let is_stated = |index: usize| {
            let set = index.checked_sub(1).and_then(|index| sets[index].1.as_ref());
            set.is_some_and(|set| {
                let seen = set.status.as_ref().and_then(|status| status.observed_generation);
                set.metadata.deletion_timestamp.is_none() && seen == set.metadata.generation
            })
        };
        let may_be_ready = (known..=until).any(is_stated);
        assert!(
            !is_ready(&graph) || may_be_ready,
            "{context}: revision {revision} is ready without a set"
        );
        let found = (known..=until).find(|index| means(*index).as_ref() == Some(&said));
        known = found.unwrap_or_else(|| panic!("{context}: revision {revision} says {said:?}, and no set does"));
        steps += 1;
    }
    assert!(steps > 0, "{context}: nothing was said");
}

async fn killed_at_any_write(deed: Deed) {
    let mut world = World::start().await;
    let before = world.writes();
    let (_, lived) = deed.play(&mut world, None).await;
    let writes = world.writes() - before;
    let is_exhaustive = std::env::var_os("GROVE_EXHAUSTIVE").is_some();
    let mut deaths = 0;
    for write in 1_u64.. {
        let turn = usize::try_from(write).unwrap_or_default() % MOMENTS.len();
        let moments = if is_exhaustive {
            &MOMENTS[..]
        } else {
            &MOMENTS[turn..=turn]
        };
        let mut has_died = false;
        for moment in moments {
            let (died, made) = deed.play(&mut world, Some((write, *moment))).await;
            assert_eq!(made, lived, "{deed:?} killed at write {write}, {moment:?}");
            has_died |= died;
            deaths += usize::from(died);
        }
        if !has_died {
            break;
        }
    }
    assert!(deaths >= deed.writes(), "{deed:?}: {deaths} deaths in {writes} writes");
    println!("{deed:?}: {deaths} deaths in {writes} writes");
    world.stop_controller().await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_creation() {
    killed_at_any_write(Deed::Create).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_scaling() {
    killed_at_any_write(Deed::Scale).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_scaling_by_adapter() {
    killed_at_any_write(Deed::ScaleAdapter).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_after_an_adapter_was_dropped() {
    killed_at_any_write(Deed::DropAdapter).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_after_the_set_was_lost() {
    killed_at_any_write(Deed::LoseSet).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_after_the_topology_was_lost() {
    killed_at_any_write(Deed::LoseTopology).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_after_the_topology_returned() {
    killed_at_any_write(Deed::ReturnTopology).await;
}
