//! What nodes say about topologies.

use grove_api::topology::{DomainWord, HOSTNAME_LABEL};
use grove_topology::survey::{
    Amounts, Capacity, NodeLabels, Severity, check_capacity, check_constraints, check_nodes, discover, tree, unlabelled,
};
use grove_topology::{Resolution, Topology, TopologyKind};

use crate::fixtures::{Author, grove_topology, packed, set};

const RACK: &str = "topology.kubernetes.io/rack";
const BLOCK: &str = "topology.kubernetes.io/block";

fn node(name: &str, labels: &[(&str, &str)]) -> NodeLabels {
    let own = [(HOSTNAME_LABEL, name)];
    let labels = labels
        .iter()
        .chain(&own)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    NodeLabels {
        name: name.to_owned(),
        labels: labels.collect(),
    }
}

fn nodes() -> Vec<NodeLabels> {
    vec![
        node("n1", &[(BLOCK, "b1"), (RACK, "r1")]),
        node("n2", &[(BLOCK, "b1"), (RACK, "r1")]),
        node("n3", &[(BLOCK, "b1"), (RACK, "r2")]),
        node("n4", &[(BLOCK, "b2"), (RACK, "r3")]),
    ]
}

fn topology() -> Topology {
    Topology::from(&grove_topology(&["block", "rack", "host"]))
}

#[test]
fn domains_nest_and_hosts_are_counted() {
    let blocks = tree(&topology(), &nodes());
    let shown: Vec<String> = blocks
        .iter()
        .map(|block| {
            let racks: Vec<String> = block
                .domains
                .iter()
                .map(|rack| format!("{}:{}", rack.name, rack.nodes))
                .collect();
            format!("{} {} {} [{}]", block.level, block.name, block.nodes, racks.join(" "))
        })
        .collect();
    assert_eq!(shown, ["block b1 3 [r1:2 r2:1]", "block b2 1 [r3:1]"]);
    assert!(blocks[0].domains[0].domains.is_empty());
    assert_eq!(unlabelled(&topology(), &nodes()), Vec::<&str>::new());
}

// shows: G244-19
#[test]
fn nodes_without_a_label_and_torn_racks_are_found() {
    let mut all = nodes();
    assert_eq!(check_nodes(&topology(), &all), []);
    all.push(node("n5", &[(BLOCK, "b2")]));
    all.push(node("n6", &[(BLOCK, "b2"), (RACK, "r1")]));
    all.push(node("other-hardware", &[]));
    let found = check_nodes(&topology(), &all);
    let told: Vec<_> = found
        .iter()
        .map(|finding| (finding.severity, finding.code, finding.message.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (
                Severity::Warn,
                "GT011",
                "ClusterTopology 'grove-topology': 1 of 6 nodes lack topology.kubernetes.io/rack: n5; no gang with a \
                 constraint lands there"
            ),
            (
                Severity::Fail,
                "GT012",
                "ClusterTopology 'grove-topology': topology.kubernetes.io/rack=r1 is in 2 domains of \
                 topology.kubernetes.io/block: b1 b2"
            ),
        ]
    );
    assert_eq!(found[0].fix, "kubectl label node n5 topology.kubernetes.io/rack=VALUE");
    assert_eq!(unlabelled(&topology(), &all), ["n5", "other-hardware"]);
    assert_eq!(check_nodes(&topology(), &[node("bare", &[])])[0].code, "GT010");
}

/// Racks and blocks that each hold the other, as when somebody mixes up two labels.
#[test]
fn labels_that_go_in_a_circle_are_found_and_end() {
    let all = [("b1", "r1"), ("b1", "r2"), ("b2", "r1"), ("b2", "r2")];
    let all = all.map(|(block, rack)| node(&format!("{block}{rack}"), &[(BLOCK, block), (RACK, rack)]));
    let found = check_nodes(&topology(), &all);
    let told: Vec<&str> = found.iter().map(|finding| finding.code).collect();
    assert_eq!(told, ["GT012", "GT012"]);
    let blocks = tree(&topology(), &all);
    let racks: Vec<usize> = blocks.iter().map(|block| block.domains.len()).collect();
    assert_eq!(racks, [2, 2], "each pair is a place of its own");
    let proposal = discover(&all).map(|proposal| proposal.spec.levels.len());
    assert!(
        proposal.is_none_or(|levels| levels < 3),
        "no order can be read from them"
    );
}

#[test]
fn without_nodes_there_is_one_finding_and_no_domain() {
    assert!(tree(&topology(), &[]).is_empty());
    let found = check_nodes(&topology(), &[]);
    assert_eq!(found.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["GT010"]);
    assert!(discover(&[]).is_none());
}

/// However many are wrong, people are told in a few lines.
#[test]
fn ten_thousand_racks_are_counted_and_told_in_a_few_lines() {
    let racks = 10_000;
    let name = |rack: usize| format!("r{rack:05}");
    let good: Vec<NodeLabels> = (0..racks)
        .map(|rack| node(&format!("n{rack}"), &[(BLOCK, "b1"), (RACK, &name(rack))]))
        .collect();
    assert_eq!(tree(&topology(), &good)[0].domains.len(), racks);
    assert_eq!(check_nodes(&topology(), &good), []);
    let mut torn = good;
    torn.extend((0..racks).map(|rack| node(&format!("m{rack}"), &[(BLOCK, "b2"), (RACK, &name(rack))])));
    torn.extend((0..racks).map(|bare| node(&format!("bare{bare}"), &[(BLOCK, "b2")])));
    let found = check_nodes(&topology(), &torn);
    assert!(found.len() < 20, "{} findings", found.len());
    assert!(found.iter().all(|finding| finding.message.len() < 500), "{found:?}");
    let last = found.last().map(|finding| finding.message.as_str());
    let more = format!(
        "ClusterTopology 'grove-topology': {} more values of {RACK} are in several domains of {BLOCK}",
        racks - (found.len() - 2)
    );
    assert_eq!(last, Some(more.as_str()));
}

