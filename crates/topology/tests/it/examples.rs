//! The manifests that users start from: every one is admitted on the topologies that the examples bring.

use std::fs;
use std::path::Path;

use grove_api::config::PreferredPacking;
use grove_api::{ClusterTopology, PodCliqueSet, TopologyDomain};
use grove_topology::resolve::{Found, reference, resolve};
use grove_topology::validate::{
    ClusterTopologyReview, Request, SetReview, Verdict, review_cluster_topology, review_set, review_topology_domain,
};
use serde_json::Value;

use crate::fixtures::{enabled, grove_topology};
use crate::gangs::{described, planned};

#[derive(Default)]
struct Examples {
    sets: Vec<PodCliqueSet>,
    cluster_topologies: Vec<ClusterTopology>,
    topology_domains: Vec<TopologyDomain>,
}

fn examples() -> Examples {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut examples = Examples::default();
    for file in fs::read_dir(folder).expect("the folder of examples") {
        let path = file.expect("a file of the folder").path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(path).expect("a text file");
        for document in text.split("\n---\n") {
            let value: Value = serde_saphyr::from_str(document).expect("a manifest");
            let kind = value["kind"].as_str().unwrap_or_default().to_owned();
            match kind.as_str() {
                "PodCliqueSet" => examples
                    .sets
                    .push(serde_json::from_value(value).expect("a PodCliqueSet")),
                "ClusterTopology" => {
                    let object = serde_json::from_value(value).expect("a ClusterTopology");
                    examples.cluster_topologies.push(object);
                }
                "TopologyDomain" => {
                    let object = serde_json::from_value(value).expect("a TopologyDomain");
                    examples.topology_domains.push(object);
                }
                // Not judged by any rule of this crate.
                _ => {}
            }
        }
    }
    examples
}

#[test]
fn every_example_is_admitted_without_a_warning() {
    let examples = examples();
    let tas = enabled("");
    assert!(!examples.sets.is_empty() && !examples.topology_domains.is_empty());
    for new in &examples.topology_domains {
        assert_eq!(review_topology_domain(None, new), Verdict::default());
    }
    for new in &examples.cluster_topologies {
        let review = ClusterTopologyReview {
            request: Request::Create { new },
            is_operator: false,
            tas: &tas,
            scheduled_users: &[],
        };
        assert_eq!(review_cluster_topology(&review), Verdict::default());
    }
    let default = grove_topology(&["zone", "block", "rack", "host"]);
    for new in &examples.sets {
        let name = reference(new, &tas.source).map_or("", |reference| reference.name);
        let mut topologies = examples.cluster_topologies.iter().chain([&default]);
        let found = Found {
            cluster_topology: topologies.find(|object| object.metadata.name.as_deref() == Some(name)),
            ..Found::default()
        };
        let review = SetReview {
            old: None,
            new,
            tas: &tas,
            found,
            scheduled_pods: 0,
            unenforceable: None,
            why_host: None,
        };
        assert_eq!(review_set(&review), Verdict::default(), "{:?}", new.metadata.name);
    }
}

// shows: G244-14
#[test]
fn story_4_the_same_word_leads_to_the_keys_of_the_chosen_hardware() {
    let examples = examples();
    let tas = enabled("");
    let on_gb200 = examples
        .sets
        .iter()
        .find(|set| set.metadata.name.as_deref() == Some("on-gb200"));
    let set = on_gb200.expect("the example of two topologies");
    let gb200 = examples
        .cluster_topologies
        .iter()
        .find(|object| object.metadata.name.as_deref() == Some("gb200"));
    let found = Found {
        cluster_topology: gb200,
        ..Found::default()
    };
    let resolution = resolve(reference(set, &tas.source), &tas, &found);
    let gang = planned(set)[0].gang(set, &resolution, PreferredPacking::Constrained, None);
    assert_eq!(
        described(&gang),
        "topology gb200, replica gb200-nvl72\n\
         gang: gb200-nvl72 / hostname\n\
         on-gb200-0-worker: - / hostname"
    );
}
