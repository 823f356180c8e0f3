//! Names of what a graph becomes, each made in one place.

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::{Component, DynamoGraphDeploymentSpec};
use grove_workload::names::COMBINED_LENGTH_MAX;
use kube::ResourceExt;

/// The shortest that a set's name is cut to.
pub(crate) const SET_NAME_MIN: usize = 8;

/// A component's name as parts of other names have it.
pub fn lowered(component: &Component) -> String {
    component.name.to_lowercase()
}

/// The name of a component's scaling adapter.
pub fn adapter_name(graph: &DynamoGraphDeployment, component: &Component) -> String {
    format!("{}-{}", graph.name_any(), lowered(component))
}

/// Names of the cliques of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliqueNames {
    pub component: String,
}

impl CliqueNames {
    pub fn of(component: &Component) -> Self {
        Self {
            component: lowered(component),
        }
    }

    pub fn leader(&self) -> String {
        format!("{}-ldr", self.component)
    }

    pub fn worker(&self) -> String {
        format!("{}-wkr", self.component)
    }
}

/// The length that the names of a component leave to the set's, of what all names made from them may have together;
/// negative where they leave none.
fn left_by(component: &Component) -> isize {
    let name = lowered(component).len();
    let taken = if component.is_multinode() {
        2 * name + "-ldr".len()
    } else if component.is_grouped() {
        2 * name
    } else {
        name
    };
    COMBINED_LENGTH_MAX.cast_signed() - taken.cast_signed()
}

/// The component with the longest names, and the length that it leaves to the set's.
pub(crate) fn tightest(spec: &DynamoGraphDeploymentSpec) -> Option<(usize, isize)> {
    let all = spec.components.iter().map(left_by).enumerate();
    all.min_by_key(|(_, left)| *left)
}

/// The name of the set: the graph's, or, where names made from it would be too long, its beginning and four letters that
/// tell it from others which begin so.
pub fn set_name(graph: &DynamoGraphDeployment) -> String {
    let name = graph.name_any();
    let left = tightest(&graph.spec).map_or(COMBINED_LENGTH_MAX.cast_signed(), |(_, left)| left);
    let most = usize::try_from(left).unwrap_or_default().max(SET_NAME_MIN);
    if name.len() <= most {
        return name;
    }
    let beginning: String = name.chars().take(most - 5).collect();
    format!("{}-{:04x}", beginning.trim_end_matches(['-', '.']), fnv(&name) & 0xffff)
}

/// FNV-1a of 32 bits.
fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// A short hash of a text, the same in every release.
pub fn hash(text: &str) -> String {
    format!("{:08x}", fnv(text))
}
