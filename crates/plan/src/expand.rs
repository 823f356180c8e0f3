//! What the PodCliqueSets of the files become: gangs, and the pods of each.

use std::collections::BTreeMap;

use grove_api::podcliqueset::PodCliqueTemplate;
use grove_api::{PodClique, PodCliqueSet, PodGang, labels};
use grove_controllers::constrain;
use grove_topology::resolve;
use grove_topology::validate::{SetReview, review_set};
use grove_workload::expand::claims::ClaimTemplates;
use grove_workload::expand::{Expansion, Live};
use grove_workload::gang::{Member, Members, fill_references};
use grove_workload::observed::ObservedPod;
use grove_workload::pods::NewPod;
use grove_workload::validate::{Rules, create};
use grove_workload::{default, pod, pods, revision};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;

use crate::Invalid;
use crate::read::Input;

/// The scheduler that would place the gangs.
const SCHEDULER: &str = "grove-scheduler";

/// The most pods that are planned at once: some five times what a cluster of Kubernetes may have, and some 10 GiB.
const PODS_MAX: i64 = 1_000_000;

/// A gang that would be made, with its pods.
#[derive(Debug)]
pub struct PlannedGang {
    pub gang: PodGang,
    pub set: String,
    /// The gang that must be placed first.
    pub base: Option<String>,
    pub priority: i32,
    pub pods: Vec<Pod>,
}

/// All gangs in the order in which they are placed: by priority, then as the files have them.
pub fn gangs(input: &Input) -> Result<Vec<PlannedGang>, Invalid> {
    let mut planned = Vec::new();
    let running = by_clique(&input.pods);
    let mut pods = 0_i64;
    for set in &input.sets {
        let mut set = set.clone();
        default::fill(&mut set);
        // Without an API server nobody gives out UIDs; what a set owns is told by its name.
        let name = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
        set.metadata.uid.get_or_insert_with(|| name.clone());
        check(input, &set, &name)?;
        pods = pods.saturating_add(pods_asked_for(&set));
        if pods > PODS_MAX {
            return Err(Invalid(format!(
                "PodCliqueSet {name}: spec.replicas: with it the files ask for {pods} pods, and a plan may have {PODS_MAX}; \
                 plan fewer at once"
            )));
        }
        planned.extend(gangs_of(input, &set, &running));
    }
    planned.sort_by_key(|gang| std::cmp::Reverse(gang.priority));
    Ok(planned)
}

/// How many pods a set has, as it is written.
fn pods_asked_for(set: &PodCliqueSet) -> i64 {
    let template = &set.spec.template;
    let of_clique = |clique: &PodCliqueTemplate| {
        let groups = template.scaling_groups.iter();
        let group = groups.clone().find(|group| group.clique_names.contains(&clique.name));
        i64::from(clique.spec.replicas).saturating_mul(group.map_or(1, |group| group.replicas().into()))
    };
    let of_replica = template.cliques.iter().map(of_clique).fold(0, i64::saturating_add);
    of_replica.saturating_mul(set.spec.replicas.into())
}

/// Refuses what the API would refuse.
fn check(input: &Input, set: &PodCliqueSet, name: &str) -> Result<(), Invalid> {
    let rules = Rules {
        schedulers: vec![SCHEDULER.to_owned()],
        mnnvl_enabled: true,
    };
    let of_workload = create(set, &rules)
        .into_iter()
        .map(|violation| (violation.path, violation.message));
    let topologies = &input.topologies;
    let reference = resolve::named_or_default(&set.spec.template, &topologies.tas.source);
    let review = SetReview {
        old: None,
        new: set,
        tas: &topologies.tas,
        found: topologies.found(reference.name),
        scheduled_pods: 0,
        unenforceable: None,
        why_host: None,
    };
    let of_topology = review_set(&review)
        .violations
        .into_iter()
        .map(|violation| (violation.field, violation.message));
    let violations: Vec<String> = of_workload
        .chain(of_topology)
        .map(|(field, message)| format!("{field}: {message}"))
        .collect();
    if violations.is_empty() {
        return Ok(());
    }
    Err(Invalid(format!("PodCliqueSet {name}: {}", violations.join("; "))))
}

type Running<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a Pod>>;

/// The pods of the files by namespace and clique.
fn by_clique(pods: &[Pod]) -> Running<'_> {
    let mut found = Running::new();
    for pod in pods {
        let clique = pod.metadata.labels.as_ref().and_then(|all| all.get(labels::PODCLIQUE));
        if let (Some(namespace), Some(clique)) = (&pod.metadata.namespace, clique) {
            found.entry((namespace, clique)).or_default().push(pod);
        }
    }
    found
}

