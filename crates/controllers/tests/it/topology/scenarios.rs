//! Every scenario of the designs on the embedded cluster, in virtual time, with each of Grove's profiles. The same steps
//! run on a real control plane in `e2e/tests/topology`.

use super::kit::two_racks;
use crate::support::{Placer, World};

macro_rules! on_the_embedded_cluster {
    ($($module:ident::$name:ident,)*) => {
        mod grove_scheduler {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                let mut world = super::World::stage(super::Placer::Scheduler, super::two_racks()).await;
                grove_scenarios::$name(&mut world).await;
                world.audit();
            })*
        }

        mod default_scheduler {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                let mut world = super::World::stage(super::Placer::Operator, super::two_racks()).await;
                grove_scenarios::$name(&mut world).await;
                world.audit();
            })*
        }
    };
}
grove_scenarios::for_each_scenario!(on_the_embedded_cluster);
