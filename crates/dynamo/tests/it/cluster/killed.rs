//! A controller that is killed at each of its writes, and another that goes on: together they come to what one that lives
//! comes to.

use std::collections::BTreeSet;

use grove_api::{DynamoGraphDeployment, PodCliqueSet};
use grove_scenarios::embedded::Kind;
use grove_simcluster::fault::Moment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use serde_json::json;

use super::world::{CONTROLLER, World};
use crate::graphs::with_worker;

const MOMENTS: [Moment; 3] = [Moment::BeforeWrite, Moment::BeforeReply, Moment::AfterReply];

/// What happens while the controller dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Create,
    /// It runs, and gets one worker more.
    Scale,
    /// It runs, and its set is deleted by hand.
    LoseSet,
}

fn wanted() -> DynamoGraphDeployment {
    with_worker(json!({"topologyConstraint": {"packDomain": "rack"}}))
}

impl Deed {
    fn pods(self) -> usize {
        if self == Self::Scale { 4 } else { 3 }
    }

    async fn happen(self, world: &World) {
        match self {
            Self::Create => drop(world.create(&wanted()).await),
            Self::Scale => {
                let mut graph = world.get::<DynamoGraphDeployment>("g").await;
                graph.spec.components[1].replicas = 3;
                world
                    .merge::<DynamoGraphDeployment>("g", json!({"spec": {"components": graph.spec.components}}))
                    .await;
            }
            Self::LoseSet => world.delete::<PodCliqueSet>("g").await,
        }
    }

    /// Plays it once, from nothing to nothing; whether the controller lived to send the write at which it dies.
    async fn play(self, world: &mut World, death: Option<(u64, Moment)>) -> (bool, BTreeSet<String>) {
        if self != Self::Create {
            world.create(&wanted()).await;
            world.says("g", "Ready", ("True", "all_resources_are_ready")).await;
            world.settle().await;
        }
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
        for (type_, reason) in [
            ("Ready", "all_resources_are_ready"),
            ("TopologyConstraintsEnforced", "AllTopologyLevelsAvailable"),
        ] {
            let expected = Some(("True".to_owned(), reason.to_owned()));
            assert_eq!(world.condition("g", type_).await, expected, "{self:?} {death:?}");
        }
        let made = objects(world).await;
        world.delete::<DynamoGraphDeployment>("g").await;
        world.settle().await;
        assert_eq!(objects(world).await, BTreeSet::new(), "{self:?} {death:?}");
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
    all.into_iter().collect()
}

async fn killed_at_any_write(deed: Deed) {
    let mut world = World::start().await;
    let before = world.writes();
    let (_, lived) = deed.play(&mut world, None).await;
    let writes = world.writes() - before;
    let mut deaths = 0;
    for write in 1_u64.. {
        let moment = MOMENTS[usize::try_from(write).unwrap_or_default() % MOMENTS.len()];
        let (died, made) = deed.play(&mut world, Some((write, moment))).await;
        assert_eq!(made, lived, "{deed:?} killed at write {write}, {moment:?}");
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 1, "{deaths} deaths in {writes} writes");
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
async fn killed_at_any_write_after_the_set_was_lost() {
    killed_at_any_write(Deed::LoseSet).await;
}
