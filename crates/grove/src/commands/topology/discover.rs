//! `grove topology discover`.

use std::process::ExitCode;

use grove_api::ClusterTopology;
use grove_topology::survey::{Candidate, discover};
use serde_json::json;

use super::read::Seen;
use crate::exit::{self, Failure};
use crate::output::{self, Format, columns, row};

/// The proposal goes to stdout, so that it can be piped into `kubectl apply -f -`; how it came about goes to stderr.
pub(super) fn print(seen: &Seen, name: &str, format: Format) -> Result<ExitCode, Failure> {
    let Some(proposal) = discover(&seen.nodes) else {
        eprintln!(
            "no label of the {} nodes looks like a level; label them, for example kubectl label node NAME \
             topology.kubernetes.io/rack=R1",
            seen.nodes.len()
        );
        return Ok(exit::FINDING.into());
    };
    eprintln!("{}", table(&proposal.candidates, seen.nodes.len()));
    let topology = ClusterTopology::new(name, proposal.spec);
    let object = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology",
        "metadata": {"name": name}, "spec": topology.spec,
    });
    let format = if format == Format::Table { Format::Yaml } else { format };
    output::print(format, &object, |_, _| String::new())?;
    Ok(ExitCode::SUCCESS)
}

fn table(candidates: &[Candidate], nodes: usize) -> String {
    let mut rows = vec![row(["KEY", "DOMAINS", "NODES", "PROPOSED", "NOTE"])];
    rows.extend(candidates.iter().map(|candidate| {
        let proposed = if candidate.is_proposed {
            candidate.word.as_str()
        } else {
            "-"
        };
        row([
            &candidate.key,
            &candidate.domains.to_string(),
            &format!("{}/{nodes}", candidate.nodes),
            proposed,
            &candidate.note,
        ])
    }));
    columns(&rows)
}
