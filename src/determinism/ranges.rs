//! Which bytes of a window other processes have written, and whether their contents are the same in every replica.
//!
//! An origin keeps what it has written to each target; where the standard says that everything has arrived, the target
//! gets these lists. Bytes that one origin alone has written are the same in every replica, for an origin's operations on
//! one place are ordered (MPI-3.1, 11.7.1). So are bytes to which several origins have applied the same operation on
//! integers. Other bytes that several origins have written depend on the order in which that happened.

use std::collections::BTreeMap;

/// Bytes of a target's window that were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First byte, from the window's base.
    pub start: i64,
    /// The byte after the last.
    pub end: i64,
    /// 0, or the operation where its result does not depend on the order: equal numbers, equal operations.
    pub exact: u32,
}

/// Bytes of an encoded piece.
pub const ENCODED: usize = 20;

/// What an origin has written to one target.
#[derive(Clone, Default, Debug)]
pub struct Written {
    pieces: Vec<Piece>,
    compact: usize,
}

/// So many pieces are kept before equal ones are put together.
const PATIENCE: usize = 256;

impl Written {
    /// Some bytes were written.
    pub fn add(&mut self, piece: Piece) {
        if piece.start >= piece.end {
            return;
        }
        match self.pieces.last_mut() {
            Some(last) if last.end == piece.start && last.exact == piece.exact => last.end = piece.end,
            Some(last) if *last == piece => {}
            _ => self.pieces.push(piece),
        }
        if self.pieces.len() > 2 * self.compact + PATIENCE {
            self.pieces = compacted(&self.pieces);
            self.compact = self.pieces.len();
        }
    }

    /// Disjoint pieces in order; nothing is left.
    pub fn take(&mut self) -> Vec<Piece> {
        self.compact = 0;
        compacted(&std::mem::take(&mut self.pieces))
    }

    /// Puts another's pieces to these.
    pub fn join(&mut self, mut other: Written) {
        self.pieces.append(&mut other.pieces);
    }
}

/// A stretch between two neighbouring ends of pieces: how many cover it, and their operation if they have one in common.
struct Stretch {
    start: i64,
    end: i64,
    covers: u32,
    exact: u32,
}

fn sweep<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Vec<Stretch> {
    let mut ends: Vec<(i64, bool, u32)> = Vec::new();
    for piece in pieces {
        ends.push((piece.start, true, piece.exact));
        ends.push((piece.end, false, piece.exact));
    }
    ends.sort_unstable();
    let (mut stretches, mut active, mut covers, mut from) = (Vec::new(), BTreeMap::<u32, u32>::new(), 0, 0);
    for (at, begins, exact) in ends {
        if covers > 0 && from < at {
            let exact = if active.len() == 1 { active.keys().next().copied().unwrap_or(0) } else { 0 };
            stretches.push(Stretch { start: from, end: at, covers, exact });
        }
        from = at;
        let count = active.entry(exact).or_default();
        if begins {
            *count += 1;
            covers += 1;
        } else {
            *count -= 1;
            covers -= 1;
            if *count == 0 {
                active.remove(&exact);
            }
        }
    }
    stretches
}

fn compacted(pieces: &[Piece]) -> Vec<Piece> {
    let mut compact: Vec<Piece> = Vec::new();
    for Stretch { start, end, exact, .. } in sweep(pieces.iter()) {
        match compact.last_mut() {
            Some(last) if last.end == start && last.exact == exact => last.end = end,
            _ => compact.push(Piece { start, end, exact }),
        }
    }
    compact
}

/// What a target finds out about its window.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Arranged {
    /// First byte and byte after the last of what is the same in every replica, in order.
    pub firm: Vec<(i64, i64)>,
    /// The same for what depends on the order.
    pub loose: Vec<(i64, i64)>,
}

/// Puts the lists of several origins together, each as [`Written::take`] gives it.
pub fn arrange(lists: &[Vec<Piece>]) -> Arranged {
    let mut arranged = Arranged::default();
    for Stretch { start, end, covers, exact } in sweep(lists.iter().flatten()) {
        let list = if covers == 1 || exact != 0 { &mut arranged.firm } else { &mut arranged.loose };
        match list.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => list.push((start, end)),
        }
    }
    arranged
}

