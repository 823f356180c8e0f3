//! What people do with Grove, as steps over the API.

use grove_scenarios::{HOST, RACK};
use grove_simcluster::store::ResourceName;
use serde_json::{Value, json};

use crate::process::Levels;
use crate::world::{LEVELS, NAMESPACE};

/// Kinds that people write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Set,
    Group,
    Clique,
    Gang,
    Graph,
    Adapter,
    Topology,
    Pod,
    Service,
    Node,
    PriorityClass,
}

impl Kind {
    /// Those into which another controller writes too.
    pub(crate) const MARKED: [Self; 6] = [
        Self::Set,
        Self::Group,
        Self::Clique,
        Self::Gang,
        Self::Pod,
        Self::Service,
    ];

    /// Those that Grove makes. What is written into a set is passed on to its gangs, so a storm on sets would be work to do
    /// and no noise.
    pub(crate) const OWNED: [Self; 5] = [Self::Group, Self::Clique, Self::Gang, Self::Pod, Self::Service];

    pub(crate) fn of(object: &Value) -> Self {
        match object["kind"].as_str().unwrap_or_default() {
            "DynamoGraphDeployment" => Self::Graph,
            "PriorityClass" => Self::PriorityClass,
            "ClusterTopology" => Self::Topology,
            "Pod" => Self::Pod,
            _ => Self::Set,
        }
    }

    /// Group, version and plural name.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Set => ("grove.io", "v1alpha1", "podcliquesets"),
            Self::Group => ("grove.io", "v1alpha1", "podcliquescalinggroups"),
            Self::Clique => ("grove.io", "v1alpha1", "podcliques"),
            Self::Gang => ("scheduler.grove.io", "v1alpha1", "podgangs"),
            Self::Graph => ("nvidia.com", "v1beta1", "dynamographdeployments"),
            Self::Adapter => ("nvidia.com", "v1beta1", "dynamographdeploymentscalingadapters"),
            Self::Topology => ("grove.io", "v1alpha1", "clustertopologies"),
            Self::Pod => ("", "v1", "pods"),
            Self::Service => ("", "v1", "services"),
            Self::Node => ("", "v1", "nodes"),
            Self::PriorityClass => ("scheduling.k8s.io", "v1", "priorityclasses"),
        }
    }

    pub(crate) fn resource(self) -> ResourceName {
        let (group, _, plural) = self.words();
        ResourceName::new(group, plural)
    }

    /// Where all of a kind are.
    pub(crate) fn path(self) -> String {
        let (group, version, plural) = self.words();
        let api = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match self {
            Self::Node | Self::PriorityClass | Self::Topology => format!("{api}/{plural}"),
            _ => format!("{api}/namespaces/{NAMESPACE}/{plural}"),
        }
    }

    pub(crate) fn at(self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }
}

