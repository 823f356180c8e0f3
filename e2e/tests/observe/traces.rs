//! One gang from its apply until it runs, as a trace.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use grove_api::labels::annotation;
use grove_api::{PodCliqueSet, PodGang};
use grove_e2e::eventually;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::collector::{Collector, Sent};
use crate::stage::{LIMIT, NAMESPACE, Stage};

const SET: &str = "
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: traced}
spec:
  replicas: 1
  template:
    topologyConstraint: {pack: {required: rack}}
    cliques:
    - name: worker
      spec:
        roleName: worker
        replicas: 3
        podSpec:
          containers:
          - {name: server, image: 'registry.example/server:1', resources: {limits: {nvidia.com/gpu: 8}}}
";

/// The way of a gang, in the order in which its steps begin.
const WAY: [(&str, &str); 8] = [
    ("admit podcliqueset", "grove-operator"),
    ("validate podcliqueset", "grove-operator"),
    ("expand podcliqueset", "grove-operator"),
    ("create pods", "grove-operator"),
    ("form gang", "grove-operator"),
    ("lift gates", "grove-operator"),
    ("plan gang", "grove-scheduler"),
    ("start gang", "grove-operator"),
];

/// The first span of a name that tells of a set, or of a gang or clique of it.
fn find<'a>(spans: &'a [Sent], name: &str, set: &str) -> Option<&'a Sent> {
    let of_set = |sent: &&Sent| {
        let about = ["grove.podcliqueset.name", "grove.podgang.name"];
        let mut about = about.iter().filter_map(|key| sent.attribute(key));
        sent.span.name == name && about.any(|about| about.starts_with(set))
    };
    let mut found: Vec<&Sent> = spans.iter().filter(of_set).collect();
    found.sort_by_key(|sent| sent.span.start_time_unix_nano);
    found.first().copied()
}

/// As an annotation has it.
fn context(sent: &Sent) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("00-{}-{}-01", hex(&sent.span.trace_id), hex(&sent.span.span_id))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gang_is_followed_from_its_apply_until_it_runs() -> Result<()> {
    let collector = Collector::start().await?;
    let mut stage = Stage::start(&collector.env()).await?;
    stage.apply(SET).await?;
    stage.until("traced-0", "Ready", ("True", "PodsReady")).await?;
    eventually("all steps to be told", LIMIT, async || -> Result<()> {
        let spans = collector.spans();
        for (name, _) in WAY.into_iter().chain([("bind gang", "")]) {
            find(&spans, name, "traced").with_context(|| format!("there is no {name}"))?;
        }
        Ok(())
    })
    .await?;
    let spans = collector.spans();
    let admitted = find(&spans, "admit podcliqueset", "traced").context("the apply")?;
    ensure!(admitted.span.parent_span_id.is_empty(), "the way begins with it");
    let set = Api::<PodCliqueSet>::namespaced(stage.client.clone(), NAMESPACE);
    let gangs = Api::<PodGang>::namespaced(stage.client.clone(), NAMESPACE);
    let carried =
        |annotations: &std::collections::BTreeMap<String, String>| annotations.get(annotation::TRACE_CONTEXT).cloned();
    assert_eq!(carried(set.get("traced").await?.annotations()), Some(context(admitted)));
    assert_eq!(
        carried(gangs.get("traced-0").await?.annotations()),
        Some(context(admitted))
    );

    let mut before = 0;
    for (name, service) in WAY {
        let step = find(&spans, name, "traced").context(name)?;
        assert_eq!(step.span.trace_id, admitted.span.trace_id, "{name} is in the trace");
        assert_eq!(step.service, service, "{name}");
        assert!(step.span.start_time_unix_nano <= step.span.end_time_unix_nano, "{name}");
        // The start begins when the gang was placed, which its condition tells to the second.
        if name != "start gang" {
            assert!(step.span.start_time_unix_nano >= before, "{name} begins too early");
            before = step.span.start_time_unix_nano;
        }
        assert!(step.span.end_time_unix_nano >= before, "{name} ends too early");
        if name != "admit podcliqueset" {
            assert_eq!(
                step.span.parent_span_id, admitted.span.span_id,
                "{name} follows from the apply"
            );
        }
    }
    binds(&spans)?;
    attempts_are_linked(&stage, &collector).await?;
    names_are_few(&collector.spans());
    stage.stop().await
}

/// Binds are a part of the plan that they carry out.
fn binds(spans: &[Sent]) -> Result<()> {
    let plan = find(spans, "plan gang", "traced").context("the plan")?;
    let of_gang = find(spans, "bind gang", "traced").context("the binds")?;
    assert_eq!(of_gang.span.parent_span_id, plan.span.span_id);
    let of_pods = spans
        .iter()
        .filter(|sent| sent.span.parent_span_id == of_gang.span.span_id);
    let pods: BTreeSet<&str> = of_pods.filter_map(|sent| sent.attribute("k8s.pod.name")).collect();
    assert_eq!(pods.len(), 3, "{pods:?}");
    Ok(())
}

/// A gang that waits is tried again; that is a trace of its own, which says whose gang it is about.
async fn attempts_are_linked(stage: &Stage, collector: &Collector) -> Result<()> {
    let giant = SET
        .replace("name: traced", "name: giant")
        .replace("replicas: 3", "replicas: 5");
    stage.apply(&giant).await?;
    stage.until("giant-0", "Scheduled", ("False", "TooLarge")).await?;
    let nodes = Api::<Node>::all(stage.client.clone());
    let node = nodes.list(&Default::default()).await?.items[0].name_any();
    let relabel = json!({"metadata": {"labels": {"example.com/seen": "again"}}});
    nodes
        .patch(&node, &PatchParams::default(), &Patch::Merge(relabel))
        .await?;
    eventually("a second attempt", LIMIT, async || -> Result<()> {
        let spans = collector.spans();
        let admitted = find(&spans, "admit podcliqueset", "giant").context("the apply")?;
        let is_linked = |sent: &&Sent| {
            let mut links = sent.span.links.iter();
            sent.span.name == "plan gang" && links.any(|link| link.span_id == admitted.span.span_id)
        };
        let again = spans
            .iter()
            .find(is_linked)
            .context("no attempt is linked to the apply")?;
        ensure!(again.span.trace_id != admitted.span.trace_id, "it is in the same trace");
        ensure!(again.attribute("grove.result") == Some("unplaced"));
        Ok(())
    })
    .await?;
    Ok(())
}

/// What a step was about is in its attributes, never in its name.
fn names_are_few(spans: &[Sent]) {
    let names: BTreeSet<&str> = spans.iter().map(|sent| sent.span.name.as_str()).collect();
    let known: BTreeSet<&str> = WAY
        .iter()
        .map(|(name, _)| *name)
        .chain(["bind gang", "bind pod"])
        .collect();
    assert!(names.is_subset(&known), "{names:?}");
}
