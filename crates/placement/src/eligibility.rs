//! Which nodes a pod may use at all, whatever room they have: cordons, taints, node selector, required node affinity,
//! the nodes that its volumes can reach, and membership of a topology.
//!
//! The rules are evaluated once per distinct set of rules and node, and again only when the node changes; pods of many
//! shapes share them. Room is counted elsewhere.

use std::collections::BTreeMap;

use crate::topology::TopologyId;

/// A taint that keeps pods away (`NoSchedule` or `NoExecute`; softer ones are not given to the engine).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    NoSchedule,
    NoExecute,
}

/// What a pod tolerates. No key tolerates every key, no value every value, no effect both effects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    pub key: Option<String>,
    pub value: Option<String>,
    pub effect: Option<Effect>,
}

impl Toleration {
    fn covers(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
            && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}

/// One requirement of a node affinity term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// A label key, or the node's own name.
    pub of: Attribute,
    pub is: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    Label(String),
    Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl Requirement {
    fn holds(&self, node: &Traits) -> bool {
        let value = match &self.of {
            Attribute::Label(key) => node.labels.get(key),
            Attribute::Name => Some(&node.name),
        };
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        match &self.is {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Test::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Where the pods of one shape may go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    pub tolerations: Vec<Toleration>,
    /// Labels that a node must have with these values.
    pub selector: BTreeMap<String, String>,
    /// Any one of the terms must hold, with all its requirements; no term, no restriction.
    pub affinity: Vec<Vec<Requirement>>,
    /// Nodes that the pod would rather have: for each term, what it is worth when it holds.
    pub preferred: Vec<(u32, Vec<Requirement>)>,
    /// The only nodes that the pod's volumes can be used on.
    pub allowed_nodes: Option<Vec<String>>,
    /// Nodes without the labels of this topology are out.
    pub inside: Option<TopologyId>,
}

/// What the rules look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
}

/// Why a node is out of the question, or that it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Eligible,
    /// No such node any more.
    Gone,
    Cordoned,
    Tainted,
    SelectorMismatch,
    AffinityMismatch,
    VolumeUnreachable,
    OutsideTopology,
}

impl Rules {
    /// The first rule that speaks against the node, in the order in which a person would look.
    pub(crate) fn judge(&self, node: &Traits, is_inside: impl Fn(TopologyId) -> bool) -> Verdict {
        if node.unschedulable && !self.tolerates(&cordon()) {
            return Verdict::Cordoned;
        }
        if self.untolerated(node).is_some() {
            return Verdict::Tainted;
        }
        if !self
            .selector
            .iter()
            .all(|(key, value)| node.labels.get(key) == Some(value))
        {
            return Verdict::SelectorMismatch;
        }
        if !self.affinity_holds(node) {
            return Verdict::AffinityMismatch;
        }
        if self
            .allowed_nodes
            .as_ref()
            .is_some_and(|names| !names.contains(&node.name))
        {
            return Verdict::VolumeUnreachable;
        }
        if self.inside.is_some_and(|topology| !is_inside(topology)) {
            return Verdict::OutsideTopology;
        }
        Verdict::Eligible
    }

    /// What a pod misses of its preferences on a node.
    pub(crate) fn penalty(&self, node: &Traits) -> u32 {
        let missed = self.preferred.iter().filter(|(_, term)| !holds(term, node));
        missed.map(|(weight, _)| *weight).fold(0, u32::saturating_add)
    }

    /// Whether a term of the node affinity holds, or there is none.
    pub fn affinity_holds(&self, node: &Traits) -> bool {
        self.affinity.is_empty() || self.affinity.iter().any(|term| holds(term, node))
    }

    /// The first taint of a node that the pods do not tolerate.
    pub(crate) fn untolerated<'a>(&self, node: &'a Traits) -> Option<&'a Taint> {
        node.taints.iter().find(|taint| !self.tolerates(taint))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

/// Whether all requirements of a term hold; a term without any holds nowhere.
fn holds(term: &[Requirement], node: &Traits) -> bool {
    !term.is_empty() && term.iter().all(|part| part.holds(node))
}

/// A cordon acts like this taint, so pods may tolerate it (DaemonSets do).
fn cordon() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: Effect::NoSchedule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Traits {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Traits {
            name: "n1".to_owned(),
            labels: BTreeMap::from([label("gpu", "h100"), label("generation", "9")]),
            taints: vec![Taint {
                key: "dedicated".to_owned(),
                value: "llm".to_owned(),
                effect: Effect::NoSchedule,
            }],
            unschedulable: false,
        }
    }

    fn tolerant() -> Rules {
        let toleration = Toleration {
            key: Some("dedicated".to_owned()),
            value: None,
            effect: None,
        };
        Rules {
            tolerations: vec![toleration],
            ..Rules::default()
        }
    }

    fn label(key: &str, is: Test) -> Vec<Vec<Requirement>> {
        vec![vec![Requirement {
            of: Attribute::Label(key.to_owned()),
            is,
        }]]
    }

    #[test]
    fn each_rule_has_its_verdict() {
        let selector = BTreeMap::from([("gpu".to_owned(), "a100".to_owned())]);
        let cases = [
            (Rules::default(), Verdict::Tainted),
            (tolerant(), Verdict::Eligible),
            (Rules { selector, ..tolerant() }, Verdict::SelectorMismatch),
            (
                Rules {
                    affinity: label("gpu", Test::NotIn(vec!["h100".to_owned()])),
                    ..tolerant()
                },
                Verdict::AffinityMismatch,
            ),
            (
                Rules {
                    affinity: label("generation", Test::GreaterThan(8)),
                    ..tolerant()
                },
                Verdict::Eligible,
            ),
            (
                Rules {
                    affinity: label("generation", Test::LessThan(9)),
                    ..tolerant()
                },
                Verdict::AffinityMismatch,
            ),
            (
                Rules {
                    affinity: label("zone", Test::DoesNotExist),
                    ..tolerant()
                },
                Verdict::Eligible,
            ),
            (
                Rules {
                    affinity: vec![vec![]],
                    ..tolerant()
                },
                Verdict::AffinityMismatch,
            ),
            (
                Rules {
                    allowed_nodes: Some(vec!["n2".to_owned()]),
                    ..tolerant()
                },
                Verdict::VolumeUnreachable,
            ),
            (
                Rules {
                    inside: Some(TopologyId(0)),
                    ..tolerant()
                },
                Verdict::OutsideTopology,
            ),
        ];
        for (rules, verdict) in cases {
            assert_eq!(rules.judge(&node(), |_| false), verdict, "{rules:?}");
        }
    }

    #[test]
    fn a_cordoned_node_is_open_to_pods_that_tolerate_it() {
        let cordoned = Traits {
            unschedulable: true,
            ..node()
        };
        assert_eq!(tolerant().judge(&cordoned, |_| true), Verdict::Cordoned);
        let all = Rules {
            tolerations: vec![Toleration {
                key: None,
                value: None,
                effect: None,
            }],
            ..Rules::default()
        };
        assert_eq!(all.judge(&cordoned, |_| true), Verdict::Eligible);
    }
}
