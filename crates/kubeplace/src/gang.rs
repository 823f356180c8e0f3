//! A PodGang and its pods as a request to the engine, and the engine's plan as bindings.

use std::borrow::Cow;

use grove_api::PodGang;
use grove_api::labels::{self, annotation};
use grove_api::podgang::{GangTopologyConstraint, PodGroup as KubePodGroup};
use grove_placement::{
    Assignment, Cluster, Gang, Group, NodeId, Pack, Plan, PodGroup, Replica, ScopeReport, Shape, Standing, TopologyId,
    TopologySpec, report,
};

use crate::mirror::{Mirror, PodKey, replica_of};
use crate::unsupported::NotPlaceable;
use crate::view::{Placeable, PodView};

/// A gang as the engine takes it, and the pods that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangRequest {
    pub gang: Gang,
    /// The pods that wait for a place, by pod-group of `gang`, in the order of their index.
    pub pods: Vec<Vec<PodKey>>,
    /// A scope requires a level below the host. What cells have left only their nodes know.
    pub asks_for_cells: bool,
    /// Scopes of `gang` that prefer what nobody asked for.
    by_policy: Vec<String>,
}

/// A pod and the node that a plan gives it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    pub pod: PodKey,
    pub node: String,
}

impl GangRequest {
    /// Who goes where. Pods of neighbouring index get neighbouring nodes: they talk to each other most.
    pub fn bindings(&self, cluster: &Cluster, plan: &Plan) -> Vec<Binding> {
        let mut assignments = plan.assignments.clone();
        let place = |node: NodeId| cluster.place_order(self.gang.topology, node);
        assignments.sort_by_key(|assignment| (assignment.pod_group, place(assignment.node)));
        let mut waiting: Vec<_> = self.pods.iter().map(|pods| pods.iter()).collect();
        let mut bindings = Vec::new();
        for assignment in &assignments {
            let pods = waiting[assignment.pod_group].by_ref().take(assignment.pods as usize);
            bindings.extend(pods.map(|pod| Binding {
                pod: pod.clone(),
                node: cluster.node_name(assignment.node).to_owned(),
            }));
        }
        bindings
    }

    /// Where the scopes of the gang lie with a plan. What nobody asked for is not missed.
    pub fn report(&self, cluster: &Cluster, assignments: &[Assignment]) -> Vec<ScopeReport> {
        let mut scopes = report(cluster, &self.gang, assignments);
        for scope in scopes.iter_mut().filter(|scope| self.by_policy.contains(&scope.name)) {
            scope.standing = Standing::Indifferent;
        }
        scopes
    }

    /// The same without what nobody asked for.
    pub fn without_policy(mut self) -> Self {
        let gang = &mut self.gang;
        let groups = gang.groups.iter_mut().map(|group| (&group.name, &mut group.pack));
        let pod_groups = gang.pod_groups.iter_mut().map(|group| (&group.name, &mut group.pack));
        for (name, pack) in std::iter::once((&gang.name, &mut gang.pack))
            .chain(groups)
            .chain(pod_groups)
        {
            if self.by_policy.contains(name) {
                pack.preferred = None;
            }
        }
        self
    }

    /// The levels that its scopes require.
    fn required(&self) -> impl Iterator<Item = &str> {
        let gang = &self.gang;
        let groups = gang.groups.iter().map(|group| &group.pack);
        let pod_groups = gang.pod_groups.iter().map(|group| &group.pack);
        let packs = std::iter::once(&gang.pack).chain(groups).chain(pod_groups);
        let of_replica = gang.replica.iter().map(|replica| replica.required.as_str());
        packs.filter_map(|pack| pack.required.as_deref()).chain(of_replica)
    }

    /// Whether any pod waits for a place.
    pub fn is_waiting(&self) -> bool {
        self.pods.iter().any(|pods| !pods.is_empty())
    }
}

