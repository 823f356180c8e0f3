//! What keeps the parts of a release safe: restricted pods, budgets for disruptions, and policies for their network.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use grove_e2e::{ControlPlane, Identity, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::Api;
use serde_json::Value;

use crate::helm::kubectl;
use crate::{LIMIT, NAMESPACE};

const PARTS: [&str; 2] = ["grove-operator", "grove-scheduler"];

/// From now on the API server lets only pods of the restricted profile into the namespace of the release: those of the
/// Deployments, and that of the hook.
pub(crate) fn restrict(plane: &ControlPlane) -> Result<()> {
    let label = "pod-security.kubernetes.io/enforce=restricted";
    kubectl(plane, &["label", "namespace", NAMESPACE, label])?;
    let careless = [
        "run",
        "careless",
        "--image=registry.example/any",
        "--namespace",
        NAMESPACE,
    ];
    let refused = kubectl(plane, &careless).map_or_else(|error| error.to_string(), |_| "it was let in".to_owned());
    ensure!(refused.contains("violates PodSecurity"), "{refused}");
    Ok(())
}

/// One pod of each part may be taken away at a time, and the policies speak of the pods that there are.
pub(crate) async fn are_up(plane: &ControlPlane) -> Result<()> {
    let client = plane.client(Identity::Admin).await?;
    let budgets = Api::<PodDisruptionBudget>::namespaced(client.clone(), NAMESPACE);
    let policies = Api::<NetworkPolicy>::namespaced(client.clone(), NAMESPACE);
    let deployments = Api::<Deployment>::namespaced(client, NAMESPACE);
    for part in PARTS {
        eventually(format!("the budget of {part}"), LIMIT, async || -> Result<()> {
            let status = budgets.get(part).await?.status.context("nobody has counted yet")?;
            let (pods, allowed) = (status.expected_pods, status.disruptions_allowed);
            ensure!(
                (pods, allowed) == (Some(2), Some(1)),
                "{allowed:?} of {pods:?} pods may go"
            );
            Ok(())
        })
        .await?;
        let policy = serde_json::to_value(policies.get(part).await?)?;
        let pod = serde_json::to_value(deployments.get(part).await?)?["spec"]["template"].take();
        speaks_of(&policy["spec"], &pod).with_context(|| format!("the policy of {part}: {policy:#}"))?;
    }
    Ok(())
}

/// Whether a policy chooses the pod, opens the ports that it has and no others, and lets it go nowhere without a port.
fn speaks_of(policy: &Value, pod: &Value) -> Result<()> {
    let chosen = policy["podSelector"]["matchLabels"]
        .as_object()
        .context("it chooses by labels")?;
    ensure!(!chosen.is_empty(), "it chooses every pod");
    for (key, value) in chosen {
        ensure!(pod["metadata"]["labels"][key] == *value, "{key} is not {value}");
    }
    ensure!(
        policy["policyTypes"] == serde_json::json!(["Ingress", "Egress"]),
        "it leaves a way open"
    );
    let named = |ports: &Value, key: &str| -> BTreeSet<String> {
        let ports = ports.as_array().into_iter().flatten();
        ports.filter_map(|port| port[key].as_str().map(str::to_owned)).collect()
    };
    let has = named(&pod["spec"]["containers"][0]["ports"], "name");
    let rules = policy["ingress"].as_array().context("it says who may come in")?;
    let opened = rules.iter().flat_map(|rule| named(&rule["ports"], "port")).collect();
    ensure!(has == opened, "the pod has {has:?}, and {opened:?} are opened");
    let ways = policy["egress"].as_array().context("it says where pods may go")?;
    let is_bounded = |way: &Value| way["ports"].as_array().is_some_and(|ports| !ports.is_empty());
    ensure!(
        !ways.is_empty() && ways.iter().all(is_bounded),
        "it lets pods go anywhere"
    );
    Ok(())
}
