//! What the demo tells: workloads applied as a user would, and where each landed or why it waits, in the words of their
//! own status. A step that does not come out as it should ends the story with the reason.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt as _;
use grove_api::podgang::{PendingExplanation, PodGangPhase, ScopePlacement};
use grove_api::{DynamoGraphDeployment, PodCliqueScalingGroup, PodCliqueSet, PodGang, labels};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::look::{Look, Tone};
use crate::racks::LEVELS;

const NAMESPACE: &str = "default";

const DISAGGREGATED: &str = include_str!("../../../../../examples/demo/llama-disagg.yaml");
const ELASTIC: &str = include_str!("../../../../../examples/demo/qwen-elastic.yaml");
const GIANT: &str = include_str!("../../../../../examples/demo/moe-giant.yaml");
const GRAPH: &str = include_str!("../../../../../examples/demo/dgd-vllm.yaml");

/// The scaling group that grows, and how far.
const GROWS: &str = "qwen-elastic-0-server";
const GROWN: usize = 4;

/// Tells one line after the other, each with the time since the start.
pub(super) struct Story {
    client: Client,
    begun: Instant,
    /// How long one step may take.
    patience: Duration,
    /// Hosts in a rack.
    rack: usize,
    look: Look,
}

impl Story {
    pub(super) fn new(client: Client, begun: Instant, patience: Duration, rack: usize) -> Self {
        Self {
            client,
            begun,
            patience,
            rack,
            look: Look::of_stdout(),
        }
    }

    pub(super) fn tell(&self, who: &str, what: &str) {
        let time = format!("{:>5.1}s", self.begun.elapsed().as_secs_f64());
        let (time, who) = (self.look.paint(Tone::Quiet, &time), format!("{who:<13}"));
        println!("{time}  {} {what}", self.look.paint(Tone::Head, &who));
    }

    /// The whole of it. Three are applied at once, as a cluster gets them, and told one after the other; the graph comes
    /// when the group has grown, so that it does not take the room that the group grows into.
    pub(super) async fn run(&self) -> Result<()> {
        let disaggregated = self.create::<PodCliqueSet>(read(DISAGGREGATED)?).await?;
        let elastic = self.create::<PodCliqueSet>(read(ELASTIC)?).await?;
        let giant = self.create(self.giant()?).await?;
        // Nested constraints: a block, and racks inside it.
        self.tell_landed(&disaggregated).await?;
        self.tell_landed(&elastic).await?;
        self.tell_waiting(&giant).await?;
        self.tell_grown(&elastic).await?;
        let graph = self.create::<DynamoGraphDeployment>(read(GRAPH)?).await?;
        self.tell_served(&graph).await?;
        self.tell("complete", "three workloads run, one waits, and each says where or why");
        Ok(())
    }

    /// A scaling group grows, inside its block.
    async fn tell_grown(&self, set: &str) -> Result<()> {
        let groups: Api<PodCliqueScalingGroup> = Api::namespaced(self.client.clone(), NAMESPACE);
        let scale = json!({"spec": {"replicas": GROWN}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&scale));
        let scaled = groups.patch_scale(GROWS, &params, &patch).await;
        scaled.with_context(|| format!("cannot scale {GROWS}"))?;
        let gangs = self.running(set, GROWN).await?;
        self.tell(set, &format!("scaled from 1 to {GROWN}: {}", spread(&gangs)));
        Ok(())
    }

    /// A gang is too large, and says so.
    async fn tell_waiting(&self, set: &str) -> Result<()> {
        let gangs = self.gangs_when(set, 1, |gang| pending(gang).is_some()).await?;
        let pending = gangs.first().and_then(pending).context("a gang that waits says why")?;
        let PendingExplanation { reason, message, .. } = &pending;
        ensure!(
            reason == "TooLarge",
            "{set} was to be too large, and is {reason}: {message}"
        );
        let state = self.look.paint(Tone::Warn, "PENDING");
        self.tell(set, &format!("{state}, on purpose. {reason}: {message}"));
        if let Some(fix) = pending.would_fit_if.first() {
            self.tell("", &format!("it would run if {fix}"));
        }
        Ok(())
    }

    /// A graph of Dynamo runs as a gang of a set of its own name, and says so itself.
    async fn tell_served(&self, graph: &str) -> Result<()> {
        let gangs = self.running(graph, 1).await?;
        let graphs: Api<DynamoGraphDeployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        let is_served = |graph: Option<&DynamoGraphDeployment>| {
            let state = graph.and_then(|graph| graph.status.as_ref()?.state.as_deref());
            state == Some("successful")
        };
        let served = await_condition(graphs, graph, is_served);
        tokio::time::timeout(self.patience, served)
            .await
            .with_context(|| format!("the gang of {graph} runs, and the graph does not say so"))??;
        for gang in gangs {
            self.tell(graph, &format!("Dynamo graph: {}", landed(&gang)));
        }
        Ok(())
    }

    async fn tell_landed(&self, set: &str) -> Result<()> {
        for gang in self.running(set, 1).await? {
            self.tell(set, &landed(&gang));
        }
        Ok(())
    }

    /// One host more than a rack of this cluster has.
    fn giant(&self) -> Result<PodCliqueSet> {
        let mut set: PodCliqueSet = read(GIANT)?;
        for clique in &mut set.spec.template.cliques {
            clique.spec.replicas = i32::try_from(self.rack + 1)?;
        }
        Ok(set)
    }

