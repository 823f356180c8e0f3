//! Every test and scenario of the topology designs on a real control plane. The steps are `grove_scenarios`'; the same
//! run on the embedded cluster.
//!
//! Topologies, webhooks and definitions are the whole cluster's, so one scenario runs at a time, each in a namespace of its
//! own, and leaves nothing behind.

#[path = "../common/kinds.rs"]
mod kinds;
#[path = "../common/record.rs"]
mod record;
mod stage;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::LazyLock;

use futures::FutureExt as _;
use grove_api::config::SchedulerProfile;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use stage::RealStage;

/// Operators, webhooks and clients of all scenarios.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("the system gives threads to a test"));
static TURN: Mutex<()> = Mutex::const_new(());

fn play(name: &str, placer: SchedulerProfile, scenario: impl AsyncFnOnce(&mut RealStage)) {
    RUNTIME.block_on(async {
        let _turn = TURN.lock().await;
        let namespace = namespace(name, &placer);
        let mut stage = RealStage::set_up(&namespace, placer).await.expect("a stage");
        let played = AssertUnwindSafe(async {
            scenario(&mut stage).await;
            stage.audit().await.expect("a record of what happened");
        });
        let played = played.catch_unwind().await;
        let cleared = stage.clear().await;
        if let Err(failed) = played {
            resume_unwind(failed);
        }
        cleared.expect("a stage that can be cleared");
    });
}

/// Names of namespaces are DNS labels; the beginnings of the scenarios' names tell them apart.
fn namespace(scenario: &str, placer: &SchedulerProfile) -> String {
    let beginning: String = scenario.replace('_', "-").chars().take(40).collect();
    format!("{}-{}", placer.name().as_str(), beginning.trim_end_matches('-'))
}

/// All scenarios with our scheduler.
macro_rules! bound_by_grove {
    ($($module:ident::$name:ident,)*) => {$(
        #[test]
        fn $name() {
            play(stringify!($name), SchedulerProfile::Grove, async |stage| grove_scenarios::$name(stage).await);
        }
    )*};
}
grove_scenarios::for_each_scenario!(bound_by_grove);

/// Those that look at placement also with the stock kube-scheduler, for which the operator pins the pods.
macro_rules! bound_by_kube_scheduler {
    ($($module:ident::$name:ident,)*) => {
        mod default_scheduler {
            $(#[test]
            fn $name() {
                super::play(stringify!($name), super::SchedulerProfile::Default, async |stage| {
                    grove_scenarios::$name(stage).await;
                });
            })*
        }
    };
}
grove_scenarios::for_each_placement!(bound_by_kube_scheduler);
