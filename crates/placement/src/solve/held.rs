//! What an attempt puts into NUMA cells, on top of what the cluster knows.
//!
//! Empty unless a scope of the gang is put into a cell. Whatever else the attempt puts on the same host takes from the
//! host: the gang's own pods are not in each other's way where the host has enough for all.

use crate::resources::Resource;
use crate::shapes::ShapeState;

#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Node and cell.
    cells: Vec<(u32, u8)>,
    /// Amounts per cell, `width` each.
    amounts: Vec<i64>,
    width: usize,
}

impl Held {
    pub(crate) fn start(&mut self, width: usize) {
        self.clear();
        self.width = width;
    }

    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.amounts.clear();
    }

    /// Puts pods into a cell, or takes them out again.
    pub(crate) fn change(&mut self, place: (u32, u8), shape: &ShapeState, resources: &[Resource], pods: i64) {
        let known = self.cells.iter().position(|known| *known == place);
        let at = known.unwrap_or_else(|| {
            self.cells.push(place);
            self.amounts.resize(self.cells.len() * self.width, 0);
            self.cells.len() - 1
        });
        for (column, resource) in resources.iter().enumerate() {
            self.amounts[at * self.width + column] += shape.requests.get(*resource) as i64 * pods;
        }
    }

    /// What is held in a cell, by the resources that the attempt is about.
    pub(crate) fn amounts(&self, place: (u32, u8)) -> Option<&[i64]> {
        let at = self.cells.iter().position(|known| *known == place)?;
        Some(&self.amounts[at * self.width..(at + 1) * self.width])
    }
}
