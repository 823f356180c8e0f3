//! A cluster in a few maps: what the decisions ask for is written, pods are placed gang by gang and become ready, and
//! time passes when a test says so.

mod nodes;
mod store;

use std::collections::{BTreeMap, BTreeSet};

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, labels};
use grove_workload::availability::{self, termination_delay};
use grove_workload::diff::{Content, changes};
use grove_workload::expand::claims::ClaimTemplates;
use grove_workload::expand::{Expansion, Live, ReplicaChildren};
use grove_workload::gang::{self, Member, Members};
use grove_workload::meta::uid;
use grove_workload::names::{self, Place};
use grove_workload::observed::ObservedPod;
use grove_workload::pods::{self, Victim};
use grove_workload::revision::{self, Hashes};
use grove_workload::update::{self, Turn};
use grove_workload::{pod, status};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};

/// Passes after which a world that still changes is broken.
const PASSES_MAX: usize = 200;

/// A pod: what decisions see of it, and what the world knows besides.
#[derive(Clone, Debug)]
pub(crate) struct WorldPod {
    pub(crate) seen: ObservedPod,
    pub(crate) clique: String,
    pub(crate) clique_uid: String,
    pub(crate) image: String,
    /// `name:number` of each clique that must be ready before.
    waits_for: Vec<(String, i32)>,
    pub(crate) ready_at: Option<Timestamp>,
}

/// The cluster.
pub(crate) struct World {
    pub(crate) set: PodCliqueSet,
    pub(crate) cliques: Vec<PodClique>,
    pub(crate) groups: Vec<PodCliqueScalingGroup>,
    pub(crate) gangs: Vec<PodGang>,
    pub(crate) pods: BTreeMap<String, WorldPod>,
    records: Vec<ControllerRevision>,
    /// How many pods the cluster holds; each takes one place.
    pub(crate) places: usize,
    /// Pods whose image has this name never become ready.
    pub(crate) broken_image: Option<String>,
    pub(crate) now: Timestamp,
    pub(crate) writes: usize,
    uids: u64,
}

impl World {
    pub(crate) fn new(manifest: &str) -> Self {
        let mut set: PodCliqueSet = serde_saphyr::from_str(manifest).expect("a PodCliqueSet");
        set.metadata.namespace = Some("ns".into());
        set.metadata.uid = Some("set".into());
        set.metadata.generation = Some(1);
        Self {
            set,
            cliques: vec![],
            groups: vec![],
            gangs: vec![],
            pods: BTreeMap::new(),
            records: vec![],
            places: 0,
            broken_image: None,
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            writes: 0,
            uids: 0,
        }
    }

    /// Lets the cluster come to rest, and returns how many writes that took.
    pub(crate) fn settle(&mut self) -> usize {
        let before = self.writes;
        for _ in 0..PASSES_MAX {
            let at_start = self.writes;
            self.pass();
            if self.writes == at_start {
                return self.writes - before;
            }
        }
        panic!("still changing after {PASSES_MAX} passes");
    }

    /// Every controller looks once, then placer and kubelets act. A second goes by.
    pub(crate) fn pass(&mut self) {
        self.reconcile_set();
        self.reconcile_groups();
        self.reconcile_cliques();
        self.reconcile_gangs();
        self.place();
        self.run_pods();
        self.advance(1);
    }

    /// The cliques look before the status of a group is known.
    pub(crate) fn cliques_look_without(&mut self, group: &str) {
        let of_group = |stored: &PodCliqueScalingGroup| stored.name_any() == group;
        let index = self.groups.iter().position(of_group).unwrap();
        let status = self.groups[index].status.take();
        self.reconcile_cliques();
        self.groups[index].status = status;
    }

    pub(crate) fn advance(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// Changes the set as a user does.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut PodCliqueSet)) {
        change(&mut self.set);
        let generation = self.set.metadata.generation.unwrap_or(0);
        self.set.metadata.generation = Some(generation + 1);
    }

    pub(crate) fn set_image(&mut self, clique: &str, image: &str) {
        self.edit(|set| {
            let found = set
                .spec
                .template
                .cliques
                .iter_mut()
                .find(|template| template.name == clique)
                .unwrap();
            found.spec.pod_spec.containers[0].image = Some(image.into());
        });
    }

    pub(crate) fn scale_group(&mut self, name: &str, replicas: i32) {
        let group = self.groups.iter_mut().find(|group| group.name_any() == name).unwrap();
        group.spec.replicas = replicas;
        bump(group);
    }

