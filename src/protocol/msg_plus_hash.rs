//! MsgPlusHash: one message and one digest for each receiver, and a handshake between receivers after a mismatch
//! (paper, section III B, method 2).
//!
//! Sender replica `x` sends its value `x_x` twice: the payload to receiver `x`, the digest to receiver `above(x)`.
//! So receiver `k` *holds* `x_k` and is *told* `x_below(k)`. If both are equal, that is all: no message, no
//! allocation. If they differ, either of the two senders may be wrong, and the receiver asks the others.
//!
//! **What an answer tells.** Every receiver has a [`Status`], fixed as soon as its payload and digest are there. A
//! clean receiver `j` says that `x_j = x_below(j)`; one with a mismatch tells both values. So statuses are
//! equations about the vector of sent values, and whoever has heard all of them, and had a mismatch itself, knows
//! the whole vector. A value that more than half of all senders sent is taken for the right one.
//!
//! **Who asks whom.** A receiver with a mismatch asks the receiver below it (the paper's probe), then the next one
//! below that it knows nothing of, one at a time, until it can decide. Whoever is asked answers (the paper's
//! acknowledgment), also if it noticed nothing, and also long after it has completed.
//!
//! **Who corrects whom.** A receiver that is told a wrong value but holds the right one corrects the unbroken run of
//! wrong receivers below it; with a single wrong sender that is the paper's "the higher replica corrects the lower".
//! Each wrong receiver that noticed has exactly one such corrector above it. It waits for the correction, and goes
//! on asking meanwhile: either the correction comes, or it has heard everybody and knows that there can be none.
//! That is why the protocol ends in every case.
//!
//! **Limits.** Two neighbouring senders with the same wrong value leave the upper receiver clean, with a wrong
//! message that the application may already have. The receiver above the pair notices and fails. A value that more
//! than half of the senders sent is right by definition. If payload and digest of *one* sender differ (a fault
//! between computing the two, or on the way), only one receiver notices; what it hears from the others then
//! contradicts itself, and it fails.
//!
//! The machine takes events of one message only. Which message a probe belongs to is said by the message's key,
//! which the shell carries along; the paper compared hashes to find out.

use std::collections::VecDeque;

use super::{majority, ReplicaSet, Ring, Value};

/// What a receiver found when it compared the payload it holds with the digest it was told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Status {
    /// Both are equal.
    Clean,
    /// They differ.
    Mismatch {
        /// The value of the payload, sent by the sender of the receiver's own index.
        held: Value,
        /// The value that the digest stands for, sent by the sender below.
        told: Value,
    },
}

/// What happened at a receiver, about one message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Event {
    /// The payload arrived, and this is its value.
    Payload(Value),
    /// The digest of the sender below arrived.
    Told(Value),
    /// Another receiver had a mismatch and asks what we found.
    Probe {
        /// The receiver that asks.
        from: u8,
        /// What it found itself.
        status: Status,
    },
    /// A receiver that we asked tells what it found.
    Answer {
        /// The receiver that answers.
        from: u8,
        /// What it found.
        status: Status,
    },
    /// Another receiver sent its payload to replace ours. The shell keeps it apart from the application's buffer
    /// until the outcome is known: only [`Outcome::Corrected`] says that it may be delivered.
    Correction {
        /// The receiver that corrects.
        from: u8,
        /// The value of what it sent, computed from what arrived here.
        value: Value,
    },
}

/// What the shell has to do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Ask receiver `to` what it found.
    Probe {
        /// The receiver to ask.
        to: u8,
        /// What we found.
        status: Status,
    },
    /// Answer the probe of receiver `to`.
    Answer {
        /// The receiver that asked.
        to: u8,
        /// What we found.
        status: Status,
    },
    /// Send our payload, which is right, to receiver `to`.
    Correct {
        /// The receiver whose payload is wrong.
        to: u8,
    },
    /// The message is decided. The last action of the call that decides, and given once.
    Complete(Outcome),
}

