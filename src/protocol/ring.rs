//! Which replicas take part in a message, and who is above and below whom.
//!
//! The paper (section III B, MsgPlusHash) numbers replicas 0 … r−1 and wraps around at the ends. Here the ring is
//! made of the replicas that live, because a replica may die or be replaced: neighbours are asked for, never
//! computed as ±1.

use std::fmt;

/// A set of replica indices, each below [`ReplicaSet::CAPACITY`], as a bit mask: bit `i` stands for replica `i`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ReplicaSet(u64);

impl ReplicaSet {
    /// The largest replication degree that a set can hold; replica indices are below it.
    pub const CAPACITY: u8 = 64;

    /// The set without members.
    pub const EMPTY: ReplicaSet = ReplicaSet(0);

    /// The set whose members are the set bits of `bits`.
    pub const fn from_bits(bits: u64) -> Self {
        ReplicaSet(bits)
    }

    /// Replicas 0 … `degree`−1, as they are before any has died; a degree above [`Self::CAPACITY`] counts as that.
    pub const fn of_degree(degree: u8) -> Self {
        ReplicaSet(indices_below(degree))
    }

    /// The mask: bit `i` is set if replica `i` is a member.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Adds `replica`. True if it is a new member; false if it was one, or is no index a set can hold.
    pub fn insert(&mut self, replica: u8) -> bool {
        let before = self.0;
        self.0 |= bit(replica);
        self.0 != before
    }

    /// Takes `replica` out. True if it was a member.
    pub fn remove(&mut self, replica: u8) -> bool {
        let before = self.0;
        self.0 &= !bit(replica);
        self.0 != before
    }

    /// True if `replica` is a member.
    pub const fn contains(self, replica: u8) -> bool {
        self.0 & bit(replica) != 0
    }

    /// Number of members.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if there is no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if every member is also one of `other`.
    pub const fn is_subset(self, other: ReplicaSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// The lowest member; among the live replicas of a virtual rank that is the leader.
    pub const fn lowest(self) -> Option<u8> {
        if self.0 == 0 {
            None
        } else {
            Some(self.0.trailing_zeros() as u8)
        }
    }

    /// The highest member.
    pub const fn highest(self) -> Option<u8> {
        if self.0 == 0 {
            None
        } else {
            Some(self.0.ilog2() as u8)
        }
    }

    /// The members in ascending order.
    pub fn iter(self) -> Members {
        Members(self)
    }
}

/// The bit of one replica; none for an index that a set cannot hold.
const fn bit(replica: u8) -> u64 {
    if replica < ReplicaSet::CAPACITY {
        1 << replica
    } else {
        0
    }
}

/// The bits of all indices below `end`.
const fn indices_below(end: u8) -> u64 {
    if end < ReplicaSet::CAPACITY {
        (1 << end) - 1
    } else {
        u64::MAX
    }
}

impl FromIterator<u8> for ReplicaSet {
    /// Indices that a set cannot hold are left out.
    fn from_iter<I: IntoIterator<Item = u8>>(replicas: I) -> Self {
        ReplicaSet(replicas.into_iter().fold(0, |bits, replica| bits | bit(replica)))
    }
}

impl IntoIterator for ReplicaSet {
    type Item = u8;
    type IntoIter = Members;

    fn into_iter(self) -> Members {
        self.iter()
    }
}

impl fmt::Display for ReplicaSet {
    /// The members in ascending order, separated by commas: `0, 2`. For messages that name processes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, replica) in self.iter().enumerate() {
            if position > 0 {
                formatter.write_str(", ")?;
            }
            write!(formatter, "{replica}")?;
        }
        Ok(())
    }
}

/// The members of a [`ReplicaSet`] in ascending order.
#[derive(Clone, Debug)]
pub struct Members(ReplicaSet);

impl Iterator for Members {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let replica = self.0.lowest()?;
        self.0.remove(replica);
        Some(replica)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl ExactSizeIterator for Members {}

/// The replicas that take part in one message, as a ring, seen from one of them.
///
/// An index takes part if its sender *and* its receiver live. All that take part in one message must have the same
/// members in mind, or digests meet the wrong neighbour; when the set changes is for the replica set to decide, not
/// for a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ring {
    /// Holds `me`, so it is never empty.
    members: ReplicaSet,
    me: u8,
}

impl Ring {
    /// The ring of `members`, seen by `me`; `None` if `me` is not a member.
    pub fn new(members: ReplicaSet, me: u8) -> Option<Self> {
        members.contains(me).then_some(Ring { members, me })
    }

    /// All members, `me` included.
    pub const fn members(self) -> ReplicaSet {
        self.members
    }

    /// The replica index of the process that looks.
    pub const fn me(self) -> u8 {
        self.me
    }

    /// Number of members: the replication degree that is left, at least 1.
    #[allow(clippy::len_without_is_empty)] // It is never empty.
    pub const fn len(self) -> usize {
        self.members.len()
    }