impl Mirror {
    /// The request for a gang, given the pods that it lists. Pods that the caller does not show, that have ended or
    /// that are being deleted do not count; pods that hold a place pin the scopes that they belong to.
    pub fn gang<'a, P: Placeable + 'a>(
        &mut self,
        gang: &PodGang,
        pod: impl Fn(&PodKey) -> Option<&'a P>,
    ) -> Result<GangRequest, NotPlaceable> {
        let name = gang.metadata.name.clone().unwrap_or_default();
        let annotations = gang.metadata.annotations.as_ref();
        let annotated = |key: &str| annotations.and_then(|annotations| annotations.get(key));
        let topology_name = gang.spec.topology_ref.as_ref().or(annotated(annotation::TOPOLOGY_NAME));
        let levels = self.levels(topology_name)?;
        // A set that names its topology runs on that topology's nodes only.
        let is_partition = topology_name.is_some_and(|name| !self.is_default_topology(name));
        let namespace = gang.metadata.namespace.clone().unwrap_or_default();
        let replica = match annotated(annotation::REPLICA_PACK_REQUIRED) {
            Some(required) => Some(Replica {
                required: levels.word(required)?,
                bound: replica_of(&namespace, gang.metadata.labels.as_ref().unwrap_or(&Default::default()))
                    .map(|replica| self.nodes_of_replica(&replica, &name))
                    .unwrap_or_default(),
            }),
            None => None,
        };
        let configs = &gang.spec.topology_constraint_group_configs;
        let groups = configs.iter().map(|config| {
            let pack = levels.pack(config.topology_constraint.as_ref())?;
            let name = config.name.clone();
            Ok(Group { name, pack })
        });
        let mut request = GangRequest {
            gang: Gang {
                name,
                topology: levels.id,
                replica,
                pack: levels.pack(gang.spec.topology_constraint.as_ref())?,
                groups: groups.collect::<Result<_, _>>()?,
                pod_groups: Vec::new(),
            },
            pods: Vec::new(),
            asks_for_cells: false,
            by_policy: annotated(annotation::PREFERRED_BY_POLICY)
                .map(|names| names.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
        };
        for pod_group in &gang.spec.pod_groups {
            let in_group = configs
                .iter()
                .position(|config| config.pod_group_names.contains(&pod_group.name));
            let members = Members::of(self, pod_group, &pod, is_partition.then_some(levels.id))?;
            let pack = levels.pack(pod_group.topology_constraint.as_ref())?;
            members.add_to(&mut request, (self.cluster_mut(), pod_group), in_group, pack)?;
        }
        let asks_for_cells = request.required().any(|word| levels.is_below_host(word));
        Ok(GangRequest {
            asks_for_cells,
            ..request
        })
    }

    fn levels(&self, name: Option<&String>) -> Result<Levels, NotPlaceable> {
        let missing = || NotPlaceable::NoTopology {
            name: name.cloned().unwrap_or_default(),
        };
        let (id, spec) = self.topology(name.map(String::as_str)).ok_or_else(missing)?;
        let spec = spec.cloned();
        Ok(Levels { id, spec })
    }
}

/// The topology of a gang.
struct Levels {
    id: TopologyId,
    spec: Option<TopologySpec>,
}

impl Levels {
    /// The word of the level with a node label.
    fn word(&self, key: &str) -> Result<String, NotPlaceable> {
        let levels = self.spec.iter().flat_map(|spec| &spec.levels);
        let mut found = levels.filter(|level| level.key == key);
        found
            .next()
            .map(|level| level.word.clone())
            .ok_or_else(|| NotPlaceable::NoLevel {
                topology: self.spec.as_ref().map(|spec| spec.name.clone()).unwrap_or_default(),
                key: key.to_owned(),
            })
    }

    /// Whether a level lies inside a node.
    fn is_below_host(&self, word: &str) -> bool {
        let spec = self.spec.as_ref();
        let below = spec.and_then(|spec| spec.levels.get(spec.host? + 1..));
        below.is_some_and(|levels| levels.iter().any(|level| level.word == word))
    }

