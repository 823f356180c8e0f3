//! Somebody who may write sets in one namespace puts names of what is not theirs into every field that can name something.
//! The operator, which may do much more, does nothing elsewhere and gives away nothing for it.

use std::collections::BTreeSet;

use grove_api::{PodCliqueSet, labels};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::back_and_forth::SET;
use crate::support::{HOME, NAMESPACE, OPERATOR, World};
use crate::topology::kit::{levels, two_racks};

/// Names of what an author must not reach.
const NAMES: [&str; 5] = [
    "grove-operator",
    "cluster-admin",
    "kube-system",
    "../../../kube-system/secrets/x",
    "*",
];

/// Fields of a pod template that name something.
const POD_FIELDS: [(&str, &str); 16] = [
    ("/serviceAccountName", r#""NAME""#),
    ("/serviceAccount", r#""NAME""#),
    ("/nodeName", r#""NAME""#),
    ("/schedulerName", r#""NAME""#),
    ("/priorityClassName", r#""NAME""#),
    ("/runtimeClassName", r#""NAME""#),
    ("/hostname", r#""NAME""#),
    ("/subdomain", r#""NAME""#),
    ("/imagePullSecrets", r#"[{"name": "NAME"}]"#),
    ("/volumes", r#"[{"name": "v", "secret": {"secretName": "NAME"}}]"#),
    (
        "/volumes",
        r#"[{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "NAME"}}]}}]"#,
    ),
    ("/volumes", r#"[{"name": "v", "hostPath": {"path": "/NAME"}}]"#),
    ("/resourceClaims", r#"[{"name": "c", "resourceClaimName": "NAME"}]"#),
    ("/containers/0/envFrom", r#"[{"secretRef": {"name": "NAME"}}]"#),
    (
        "/containers/0/env",
        r#"[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "NAME", "key": "k"}}}]"#,
    ),
    (
        "/initContainers",
        r#"[{"name": "NAME", "image": "NAME", "command": ["NAME"]}]"#,
    ),
];

/// Labels and annotations that mean something to the operator, as an author could want them.
fn borrowed() -> Value {
    json!({
        labels::MANAGED_BY: labels::MANAGED_BY_OPERATOR, labels::PART_OF: "victim", labels::PODCLIQUE: "victim-0-a",
        labels::PODGANG: "victim-0", labels::POD_INDEX: "0", labels::POD_TEMPLATE_HASH: "x",
        labels::annotation::DISABLE_PROTECTION: "true", labels::annotation::TOPOLOGY_NAME: "other",
    })
}

/// Pointers to all texts that a schema has outside of pod templates.
fn texts(schema: &Value, pointer: &str, found: &mut Vec<String>) {
    if schema["type"] == json!("string") {
        found.push(pointer.to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if name != "podSpec" && name != "templateSpec" && name != "metrics" {
            texts(field, &format!("{pointer}/{name}"), found);
        }
    }
    if schema["items"].is_object() {
        texts(&schema["items"], &format!("{pointer}/0"), found);
    }
}

/// Every set that an author tries.
fn attempts() -> Vec<(String, Value)> {
    let definitions = grove_api::crds::all();
    let definition = definitions
        .iter()
        .find(|definition| definition.spec.names.kind == "PodCliqueSet");
    let definition = serde_json::to_value(definition).unwrap();
    let mut pointers = Vec::new();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    texts(schema, "/spec", &mut pointers);
    let mut attempts: Vec<(String, Value)> = Vec::new();
    for (index, pointer) in pointers.into_iter().enumerate() {
        attempts.push((pointer, json!(NAMES[index % NAMES.len()])));
    }
    for (index, (pointer, value)) in POD_FIELDS.iter().enumerate() {
        let value = value.replace("NAME", NAMES[index % 3]);
        let pointer = format!("/spec/template/cliques/1/spec/podSpec{pointer}");
        attempts.push((pointer, serde_json::from_str(&value).unwrap()));
    }
    for place in [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/template/cliques/1/labels",
    ] {
        attempts.push((place.to_owned(), borrowed()));
    }
    attempts
}

/// Puts a value where a pointer leads, and makes what is missing on the way.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for step in pointer.split('/').skip(1) {
        at = match step.parse::<usize>() {
            Ok(index) => {
                if !at.is_array() {
                    *at = json!([]);
                }
                let items = at.as_array_mut().unwrap();
                while items.len() <= index {
                    items.push(json!({}));
                }
                &mut items[index]
            }
            Err(_) => &mut at[step],
        };
    }
    *at = value;
}

/// What the operator asked elsewhere; a claim template may be named with its namespace, and is read there.
fn elsewhere(world: &World) -> BTreeSet<String> {
    let asked = world.history().requests().by_user(OPERATOR);
    let elsewhere = asked.only(|asked| {
        let intent = &asked.intent;
        let is_here = ["", NAMESPACE, HOME.namespace].contains(&intent.namespace.as_str());
        !is_here && &*intent.resource.plural != "resourceclaimtemplates"
    });
    let told = |asked: &grove_simcluster::history::Asked| {
        let intent = &asked.intent;
        format!(
            "{} {} {}/{}",
            intent.verb, intent.resource, intent.namespace, intent.name
        )
    };
    elsewhere.iter().map(told).collect()
}

/// What is wrong with the rights that the operator gave away, and with the pods that it made.
fn given_away(world: &World, set: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for write in world.history().writes().by_user(OPERATOR).iter() {
        let Some(object) = write.after() else {
            continue;
        };
        let key = format!("{} {}", write.resource, write.key.name);
        match &*write.resource.plural {
            "roles" => {
                let rules = json!([{"apiGroups": ["grove.io"], "resources": ["podcliques"], "verbs": ["get", "list", "watch"]}]);
                let rule = &object["rules"][0];
                let is_small = rule["apiGroups"] == rules[0]["apiGroups"] && rule["resources"] == rules[0]["resources"];
                let verbs = rule["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let reads = verbs.into_iter().all(|verb| ["get", "list", "watch"].contains(&verb));
                if object["rules"].as_array().map(Vec::len) != Some(1) || !is_small || !reads {
                    wrong.push(format!("{key} allows {}", object["rules"]));
                }
            }
            "rolebindings" => {
                let subjects = object["subjects"].as_array().into_iter().flatten();
                let are_here = subjects.into_iter().all(|subject| {
                    let namespace = subject["namespace"].as_str().unwrap_or(NAMESPACE);
                    subject["kind"] == json!("ServiceAccount") && namespace == NAMESPACE
                });
                if object["roleRef"]["kind"] != json!("Role") || !are_here {
                    wrong.push(format!("{key} binds {}", object));
                }
            }
            "clusterroles" | "clusterrolebindings" | "secrets" if write.key.namespace != HOME.namespace => {
                wrong.push(key);
            }
            "pods" => {
                let labels = &object["metadata"]["labels"];
                let clique = labels[labels::PODCLIQUE].as_str().unwrap_or_default();
                if labels[labels::PART_OF] != json!(set) || !clique.starts_with(set) {
                    wrong.push(format!("{key} passes for one of {labels}"));
                }
            }
            _ => {}
        }
    }
    wrong
}

#[tokio::test(start_paused = true)]
async fn no_field_of_a_set_lends_the_rights_of_the_operator() {
    let mut world = World::without_operator(1, two_racks()).await;
    grove_scenarios::Stage::launch(&mut world, &levels(&["rack", "host"])).await;
    let (mut taken, mut refused) = (0, 0);
    for (pointer, value) in attempts() {
        let mut object: Value = serde_saphyr::from_str(SET).unwrap();
        put(&mut object, &pointer, value);
        // A field that our types cannot hold is one that the API server refuses.
        let Ok(set) = serde_json::from_value::<PodCliqueSet>(object) else {
            refused += 1;
            continue;
        };
        let name = set.metadata.name.clone().unwrap_or_default();
        match world.all::<PodCliqueSet>().create(&PostParams::default(), &set).await {
            Ok(_) => taken += 1,
            Err(kube::Error::Api(_)) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{pointer}: {error}"),
        }
        world.settle().await;
        assert_eq!(elsewhere(&world), BTreeSet::new(), "{pointer}");
        assert_eq!(given_away(&world, &name), Vec::<String>::new(), "{pointer}");
        let deleted = world
            .all::<PodCliqueSet>()
            .delete(&name, &DeleteParams::default())
            .await;
        deleted.unwrap();
        world.settle().await;
    }
    assert!(taken > 15 && refused > 20, "{taken} taken, {refused} refused");
}