/// How the verification of one message ended at one receiver.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Payload and digest agree.
    Verified,
    /// They differ, and the payload is the right one.
    Kept {
        /// The senders known to have sent another value; perhaps not all of them.
        wrong: ReplicaSet,
    },
    /// They differ, the payload was wrong, and the correction is right: deliver that instead.
    Corrected {
        /// The senders known to have sent another value; perhaps not all of them.
        wrong: ReplicaSet,
    },
    /// They differ, and with two senders which of them is wrong cannot be known. The payload must not be trusted.
    Detected {
        /// Both senders.
        suspects: ReplicaSet,
    },
    /// They differ, and it cannot be put right: no value has a majority, or a receiver has accepted a wrong value
    /// without noticing, or what was heard contradicts itself, or the correction was wrong too. The payload must not
    /// be trusted.
    Failed {
        /// What each sender sent, as far as it was found out, in ascending order of replica indices.
        values: Vec<(u8, Option<Value>)>,
    },
}

/// Verifies one message at one receiver.
///
/// Payload and digest may arrive in any order, and probes, answers and corrections before, between and after them.
/// Events that make no sense (from a stranger, a second payload, an answer nobody asked for) are ignored. The
/// machine completes once its own payload and digest have arrived and every receiver that it probes has answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Receiver {
    ring: Ring,
    held: Option<Value>,
    told: Option<Value>,
    /// Who asked before we could answer.
    askers: ReplicaSet,
    complete: bool,
    /// Only while something is amiss, here or at a receiver that told us.
    discovery: Option<Box<Discovery>>,
}

/// What a receiver learns from the others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Discovery {
    /// The value of each sender, by replica index, as far as known.
    values: Vec<Option<Value>>,
    /// The receivers whose status we know.
    heard: ReplicaSet,
    /// Those of them that are clean: their sender and the one below sent the same.
    clean: ReplicaSet,
    /// The receivers that we have probed.
    asked: ReplicaSet,
    /// Two statuses exclude each other.
    contradiction: bool,
    correction: Option<Value>,
}

impl Discovery {
    fn new(ring: Ring) -> Self {
        let indices = ring.members().highest().map_or(0, |highest| usize::from(highest) + 1);
        Discovery {
            values: vec![None; indices],
            heard: ReplicaSet::EMPTY,
            clean: ReplicaSet::EMPTY,
            asked: ReplicaSet::EMPTY,
            contradiction: false,
            correction: None,
        }
    }

    fn value(&self, sender: u8) -> Option<Value> {
        self.values.get(usize::from(sender)).copied().flatten()
    }

    /// Notes that `sender` sent `value`. True if that is new.
    fn set(&mut self, sender: u8, value: Value) -> bool {
        let Some(known) = self.values.get_mut(usize::from(sender)) else {
            return false;
        };
        self.contradiction |= known.is_some_and(|known| known != value);
        known.replace(value).is_none()
    }

    /// Notes the status of `receiver` and everything that follows from it. Only the first status counts.
    fn learn(&mut self, ring: Ring, receiver: u8, status: Status) {
        if !self.heard.insert(receiver) {
            return;
        }
        match status {
            Status::Clean => {
                self.clean.insert(receiver);
            }
            Status::Mismatch { held, told } => {
                self.contradiction |= held == told;
                self.set(receiver, held);
                self.set(ring.below(receiver), told);
            }
        }
        // Each pass but the last finds at least one more value, so this ends after `ring.len()` passes.
        loop {
            let mut news = false;
            for upper in self.clean {
                let lower = ring.below(upper);
                match (self.value(upper), self.value(lower)) {
                    (Some(value), None) => news |= self.set(lower, value),
                    (None, Some(value)) => news |= self.set(upper, value),
                    (Some(one), Some(other)) => self.contradiction |= one != other,
                    (None, None) => {}
                }
            }
            if !news {
                break;
            }
        }
    }

    /// What more than half of the senders sent, as soon as that is known.
    fn majority(&self, ring: Ring) -> Option<Value> {
        majority(ring.iter().filter_map(|sender| self.value(sender)), ring.len())
    }

    /// True if, as far as known, some receiver accepted another value than `good` without noticing.
    fn accepted_wrong(&self, ring: Ring, good: Value) -> bool {
        ring.iter().any(|receiver| {
            let held = self.value(receiver);
            held.is_some_and(|held| held != good) && held == self.value(ring.below(receiver))
        })
    }