    async fn create<K>(&self, object: K) -> Result<String>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let name = object.name_any();
        let api: Api<K> = Api::namespaced(self.client.clone(), NAMESPACE);
        let created = api.create(&PostParams::default(), &object).await;
        created.with_context(|| format!("cannot create {name}"))?;
        Ok(name)
    }

    /// The gangs of a set, once there are that many and all of them run.
    async fn running(&self, set: &str, count: usize) -> Result<Vec<PodGang>> {
        self.gangs_when(set, count, |gang| phase(gang) == PodGangPhase::Running)
            .await
    }

    async fn gangs_when(&self, set: &str, count: usize, is_so: impl Fn(&PodGang) -> bool) -> Result<Vec<PodGang>> {
        let api: Api<PodGang> = Api::namespaced(self.client.clone(), NAMESPACE);
        let selector = format!("{}={set}", labels::PART_OF);
        let listed = ListParams::default().labels(&selector);
        let changes = watcher(api.clone(), watcher::Config::default().labels(&selector));
        let mut changes = std::pin::pin!(changes.default_backoff().touched_objects());
        let until = tokio::time::Instant::now() + self.patience;
        loop {
            let gangs = api.list(&listed).await?.items;
            if gangs.len() == count && gangs.iter().all(&is_so) {
                return Ok(gangs);
            }
            if tokio::time::timeout_at(until, changes.next()).await.is_err() {
                bail!("{}", why_not(set, (&gangs, count), self.patience));
            }
        }
    }
}

fn read<K: DeserializeOwned>(manifest: &str) -> Result<K> {
    serde_saphyr::from_str(manifest).context("a manifest of the demo")
}

fn phase(gang: &PodGang) -> PodGangPhase {
    gang.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

fn pending(gang: &PodGang) -> Option<PendingExplanation> {
    gang.status.as_ref()?.pending.clone()
}

/// What gangs that do not come to run say about it.
fn why_not(set: &str, (gangs, count): (&[PodGang], usize), patience: Duration) -> String {
    let says = gangs.iter().find_map(pending).map_or_else(
        || format!("{} of {count} gangs exist", gangs.len()),
        |pending| pending.message,
    );
    let seconds = patience.as_secs();
    format!(
        "{set} is not as it should be after {seconds} s: {says}; if there is too little room, give more nodes (--nodes)"
    )
}

/// Where a gang is: "7 pods, one gang: block z1b1; prefill in rack z1b1r1".
fn landed(gang: &PodGang) -> String {
    let own = gang.name_any();
    let places = required_places(gang).map(|ScopePlacement { scope, level, domains }| {
        let place = format!("{level} {}", domains.join(", "));
        match scope.strip_prefix(&own).and_then(|part| part.strip_prefix('-')) {
            Some(part) => format!("{part} in {place}"),
            None => place,
        }
    });
    let places: Vec<String> = places.collect();
    format!("{} pods, one gang: {}", pods(gang), places.join("; "))
}

/// Where several gangs are: "8 pods, 4 gangs: block z1b2; rack z1b2r1, z1b2r2".
fn spread(gangs: &[PodGang]) -> String {
    let places: Vec<&ScopePlacement> = gangs.iter().flat_map(required_places).collect();
    let at_level = |(level, _): &(&str, &str)| {
        let domains = places.iter().filter(|place| place.level == *level);
        let domains: BTreeSet<&str> = domains.flat_map(|place| &place.domains).map(String::as_str).collect();
        let names: Vec<&str> = domains.into_iter().collect();
        (!names.is_empty()).then(|| format!("{level} {}", names.join(", ")))
    };
    let places: Vec<String> = LEVELS.iter().filter_map(at_level).collect();
    let count: usize = gangs.iter().map(pods).sum();
    format!("{count} pods, {} gangs: {}", gangs.len(), places.join("; "))
}

fn pods(gang: &PodGang) -> usize {
    gang.spec
        .pod_groups
        .iter()
        .map(|group| group.pod_references.len())
        .sum()
}

/// The places of a gang's scopes at the level that each requires; the others follow from them.
fn required_places(gang: &PodGang) -> impl Iterator<Item = &ScopePlacement> {
    let places = gang.status.iter().flat_map(|status| &status.placement);
    places.filter(|place| {
        let mut levels = LEVELS.iter();
        let key = levels.find(|(word, _)| *word == place.level).map(|(_, key)| *key);
        key.is_some() && required(gang, &place.scope) == key
    })
}

/// The label key of the level that a scope of a gang requires.
fn required<'a>(gang: &'a PodGang, scope: &str) -> Option<&'a str> {
    let spec = &gang.spec;
    let groups = spec.topology_constraint_group_configs.iter();
    let groups = groups.map(|group| (group.name.as_str(), &group.topology_constraint));
    let cliques = spec.pod_groups.iter();
    let cliques = cliques.map(|clique| (clique.name.as_str(), &clique.topology_constraint));
    let mut parts = groups.chain(cliques).filter(|(name, _)| *name == scope);
    let constraint = match scope == gang.metadata.name.as_deref().unwrap_or_default() {
        true => &spec.topology_constraint,
        false => parts.next()?.1,
    };
    constraint.as_ref()?.pack_constraint.as_ref()?.required.as_deref()
}
