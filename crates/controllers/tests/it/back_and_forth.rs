//! Every field of a set that can be changed is changed, and changed back: whatever was asked for meanwhile, no pod is replaced
//! that need not be, and the end is the beginning. Every other field is refused by name.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::{PodCliqueSet, labels};
use grove_scenarios::Stage as _;
use grove_scenarios::end::{Aliases, differences};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::World;
use crate::topology::kit::{levels, two_racks};

/// As many fields as can be together.
pub(crate) const SET: &str = r#"
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: w}
spec:
  replicas: 1
  updateStrategy: {type: RollingRecreate}
  template:
    cliqueStartupType: CliqueStartupTypeExplicit
    terminationDelay: 1h
    headlessServiceConfig: {publishNotReadyAddresses: true}
    topologyConstraint: {pack: {preferred: rack}}
    cliques:
    - name: a
      labels: {team: one}
      annotations: {note: one}
      spec:
        roleName: a
        replicas: 2
        minAvailable: 1
        autoScalingConfig: {minReplicas: 2, maxReplicas: 4}
        podSpec:
          terminationGracePeriodSeconds: 1
          containers: [{name: main, image: one, env: [{name: X, value: one}]}]
    - name: b
      spec:
        roleName: b
        replicas: 1
        minAvailable: 1
        startsAfter: [a]
        podSpec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: one}]}
    podCliqueScalingGroups:
    - name: g
      cliqueNames: [b]
      replicas: 2
      minAvailable: 1
      annotations: {note: one}
      scaleConfig: {minReplicas: 2, maxReplicas: 4}
"#;

/// A field, by its pointer below `spec`, and another value for it.
type Change = (&'static str, Value);

fn changeable() -> Vec<Change> {
    vec![
        ("/replicas", json!(2)),
        ("/updateStrategy/type", json!("OnDelete")),
        ("/template/terminationDelay", json!("2h")),
        ("/template/headlessServiceConfig/publishNotReadyAddresses", json!(false)),
        ("/template/priorityClassName", json!("high")),
        ("/template/cliques/0/labels", json!({"team": "two", "more": "of it"})),
        ("/template/cliques/0/annotations", json!({"another": "note"})),
        ("/template/cliques/0/spec/replicas", json!(3)),
        ("/template/cliques/0/spec/autoScalingConfig/minReplicas", json!(1)),
        ("/template/cliques/0/spec/autoScalingConfig/maxReplicas", json!(5)),
        ("/template/cliques/0/spec/autoScalingConfig/metrics", metrics()),
        ("/template/podCliqueScalingGroups/0/replicas", json!(3)),
        (
            "/template/podCliqueScalingGroups/0/annotations",
            json!({"another": "note"}),
        ),
        ("/template/podCliqueScalingGroups/0/scaleConfig/minReplicas", json!(1)),
        ("/template/podCliqueScalingGroups/0/scaleConfig/maxReplicas", json!(5)),
        ("/template/podCliqueScalingGroups/0/scaleConfig/metrics", metrics()),
        ("/template/cliques/0/spec/podSpec/containers/0/image", json!("two")),
        (
            "/template/cliques/0/spec/podSpec/containers/0/env/0/value",
            json!("two"),
        ),
        (
            "/template/cliques/0/spec/podSpec/containers/0/resources",
            json!({"limits": {"cpu": "1"}}),
        ),
        (
            "/template/cliques/0/spec/podSpec/terminationGracePeriodSeconds",
            json!(2),
        ),
        (
            "/template/cliques/0/spec/podSpec/nodeSelector",
            json!({"kubernetes.io/os": "linux"}),
        ),
        ("/template/cliques/0/spec/podSpec/serviceAccountName", json!("other")),
        (
            "/template/cliques/0/spec/podSpec/volumes",
            json!([{"name": "scratch", "emptyDir": {}}]),
        ),
        ("/template/cliques/1/spec/podSpec/containers/0/image", json!("two")),
    ]
}

fn fixed() -> Vec<Change> {
    let sharing = json!([{"name": "t", "scope": "PerReplica"}]);
    vec![
        ("/topologyConstraint", json!({"packDomain": "rack"})),
        ("/template/cliqueStartupType", json!("CliqueStartupTypeInOrder")),
        ("/template/cliques/0/name", json!("other")),
        ("/template/cliques/0/spec/roleName", json!("other")),
        ("/template/cliques/0/spec/minAvailable", json!(2)),
        ("/template/cliques/1/spec/startsAfter", json!([])),
        ("/template/cliques/0/spec/podSpec/schedulerName", json!("other")),
        ("/template/cliques/0/resourceSharing", sharing.clone()),
        (
            "/template/cliques/0/topologyConstraint",
            json!({"pack": {"required": "rack"}}),
        ),
        ("/template/podCliqueScalingGroups/0/name", json!("other")),
        ("/template/podCliqueScalingGroups/0/cliqueNames", json!(["a"])),
        ("/template/podCliqueScalingGroups/0/minAvailable", json!(2)),
        ("/template/podCliqueScalingGroups/0/resourceSharing", sharing.clone()),
        (
            "/template/podCliqueScalingGroups/0/topologyConstraint",
            json!({"pack": {"required": "rack"}}),
        ),
        ("/template/clusterTopologyName", json!("other")),
        ("/template/topologyConstraint", json!({"pack": {"required": "rack"}})),
        ("/template/resourceSharing", sharing),
        (
            "/template/resourceClaimTemplates",
            json!([{"name": "t", "templateSpec": {"spec": {"devices": {"requests": [
            {"name": "d", "exactly": {"deviceClassName": "c"}}]}}}}]),
        ),
    ]
}

fn metrics() -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
}

