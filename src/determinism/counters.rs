//! Counts messages per (peer, tag) on one communicator: the index that, with communicator, source, destination and
//! tag, identifies a message in every replica. Senders count when they send, [`Order`](super::order::Order) counts
//! when it settles receives; because MPI keeps the order of messages that agree in all of these, both counts meet.

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

/// For every (peer, tag), how many indices have been given.
///
/// Programs repeat themselves: mostly the pair is that of the last call, and then nothing is looked up.
#[derive(Clone, Default, Debug)]
pub struct Counters {
    slots: FxHashMap<(i32, i32), usize>,
    counts: Vec<u64>,
    /// The pair of the last call and its slot.
    last: Option<((i32, i32), usize)>,
}

impl Counters {
    /// Nothing counted yet.
    pub fn new() -> Counters {
        Counters::default()
    }

    /// The index of the next message of this pair: 0, 1, 2 …
    pub fn next(&mut self, peer: i32, tag: i32) -> u64 {
        let count = self.count((peer, tag));
        let index = *count;
        *count += 1;
        index
    }

    /// Takes the pair's latest index back, whose message will never be: the next one gets it again.
    ///
    /// `None` if none was given.
    pub fn take_back(&mut self, peer: i32, tag: i32) -> Option<u64> {
        let count = self.count((peer, tag));
        *count = count.checked_sub(1)?;
        Some(*count)
    }

    /// How many indices the pair was given.
    pub fn given(&self, peer: i32, tag: i32) -> u64 {
        self.slots.get(&(peer, tag)).map_or(0, |&slot| self.counts[slot])
    }

    /// Forgets the pairs with these tags: they begin again at 0.
    ///
    /// Host collectives that take a fresh tag for each operation would otherwise leave a pair behind with each.
    /// To be called at the same place in every replica, and only for tags with no message on its way. Takes time
    /// in proportion to all pairs known.
    pub fn forget(&mut self, tags: RangeInclusive<i32>) {
        let mut kept = Vec::new();
        self.slots.retain(|(_, tag), slot| {
            let keep = !tags.contains(tag);
            if keep {
                kept.push(self.counts[*slot]);
                *slot = kept.len() - 1;
            }
            keep
        });
        self.counts = kept;
        self.last = None;
    }

    fn count(&mut self, pair: (i32, i32)) -> &mut u64 {
        let slot = match self.last {
            Some((last, slot)) if last == pair => slot,
            _ => {
                let slot = *self.slots.entry(pair).or_insert_with(|| {
                    self.counts.push(0);
                    self.counts.len() - 1
                });
                self.last = Some((pair, slot));
                slot
            }
        };
        &mut self.counts[slot]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::Counters;

    #[test]
    fn pairs_are_counted_apart() {
        let mut counters = Counters::new();
        let calls = [(1, 5), (1, 5), (5, 1), (1, -5), (1, 5), (5, 1)];
        assert_eq!(calls.map(|(peer, tag)| counters.next(peer, tag)), [0, 1, 0, 0, 2, 1]);
        assert_eq!(counters.given(1, 5), 3);
        assert_eq!(counters.given(7, 7), 0);
    }

    #[test]
    fn the_latest_index_can_be_taken_back() {
        let mut counters = Counters::new();
        assert_eq!(counters.take_back(1, 2), None);
        assert_eq!((counters.next(1, 2), counters.next(1, 2)), (0, 1));
        assert_eq!(counters.take_back(1, 2), Some(1));
        assert_eq!(counters.next(1, 2), 1);
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_map(calls in prop::collection::vec((0..4i32, -3..3i32, 0..20u8), 0..200)) {
            let mut counters = Counters::new();
            let mut map = BTreeMap::<_, u64>::new();
            for (peer, tag, what) in calls {
                match what {
                    0 => {
                        counters.forget(tag..=tag + 1);
                        map.retain(|&(_, t), _| t != tag && t != tag + 1);
                    }
                    1 => {
                        let count = map.entry((peer, tag)).or_default();
                        let expected = count.checked_sub(1);
                        *count = expected.unwrap_or(0);
                        prop_assert_eq!(counters.take_back(peer, tag), expected);
                    }
                    _ => {
                        let count = map.entry((peer, tag)).or_default();
                        prop_assert_eq!(counters.next(peer, tag), *count);
                        *count += 1;
                    }
                }
            }
        }
    }
}
