//! `grove topology usage`.

use std::process::ExitCode;

use serde::Serialize;

use super::read::Seen;
use crate::exit::Failure;
use crate::look::Look;
use crate::output::{self, Answer, Format, headed, row};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Use {
    kind: &'static str,
    topology: String,
    /// The set names no topology.
    is_default: bool,
    namespace: String,
    name: String,
}

pub(super) fn print(seen: &Seen, format: Format) -> Result<ExitCode, Failure> {
    let usage = seen.usage();
    let uses = usage.iter().flat_map(|(kind, topology, users)| {
        users.iter().map(move |user| Use {
            kind: kind.as_str(),
            topology: topology.to_owned(),
            is_default: user.is_default,
            namespace: user.set.namespace.clone(),
            name: user.set.name.clone(),
        })
    });
    let answer = Answer::new("TopologyUsage", seen.at, uses.collect());
    output::print(format, &answer, |answer, look| table(&answer.items, look))?;
    Ok(ExitCode::SUCCESS)
}

fn table(uses: &[Use], look: Look) -> String {
    if uses.is_empty() {
        return "no PodCliqueSet uses a topology".to_owned();
    }
    let mut rows = vec![row(["TOPOLOGY", "PODCLIQUESET"])];
    rows.extend(uses.iter().map(|one| {
        let default = if one.is_default { " (default)" } else { "" };
        let topology = format!("{}{default}", one.topology);
        row([&topology, &format!("{}/{}", one.namespace, one.name)])
    }));
    headed(&rows, look)
}