/// Names of the fields on the way, without numbers.
fn path(pointer: &str) -> String {
    let steps = pointer
        .split('/')
        .filter(|step| !step.is_empty() && step.parse::<usize>().is_err());
    steps.collect::<Vec<_>>().join(".")
}

/// Paths of the fields of a set that hold something themselves.
fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut children: Vec<(String, &Value)> = properties
        .map(|(name, field)| (format!("{path}.{name}"), field))
        .collect();
    if schema["items"]["properties"].is_object() {
        children.push((path.to_owned(), &schema["items"]));
    }
    if children.is_empty() {
        found.insert(path.trim_start_matches('.').to_owned());
    }
    for (path, child) in children {
        // What is below is Kubernetes'; samples of it are enough.
        match path.ends_with("podSpec") || path.ends_with("metrics") || path.ends_with("templateSpec") {
            true => drop(found.insert(path.trim_start_matches('.').to_owned())),
            false => leaves(child, &path, found),
        }
    }
}

#[test]
fn every_field_of_a_set_is_changed_or_refused() {
    let definitions = grove_api::crds::all();
    let definition = definitions
        .iter()
        .find(|definition| definition.spec.names.kind == "PodCliqueSet");
    let definition = serde_json::to_value(definition).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut all = BTreeSet::new();
    leaves(schema, "", &mut all);
    assert!(all.len() > 40, "{all:?}");
    let tried: Vec<String> = changeable()
        .iter()
        .chain(&fixed())
        .map(|(pointer, _)| path(pointer))
        .collect();
    let is_tried = |field: &String| {
        tried
            .iter()
            .any(|tried| field.starts_with(tried.as_str()) || tried.starts_with(field.as_str()))
    };
    let left: Vec<&String> = all.iter().filter(|field| !is_tried(field)).collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn world() -> World {
    let mut world = World::without_operator(1, two_racks()).await;
    grove_scenarios::Stage::launch(&mut world, &levels(&["rack", "host"])).await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7});
    let request =
        http::Request::post("/apis/scheduling.k8s.io/v1/priorityclasses").body(serde_json::to_vec(&class).unwrap());
    world.client().request::<Value>(request.unwrap()).await.unwrap();
    world.create_set(SET).await;
    world.settle().await;
    assert_eq!(world.ready().await, 4);
    world
}

/// What there is, without what is another each time. What an update leaves behind is history.
fn state(world: &World) -> BTreeMap<String, Value> {
    let there = world.remaining(0);
    let pods = there.iter().filter(|((kind, _), _)| kind == "pods").map(|(_, pod)| pod);
    let aliases = Aliases::of(pods);
    let kept = there
        .iter()
        .filter(|((kind, _), _)| !kind.starts_with("controllerrevisions"));
    let plain = kept.map(|((kind, name), object)| {
        let mut plain = aliases.plain(kind, object, "example.com/");
        if let Some(status) = plain["status"].as_object_mut() {
            status.remove("updateProgress");
        }
        (format!("{kind} {}", aliases.name(name)), plain)
    });
    plain.collect()
}

/// Pods by clique and index: who each is, and what it is made of.
fn pods(world: &World) -> BTreeMap<String, (String, Value)> {
    let there = world.remaining(0);
    let pods: Vec<&Value> = there
        .iter()
        .filter(|((kind, _), _)| kind == "pods")
        .map(|(_, pod)| pod)
        .collect();
    let aliases = Aliases::of(pods.iter().copied());
    let known = pods.iter().map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let mut made_of = aliases.plain("pods", pod, "example.com/");
        if let Some(labels) = made_of["metadata"]["labels"].as_object_mut() {
            labels.remove(labels::POD_TEMPLATE_HASH);
        }
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        (aliases.name(name).to_owned(), (uid, made_of))
    });
    known.collect()
}