    fn pack(&self, constraint: Option<&GangTopologyConstraint>) -> Result<Pack, NotPlaceable> {
        let Some(pack) = constraint.and_then(|constraint| constraint.pack_constraint.as_ref()) else {
            return Ok(Pack::default());
        };
        let word = |key: &Option<String>| key.as_ref().map(|key| self.word(key)).transpose();
        Ok(Pack {
            required: word(&pack.required)?,
            preferred: word(&pack.preferred)?,
        })
    }
}

/// The pods of a pod-group.
struct Members {
    /// Where its bound pods sit, one entry for each.
    bound: Vec<NodeId>,
    /// Pods that wait, those that ask for the same together.
    waiting: Vec<(Shape, Vec<PodKey>)>,
    /// How many of each shape belong to the minimum.
    minimum: Vec<u32>,
}

impl Members {
    fn of<'a, P: Placeable + 'a>(
        mirror: &mut Mirror,
        pod_group: &KubePodGroup,
        pod: &impl Fn(&PodKey) -> Option<&'a P>,
        inside: Option<TopologyId>,
    ) -> Result<Members, NotPlaceable> {
        let listed = pod_group.pod_references.iter().filter_map(pod).map(Placeable::view);
        let mut live: Vec<Cow<'_, PodView>> = listed.filter(|pod| !pod.has_ended && !pod.is_leaving).collect();
        live.sort_by_key(|pod| (index(pod), pod.key.clone()));
        let mut members = Members {
            bound: Vec::new(),
            waiting: Vec::new(),
            minimum: Vec::new(),
        };
        let waiting: Vec<&PodView> = live
            .iter()
            .map(|pod| &**pod)
            .filter(|pod| !members.count_bound(mirror, pod))
            .collect();
        let needed = u32::try_from(pod_group.min_replicas).unwrap_or(0);
        let found = live.len() as u32;
        if found < needed {
            return Err(NotPlaceable::Incomplete {
                pod_group: pod_group.name.clone(),
                found,
                needed,
            });
        }
        let mut missing = needed.saturating_sub(found - waiting.len() as u32);
        for pod in waiting {
            mirror.check_claims(pod)?;
            let unsupported = |what| NotPlaceable::Unsupported {
                pod: pod.key.clone(),
                what,
            };
            let shape = mirror.shape(pod, inside).map_err(unsupported)?;
            let known = members.waiting.iter().position(|(known, _)| *known == shape);
            let at = known.unwrap_or_else(|| {
                members.waiting.push((shape, Vec::new()));
                members.minimum.push(0);
                members.waiting.len() - 1
            });
            members.waiting[at].1.push(pod.key.clone());
            if missing > 0 {
                members.minimum[at] += 1;
                missing -= 1;
            }
        }
        Ok(members)
    }

    /// Whether a pod has a node, which is then counted.
    fn count_bound(&mut self, mirror: &Mirror, pod: &PodView) -> bool {
        if mirror.node_of(&pod.key).is_none() {
            return false;
        }
        // A node that is not known cannot pin anything, but the pod is not waiting.
        self.bound.extend(mirror.resident_node(&pod.key));
        true
    }

    /// Adds the pods to a request: one pod-group, or one for each kind of pod under a scope that they share.
    fn add_to(
        mut self,
        request: &mut GangRequest,
        (cluster, pod_group): (&mut Cluster, &KubePodGroup),
        mut in_group: Option<usize>,
        mut pack: Pack,
    ) -> Result<(), NotPlaceable> {
        if self.waiting.is_empty() {
            self.waiting.push((Shape::default(), Vec::new()));
            self.minimum.push(0);
        }
        if self.waiting.len() > 1 && pack != Pack::default() {
            if in_group.is_some() {
                let first = |at: usize| {
                    self.waiting[at]
                        .1
                        .first()
                        .map(|pod| pod.name.clone())
                        .unwrap_or_default()
                };
                return Err(NotPlaceable::Unlike {
                    pod_group: pod_group.name.clone(),
                    one: first(0),
                    other: first(1),
                });
            }
            in_group = Some(request.gang.groups.len());
            let name = pod_group.name.clone();
            request.gang.groups.push(Group {
                name,
                pack: std::mem::take(&mut pack),
            });
        }
        // Bound pods beyond the minimum leave nothing to be placed, but they still pin the scope.
        for ((shape, pods), minimum) in self.waiting.into_iter().zip(self.minimum) {
            let bound = std::mem::take(&mut self.bound);
            request.gang.pod_groups.push(PodGroup {
                name: pod_group.name.clone(),
                group: in_group,
                pack: pack.clone(),
                shape: cluster.shape(&shape),
                minimum: minimum + bound.len() as u32,
                desired: (pods.len() + bound.len()) as u32,
                bound,
            });
            request.pods.push(pods);
        }
        Ok(())
    }
}

/// The index of a pod in its clique; pods without one come last.
fn index(pod: &PodView) -> u32 {
    let label = pod.labels.get(labels::POD_INDEX);
    label.and_then(|text| text.parse().ok()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
