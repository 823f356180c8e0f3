//! The files: what they hold, and what is wrong with them.

use std::collections::BTreeMap;

use grove_api::topology::{DEFAULT_TOPOLOGY_NAME, DomainWord, TopologyLevel};
use grove_api::{ClusterTopology, ClusterTopologySpec, PodCliqueSet};
use grove_kubeplace::NodeResourceTopology;
use grove_topology::Topologies;
use grove_topology::survey::{NodeLabels, discover};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Invalid;

/// What the files hold, in their order.
#[derive(Debug)]
pub struct Input {
    pub topologies: Topologies,
    pub nodes: Vec<Node>,
    /// What nodes say of their NUMA cells.
    pub cells: Vec<NodeResourceTopology>,
    pub pods: Vec<Pod>,
    pub claims: Vec<PersistentVolumeClaim>,
    pub volumes: Vec<PersistentVolume>,
    pub sets: Vec<PodCliqueSet>,
    pub priority_classes: Vec<PriorityClass>,
    /// What a person should know about how the files were read.
    pub notes: Vec<String>,
    ignored: BTreeMap<String, usize>,
}

impl Input {
    pub fn new(topology_domain_name: Option<String>) -> Self {
        Self {
            topologies: Topologies::new(topology_domain_name),
            nodes: vec![],
            cells: vec![],
            pods: vec![],
            claims: vec![],
            volumes: vec![],
            sets: vec![],
            priority_classes: vec![],
            notes: vec![],
            ignored: BTreeMap::new(),
        }
    }

    /// Adds the objects of one text.
    pub fn add(&mut self, text: &str, source: &str) -> Result<(), Invalid> {
        for (index, document) in documents(text, source)?.into_iter().enumerate() {
            let place = format!("{source}, document {}", index + 1);
            self.add_object(document, &place, None)?;
        }
        Ok(())
    }

    /// Adds an object, or the items of a list, whose kind the items may leave out.
    fn add_object(&mut self, mut object: Value, place: &str, of_list: Option<&str>) -> Result<(), Invalid> {
        if object.is_null() {
            return Ok(());
        }
        let kind = object["kind"].as_str().or(of_list).unwrap_or_default().to_owned();
        if let (Some(item_kind), Value::Array(items)) = (kind.strip_suffix("List"), object["items"].take()) {
            let of_list = Some(item_kind).filter(|kind| !kind.is_empty());
            for (index, item) in items.into_iter().enumerate() {
                self.add_object(item, &format!("{place}, items[{index}]"), of_list)?;
            }
            return Ok(());
        }
        match kind.as_str() {
            "Node" => self.nodes.push(read(object, place)?),
            "NodeResourceTopology" => self.cells.push(read(object, place)?),
            "Pod" => self.pods.push(read(object, place)?),
            "PersistentVolumeClaim" => self.claims.push(read(object, place)?),
            "PersistentVolume" => self.volumes.push(read(object, place)?),
            "PriorityClass" => self.priority_classes.push(read(object, place)?),
            "PodCliqueSet" => self.sets.push(read(object, place)?),
            "ClusterTopology" => self.topologies.cluster_topologies.push(read(object, place)?),
            "ClusterTopologyBinding" => self.topologies.bindings.push(read(object, place)?),
            "TopologyDomain" => self.topologies.topology_domains.push(read(object, place)?),
            "" => {
                return Err(Invalid(format!(
                    "{place}: kind: is missing; is it a Kubernetes object?"
                )));
            }
            _ => *self.ignored.entry(kind).or_default() += 1,
        }
        Ok(())
    }

    /// Fills in what files may leave out: namespaces, and a default topology.
    pub fn complete(&mut self, levels: &[String]) -> Result<(), Invalid> {
        let in_default = |namespace: &mut Option<String>| {
            namespace.get_or_insert_with(|| "default".to_owned());
        };
        for set in &mut self.sets {
            in_default(&mut set.metadata.namespace);
        }
        for pod in &mut self.pods {
            in_default(&mut pod.metadata.namespace);
        }
        for claim in &mut self.claims {
            in_default(&mut claim.metadata.namespace);
        }
        if self.nodes.is_empty() {
            return Err(Invalid(
                "no file has a Node; add one, for example the output of kubectl get nodes -o yaml".to_owned(),
            ));
        }
        let ignored = self
            .ignored
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect::<Vec<_>>();
        if !ignored.is_empty() {
            self.notes.push(format!("not looked at: {}", ignored.join(", ")));
        }
        if !levels.is_empty() {
            return self.add_levels(levels);
        }
        if self.topologies.is_empty() {
            self.discover();
        }
        Ok(())
    }

    /// A default topology from `--levels`.
    fn add_levels(&mut self, levels: &[String]) -> Result<(), Invalid> {
        if !self.topologies.is_empty() {
            return Err(Invalid(
                "--levels: the files have a topology; leave one of both out".to_owned(),
            ));
        }
        let level = |text: &String| {
            let (word, key) = text.split_once('=').filter(|(_, key)| !key.is_empty())?;
            let domain: DomainWord = word.parse().ok()?;
            let key = key.to_owned();
            Some(TopologyLevel { domain, key })
        };
        let wrong = |text: &String| {
            let words = DomainWord::ALL.map(DomainWord::as_str).join(", ");
            Invalid(format!(
                "--levels: '{text}' is not WORD=KEY with one of the words {words}"
            ))
        };
        let levels = levels.iter().map(|text| level(text).ok_or_else(|| wrong(text)));
        let levels = levels.collect::<Result<Vec<_>, _>>()?;
        self.set_default_topology(ClusterTopologySpec { levels });
        Ok(())
    }

    /// A default topology from what the nodes' labels suggest.
    fn discover(&mut self) {
        let nodes: Vec<NodeLabels> = self
            .nodes
            .iter()
            .map(|node| NodeLabels {
                name: node.name_any(),
                labels: node.metadata.labels.clone().unwrap_or_default(),
            })
            .collect();
        let Some(proposal) = discover(&nodes) else { return };
        let levels = proposal.spec.levels.iter();
        let levels: Vec<String> = levels.map(|level| format!("{}={}", level.domain, level.key)).collect();
        self.notes.push(format!(
            "no file has a topology; the nodes' labels suggest --levels {}",
            levels.join(",")
        ));
        self.set_default_topology(proposal.spec);
    }

    fn set_default_topology(&mut self, spec: ClusterTopologySpec) {
        let topology = ClusterTopology::new(DEFAULT_TOPOLOGY_NAME, spec);
        self.topologies.cluster_topologies.push(topology);
    }
}

/// The documents of a text: one of JSON, or any number of YAML.
fn documents(text: &str, source: &str) -> Result<Vec<Value>, Invalid> {
    let wrong = |why: String| Invalid(format!("{source}: {}", why.lines().next().unwrap_or_default()));
    if text.trim_start().starts_with('{') {
        let document = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        return Ok(vec![document]);
    }
    serde_saphyr::from_multiple(text).map_err(|error| wrong(error.to_string()))
}

fn read<K: DeserializeOwned>(object: Value, place: &str) -> Result<K, Invalid> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(Invalid(format!("{place}: metadata.name: is missing")));
    }
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        Invalid(format!("{place}: {kind} {name}: {path}: {}", error.into_inner()))
    })
}