    pub(crate) fn scale_clique(&mut self, name: &str, replicas: i32) {
        let clique = self
            .cliques
            .iter_mut()
            .find(|clique| clique.name_any() == name)
            .unwrap();
        clique.spec.replicas = replicas;
        bump(clique);
    }

    pub(crate) fn clique(&self, name: &str) -> &PodClique {
        self.cliques
            .iter()
            .find(|clique| clique.name_any() == name)
            .unwrap_or_else(|| panic!("no clique {name}"))
    }

    pub(crate) fn group(&self, name: &str) -> &PodCliqueScalingGroup {
        self.groups
            .iter()
            .find(|group| group.name_any() == name)
            .unwrap_or_else(|| panic!("no group {name}"))
    }

    /// Live pods of cliques whose name starts with `prefix`, by name. Only tests look at prefixes.
    pub(crate) fn pods_of(&self, prefix: &str) -> Vec<&WorldPod> {
        self.pods
            .values()
            .filter(|pod| pod.seen.is_live() && pod.clique.starts_with(prefix))
            .collect()
    }

    pub(crate) fn uids_of(&self, prefix: &str) -> BTreeSet<String> {
        self.pods_of(prefix)
            .into_iter()
            .map(|pod| pod.seen.uid.clone())
            .collect()
    }

    pub(crate) fn ready(&self) -> usize {
        self.pods.values().filter(|pod| pod.seen.is_ready()).count()
    }

    pub(crate) fn pending(&self) -> usize {
        self.pods
            .values()
            .filter(|pod| pod.seen.is_live() && !pod.seen.is_scheduled())
            .count()
    }

    /// Takes a ready pod and its place away, as a node that is drained and cordoned does.
    pub(crate) fn lose_pod(&mut self, clique: &str) {
        let name = self.ready_pod(clique);
        self.places -= 1;
        self.pods.remove(&name);
    }

    fn ready_pod(&self, clique: &str) -> String {
        let pods = self.pods_of(clique);
        let ready = pods.into_iter().find(|pod| pod.seen.is_ready());
        ready.expect("a ready pod").seen.name.clone()
    }

    /// A node dies: its pod is told to go and never does.
    pub(crate) fn kill_node_under(&mut self, clique: &str) {
        let name = self.ready_pod(clique);
        let pod = self.pods.get_mut(&name).unwrap();
        pod.seen.is_terminating = true;
        pod.seen.node = "dead".into();
    }

    fn hashes(&mut self) -> Hashes {
        let resolved = revision::resolve(&self.set, &self.records, &self.cliques);
        if let Some(record) = resolved.create {
            self.writes += 1;
            self.records.push(record);
        }
        self.records
            .retain(|record| !resolved.delete.contains(&record.name_any()));
        resolved.hashes
    }

    fn reconcile_set(&mut self) {
        let hashes = self.hashes();
        let (cliques, groups) = (self.cliques.clone(), self.groups.clone());
        let live = Live::of(&self.set, &cliques, &groups);
        let claims = ClaimTemplates::new();
        let set = self.set.clone();
        let expansion = expansion(&set, &hashes, &live, &claims);
        let children: Vec<ReplicaChildren> = expansion
            .replicas()
            .map(|replica| expansion.replica_children(replica))
            .collect();
        let observed = self.observed();
        let members = members(&cliques, &observed);
        let gangs = children
            .iter()
            .flat_map(|children| children.gangs.clone())
            .map(|mut gang| {
                let stored = self.gangs.iter().find(|stored| stored.name_any() == gang.name_any());
                gang::fill_references(&mut gang, stored, &members);
                gang
            });
        let gangs: Vec<PodGang> = gangs.collect();
        let new_groups = children.iter().flat_map(|children| children.groups.clone()).collect();
        let new_cliques = children.into_iter().flat_map(|children| children.cliques).collect();
        self.apply(
            changes(uid(&set), new_cliques, &standalone(&cliques), Content::Whole),
            |world| &mut world.cliques,
        );
        self.apply(changes(uid(&set), new_groups, &groups, Content::Whole), |world| {
            &mut world.groups
        });
        let stored = self.gangs.clone();
        self.apply(changes(uid(&set), gangs, &stored, Content::Whole), |world| {
            &mut world.gangs
        });

        let update = update::set_update(&expansion, self.now);
        let status = status::set_status(&expansion, (&self.gangs, &update), &[], self.now);
        if let Some(status) = unless_same(set.status.as_ref(), status) {
            self.set.status = Some(status);
            self.writes += 1;
        }
        let looks =
            (0..set.spec.replicas).map(|replica| availability::of_replica(&set, replica, (&live, &cliques), self.now));
        let torn_down: Vec<i32> = looks.flat_map(|look| look.replicas).collect();
        for replica in torn_down {
            let index = replica.to_string();
            self.delete_cliques(|clique| clique.labels().get(labels::PCS_REPLICA_INDEX) == Some(&index));
        }
    }

