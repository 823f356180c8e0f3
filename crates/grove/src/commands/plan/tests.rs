//! Texts in, places out: everything of the command but files and printing.

use grove_api::config::Packing;
use grove_plan::{Answer, GangAnswer, Input, Invalid, Verdict, gangs, place};
use serde_json::{Value, json};

use super::show;
use crate::look::Look;

/// The racks of the gang as a whole.
fn racks(gang: &GangAnswer) -> &[String] {
    let mut levels = gang.scopes[0].domains.iter();
    levels
        .find(|(level, _)| level == "rack")
        .map_or(&[], |(_, names)| names)
}

fn plan(texts: &[&str], levels: &[&str]) -> Result<Answer, Invalid> {
    plan_packed(texts, levels, Packing::FewestHosts)
}

fn plan_packed(texts: &[&str], levels: &[&str], packing: Packing) -> Result<Answer, Invalid> {
    let mut input = Input::new(None);
    for (index, text) in texts.iter().enumerate() {
        input.add(text, &format!("file {index}"))?;
    }
    let levels: Vec<String> = levels.iter().map(|level| (*level).to_owned()).collect();
    input.complete(&levels)?;
    Ok(place(&input, &gangs(&input)?, packing))
}

/// Hosts of 8 GPUs, `hosts` in each rack, in racks r0, r1, …
fn nodes(racks: usize, hosts: usize) -> String {
    let node = |at: usize| {
        let (rack, host) = (at / hosts, at % hosts);
        let name = format!("r{rack}h{host}");
        json!({"metadata": {"name": name, "labels": {"x/rack": format!("r{rack}"), "kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}}})
    };
    let items: Vec<Value> = (0..racks * hosts).map(node).collect();
    json!({"kind": "NodeList", "items": items}).to_string()
}

/// One clique of `pods` × `gpus` that must share a rack.
fn set(name: &str, (pods, gpus): (usize, usize), more: Value) -> String {
    let container = json!({"name": "m", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}});
    let mut template = json!({
        "topologyConstraint": {"packDomain": "rack"},
        "cliques": [{"name": "w", "spec": {"roleName": "w", "replicas": pods, "podSpec": {"containers": [container]}}}],
    });
    template
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "template": template}})
    .to_string()
}

const LEVELS: [&str; 2] = ["rack=x/rack", "host=kubernetes.io/hostname"];

fn results(answer: &Answer) -> Vec<(&str, Verdict)> {
    answer
        .gangs
        .iter()
        .map(|gang| (gang.name.as_str(), gang.result))
        .collect()
}

// shows: G244-13
#[test]
fn a_numa_level_is_met_in_one_cell_of_a_host_that_says_what_its_cells_have() {
    let cells = |node: &str, left: [usize; 2]| {
        let zone = |cell: usize| {
            json!({"name": format!("node-{cell}"), "type": "Node",
                "resources": [{"name": "nvidia.com/gpu", "available": left[cell].to_string()}]})
        };
        json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
            "metadata": {"name": node}, "zones": [zone(0), zone(1)]})
        .to_string()
    };
    let bench = set("bench", (1, 2), json!({"topologyConstraint": {"packDomain": "numa"}}));
    let levels = [LEVELS[0], LEVELS[1], "numa=x/numa"];
    let [full, open] = [cells("r0h0", [1, 1]), cells("r0h1", [1, 4])];
    let answer = plan(&[&nodes(1, 2), &full, &open, &bench], &levels).unwrap();
    let scope = &answer.gangs[0].scopes[0];
    assert_eq!(
        scope.domains.last(),
        Some(&("numa".to_owned(), vec!["r0h1/1".to_owned()]))
    );
    let refused = plan(&[&nodes(1, 1), &full, &bench], &levels).unwrap();
    assert_eq!(results(&refused), [("bench-0", Verdict::Infeasible)]);
}

#[test]
fn gangs_are_placed_one_after_the_other_and_refusals_say_why() {
    let nodes = nodes(2, 2);
    let [first, second] = ["a", "b"].map(|name| set(name, (2, 8), json!({})));
    let third = set("c", (1, 1), json!({}));
    let answer = plan(&[&nodes, &first, &second, &third], &LEVELS).unwrap();
    assert_eq!(
        results(&answer),
        [
            ("a-0", Verdict::Placed),
            ("b-0", Verdict::Placed),
            ("c-0", Verdict::Infeasible)
        ]
    );
    assert_eq!(racks(&answer.gangs[0]).len(), 1);
    assert_ne!(racks(&answer.gangs[0]), racks(&answer.gangs[1]));
    let reason = answer.gangs[2].reason.as_deref().unwrap();
    assert!(reason.contains("nvidia.com/gpu") || reason.contains("GPU"), "{reason}");
    assert_eq!(
        (answer.summary.placed, answer.summary.pods, answer.summary.pods_placed),
        (2, 5, 4)
    );
    assert!(!answer.is_all_placed());
}

#[test]
fn priority_goes_before_the_order_of_the_files() {
    let class = json!({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}).to_string();
    let low = set("low", (2, 8), json!({}));
    let high = set("high", (2, 8), json!({"priorityClassName": "high"}));
    let answer = plan(&[&nodes(1, 2), &low, &high, &class], &LEVELS).unwrap();
    assert_eq!(
        results(&answer),
        [("high-0", Verdict::Placed), ("low-0", Verdict::Infeasible)]
    );
}