/// Pods that were replaced by others that are made of the same.
fn in_vain(before: &BTreeMap<String, (String, Value)>, after: &BTreeMap<String, (String, Value)>) -> Vec<String> {
    let both = before
        .iter()
        .filter_map(|(name, pod)| Some((name, pod, after.get(name)?)));
    let replaced = both.filter(|(_, (old, was), (new, is))| old != new && was == is);
    replaced.map(|(name, ..)| name.clone()).collect()
}

async fn put(world: &World, pointer: &str, value: Option<&Value>) -> Result<(), kube::Error> {
    let current = serde_json::to_value(world.get::<PodCliqueSet>("w").await).unwrap();
    let pointer = format!("/spec{pointer}");
    let is_there = current.pointer(&pointer).is_some();
    let operation = match (value, is_there) {
        (Some(value), true) => json!({"op": "replace", "path": pointer, "value": value}),
        (Some(value), false) => json!({"op": "add", "path": pointer, "value": value}),
        (None, _) => json!({"op": "remove", "path": pointer}),
    };
    let patch = Patch::<()>::Json(serde_json::from_value(json!([operation])).unwrap());
    world
        .all::<PodCliqueSet>()
        .patch("w", &PatchParams::default(), &patch)
        .await
        .map(drop)
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_back_ends_where_it_began() {
    let world = world().await;
    let begin = state(&world);
    for (pointer, other) in changeable() {
        let set = serde_json::to_value(world.get::<PodCliqueSet>("w").await).unwrap();
        let first = set.pointer(&format!("/spec{pointer}")).cloned();
        let before = pods(&world);
        put(&world, pointer, Some(&other))
            .await
            .unwrap_or_else(|error| panic!("{pointer}: {error}"));
        world.settle().await;
        let meanwhile = pods(&world);
        assert_eq!(
            in_vain(&before, &meanwhile),
            Vec::<String>::new(),
            "{pointer} as {other}"
        );
        assert_ne!(state(&world), begin, "{pointer} does nothing");
        put(&world, pointer, first.as_ref())
            .await
            .unwrap_or_else(|error| panic!("{pointer}: {error}"));
        world.settle().await;
        assert_eq!(
            in_vain(&meanwhile, &pods(&world)),
            Vec::<String>::new(),
            "{pointer} back"
        );
        let differences = differences(&state(&world), &begin);
        assert!(differences.is_empty(), "{pointer}: {differences:#?}");
    }
}

/// While nobody looks: what is as it was is not touched.
#[tokio::test(start_paused = true)]
async fn what_is_changed_back_before_anybody_looks_replaces_nothing() {
    let mut world = world().await;
    let (begin, before) = (state(&world), pods(&world));
    world.stop_operator().await;
    for (pointer, other) in changeable() {
        let set = serde_json::to_value(world.get::<PodCliqueSet>("w").await).unwrap();
        let first = set.pointer(&format!("/spec{pointer}")).cloned();
        put(&world, pointer, Some(&other)).await.unwrap();
        put(&world, pointer, first.as_ref()).await.unwrap();
    }
    world.launch(&levels(&["rack", "host"])).await.unwrap();
    world.settle().await;
    assert_eq!(pods(&world), before);
    let differences = differences(&state(&world), &begin);
    assert!(differences.is_empty(), "{differences:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_changed_is_refused_by_name() {
    let world = world().await;
    let before = pods(&world);
    for (pointer, other) in fixed() {
        let refused = put(&world, pointer, Some(&other)).await;
        let Err(kube::Error::Api(status)) = refused else {
            panic!("{pointer}: {refused:?}");
        };
        let causes = status
            .details
            .as_ref()
            .map(|details| details.causes.as_slice())
            .unwrap_or_default();
        let field = format!("spec.{}", path(pointer));
        let without_numbers = |named: &str| -> String {
            let steps = named.split(['[', ']']).filter(|step| step.parse::<usize>().is_err());
            steps.collect()
        };
        let is_named = causes.iter().any(|cause| {
            let named = without_numbers(&cause.field);
            named.starts_with(&field) || field.starts_with(&named)
        });
        assert!(is_named, "{field}: {}", status.message);
    }
    world.settle().await;
    assert_eq!(pods(&world), before);
}
