//! The way to the API server is cut and held up, and the API server has no room for the operator.

use std::collections::BTreeSet;

use anyhow::Result;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::proxy::HOME;
use crate::space::Space;
use crate::stage::{Stage, recovery};

/// Name of the priority level without a seat, and of who is sent there.
const STARVED: &str = "starved";

#[tokio::test(flavor = "multi_thread")]
async fn the_way_to_the_api_server_is_cut_and_held_up() -> Result<()> {
    let mut stage = Stage::shared("way").await?;
    let operator = stage.sole_operator().await?;
    stage.calm().await?;
    stage.create("w", 30).await?;
    for made in [5, 10, 15] {
        stage.has_at_least(made).await?;
        operator.proxy.cut();
    }
    let before = recovery("watches cut three times", stage.all_ready(30, &BTreeSet::new())).await?;

    // What happens meanwhile is heard late, and all at once.
    operator.proxy.freeze(true);
    for replicas in [35, 31, 45] {
        stage.scale(replicas).await?;
    }
    operator.proxy.freeze(false);
    let before = recovery("watches frozen", stage.all_ready(45, &before)).await?;

    // What was held up never comes.
    operator.proxy.freeze(true);
    stage.scale(50).await?;
    operator.proxy.cut();
    operator.proxy.freeze(false);
    recovery("watches frozen, then cut", stage.all_ready(50, &before)).await?;
    Ok(())
}

/// Priority and fairness leave the operator no seat, and refuse it with 429.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_has_no_room_for_the_operator() -> Result<()> {
    let mut stage = Stage::shared("starved").await?;
    let _operator = stage.sole_operator().await?;
    stage.calm().await?;
    stage.create("w", 20).await?;
    let before = stage.all_ready(20, &BTreeSet::new()).await?;
    starve(&stage.space.client).await?;
    stage.scale(40).await?;
    let refused = is_starved(&stage.space).await;
    let schemas: Api<FlowSchema> = Api::all(stage.space.client.clone());
    schemas.delete(STARVED, &DeleteParams::default()).await?;
    refused?;
    recovery("requests refused with 429", stage.all_ready(40, &before)).await?;
    Ok(())
}

/// Leaves the operator no seat at the API server.
async fn starve(client: &Client) -> Result<()> {
    let level = json!({"metadata": {"name": STARVED}, "spec": {"type": "Limited",
        "limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"}}}});
    let anything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
        "clusterScope": true}]);
    let subject = json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": HOME, "name": "grove-operator"}}]);
    let schema = json!({"metadata": {"name": STARVED}, "spec": {"matchingPrecedence": 2,
        "priorityLevelConfiguration": {"name": STARVED}, "rules": [{"subjects": subject, "resourceRules": anything}]}});
    let level: PriorityLevelConfiguration = serde_json::from_value(level)?;
    let schema: FlowSchema = serde_json::from_value(schema)?;
    let params = PostParams::default();
    Api::all(client.clone()).create(&params, &level).await?;
    Api::all(client.clone()).create(&params, &schema).await?;
    Ok(())
}

/// Waits until the API server has refused the operator.
async fn is_starved(space: &Space) -> Result<()> {
    space
        .until("the operator to be refused", async |space| {
            let request = http::Request::get("/metrics").body(Vec::new())?;
            let metrics = space.client.request_text(request).await?;
            let mut counts = metrics
                .lines()
                .filter(|line| line.starts_with("apiserver_flowcontrol_rejected_requests_total"));
            Ok(counts.any(|line| line.contains(STARVED)))
        })
        .await
}
