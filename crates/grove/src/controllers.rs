//! The workload operator as its configuration wants it.

use std::sync::Arc;

use grove_api::config::{Controllers, OperatorConfiguration};
use grove_controllers::{Operator, Settings};
use jiff::Timestamp;
use kube::Client;

/// The operator; `image` holds this program.
pub(crate) fn operator(configuration: &OperatorConfiguration, client: Client, image: &str) -> Operator {
    let settings = Settings {
        scheduler: configuration.scheduler.default_profile.as_str().to_owned(),
        wait_image: image.to_owned(),
        workers: workers(&configuration.controllers),
        clock: Arc::new(Timestamp::now),
    };
    Operator::new(client, settings)
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
