//! The objective as one comparable value.

use crate::plan::Quality;
use crate::topology::LEVELS_MAX;

/// What counts first among placements that touch equally many domains of every level above the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// As few hosts as possible: pods of a gang close together, at the cost of breaking into empty hosts.
    #[default]
    FewestHosts,
    /// The tightest domains, and on them the hosts with the least room: fragments are filled, and whole hosts stay
    /// whole for gangs that need them. A scope that prefers one host is content with one domain of the level above.
    SpareHosts,
}

/// What a search compares placements by: the policy, or for gangs that state no level, what they leave to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Objective {
    #[default]
    FewestHosts,
    SpareHosts,
    /// Nothing has to be close: the pods go where the least room is lost to gangs that need it together, into hosts
    /// that are broken into already, then into the fullest domains.
    LeastLoss,
}

impl Objective {
    pub(crate) fn of(policy: Policy, states_level: bool) -> Self {
        match policy {
            Policy::SpareHosts => Objective::SpareHosts,
            Policy::FewestHosts if states_level => Objective::FewestHosts,
            Policy::FewestHosts => Objective::LeastLoss,
        }
    }
}

/// Depths that are counted: every level above the host, and the host.
pub(crate) const DEPTHS_MAX: usize = LEVELS_MAX + 1;
const SHORTFALLS: usize = 3;
const LENGTH: usize = SHORTFALLS + 2 * DEPTHS_MAX + 1;
/// Where the numbers about hosts and the level above them lie; the policy says which is which.
const TAIL: usize = SHORTFALLS + LEVELS_MAX;

/// A quality in the order in which it is compared:
/// shortfall of gang, groups, pod-groups | domains broad to narrow | hosts, penalty, opened narrow to broad (or as the
/// objective has it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank([u64; LENGTH]);

/// Where the numbers of a rank lie, for one topology and objective.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) host_depth: u8,
    pub(crate) objective: Objective,
}

impl Layout {
    /// Position of the number of domains at a depth; depth 1 is the broadest level.
    pub(crate) fn domains(self, depth: u8) -> usize {
        match self.objective {
            Objective::LeastLoss => SHORTFALLS + DEPTHS_MAX + usize::from(depth),
            _ if depth < self.host_depth => SHORTFALLS + usize::from(depth) - 1,
            Objective::FewestHosts => TAIL,
            Objective::SpareHosts => TAIL + 3,
        }
    }

    /// Position of what pods miss of the nodes that they prefer.
    pub(crate) fn penalty(self) -> usize {
        match self.objective {
            Objective::LeastLoss => SHORTFALLS,
            Objective::FewestHosts | Objective::SpareHosts => TAIL + 1,
        }
    }

    /// Position of what the domains used at a depth had free.
    pub(crate) fn opened(self, depth: u8) -> usize {
        match (self.objective, usize::from(self.host_depth - depth)) {
            (Objective::LeastLoss, above) => SHORTFALLS + 1 + above,
            (_, 0) => TAIL + 2,
            (Objective::FewestHosts, 1) => TAIL + 3,
            (Objective::SpareHosts, 1) => TAIL,
            (_, above) => TAIL + 2 + above,
        }
    }

    /// What people see of a placement: all but how tight it is.
    pub(crate) fn visible(self, rank: &Rank) -> &[u64] {
        match self.objective {
            Objective::FewestHosts => &rank.0[..=TAIL],
            Objective::SpareHosts => &rank.0[..TAIL],
            Objective::LeastLoss => &rank.0[..SHORTFALLS],
        }
    }

    /// Preferences missed and domains above the hosts, as far as they come first.
    pub(crate) fn above_hosts(self, rank: &Rank) -> &[u64] {
        match self.objective {
            Objective::FewestHosts | Objective::SpareHosts => &rank.0[..TAIL],
            Objective::LeastLoss => &rank.0[..SHORTFALLS],
        }
    }

    pub(crate) fn quality(self, rank: &Rank, into: &mut Quality) {
        into.shortfall = rank.shortfall().map(|levels| levels as u32);
        into.domains.clear();
        into.domains
            .extend((1..=self.host_depth).map(|depth| rank.0[self.domains(depth)] as u32));
        into.penalty = rank.0[self.penalty()];
        into.opened.clear();
        into.opened
            .extend((1..=self.host_depth).rev().map(|depth| rank.0[self.opened(depth)]));
    }
}

impl Rank {
    pub(crate) const ZERO: Rank = Rank([0; LENGTH]);

    /// Of the gang, the groups, the pod-groups.
    pub(crate) fn shortfall(&self) -> [u64; SHORTFALLS] {
        [self.0[0], self.0[1], self.0[2]]
    }

    pub(crate) fn set_shortfall(&mut self, shortfall: [u64; SHORTFALLS]) {
        self.0[..SHORTFALLS].copy_from_slice(&shortfall);
    }

    pub(crate) fn at(&self, position: usize) -> u64 {
        self.0[position]
    }

    pub(crate) fn at_mut(&mut self, position: usize) -> &mut u64 {
        &mut self.0[position]
    }
}

impl Default for Rank {
    fn default() -> Self {
        Rank::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(layout: Layout, racks: u64, hosts: u64, opened_by_hosts: u64, opened_by_racks: u64) -> Rank {
        let mut rank = Rank::ZERO;
        *rank.at_mut(layout.domains(1)) = racks;
        *rank.at_mut(layout.domains(2)) = hosts;
        *rank.at_mut(layout.opened(2)) = opened_by_hosts;
        *rank.at_mut(layout.opened(1)) = opened_by_racks;
        rank
    }

    #[test]
    fn fewer_broad_domains_outweigh_hosts_and_hosts_outweigh_what_is_opened() {
        let layout = Layout {
            host_depth: 2,
            objective: Objective::FewestHosts,
        };
        assert!(rank(layout, 1, 9, 9, 9) < rank(layout, 2, 1, 1, 1));
        assert!(rank(layout, 1, 2, 9, 9) < rank(layout, 1, 3, 1, 1));
        assert!(rank(layout, 1, 2, 3, 9) < rank(layout, 1, 2, 4, 1));
        let mut behind = rank(layout, 1, 1, 1, 1);
        behind.set_shortfall([0, 0, 1]);
        assert!(rank(layout, 9, 9, 9, 9) < behind);
    }

    #[test]
    fn sparing_hosts_puts_tightness_before_the_number_of_hosts() {
        let layout = Layout {
            host_depth: 2,
            objective: Objective::SpareHosts,
        };
        assert!(rank(layout, 1, 3, 9, 3) < rank(layout, 1, 1, 1, 8), "the tightest rack");
        assert!(
            rank(layout, 1, 3, 3, 9) < rank(layout, 1, 1, 8, 9),
            "then the tightest hosts"
        );
        assert!(
            rank(layout, 1, 9, 9, 9) < rank(layout, 2, 1, 1, 1),
            "but no more racks for it"
        );
        let mut quality = Quality::default();
        layout.quality(&rank(layout, 1, 3, 4, 9), &mut quality);
        assert_eq!((quality.domains, quality.opened), (vec![1, 3], vec![4, 9]));
    }
}
