//! `grove topology check`.

use std::process::ExitCode;

use grove_topology::survey::{Finding, Severity, check_capacity, check_constraints, check_nodes};

use super::read::Seen;
use crate::exit::{self, Failure};
use crate::look::{Look, Tone};
use crate::output::{self, Answer, Format};

pub(super) fn print(seen: &Seen, strict: bool, format: Format) -> Result<ExitCode, Failure> {
    let topologies = seen.topologies();
    let of_nodes = topologies
        .iter()
        .flat_map(|(topology, _)| check_nodes(topology, &seen.nodes));
    let of_sets = seen.sets.iter().flat_map(|set| {
        let resolution = seen.resolve(set);
        let mut found = check_constraints(set, &resolution, &seen.nodes);
        found.extend(check_capacity(set, &resolution, &seen.nodes, &seen.capacity(set)));
        found
    });
    let mut findings: Vec<Finding> = of_nodes.chain(of_sets).collect();
    findings.sort();
    let checked = format!(
        "{} topologies, {} nodes and {} sets are in order",
        topologies.len(),
        seen.nodes.len(),
        seen.sets.len()
    );
    let answer = Answer::new("TopologyCheck", seen.at, findings);
    output::print(format, &answer, |answer, look| table(&answer.items, checked, look))?;
    let is_failed = answer
        .items
        .iter()
        .any(|finding| strict || finding.severity == Severity::Fail);
    Ok(if is_failed {
        exit::FINDING.into()
    } else {
        ExitCode::SUCCESS
    })
}

fn table(findings: &[Finding], in_order: String, look: Look) -> String {
    if findings.is_empty() {
        return in_order;
    }
    let lines = findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Fail => look.paint(Tone::Bad, "fail"),
            Severity::Warn => look.paint(Tone::Warn, "warn"),
        };
        format!(
            "{severity}  {} {}\n      fix: {}",
            finding.code, finding.message, finding.fix
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}
