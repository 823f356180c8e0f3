//! GS1–GS12 and GT1–GT6 on the embedded cluster, in virtual time, with each of Grove's profiles. The same steps run on a
//! real control plane in `e2e/tests/scheduler`.

use grove_scenarios::gangs::{self, Floor};
use kube::Client;

use crate::support::{NAMESPACE, Placer, World};

/// Far beyond any delay, as it costs nothing.
const LONG: u64 = 10_000;

impl Floor for World {
    fn client(&self) -> &Client {
        &self.client
    }

    fn namespace(&self) -> &str {
        NAMESPACE
    }

    fn label(&self) -> Option<(&str, &str)> {
        None
    }

    async fn add_node(&self, room: usize) {
        self.add_nodes(1, room);
        self.settle().await;
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        self.eventually(what, holds).await;
    }

    async fn settle(&self) {
        self.settle().await;
    }

    async fn outlast(&self) {
        self.pass(LONG).await;
    }
}

macro_rules! each_by_both_profiles {
    ($($name:ident,)*) => {
        mod grove_scheduler {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                let world = super::World::placed_by(super::Placer::Scheduler, 0).await;
                super::gangs::$name(&world).await;
                world.audit();
            })*
        }

        mod default_scheduler {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                let world = super::World::placed_by(super::Placer::Operator, 0).await;
                super::gangs::$name(&world).await;
                world.audit();
            })*
        }
    };
}
grove_scenarios::for_each_gang_scenario!(each_by_both_profiles);