    fn reconcile_groups(&mut self) {
        let hashes = self.hashes();
        for group in self.groups.clone() {
            let (cliques, groups) = (self.cliques.clone(), self.groups.clone());
            let live = Live::of(&self.set, &cliques, &groups);
            let claims = ClaimTemplates::new();
            let set = self.set.clone();
            let expansion = expansion(&set, &hashes, &live, &claims);
            let desired = expansion.group_children(&group).cliques;
            let owned: Vec<PodClique> = cliques
                .iter()
                .filter(|c| names::is_owned_by(&c.metadata, uid(&group)))
                .cloned()
                .collect();
            self.apply(changes(uid(&group), desired, &owned, Content::Whole), |world| {
                &mut world.cliques
            });

            let replica = names::index_label(&group.metadata, labels::PCS_REPLICA_INDEX).unwrap();
            let turn = update::turn(&expansion, replica);
            let update = update::group_update(&expansion, &group, &cliques, turn, self.now);
            let status = status::group_status(&expansion, &group, (&cliques, &update), &[], self.now);
            if let Some(status) = unless_same(group.status.as_ref(), status) {
                let stored = self
                    .groups
                    .iter_mut()
                    .find(|stored| uid(*stored) == uid(&group))
                    .unwrap();
                stored.status = Some(status);
                self.writes += 1;
            }
            let termination = availability::of_group(&group, &cliques, termination_delay(&set), self.now);
            for index in update.delete.into_iter().chain(termination.replicas) {
                let index = index.to_string();
                self.delete_cliques(|clique| {
                    names::is_owned_by(&clique.metadata, uid(&group))
                        && clique.labels().get(labels::SCALING_GROUP_REPLICA_INDEX) == Some(&index)
                });
            }
        }
    }

    fn reconcile_cliques(&mut self) {
        let hashes = self.hashes();
        for clique in self.cliques.clone() {
            let (cliques, groups) = (self.cliques.clone(), self.groups.clone());
            let live = Live::of(&self.set, &cliques, &groups);
            let claims = ClaimTemplates::new();
            let set = self.set.clone();
            let expansion = expansion(&set, &hashes, &live, &claims);
            let seen = self.observed().remove(uid(&clique)).unwrap_or_default();
            let plan = pods::plan(&clique, &seen);
            let place = Place::of(&set, &clique).unwrap();
            let turn = match place.member {
                None => update::turn(&expansion, place.replica),
                Some(_) => Turn::Nothing,
            };
            let update = update::clique_update(&clique, &seen, &hashes.generation, turn, self.now);
            let status = status::clique_status(&expansion, (&clique, None), (&seen, &update), &[], self.now);
            if let Some(status) = unless_same(clique.status.as_ref(), status) {
                let stored = self
                    .cliques
                    .iter_mut()
                    .find(|stored| uid(*stored) == uid(&clique))
                    .unwrap();
                stored.status = Some(status);
                self.writes += 1;
            }
            for new in &plan.create {
                let made = pod::pod(&expansion, &clique, new, "grove").unwrap();
                self.create_pod(&clique, &made);
            }
            self.delete_pods(plan.delete.into_iter().chain(update.delete));
            self.lift_gates(&clique);
        }
    }

    fn lift_gates(&mut self, clique: &PodClique) {
        let seen = self.observed().remove(uid(clique)).unwrap_or_default();
        let gang_of = |label: &str| {
            let name = clique.labels().get(label)?;
            self.gangs.iter().find(|gang| gang.name_any() == *name)
        };
        let Some(gang) = gang_of(labels::PODGANG) else { return };
        let find = |name: &str| self.cliques.iter().find(|clique| clique.name_any() == name);
        let base = gang_of(labels::BASE_PODGANG).is_some_and(|base| gang::is_scheduled(base, find));
        let ungated = gang::ungated(Member { clique, pods: &seen }, gang, base);
        let ungated: Vec<String> = ungated.into_iter().map(|pod| pod.name.clone()).collect();
        for name in ungated {
            self.pods.get_mut(&name).unwrap().seen.is_gated = false;
            self.writes += 1;
        }
    }

