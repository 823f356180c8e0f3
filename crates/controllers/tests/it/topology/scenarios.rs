//! Every scenario of the designs on the embedded cluster, in virtual time. The same steps run on a real control plane in
//! `e2e/tests/topology`.

use super::kit::two_racks;
use crate::support::World;

macro_rules! on_the_embedded_cluster {
    ($($module:ident::$name:ident,)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let mut world = World::without_operator(1, two_racks()).await;
            grove_scenarios::$name(&mut world).await;
        }
    )*};
}
grove_scenarios::for_each_scenario!(on_the_embedded_cluster);
