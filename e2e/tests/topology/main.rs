//! Every test and scenario of the topology designs on a real control plane. The steps are `grove_scenarios`'; the same
//! run on the embedded cluster.
//!
//! Topologies, webhooks and definitions are the whole cluster's, so one scenario runs at a time, each in a namespace of its
//! own, and leaves nothing behind.

mod stage;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::LazyLock;

use futures::FutureExt as _;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use stage::RealStage;

/// Operators, webhooks and clients of all scenarios.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("the system gives threads to a test"));
static TURN: Mutex<()> = Mutex::const_new(());

fn play(name: &str, scenario: impl AsyncFnOnce(&mut RealStage)) {
    RUNTIME.block_on(async {
        let _turn = TURN.lock().await;
        let mut stage = RealStage::set_up(&namespace(name)).await.expect("a stage");
        let played = AssertUnwindSafe(scenario(&mut stage)).catch_unwind().await;
        let cleared = stage.clear().await;
        if let Err(failed) = played {
            resume_unwind(failed);
        }
        cleared.expect("a stage that can be cleared");
    });
}

/// Names of namespaces are DNS labels; the beginnings of the scenarios' names tell them apart.
fn namespace(scenario: &str) -> String {
    let beginning: String = scenario.replace('_', "-").chars().take(40).collect();
    beginning.trim_end_matches('-').to_owned()
}

macro_rules! on_a_real_control_plane {
    ($($module:ident::$name:ident,)*) => {$(
        #[test]
        fn $name() {
            play(stringify!($name), async |stage| grove_scenarios::$name(stage).await);
        }
    )*};
}
grove_scenarios::for_each_scenario!(on_a_real_control_plane);
