//! The scaling adapters of a graph: kept as it asks for them, and followed.

use std::sync::Arc;

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::{DynamoGraphDeploymentScalingAdapter, DynamoGraphDeploymentStatus};
use grove_runtime::{ObjectKey, WriteError};
use grove_workload::meta::uid;
use grove_workload::names::is_owned_by;

use super::Shell;
use super::look::stays;
use crate::status::adapter_status;
use crate::translate::{keep_numbers, wishes, with_wishes};

/// The graph's own adapters that stay.
fn own(shell: &Shell, graph: &DynamoGraphDeployment) -> Vec<Arc<DynamoGraphDeploymentScalingAdapter>> {
    let mut adapters = shell.view.adapters.of(&ObjectKey::of(&graph.metadata).to_string());
    adapters.retain(|adapter| is_owned_by(&adapter.metadata, uid(graph)) && stays(&**adapter));
    adapters
}

/// Writes into the graph what its adapters ask for; whether anything was written.
pub(super) async fn follow(shell: &Shell, graph: &DynamoGraphDeployment) -> Result<bool, Vec<WriteError>> {
    let adapters = own(shell, graph);
    let live: Vec<_> = adapters.iter().map(|adapter| &**adapter).collect();
    let (wishes, refused) = wishes(graph, &live);
    if !wishes.is_empty() {
        let wanted = with_wishes(&graph.spec, &wishes);
        tracing::info!(graph = %ObjectKey::of(&graph.metadata), ?wishes, "follows its scaling adapters");
        shell
            .write_components(graph, &wanted.components)
            .await
            .map_err(|error| vec![error])?;
        return Ok(true);
    }
    let refused: Vec<_> = refused
        .into_iter()
        .map(|violation| WriteError::Refused(violation.message))
        .collect();
    if refused.is_empty() { Ok(false) } else { Err(refused) }
}

/// Makes the graph have the adapters that it asks for, and no others.
pub(super) async fn keep(
    shell: &Shell,
    graph: &DynamoGraphDeployment,
    mut wanted: Vec<DynamoGraphDeploymentScalingAdapter>,
) -> Vec<WriteError> {
    let adapters = own(shell, graph);
    let live: Vec<_> = adapters.iter().map(|adapter| &**adapter).collect();
    keep_numbers(&mut wanted, &live);
    let changes = shell.changes(graph, wanted);
    shell.write(graph, changes).await
}

/// Tells autoscalers how the components are.
pub(super) async fn tell(
    shell: &Shell,
    graph: &DynamoGraphDeployment,
    status: &DynamoGraphDeploymentStatus,
) -> Vec<WriteError> {
    let mut errors = Vec::new();
    for adapter in own(shell, graph) {
        let wanted = adapter_status(graph, &adapter.spec.dgd_ref.component_name, status);
        if adapter.status.as_ref() != Some(&wanted) {
            errors.extend(shell.write_status(&*adapter, &wanted).await.err());
        }
    }
    errors
}
