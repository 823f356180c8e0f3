//! Objects as people write them.

use grove_api::config::{Overrides, TopologyAwareScheduling, parse};
use grove_api::podcliqueset::{PodCliqueSetTemplate, PodCliqueTemplate, ScalingGroupTemplate};
use grove_api::topology::{BoundLevel, DEFAULT_TOPOLOGY_NAME, HOSTNAME_LABEL, NamedLevel, TopologyLevel};
use grove_api::{
    ClusterTopology, ClusterTopologyBinding, ClusterTopologyBindingSpec, ClusterTopologySpec, Pack, PodCliqueSet,
    PodCliqueSetSpec, TopologyConstraint, TopologyDomain, TopologyDomainSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The key that tests give a word.
pub(crate) fn key(word: &str) -> String {
    match word {
        "host" => HOSTNAME_LABEL.to_owned(),
        word => format!("topology.kubernetes.io/{word}"),
    }
}

pub(crate) fn cluster_topology(name: &str, words: &[&str]) -> ClusterTopology {
    let level = |word: &&str| TopologyLevel {
        domain: word.parse().expect("one of the seven words"),
        key: key(word),
    };
    let levels = words.iter().map(level).collect();
    ClusterTopology::new(name, ClusterTopologySpec { levels })
}

pub(crate) fn grove_topology(words: &[&str]) -> ClusterTopology {
    cluster_topology(DEFAULT_TOPOLOGY_NAME, words)
}

pub(crate) fn topology_domain(name: &str, words: &[&str]) -> TopologyDomain {
    let level = |word: &&str| NamedLevel {
        name: (*word).to_owned(),
        topology_key: key(word),
        description: None,
    };
    let levels = words.iter().map(level).collect();
    TopologyDomain::new(name, TopologyDomainSpec { levels })
}

pub(crate) fn binding(name: &str, words: &[&str]) -> ClusterTopologyBinding {
    let level = |word: &&str| BoundLevel {
        domain: (*word).to_owned(),
        key: key(word),
    };
    let spec = ClusterTopologyBindingSpec {
        levels: words.iter().map(level).collect(),
        scheduler_topology_bindings: Vec::new(),
    };
    ClusterTopologyBinding::new(name, spec)
}

pub(crate) fn packed(word: &str) -> TopologyConstraint {
    TopologyConstraint {
        pack_domain: Some(word.to_owned()),
        ..TopologyConstraint::default()
    }
}

pub(crate) fn pack(required: Option<&str>, preferred: Option<&str>) -> TopologyConstraint {
    TopologyConstraint {
        pack: Some(Pack {
            required: required.map(str::to_owned),
            preferred: preferred.map(str::to_owned),
        }),
        ..TopologyConstraint::default()
    }
}

/// A set in namespace `ml`; constraints are added by the methods of [`Author`].
pub(crate) fn set(name: &str) -> PodCliqueSet {
    let mut set = PodCliqueSet::new(
        name,
        PodCliqueSetSpec {
            replicas: 1,
            template: PodCliqueSetTemplate::default(),
            ..PodCliqueSetSpec::default()
        },
    );
    set.metadata.namespace = Some("ml".into());
    set.metadata.generation = Some(1);
    set
}

/// Writes a PodCliqueSet as its author would.
pub(crate) trait Author: Sized {
    fn named(self, topology: &str) -> Self;
    fn replica(self, constraint: impl Into<Option<TopologyConstraint>>) -> Self;
    fn clique(self, name: &str, constraint: impl Into<Option<TopologyConstraint>>) -> Self;
    /// A scaling group of cliques, two replicas of which one belongs to the base gang.
    fn group(self, name: &str, cliques: &[&str], constraint: impl Into<Option<TopologyConstraint>>) -> Self;
}

impl Author for PodCliqueSet {
    fn named(mut self, topology: &str) -> Self {
        self.spec.template.cluster_topology_name = Some(topology.to_owned());
        self
    }

    fn replica(mut self, constraint: impl Into<Option<TopologyConstraint>>) -> Self {
        self.spec.template.topology_constraint = constraint.into();
        self
    }

    fn clique(mut self, name: &str, constraint: impl Into<Option<TopologyConstraint>>) -> Self {
        self.spec.template.cliques.push(PodCliqueTemplate {
            name: name.to_owned(),
            topology_constraint: constraint.into(),
            ..PodCliqueTemplate::default()
        });
        self
    }

    fn group(mut self, name: &str, cliques: &[&str], constraint: impl Into<Option<TopologyConstraint>>) -> Self {
        self.spec.template.scaling_groups.push(ScalingGroupTemplate {
            name: name.to_owned(),
            clique_names: cliques.iter().map(|name| (*name).to_owned()).collect(),
            annotations: Default::default(),
            replicas: Some(2),
            min_available: Some(1),
            scale_config: None,
            resource_sharing: Vec::new(),
            topology_constraint: constraint.into(),
        });
        self
    }
}

/// `topologyAwareScheduling` as it stands in a configuration file, without the braces.
pub(crate) fn tas(settings: &str) -> TopologyAwareScheduling {
    let file = format!("topologyAwareScheduling: {{{settings}}}");
    let loaded = parse(file.as_bytes(), &Overrides::default()).unwrap_or_else(|problems| panic!("{problems:?}"));
    loaded.configuration.topology_aware_scheduling
}

/// Enabled, with levels rack and host, and `settings` beside them.
pub(crate) fn enabled(settings: &str) -> TopologyAwareScheduling {
    let levels = "{domain: rack, key: topology.kubernetes.io/rack}, {domain: host, key: kubernetes.io/hostname}";
    tas(&format!("enabled: true, levels: [{levels}], {settings}"))
}

pub(crate) fn disabled() -> TopologyAwareScheduling {
    tas("enabled: false")
}

/// With TopologyDomain `default` as the source.
pub(crate) fn from_domain(settings: &str) -> TopologyAwareScheduling {
    tas(&format!(
        "enabled: true, source: TopologyDomain, topologyDomainName: default, {settings}"
    ))
}

/// Second `second` of the tests' time.
pub(crate) fn at(second: i64) -> Time {
    let time = k8s_openapi::jiff::Timestamp::from_second(1_700_000_000 + second);
    Time(time.expect("a second of this century"))
}
