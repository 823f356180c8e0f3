//! NUMA cells: parts of a node with capacities of their own, where nodes say that they have them.
//!
//! A cell is a place below the host. Pods of a scope that is put into one cell are *held* there. Of all other pods it is
//! not known which cells they use, since the kubelet decides that when they start: they count in every cell of their
//! node, and so a cell has for certain what it is said to have left. A node that says nothing of cells is one cell, and
//! resources that no cell of a node states (pods, ports) are the node's alone.

use crate::resources::{Amounts, Ledger, Resource, signed};

/// Cells that a node may have; what it states beyond is not used.
pub const CELLS_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
struct Cell {
    /// By resource that the node's cells state.
    capacity: Vec<i64>,
    held: Vec<i64>,
}

#[derive(Clone, Debug, Default)]
struct NodeCells {
    resources: Vec<Resource>,
    cells: Vec<Cell>,
}

/// The cells of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    nodes: Vec<NodeCells>,
    /// Nodes that state cells.
    known: usize,
}

impl Cells {
    /// Whether any node states cells.
    pub(crate) fn is_known(&self) -> bool {
        self.known > 0
    }

    /// How many cells a node states; 0 when it is one itself.
    pub(crate) fn count(&self, node: u32) -> usize {
        self.nodes.get(node as usize).map_or(0, |node| node.cells.len())
    }

    /// Takes over what a node states, cell by cell; what is held in cells that are still there stays.
    pub(crate) fn set(&mut self, node: u32, stated: &[Vec<(Resource, u64)>]) {
        let at = node as usize;
        self.nodes.resize_with(self.nodes.len().max(at + 1), NodeCells::default);
        let mut resources: Vec<Resource> = stated.iter().flatten().map(|(resource, _)| *resource).collect();
        resources.sort_unstable();
        resources.dedup();
        let before = std::mem::take(&mut self.nodes[at]);
        let capacity = |amounts: &[(Resource, u64)], resource: &Resource| {
            let stated = amounts.iter().find(|(known, _)| known == resource);
            stated.map_or(0, |(_, amount)| signed(*amount))
        };
        let cells = stated.iter().take(CELLS_MAX).enumerate().map(|(index, amounts)| Cell {
            capacity: resources.iter().map(|resource| capacity(amounts, resource)).collect(),
            held: resources.iter().map(|resource| before.held(index, *resource)).collect(),
        });
        let cells: Vec<Cell> = cells.collect();
        self.known = self.known - usize::from(!before.cells.is_empty()) + usize::from(!cells.is_empty());
        self.nodes[at] = NodeCells { resources, cells };
    }

    /// What a cell has left of a resource; none when only the node counts it.
    pub(crate) fn free(&self, ledger: &Ledger, (node, cell): (u32, u8), resource: Resource) -> Option<i64> {
        let cells = self.nodes.get(node as usize)?;
        let column = cells.resources.binary_search(&resource).ok()?;
        let mine = cells.cells.get(usize::from(cell))?;
        let elsewhere = cells.cells.iter().map(|cell| cell.held[column]).sum::<i64>() - mine.held[column];
        Some(mine.capacity[column] - (ledger.used(node, resource) - elsewhere))
    }

    /// Pods that ask for `requests` and that a cell has room for, when `taken` is spoken for there beside what is known.
    pub(crate) fn room(
        &self,
        ledger: &Ledger,
        place: (u32, u8),
        requests: impl Iterator<Item = (Resource, u64)>,
        taken: impl Fn(Resource) -> i64,
    ) -> u16 {
        let rooms = requests.filter_map(|(resource, amount)| {
            let free = self
                .free(ledger, place, resource)?
                .saturating_sub(taken(resource))
                .max(0) as u64;
            Some((free / amount).min(u64::from(u16::MAX)) as u16)
        });
        rooms.min().unwrap_or(u16::MAX)
    }

    /// Pods came to a cell, or left it; the ledger is told apart from this.
    pub(crate) fn hold(&mut self, (node, cell): (u32, u8), amounts: &Amounts, times: i64) {
        let Some(cells) = self.nodes.get_mut(node as usize) else {
            return;
        };
        let Some(mine) = cells.cells.get_mut(usize::from(cell)) else {
            return;
        };
        for (resource, amount) in amounts.iter() {
            if let Ok(column) = cells.resources.binary_search(&resource) {
                mine.held[column] += signed(amount).saturating_mul(times);
            }
        }
    }

