//! The leader's decisions about calls whose outcome depends on timing (MPI_Test*, MPI_Waitany, MPI_Iprobe, …), on one
//! communicator, and the followers' queue of them.
//!
//! A call either finds something, which is one message, or nothing. Programs that poll call often and find nothing, so
//! the leader says *in advance* how many calls will find nothing, and keeps to it whatever happens meanwhile: then
//! neither side has to say or hear anything about these. The promise grows with the number of calls that have found
//! nothing already, so that polling takes at most an eighth longer than without, and is one call where the calls are
//! rarer than [`RARE`]: a program that computes between two calls gets a fresh look at each.
//!
//! A promise holds for calls of the same `key` (what is asked, about which request). A call with another key ends it, on
//! both sides, without a message: all replicas make the same calls.
//!
//! Nothing is said of the followers' progress but that messages have arrived; when more than [`AHEAD`] are on their way,
//! the leader holds unsuccessful ones back and says them together.

use std::collections::BTreeMap;

/// Longest promise, calls.
const LONGEST: u64 = 64;
/// Between calls that are further apart than this, nothing is promised, ns.
const RARE: u64 = 20_000;
/// Messages that may be on their way before unsuccessful calls are held back.
pub const AHEAD: u64 = 1024;
/// A follower says how many have arrived when this many more have.
pub const HEED: u64 = 256;

/// What a call does, and with what; equal for calls that a promise covers.
pub type Key = u64;

/// What the leader is to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Say {
    /// This many calls have found or will find nothing; 0: one has found something.
    pub run: u32,
    /// They continue the run before.
    pub on: bool,
}

/// The leader's side.
#[derive(Default, Debug)]
pub struct Leading {
    key: Key,
    /// Calls that are still promised to find nothing.
    promised: u64,
    /// Calls in a row that have found nothing.
    streak: u64,
    /// When the last fresh look was, ns, and how many calls it covered.
    looked: (u64, u64),
    /// Calls that were held back.
    held: u64,
    /// The last that was said is a run of this key.
    runs: bool,
}

impl Leading {
    /// Whether this call is promised to find nothing.
    pub fn promised(&mut self, key: Key) -> bool {
        if key != self.key {
            return false;
        }
        let promised = self.promised > 0;
        if promised {
            self.promised -= 1;
            self.streak += 1;
        }
        promised
    }

    /// A fresh look has found nothing at time `now` (ns); `late`: the followers have much to read yet.
    pub fn nothing(&mut self, key: Key, now: u64, late: bool) -> [Option<Say>; 2] {
        let mut say = [None, None];
        if key != self.key {
            say[0] = self.release();
            *self = Leading { key, ..Leading::default() };
        }
        let (then, covered) = self.looked;
        let apart = now.saturating_sub(then) / covered.max(1);
        let longest = if apart > RARE { 1 } else { LONGEST.min(2 * covered) };
        let run = (self.streak / 8).clamp(1, longest.max(1));
        self.streak += 1;
        if late {
            self.held += 1;
            self.looked = (now, 1);
            return say;
        }
        self.looked = (now, run);
        self.promised = run - 1;
        let run = (run + self.held).min(u64::from(u32::MAX)) as u32;
        self.held = 0;
        say[1] = Some(Say { run, on: self.runs });
        self.runs = true;
        say
    }

    /// A call has found something.
    pub fn something(&mut self) -> [Option<Say>; 2] {
        let say = [self.release(), Some(Say { run: 0, on: false })];
        *self = Leading::default();
        say
    }

    /// What was held back, to be said now.
    pub fn release(&mut self) -> Option<Say> {
        let run = std::mem::take(&mut self.held).min(u64::from(u32::MAX)) as u32;
        (run > 0).then_some(Say { run, on: self.runs })
    }
}

/// What a follower has heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// So many calls find nothing.
    Nothing(u64),
    /// One call finds this.
    Found(Vec<i32>),
}

#[derive(Debug)]
struct Heard {
    decision: Decision,
    /// Messages that it stands for.
    messages: u64,
    on: bool,
}

/// A follower's side.
#[derive(Default, Debug)]
pub struct Following {
    key: Key,
    promised: u64,
    /// The message that is read next.
    next: u64,
    queue: BTreeMap<u64, Heard>,
}

impl Following {
    /// The leader's `ordinal`-th decision has arrived.
    pub fn heard(&mut self, ordinal: u64, on: bool, decision: Decision) {
        // Runs that follow one another are one: a follower that is far behind does not pile them up.
        if let (true, Decision::Nothing(more)) = (on, &decision) {
            if let Some((first, before)) = self.queue.range_mut(..ordinal).next_back() {
                if let (Decision::Nothing(run), true) = (&mut before.decision, first + before.messages == ordinal) {
                    *run += more;
                    before.messages += 1;
                    return;
                }
            }
        }
        self.queue.insert(ordinal, Heard { decision, messages: 1, on });
    }

