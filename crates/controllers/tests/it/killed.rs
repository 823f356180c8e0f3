//! An operator that is killed at each of its writes, and another that goes on: together they come to what one that lives
//! comes to, no pod pays for it, and nothing is left when the set goes.
//!
//! Every write of an undisturbed run is a place to die. By default the moment changes from write to write; with
//! `GROVE_EXHAUSTIVE=1` each write is tried at every moment.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::{PodClique, PodCliqueSet, labels};
use grove_simcluster::fault::Moment;
use grove_simcluster::server::Intent;
use grove_simcluster::store::EventKind;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::oneshot::Receiver;

use crate::support::workloads::simple;
use crate::support::{OPERATOR, World, is_exhaustive};

/// More than any story needs.
const PLACES: usize = 6;
const MOMENTS: [Moment; 3] = [Moment::BeforeWrite, Moment::BeforeReply, Moment::AfterReply];

/// What happens while the operator dies.
#[derive(Clone, Copy, PartialEq)]
enum Deed {
    /// The set is created.
    Create,
    /// It runs, and its first clique gets another image.
    Update,
    /// It runs, and loses a replica, while the clique of the other gets a pod more.
    Scale,
    /// It runs, loses a pod and all room, and is recycled; then there is room again.
    Lose,
    /// The same after somebody has scaled its clique.
    LoseScaled,
    /// It runs, and is deleted.
    Delete,
}

impl Deed {
    /// What the names of pods that it may replace, make or remove begin with.
    fn concerns(self) -> &'static [&'static str] {
        match self {
            Self::Create | Self::Lose | Self::LoseScaled | Self::Delete => &["w-"],
            Self::Update => &["w-0-a-"],
            Self::Scale => &["w-0-a-", "w-1-"],
        }
    }

    async fn happen(self, world: &World, manifest: &str) {
        match self {
            Self::Create => drop(world.create_set(manifest).await),
            Self::Update => world.set_image(&["a"], "two").await,
            Self::Scale => {
                world.scale::<PodCliqueSet>("w", 1).await;
                world.scale::<PodClique>("w-0-a", 3).await;
            }
            Self::Lose => {
                world.cordon_all(true).await;
                world.lose_pod("w-0-a").await;
            }
            Self::LoseScaled => {
                world.cordon_all(true).await;
                for _ in 0..2 {
                    world.lose_pod("w-0-a").await;
                }
            }
            Self::Delete => world.delete::<PodCliqueSet>("w").await,
        }
    }

    /// Waits until all of it has happened.
    async fn end(self, world: &World) {
        if matches!(self, Self::Lose | Self::LoseScaled) {
            // Longer than what is below its minimum is left alone.
            world.pass(60).await;
            world.cordon_all(false).await;
        }
        world.settle().await;
    }
}

/// A set, what happens to it, and how many pods run in the end.
struct Story {
    manifest: String,
    deed: Deed,
    pods: usize,
}

/// Everything that there is in the end, without what differs from run to run, and what happened to pods on the way.
struct End {
    objects: BTreeMap<String, Value>,
    pods_made: usize,
    pods_deleted: usize,
    /// Requests of operators that were meant to change something.
    writes: usize,
}

impl Story {
    /// Plays it once, from nothing to nothing. None if the operator did not live to send the write at which it dies.
    async fn play(&self, world: &mut World, death: Option<(u64, Moment)>) -> Option<End> {
        let begin = world.revision();
        if self.deed != Deed::Create {
            world.create_set(&self.manifest).await;
            world.settle().await;
        }
        if self.deed == Deed::LoseScaled {
            world.scale::<PodClique>("w-0-a", 3).await;
            world.settle().await;
        }
        let untouched = self.untouched(world).await;
        let (writes, told) = (writes(world), {
            let faults = world.cluster.faults();
            death.map(|(write, moment)| faults.kill(OPERATOR, write, moment))
        });
        self.deed.happen(world, &self.manifest).await;
        let died = match told {
            None => {
                self.deed.end(world).await;
                true
            }
            Some(told) => self.end_with_another(world, told).await,
        };
        assert_eq!(world.ready().await, self.pods, "{death:?}");
        let now = self.untouched(world).await;
        assert_eq!(
            untouched, now,
            "{death:?}: pods of cliques that nobody changed were replaced"
        );
        let end = End::of(world, begin, writes);

        if self.deed != Deed::Delete {
            world.delete::<PodCliqueSet>("w").await;
            world.settle().await;
        }
        let left: Vec<_> = world.remaining(begin).into_keys().collect();
        assert!(left.is_empty(), "{death:?}: left behind: {left:?}");
        died.then_some(end)
    }

    /// Another operator goes on; whether the first one died.
    async fn end_with_another(&self, world: &mut World, told: Receiver<Intent>) -> bool {
        let died = tokio::select! {
            died = told => died.is_ok(),
            () = self.deed.end(world) => false,
        };
        world.cluster.faults().clear();
        world.crash_operator().await;
        world.start_operator();
        self.deed.end(world).await;
        died
    }

    /// UIDs of the pods that the story does not concern.
    async fn untouched(&self, world: &World) -> BTreeSet<String> {
        let concerned = self.deed.concerns();
        let is_concerned = |pod: &String| concerned.iter().any(|beginning| pod.starts_with(beginning));
        let pods = world.list::<k8s_openapi::api::core::v1::Pod>().await.into_iter();
        let others = pods.filter(|(name, _)| !is_concerned(name));
        others.filter_map(|(_, pod)| pod.metadata.uid).collect()
    }

