//! Adds replicas above the minimum inside the domains that the minimum settled in: a scope that states a level gets no
//! new domain at that level. What finds no room there is not placed.

use crate::cluster::NodeId;
use crate::gang::Gang;
use crate::plan::{Assignment, Plan, Work};
use crate::solve::fill::Job;
use crate::solve::overlay::{Put, View};
use crate::solve::problem::Problem;
use crate::solve::search::Scratch;
use crate::topology::{Place, ROOT};

/// Extends a plan of the minimum; the problem holds the surplus.
pub(crate) fn add(
    (view, gang, problem): (View, &Gang, &Problem),
    scratch: &mut Scratch,
    plan: &mut Plan,
    work: &mut Work,
) {
    let host_depth = view.tree.host_depth();
    scratch.overlay.start(view, problem, true);
    for node in &problem.bound {
        scratch.overlay.mark(
            view,
            Place {
                depth: host_depth,
                id: *node,
            },
        );
    }
    for assignment in &plan.assignments {
        let put = Put {
            item: 0,
            node: assignment.node.0,
            cell: assignment.cell,
            pods: assignment.pods,
        };
        scratch
            .overlay
            .put(view, put, &view.shapes[assignment.shape.0 as usize], &problem.resources);
    }
    let minimum = plan.assignments.len();
    for (index, item) in problem.items.iter().enumerate() {
        let before = scratch.overlay.puts.len();
        let mut left = item.pods;
        for place in allowed((view, gang, problem), &plan.assignments[..minimum], item.scope) {
            let job = Job {
                view,
                problem,
                item: index,
                place,
                pods: left,
                shares: false,
            };
            left -= scratch.filler.fill(job, &mut scratch.overlay, work);
        }
        for put in &scratch.overlay.puts[before..] {
            let shape = gang.pod_groups[item.pod_group].shape;
            plan.assignments.push(Assignment {
                pod_group: item.pod_group,
                node: NodeId(put.node),
                cell: put.cell,
                shape,
                pods: put.pods,
            });
        }
    }
    scratch.overlay.clear_puts(view);
    for node in &problem.bound {
        scratch.overlay.unmark(
            view,
            Place {
                depth: host_depth,
                id: *node,
            },
        );
    }
    merge(&mut plan.assignments);
}

/// The places that more pods of a scope may go to: those that it and every scope around it settled in.
fn allowed((view, gang, problem): (View, &Gang, &Problem), minimum: &[Assignment], scope: usize) -> Vec<Place> {
    let stated = problem
        .around(scope)
        .filter(|around| problem.scopes[*around].narrowest() > 0);
    stated.fold(vec![ROOT], |places, around| {
        let settled = occupied((view, gang, problem), minimum, around);
        let narrower = |one: Place, other: Place| {
            let inner = if one.depth < other.depth { other } else { one };
            let outer = if one.depth < other.depth { one } else { other };
            view.tree.is_within(inner, outer).then_some(inner)
        };
        let shared = places
            .iter()
            .flat_map(|place| settled.iter().filter_map(|other| narrower(*place, *other)));
        shared.collect()
    })
}

/// The domains that a scope's pods lie in, at the narrowest level that it states.
fn occupied((view, gang, problem): (View, &Gang, &Problem), minimum: &[Assignment], scope: usize) -> Vec<Place> {
    let is_member = |pod_group: usize| {
        problem
            .around(problem.scope_of[pod_group])
            .any(|around| around == scope)
    };
    let new = || minimum.iter().filter(|assignment| is_member(assignment.pod_group));
    let stated = &problem.scopes[scope];
    let mut depth = stated.narrowest();
    if depth == view.tree.cell_depth() {
        let mut cells: Vec<Option<Place>> = new().map(|assignment| cell(view, assignment)).collect();
        cells.dedup();
        match cells.as_slice() {
            [Some(only)] => return vec![*only],
            // Which cell bound pods use is not known, so more of them could miss it.
            _ if stated.required == depth => return Vec::new(),
            _ => depth = view.tree.host_depth(),
        }
    }
    let mut nodes: Vec<NodeId> = new().map(|assignment| assignment.node).collect();
    // Bound pods that break the scope's level do not say where more of them go, unless nothing else does.
    if stated.pin.is_some() || stated.required == 0 || nodes.is_empty() {
        let members = gang
            .pod_groups
            .iter()
            .enumerate()
            .filter(|(index, _)| is_member(*index));
        nodes.extend(members.flat_map(|(_, pod_group)| &pod_group.bound));
    }
    let linked = nodes.into_iter().filter(|node| view.tree.is_linked(node.0));
    let mut places: Vec<Place> = linked.map(|node| view.tree.above(node.0, depth)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The cell that pods were put into; a node that states none is one.
fn cell(view: View, assignment: &Assignment) -> Option<Place> {
    let is_cell = view.cells.count(assignment.node.0) == 0;
    let number = assignment.cell.or(is_cell.then_some(0))?;
    Some(view.tree.cell(assignment.node.0, number))
}

/// One assignment per pod-group and node.
fn merge(assignments: &mut Vec<Assignment>) {
    assignments.sort_unstable();
    assignments.dedup_by(|next, kept| {
        let same = (next.pod_group, next.node, next.cell) == (kept.pod_group, kept.node, kept.cell);
        if same {
            kept.pods += next.pods;
        }
        same
    });
}
