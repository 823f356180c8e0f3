//! The answer as a table: a line for each gang, then the reasons of those that are not placed.

use grove_plan::{Answer, GangAnswer, Verdict};

use crate::look::{Look, Tone};
use crate::output::{headed, row};

/// Domains of a level that are named; more are counted.
const NAMED_MAX: usize = 3;

pub(super) fn table(answer: &Answer, look: Look) -> String {
    let mut rows = vec![row(["GANG", "RESULT", "PODS", "WHERE"])];
    for gang in &answer.gangs {
        let result = match gang.result {
            Verdict::Placed => look.paint(Tone::Good, "placed"),
            Verdict::Infeasible => look.paint(Tone::Bad, "infeasible"),
            Verdict::Undecided => look.paint(Tone::Warn, "undecided"),
        };
        rows.push(row([&name(gang), &result, &gang.pods.len().to_string(), &place(gang)]));
    }
    let summary = &answer.summary;
    let mut lines = vec![headed(&rows, look), String::new()];
    for gang in answer.gangs.iter().filter(|gang| gang.reason.is_some()) {
        lines.push(format!(
            "{}: {}",
            name(gang),
            gang.reason.as_deref().unwrap_or_default()
        ));
    }
    lines.push(format!(
        "{} of {} gangs and {} of {} pods have a place on {} nodes",
        summary.placed, summary.gangs, summary.pods_placed, summary.pods, summary.nodes
    ));
    lines.join("\n")
}

fn name(gang: &GangAnswer) -> String {
    format!("{}/{}", gang.namespace, gang.name)
}

/// The gang's own domains: by name where they are few, by number where they are many. Broad before narrow.
fn place(gang: &GangAnswer) -> String {
    let Some(scope) = gang.scopes.first() else {
        return "-".to_owned();
    };
    let levels = scope.domains.iter().filter(|(_, names)| !names.is_empty());
    let levels = levels.map(|(level, names)| match names.len() {
        0..=NAMED_MAX => format!("{level} {}", names.join(",")),
        many => format!("{many} {level}s"),
    });
    levels.collect::<Vec<_>>().join(", ")
}
