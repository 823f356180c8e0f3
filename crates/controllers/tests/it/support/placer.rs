//! Who places gangs on the embedded cluster, by each profile as in a real one.

use std::future::Future;
use std::sync::Arc;

use grove_api::config::{OperatorConfiguration, ProfileName, SchedulerProfile};
use grove_scenarios::audit::{Audit, Terms};
use grove_scheduler::{Policy, Scheduler, Settings};
use grove_simcluster::User;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{OPERATOR, World};

const SCHEDULER: &str = "system:serviceaccount:grove-system:grove-scheduler";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placer {
    /// Nobody: the cluster binds pod by pod to the first node that fits.
    Cluster,
    /// Our scheduler, of profile `grove-scheduler`.
    Scheduler,
    /// The engine in the operator, of profile `default-scheduler`: pods are pinned, and the cluster binds them.
    Operator,
}

impl Placer {
    pub(crate) fn profile(self) -> SchedulerProfile {
        match self {
            Self::Scheduler => SchedulerProfile::Grove,
            Self::Cluster | Self::Operator => SchedulerProfile::Default,
        }
    }
}

/// Makes two tests of each function: one for each profile by which Grove places gangs.
macro_rules! by_both_profiles {
    ($($name:ident,)*) => {
        mod grove_scheduler {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(crate::support::Placer::Scheduler).await;
            })*
        }

        mod default_scheduler {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(crate::support::Placer::Operator).await;
            })*
        }
    };
}
pub(crate) use by_both_profiles;

/// Something that runs until it is told to end.
pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start<F>(run: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(stop.clone()));
        Self { stop, task }
    }

    /// As a signal does.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("something that ends well");
    }

    /// Where it stands.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl World {
    /// Starts whoever places gangs under a configuration, unless somebody does.
    pub(super) fn start_placer(&mut self, configuration: &OperatorConfiguration) {
        if self.scheduler.is_some() {
            return;
        }
        let policy = match (self.placer, configuration.scheduler.default_profile) {
            (Placer::Scheduler, ProfileName::GroveScheduler) => Policy::new(configuration),
            (Placer::Operator, ProfileName::DefaultScheduler) => Policy::pinning(configuration),
            _ => return,
        };
        let clock = self.cluster.clock();
        let settings = Settings {
            policy,
            clock: Arc::new(move || clock.now()),
            ..Settings::default()
        };
        let user = match self.placer {
            Placer::Operator => OPERATOR,
            Placer::Scheduler | Placer::Cluster => SCHEDULER,
        };
        let scheduler = Scheduler::new(self.cluster.client_as(User::named(user, &[])), settings);
        self.scheduler = Some(Running::start(|stop| async move { scheduler.run(stop).await }));
    }

    pub(super) async fn stop_placer(&mut self) {
        if let Some(running) = self.scheduler.take() {
            running.stop().await;
        }
    }

    /// What places gangs, if that ends with the operator.
    pub(super) fn placer_of_operator(&mut self) -> Option<Running> {
        self.scheduler.take_if(|_| self.placer == Placer::Operator)
    }

    /// Judges every moment since the beginning.
    pub(crate) fn audit(&self) -> Audit {
        // The scheduler is configured with the usual grace.
        Audit::of_history(self.history(), Terms::calm(Policy::default().grace))
    }
}