/// One thing that people do, or that happens to their cluster.
#[derive(Clone, Debug)]
pub enum Step {
    Create(Value),
    /// An object is a merge patch, a list a JSON patch.
    Patch(Kind, &'static str, Value),
    Delete(Kind, &'static str),
    /// The first pod of a clique goes, and its node takes no more.
    LosePod(&'static str),
    /// The node of the first pod of a clique goes down without a word.
    LoseNode(&'static str),
    /// All nodes are up again.
    NodesReturn,
    /// One more, by rack and host.
    AddNode(usize, usize),
    /// All nodes take no more pods, or do again.
    Cordon(bool),
    /// The other controller whose gate pods have begins to let them go.
    LiftForeignGates,
    /// Both processes are started again with other levels.
    Configure(Levels),
    /// Waits until nothing is written any more.
    Rest,
    /// Waits so many seconds.
    Pass(u64),
}

/// A story. Faults come with its acts; it begins without.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub begins: Vec<Step>,
    pub acts: Vec<Step>,
}

/// The scenario of this name.
pub(crate) fn named(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

use Kind::{Adapter, Clique, Gang, Graph, Group, Service, Set, Topology};
use Step::{
    AddNode, Configure, Cordon, Create, Delete, LiftForeignGates, LoseNode, LosePod, NodesReturn, Pass, Patch, Rest,
};

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let (mut all, graphs) = (sets(), graphs());
    all.extend(disturbances());
    all.extend(graphs);
    all
}

fn scenario(name: &'static str, begins: Vec<Step>, acts: Vec<Step>) -> Scenario {
    Scenario { name, begins, acts }
}

/// What authors do with sets.
fn sets() -> Vec<Scenario> {
    let runs = || vec![Create(workload("w", json!({}))), Rest];
    let two_run = || vec![Create(small("w", 2, 2)), Rest];
    let ordered = json!({"spec": {"template": {"cliqueStartupType": "CliqueStartupTypeInOrder"}}});
    vec![
        scenario("create", vec![], vec![Create(workload("w", json!({})))]),
        scenario("create-in-order", vec![], vec![Create(workload("w", ordered))]),
        scenario(
            "create-two",
            vec![],
            vec![Create(workload("w", json!({}))), Create(small("v", 1, 2))],
        ),
        scenario("scale-up", vec![Create(small("w", 1, 2)), Rest], vec![replicas(2)]),
        scenario("scale-down", two_run(), vec![replicas(1)]),
        scenario(
            "scale-to-zero-and-back",
            two_run(),
            vec![replicas(0), Rest, replicas(2)],
        ),
        scenario(
            "scale-fast",
            two_run(),
            vec![replicas(0), replicas(3), replicas(1), Pass(1), replicas(2)],
        ),
        scenario(
            "clique-scale",
            runs(),
            vec![numbers(Clique, "w-0-a", 4), Rest, numbers(Clique, "w-0-a", 3)],
        ),
        scenario("group-scale-up", runs(), vec![numbers(Group, "w-0-sg", 3)]),
        scenario("group-scale-down", runs(), vec![numbers(Group, "w-0-sg", 1)]),
        scenario("update", runs(), vec![image("two")]),
        scenario("update-of-two", two_run(), vec![image("two")]),
        scenario(
            "update-in-update",
            two_run(),
            vec![image("two"), Pass(3), image("three")],
        ),
        scenario("rollback", runs(), vec![image("two"), Pass(3), image("one")]),
        scenario("update-and-scale", two_run(), vec![image("two"), Pass(1), replicas(3)]),
        scenario(
            "restart-in-update",
            runs(),
            vec![image("two"), Pass(2), Configure(LEVELS)],
        ),
        scenario("delete", runs(), vec![Delete(Set, "w")]),
        scenario(
            "delete-and-recreate",
            runs(),
            vec![Delete(Set, "w"), Create(workload("w", json!({})))],
        ),
        scenario("foreign-gate", vec![], vec![Create(held()), Pass(5), LiftForeignGates]),
    ]
}

/// What happens to sets.
fn disturbances() -> Vec<Scenario> {
    let runs = || vec![Create(workload("w", json!({}))), Rest];
    let without_rack: Levels = &["zone", "block", "host"];
    vec![
        scenario("node-lost", runs(), vec![LoseNode("w-0-a"), Pass(400), NodesReturn]),
        scenario(
            "gang-termination",
            runs(),
            vec![
                Cordon(true),
                LosePod("w-0-a"),
                LosePod("w-0-a"),
                Pass(60),
                Cordon(false),
            ],
        ),
        scenario(
            "children-lost",
            runs(),
            vec![
                Delete(Gang, "w-0"),
                Delete(Service, "w-0"),
                Delete(Clique, "w-0-sg-1-b"),
            ],
        ),
        scenario("level-removed", runs(), vec![Configure(without_rack)]),
        scenario(
            "no-room-at-first",
            vec![],
            vec![Create(small("w", 5, 4)), Rest, AddNode(2, 0), AddNode(2, 1)],
        ),
        scenario(
            "preemption",
            vec![
                Create(priority("low", 1)),
                Create(priority("high", 1000)),
                Create(of_priority(small("u", 1, 8), "high")),
                Create(of_priority(small("w", 1, 8), "low")),
                Rest,
            ],
            vec![Create(of_priority(small("v", 1, 4), "high"))],
        ),
    ]
}

/// What authors do with graphs of Dynamo.
fn graphs() -> Vec<Scenario> {
    let runs = || vec![Create(graph(2, "one")), Rest];
    let components = |replicas, image| Patch(Graph, "g", json!({"spec": {"components": components(replicas, image)}}));
    vec![
        scenario("graph-create", vec![], vec![Create(graph(2, "one"))]),
        scenario("graph-scale", runs(), vec![components(3, "one")]),
        scenario("graph-update", runs(), vec![components(2, "two")]),
        scenario("graph-loses-its-set", runs(), vec![Delete(Set, "g")]),
        scenario("graph-delete", runs(), vec![Delete(Graph, "g")]),
        scenario(
            "graph-follows-its-adapter",
            vec![Create(of_adapter(graph(2, "one"))), Rest],
            vec![
                numbers(Adapter, "g-worker", 3),
                Rest,
                Delete(Adapter, "g-worker"),
                Pass(1),
            ],
        ),
        scenario(
            "graph-loses-its-topology",
            vec![Create(topology("t")), Create(on_topology(graph(2, "one"), "t")), Rest],
            vec![
                Delete(Topology, "t"),
                // An admin who insists.
                Patch(Topology, "t", json!({"metadata": {"finalizers": null}})),
                Rest,
                Create(topology("t")),
            ],
        ),
    ]
}

fn replicas(replicas: i32) -> Step {
    numbers(Set, "w", replicas)
}

fn numbers(kind: Kind, name: &'static str, replicas: i32) -> Step {
    Patch(kind, name, json!({"spec": {"replicas": replicas}}))
}

/// Gives the first clique of the set `w` another image.
fn image(image: &'static str) -> Step {
    let path = "/spec/template/cliques/0/spec/podSpec/containers/0/image";
    Patch(Set, "w", json!([{"op": "replace", "path": path, "value": image}]))
}

fn clique(name: &str, (pods, minimum): (i32, i32), image: &str) -> Value {
    let gpus = json!({"nvidia.com/gpu": "4"});
    let resources = json!({"requests": gpus, "limits": gpus});
    let container = json!({"name": "main", "image": image, "resources": resources});
    let spec =
        json!({"roleName": name, "replicas": pods, "minAvailable": minimum, "podSpec": {"containers": [container]}});
    json!({"name": name, "spec": spec})
}

fn set(name: &str, replicas: i32, template: Value) -> Value {
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": template},
    })
}

/// A set of one clique, all of whose pods share a rack.
fn small(name: &str, replicas: i32, pods: i32) -> Value {
    let template = json!({
        "terminationDelay": "10s", "topologyConstraint": {"packDomain": "rack"},
        "cliques": [clique("a", (pods, pods), "one")],
    });
    set(name, replicas, template)
}

/// A clique of three pods of which two are needed, and two replicas of a scaling group of which one is, in one rack.
fn workload(name: &str, patch: Value) -> Value {
    let template = json!({
        "terminationDelay": "10s", "topologyConstraint": {"packDomain": "rack"},
        "cliques": [clique("a", (3, 2), "one"), clique("b", (1, 1), "one")],
        "podCliqueScalingGroups": [{"name": "sg", "cliqueNames": ["b"], "replicas": 2, "minAvailable": 1}],
    });
    let mut set = set(name, 1, template);
    merge(&mut set, patch);
    set
}

/// A set whose pods another controller holds back too.
fn held() -> Value {
    let mut set = small("w", 1, 2);
    let gate = json!([{"name": "example.com/quota"}]);
    set["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["schedulingGates"] = gate;
    set
}

fn priority(name: &str, value: i32) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
}

fn of_priority(mut set: Value, class: &str) -> Value {
    set["spec"]["template"]["priorityClassName"] = json!(class);
    set
}

fn components(workers: i32, image: &str) -> Value {
    let container =
        |args: &str| json!([{"name": "main", "image": image, "command": ["/bin/sh", "-c"], "args": [args]}]);
    json!([
        {"name": "Frontend", "type": "frontend", "podTemplate": {"spec": {"containers": container("serve")}}},
        {"name": "Worker", "type": "worker", "replicas": workers, "topologyConstraint": {"packDomain": "rack"},
         "podTemplate": {"spec": {"containers": container("python3 -m dynamo.vllm --model m")}}},
    ])
}

fn graph(workers: i32, image: &str) -> Value {
    json!({
        "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "g"},
        "spec": {"components": components(workers, image)},
    })
}

/// The same with an adapter for its workers.
fn of_adapter(mut graph: Value) -> Value {
    graph["spec"]["components"][1]["scalingAdapter"] = json!({});
    graph
}

fn topology(name: &str) -> Value {
    let levels = json!([{"domain": "rack", "key": RACK}, {"domain": "host", "key": HOST}]);
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": name}, "spec": {"levels": levels},
    })
}

/// The same with the constraints of a topology of this name.
fn on_topology(mut graph: Value, name: &str) -> Value {
    graph["spec"]["topologyConstraint"] = json!({"clusterTopologyName": name});
    graph
}

fn merge(object: &mut Value, patch: Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(object.entry(name).or_insert(Value::Null), value);
            }
        }
        (object, patch) => *object = patch,
    }
}