/// Pieces as bytes.
pub fn encode(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pieces.len() * ENCODED);
    for piece in pieces {
        bytes.extend_from_slice(&piece.start.to_le_bytes());
        bytes.extend_from_slice(&piece.end.to_le_bytes());
        bytes.extend_from_slice(&piece.exact.to_le_bytes());
    }
    bytes
}

/// Pieces of bytes; those that do not lie inside a window of `size` bytes are left out.
pub fn decode(bytes: &[u8], size: i64) -> Vec<Piece> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    bytes
        .chunks_exact(ENCODED)
        .map(|bytes| Piece {
            start: number(&bytes[..8]) as i64,
            end: number(&bytes[8..16]) as i64,
            exact: number(&bytes[16..]) as u32,
        })
        .filter(|piece| 0 <= piece.start && piece.start < piece.end && piece.end <= size)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(pieces: &[(i64, i64, u32)]) -> Written {
        let mut written = Written::default();
        for (start, end, exact) in pieces {
            written.add(Piece { start: *start, end: *end, exact: *exact });
        }
        written
    }

    #[test]
    fn one_origin_alone_is_firm() {
        let list = written(&[(0, 8, 0), (4, 12, 7), (20, 24, 7)]).take();
        assert_eq!(arrange(&[list]), Arranged { firm: vec![(0, 12), (20, 24)], loose: vec![] });
    }

    #[test]
    fn two_origins_agree_on_exact_operations_only() {
        let one = written(&[(0, 8, 7), (8, 16, 0)]).take();
        let two = written(&[(0, 8, 7), (8, 12, 0)]).take();
        let three = written(&[(12, 16, 9), (4, 8, 9)]).take();
        assert_eq!(
            arrange(&[one.clone(), two.clone()]),
            Arranged { firm: vec![(0, 8), (12, 16)], loose: vec![(8, 12)] }
        );
        assert_eq!(arrange(&[one, two, three]), Arranged { firm: vec![(0, 4)], loose: vec![(4, 16)] });
    }

    #[test]
    fn a_long_list_stays_short() {
        let mut written = Written::default();
        for round in 0..100_000i64 {
            written.add(Piece { start: round % 10 * 100, end: round % 10 * 100 + 8, exact: 0 });
        }
        assert!(written.pieces.len() <= 3 * PATIENCE, "{}", written.pieces.len());
        assert_eq!(written.take().len(), 10);
    }

    fn lists() -> impl Strategy<Value = Vec<Vec<(i64, i64, u32)>>> {
        let piece = (0i64..64, 1i64..16, 0u32..3).prop_map(|(start, length, exact)| (start, start + length, exact));
        prop::collection::vec(prop::collection::vec(piece, 0..12), 0..4)
    }

    proptest! {
        /// Byte by byte, as the sentence at the top of this file says.
        #[test]
        fn every_byte_is_where_it_belongs(lists in lists()) {
            let taken: Vec<Vec<Piece>> = lists.iter().map(|list| written(list).take()).collect();
            let arranged = arrange(&taken);
            for byte in 0..96 {
                let inside = |list: &[(i64, i64)]| list.iter().filter(|(from, to)| (*from..*to).contains(&byte)).count();
                let by_origin: Vec<Vec<u32>> = lists
                    .iter()
                    .map(|list| list.iter().filter(|(from, to, _)| (*from..*to).contains(&byte)).map(|(_, _, exact)| *exact).collect())
                    .filter(|codes: &Vec<u32>| !codes.is_empty())
                    .collect();
                let mut codes: Vec<u32> = by_origin.iter().flatten().copied().collect();
                codes.sort_unstable();
                codes.dedup();
                let firm = by_origin.len() == 1 || matches!(codes[..], [code] if code != 0);
                let expected = if by_origin.is_empty() { (0, 0) } else if firm { (1, 0) } else { (0, 1) };
                prop_assert_eq!((inside(&arranged.firm), inside(&arranged.loose)), expected, "byte {}", byte);
            }
        }

        #[test]
        fn what_is_sent_is_read(list in lists()) {
            let pieces: Vec<Piece> = list.into_iter().flatten().map(|(start, end, exact)| Piece { start, end, exact }).collect();
            prop_assert_eq!(decode(&encode(&pieces), 200), pieces);
        }

        #[test]
        fn noise_stays_inside_the_window(bytes in any::<Vec<u8>>(), size in 0i64..1000) {
            for piece in decode(&bytes, size) {
                prop_assert!(piece.start >= 0 && piece.end <= size);
            }
        }
    }
}
