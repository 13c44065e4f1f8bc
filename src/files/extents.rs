//! The bytes of a file that one process has written, as ranges that neither touch nor overlap.

use std::collections::BTreeMap;

/// Ranges of bytes: start and end, in bytes from the file's beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    ranges: BTreeMap<u64, u64>,
}

impl Extents {
    /// Adds the bytes from `start` up to `end`, that not included.
    pub fn add(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        // Whatever touches the new range becomes part of it; ranges that start behind its end do not.
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back() {
            if last < start {
                break;
            }
            start = start.min(first);
            end = end.max(last);
            self.ranges.remove(&first);
        }
        self.ranges.insert(start, end);
    }

    /// Leaves out what is at `end` and behind.
    pub fn cut(&mut self, end: u64) {
        self.ranges.retain(|start, last| {
            *last = end.min(*last);
            *start < end
        });
    }

    /// All ranges of another one too.
    pub fn join(&mut self, other: &Extents) {
        for (start, end) in other.iter() {
            self.add(start, end);
        }
    }

    /// Start and end of each range, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|(start, end)| end - start).sum()
    }

    /// Where the last range ends.
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// The ranges cut at every multiple of `block`.
    pub fn blocks(&self, block: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.iter().flat_map(move |(start, end)| {
            let mut at = start;
            std::iter::from_fn(move || {
                let from = at;
                at = end.min((from / block + 1) * block);
                (from < end).then_some((from, at))
            })
        })
    }

    /// As bytes, for other replicas: pairs of numbers, least significant byte first.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|(start, end)| [start, end]).flat_map(u64::to_le_bytes).collect()
    }

    /// What [`Extents::to_bytes`] made; `None` where it did not make these.
    pub fn from_bytes(bytes: &[u8]) -> Option<Extents> {
        let numbers: Vec<u64> =
            bytes.chunks(8).map(|eight| Some(u64::from_le_bytes(eight.try_into().ok()?))).collect::<Option<_>>()?;
        let mut extents = Extents::default();
        for pair in numbers.chunks(2) {
            let [start, end] = pair else { return None };
            extents.add(*start, *end);
        }
        Some(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(ranges: &[(u64, u64)]) -> Extents {
        let mut extents = Extents::default();
        for (start, end) in ranges {
            extents.add(*start, *end);
        }
        extents
    }

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(of(&[(0, 5), (5, 9)]).iter().collect::<Vec<_>>(), [(0, 9)]);
        assert_eq!(of(&[(0, 5), (6, 9), (4, 7)]).iter().collect::<Vec<_>>(), [(0, 9)]);
        assert_eq!(of(&[(6, 9), (0, 5)]).iter().collect::<Vec<_>>(), [(0, 5), (6, 9)]);
        assert!(of(&[(7, 7)]).is_empty());
    }

    #[test]
    fn blocks_end_at_multiples() {
        let blocks: Vec<_> = of(&[(3, 9), (12, 16), (17, 18)]).blocks(4).collect();
        assert_eq!(blocks, [(3, 4), (4, 8), (8, 9), (12, 16), (17, 18)]);
        assert_eq!(Extents::default().blocks(4).count(), 0);
    }

    #[test]
    fn bytes_of_nobody() {
        assert_eq!(Extents::from_bytes(&[1, 2, 3]), None);
        assert_eq!(Extents::from_bytes(&[0; 24]), None);
    }

    proptest! {
        /// Against the plainest thing that can be right: a set of bytes.
        #[test]
        fn as_a_set(ranges in prop::collection::vec((0_u64..60, 0_u64..60), 0..20), block in 1_u64..9, end in 0_u64..70) {
            let extents = of(&ranges);
            let set: std::collections::BTreeSet<u64> = ranges.iter().flat_map(|(start, end)| *start..*end).collect();
            let mine: Vec<u64> = extents.iter().flat_map(|(start, end)| start..end).collect();
            prop_assert_eq!(&mine, &set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(extents.bytes(), set.len() as u64);
            prop_assert_eq!(extents.end(), set.last().map_or(0, |last| last + 1));
            let pairs: Vec<_> = extents.iter().collect();
            prop_assert!(pairs.windows(2).all(|two| two[0].1 < two[1].0));
            let blocks: Vec<u64> = extents.blocks(block).flat_map(|(start, end)| start..end).collect();
            prop_assert_eq!(blocks, mine);
            prop_assert!(extents.blocks(block).all(|(start, end)| start < end && start / block == (end - 1) / block));
            prop_assert_eq!(Extents::from_bytes(&extents.to_bytes()), Some(extents.clone()));
            let mut cut = extents;
            cut.cut(end);
            let left: Vec<u64> = cut.iter().flat_map(|(start, end)| start..end).collect();
            prop_assert_eq!(left, set.range(..end).copied().collect::<Vec<_>>());
        }
    }
}