    /// Plays it with a death at every write.
    async fn survives_every_death(&self) {
        let mut world = World::with_places(PLACES).await;
        let lived = self.play(&mut world, None).await.expect("nobody dies");
        let mut deaths = 0;
        for write in 1.. {
            let moments = match is_exhaustive() {
                true => &MOMENTS[..],
                false => &MOMENTS[write as usize % MOMENTS.len()..][..1],
            };
            let mut died = false;
            for moment in moments {
                let Some(end) = self.play(&mut world, Some((write, *moment))).await else {
                    continue;
                };
                died = true;
                end.must_equal(&lived, &format!("killed at write {write}, {moment:?}"));
            }
            if !died {
                break;
            }
            deaths += 1;
        }
        println!("{deaths} deaths in {} writes", lived.writes);
        // Statuses that wait for their burst may be written once more or less often.
        assert!(deaths + 3 >= lived.writes, "{deaths} deaths in {} writes", lived.writes);
    }
}

fn writes(world: &World) -> usize {
    let requests = world.history().requests().by_user(OPERATOR);
    requests.only(|asked| asked.intent.verb.is_write()).count()
}

impl End {
    fn of(world: &World, begin: u64, writes_before: usize) -> Self {
        let pods = world.history().writes().of_kind("", "pods").after(begin);
        let count = |kind: EventKind| pods.iter().filter(|write| write.kind == kind).count();
        let made = pods.iter().filter(|write| write.kind == EventKind::Added);
        let aliases: BTreeMap<String, String> = made
            .filter_map(|write| Some((write.key.name.clone(), alias(&write.after()?))))
            .collect();
        let objects = world.remaining(begin).into_iter().map(|((resource, name), object)| {
            let name = aliases.get(&name).unwrap_or(&name);
            let (generation, observed) = (
                &object["metadata"]["generation"],
                &object["status"]["observedGeneration"],
            );
            assert!(
                observed.is_null() || observed == generation,
                "{resource} {name}: {observed} of {generation}"
            );
            let object = match &*resource {
                "pods" => essence(object),
                _ => object,
            };
            (format!("{resource} {name}"), plain(object, &aliases))
        });
        Self {
            objects: objects.collect(),
            pods_made: count(EventKind::Added),
            pods_deleted: count(EventKind::Deleted),
            writes: writes(world) - writes_before,
        }
    }

    fn must_equal(&self, other: &Self, context: &str) {
        let names = |end: &Self| end.objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(other), "{context}");
        for (name, object) in &self.objects {
            assert_eq!(object, &other.objects[name], "{context}: {name}");
        }
        let pods = |end: &Self| (end.pods_made, end.pods_deleted);
        assert_eq!(pods(self), pods(other), "{context}: pods made and deleted");
    }
}

/// A pod by its clique and index: its name comes from the UID of its clique.
fn alias(pod: &Value) -> String {
    let label = |key: &str| pod["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
    format!("{}[{}]", label(labels::PODCLIQUE), label(labels::POD_INDEX))
}

/// What was asked of a pod; where it runs and since when is not the operator's.
fn essence(mut pod: Value) -> Value {
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    let metadata = &pod["metadata"];
    json!({
        "labels": metadata["labels"], "annotations": metadata["annotations"], "owners": metadata["ownerReferences"],
        "spec": pod["spec"],
    })
}

/// An object without what is another in every run: UIDs, revisions, times, names that depend on them, how often it was
/// written, and the order of lists in which it has no meaning.
fn plain(value: Value, aliases: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(mut map) => {
            for differs in [
                "uid",
                "resourceVersion",
                "generation",
                "observedGeneration",
                "managedFields",
            ] {
                map.remove(differs);
            }
            let fields = map.into_iter().map(|(name, value)| {
                let mut value = plain(value, aliases);
                if let ("podReferences" | "conditions", Value::Array(items)) = (name.as_str(), &mut value) {
                    items.sort_by_key(Value::to_string);
                }
                (name, value)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| plain(item, aliases)).collect(),
        Value::String(text) => match aliases.get(&text) {
            Some(alias) => json!(alias),
            None if text.parse::<Timestamp>().is_ok() => json!("a time"),
            // The API server ends the name of this volume with random letters.
            None if text.starts_with("kube-api-access-") => json!("kube-api-access"),
            None => Value::String(text),
        },
        other => other,
    }
}

/// One clique of two pods and a scaling group of two replicas, one of them above the minimum.
fn with_group() -> String {
    let member = "    - name: b\n      spec:\n        roleName: b\n        replicas: 1\n        minAvailable: 1\n        \
                  podSpec: {containers: [{name: main, image: one}]}\n    podCliqueScalingGroups:\n    \
                  - {name: sg, cliqueNames: [b], replicas: 2, minAvailable: 1}\n";
    format!("{}{member}", simple("w", 1, 2))
}

async fn killed_at_any_write(manifest: String, deed: Deed, pods: usize) {
    Story { manifest, deed, pods }.survives_every_death().await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_creation() {
    killed_at_any_write(simple("w", 1, 3), Deed::Create, 3).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_an_ordered_start_with_a_scaling_group() {
    let ordered = "template:\n    cliqueStartupType: CliqueStartupTypeInOrder\n";
    killed_at_any_write(with_group().replace("template:\n", ordered), Deed::Create, 4).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_rolling_update() {
    killed_at_any_write(with_group(), Deed::Update, 4).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_scaling() {
    killed_at_any_write(simple("w", 2, 2), Deed::Scale, 3).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_gang_termination() {
    killed_at_any_write(with_group(), Deed::Lose, 4).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_gang_termination_after_a_scaling() {
    killed_at_any_write(with_group(), Deed::LoseScaled, 5).await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_deletion() {
    killed_at_any_write(with_group(), Deed::Delete, 0).await;
}
