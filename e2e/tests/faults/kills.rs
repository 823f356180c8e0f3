//! The operator is killed at its n-th write: before the API server hears of it, before it learns of the answer, and after.
//! It starts again, and everything ends as it does without.
//!
//! A workload lives through three acts: it is made, updated and deleted. Each life kills the operator once in each act.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, labels};
use grove_e2e::eventually;
use grove_scenarios::end::{Aliases, differences};
use k8s_openapi::api::core::v1::{Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::{Value, json};

use crate::proxy::Moment;
use crate::space::{Kind, LIMIT, Space, is_ready};
use crate::stage::{Operator, Stage, own_plane};

/// Lives of every run; with `GROVE_EXHAUSTIVE` as many as it takes to die at every write in each of the three moments.
const SAMPLE: usize = 5;
/// What others write begins so; nobody does here.
const FOREIGN: &str = "example.com/";
/// Without a write for so long, nothing more is under way.
const QUIET: Duration = Duration::from_secs(2);

/// Six pods in two gangs; `c` starts after `b`, which needs a Role and a token.
const WORKLOAD: &str = r#"
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: w}
spec:
  replicas: 1
  template:
    cliqueStartupType: CliqueStartupTypeInOrder
    cliques:
    - name: a
      spec: {roleName: a, replicas: 2, minAvailable: 1, podSpec: {containers: [{name: main, image: one}]}}
    - name: b
      spec: {roleName: b, replicas: 1, minAvailable: 1, podSpec: {containers: [{name: main, image: one}]}}
    - name: c
      spec: {roleName: c, replicas: 1, minAvailable: 1, podSpec: {containers: [{name: main, image: one}]}}
    podCliqueScalingGroups:
    - {name: g, cliqueNames: [b, c], replicas: 2, minAvailable: 1}
"#;
const PODS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Make,
    Update,
    Delete,
}

impl Act {
    const ALL: [Self; 3] = [Self::Make, Self::Update, Self::Delete];

    /// Asks for it, until the API server takes it.
    async fn begin(self, space: &Space) -> Result<()> {
        let sets = space.all::<PodCliqueSet>();
        let begun = eventually(format!("{self:?} to be taken"), LIMIT, async || -> Result<()> {
            match self {
                Self::Make => drop(space.create(WORKLOAD).await?),
                Self::Update => {
                    let image = |clique: usize| {
                        let path = format!("/spec/template/cliques/{clique}/spec/podSpec/containers/0/image");
                        json!({"op": "replace", "path": path, "value": "two"})
                    };
                    let patch = serde_json::from_value(json!([image(0), image(1), image(2)]))?;
                    let patch = Patch::<()>::Json(patch);
                    sets.patch("w", &PatchParams::default(), &patch).await?;
                }
                Self::Delete => space.delete::<PodCliqueSet>("w").await?,
            }
            Ok(())
        });
        Ok(begun.await?)
    }

    /// How many pods it takes: no index is filled twice.
    fn pods_made(self) -> usize {
        match self {
            Self::Make | Self::Update => PODS,
            Self::Delete => 0,
        }
    }
}

/// What is there, without what is another in every run.
async fn state(space: &Space) -> Result<BTreeMap<String, Value>> {
    let pods = ours::<Pod>(space).await?;
    let ready = space.list::<Pod>().await?;
    let ready: BTreeSet<String> = ready
        .iter()
        .filter(|pod| is_ready(pod))
        .filter_map(ResourceExt::uid)
        .collect();
    let aliases = Aliases::of(&pods);
    let mut state = BTreeMap::new();
    let mut add = |plural: &str, objects: Vec<Value>| {
        for object in objects {
            let name = aliases.name(object["metadata"]["name"].as_str().unwrap_or_default());
            let mut plain = aliases.plain(plural, &object, FOREIGN);
            if plural == "pods" {
                plain["ready"] = json!(is_among(&ready, &object));
            }
            // The garbage collector takes its time with pods of a clique that was made anew.
            let mut name = format!("{plural} {name}");
            while state.contains_key(&name) {
                name.push_str(" again");
            }
            state.insert(name, plain);
        }
    };
    add("pods", pods.clone());
    add("podcliquesets", ours::<PodCliqueSet>(space).await?);
    add("podcliquescalinggroups", ours::<PodCliqueScalingGroup>(space).await?);
    add("podcliques", ours::<PodClique>(space).await?);
    add("podgangs", ours::<PodGang>(space).await?);
    add("services", ours::<Service>(space).await?);
    add("serviceaccounts", ours::<ServiceAccount>(space).await?);
    add("secrets", ours::<Secret>(space).await?);
    add("roles", ours::<Role>(space).await?);
    add("rolebindings", ours::<RoleBinding>(space).await?);
    Ok(state)
}

fn is_among(uids: &BTreeSet<String>, object: &Value) -> bool {
    object["metadata"]["uid"].as_str().is_some_and(|uid| uids.contains(uid))
}

/// The set `w`, and what it became.
async fn ours<K: Kind + Serialize>(space: &Space) -> Result<Vec<Value>> {
    let mut objects = space.list::<K>().await?;
    objects.retain(|object| {
        object.name_any() == "w" || object.labels().get(labels::PART_OF).is_some_and(|set| set == "w")
    });
    objects.iter().map(|object| Ok(serde_json::to_value(object)?)).collect()
}

/// Waits until nothing has been written for a while.
async fn comes_to_rest(operator: &Operator) {
    let mut seen = operator.proxy.writes();
    loop {
        tokio::time::sleep(QUIET).await;
        let now = operator.proxy.writes();
        if now == seen {
            return;
        }
        seen = now;
    }
}

