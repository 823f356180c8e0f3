//! Places gang after gang, each on what the ones before left, and collects where they went or why they did not.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::PodGang;
use grove_api::config::Packing;
use grove_kubeplace::{GangRequest, Mirror, PodKey};
use grove_placement::{Budget, Outcome, Plan, ScopeReport, Solver, Standing, explain, report};
use grove_topology::Topology;
use grove_topology::resolve::default_reference;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::{Serialize, Serializer};

use crate::expand::PlannedGang;
use crate::read::Input;

/// What `grove plan` says; the field names are a contract.
#[derive(Debug, Serialize)]
pub struct Answer {
    pub gangs: Vec<GangAnswer>,
    pub summary: Summary,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GangAnswer {
    pub namespace: String,
    pub name: String,
    pub pod_clique_set: String,
    pub result: Verdict,
    /// The pods that have a node, those that had one before included.
    pub pods: Vec<PodAnswer>,
    pub scopes: Vec<ScopeAnswer>,
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Placed,
    Infeasible,
    Undecided,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct PodAnswer {
    pub name: String,
    pub node: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeAnswer {
    pub name: String,
    pub required: Option<String>,
    pub preferred: Option<String>,
    /// `null` where nothing is preferred beyond what is required.
    pub preferred_met: Option<bool>,
    #[serde(serialize_with = "by_level")]
    pub domains: Vec<(String, Vec<String>)>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub nodes: usize,
    pub gangs: usize,
    pub placed: usize,
    pub infeasible: usize,
    pub undecided: usize,
    pub pods: usize,
    pub pods_placed: usize,
}

impl Answer {
    pub fn is_all_placed(&self) -> bool {
        self.summary.placed == self.summary.gangs
    }
}

/// Budgets that are tried in turn: nobody waits for another gang here, so a hard one may take longer.
const BUDGETS: [Budget; 2] = [
    Budget {
        find: 2_000_000,
        improve: 1_000,
        tighten: 300,
    },
    Budget {
        find: 100_000_000,
        improve: 1_000,
        tighten: 300,
    },
];

pub fn place(input: &Input, planned: &[PlannedGang], packing: Packing) -> Answer {
    let mut mirror = mirror(input);
    let mut solver = Solver::with_policy(grove_kubeplace::packing(packing));
    let mut unplaced = BTreeSet::new();
    let mut summary = Summary {
        nodes: input.nodes.len(),
        ..Summary::default()
    };
    let mut gangs = Vec::new();
    for gang in planned {
        let namespace = gang.gang.namespace().unwrap_or_default();
        let waits_for = gang
            .base
            .clone()
            .filter(|base| unplaced.contains(&(namespace.clone(), base.clone())));
        let answer = match waits_for {
            Some(base) => refusal(
                gang,
                Verdict::Infeasible,
                format!("waits for its base gang {base}, which is not placed"),
            ),
            None => place_one(&mut mirror, &mut solver, gang),
        };
        if answer.result != Verdict::Placed {
            unplaced.insert((namespace, gang.gang.name_any()));
        }
        summary.count(&answer, gang.pods.len());
        gangs.push(answer);
    }
    Answer { gangs, summary }
}

impl Summary {
    fn count(&mut self, answer: &GangAnswer, pods: usize) {
        self.gangs += 1;
        self.pods += pods;
        self.pods_placed += answer.pods.len();
        *match answer.result {
            Verdict::Placed => &mut self.placed,
            Verdict::Infeasible => &mut self.infeasible,
            Verdict::Undecided => &mut self.undecided,
        } += 1;
    }
}

/// What there is before any gang is placed.
fn mirror(input: &Input) -> Mirror {
    let topologies = &input.topologies;
    let mut mirror = Mirror::new(default_reference(&topologies.tas.source).name);
    for object in &topologies.topology_domains {
        mirror.set_topology(&Topology::from(object));
    }
    for object in &topologies.bindings {
        mirror.set_topology(&Topology::from(object));
    }
    // The last one of a name counts: a ClusterTopology hides a binding.
    for object in &topologies.cluster_topologies {
        mirror.set_topology(&Topology::from(object));
    }
    for volume in &input.volumes {
        mirror.set_volume(volume);
    }
    for claim in &input.claims {
        mirror.set_claim(claim);
    }
    for node in &input.nodes {
        mirror.set_node(node);
    }
    for pod in &input.pods {
        mirror.set_pod(pod);
    }
    for cells in &input.cells {
        mirror.set_cells(cells);
    }
    mirror
}

fn place_one(mirror: &mut Mirror, solver: &mut Solver, planned: &PlannedGang) -> GangAnswer {
    let pods: BTreeMap<PodKey, &Pod> = planned.pods.iter().map(|pod| (key(pod), pod)).collect();
    let request = match mirror.gang(&planned.gang, |key| pods.get(key).copied()) {
        Ok(request) => request,
        Err(error) => return refusal(planned, Verdict::Infeasible, error.to_string()),
    };
    for budget in BUDGETS {
        match solver.solve(mirror.cluster_mut(), &request.gang, budget) {
            Outcome::Placed(plan) => return settle(mirror, planned, (&request, &plan.clone()), &pods),
            Outcome::Infeasible => return refusal(planned, Verdict::Infeasible, reason(mirror, &request)),
            Outcome::Undecided => {}
        }
    }
    refusal(
        planned,
        Verdict::Undecided,
        "the search was given up before it came to an end".to_owned(),
    )
}

/// Takes the places of a plan and describes them.
fn settle(
    mirror: &mut Mirror,
    planned: &PlannedGang,
    (request, plan): (&GangRequest, &Plan),
    pods: &BTreeMap<PodKey, &Pod>,
) -> GangAnswer {
    let scopes = report(mirror.cluster(), &request.gang, &plan.assignments);
    for binding in request.bindings(mirror.cluster(), plan) {
        if let Some(pod) = pods.get(&binding.pod) {
            mirror.assume(pod, &binding.node);
        }
    }
    let place = |key: &PodKey| {
        let node = mirror.node_of(key)?.to_owned();
        let name = key.name.clone();
        Some(PodAnswer { name, node })
    };
    GangAnswer {
        pods: planned.pods.iter().map(key).filter_map(|key| place(&key)).collect(),
        scopes: scopes.into_iter().map(scope).collect(),
        ..answer(&planned.gang, &planned.set, Verdict::Placed)
    }
}

fn scope(scope: ScopeReport) -> ScopeAnswer {
    ScopeAnswer {
        name: scope.name,
        required: scope.required,
        preferred: scope.preferred,
        preferred_met: match scope.standing {
            Standing::Indifferent => None,
            standing => Some(standing == Standing::Met),
        },
        domains: scope.domains,
    }
}

/// A map from level to domains, broad levels first.
fn by_level<S: Serializer>(domains: &[(String, Vec<String>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(domains.iter().map(|(level, names)| (level, names)))
}

fn reason(mirror: &Mirror, request: &GangRequest) -> String {
    let Some(proof) = explain(mirror.cluster(), &request.gang) else {
        return "there is no room".to_owned();
    };
    let mut reason = proof.sentence;
    if !proof.would_fit_if.is_empty() {
        reason = format!("{reason}. It would fit if {}.", proof.would_fit_if.join(", or if "));
    }
    reason
}

fn refusal(planned: &PlannedGang, result: Verdict, reason: String) -> GangAnswer {
    GangAnswer {
        reason: Some(reason),
        ..answer(&planned.gang, &planned.set, result)
    }
}

fn answer(gang: &PodGang, set: &str, result: Verdict) -> GangAnswer {
    GangAnswer {
        namespace: gang.namespace().unwrap_or_default(),
        name: gang.name_any(),
        pod_clique_set: set.to_owned(),
        result,
        pods: vec![],
        scopes: vec![],
        reason: None,
    }
}

fn key(pod: &Pod) -> PodKey {
    PodKey {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
    }
}
