//! The workload operator as its configuration wants it.

use std::sync::Arc;

use grove_api::config::{Controllers, OperatorConfiguration, ProfileName};
use grove_controllers::{Operator, Settings, StartError};
use grove_dynamo::controller::Controller;
use grove_dynamo::translate::Surroundings;
use grove_scheduler::{Metrics, Policy, Scheduler};
use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::exit::Failure;

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::NoAnswer(error.to_string())
    }
}

/// What the controllers go by; `image` holds this program.
pub(crate) fn settings(configuration: &OperatorConfiguration, image: &str) -> Settings {
    Settings {
        scheduler: configuration.scheduler.clone(),
        topology: configuration.topology_aware_scheduling.clone(),
        wait_image: image.to_owned(),
        pins: configuration.scheduler.has(ProfileName::DefaultScheduler),
        workers: workers(&configuration.controllers),
        clock: Arc::new(Timestamp::now),
    }
}

/// To whom all parts of an operator tell about themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Telemetry {
    pub(crate) operator: grove_controllers::Telemetry,
    /// Where the cluster's own scheduler binds, gangs are placed by the operator.
    pub(crate) placing: Metrics,
    pub(crate) admission: grove_admission::Metrics,
}

impl Telemetry {
    /// With a series of each metric, for whoever lists what there is.
    pub(crate) fn with_a_series_each() -> Self {
        let mut telemetry = Self {
            placing: Metrics::with_a_series_each(),
            admission: grove_admission::Metrics::with_a_series_each(),
            ..Self::default()
        };
        telemetry.operator.metrics = grove_controllers::Metrics::with_a_series_each();
        telemetry
    }
}

/// What the leader does until it is told to stop: first the topology that the configuration asks for, then the rest.
/// Where the cluster's own scheduler binds, gangs are placed here too; graphs of Dynamo are served where that is asked for.
pub(crate) async fn run(
    client: Client,
    (configuration, settings, telemetry): (&OperatorConfiguration, Settings, Telemetry),
    stop: CancellationToken,
) -> Result<(), Failure> {
    let Some(started) = stop
        .run_until_cancelled(grove_controllers::start(&client, &settings))
        .await
    else {
        return Ok(());
    };
    started?;
    let pins = settings.pins;
    let tracer = telemetry.operator.tracer.clone();
    let looks = telemetry.operator.metrics.looks().clone();
    let operator = Operator::with_telemetry(client.clone(), settings, telemetry.operator);
    let graphs_client = client.clone();
    let placer = async {
        if pins {
            let settings = grove_scheduler::Settings {
                policy: Policy::pinning(configuration),
                metrics: telemetry.placing,
                tracer,
                ..grove_scheduler::Settings::default()
            };
            Scheduler::new(client, settings).run(stop.clone()).await;
        }
    };
    let graphs = async {
        if configuration.dynamo.enabled {
            let controller = Controller::with_looks(graphs_client, graph_settings(configuration), looks);
            controller.run(stop.clone()).await;
        }
    };
    tokio::join!(operator.run(stop.clone()), placer, graphs);
    Ok(())
}

/// What the controller of Dynamo's graphs goes by.
fn graph_settings(configuration: &OperatorConfiguration) -> grove_dynamo::controller::Settings {
    grove_dynamo::controller::Settings {
        around: Surroundings::new(configuration),
        workers: workers(&configuration.controllers),
        clock: Arc::new(Timestamp::now),
    }
}

/// All kinds share their workers: what is idle in one helps another.
fn workers(controllers: &Controllers) -> usize {
    let kinds = [
        &controllers.pod_clique_set,
        &controllers.pod_clique,
        &controllers.pod_clique_scaling_group,
        &controllers.pod_gang,
    ];
    let syncs = kinds.map(|kind| usize::try_from(kind.concurrent_syncs.get()).unwrap_or(usize::MAX));
    syncs.into_iter().fold(0, usize::saturating_add)
}