    /// The senders known to have sent something else than `good`.
    fn wrong(&self, ring: Ring, good: Value) -> ReplicaSet {
        ring.iter().filter(|&sender| self.value(sender).is_some_and(|value| value != good)).collect()
    }

    /// The unbroken run of wrong receivers below `ring.me()`, once its lower end is known.
    fn run_below(&self, ring: Ring, good: Value) -> Option<impl Iterator<Item = u8> + '_> {
        let end = ring.downward().find(|&sender| self.value(sender).is_none_or(|value| value == good));
        // At the end of the run is a right sender, not one we know nothing of.
        end.and_then(|end| self.value(end))?;
        Some(ring.downward().take_while(move |&sender| Some(sender) != end))
    }

    fn failure(&self, ring: Ring) -> Outcome {
        Outcome::Failed { values: ring.iter().map(|sender| (sender, self.value(sender))).collect() }
    }
}

impl Receiver {
    /// Waits for the payload and the digest of one message. `ring.me()` is this receiver.
    ///
    /// A ring of one has no cross-check left: its digest is from the same sender as its payload.
    pub fn new(ring: Ring) -> Self {
        Receiver { ring, held: None, told: None, askers: ReplicaSet::EMPTY, complete: false, discovery: None }
    }

    /// What this receiver found; `None` until both its payload and its digest have arrived. It never changes
    /// afterwards, not by a correction either: it says what was *sent*.
    pub fn status(&self) -> Option<Status> {
        let (held, told) = (self.held?, self.told?);
        Some(if held == told { Status::Clean } else { Status::Mismatch { held, told } })
    }

    /// True once [`Action::Complete`] has been given. From then on only probes have an effect: they are answered.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes `event` and appends what is to be done about it to `actions`, which the caller reuses: on the healthy
    /// path one `Complete(Verified)` is all that is ever pushed.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Payload(value) if self.held.is_none() => {
                self.held = Some(value);
                self.compare(actions);
            }
            Event::Told(value) if self.told.is_none() => {
                self.told = Some(value);
                self.compare(actions);
            }
            Event::Payload(_) | Event::Told(_) => {}
            Event::Probe { from, status } if self.is_other(from) => self.probed(from, status, actions),
            Event::Answer { from, status } => self.answered(from, status, actions),
            Event::Correction { from, value } if self.is_other(from) => self.corrected(value, actions),
            Event::Probe { .. } | Event::Correction { .. } => {}
        }
    }

    fn is_other(&self, replica: u8) -> bool {
        replica != self.ring.me() && self.ring.contains(replica)
    }

    /// After payload or digest arrived: compares them if both are there.
    fn compare(&mut self, actions: &mut Vec<Action>) {
        let Some(status) = self.status() else {
            return;
        };
        for to in self.askers {
            actions.push(Action::Answer { to, status });
        }
        self.askers = ReplicaSet::EMPTY;
        if status == Status::Clean {
            self.finish(Outcome::Verified, actions);
        } else if self.ring.len() <= 2 {
            self.finish(Outcome::Detected { suspects: self.ring.members() }, actions);
        } else {
            let ring = self.ring;
            self.discovery().learn(ring, ring.me(), status);
            self.advance(actions);
        }
    }

    fn probed(&mut self, from: u8, status: Status, actions: &mut Vec<Action>) {
        match self.status() {
            Some(status) => actions.push(Action::Answer { to: from, status }),
            None => {
                self.askers.insert(from);
            }
        }
        // Who probes had a mismatch. A clean prober makes no sense; it is answered, lest it waits, but not believed.
        if !self.complete && status != Status::Clean {
            let ring = self.ring;
            self.discovery().learn(ring, from, status);
            self.advance(actions);
        }
    }

    fn answered(&mut self, from: u8, status: Status, actions: &mut Vec<Action>) {
        let ring = self.ring;
        if let Some(discovery) = self.discovery.as_mut().filter(|discovery| discovery.asked.contains(from)) {
            discovery.learn(ring, from, status);
            self.advance(actions);
        }
    }

    fn corrected(&mut self, value: Value, actions: &mut Vec<Action>) {
        // It can overtake our own payload and digest: who corrects may have learned about us from others.
        if !self.complete {
            self.discovery().correction.get_or_insert(value);
            self.advance(actions);
        }
    }

    fn discovery(&mut self) -> &mut Discovery {
        let ring = self.ring;
        self.discovery.get_or_insert_with(|| Box::new(Discovery::new(ring)))
    }

    /// After something was learned: decides if that is enough, or else asks the next receiver.
    fn advance(&mut self, actions: &mut Vec<Action>) {
        let (Some(status @ Status::Mismatch { held, .. }), Some(discovery)) = (self.status(), &mut self.discovery)
        else {
            return;
        };
        let ring = self.ring;
        if let Some(outcome) = decide(ring, held, discovery, actions) {
            self.finish(outcome, actions);
            return;
        }
        // One probe at a time: an answer is still to come while someone asked has not been heard.
        if discovery.asked.is_subset(discovery.heard) {
            if let Some(to) = ring.downward().find(|&receiver| !discovery.heard.contains(receiver)) {
                discovery.asked.insert(to);
                actions.push(Action::Probe { to, status });
            }
        }
    }

    fn finish(&mut self, outcome: Outcome, actions: &mut Vec<Action>) {
        self.complete = true;
        self.discovery = None;
        actions.push(Action::Complete(outcome));
    }
}

