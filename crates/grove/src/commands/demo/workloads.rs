//! The demo's workloads: applied as a user would, and told when they run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use grove_api::conditions::podcliqueset::READY;
use grove_api::{PodCliqueSet, PodGang, labels};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Client, ResourceExt};

use crate::racks::LEVELS;

const NAMESPACE: &str = "default";

/// The workloads that the demo runs, as files that users start from.
const MANIFESTS: [(&str, &str); 3] = [
    ("simple.yaml", include_str!("../../../../../examples/simple.yaml")),
    (
        "ordered-start.yaml",
        include_str!("../../../../../examples/ordered-start.yaml"),
    ),
    (
        "disaggregated.yaml",
        include_str!("../../../../../examples/disaggregated.yaml"),
    ),
];

/// Applies every workload and waits until all of its replicas are available.
pub(super) async fn run(client: &Client, patience: Duration) -> Result<()> {
    let api: Api<PodCliqueSet> = Api::namespaced(client.clone(), NAMESPACE);
    for (file, manifest) in MANIFESTS {
        let begun = Instant::now();
        let set: PodCliqueSet = serde_saphyr::from_str(manifest).with_context(|| file.to_owned())?;
        let name = set.name_any();
        api.create(&PostParams::default(), &set)
            .await
            .with_context(|| format!("cannot create {name}"))?;
        let ready = await_condition(api.clone(), &name, is_available());
        match tokio::time::timeout(patience, ready).await {
            Ok(ended) => drop(ended?),
            Err(_) => bail!("{}", why_not(&api, &name, patience).await),
        }
        println!("workload  {name} runs after {:.1} s", begun.elapsed().as_secs_f64());
        for line in gangs(client, &name).await? {
            println!("          {line}");
        }
    }
    Ok(())
}

/// What a set that does not run says about it.
async fn why_not(api: &Api<PodCliqueSet>, name: &str, patience: Duration) -> String {
    let status = api
        .get_status(name)
        .await
        .ok()
        .and_then(|set| set.status)
        .unwrap_or_default();
    let mut ready = status.conditions.iter().filter(|condition| condition.type_ == READY);
    let says = match (ready.next(), status.last_errors.first()) {
        (_, Some(error)) => error.description.clone(),
        (Some(ready), None) => ready.message.clone(),
        (None, None) => "the operator has not said why".to_owned(),
    };
    let seconds = patience.as_secs();
    format!("{name} does not run after {seconds} s: {says}; if there is too little room, give more nodes (--nodes)")
}

fn is_available() -> impl Condition<PodCliqueSet> {
    |set: Option<&PodCliqueSet>| {
        set.is_some_and(|set| {
            let available = set.status.as_ref().map(|status| status.available_replicas);
            available.is_some_and(|available| available > 0 && available == set.spec.replicas)
        })
    }
}

/// One line a gang: how many pods it has, and in which racks they are.
async fn gangs(client: &Client, set: &str) -> Result<Vec<String>> {
    let selector = ListParams::default().labels(&format!("{}={set}", labels::PART_OF));
    let gangs = Api::<PodGang>::namespaced(client.clone(), NAMESPACE)
        .list(&selector)
        .await?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE)
        .list(&selector)
        .await?;
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let rack_of = |node: &Node| node.labels().get(LEVELS[2].1).cloned().unwrap_or_default();
    let racks: BTreeMap<String, String> = nodes.iter().map(|node| (node.name_any(), rack_of(node))).collect();
    let line = |gang: &PodGang| {
        let name = gang.name_any();
        let its = pods
            .iter()
            .filter(|pod| pod.labels().get(labels::PODGANG) == Some(&name));
        let nodes: Vec<&str> = its.filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).collect();
        let racks: BTreeSet<&str> = nodes
            .iter()
            .filter_map(|node| racks.get(*node).map(String::as_str))
            .collect();
        let racks: Vec<&str> = racks.into_iter().collect();
        format!("gang {name:<26} {:>2} pods in {}", nodes.len(), racks.join(", "))
    };
    Ok(gangs.iter().map(line).collect())
}
