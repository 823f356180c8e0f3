//! What the operator's configuration adds to graphs.

use std::collections::BTreeMap;

use grove_api::DynamoGraphDeployment;
use grove_api::config::{Overrides, parse};
use grove_dynamo::translate::{Surroundings, Translation, translate};
use kube::ResourceExt;
use serde_json::json;

use crate::examples::text;
use crate::graphs::{graph, with_component, with_worker};

const ADDRESSES: &str = "natsAddress: nats://n:4222, etcdAddress: http://e:2379, modelExpressURL: http://m:8001, \
                         prometheusEndpoint: http://p:9090";

/// The surroundings of an operator with these settings.
fn around(dynamo: &str) -> Surroundings {
    let text = format!("dynamo: {{{dynamo}}}\n");
    let loaded = parse(text.as_bytes(), &Overrides::default()).expect("a good configuration");
    Surroundings::new(&loaded.configuration)
}

/// Plain variables of the main container of a clique.
fn env(made: &Translation, clique: &str) -> BTreeMap<String, String> {
    let mut cliques = made.set.spec.template.cliques.iter();
    let clique = cliques.find(|found| found.name == clique).expect("a clique");
    let vars = clique.spec.pod_spec.containers[0].env.iter().flatten();
    vars.filter_map(|var| Some((var.name.clone(), var.value.clone()?)))
        .collect()
}

fn made(graph: &DynamoGraphDeployment, around: &Surroundings) -> Translation {
    translate(graph, around).expect("a graph")
}

#[test]
fn components_are_told_of_the_services_that_the_operator_knows() {
    let bare = graph(json!({}));
    let known = [
        ("NATS_SERVER", "nats://n:4222"),
        ("ETCD_ENDPOINTS", "http://e:2379"),
        ("MODEL_EXPRESS_URL", "http://m:8001"),
        ("PROMETHEUS_ENDPOINT", "http://p:9090"),
    ];
    let (with, without) = (made(&bare, &around(ADDRESSES)), made(&bare, &around("enabled: true")));
    for clique in ["frontend", "worker"] {
        for (name, value) in known {
            assert_eq!(
                env(&with, clique).get(name).map(String::as_str),
                Some(value),
                "{clique}"
            );
            assert_eq!(env(&without, clique).get(name), None, "{clique}: nothing is made up");
        }
    }
    assert_eq!(
        text(&without),
        text(&made(&bare, &Surroundings::default())),
        "an operator that is told nothing adds nothing"
    );
}

#[test]
fn what_a_graph_says_of_its_services_wins() {
    let mut own = with_worker(
        json!({"podTemplate": {"spec": {"containers": [{"name": "main", "image": "server",
        "env": [{"name": "ETCD_ENDPOINTS", "value": "mine"}]}]}}}),
    );
    own.spec.env = vec![json!({"name": "NATS_SERVER", "value": "ours"})];
    let made = made(&own, &around(ADDRESSES));
    let said = |clique: &str, name: &str| env(&made, clique).get(name).cloned().unwrap_or_default();
    assert_eq!(said("worker", "NATS_SERVER"), "ours");
    assert_eq!(said("frontend", "NATS_SERVER"), "ours");
    assert_eq!(said("worker", "ETCD_ENDPOINTS"), "mine");
    assert_eq!(said("frontend", "ETCD_ENDPOINTS"), "http://e:2379");
}

/// Components that find each other by etcd need neither Services nor rights for it; a planner keeps its own.
#[test]
fn with_etcd_nothing_is_made_for_discovery() {
    let etcd = around("discoveryBackend: etcd, etcdAddress: \"http://e:2379\"");
    let names = |made: &Translation| -> (Vec<String>, Vec<String>) {
        let services = made.services.iter().map(ResourceExt::name_any);
        (
            services.collect(),
            made.accounts.iter().map(ResourceExt::name_any).collect(),
        )
    };
    let plain = made(&graph(json!({})), &etcd);
    assert_eq!(names(&plain), (vec!["g-frontend".to_owned()], vec![]));
    assert_eq!((plain.roles.len(), plain.role_bindings.len()), (0, 0));
    assert_eq!(env(&plain, "worker").get("DYN_DISCOVERY_BACKEND"), None);
    for clique in &plain.set.spec.template.cliques {
        assert_eq!(clique.spec.pod_spec.service_account_name, None, "{}", clique.name);
        let discovery = clique.labels.keys().filter(|label| label.contains("discovery"));
        assert_eq!(discovery.count(), 0, "{}", clique.name);
    }
    let planned = made(&with_component(1, json!({"type": "planner"})), &etcd);
    assert_eq!(names(&planned).1, ["g-planner"]);
    let rules = json!(planned.roles[0].rules).to_string();
    assert!(
        rules.contains("scalingadapters") && !rules.contains("endpointslices"),
        "{rules}"
    );
}