    /// True if `replica` is a member.
    pub const fn contains(self, replica: u8) -> bool {
        self.members.contains(replica)
    }

    /// The next member above `replica` (which need not be one itself), the lowest after the highest.
    /// A sender's digest goes to the receiver above its own index (paper, figure 4).
    pub fn above(self, replica: u8) -> u8 {
        let higher = ReplicaSet(self.members.0 & !indices_below(replica.saturating_add(1)));
        higher.lowest().or(self.members.lowest()).unwrap_or(self.me)
    }

    /// The next member below `replica` (which need not be one itself), the highest after the lowest.
    /// A receiver is told the digest of the sender below its own index, and probes that receiver (paper, figure 6).
    pub fn below(self, replica: u8) -> u8 {
        let lower = ReplicaSet(self.members.0 & indices_below(replica));
        lower.highest().or(self.members.highest()).unwrap_or(self.me)
    }

    /// The members in ascending order, `me` included.
    pub fn iter(self) -> Members {
        self.members.iter()
    }

    /// The other members, the one below `me` first, then downwards, the one above `me` last.
    pub fn downward(self) -> impl Iterator<Item = u8> + Clone {
        let others = self.len().saturating_sub(1);
        std::iter::successors(Some(self.below(self.me)), move |&replica| Some(self.below(replica))).take(others)
    }
}

impl IntoIterator for Ring {
    type Item = u8;
    type IntoIter = Members;

    fn into_iter(self) -> Members {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(members: &[u8], me: u8) -> Ring {
        Ring::new(members.iter().copied().collect(), me).unwrap()
    }

    #[test]
    fn neighbours_wrap_around() {
        let ring = ring(&[0, 1, 2], 0);
        assert_eq!([ring.above(0), ring.above(1), ring.above(2)], [1, 2, 0]);
        assert_eq!([ring.below(0), ring.below(1), ring.below(2)], [2, 0, 1]);
        assert_eq!(ring.downward().collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn the_dead_are_skipped_and_still_have_neighbours() {
        let ring = ring(&[1, 4, 63], 4);
        assert_eq!([ring.above(1), ring.above(4), ring.above(63)], [4, 63, 1]);
        assert_eq!([ring.below(1), ring.below(4), ring.below(63)], [63, 1, 4]);
        assert_eq!([ring.above(0), ring.above(2), ring.above(62)], [1, 4, 63]);
        assert_eq!([ring.below(0), ring.below(2), ring.below(62)], [63, 1, 4]);
        assert_eq!(ring.downward().collect::<Vec<_>>(), [1, 63]);
    }

    #[test]
    fn no_index_is_out_of_reach_of_the_arithmetic() {
        for members in [1, 1 << 63, u64::MAX, 0b1010] {
            let members = ReplicaSet::from_bits(members);
            for me in members {
                let ring = Ring::new(members, me).unwrap();
                for replica in 0..=u8::MAX {
                    assert!(ring.contains(ring.above(replica)) && ring.contains(ring.below(replica)));
                    if ring.contains(replica) {
                        assert_eq!(ring.below(ring.above(replica)), replica);
                        assert_eq!(ring.above(ring.below(replica)), replica);
                    }
                }
                assert_eq!(ring.downward().count(), ring.len() - 1);
                assert!(ring.downward().all(|replica| replica != me));
            }
        }
    }

    #[test]
    fn a_ring_of_one_is_its_own_neighbour() {
        let ring = ring(&[5], 5);
        assert_eq!((ring.above(5), ring.below(5), ring.len()), (5, 5, 1));
        assert_eq!(ring.downward().count(), 0);
    }

    #[test]
    fn who_looks_must_be_a_member() {
        assert_eq!(Ring::new(ReplicaSet::of_degree(3), 3), None);
        assert_eq!(Ring::new(ReplicaSet::EMPTY, 0), None);
        assert_eq!(Ring::new(ReplicaSet::from_bits(u64::MAX), 64), None);
    }

    #[test]
    fn a_set_is_a_set() {
        let mut set = ReplicaSet::of_degree(3);
        assert_eq!((set.bits(), set.len(), set.lowest(), set.highest()), (0b111, 3, Some(0), Some(2)));
        assert!(set.insert(63) && !set.insert(63) && !set.insert(64) && !set.insert(255));
        assert!(set.remove(0) && !set.remove(0) && !set.remove(64));
        assert_eq!(set.iter().collect::<Vec<_>>(), [1, 2, 63]);
        assert_eq!(set.to_string(), "1, 2, 63");
        assert!(ReplicaSet::of_degree(2).is_subset(ReplicaSet::of_degree(3)) && !set.is_subset(ReplicaSet::EMPTY));
        assert_eq!((ReplicaSet::EMPTY.lowest(), ReplicaSet::EMPTY.highest()), (None, None));
        assert_eq!(ReplicaSet::of_degree(64), ReplicaSet::of_degree(255));
        assert!(ReplicaSet::EMPTY.is_empty());
    }
}