#[test]
fn pods_that_run_count_and_pin_their_gang() {
    let set = set("a", (2, 8), json!({}));
    let pod = |name: &str, node: &str, labels: Value| {
        json!({"kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
            "status": {"phase": "Running"}})
        .to_string()
    };
    let own = json!({"grove.io/podclique": "a-0-w", "grove.io/podclique-pod-index": "0", "grove.io/podgang": "a-0"});
    let own = pod("a-0-w-xxxxx", "r1h0", own);
    let answer = plan(&[&nodes(2, 2), &own, &set], &LEVELS).unwrap();
    let placed: Vec<(&str, &str)> = answer.gangs[0]
        .pods
        .iter()
        .map(|pod| (pod.name.as_str(), pod.node.as_str()))
        .collect();
    assert_eq!(placed[0], ("a-0-w-xxxxx", "r1h0"));
    assert_eq!(placed[1].1, "r1h1", "beside the one that runs");
    let other = pod("other", "r1h1", json!({}));
    let answer = plan(&[&nodes(2, 2), &own, &other, &set], &LEVELS).unwrap();
    assert_eq!(answer.gangs[0].result, Verdict::Infeasible);
}

#[test]
fn a_scaled_gang_follows_its_base_gang() {
    let groups = json!({"podCliqueScalingGroups": [
        {"name": "g", "cliqueNames": ["w"], "replicas": 2, "minAvailable": 1}]});
    let answer = plan(&[&nodes(2, 2), &set("a", (1, 8), groups.clone())], &LEVELS).unwrap();
    let racks: Vec<_> = answer.gangs.iter().map(racks).collect();
    assert_eq!(racks.len(), 2);
    assert_eq!(racks[0], racks[1], "the gangs of a replica share its rack");
    let answer = plan(&[&nodes(2, 2), &set("a", (3, 8), groups)], &LEVELS).unwrap();
    assert_eq!(
        answer.gangs[1].reason.as_deref(),
        Some("waits for its base gang a-0, which is not placed")
    );
}

#[test]
fn without_a_topology_the_labels_suggest_one() {
    let nodes = nodes(2, 2).replace("x/rack", "topology.kubernetes.io/rack");
    let answer = plan(&[&nodes, &set("a", (2, 8), json!({}))], &[]).unwrap();
    assert_eq!(results(&answer), [("a-0", Verdict::Placed)]);
}

#[test]
fn bad_input_is_named() {
    let error = |texts: &[&str], levels: &[&str]| plan(texts, levels).unwrap_err().to_string();
    let nodes = nodes(1, 1);
    assert!(error(&[&set("a", (1, 1), json!({}))], &[]).contains("no file has a Node"));
    assert!(error(&["a: ["], &[]).starts_with("file 0: "));
    assert!(error(&["a: 1"], &[]).contains("kind: is missing"));
    let unnamed = json!({"kind": "Node", "metadata": {}}).to_string();
    assert!(error(&[&unnamed], &[]).contains("metadata.name: is missing"));
    let wrong = json!({"kind": "Node", "metadata": {"name": "n"}, "spec": {"unschedulable": "yes"}}).to_string();
    assert!(
        error(&[&wrong], &[]).contains("Node n: spec.unschedulable: "),
        "{}",
        error(&[&wrong], &[])
    );
    assert!(error(&[&nodes], &["rack"]).contains("'rack' is not WORD=KEY"));
    let unknown = set("a", (1, 1), json!({"topologyConstraint": {"packDomain": "block"}}));
    let refused = error(&[&nodes, &unknown], &LEVELS);
    assert!(
        refused.contains("topology level 'block' not defined in ClusterTopology 'grove-topology'"),
        "{refused}"
    );
}

#[test]
fn other_kinds_are_passed_over_with_a_note() {
    let mut input = Input::new(None);
    input.add(&nodes(1, 1), "nodes").unwrap();
    input
        .add(
            "kind: Service\nmetadata: {name: s}\n---\nkind: List\nitems: [{kind: Service}]\n",
            "other",
        )
        .unwrap();
    input.complete(&[]).unwrap();
    assert!(
        input.notes.contains(&"not looked at: 2 Service".to_owned()),
        "{:?}",
        input.notes
    );
}

#[test]
fn the_table_names_the_domains_and_the_reasons() {
    let [fits, not] = [set("a", (2, 8), json!({})), set("b", (9, 8), json!({}))];
    let table = show::table(&plan(&[&nodes(2, 2), &fits, &not], &LEVELS).unwrap(), Look::PLAIN);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "GANG         RESULT      PODS  WHERE");
    assert_eq!(lines[1], "default/a-0  placed      2     rack r0, host r0h0,r0h1");
    assert_eq!(lines[2], "default/b-0  infeasible  0     -");
    assert!(lines[4].starts_with("default/b-0: needs "), "{table}");
    assert_eq!(lines[5], "1 of 2 gangs and 2 of 11 pods have a place on 4 nodes");
}

/// Two of three hosts have room for three pods more; a gang of six fits there, and on the third alone.
#[test]
fn packing_decides_whether_a_gang_breaks_into_a_whole_host() {
    let halves = ["a", "b"].map(|name| set(name, (1, 5), json!({})));
    let six = set("six", (6, 1), json!({}));
    let nodes = nodes(1, 3);
    let texts = [&nodes, &halves[0], &halves[1], &six].map(String::as_str);
    let hosts = |packing| {
        let answer = plan_packed(&texts, &LEVELS, packing).expect("good files");
        let gang = answer.gangs.last().expect("three gangs");
        gang.pods
            .iter()
            .map(|pod| pod.node.clone())
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    assert_eq!(hosts(Packing::FewestHosts), 1);
    assert_eq!(hosts(Packing::SpareHosts), 2);
}