fn gangs_of(input: &Input, set: &PodCliqueSet, running: &Running<'_>) -> Vec<PlannedGang> {
    let none: [PodClique; 0] = [];
    let hashes = revision::resolve::<k8s_openapi::api::apps::v1::ControllerRevision, _>(set, &[], &none).hashes;
    let live = Live::default();
    let claim_templates = ClaimTemplates::default();
    let expansion = Expansion {
        set,
        hashes: &hashes,
        scheduler: SCHEDULER,
        live: &live,
        claim_templates: &claim_templates,
    };
    let resolution = input.topologies.resolve(set);
    let packing = input.topologies.tas.preferred_packing;
    let priority = priority(input, set);
    let mut planned = Vec::new();
    for replica in expansion.replicas() {
        let cliques = cliques_of(&expansion, replica);
        for plan in expansion.gang_plans(replica) {
            let mut gang = expansion.gang(&plan);
            constrain(&mut gang, (set, &plan), &resolution, (packing, None));
            let names: Vec<&str> = plan.cliques.iter().map(|clique| clique.name.as_str()).collect();
            let members = cliques
                .iter()
                .filter(|clique| names.contains(&clique.name_any().as_str()));
            let pods = members
                .clone()
                .map(|clique| (clique, pods_of(&expansion, clique, running)));
            let pods: Vec<(&PodClique, Vec<Pod>)> = pods.collect();
            list_pods(&mut gang, &pods);
            planned.push(PlannedGang {
                gang,
                set: set.name_any(),
                base: plan.base.clone(),
                priority,
                pods: pods.into_iter().flat_map(|(_, pods)| pods).collect(),
            });
        }
    }
    planned
}

/// The cliques of a replica, those of its scaling groups included.
fn cliques_of(expansion: &Expansion<'_>, replica: i32) -> Vec<PodClique> {
    let children = expansion.replica_children(replica);
    let mut cliques = children.cliques;
    for mut group in children.groups {
        let name = format!("{}/{}", group.namespace().unwrap_or_default(), group.name_any());
        group.metadata.uid = Some(name);
        cliques.extend(expansion.group_children(&group).cliques);
    }
    for clique in &mut cliques {
        let name = format!("{}/{}", clique.namespace().unwrap_or_default(), clique.name_any());
        clique.metadata.uid = Some(name);
    }
    cliques
}

/// The pods of a clique: those that the files have, and those that are missing.
fn pods_of(expansion: &Expansion<'_>, clique: &PodClique, running: &Running<'_>) -> Vec<Pod> {
    let (namespace, name) = (clique.namespace().unwrap_or_default(), clique.name_any());
    let existing = running
        .get(&(namespace.as_str(), name.as_str()))
        .cloned()
        .unwrap_or_default();
    let seen: Vec<ObservedPod> = existing.iter().copied().cloned().map(ObservedPod::from).collect();
    let plan = pods::plan(clique, &seen);
    let stays = |pod: &&&Pod| plan.delete.iter().all(|victim| victim.name != pod.name_any());
    let create = |new: &NewPod| pod::pod(expansion, clique, new, "");
    let existing: Vec<Pod> = existing.iter().filter(stays).map(|pod| (*pod).clone()).collect();
    existing
        .into_iter()
        .chain(plan.create.iter().filter_map(create))
        .collect()
}

/// Lists the pods in the gang as the operator would.
fn list_pods(gang: &mut PodGang, pods: &[(&PodClique, Vec<Pod>)]) {
    let seen: Vec<Vec<ObservedPod>> = pods
        .iter()
        .map(|(_, pods)| pods.iter().cloned().map(ObservedPod::from).collect())
        .collect();
    let names: Vec<String> = pods.iter().map(|(clique, _)| clique.name_any()).collect();
    let members: Members<'_> = pods
        .iter()
        .zip(&seen)
        .zip(&names)
        .map(|(((clique, _), pods), name)| (name.as_str(), Member { clique, pods }))
        .collect();
    fill_references(gang, None, &members);
}

/// The priority of a set's gangs, as admission would fill it into its pods.
fn priority(input: &Input, set: &PodCliqueSet) -> i32 {
    let named = set
        .spec
        .template
        .priority_class_name
        .as_deref()
        .filter(|name| !name.is_empty());
    let class = |is_it: &dyn Fn(&PriorityClass) -> bool| {
        let found = input.priority_classes.iter().find(|class| is_it(class));
        found.and_then(|class| class.value).unwrap_or(0)
    };
    match named {
        Some("system-node-critical") => 2_000_001_000,
        Some("system-cluster-critical") => 2_000_000_000,
        Some(name) => class(&|class| class.name_any() == name),
        None => class(&|class| class.global_default == Some(true)),
    }
}