#[test]
fn constraints_that_nothing_can_hold_are_found() {
    let set = set("a").replica(packed("rack"));
    let in_force = |words: &[&str]| Resolution::InForce {
        topology: Topology::from(&grove_topology(words)),
        is_terminating: false,
    };
    let codes = |resolution: &Resolution, nodes: &[NodeLabels]| -> Vec<&str> {
        check_constraints(&set, resolution, nodes)
            .iter()
            .map(|finding| finding.code)
            .collect()
    };
    assert_eq!(codes(&in_force(&["rack", "host"]), &nodes()), Vec::<&str>::new());
    assert_eq!(codes(&in_force(&["rack", "host"]), &[node("bare", &[])]), ["GT022"]);
    assert_eq!(codes(&in_force(&["host"]), &nodes()), ["GT021"]);
    let missing = Resolution::Missing {
        kind: TopologyKind::ClusterTopology,
        name: "grove-topology".into(),
    };
    assert_eq!(codes(&missing, &nodes()), ["GT020"]);
    assert_eq!(codes(&Resolution::Unused, &nodes()), Vec::<&str>::new());
}

#[test]
fn what_no_domain_could_hold_even_empty_is_found() {
    let gpus = |count: u64| -> Amounts { [("nvidia.com/gpu".to_owned(), count)].into() };
    let in_force = Resolution::InForce {
        topology: topology(),
        is_terminating: false,
    };
    let codes = |word: &str, pods: i32, per_pod: u64| -> Vec<String> {
        let mut set = set("a").replica(packed(word)).clique("w", None);
        set.spec.template.cliques[0].spec.replicas = pods;
        let capacity = Capacity {
            per_pod: [("w".to_owned(), gpus(per_pod))].into(),
            rooms: nodes().into_iter().map(|node| (node.name, gpus(8))).collect(),
        };
        let findings = check_capacity(&set, &in_force, &nodes(), &capacity);
        findings.into_iter().map(|finding| finding.message).collect()
    };
    // The largest rack has two nodes, the largest block three.
    assert_eq!(codes("rack", 4, 4), Vec::<String>::new());
    assert_eq!(
        codes("rack", 5, 4),
        [
            "PodCliqueSet ml/a: spec.template.topologyConstraint.packDomain: no rack could hold the 5 pods that must be in \
             one: they ask for 20 nvidia.com/gpu, the largest has 16"
        ]
    );
    assert_eq!(codes("block", 5, 4), Vec::<String>::new());
    // Enough in all, but no node is that large.
    assert_eq!(codes("block", 1, 9).len(), 1);
    assert_eq!(
        codes("zone", 1, 9),
        Vec::<String>::new(),
        "a level that is not there is another finding"
    );
}

#[test]
fn a_group_is_judged_by_one_of_its_replicas_and_the_whole_by_its_minimum() {
    let mut set = set("a")
        .replica(packed("block"))
        .clique("w", None)
        .group("g", &["w"], packed("rack"));
    set.spec.template.cliques[0].spec.replicas = 2;
    let gpus = |count: u64| -> Amounts { [("nvidia.com/gpu".to_owned(), count)].into() };
    let capacity = Capacity {
        per_pod: [("w".to_owned(), gpus(8))].into(),
        rooms: nodes().into_iter().map(|node| (node.name, gpus(8))).collect(),
    };
    let in_force = Resolution::InForce {
        topology: topology(),
        is_terminating: false,
    };
    let found = |set: &grove_api::PodCliqueSet| check_capacity(set, &in_force, &nodes(), &capacity).len();
    assert_eq!(found(&set), 0, "two pods in a rack of two");
    set.spec.template.scaling_groups[0].min_available = Some(2);
    assert_eq!(found(&set), 1, "four pods in a block of three");
}

#[test]
fn a_topology_is_discovered_from_labels_that_nest() {
    let mut all = nodes();
    // One rack too many for a zone: that label does not nest, and a second label for racks is not needed.
    for (node, zone) in all.iter_mut().zip(["z1", "z1", "z1", "z1"]) {
        node.labels.insert("topology.kubernetes.io/zone".into(), zone.into());
        node.labels.insert("kubernetes.io/arch".into(), "arm64".into());
    }
    all[0].labels.insert("example.com/gpu-rack".into(), "x".into());
    let proposal = discover(&all).unwrap();
    let levels: Vec<(DomainWord, &str)> = proposal
        .spec
        .levels
        .iter()
        .map(|level| (level.domain, level.key.as_str()))
        .collect();
    assert_eq!(
        levels,
        [
            (DomainWord::Zone, "topology.kubernetes.io/zone"),
            (DomainWord::Block, BLOCK),
            (DomainWord::Rack, RACK),
            (DomainWord::Host, HOSTNAME_LABEL),
        ]
    );
    let other = proposal
        .candidates
        .iter()
        .find(|candidate| candidate.key == "example.com/gpu-rack")
        .unwrap();
    assert_eq!(
        (other.is_proposed, other.note.as_str()),
        (false, "another label is proposed for rack")
    );

    all[3].labels.insert(RACK.into(), "r1".into());
    let proposal = discover(&all).unwrap();
    let rack = proposal
        .candidates
        .iter()
        .find(|candidate| candidate.key == RACK)
        .unwrap();
    assert_eq!(
        (rack.is_proposed, rack.note.as_str()),
        (false, "r1 is in several domains of topology.kubernetes.io/block")
    );
    assert_eq!(discover(&[node("bare", &[])]), None);
}
