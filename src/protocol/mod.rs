//! The verification protocols of the paper (section III B) as pure state machines: events in, actions out.
//!
//! Nothing here sends, receives, waits or knows of Open MPI: a shell feeds what arrived and does what it is told.
//! [`all_to_all`] compares a copy from every replica of the sender, [`msg_plus_hash`] one copy and one digest and
//! talks to the other receivers only after a mismatch; [`ring`] says which replicas take part and who is whose
//! neighbour. `docs/papers/redmpi-protocols.md` tells what differs from the paper and why.

pub mod all_to_all;
pub mod msg_plus_hash;
pub mod ring;

pub use all_to_all::{Verdict, Vote};
pub use msg_plus_hash::{Action, Event, History, Outcome, Receiver, Status};
pub use ring::{ReplicaSet, Ring};

use crate::digest::Digest;

/// What one replica of the sender sent, as far as a comparison needs it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Value {
    /// Bytes of the message.
    pub length: u64,
    /// Digest of these bytes.
    pub digest: Digest,
}

/// The value that more than half of `voters` sent, if there is one among the `values` known so far.
///
/// Counted pair by pair: it runs after a mismatch only, over at most [`ReplicaSet::CAPACITY`] values. Since more
/// than half of *all* voters is asked for, later values cannot overturn the answer.
fn majority(values: impl Iterator<Item = Value> + Clone, voters: usize) -> Option<Value> {
    values.clone().find(|candidate| values.clone().filter(|value| value == candidate).count() > voters / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: u64) -> Value {
        Value { length: number, digest: Digest::default() }
    }

    fn majority_of(numbers: &[u64], voters: usize) -> Option<Value> {
        majority(numbers.iter().map(|&number| value(number)), voters)
    }

    #[test]
    fn majority_is_more_than_half_of_all_voters() {
        assert_eq!(majority_of(&[1, 1, 2], 3), Some(value(1)));
        assert_eq!(majority_of(&[2, 1, 1], 3), Some(value(1)));
        assert_eq!(majority_of(&[1, 2, 3], 3), None);
        // A tie and a mere plurality decide nothing.
        assert_eq!(majority_of(&[1, 1, 2, 2], 4), None);
        assert_eq!(majority_of(&[1, 1, 2, 3, 4], 5), None);
        // Two of the four that are not known yet could still disagree.
        assert_eq!(majority_of(&[1, 1], 4), None);
        assert_eq!(majority_of(&[1, 1, 1], 4), Some(value(1)));
        assert_eq!(majority_of(&[], 0), None);
    }

    #[test]
    fn values_differ_by_length_alone() {
        assert_ne!(value(1), value(2));
    }
}