/// What an act writes and where it ends, with nobody killed.
struct Learned {
    writes: usize,
    end: BTreeMap<String, Value>,
}

/// The set says so, and no pod is of before.
fn is_updated(state: &BTreeMap<String, Value>) -> bool {
    let ended = &state["podcliquesets w"]["status"]["updateProgress"]["updateEndedAt"];
    let mut pods = state.iter().filter(|(name, _)| name.starts_with("pods "));
    ended.is_string() && pods.all(|(_, pod)| pod["spec"]["containers"][0]["image"] == json!("two"))
}

async fn learn(stage: &Stage, operator: &Operator, act: Act) -> Result<Learned> {
    let (writes, pods) = (operator.proxy.writes(), operator.proxy.pods_made());
    act.begin(&stage.space).await?;
    stage
        .space
        .until("the act to end", async |space| {
            let state = state(space).await?;
            let are_ready = state.values().filter(|object| object["ready"] == json!(true)).count() == PODS;
            Ok(match act {
                Act::Make => are_ready,
                Act::Update => are_ready && is_updated(&state),
                Act::Delete => state.is_empty(),
            })
        })
        .await?;
    comes_to_rest(operator).await;
    assert_eq!(operator.proxy.pods_made() - pods, act.pods_made(), "{act:?}");
    Ok(Learned {
        writes: operator.proxy.writes() - writes,
        end: state(&stage.space).await?,
    })
}

/// One kill: which write of which act, and when.
type Kill = (Act, usize, Moment);

/// Plays an act, and kills the operator at a write. The operator that goes on, and how long that took to end the act, if the
/// first was killed.
async fn killed(
    (stage, first): (&Stage, Operator),
    (act, nth, moment): Kill,
    learned: &Learned,
) -> Result<(Operator, Option<Duration>)> {
    let before = first.proxy.pods_made();
    let is_over = async || -> Result<()> {
        let now = state(&stage.space).await?;
        let differences = differences(&now, &learned.end);
        ensure!(differences.is_empty(), "{}", differences.join("; "));
        Ok(())
    };
    let what = format!("{act:?} to end that was killed {moment:?} write {nth}");
    first.proxy.set_trap(nth, moment);
    act.begin(&stage.space).await?;
    tokio::select! {
        () = first.proxy.sprung() => {}
        // Statuses are written together as time has it: there may be fewer writes than there were.
        over = eventually(&what, LIMIT, &is_over) => over?,
    }
    if !first.proxy.lift_trap() {
        assert_eq!(first.proxy.pods_made() - before, act.pods_made(), "{what}");
        return Ok((first, None));
    }
    first.proxy.sprung().await;
    first.replica.kill().await?;
    let begun = Instant::now();
    let second = stage.sole_operator().await?;
    eventually(&what, LIMIT, &is_over).await?;
    let took = begun.elapsed();
    let made = first.proxy.pods_made() - before + second.proxy.pods_made();
    assert_eq!(made, act.pods_made(), "{what}: pods were made twice");
    Ok((second, Some(took)))
}

/// The kills of each life.
fn lives(learned: &BTreeMap<Act, Learned>) -> Vec<Vec<Kill>> {
    let moments = Moment::ALL.len();
    let all = learned
        .values()
        .map(|learned| learned.writes * moments)
        .max()
        .unwrap_or_default();
    let sampled = |life: usize, act: Act, writes: usize| {
        let nth = 1 + life * writes.saturating_sub(1) / SAMPLE;
        (act, nth, Moment::ALL[(life + act as usize) % moments])
    };
    let every = |life: usize, act: Act, writes: usize| (act, 1 + life / moments % writes, Moment::ALL[life % moments]);
    let is_exhaustive = std::env::var_os("GROVE_EXHAUSTIVE").is_some();
    let count = if is_exhaustive { all } else { SAMPLE };
    let life = |life: usize| {
        let acts = learned.iter().map(|(act, learned)| match is_exhaustive {
            true => every(life, *act, learned.writes),
            false => sampled(life, *act, learned.writes),
        });
        acts.collect()
    };
    (0..count).map(life).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_write_everything_ends_as_it_does_without() -> Result<()> {
    let plane = own_plane().await?;
    let mut stage = Stage::on(&plane, "kills").await?;
    let mut operator = stage.sole_operator().await?;
    stage.calm().await?;
    let mut learned = BTreeMap::new();
    for act in Act::ALL {
        learned.insert(act, learn(&stage, &operator, act).await?);
    }
    let (mut tried, mut times) = (0, Vec::new());
    for kill in lives(&learned).into_iter().flatten() {
        let (next, took) = killed((&stage, operator), kill, &learned[&kill.0]).await?;
        operator = next;
        tried += 1;
        times.extend(took);
        stage.is_calm().await?;
    }
    times.sort();
    let seconds = |time: Option<&Duration>| time.map_or(0.0, Duration::as_secs_f64);
    let writes: Vec<usize> = learned.values().map(|learned| learned.writes).collect();
    println!("writes of the acts: {writes:?}; {tried} acts, {} kills", times.len());
    println!(
        "killed at a write: {:.1} s, at most {:.1} s",
        seconds(times.get(times.len() / 2)),
        seconds(times.last())
    );
    ensure!(
        times.len() * 3 >= tried * 2,
        "only {} of {tried} were killed",
        times.len()
    );
    Ok(())
}
