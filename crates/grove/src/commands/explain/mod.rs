//! `grove explain pcs|pg NAME`: why a gang waits, or where it runs and how well.
//!
//! It reads what whoever places has written on the PodGang, so it says what `kubectl` shows and needs no more rights than
//! its reader has. Only with `--deep` is anything computed again: whether a gang that runs would be placed better today.

mod better;

use std::process::ExitCode;

use grove_api::podgang::{PendingExplanation, ScopePlacement, Waiting};
use grove_api::{ClusterTopology, PodClique, PodCliqueSet, PodGang, labels};
use grove_topology::Topology;
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde::Serialize;

use crate::client::Cluster;
use crate::commands::status::{Part, members};
use crate::exit::{self, Failure};
use crate::follow::{Screen, follow, kept, objects};
use crate::look::{Look, Tone};
use crate::output::{self, Answer, Format, columns, headed, row};
use crate::target::Target;
use crate::words::{self, age};
use better::Today;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to explain: pcs, all gangs of a PodCliqueSet; pg, one PodGang
    #[arg(value_enum)]
    kind: Kind,
    /// Its name
    name: String,
    /// The namespace to look in; by default that of the context
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Also says whether gangs that run would be placed better today; reads all nodes and pods
    #[arg(long)]
    deep: bool,
    /// Go on, and explain it again whenever it changes
    #[arg(short, long, conflicts_with = "deep")]
    watch: bool,
    /// How to print: table for people, json or yaml for programs
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl Args {
    fn namespace<'a>(&'a self, cluster: &'a Cluster) -> &'a str {
        self.namespace.as_deref().unwrap_or(&cluster.namespace)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Pcs,
    Pg,
}

/// Where one gang stands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    gang: String,
    state: &'static str,
    /// Of a gang that lost members: its pods that have a node, and those that it should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Part>,
    /// Since when it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// The sentence of the gang's `Scheduled` condition.
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<Scope>,
    /// What a restart would gain it today.
    #[serde(skip_serializing_if = "Option::is_none")]
    today: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<PendingExplanation>,
}

/// Where a part of a gang lies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Scope {
    #[serde(flatten)]
    place: ScopePlacement,
    /// What the gang asked of that level.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<&'static str>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    exit::answer(answer(args, Timestamp::now))
}

async fn answer(args: &Args, clock: fn() -> Timestamp) -> Result<ExitCode, Failure> {
    let cluster = Cluster::reach(&args.target).await?;
    let failed = |error| cluster.failed(error);
    let gangs = gangs(&cluster, args).await?;
    if args.watch {
        return watch(&cluster, args, clock).await;
    }
    let mut items = items(&cluster.client, &gangs).await;
    if args.deep {
        let mut today = Today::read(&cluster.client).await.map_err(failed)?;
        for (item, gang) in items.iter_mut().zip(&gangs).filter(|(item, _)| item.state == RUNNING) {
            item.today = Some(today.better(gang));
        }
    }
    let answer = Answer::new("Explanation", clock(), items);
    output::print(args.output, &answer, table)?;
    let is_pending = answer.items.iter().any(|item| item.state != RUNNING);
    Ok(if is_pending {
        exit::FINDING.into()
    } else {
        ExitCode::SUCCESS
    })
}