    /// The outcome of a call, as far as it is known: `Some(None)` finds nothing.
    pub fn call(&mut self, key: Key) -> Option<Option<Vec<i32>>> {
        if self.promised > 0 && key == self.key {
            self.promised -= 1;
            return Some(None);
        }
        let heard = self.queue.remove(&self.next)?;
        self.next += heard.messages;
        match heard.decision {
            Decision::Nothing(run) => {
                debug_assert!(!heard.on || key == self.key);
                self.key = key;
                self.promised = run - 1;
                Some(None)
            }
            Decision::Found(found) => {
                self.promised = 0;
                Some(Some(found))
            }
        }
    }

    /// Decisions that were not asked for yet.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A leader and a follower make the same calls.
    struct Pair {
        leading: Leading,
        following: Following,
        sent: u64,
        on_the_way: Vec<(u64, Say, Vec<i32>)>,
    }

    impl Pair {
        fn new() -> Pair {
            Pair { leading: Leading::default(), following: Following::default(), sent: 0, on_the_way: Vec::new() }
        }

        fn say(&mut self, say: [Option<Say>; 2], found: &[i32]) {
            for say in say.into_iter().flatten() {
                self.on_the_way.push((self.sent, say, if say.run == 0 { found.to_vec() } else { Vec::new() }));
                self.sent += 1;
            }
        }

        /// The leader's call, when the host would find `there`.
        fn lead(&mut self, key: Key, now: u64, there: Option<i32>, late: bool) -> Option<Vec<i32>> {
            if self.leading.promised(key) {
                return None;
            }
            match there {
                None => {
                    let say = self.leading.nothing(key, now, late);
                    self.say(say, &[]);
                    None
                }
                Some(found) => {
                    let say = self.leading.something();
                    self.say(say, &[found]);
                    Some(vec![found])
                }
            }
        }

        fn deliver(&mut self) {
            for (ordinal, say, found) in self.on_the_way.drain(..) {
                let decision =
                    if say.run == 0 { Decision::Found(found) } else { Decision::Nothing(u64::from(say.run)) };
                self.following.heard(ordinal, say.on, decision);
            }
        }
    }

    proptest! {
        #[test]
        fn followers_see_what_the_leader_saw(
            calls in proptest::collection::vec((1u64..4, 0u64..30_000, proptest::option::weighted(0.02, 0..9i32), any::<bool>()), 1..400),
            late in any::<bool>(),
        ) {
            let mut pair = Pair::new();
            let (mut now, mut outcomes) = (0, Vec::new());
            for (key, step, there, held) in calls {
                // Mostly the same key, as programs poll.
                let key = if key < 3 { 1 } else { key };
                now += if step < 25_000 { step % 500 } else { step };
                outcomes.push((key, pair.lead(key, now, there, held && late)));
            }
            // What is held back is said with the next thing that is found.
            outcomes.push((9, pair.lead(9, now, Some(5), false)));
            pair.deliver();
            for (key, outcome) in outcomes {
                prop_assert_eq!(pair.following.call(key), Some(outcome));
            }
            prop_assert!(pair.following.is_empty());
        }
    }

    #[test]
    fn a_million_calls_in_vain_are_few_messages() {
        let mut pair = Pair::new();
        for call in 0..1_000_000u64 {
            assert_eq!(pair.lead(1, call * 100, None, false), None);
        }
        assert!(pair.sent < 20_000, "{}", pair.sent);
        pair.deliver();
        assert_eq!(pair.following.queue.len(), 1, "runs are kept as one");
    }

    #[test]
    fn polling_takes_at_most_an_eighth_longer() {
        for there in [10u64, 100, 1000, 100_000] {
            let mut pair = Pair::new();
            let mut calls = 0;
            while pair.lead(1, calls * 100, (calls >= there).then_some(0), false).is_none() {
                calls += 1;
            }
            assert!(calls <= there + there / 8 + 1, "found after {calls}, there since {there}");
        }
    }

    #[test]
    fn rare_calls_are_looked_at_each() {
        let mut pair = Pair::new();
        for call in 0..100_000u64 {
            pair.lead(1, call * 100, None, false);
        }
        // The program computes between its calls now: at most one promise is still open.
        let begin = 100_000 * 100;
        let fresh = (0..200).filter(|call| {
            let before = pair.sent;
            pair.lead(1, begin + call * 1_000_000, None, false);
            pair.sent > before
        });
        assert!(fresh.count() >= 200 - 2 * LONGEST as usize);
    }

    #[test]
    fn a_leader_far_ahead_says_them_together() {
        let mut pair = Pair::new();
        for call in 0..1000 {
            pair.lead(1, call * 100, None, true);
        }
        assert_eq!(pair.sent, 0);
        pair.lead(1, 100_100, Some(3), false);
        assert_eq!(pair.sent, 2);
        pair.deliver();
        for _ in 0..1000 {
            assert_eq!(pair.following.call(1), Some(None));
        }
        assert_eq!(pair.following.call(1), Some(Some(vec![3])));
    }
}
