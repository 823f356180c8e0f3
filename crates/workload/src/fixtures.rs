//! Objects for tests, built with as few words as a test needs.

use grove_api::podcliqueset::{
    CliqueStartupType, PodCliqueSetTemplate, PodCliqueTemplate, ScalingGroupTemplate, UpdateStrategy,
    UpdateStrategyType,
};
use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodCliqueSetSpec, PodCliqueSpec, labels};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::Resource;

use crate::expand::claims::ClaimTemplates;
use crate::expand::{Expansion, Live, ReplicaChildren};
use crate::revision;

/// The moment at which tests begin.
pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub(crate) fn after(seconds: i64) -> Timestamp {
    start().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

pub(crate) struct SetBuilder(PodCliqueSet);

/// A set of one replica, as the API server stores it.
pub(crate) fn set(name: &str) -> SetBuilder {
    let mut set = PodCliqueSet::new(
        name,
        PodCliqueSetSpec {
            replicas: 1,
            template: PodCliqueSetTemplate::default(),
            ..PodCliqueSetSpec::default()
        },
    );
    set.metadata.namespace = Some("ns".into());
    set.metadata.uid = Some(format!("uid-{name}"));
    set.metadata.generation = Some(1);
    SetBuilder(set)
}

impl SetBuilder {
    pub(crate) fn replicas(mut self, replicas: i32) -> Self {
        self.0.spec.replicas = replicas;
        self
    }

    pub(crate) fn with_clique(mut self, clique: CliqueBuilder) -> Self {
        self.0.spec.template.cliques.push(clique.0);
        self
    }

    /// Adds a scaling group with its members.
    pub(crate) fn with_group(mut self, name: &str, (replicas, min): (i32, i32), cliques: Vec<CliqueBuilder>) -> Self {
        let clique_names = cliques.iter().map(|clique| clique.0.name.clone()).collect();
        self.0
            .spec
            .template
            .cliques
            .extend(cliques.into_iter().map(|clique| clique.0));
        self.0.spec.template.scaling_groups.push(ScalingGroupTemplate {
            name: name.into(),
            clique_names,
            annotations: Default::default(),
            replicas: Some(replicas),
            min_available: Some(min),
            scale_config: None,
            resource_sharing: vec![],
            topology_constraint: None,
        });
        self
    }

    pub(crate) fn order(mut self, order: CliqueStartupType) -> Self {
        self.0.spec.template.clique_startup_type = order;
        self
    }

    pub(crate) fn on_delete(mut self) -> Self {
        self.0.spec.update_strategy = Some(UpdateStrategy {
            type_: UpdateStrategyType::OnDelete,
        });
        self
    }

    pub(crate) fn build(self) -> PodCliqueSet {
        self.0
    }
}

pub(crate) struct CliqueBuilder(PodCliqueTemplate);

/// A clique of one pod.
pub(crate) fn clique(name: &str) -> CliqueBuilder {
    let container = Container {
        name: "main".into(),
        image: Some("registry.example/app:1".into()),
        ..Container::default()
    };
    CliqueBuilder(PodCliqueTemplate {
        name: name.into(),
        spec: PodCliqueSpec {
            role_name: name.into(),
            replicas: 1,
            min_available: Some(1),
            pod_spec: PodSpec {
                containers: vec![container],
                ..PodSpec::default()
            },
            ..PodCliqueSpec::default()
        },
        ..PodCliqueTemplate::default()
    })
}

impl CliqueBuilder {
    /// Replicas, all of which are the minimum.
    pub(crate) fn replicas(self, replicas: i32) -> Self {
        self.sized(replicas, replicas)
    }

    pub(crate) fn sized(mut self, replicas: i32, min: i32) -> Self {
        self.0.spec.replicas = replicas;
        self.0.spec.min_available = Some(min);
        self
    }

    pub(crate) fn after(mut self, cliques: &[&str]) -> Self {
        self.0.spec.starts_after = cliques.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    pub(crate) fn edit(mut self, change: impl FnOnce(&mut PodCliqueTemplate)) -> Self {
        change(&mut self.0);
        self
    }
}

/// Example of the documentation: a standalone clique, and a group of two cliques of which one replica is the minimum.
pub(crate) fn example() -> SetBuilder {
    set("a")
        .with_clique(clique("fe"))
        .with_group("pf", (3, 1), vec![clique("pl"), clique("pw").replicas(2)])
}

impl From<PodCliqueSet> for SetBuilder {
    fn from(set: PodCliqueSet) -> Self {
        Self(set)
    }
}

/// A PodClique as it is stored.
pub(crate) fn podclique(name: &str, replicas: i32, hash: &str) -> PodClique {
    let mut clique = PodClique::new(
        name,
        PodCliqueSpec {
            replicas,
            ..PodCliqueSpec::default()
        },
    );
    clique.metadata.uid = Some(format!("uid-{name}"));
    clique.metadata.labels = Some([(labels::POD_TEMPLATE_HASH.to_owned(), hash.to_owned())].into());
    clique
}

pub(crate) fn store<K: Resource>(mut object: K) -> K {
    object.meta_mut().uid = Some(format!("uid-{}", object.meta().name.clone().unwrap()));
    object.meta_mut().resource_version = Some("7".into());
    object
}

/// Looks at a set's expansion, given what is stored.
pub(crate) fn expand<T>(
    set: &PodCliqueSet,
    (cliques, groups): (&[PodClique], &[PodCliqueScalingGroup]),
    look: impl FnOnce(&Expansion<'_>) -> T,
) -> T {
    let hashes = revision::resolve::<ControllerRevision, PodClique>(set, &[], &[]).hashes;
    let live = Live::of(set, cliques, groups);
    let claim_templates = ClaimTemplates::new();
    look(&Expansion {
        set,
        hashes: &hashes,
        scheduler: "grove-scheduler",
        live: &live,
        claim_templates: &claim_templates,
    })
}

/// The cliques and scaling groups that a set becomes, once all of them are stored.
pub(crate) fn settle(set: &PodCliqueSet) -> (Vec<PodClique>, Vec<PodCliqueScalingGroup>) {
    let children = expand(set, (&[], &[]), all_children);
    let groups: Vec<PodCliqueScalingGroup> = children.groups.into_iter().map(store).collect();
    let members: Vec<PodClique> = expand(set, (&[], &groups), |expansion| {
        groups
            .iter()
            .flat_map(|group| expansion.group_children(group).cliques)
            .collect()
    });
    let cliques = children.cliques.into_iter().chain(members).map(store).collect();
    (cliques, groups)
}

/// What the set owns for all of its replicas, one after the other.
pub(crate) fn all_children(expansion: &Expansion<'_>) -> ReplicaChildren {
    let mut all = ReplicaChildren::default();
    for replica in expansion.replicas() {
        let children = expansion.replica_children(replica);
        all.cliques.extend(children.cliques);
        all.groups.extend(children.groups);
        all.gangs.extend(children.gangs);
        all.services.extend(children.services);
        all.autoscalers.extend(children.autoscalers);
        all.compute_domains.extend(children.compute_domains);
    }
    all
}
