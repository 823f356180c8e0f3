//! `grove topology list`.

use std::process::ExitCode;

use grove_topology::survey::unlabelled;
use serde::Serialize;

use super::read::Seen;
use crate::exit::Failure;
use crate::look::Look;
use crate::output::{self, Answer, Format, headed, row};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    kind: &'static str,
    name: String,
    /// Broadest first.
    levels: Vec<String>,
    /// Nodes that carry all of its labels.
    nodes: usize,
    unlabelled: usize,
    sets: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<String>,
}

pub(super) fn print(seen: &Seen, format: Format) -> Result<ExitCode, Failure> {
    let lines = seen.topologies().into_iter().map(|(topology, ready)| {
        let unlabelled = unlabelled(&topology, &seen.nodes).len();
        Line {
            kind: topology.kind().as_str(),
            name: topology.name().to_owned(),
            levels: topology.levels().iter().map(|level| level.word.clone()).collect(),
            nodes: seen.nodes.len() - unlabelled,
            unlabelled,
            sets: seen.users(&topology),
            ready,
        }
    });
    let answer = Answer::new("TopologyList", seen.at, lines.collect());
    output::print(format, &answer, |answer, look| table(&answer.items, look))?;
    Ok(ExitCode::SUCCESS)
}

fn table(lines: &[Line], look: Look) -> String {
    if lines.is_empty() {
        return "no topologies; `grove topology discover` proposes one from the nodes' labels".to_owned();
    }
    let mut rows = vec![row(["KIND", "NAME", "LEVELS", "NODES", "UNLABELLED", "SETS", "READY"])];
    rows.extend(lines.iter().map(|line| {
        row([
            line.kind,
            &line.name,
            &line.levels.join(" > "),
            &line.nodes.to_string(),
            &line.unlabelled.to_string(),
            &line.sets.to_string(),
            line.ready.as_deref().unwrap_or("-"),
        ])
    }));
    headed(&rows, look)
}
