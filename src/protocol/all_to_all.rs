//! All-to-all: every replica of the sender sends the whole message to every replica of the receiver, and each
//! receiver votes by itself (paper, section III B, method 1).
//!
//! As in the paper, a receiver waits for all copies before it decides, two replicas detect and three or more
//! correct. Simple majority is made precise: more than half of all live replicas, so that four replicas that
//! differ two against two fail instead of choosing the first pair.

use super::{majority, ReplicaSet, Ring, Value};

/// What the copies of one message say, once all are there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// All copies are equal.
    Verified,
    /// This receiver's own copy is the majority's.
    Keep {
        /// The senders whose copies are not.
        wrong: ReplicaSet,
    },
    /// This receiver's own copy lost: the message to deliver is the copy of another sender.
    Replace {
        /// The sender whose copy is the majority's: the first such above this receiver.
        with: u8,
        /// The senders whose copies are not.
        wrong: ReplicaSet,
    },
    /// Two copies, and they differ: which is wrong cannot be known. A copy must not be trusted.
    Detected {
        /// Both senders.
        suspects: ReplicaSet,
    },
    /// No value was sent by more than half of the senders. No copy must be trusted.
    Failed {
        /// What each sender sent.
        values: Vec<(u8, Value)>,
    },
}

/// The vote of one receiver about one message.
///
/// As long as all copies are equal it needs no more than the first value and a bit for each sender.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Vote {
    ring: Ring,
    arrived: ReplicaSet,
    first: Option<Value>,
    /// The copies that differ from the first; empty, so never allocated, if all agree.
    different: Vec<(u8, Value)>,
}

impl Vote {
    /// Waits for one copy from each member of `ring`, whose `me` is the receiver.
    pub fn new(ring: Ring) -> Self {
        Vote { ring, arrived: ReplicaSet::EMPTY, first: None, different: Vec::new() }
    }

    /// Takes note of the copy that sender `from` sent. Gives the verdict when it was the last one missing, once.
    /// A copy from a stranger, or a second one, is ignored.
    pub fn handle(&mut self, from: u8, value: Value) -> Option<Verdict> {
        if !self.ring.contains(from) || !self.arrived.insert(from) {
            return None;
        }
        let first = *self.first.get_or_insert(value);
        if value != first {
            self.different.push((from, value));
        }
        (self.arrived == self.ring.members()).then(|| self.verdict(first))
    }

    fn verdict(&self, first: Value) -> Verdict {
        if self.different.is_empty() {
            return Verdict::Verified;
        }
        if self.ring.len() <= 2 {
            return Verdict::Detected { suspects: self.ring.members() };
        }
        let of = |sender| {
            self.different.iter().find(|&&(from, _)| from == sender).map_or(first, |&(_, different)| different)
        };
        let Some(good) = majority(self.ring.iter().map(of), self.ring.len()) else {
            return Verdict::Failed { values: self.ring.iter().map(|sender| (sender, of(sender))).collect() };
        };
        let wrong = self.ring.iter().filter(|&sender| of(sender) != good).collect();
        if of(self.ring.me()) == good {
            return Verdict::Keep { wrong };
        }
        let mut with = self.ring.above(self.ring.me());
        for _ in self.ring {
            if of(with) == good {
                break;
            }
            with = self.ring.above(with);
        }
        Verdict::Replace { with, wrong }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn value(number: u8) -> Value {
        Value { length: 8, digest: Digest([number; 20]) }
    }

    /// The verdict of receiver `me` about what senders 0, 1, … sent, which arrives in this order.
    fn vote(me: u8, sent: &[u8]) -> Verdict {
        let ring = Ring::new(ReplicaSet::of_degree(sent.len() as u8), me).unwrap();
        let mut vote = Vote::new(ring);
        let mut verdict = None;
        for (from, &number) in sent.iter().enumerate() {
            assert_eq!(verdict, None);
            verdict = vote.handle(from as u8, value(number));
        }
        assert_eq!(vote.handle(0, value(9)), None);
        verdict.unwrap()
    }

    fn set(members: &[u8]) -> ReplicaSet {
        members.iter().copied().collect()
    }

    #[test]
    fn equal_copies_are_verified() {
        assert_eq!(vote(1, &[7, 7, 7]), Verdict::Verified);
        assert_eq!(vote(0, &[7]), Verdict::Verified);
    }

    #[test]
    fn two_detect() {
        assert_eq!(vote(0, &[7, 8]), Verdict::Detected { suspects: set(&[0, 1]) });
    }

    #[test]
    fn three_correct() {
        assert_eq!(vote(0, &[7, 8, 7]), Verdict::Keep { wrong: set(&[1]) });
        assert_eq!(vote(1, &[7, 8, 7]), Verdict::Replace { with: 2, wrong: set(&[1]) });
        assert_eq!(vote(2, &[7, 7, 8]), Verdict::Replace { with: 0, wrong: set(&[2]) });
        assert_eq!(vote(0, &[8, 7, 7]), Verdict::Replace { with: 1, wrong: set(&[0]) });
    }

    #[test]
    fn without_majority_nobody_wins() {
        let values = vec![(0, value(7)), (1, value(8)), (2, value(9))];
        assert_eq!(vote(0, &[7, 8, 9]), Verdict::Failed { values });
        assert!(matches!(vote(0, &[7, 7, 8, 8]), Verdict::Failed { .. }));
        assert!(matches!(vote(0, &[7, 7, 8, 9]), Verdict::Failed { .. }));
        assert_eq!(vote(3, &[7, 7, 8, 9, 7]), Verdict::Replace { with: 4, wrong: set(&[2, 3]) });
    }

    #[test]
    fn strangers_and_repetitions_do_not_vote() {
        let mut vote = Vote::new(Ring::new(set(&[1, 4, 63]), 4).unwrap());
        assert_eq!(vote.handle(0, value(9)), None);
        assert_eq!(vote.handle(255, value(9)), None);
        assert_eq!(vote.handle(63, value(7)), None);
        assert_eq!(vote.handle(63, value(9)), None);
        assert_eq!(vote.handle(4, value(7)), None);
        assert_eq!(vote.handle(1, value(8)), Some(Verdict::Keep { wrong: set(&[1]) }));
    }
}
