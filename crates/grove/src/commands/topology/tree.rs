//! `grove topology tree`.

use std::process::ExitCode;

use grove_topology::survey::{self, Domain};

use super::read::Seen;
use crate::exit::Failure;
use crate::output::{self, Format};

pub(super) fn print(seen: &Seen, (name, depth): (&str, Option<&str>), format: Format) -> Result<ExitCode, Failure> {
    let topologies = seen.topologies();
    let Some((topology, _)) = topologies.iter().find(|(topology, _)| topology.name() == name) else {
        let names: Vec<&str> = topologies.iter().map(|(topology, _)| topology.name()).collect();
        let known = if names.is_empty() {
            "there are none".to_owned()
        } else {
            names.join(", ")
        };
        return Err(Failure::Usage(format!(
            "no topology is called '{name}'; known: {known}"
        )));
    };
    let mut domains = survey::tree(topology, &seen.nodes);
    if let Some(depth) = depth {
        if topology.key(depth).is_none() {
            let words: Vec<&str> = topology.levels().iter().map(|level| level.word.as_str()).collect();
            let words = words.join(", ");
            return Err(Failure::Usage(format!(
                "--depth: '{depth}' is no level of '{name}'; its levels: {words}"
            )));
        }
        cut_below(&mut domains, depth);
    }
    output::print(format, &domains, |domains| table(domains))?;
    Ok(ExitCode::SUCCESS)
}

fn cut_below(domains: &mut [Domain], level: &str) {
    for domain in domains {
        match domain.level == level {
            true => domain.domains.clear(),
            false => cut_below(&mut domain.domains, level),
        }
    }
}

fn table(domains: &[Domain]) -> String {
    if domains.is_empty() {
        return "no node carries the labels of this topology; see `grove topology check`".to_owned();
    }
    let mut lines = Vec::new();
    draw(domains, "", true, &mut lines);
    lines.join("\n")
}

fn draw(domains: &[Domain], indent: &str, is_top: bool, lines: &mut Vec<String>) {
    for (index, domain) in domains.iter().enumerate() {
        let is_last = index + 1 == domains.len();
        let (branch, below) = match (is_top, is_last) {
            (true, _) => ("", ""),
            (false, true) => ("`- ", "   "),
            (false, false) => ("|- ", "|  "),
        };
        let nodes = if domain.nodes == 1 { "node" } else { "nodes" };
        let Domain { level, name, .. } = domain;
        lines.push(format!("{indent}{branch}{level} {name}  {} {nodes}", domain.nodes));
        draw(&domain.domains, &format!("{indent}{below}"), false, lines);
    }
}