/// The outcome at a receiver that had a mismatch, as soon as what it knows is enough; pushes the corrections that it
/// owes to others.
fn decide(ring: Ring, held: Value, known: &Discovery, actions: &mut Vec<Action>) -> Option<Outcome> {
    if known.contradiction {
        return Some(known.failure(ring));
    }
    let Some(good) = known.majority(ring) else {
        let all_known = ring.iter().all(|sender| known.value(sender).is_some());
        return all_known.then(|| known.failure(ring));
    };
    if known.accepted_wrong(ring, good) {
        return Some(known.failure(ring));
    }
    let wrong = known.wrong(ring, good);
    if held == good {
        // Each of them noticed: its value is wrong, and so is, or right instead, the different one below it.
        actions.extend(known.run_below(ring, good)?.map(|to| Action::Correct { to }));
        return Some(Outcome::Kept { wrong });
    }
    let correction = known.correction?;
    Some(if correction == good { Outcome::Corrected { wrong } } else { known.failure(ring) })
}

/// The mismatches that were resolved lately: what is left of a [`Receiver`] when it is gone.
///
/// A receiver that has completed may still be probed, by one that got its own payload or digest late. The shell then
/// asks here; it asks only about messages that *have* completed, and holds back probes about those that have not
/// begun. `K` identifies a message (communicator uid, source, tag, index).
///
/// The capacity bounds how many resolved mismatches can still be asked about. A mismatch that was forgotten too
/// early is answered `Clean`, which is false and can mislead the asker, so it has to exceed by far the number of
/// mismatches during the time that one replica can lag behind another; [`Self::forgotten`] tells whether any was
/// dropped at all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct History<K> {
    /// Oldest first.
    mismatches: VecDeque<(K, Status)>,
    capacity: usize,
    forgotten: u64,
}

impl<K: Eq> History<K> {
    /// An empty record of at most `capacity` mismatches. Memory is taken as mismatches come.
    pub const fn new(capacity: usize) -> Self {
        History { mismatches: VecDeque::new(), capacity, forgotten: 0 }
    }

    /// Records the final status of message `key`; the oldest record makes way if there is no room. `Clean` needs no
    /// record. A second mismatch for one key makes no sense; the first stays.
    pub fn insert(&mut self, key: K, status: Status) {
        if status == Status::Clean || self.mismatches.iter().any(|(known, _)| *known == key) {
            return;
        }
        self.mismatches.push_back((key, status));
        if self.mismatches.len() > self.capacity {
            self.mismatches.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
    }

    /// What a receiver that has completed message `key` answers to a probe: its mismatch if one is recorded, else
    /// [`Status::Clean`].
    pub fn answer(&self, key: &K) -> Status {
        self.mismatches.iter().find(|(known, _)| known == key).map_or(Status::Clean, |&(_, status)| status)
    }

    /// Number of mismatches that made way for newer ones.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn value(number: u8) -> Value {
        Value { length: 8, digest: Digest([number; 20]) }
    }