    /// The same cells with nothing held in them.
    pub(crate) fn emptied(&self) -> Cells {
        let mut copy = self.clone();
        for cell in copy.nodes.iter_mut().flat_map(|node| &mut node.cells) {
            cell.held.fill(0);
        }
        copy
    }

    /// Whether a pod would fit into a cell if nothing ran there.
    pub(crate) fn fits_when_empty(&self, (node, cell): (u32, u8), requests: &Amounts) -> bool {
        let Some(cells) = self.nodes.get(node as usize) else {
            return true;
        };
        let Some(mine) = cells.cells.get(usize::from(cell)) else {
            return true;
        };
        let mut stated = cells.resources.iter().zip(&mine.capacity);
        stated.all(|(resource, capacity)| signed(requests.get(*resource)) <= *capacity)
    }
}

impl NodeCells {
    fn held(&self, cell: usize, resource: Resource) -> i64 {
        let column = self.resources.binary_search(&resource);
        let held = column.ok().and_then(|column| self.cells.get(cell)?.held.get(column));
        held.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host of 8 GPUs and 100 pods with two cells of 4 GPUs.
    fn host() -> (Ledger, Cells, [Resource; 2]) {
        let mut ledger = Ledger::default();
        let resources = ["gpu", "pods"].map(|name| ledger.push_resource(name, 0, &[]));
        let [gpu, pods] = resources;
        ledger.push_node();
        ledger.set_allocatable(0, Some(&[(gpu, 8), (pods, 100)].into_iter().collect()));
        let mut cells = Cells::default();
        cells.set(0, &[vec![(gpu, 4)], vec![(gpu, 4)]]);
        (ledger, cells, resources)
    }

    #[test]
    fn what_is_held_takes_from_one_cell_and_all_else_from_each() {
        let (mut ledger, mut cells, [gpu, pods]) = host();
        let two: Amounts = [(gpu, 2), (pods, 1)].into_iter().collect();
        let free = |ledger: &Ledger, cells: &Cells| [0, 1].map(|cell| cells.free(ledger, (0, cell), gpu));
        assert_eq!(free(&ledger, &cells), [Some(4), Some(4)]);
        ledger.change(0, gpu, -2);
        cells.hold((0, 1), &two, 1);
        assert_eq!(free(&ledger, &cells), [Some(4), Some(2)]);
        ledger.change(0, gpu, -3);
        assert_eq!(
            free(&ledger, &cells),
            [Some(1), Some(-1)],
            "three more, who knows where"
        );
        assert_eq!(cells.free(&ledger, (0, 0), pods), None, "pods are counted by node");
        let one: Amounts = [(gpu, 1), (pods, 1)].into_iter().collect();
        assert_eq!(
            [0, 1].map(|cell| cells.room(&ledger, (0, cell), one.iter(), |_| 0)),
            [1, 0]
        );
        let five: Amounts = [(gpu, 5)].into_iter().collect();
        assert_eq!(
            [&two, &five].map(|pod| cells.fits_when_empty((0, 1), pod)),
            [true, false]
        );
    }

    #[test]
    fn cells_that_are_stated_anew_keep_what_is_held() {
        let (mut ledger, mut cells, [gpu, _]) = host();
        ledger.change(0, gpu, -2);
        cells.hold((0, 1), &[(gpu, 2)].into_iter().collect(), 1);
        let three = vec![(gpu, 3)];
        cells.set(0, &[three.clone(), three.clone()]);
        assert_eq!(
            [0, 1].map(|cell| cells.free(&ledger, (0, cell), gpu)),
            [Some(3), Some(1)]
        );
        cells.set(0, &[three]);
        assert_eq!(
            cells.free(&ledger, (0, 0), gpu),
            Some(1),
            "the cell is gone, its pods are somewhere"
        );
        cells.set(0, &[vec![(gpu, 0)], vec![]]);
        assert_eq!(cells.free(&ledger, (0, 1), gpu), Some(-2), "none is an amount, too");
        cells.set(0, &[]);
        assert!(!cells.is_known());
        assert_eq!((cells.count(0), cells.count(7)), (0, 0));
    }
}
