//! The words of a graph: by themselves, and against the topology that they are of.

use grove_api::DynamoGraphDeployment;
use grove_api::topology::DomainWord;
use grove_workload::validate::{Reason, Violation};

use super::{invalid, violation};
use crate::framework::Reading;

const GRAPH: &str = "spec.topologyConstraint";

/// Every word with its place; the graph's comes first.
fn places(graph: &DynamoGraphDeployment) -> Vec<(String, &str)> {
    let own = graph
        .spec
        .pack_domain()
        .map(|word| (format!("{GRAPH}.packDomain"), word));
    let components = graph.spec.components.iter().enumerate();
    let of_components = components.filter_map(|(index, component)| {
        let constraint = component.topology_constraint.as_ref()?;
        Some((component_path(index), constraint.pack_domain.as_str()))
    });
    own.into_iter().chain(of_components).collect()
}

fn component_path(index: usize) -> String {
    format!("spec.components[{index}].topologyConstraint.packDomain")
}

/// Whether the words are of the seven, and whether components are at least as narrow as their graph.
pub(super) fn words(graph: &DynamoGraphDeployment) -> Vec<Violation> {
    let mut found = Vec::new();
    let known = |word: &str| word.parse::<DomainWord>().ok();
    for (path, word) in places(graph).into_iter().filter(|(_, word)| known(word).is_none()) {
        let words = DomainWord::ALL.map(DomainWord::as_str).join(", ");
        found.push(invalid(
            path,
            word,
            format!("is not a topology domain; use one of {words}"),
        ));
    }
    let own = graph.spec.pack_domain().and_then(|word| Some((word, known(word)?)));
    for (index, component) in graph.spec.components.iter().enumerate() {
        let constraint = component
            .topology_constraint
            .as_ref()
            .map(|constraint| constraint.pack_domain.as_str());
        if let (Some((graph_word, broadest)), Some(word)) = (own, constraint)
            && known(word).is_some_and(|meaning| meaning < broadest)
        {
            let detail = format!("must be equal to or narrower than the deployment-level domain \"{graph_word}\"");
            found.push(invalid(component_path(index), word, detail));
        }
    }
    // Also of a constraint that says nothing at all: somebody would wait for it to be kept.
    if graph.spec.topology_constraint.is_some() && !graph.spec.has_constraint() {
        let detail = "is required when no component topologyConstraint is set";
        found.push(violation(format!("{GRAPH}.packDomain"), Reason::Required, detail));
    }
    found
}

/// Why a graph with constraints is refused whose topology cannot be read.
pub(super) fn unreadable(kind: &str, why: impl std::fmt::Display) -> Violation {
    let path = format!("{GRAPH}.clusterTopologyName");
    violation(path, Reason::Invalid, format!("failed to read {kind}: {why}"))
}

/// Whether the topology has the words, as it is now.
pub(super) fn levels(graph: &DynamoGraphDeployment, reading: &Reading) -> Vec<Violation> {
    match reading {
        Reading::Disabled => vec![violation(
            GRAPH,
            Reason::Invalid,
            "topology support is not enabled in the operator",
        )],
        Reading::NotFound { kind, name } => {
            let path = format!("{GRAPH}.clusterTopologyName");
            vec![invalid(
                path,
                name,
                format!("references a {kind} resource that was not found"),
            )]
        }
        Reading::Levels { kind, name, words } => {
            let mut available = words.clone();
            available.sort();
            let missing = places(graph)
                .into_iter()
                .filter(|(_, word)| !words.iter().any(|known| known == word));
            let report = |(path, word)| {
                let domains = available.join(" ");
                let detail = format!("does not exist in {kind} \"{name}\"; available domains: [{domains}]");
                invalid(path, word, detail)
            };
            missing.map(report).collect()
        }
    }
}