    fn mismatch(held: u8, told: u8) -> Status {
        Status::Mismatch { held: value(held), told: value(told) }
    }

    fn set(members: &[u8]) -> ReplicaSet {
        members.iter().copied().collect()
    }

    fn receiver(degree: u8, me: u8) -> Receiver {
        Receiver::new(Ring::new(ReplicaSet::of_degree(degree), me).unwrap())
    }

    fn after(receiver: &mut Receiver, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        receiver.handle(event, &mut actions);
        actions
    }

    /// A receiver of this degree and index after a mismatch, and what it did.
    fn mismatched(degree: u8, me: u8, held: u8, told: u8) -> (Receiver, Vec<Action>) {
        let mut receiver = receiver(degree, me);
        assert_eq!(after(&mut receiver, Event::Payload(value(held))), []);
        let actions = after(&mut receiver, Event::Told(value(told)));
        (receiver, actions)
    }

    /// The paper's example: three replicas, and the middle sender (replica 1) sends 8 instead of 7 (figure 4).
    #[test]
    fn figures_4_and_6_step_by_step() {
        let [mut zero, mut one, mut two] = [0, 1, 2].map(|me| receiver(3, me));
        // Receiver 0 is unaware of any corruption, since both message and hash match.
        assert_eq!(after(&mut zero, Event::Payload(value(7))), []);
        assert_eq!(after(&mut zero, Event::Told(value(7))), [Action::Complete(Outcome::Verified)]);
        // Receiver 1 has a corrupt message and a good hash, receiver 2 a valid message and the hash of a corrupt one.
        // Both probe the rank below (c).
        assert_eq!(after(&mut one, Event::Payload(value(8))), []);
        let probe_of_one = Action::Probe { to: 0, status: mismatch(8, 7) };
        assert_eq!(after(&mut one, Event::Told(value(7))), [probe_of_one]);
        assert_eq!(after(&mut two, Event::Told(value(8))), []);
        let probe_of_two = Action::Probe { to: 1, status: mismatch(7, 8) };
        assert_eq!(after(&mut two, Event::Payload(value(7))), [probe_of_two]);
        // Receiver 1 gets the probe from above and acknowledges it (d). It knows now that it is the lower one.
        let acknowledgment = Action::Answer { to: 2, status: mismatch(8, 7) };
        assert_eq!(after(&mut one, Event::Probe { from: 2, status: mismatch(7, 8) }), [acknowledgment]);
        // Receiver 2 gets the acknowledgment, knows that it is the higher one, and corrects.
        assert_eq!(
            after(&mut two, Event::Answer { from: 1, status: mismatch(8, 7) }),
            [Action::Correct { to: 1 }, Action::Complete(Outcome::Kept { wrong: set(&[1]) })]
        );
        // Unlike the paper's, receiver 0 answers the probe that it did not expect; here it changes nothing.
        let probe = Event::Probe { from: 1, status: mismatch(8, 7) };
        assert_eq!(after(&mut zero, probe), [Action::Answer { to: 1, status: Status::Clean }]);
        assert_eq!(after(&mut one, Event::Answer { from: 0, status: Status::Clean }), []);
        assert_eq!(
            after(&mut one, Event::Correction { from: 2, value: value(7) }),
            [Action::Complete(Outcome::Corrected { wrong: set(&[1]) })]
        );
        // The statuses still say what was sent.
        assert_eq!(
            [&zero, &one, &two].map(|receiver| receiver.status().unwrap()),
            [Status::Clean, mismatch(8, 7), mismatch(7, 8)]
        );
        assert!(zero.is_complete() && one.is_complete() && two.is_complete());
    }

    #[test]
    fn the_healthy_path_keeps_no_state_on_the_heap() {
        let mut receiver = receiver(3, 1);
        assert_eq!(after(&mut receiver, Event::Told(value(7))), []);
        assert_eq!(receiver.status(), None);
        assert_eq!(receiver.discovery, None);
        assert_eq!(after(&mut receiver, Event::Payload(value(7))), [Action::Complete(Outcome::Verified)]);
        assert_eq!(receiver.discovery, None);
        // A few cache lines, so that a request of ours can embed it.
        assert!(size_of::<Receiver>() <= 128, "{}", size_of::<Receiver>());
    }

