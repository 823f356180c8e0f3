//! `grove status [NAME]`: one line for each PodCliqueSet: how much of it runs, where, how well, and why not.
//!
//! It reads sets, gangs and cliques, which their author may read, and computes nothing anew: the words are those of the
//! objects. A list ends with exit code 0 whatever is in it; who asks about one set by its name gets 1 while a gang of it
//! waits or has lost pods, as from `grove explain`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use grove_api::{PodClique, PodCliqueSet, PodGang, labels};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use serde::Serialize;

use crate::client::Cluster;
use crate::exit::{self, Failure};
use crate::follow::{Screen, follow, kept, objects};
use crate::look::{Look, Tone};
use crate::output::{self, Answer, Format, headed, row};
use crate::target::Target;
use crate::words::{age, not_found};

/// So many domains are named; more are counted.
const DOMAINS_SHOWN: usize = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The PodCliqueSet to look at, with exit code 1 while it waits; by default all of the namespace
    name: Option<String>,
    /// The namespace to look in; by default that of the context
    #[arg(short, long, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Those of all namespaces
    #[arg(short = 'A', long, conflicts_with = "name")]
    all_namespaces: bool,
    /// Go on, and show it again whenever it changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    target: Target,
    /// How to print: table for people, json or yaml for programs
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl Args {
    fn namespace<'a>(&'a self, cluster: &'a Cluster) -> &'a str {
        self.namespace.as_deref().unwrap_or(&cluster.namespace)
    }
}

/// Where one set stands.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    namespace: String,
    name: String,
    replicas: Part,
    gangs: Part,
    pods: Part,
    placed_in: Vec<Place>,
    /// The lowest of its gangs.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    state: &'static str,
    /// A preferred level is not met.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    spilled: bool,
    /// Pods of the gang that lost members: those that have a node, and those that it should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Part>,
    /// Why the gang waits that lost members, or else the one that has waited longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_since: Option<Timestamp>,
}

/// A level, and the domains of it that hold pods.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Place {
    level: String,
    domains: Vec<String>,
}

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    ready: i32,
    wanted: i32,
}

impl std::fmt::Display for Part {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(out, "{}/{}", self.ready, self.wanted)
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    exit::answer(answer(args, Timestamp::now))
}

async fn answer(args: &Args, clock: fn() -> Timestamp) -> Result<ExitCode, Failure> {
    let cluster = Cluster::reach(&args.target).await?;
    let failed = |error| cluster.failed(error);
    let mut sets: Vec<PodCliqueSet> = list(&cluster, args).await.map_err(failed)?;
    if let Some(name) = &args.name {
        let known: Vec<String> = sets.iter().map(ResourceExt::name_any).collect();
        sets.retain(|set| set.name_any() == *name);
        if sets.is_empty() {
            return Err(Failure::Usage(not_found(
                "PodCliqueSet",
                name,
                args.namespace(&cluster),
                &known,
            )));
        }
    }
    if args.watch {
        return watch(&cluster, args, clock).await;
    }
    let gangs = list(&cluster, args).await.map_err(failed)?;
    let cliques = list(&cluster, args).await.map_err(failed)?;
    let answer = Answer::new("Status", clock(), lines(&sets, gangs, cliques));
    output::print(args.output, &answer, |answer, look| {
        table(answer, args.all_namespaces, look)
    })?;
    let is_waiting = |line: &Line| ["Pending", "Degraded"].contains(&line.state);
    Ok(match args.name.is_some() && answer.items.iter().any(is_waiting) {
        true => exit::FINDING.into(),
        false => ExitCode::SUCCESS,
    })
}

