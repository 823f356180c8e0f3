//! Validation of a TopologyDomain.

use grove_api::TopologyDomain;
use grove_topology::validate::review_topology_domain;

use crate::review::{Answer, Cause, Request};

pub(super) fn answer(request: &Request) -> Answer {
    if request.is_deleting() {
        return Answer::admitted();
    }
    let new: TopologyDomain = match request.new_object() {
        Ok(new) => new,
        Err(cause) => return Answer::judged(vec![cause]),
    };
    let old: Option<TopologyDomain> = request.stored_object();
    let verdict = review_topology_domain(old.as_ref(), &new);
    Answer::judged(verdict.violations.into_iter().map(Cause::from).collect()).with_warnings(verdict.warnings)
}