    #[test]
    fn a_probe_waits_for_the_own_comparison() {
        for told in [7, 8] {
            let mut receiver = receiver(3, 1);
            assert_eq!(after(&mut receiver, Event::Probe { from: 2, status: mismatch(7, 8) }), []);
            assert_eq!(after(&mut receiver, Event::Payload(value(8))), []);
            assert_eq!(
                after(&mut receiver, Event::Told(value(told))),
                match told {
                    8 => vec![Action::Answer { to: 2, status: Status::Clean }, Action::Complete(Outcome::Verified)],
                    _ => vec![
                        Action::Answer { to: 2, status: mismatch(8, 7) },
                        Action::Probe { to: 0, status: mismatch(8, 7) }
                    ],
                }
            );
            // What the probe told counts: with it the majority is known before receiver 0 has answered.
            let correction = after(&mut receiver, Event::Correction { from: 2, value: value(7) });
            let corrected = Action::Complete(Outcome::Corrected { wrong: set(&[1]) });
            assert_eq!(correction, if told == 8 { vec![] } else { vec![corrected] });
        }
    }

    #[test]
    fn two_detect_without_asking() {
        for me in [0, 1] {
            let detected = Action::Complete(Outcome::Detected { suspects: set(&[0, 1]) });
            assert_eq!(mismatched(2, me, 7, 8).1, [detected]);
        }
    }

    #[test]
    fn a_ring_of_one_is_verified_or_detected() {
        let ring = Ring::new(set(&[4]), 4).unwrap();
        for (told, outcome) in [(7, Outcome::Verified), (8, Outcome::Detected { suspects: set(&[4]) })] {
            let mut receiver = Receiver::new(ring);
            assert_eq!(after(&mut receiver, Event::Payload(value(7))), []);
            assert_eq!(after(&mut receiver, Event::Told(value(told))), [Action::Complete(outcome)]);
        }
    }

    #[test]
    fn three_different_values_fail() {
        let (mut two, actions) = mismatched(3, 2, 7, 8);
        assert_eq!(actions, [Action::Probe { to: 1, status: mismatch(7, 8) }]);
        let values = vec![(0, Some(value(9))), (1, Some(value(8))), (2, Some(value(7)))];
        assert_eq!(
            after(&mut two, Event::Answer { from: 1, status: mismatch(8, 9) }),
            [Action::Complete(Outcome::Failed { values })]
        );
    }

    /// Five replicas; senders 1 and 2 sent 8 and 9: receiver 3 walks down past both and corrects both.
    #[test]
    fn the_first_right_receiver_corrects_the_run_below_it() {
        let (mut three, actions) = mismatched(5, 3, 7, 9);
        assert_eq!(actions, [Action::Probe { to: 2, status: mismatch(7, 9) }]);
        let probe = |to| Action::Probe { to, status: mismatch(7, 9) };
        assert_eq!(after(&mut three, Event::Answer { from: 2, status: mismatch(9, 8) }), [probe(1)]);
        assert_eq!(after(&mut three, Event::Answer { from: 1, status: mismatch(8, 7) }), [probe(0)]);
        assert_eq!(
            after(&mut three, Event::Answer { from: 0, status: Status::Clean }),
            [
                Action::Correct { to: 2 },
                Action::Correct { to: 1 },
                Action::Complete(Outcome::Kept { wrong: set(&[1, 2]) })
            ]
        );
    }

    /// The same with 8 from both: receiver 2 accepted a wrong message, which receiver 3 finds out.
    #[test]
    fn a_wrong_value_that_was_accepted_fails() {
        let (mut three, _) = mismatched(5, 3, 7, 8);
        let probe = |to| Action::Probe { to, status: mismatch(7, 8) };
        assert_eq!(after(&mut three, Event::Answer { from: 2, status: Status::Clean }), [probe(1)]);
        assert_eq!(after(&mut three, Event::Answer { from: 1, status: mismatch(8, 7) }), [probe(0)]);
        let values = vec![
            (0, Some(value(7))),
            (1, Some(value(8))),
            (2, Some(value(8))),
            (3, Some(value(7))),
            (4, Some(value(7))),
        ];
        assert_eq!(
            after(&mut three, Event::Answer { from: 0, status: Status::Clean }),
            [Action::Complete(Outcome::Failed { values })]
        );
    }