/// The same again whenever a set, a gang or a clique changes.
async fn watch(cluster: &Cluster, args: &Args, clock: fn() -> Timestamp) -> Result<ExitCode, Failure> {
    let all = watcher::Config::default();
    let (own, parts) = match &args.name {
        Some(name) => (
            all.clone().fields(&format!("metadata.name={name}")),
            all.labels(&format!("{}={name}", labels::PART_OF)),
        ),
        None => (all.clone(), all),
    };
    let (sets, sets_change) = kept::<PodCliqueSet>(api(cluster, args), own);
    let (gangs, gangs_change) = kept::<PodGang>(api(cluster, args), parts.clone());
    let (cliques, cliques_change) = kept::<PodClique>(api(cluster, args), parts);
    let changes = vec![sets_change, gangs_change, cliques_change];
    follow(changes, Screen::new(args.output), async |screen| {
        let items = lines(&objects(&sets), objects(&gangs), objects(&cliques));
        let answer = Answer::new("Status", clock(), items);
        screen.show(&answer, |answer, look| table(answer, args.all_namespaces, look))
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

fn lines(sets: &[PodCliqueSet], gangs: Vec<PodGang>, cliques: Vec<PodClique>) -> Vec<Line> {
    let (gangs, cliques) = (by_set(gangs), by_set(cliques));
    let line_of = |set: &PodCliqueSet| {
        let key = (set.namespace().unwrap_or_default(), set.name_any());
        let none = (Vec::new(), Vec::new());
        line(
            set,
            gangs.get(&key).unwrap_or(&none.0),
            cliques.get(&key).unwrap_or(&none.1),
        )
    };
    sets.iter().map(line_of).collect()
}

fn api<K>(cluster: &Cluster, args: &Args) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match args.all_namespaces {
        true => Api::all(cluster.client.clone()),
        false => Api::namespaced(cluster.client.clone(), args.namespace(cluster)),
    }
}

async fn list<K>(cluster: &Cluster, args: &Args) -> kube::Result<Vec<K>>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    Ok(api::<K>(cluster, args).list(&ListParams::default()).await?.items)
}

/// Objects by the namespace and name of the set that they belong to.
fn by_set<K: ResourceExt>(objects: Vec<K>) -> BTreeMap<(String, String), Vec<K>> {
    let mut found: BTreeMap<(String, String), Vec<K>> = BTreeMap::new();
    for object in objects {
        if let Some(set) = object.labels().get(labels::PART_OF).cloned() {
            found
                .entry((object.namespace().unwrap_or_default(), set))
                .or_default()
                .push(object);
        }
    }
    found
}

fn line(set: &PodCliqueSet, gangs: &[PodGang], cliques: &[PodClique]) -> Line {
    let status = |gang: &PodGang| gang.status.clone().unwrap_or_default();
    let scheduled = |gang: &PodGang| status(gang).scheduled().cloned();
    let is_placed = |gang: &&PodGang| scheduled(gang).is_some_and(|condition| condition.status == "True");
    let is_degraded = |gang: &PodGang| status(gang).is_degraded();
    let since = |gang: &PodGang| match scheduled(gang) {
        Some(condition) => Some(condition.last_transition_time.0),
        None => gang.creation_timestamp().map(|time| time.0),
    };
    let placed = gangs.iter().filter(is_placed).count();
    let waiting = gangs.iter().filter(|gang| !is_placed(gang));
    let longest = waiting.min_by_key(|gang| (!is_degraded(gang), since(gang)));
    let degraded = longest.filter(|gang| is_degraded(gang));
    let pods = cliques.iter().fold(Part::default(), |sum, clique| Part {
        ready: sum.ready + clique.status.as_ref().map_or(0, |status| status.ready_replicas),
        wanted: sum.wanted + clique.spec.replicas,
    });
    let scores = gangs.iter().filter_map(|gang| status(gang).placement_score);
    let score = scores.reduce(f64::min);
    Line {
        namespace: set.namespace().unwrap_or_default(),
        name: set.name_any(),
        replicas: Part {
            ready: set.status.as_ref().map_or(0, |status| status.available_replicas),
            wanted: set.spec.replicas,
        },
        gangs: Part {
            ready: i32::try_from(placed).unwrap_or(i32::MAX),
            wanted: i32::try_from(gangs.len()).unwrap_or(i32::MAX),
        },
        pods,
        placed_in: places(gangs),
        spilled: score.is_some_and(|score| score < 1.0),
        score,
        state: match longest {
            _ if gangs.is_empty() && set.spec.replicas > 0 => "Forming",
            Some(_) if degraded.is_some() => "Degraded",
            Some(_) => "Pending",
            None if pods.ready < pods.wanted => "Starting",
            None => "Running",
        },
        reason: longest.map(|gang| match status(gang).pending {
            Some(pending) => pending.reason,
            None => "NotLookedAt".to_owned(),
        }),
        members: degraded.map(|gang| members(gang, cliques)),
        pending_since: longest.and_then(since),
    }
}

/// Pods of a gang that have a node, and those that it should have.
pub(crate) fn members(gang: &PodGang, cliques: &[PodClique]) -> Part {
    let is_own = |clique: &&PodClique| {
        let name = clique.name_any();
        gang.spec.pod_groups.iter().any(|group| group.name == name)
    };
    cliques.iter().filter(is_own).fold(Part::default(), |sum, clique| Part {
        ready: sum.ready + clique.status.as_ref().map_or(0, |status| status.scheduled_replicas),
        wanted: sum.wanted + clique.spec.replicas,
    })
}

/// The domains that the gangs lie in, level by level as the scheduler lists them, broadest first.
fn places(gangs: &[PodGang]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for gang in gangs {
        let name = gang.name_any();
        let placement = gang.status.iter().flat_map(|status| &status.placement);
        for own in placement.filter(|place| place.scope == name) {
            let at = places
                .iter()
                .position(|place| place.level == own.level)
                .unwrap_or_else(|| {
                    places.push(Place {
                        level: own.level.clone(),
                        domains: vec![],
                    });
                    places.len() - 1
                });
            places[at].domains.extend(own.domains.iter().cloned());
        }
    }
    for place in &mut places {
        place.domains.sort_unstable();
        place.domains.dedup();
    }
    places
}

/// `rack r1`; `block b1 (racks r1 r2)`; `7 racks`. The narrowest level that holds the whole set, and what it spreads over there.
fn place_words(places: &[Place]) -> String {
    let together = places.iter().rposition(|place| place.domains.len() == 1);
    let words = |place: &Place| match place.domains.as_slice() {
        [domain] => format!("{} {domain}", place.level),
        few if few.len() <= DOMAINS_SHOWN => format!("{}s {}", place.level, few.join(" ")),
        many => format!("{} {}s", many.len(), place.level),
    };
    // On which hosts pods are is for `kubectl get pods -o wide`.
    let parts = |from: usize| places.get(from).filter(|place| place.level != "host").map(&words);
    match together {
        Some(at) => match parts(at + 1) {
            Some(parts) => format!("{} ({parts})", words(&places[at])),
            None => words(&places[at]),
        },
        None => places.first().map_or("-".to_owned(), words),
    }
}

fn table(answer: &Answer<Line>, shows_namespaces: bool, look: Look) -> String {
    if answer.items.is_empty() {
        return "no PodCliqueSets here; examples/simple.yaml is a first one".to_owned();
    }
    let mut rows = vec![row(["NAME", "READY", "GANGS", "PODS", "PLACED IN", "SCORE", "STATE"])];
    rows.extend(answer.items.iter().map(|line| cells(line, answer.generated_at, look)));
    if shows_namespaces {
        rows[0].insert(0, "NAMESPACE".to_owned());
        for (row, line) in rows.iter_mut().skip(1).zip(&answer.items) {
            row.insert(0, line.namespace.clone());
        }
    }
    format!("{}\n{}", headed(&rows, look), summary(&answer.items))
}

/// "2 running, 1 degraded, 1 pending; next: …": every set counts once, and what waits is asked about next.
fn summary(lines: &[Line]) -> String {
    let count = |state: &str| lines.iter().filter(|line| line.state == state).count();
    let told = ["Running", "Degraded", "Pending", "Starting", "Forming"].map(|state| (state, count(state)));
    // Two are told in any case: who reads of no pending set knows that none is.
    let is_told = |(state, count): &(&str, usize)| *count > 0 || ["Running", "Pending"].contains(state);
    let told: Vec<String> = told
        .into_iter()
        .filter(is_told)
        .map(|(state, count)| format!("{count} {}", state.to_lowercase()))
        .collect();
    let first = |state: &str| lines.iter().find(|line| line.state == state);
    let next = first("Degraded").or_else(|| first("Pending"));
    let next = next.map(|line| {
        let program = crate::called();
        format!("; next: {program} explain pcs {} -n {}", line.name, line.namespace)
    });
    format!("{}{}", told.join(", "), next.unwrap_or_default())
}

fn cells(line: &Line, now: Timestamp, look: Look) -> Vec<String> {
    let placed = place_words(&line.placed_in);
    let state = match (line.state, &line.reason, line.pending_since) {
        ("Pending", Some(reason), Some(since)) => format!("Pending {} {reason}", age(since, now)),
        ("Degraded", Some(reason), _) => format!("Degraded {}, {reason}", line.members.unwrap_or_default()),
        ("Running", ..) if line.spilled => "Running, spilled".to_owned(),
        (state, ..) => state.to_owned(),
    };
    let tone = match (line.state, state.as_str()) {
        ("Running", "Running") => Tone::Good,
        _ => Tone::Warn,
    };
    let score = line.score.map_or("-".to_owned(), |score| format!("{score:.2}"));
    row([
        &line.name,
        &line.replicas.to_string(),
        &line.gangs.to_string(),
        &line.pods.to_string(),
        &placed,
        &score,
        &look.paint(tone, &state),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(name: &str, available: i32) -> PodCliqueSet {
        let object = json!({"metadata": {"name": name, "namespace": "demo"},
            "spec": {"replicas": 1, "template": {"cliques": []}}, "status": {"availableReplicas": available}});
        serde_json::from_value(object).unwrap()
    }

    fn gang(name: &str, status: Value) -> PodGang {
        let object = json!({"metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"podgroups": []}, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn placed(name: &str, racks: &[&str], score: f64) -> PodGang {
        let condition = json!({"type": "Scheduled", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let placement = json!([{"scope": name, "level": "block", "domains": ["b1"]},
            {"scope": name, "level": "rack", "domains": racks}, {"scope": "else", "level": "host", "domains": ["h1"]}]);
        gang(
            name,
            json!({"conditions": [condition], "placement": placement, "placementScore": score}),
        )
    }

    fn clique(ready: i32, wanted: i32) -> PodClique {
        let object = json!({"metadata": {"name": "c"},
            "spec": {"roleName": "c", "replicas": wanted, "podSpec": {"containers": []}},
            "status": {"readyReplicas": ready}});
        serde_json::from_value(object).unwrap()
    }

    fn shown(lines: Vec<Line>) -> String {
        let answer = Answer::new("Status", "2026-01-01T00:00:12Z".parse().unwrap(), lines);
        table(&answer, false, Look::PLAIN)
    }

    #[test]
    fn each_set_is_one_line_and_the_next_command_is_named() {
        let pending = json!({"pending": {"reason": "TooLarge", "message": "m", "waiting": "Never"}});
        let many = ["r1", "r2", "r3", "r4"];
        let lines = vec![
            line(
                &set("llama", 1),
                &[placed("g", &["r1"], 1.0), placed("h", &["r2"], 1.0)],
                &[clique(7, 7)],
            ),
            line(&set("giant", 0), &[gang("giant-0", pending)], &[clique(0, 5)]),
            line(&set("wide", 1), &[placed("g", &many, 0.5)], &[clique(8, 8)]),
            line(&set("slow", 0), &[placed("g", &["r1"], 1.0)], &[clique(1, 2)]),
            line(&set("new", 0), &[], &[]),
        ];
        let expected = "\
NAME   READY  GANGS  PODS  PLACED IN               SCORE  STATE
llama  1/1    2/2    7/7   block b1 (racks r1 r2)  1.00   Running
giant  0/1    0/1    0/5   -                       -      Pending 12s TooLarge
wide   1/1    1/1    8/8   block b1 (4 racks)      0.50   Running, spilled
slow   0/1    1/1    1/2   rack r1                 1.00   Starting
new    0/1    0/0    0/0   -                       -      Forming
2 running, 1 pending, 1 starting, 1 forming; next: grove explain pcs giant -n demo";
        assert_eq!(shown(lines), expected);
    }

    #[test]
    fn a_gang_that_lost_a_member_keeps_its_place_and_comes_first() {
        let lost = json!({"type": "Scheduled", "status": "False", "reason": "MembersMissing", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:10Z"});
        let placement = json!([{"scope": "g", "level": "rack", "domains": ["r1"]}]);
        let pending = json!({"reason": "NodesUnavailable", "message": "m", "waiting": "Act"});
        let mut degraded = gang(
            "g",
            json!({"conditions": [lost], "placement": placement, "pending": pending}),
        );
        let groups = json!([{"name": "c", "minReplicas": 7, "podReferences": []}]);
        degraded.spec.pod_groups = serde_json::from_value(groups).unwrap();
        let older = gang("h", json!({}));
        let mut own = clique(6, 7);
        own.status.as_mut().unwrap().scheduled_replicas = 6;
        let expected = "\
NAME   READY  GANGS  PODS  PLACED IN  SCORE  STATE
llama  0/1    0/2    6/7   rack r1    -      Degraded 6/7, NodesUnavailable
0 running, 1 degraded, 0 pending; next: grove explain pcs llama -n demo";
        let told = line(&set("llama", 0), &[older, degraded], &[own]);
        assert_eq!(told.pending_since, "2026-01-01T00:00:10Z".parse().ok());
        assert_eq!(shown(vec![told]), expected);
    }

    #[test]
    fn how_long_a_set_waits_is_counted_from_when_it_began_to() {
        let mut condition = json!({"type": "Scheduled", "status": "False", "reason": "Queued", "message": "m"});
        condition["lastTransitionTime"] = json!("2026-01-01T00:00:10Z");
        let pending = json!({"reason": "Queued", "message": "m", "waiting": "Wait"});
        let waits = gang("g", json!({"conditions": [condition], "pending": pending}));
        assert!(shown(vec![line(&set("a", 0), &[waits], &[])]).contains("Pending 2s Queued"));
    }

    #[test]
    fn programs_are_told_what_spilled() {
        let told = |score| json!(line(&set("wide", 1), &[placed("g", &["r1", "r2"], score)], &[]))["spilled"].clone();
        assert_eq!((told(0.5), told(1.0)), (json!(true), Value::Null));
    }

    #[test]
    fn a_gang_that_nobody_looked_at_is_pending_too() {
        let line = line(&set("a", 0), &[gang("a-0", json!({}))], &[]);
        assert_eq!((line.state, line.reason.as_deref()), ("Pending", Some("NotLookedAt")));
    }

    #[test]
    fn an_empty_namespace_says_what_to_do() {
        assert_eq!(
            shown(vec![]),
            "no PodCliqueSets here; examples/simple.yaml is a first one"
        );
    }
}
