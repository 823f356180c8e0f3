//! What is wrong with the labels of nodes, and with constraints that nothing can fulfil.

use std::collections::{BTreeMap, BTreeSet};

use grove_api::PodCliqueSet;
use serde::Serialize;

use super::NodeLabels;
use crate::levels::Topology;
use crate::resolve::Resolution;
use crate::scopes;

/// More names than this are counted, not listed.
const NAMES_SHOWN_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Fail,
    /// Something works worse than it could.
    Warn,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// Stable, for programs.
    pub code: &'static str,
    /// What is wrong, and where.
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

/// What is wrong with the nodes' labels, level by level.
///
/// Nodes that carry none of the topology's own labels (those besides the host's) are not its: a cluster can have several
/// topologies, each for a part of the nodes.
pub fn check_nodes(topology: &Topology, nodes: &[NodeLabels]) -> Vec<Finding> {
    let keys = topology.node_keys();
    let own: Vec<&str> = keys
        .iter()
        .copied()
        .filter(|key| *key != grove_api::topology::HOSTNAME_LABEL)
        .collect();
    let is_part = |node: &&NodeLabels| own.is_empty() || own.iter().any(|key| node.domain(key).is_some());
    let nodes: Vec<&NodeLabels> = nodes.iter().filter(is_part).collect();
    if nodes.is_empty() {
        return vec![Finding {
            severity: Severity::Fail,
            code: "GT010",
            message: format!(
                "{} '{}': no node carries any of its labels",
                topology.kind(),
                topology.name()
            ),
            fix: format!("label the nodes with {}", own.join(", ")),
        }];
    }
    let lacking = keys.iter().filter_map(|key| lacking(topology, key, &nodes));
    let torn = keys
        .windows(2)
        .flat_map(|pair| torn(topology, [pair[0], pair[1]], &nodes));
    lacking.chain(torn).collect()
}

fn lacking(topology: &Topology, key: &str, nodes: &[&NodeLabels]) -> Option<Finding> {
    let without: Vec<&str> = nodes
        .iter()
        .filter(|node| node.domain(key).is_none())
        .map(|node| node.name.as_str())
        .collect();
    let first = without.first()?;
    Some(Finding {
        severity: Severity::Warn,
        code: "GT011",
        message: format!(
            "{} '{}': {} of {} nodes lack {key}: {}; no gang with a constraint lands there",
            topology.kind(),
            topology.name(),
            without.len(),
            nodes.len(),
            listed(&without)
        ),
        fix: format!("kubectl label node {first} {key}=VALUE"),
    })
}

/// Domains of the narrower level that reach into several of the broader one.
fn torn(topology: &Topology, [broad, narrow]: [&str; 2], nodes: &[&NodeLabels]) -> Vec<Finding> {
    let mut outer: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in nodes {
        if let (Some(broad), Some(narrow)) = (node.domain(broad), node.domain(narrow)) {
            outer.entry(narrow).or_default().insert(broad);
        }
    }
    let mut torn: Vec<_> = outer.into_iter().filter(|(_, outer)| outer.len() > 1).collect();
    let more: Vec<_> = torn.drain(torn.len().min(NAMES_SHOWN_MAX)..).collect();
    let fix = format!("give each {broad} its own values of {narrow}, or correct the labels of the nodes");
    let finding = |(domain, outer): (&str, BTreeSet<&str>)| {
        let outer: Vec<&str> = outer.into_iter().collect();
        Finding {
            severity: Severity::Fail,
            code: "GT012",
            message: format!(
                "{} '{}': {narrow}={domain} is in {} domains of {broad}: {}",
                topology.kind(),
                topology.name(),
                outer.len(),
                listed(&outer)
            ),
            fix: fix.clone(),
        }
    };
    let mut findings: Vec<Finding> = torn.into_iter().map(finding).collect();
    // Whole clusters are labelled by one script: if it is wrong, it is wrong everywhere.
    if !more.is_empty() {
        findings.push(Finding {
            severity: Severity::Fail,
            code: "GT012",
            message: format!(
                "{} '{}': {} more values of {narrow} are in several domains of {broad}",
                topology.kind(),
                topology.name(),
                more.len()
            ),
            fix,
        });
    }
    findings
}

/// Constraints of a set that no domain could ever fulfil: its topology or a level is gone, or no node is at that level.
pub fn check_constraints(set: &PodCliqueSet, resolution: &Resolution, nodes: &[NodeLabels]) -> Vec<Finding> {
    let name = crate::usage::name_of(&set.metadata);
    let name = format!("PodCliqueSet {}/{}", name.namespace, name.name);
    let topology = match resolution {
        Resolution::Unused | Resolution::Disabled => return Vec::new(),
        Resolution::Missing { kind, name: missing } => {
            return vec![Finding {
                severity: Severity::Fail,
                code: "GT020",
                message: format!(
                    "{name} uses {kind} '{missing}', which does not exist; its constraints are not applied"
                ),
                fix: format!("create {kind} '{missing}', or recreate the set with another topology"),
            }];
        }
        Resolution::InForce { topology, .. } => topology,
    };
    let mut findings = Vec::new();
    for scoped in scopes::constraints(&set.spec.template) {
        let Some(word) = scoped.constraint.required() else {
            continue;
        };
        let path = scoped.required_path();
        let (kind, topology_name) = (topology.kind(), topology.name());
        match topology.key(word).and_then(|key| topology.node_key(key)) {
            None => findings.push(Finding {
                severity: Severity::Fail,
                code: "GT021",
                message: format!("{name}: {path}: {kind} '{topology_name}' has no level '{word}'; it is not applied"),
                fix: format!("add the level to {kind} '{topology_name}', or recreate the set"),
            }),
            Some(key) if !nodes.iter().any(|node| node.domain(key).is_some()) => findings.push(Finding {
                severity: Severity::Fail,
                code: "GT022",
                message: format!("{name}: {path}: no node carries {key}, so no {word} can ever hold it"),
                fix: format!("label the nodes with {key}"),
            }),
            Some(_) => {}
        }
    }
    findings
}

fn listed(names: &[&str]) -> String {
    let shown = names
        .iter()
        .take(NAMES_SHOWN_MAX)
        .copied()
        .collect::<Vec<_>>()
        .join(" ");
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
