//! Defaults of a PodCliqueSet: a JSON patch of what was filled in.

use grove_api::PodCliqueSet;
use grove_topology::validate::default_constraint;
use grove_workload::default::{fill, remarks};
use serde_json::Value;

use super::Policy;
use crate::patch::additions;
use crate::review::{Answer, Operation, Request};

pub(super) fn answer(request: &Request, policy: &Policy) -> Answer {
    if request.is_deleting() {
        return Answer::admitted();
    }
    // What our types cannot read is left alone: the schema comes next, and names every field that is wrong.
    filled(request, policy).map_or_else(Answer::admitted, |(patch, told)| {
        Answer::patched(patch).with_warnings(told)
    })
}

/// What is filled in, and what there is to say about it.
fn filled(request: &Request, policy: &Policy) -> Option<(Vec<Value>, Vec<String>)> {
    let mut set: PodCliqueSet = request.new_object().ok()?;
    let before = serde_json::to_value(&set).ok()?;
    let told = remarks(&set);
    fill(&mut set);
    if request.operation == Operation::Create
        && let Some(constraint) = default_constraint(&set, &policy.topology)
    {
        set.spec.template.topology_constraint = Some(constraint);
    }
    let after = serde_json::to_value(&set).ok()?;
    Some((additions(&request.object, &before, &after), told))
}
