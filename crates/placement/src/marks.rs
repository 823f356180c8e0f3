//! Pods that must not share a domain: required anti-affinity, by host or by any other node label.
//!
//! A *mark* stands for one such wish. Some pods avoid it, some bear it, some do both; a domain never holds a pod that
//! avoids a mark beside another that bears it. Domains are values of a node label, not places in a topology: a wish may
//! speak of a label that is no level. On a node that lacks the label nothing is kept apart.

use std::collections::{BTreeMap, HashMap};

/// Handle of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub(crate) u32);

/// How a pod stands to a mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stance {
    pub avoids: bool,
    pub bears: bool,
}

impl Stance {
    /// Whether two pods of this stance are kept apart from each other.
    pub(crate) fn is_exclusive(self) -> bool {
        self.avoids && self.bears
    }
}

/// How many pods avoid and bear a mark somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    avoids: u32,
    bears: u32,
}

impl Tally {
    pub(crate) fn add(&mut self, stance: Stance, pods: u32) {
        self.avoids += u32::from(stance.avoids) * pods;
        self.bears += u32::from(stance.bears) * pods;
    }

    pub(crate) fn remove(&mut self, stance: Stance, pods: u32) {
        self.avoids = self.avoids.saturating_sub(u32::from(stance.avoids) * pods);
        self.bears = self.bears.saturating_sub(u32::from(stance.bears) * pods);
    }

    fn merge(&mut self, other: Tally, sign: i64) {
        let shift = |mine: u32, theirs: u32| (i64::from(mine) + sign * i64::from(theirs)).max(0) as u32;
        self.avoids = shift(self.avoids, other.avoids);
        self.bears = shift(self.bears, other.bears);
    }

    /// Whether a pod of some stance must stay away from these.
    pub(crate) fn excludes(self, stance: Stance) -> bool {
        (stance.avoids && self.bears > 0) || (stance.bears && self.avoids > 0)
    }
}

/// A node that lacks the label.
const NOWHERE: u32 = u32::MAX;

/// One node label; all marks that speak of it share its domains.
#[derive(Clone, Debug)]
struct KeyState {
    key: String,
    values: HashMap<String, u32>,
    /// The domain of every node.
    domains: Vec<u32>,
}

#[derive(Clone, Debug)]
struct MarkState {
    name: String,
    /// Index of its label.
    key: usize,
    /// What runs, by domain, and by node for nodes that change their domain.
    tallies: HashMap<u32, Tally>,
    by_node: BTreeMap<u32, Tally>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    keys: Vec<KeyState>,
    marks: Vec<MarkState>,
}

type Labels = BTreeMap<String, String>;