    #[test]
    fn a_correction_waits_for_the_majority() {
        for (correction, right) in [(7, true), (9, false)] {
            let mut one = receiver(3, 1);
            assert_eq!(after(&mut one, Event::Correction { from: 2, value: value(correction) }), []);
            assert_eq!(after(&mut one, Event::Payload(value(8))), []);
            let probe = Action::Probe { to: 0, status: mismatch(8, 7) };
            assert_eq!(after(&mut one, Event::Told(value(7))), [probe]);
            let actions = after(&mut one, Event::Answer { from: 0, status: Status::Clean });
            match actions.as_slice() {
                [Action::Complete(Outcome::Corrected { wrong })] => assert!(right && *wrong == set(&[1])),
                [Action::Complete(Outcome::Failed { .. })] => assert!(!right),
                other => panic!("{other:?}"),
            }
        }
    }

    /// One sender's payload and digest differ: nobody else noticed, and no correction will come.
    #[test]
    fn a_lone_mismatch_fails_instead_of_waiting_for_ever() {
        let (mut one, _) = mismatched(3, 1, 8, 7);
        let probe = Action::Probe { to: 2, status: mismatch(8, 7) };
        assert_eq!(after(&mut one, Event::Answer { from: 0, status: Status::Clean }), [probe]);
        let actions = after(&mut one, Event::Answer { from: 2, status: Status::Clean });
        assert!(matches!(actions.as_slice(), [Action::Complete(Outcome::Failed { .. })]), "{actions:?}");
    }

    #[test]
    fn nonsense_is_ignored() {
        let (mut two, _) = mismatched(3, 2, 7, 8);
        let before = two.clone();
        for event in [
            Event::Payload(value(9)),
            Event::Told(value(9)),
            Event::Probe { from: 3, status: mismatch(8, 7) },
            Event::Probe { from: 2, status: mismatch(8, 7) },
            Event::Answer { from: 0, status: Status::Clean },
            Event::Answer { from: 255, status: Status::Clean },
            Event::Correction { from: 3, value: value(9) },
            Event::Correction { from: 2, value: value(9) },
        ] {
            assert_eq!(after(&mut two, event), []);
            assert_eq!(two, before);
        }
        let done = after(&mut two, Event::Answer { from: 1, status: mismatch(8, 7) });
        assert_eq!(done.last(), Some(&Action::Complete(Outcome::Kept { wrong: set(&[1]) })));
        let before = two.clone();
        assert_eq!(after(&mut two, Event::Answer { from: 1, status: mismatch(8, 7) }), []);
        assert_eq!(after(&mut two, Event::Correction { from: 1, value: value(8) }), []);
        // After completion a probe is still answered.
        let answer = Action::Answer { to: 0, status: mismatch(7, 8) };
        assert_eq!(after(&mut two, Event::Probe { from: 0, status: mismatch(8, 7) }), [answer]);
        assert_eq!(two, before);
    }

    #[test]
    fn history_remembers_the_last_mismatches_and_no_more() {
        let mut history = History::new(2);
        for (key, status) in [(1, mismatch(1, 2)), (2, Status::Clean), (3, mismatch(3, 4)), (3, mismatch(5, 6))] {
            history.insert(key, status);
        }
        assert_eq!(
            [1, 2, 3, 4].map(|key| history.answer(&key)),
            [mismatch(1, 2), Status::Clean, mismatch(3, 4), Status::Clean]
        );
        assert_eq!(history.forgotten(), 0);
        history.insert(4, mismatch(7, 8));
        assert_eq!([1, 3, 4].map(|key| history.answer(&key)), [Status::Clean, mismatch(3, 4), mismatch(7, 8)]);
        assert_eq!(history.forgotten(), 1);
        let mut none = History::new(0);
        none.insert(1, mismatch(1, 2));
        assert_eq!((none.answer(&1), none.forgotten()), (Status::Clean, 1));
    }
}
