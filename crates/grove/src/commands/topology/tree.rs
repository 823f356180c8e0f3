//! `grove topology tree`.

use std::process::ExitCode;

use grove_topology::survey::{self, Domain};

use super::read::Seen;
use crate::exit::Failure;
use crate::look::Look;
use crate::output::{self, Answer, Format};
use crate::words::proposal;

pub(super) fn print(seen: &Seen, (name, depth): (&str, Option<&str>), format: Format) -> Result<ExitCode, Failure> {
    let topologies = seen.topologies();
    let Some((topology, _)) = topologies.iter().find(|(topology, _)| topology.name() == name) else {
        let names = topologies.iter().map(|(topology, _)| topology.name().to_owned());
        let next = proposal(name, &names.collect::<Vec<_>>());
        return Err(Failure::Usage(format!("no topology is called '{name}'; {next}")));
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
    let answer = Answer::new("TopologyTree", seen.at, domains);
    output::print(format, &answer, |answer, look| table(&answer.items, look))?;
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

fn table(domains: &[Domain], look: Look) -> String {
    if domains.is_empty() {
        return "no node carries the labels of this topology; see `grove topology check`".to_owned();
    }
    let mut lines = Vec::new();
    draw(domains, None, look, &mut lines);
    lines.join("\n")
}

/// `above` is what stands before the lines of the domain that holds these, if one does.
fn draw(domains: &[Domain], above: Option<&str>, look: Look, lines: &mut Vec<String>) {
    for (index, domain) in domains.iter().enumerate() {
        let is_last = index + 1 == domains.len();
        let (branch, below) = above.map_or(("", ""), |_| look.branch(is_last));
        let indent = above.unwrap_or_default();
        let nodes = if domain.nodes == 1 { "node" } else { "nodes" };
        let Domain { level, name, .. } = domain;
        lines.push(format!("{indent}{branch}{level} {name}  {} {nodes}", domain.nodes));
        draw(&domain.domains, Some(&format!("{indent}{below}")), look, lines);
    }
}
