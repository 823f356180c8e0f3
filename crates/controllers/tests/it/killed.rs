//! An operator that is killed at each of its writes, and another that goes on: together they come to what one that lives
//! comes to, no pod pays for it, and nothing is left when the set goes.
//!
//! Every write of an undisturbed run is a place to die. By default the moment changes from write to write; with
//! `GROVE_EXHAUSTIVE=1` each write is tried at every moment.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::{PodCliqueSet, labels};
use grove_simcluster::fault::Moment;
use grove_simcluster::store::EventKind;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::workloads::simple;
use crate::support::{OPERATOR, World, is_exhaustive};

const MOMENTS: [Moment; 3] = [Moment::BeforeWrite, Moment::BeforeReply, Moment::AfterReply];

/// What the user does while the operator dies.
struct Story {
    manifest: String,
    pods: usize,
    /// None: the set is created. Otherwise it runs, and these cliques get another image.
    update: Option<&'static [&'static str]>,
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
        if self.update.is_some() {
            world.create_set(&self.manifest).await;
            world.settle().await;
        }
        let untouched = self.untouched(world).await;
        let (writes, told) = (writes(world), {
            let faults = world.cluster.faults();
            death.map(|(write, moment)| faults.kill(OPERATOR, write, moment))
        });
        match self.update {
            Some(cliques) => world.set_image(cliques, "two").await,
            None => drop(world.create_set(&self.manifest).await),
        }
        let died = match told {
            None => {
                world.settle().await;
                true
            }
            Some(told) => {
                let died = tokio::select! {
                    died = told => died.is_ok(),
                    () = world.settle() => false,
                };
                world.cluster.faults().clear();
                world.crash_operator().await;
                world.start_operator();
                world.settle().await;
                died
            }
        };
        assert_eq!(world.ready().await, self.pods, "{death:?}");
        let now = self.untouched(world).await;
        assert_eq!(
            untouched, now,
            "{death:?}: pods of cliques that nobody changed were replaced"
        );
        let end = End::of(world, begin, writes);

        world.delete::<PodCliqueSet>("w").await;
        world.settle().await;
        let left: Vec<_> = world.remaining(begin).into_keys().collect();
        assert!(left.is_empty(), "{death:?}: left behind: {left:?}");
        died.then_some(end)
    }

    /// UIDs of the pods of cliques that the story does not change.
    async fn untouched(&self, world: &World) -> BTreeSet<String> {
        let Some(changed) = self.update else {
            return BTreeSet::new();
        };
        let is_changed = |pod: &String| changed.iter().any(|clique| pod.starts_with(&format!("w-0-{clique}-")));
        let pods = world.list::<k8s_openapi::api::core::v1::Pod>().await.into_iter();
        let others = pods.filter(|(name, _)| !is_changed(name));
        others.filter_map(|(_, pod)| pod.metadata.uid).collect()
    }

    /// Plays it with a death at every write.
    async fn survives_every_death(&self) {
        let mut world = World::with_places(self.pods + 1).await;
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

/// An object without what is another in every run: UIDs, revisions, times, names that depend on them, and the order of
/// lists in which it has no meaning.
fn plain(value: Value, aliases: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(mut map) => {
            for differs in ["uid", "resourceVersion", "managedFields"] {
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

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_creation() {
    let story = Story {
        manifest: simple("w", 1, 3),
        pods: 3,
        update: None,
    };
    story.survives_every_death().await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_an_ordered_start_with_a_scaling_group() {
    let ordered = "template:\n    cliqueStartupType: CliqueStartupTypeInOrder\n";
    let story = Story {
        manifest: with_group().replace("template:\n", ordered),
        pods: 4,
        update: None,
    };
    story.survives_every_death().await;
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_a_rolling_update() {
    let story = Story {
        manifest: with_group(),
        pods: 4,
        update: Some(&["a"]),
    };
    story.survives_every_death().await;
}