impl Marks {
    /// The mark of a name, a new one over these nodes if there is none.
    pub(crate) fn find_or_add<'a>(
        &mut self,
        name: &str,
        key: &str,
        nodes: impl Iterator<Item = Option<&'a Labels>>,
    ) -> Mark {
        if let Some(known) = self.marks.iter().position(|state| state.name == name) {
            return Mark(known as u32);
        }
        let known = self.keys.iter().position(|state| state.key == key);
        let key = known.unwrap_or_else(|| {
            let mut state = KeyState {
                key: key.to_owned(),
                values: HashMap::new(),
                domains: Vec::new(),
            };
            for labels in nodes {
                let domain = state.domain(labels);
                state.domains.push(domain);
            }
            self.keys.push(state);
            self.keys.len() - 1
        });
        self.marks.push(MarkState {
            name: name.to_owned(),
            key,
            tallies: HashMap::new(),
            by_node: BTreeMap::new(),
        });
        Mark(self.marks.len() as u32 - 1)
    }

    pub(crate) fn push_node(&mut self) {
        for state in &mut self.keys {
            state.domains.push(NOWHERE);
        }
    }

    /// A node got other labels, or is gone.
    pub(crate) fn move_node(&mut self, node: u32, labels: Option<&Labels>) {
        for (index, state) in self.keys.iter_mut().enumerate() {
            let to = state.domain(labels);
            let from = std::mem::replace(&mut state.domains[node as usize], to);
            for mark in self.marks.iter_mut().filter(|mark| mark.key == index && from != to) {
                if let Some(tally) = mark.by_node.get(&node).copied() {
                    mark.shift(from, tally, -1);
                    mark.shift(to, tally, 1);
                }
            }
        }
    }

    /// The marks that pods on a node avoid or bear.
    pub(crate) fn on(&self, node: u32) -> impl Iterator<Item = Mark> {
        let here = self
            .marks
            .iter()
            .enumerate()
            .filter(move |(_, mark)| mark.by_node.contains_key(&node));
        here.map(|(index, _)| Mark(index as u32))
    }

    /// Pods of a stance came to a node, or left it.
    pub(crate) fn change(&mut self, node: u32, (mark, stance): (Mark, Stance), pods: i64) {
        let state = &mut self.marks[mark.0 as usize];
        let mut tally = Tally::default();
        tally.add(stance, pods.unsigned_abs() as u32);
        let here = state.by_node.entry(node).or_default();
        here.merge(tally, pods.signum());
        if *here == Tally::default() {
            state.by_node.remove(&node);
        }
        let domain = self.keys[state.key].domains[node as usize];
        state.shift(domain, tally, pods.signum());
    }

    /// The domain of a node, if it has one.
    pub(crate) fn domain(&self, mark: Mark, node: u32) -> Option<u32> {
        let key = self.marks[mark.0 as usize].key;
        Some(self.keys[key].domains[node as usize]).filter(|domain| *domain != NOWHERE)
    }

    /// The node label that a mark speaks of.
    pub(crate) fn key(&self, mark: Mark) -> &str {
        &self.keys[self.marks[mark.0 as usize].key].key
    }

    /// How many pods of these stances may still come to a node: none, one, or any number.
    pub(crate) fn room(&self, node: u32, marks: &[(Mark, Stance)], tried: impl Fn(Mark, u32) -> Tally) -> u16 {
        let mut room = u16::MAX;
        for &(mark, stance) in marks {
            let Some(domain) = self.domain(mark, node) else {
                continue;
            };
            let running = self.marks[mark.0 as usize].tallies.get(&domain).copied();
            if running.is_some_and(|tally| tally.excludes(stance)) || tried(mark, domain).excludes(stance) {
                return 0;
            }
            if stance.is_exclusive() {
                room = 1;
            }
        }
        room
    }

    /// The same marks on the same nodes, with or without what runs.
    pub(crate) fn copy(&self, empty: bool) -> Marks {
        let mut copy = self.clone();
        for mark in copy.marks.iter_mut().filter(|_| empty) {
            mark.tallies.clear();
            mark.by_node.clear();
        }
        copy
    }
}

impl KeyState {
    fn domain(&mut self, labels: Option<&Labels>) -> u32 {
        let Some(value) = labels.and_then(|labels| labels.get(&self.key)) else {
            return NOWHERE;
        };
        let next = self.values.len() as u32;
        match self.values.get(value) {
            Some(known) => *known,
            None => *self.values.entry(value.clone()).or_insert(next),
        }
    }
}

impl MarkState {
    fn shift(&mut self, domain: u32, tally: Tally, sign: i64) {
        if domain == NOWHERE {
            return;
        }
        let known = self.tallies.entry(domain).or_default();
        known.merge(tally, sign);
        if *known == Tally::default() {
            self.tallies.remove(&domain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AVOIDS: Stance = Stance {
        avoids: true,
        bears: false,
    };
    const BEARS: Stance = Stance {
        avoids: false,
        bears: true,
    };
    const BOTH: Stance = Stance {
        avoids: true,
        bears: true,
    };

    fn rack(name: &str) -> Labels {
        Labels::from([("rack".to_owned(), name.to_owned())])
    }

    #[test]
    fn a_domain_keeps_apart_what_avoids_and_what_bears() {
        let racks = [rack("a"), rack("a"), rack("b"), Labels::new()];
        let mut marks = Marks::default();
        let mark = marks.find_or_add("m", "rack", racks.iter().map(Some));
        let room = |marks: &Marks, node, stance| marks.room(node, &[(mark, stance)], |_, _| Tally::default());
        marks.change(0, (mark, BEARS), 2);
        assert_eq!(room(&marks, 1, AVOIDS), 0, "the same rack");
        assert_eq!(room(&marks, 2, AVOIDS), u16::MAX);
        assert_eq!(room(&marks, 1, BEARS), u16::MAX, "nobody there minds");
        assert_eq!(room(&marks, 2, BOTH), 1, "one keeps out the next");
        assert_eq!(room(&marks, 3, BOTH), u16::MAX, "without the label there is no domain");
        marks.move_node(0, Some(&rack("b")));
        assert_eq!(
            (room(&marks, 1, AVOIDS), room(&marks, 2, AVOIDS)),
            (u16::MAX, 0),
            "what runs moved along"
        );
        marks.change(0, (mark, BEARS), -2);
        assert_eq!(room(&marks, 2, AVOIDS), u16::MAX);
    }
}