    fn reconcile_gangs(&mut self) {
        let observed = self.observed();
        let cliques = self.cliques.clone();
        let members = members(&cliques, &observed);
        for gang in &mut self.gangs {
            let status = gang::status(gang, &members, self.now);
            if let Some(status) = unless_same(gang.status.as_ref(), status) {
                gang.status = Some(status);
                self.writes += 1;
            }
        }
    }

    fn observed(&self) -> BTreeMap<String, Vec<ObservedPod>> {
        let mut by_clique: BTreeMap<String, Vec<ObservedPod>> = BTreeMap::new();
        for pod in self.pods.values() {
            by_clique
                .entry(pod.clique_uid.clone())
                .or_default()
                .push(pod.seen.clone());
        }
        by_clique
    }

    fn create_pod(&mut self, clique: &PodClique, made: &k8s_openapi::api::core::v1::Pod) {
        self.uids += 1;
        self.writes += 1;
        let mut stored = made.clone();
        stored.metadata.uid = Some(format!("pod-{}", self.uids));
        stored.metadata.creation_timestamp = Some(Time(self.now));
        let spec = made.spec.as_ref().unwrap();
        let waits = spec
            .init_containers
            .iter()
            .flatten()
            .filter(|container| container.name == "grove-initc");
        let waits_for = waits
            .flat_map(|container| container.args.iter().flatten())
            .filter_map(|arg| arg.strip_prefix("--podcliques=")?.rsplit_once(':'))
            .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
            .collect();
        let pod = WorldPod {
            seen: ObservedPod::from(stored.clone()),
            clique: clique.name_any(),
            clique_uid: uid(clique).to_owned(),
            image: spec.containers[0].image.clone().unwrap_or_default(),
            waits_for,
            ready_at: None,
        };
        let taken = self.pods.insert(made.name_any(), pod);
        assert!(taken.is_none(), "the name {} was taken", made.name_any());
    }

    fn delete_pods(&mut self, victims: impl Iterator<Item = Victim>) {
        for victim in victims {
            if let Some(pod) = self.pods.get_mut(&victim.name).filter(|pod| pod.seen.uid == victim.uid) {
                pod.seen.is_terminating = true;
                self.writes += 1;
            }
        }
    }

    fn delete_cliques(&mut self, which: impl Fn(&PodClique) -> bool) {
        let (gone, kept): (Vec<PodClique>, Vec<PodClique>) = std::mem::take(&mut self.cliques)
            .into_iter()
            .partition(|clique| which(clique));
        self.writes += gone.len();
        self.cliques = kept;
        self.collect_garbage();
    }

    /// What has no owner any more goes too.
    fn collect_garbage(&mut self) {
        let groups: BTreeSet<String> = self.groups.iter().map(|group| uid(group).to_owned()).collect();
        self.cliques.retain(|clique| {
            let owner = &clique.owner_references()[0].uid;
            owner == "set" || groups.contains(owner)
        });
        let cliques: BTreeSet<String> = self.cliques.iter().map(|clique| uid(clique).to_owned()).collect();
        for pod in self.pods.values_mut().filter(|pod| !cliques.contains(&pod.clique_uid)) {
            pod.seen.is_terminating = true;
        }
    }
}

fn bump<K: Resource>(object: &mut K) {
    let generation = object.meta().generation.unwrap_or(0);
    object.meta_mut().generation = Some(generation + 1);
}

fn standalone(cliques: &[PodClique]) -> Vec<PodClique> {
    cliques
        .iter()
        .filter(|clique| clique.owner_references()[0].uid == "set")
        .cloned()
        .collect()
}

fn expansion<'a>(
    set: &'a PodCliqueSet,
    hashes: &'a Hashes,
    live: &'a Live<'a>,
    claim_templates: &'a ClaimTemplates,
) -> Expansion<'a> {
    Expansion {
        set,
        hashes,
        scheduler: "grove-scheduler",
        live,
        claim_templates,
    }
}

fn members<'a>(cliques: &'a [PodClique], pods: &'a BTreeMap<String, Vec<ObservedPod>>) -> Members<'a> {
    let empty: &[ObservedPod] = &[];
    let member = |clique: &'a PodClique| {
        let pods = pods.get(uid(clique)).map_or(empty, Vec::as_slice);
        (clique.metadata.name.as_deref().unwrap(), Member { clique, pods })
    };
    cliques.iter().map(member).collect()
}

/// The status to write; none if the stored one says the same.
fn unless_same<S: PartialEq>(stored: Option<&S>, computed: S) -> Option<S> {
    (stored != Some(&computed)).then_some(computed)
}