/// The same again whenever one of the gangs changes.
async fn watch(cluster: &Cluster, args: &Args, clock: fn() -> Timestamp) -> Result<ExitCode, Failure> {
    let asked = match args.kind {
        Kind::Pg => watcher::Config::default().fields(&format!("metadata.name={}", args.name)),
        Kind::Pcs => watcher::Config::default().labels(&selector(args)),
    };
    let (gangs, changes) = kept::<PodGang>(Api::namespaced(cluster.client.clone(), args.namespace(cluster)), asked);
    follow(vec![changes], Screen::new(args.output), async |screen| {
        let items = items(&cluster.client, &objects(&gangs)).await;
        screen.show(&Answer::new("Explanation", clock(), items), table)
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

/// The gangs of a set.
fn selector(args: &Args) -> String {
    format!("{}={}", labels::PART_OF, args.name)
}

/// The gangs that are asked about.
async fn gangs(cluster: &Cluster, args: &Args) -> Result<Vec<PodGang>, Failure> {
    let failed = |error| cluster.failed(error);
    let namespace = args.namespace(cluster);
    let api: Api<PodGang> = Api::namespaced(cluster.client.clone(), namespace);
    let found = match args.kind {
        Kind::Pg => api.get_opt(&args.name).await.map_err(failed)?.into_iter().collect(),
        Kind::Pcs => {
            api.list(&ListParams::default().labels(&selector(args)))
                .await
                .map_err(failed)?
                .items
        }
    };
    if found.is_empty() {
        let known = names(&cluster.client, (args.kind, namespace)).await.map_err(failed)?;
        return Err(Failure::Usage(not_found((args.kind, &args.name), namespace, &known)));
    }
    Ok(found)
}

/// Where each gang stands.
async fn items(client: &Client, gangs: &[PodGang]) -> Vec<Item> {
    let topologies = topologies(client, gangs).await;
    let mut items = Vec::new();
    for gang in gangs {
        let mut item = item(gang, &topologies);
        if item.state == DEGRADED {
            item.members = Some(members(gang, &cliques(client, gang).await));
        }
        items.push(item);
    }
    items
}

/// The cliques whose pods a gang holds. Whoever may not read them does without.
async fn cliques(client: &Client, gang: &PodGang) -> Vec<PodClique> {
    let api: Api<PodClique> = Api::namespaced(client.clone(), &gang.namespace().unwrap_or_default());
    let mut cliques = Vec::new();
    for group in &gang.spec.pod_groups {
        cliques.extend(api.get_opt(&group.name).await.ok().flatten());
    }
    cliques
}

/// The topologies that the gangs use, for their words. Whoever may not read them does without.
async fn topologies(client: &Client, gangs: &[PodGang]) -> Vec<Topology> {
    let mut names: Vec<&String> = gangs
        .iter()
        .filter_map(|gang| gang.spec.topology_ref.as_ref())
        .collect();
    names.sort_unstable();
    names.dedup();
    let api: Api<ClusterTopology> = Api::all(client.clone());
    let mut topologies = Vec::new();
    for name in names {
        let found = api.get_opt(name).await.ok().flatten();
        topologies.extend(found.map(|object| Topology::from(&object)));
    }
    topologies
}

async fn names(client: &Client, (kind, namespace): (Kind, &str)) -> kube::Result<Vec<String>> {
    let all = ListParams::default();
    Ok(match kind {
        Kind::Pg => {
            let api: Api<PodGang> = Api::namespaced(client.clone(), namespace);
            api.list_metadata(&all)
                .await?
                .iter()
                .map(ResourceExt::name_any)
                .collect()
        }
        Kind::Pcs => {
            let api: Api<PodCliqueSet> = Api::namespaced(client.clone(), namespace);
            api.list_metadata(&all)
                .await?
                .iter()
                .map(ResourceExt::name_any)
                .collect()
        }
    })
}

fn not_found((kind, name): (Kind, &String), namespace: &str, known: &[String]) -> String {
    if kind == Kind::Pcs && known.contains(name) {
        return format!("PodCliqueSet \"{name}\" in namespace {namespace} has no gangs yet; is the operator running?");
    }
    let kind = match kind {
        Kind::Pcs => "PodCliqueSet",
        Kind::Pg => "PodGang",
    };
    words::not_found(kind, name, namespace, known)
}

const RUNNING: &str = "Running";
const PENDING: &str = "Pending";
/// It was placed whole and has lost members since; the others run.
const DEGRADED: &str = "Degraded";

/// What a gang asks of each level of each of its scopes.
fn asked(gang: &PodGang, topologies: &[Topology], place: &ScopePlacement) -> Option<&'static str> {
    let topology = gang.spec.topology_ref.as_ref()?;
    let topology = topologies.iter().find(|known| known.name() == topology)?;
    let key = topology.key(&place.level)?;
    let spec = &gang.spec;
    let configs = spec.topology_constraint_group_configs.iter();
    let configs = configs.map(|config| (&config.name, &config.topology_constraint));
    let groups = spec
        .pod_groups
        .iter()
        .map(|group| (&group.name, &group.topology_constraint));
    let own = (&gang.name_any(), &spec.topology_constraint);
    let constraint = std::iter::once(own)
        .chain(configs)
        .chain(groups)
        .find_map(|(name, constraint)| (*name == place.scope).then_some(constraint.as_ref())?);
    let pack = constraint?.pack_constraint.as_ref()?;
    if pack.required.as_deref() == Some(key) {
        return Some("required");
    }
    let is_preferred = pack.preferred.as_deref() == Some(key);
    is_preferred.then_some(if place.domains.len() == 1 {
        "preferred, met"
    } else {
        "preferred, not met"
    })
}

fn item(gang: &PodGang, topologies: &[Topology]) -> Item {
    let status = gang.status.clone().unwrap_or_default();
    let scheduled = status.scheduled();
    let is_running = scheduled.is_some_and(|condition| condition.status == "True");
    let unseen = "no scheduler has looked at it yet; is one running?";
    Item {
        gang: gang.name_any(),
        state: match is_running {
            true => RUNNING,
            false if status.is_degraded() => DEGRADED,
            false => PENDING,
        },
        members: None,
        since: scheduled.map(|condition| condition.last_transition_time.0),
        message: scheduled.map_or(unseen.to_owned(), |condition| condition.message.clone()),
        score: status.placement_score,
        scopes: status
            .placement
            .into_iter()
            .map(|place| Scope {
                asked: asked(gang, topologies, &place),
                place,
            })
            .collect(),
        today: None,
        pending: status.pending,
    }
}

fn table(answer: &Answer<Item>, look: Look) -> String {
    let now = answer.generated_at;
    if answer.items.is_empty() {
        return "no gangs any more".to_owned();
    }
    let paragraphs: Vec<String> = answer
        .items
        .iter()
        .map(|item| match &item.pending {
            Some(pending) if item.state != RUNNING => waiting(item, pending, (now, look)),
            _ if item.state != RUNNING => format!("{}  {}", head(item, now, look), item.message),
            _ => running(item, now, look),
        })
        .collect();
    paragraphs.join("\n\n")
}

/// "train-0  PENDING 4m12s", "train-0  DEGRADED 6/7 12s"
fn head(item: &Item, now: Timestamp, look: Look) -> String {
    let age = item
        .since
        .map(|since| format!(" {}", age(since, now)))
        .unwrap_or_default();
    let tone = if item.state == RUNNING { Tone::Good } else { Tone::Warn };
    let members = item.members.map(|members| format!(" {members}")).unwrap_or_default();
    let state = look.paint(tone, &format!("{}{members}", item.state.to_uppercase()));
    format!("{}  {state}{age}", look.paint(Tone::Head, &item.gang))
}

fn waiting(item: &Item, pending: &PendingExplanation, (now, look): (Timestamp, Look)) -> String {
    let head = head(item, now, look);
    let mut lines = vec![format!("{head}  {}: {}", pending.reason, pending.message)];
    lines.push(match pending.waiting {
        Waiting::Wait => "  it is placed as soon as it fits".to_owned(),
        Waiting::Act => "  waiting will not help: somebody has to do something".to_owned(),
        Waiting::Never => "  waiting will not help: this cluster cannot hold it".to_owned(),
    });
    if !pending.nearest.is_empty() {
        let level = pending.level.as_deref().unwrap_or("domain").to_uppercase();
        let mut rows = vec![row([&level, "FREE", "MISSING", "HELD BY"])];
        rows.extend(pending.nearest.iter().map(|near| {
            let blockers = match near.blockers.as_slice() {
                [] => "nobody".to_owned(),
                some => some.join(", "),
            };
            row([&near.domain, &near.free, &near.missing, &blockers])
        }));
        lines.extend(headed(&rows, look).lines().map(|line| format!("  {line}")));
    }
    if !pending.would_fit_if.is_empty() {
        lines.push(format!("  would run if  {}", pending.would_fit_if.join(" | ")));
    }
    if !item.scopes.is_empty() {
        lines.push("  its other pods run in".to_owned());
        lines.extend(places(item));
    }
    lines.join("\n")
}

fn running(item: &Item, now: Timestamp, look: Look) -> String {
    let score = item
        .score
        .map(|score| format!("  score {score:.2}"))
        .unwrap_or_default();
    let quality = match item.score {
        Some(score) if score < 1.0 => "spilled: a preferred level is not met",
        _ => "well placed",
    };
    let mut lines = vec![format!("{}  {quality}{score}", head(item, now, look))];
    lines.extend(places(item));
    if let Some((_, regret)) = item.message.split_once("; ") {
        lines.push(format!("  then  {regret}"));
    }
    lines.extend(item.today.iter().map(|today| format!("  now   {today}")));
    lines.join("\n")
}

/// The lines of a table that tells where the parts of a gang are.
fn places(item: &Item) -> Vec<String> {
    let rows: Vec<Vec<String>> = item
        .scopes
        .iter()
        .map(|Scope { place, asked }| {
            let domains = place.domains.join(", ");
            row([&place.scope, &place.level, &domains, asked.unwrap_or_default()])
        })
        .collect();
    columns(&rows).lines().map(|line| format!("  {line}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gang(status: serde_json::Value) -> PodGang {
        let object = json!({"metadata": {"name": "train-0"}, "spec": {"podgroups": []}, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn told(status: serde_json::Value) -> String {
        let now: Timestamp = "2026-01-01T00:04:12Z".parse().unwrap();
        let answer = Answer::new("Explanation", now, vec![item(&gang(status), &[])]);
        table(&answer, Look::PLAIN)
    }

    fn condition(status: &str) -> serde_json::Value {
        json!({"type": "Scheduled", "status": status, "reason": "R", "message": "m",
               "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn a_gang_that_waits_tells_its_proof() {
        let nearest = json!([{"domain": "r2", "free": "room for 3 of 4 pods of w", "missing": "room for 1 pod",
            "blockers": ["serve-0 (1 pod, priority 0)"]}]);
        let pending = json!({"reason": "Fragmented", "message": "no rack has 4 free hosts", "waiting": "Wait",
            "level": "rack", "nearest": nearest, "wouldFitIf": ["the level were block"]});
        let expected = "train-0  PENDING 4m12s  Fragmented: no rack has 4 free hosts\n  it is placed as soon as it fits\n  \
                        RACK  FREE                       MISSING         HELD BY\n  \
                        r2    room for 3 of 4 pods of w  room for 1 pod  serve-0 (1 pod, priority 0)\n  \
                        would run if  the level were block";
        assert_eq!(
            told(json!({"conditions": [condition("False")], "pending": pending})),
            expected
        );
    }

    #[test]
    fn a_gang_that_runs_tells_where() {
        let placement = json!([{"scope": "train-0", "level": "rack", "domains": ["r1"]}]);
        let status = json!({"conditions": [condition("True")], "placementScore": 1.0, "placement": placement});
        assert_eq!(
            told(status),
            "train-0  RUNNING 4m12s  well placed  score 1.00\n  train-0  rack  r1"
        );
    }

    #[test]
    fn a_gang_that_lost_members_tells_why_they_wait_and_where_the_others_run() {
        let mut lost = condition("False");
        lost["reason"] = json!("MembersMissing");
        let placement = json!([{"scope": "train-0", "level": "rack", "domains": ["r1"]}]);
        let pending = json!({"reason": "ReplicaPinned", "message": "r1 is full", "waiting": "Wait"});
        let status = json!({"conditions": [lost], "placement": placement, "pending": pending});
        assert_eq!(
            told(status),
            "train-0  DEGRADED 4m12s  ReplicaPinned: r1 is full\n  it is placed as soon as it fits\n  \
             its other pods run in\n  train-0  rack  r1"
        );
    }

    #[test]
    fn a_gang_that_nobody_looked_at_says_so() {
        assert_eq!(
            told(json!({})),
            "train-0  PENDING  no scheduler has looked at it yet; is one running?"
        );
    }
}
