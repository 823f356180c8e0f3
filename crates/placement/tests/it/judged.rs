//! Plans on the measured cluster as the judge sees them, for tests and for the benchmark.

use grove_placement::bench::Instance;
use grove_placement::{Gang, NodeId, Pack, Plan, PodGroup, Resource};
use grove_plancheck::{Alike, Fault, Host, Instance as Judged, Near, Put, check};

/// Levels of the instance, broad to narrow.
const LEVELS: [&str; 3] = ["block", "rack", "host"];

fn near(pack: &Pack) -> Near {
    let depth = |word: &Option<String>| {
        let known = LEVELS.iter().position(|level| word.as_deref() == Some(level));
        known.map_or(0, |index| index + 1)
    };
    Near {
        required: depth(&pack.required),
        preferred: depth(&pack.preferred),
    }
}

/// What the judge has against a plan that was not committed yet.
pub(crate) fn faults(instance: &Instance, gang: &Gang, plan: &Plan) -> Vec<Fault> {
    let cluster = &instance.cluster;
    let nodes: Vec<NodeId> = cluster.nodes().collect();
    let requests = |pod_group: &PodGroup| cluster.requests(pod_group.shape).clone();
    let asked = gang.pod_groups.iter().flat_map(|pod_group| {
        let requests = requests(pod_group);
        requests.iter().map(|(resource, _)| resource).collect::<Vec<_>>()
    });
    let mut resources: Vec<Resource> = asked.collect();
    resources.sort_unstable();
    resources.dedup();
    let host = |node: &NodeId| {
        let labels = &cluster.traits(*node).labels;
        let value = |level: &&str| {
            labels[&format!("bench/{level}")]
                .trim_start_matches(char::is_alphabetic)
                .parse()
        };
        let path = LEVELS[..2]
            .iter()
            .map(|level| value(level).expect("domains are numbered"));
        Host {
            free: resources
                .iter()
                .map(|resource| cluster.free(*node, *resource))
                .collect(),
            path: Some(path.collect()),
            cells: Vec::new(),
        }
    };
    let alike = |pod_group: &PodGroup| Alike {
        near: near(&pod_group.pack),
        request: resources
            .iter()
            .map(|resource| requests(pod_group).get(*resource))
            .collect(),
        pods: pod_group.minimum,
    };
    let mut judged = Judged::of_hosts(LEVELS.len() - 1, nodes.iter().map(host).collect());
    judged.ask(near(&gang.pack), gang.pod_groups.iter().map(alike));
    let put = plan.assignments.iter().map(|assignment| Put {
        group: assignment.pod_group,
        host: nodes.binary_search(&assignment.node).unwrap_or(usize::MAX),
        cell: assignment.cell.map(usize::from),
        pods: assignment.pods,
    });
    check(&judged, &put.collect::<Vec<_>>())
}
