//! The objective as one comparable value.

use crate::plan::Quality;
use crate::topology::LEVELS_MAX;

/// Depths that are counted: every level above the host, and the host.
pub(crate) const DEPTHS_MAX: usize = LEVELS_MAX + 1;
const LENGTH: usize = 3 + 2 * DEPTHS_MAX;

/// A quality in the order in which it is compared:
/// shortfall of gang, groups, pod-groups | domains broad to narrow, hosts last | opened, hosts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank([u64; LENGTH]);

impl Rank {
    pub(crate) const ZERO: Rank = Rank([0; LENGTH]);

    /// Of the gang, the groups, the pod-groups.
    pub(crate) fn shortfall(&self) -> [u64; 3] {
        [self.0[0], self.0[1], self.0[2]]
    }

    pub(crate) fn set_shortfall(&mut self, shortfall: [u64; 3]) {
        self.0[..3].copy_from_slice(&shortfall);
    }

    /// Domains at a depth; depth 1 is the broadest level.
    pub(crate) fn domains(&self, depth: u8) -> u64 {
        self.0[2 + usize::from(depth)]
    }

    pub(crate) fn domains_mut(&mut self, depth: u8) -> &mut u64 {
        &mut self.0[2 + usize::from(depth)]
    }

    /// Free amounts of the domains used at a depth; stored narrow to broad.
    pub(crate) fn opened(&self, depth: u8) -> u64 {
        self.0[LENGTH - usize::from(depth)]
    }

    pub(crate) fn opened_mut(&mut self, depth: u8) -> &mut u64 {
        &mut self.0[LENGTH - usize::from(depth)]
    }

    /// The part that packing decides, once the domains of the scopes are chosen.
    pub(crate) fn packing(&self) -> &[u64] {
        &self.0[3..]
    }

    pub(crate) fn quality(&self, host_depth: u8, into: &mut Quality) {
        for (tier, shortfall) in into.shortfall.iter_mut().enumerate() {
            *shortfall = self.0[tier] as u32;
        }
        into.domains.clear();
        into.domains
            .extend((1..=host_depth).map(|depth| self.domains(depth) as u32));
        into.opened.clear();
        into.opened
            .extend((1..=host_depth).rev().map(|depth| self.opened(depth)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_broad_domains_outweigh_hosts_and_hosts_outweigh_what_is_opened() {
        let rank = |racks, hosts, opened_by_hosts, opened_by_racks| {
            let mut rank = Rank::ZERO;
            (*rank.domains_mut(1), *rank.domains_mut(2)) = (racks, hosts);
            (*rank.opened_mut(2), *rank.opened_mut(1)) = (opened_by_hosts, opened_by_racks);
            rank
        };
        assert!(rank(1, 9, 9, 9) < rank(2, 1, 1, 1));
        assert!(rank(1, 2, 9, 9) < rank(1, 3, 1, 1));
        assert!(rank(1, 2, 3, 9) < rank(1, 2, 4, 1));
        let mut behind = rank(1, 1, 1, 1);
        behind.set_shortfall([0, 0, 1]);
        assert!(rank(9, 9, 9, 9) < behind);
    }
}
