//! The order of posted receives on one communicator: which message, by identity, each receive will get, also where
//! wildcards are among them (paper, section III C, which leaves the details out).
//!
//! A receive with a wildcard (any source, any tag, or both) is decided by the leader: its host matches it, and when
//! it completes the leader tells the other replicas source and tag in an *envelope*. Two things are built on this:
//!
//! - Every receive gets an *index*: it takes the k-th message of its (source, tag), the same in every replica.
//!   Verification compares the messages of equal (source, tag, index).
//! - A follower posts nothing to its host that could take the message of a wildcard that is still undecided.
//!
//! # The rule
//!
//! MPI gives a message to the earliest posted receive that matches it, and keeps messages of one source and one tag
//! in the order in which they were sent. So a receive with known (source, tag) can be *settled* (given the next index
//! of that pair and, on a follower, posted to the host) as soon as no earlier unsettled receive could match that pair
//! too. A wildcard becomes such a receive when it is resolved. The index is then the number of receives posted before
//! that end up with the same pair: it follows from the posts and the leader's decisions alone, and not from when
//! either is heard of, so that all replicas agree. Receives that cannot match the same message never wait for each
//! other.
//!
//! Only unresolved wildcards have to be searched for one in the way: an earlier unsettled receive of the *same pair*
//! is itself held up by an unresolved wildcard, and that one is earlier still and covers the pair. So the unsettled
//! are kept as two lists in the order of posting, `open` (wildcards unresolved) and `waiting` (pair known); `waiting`
//! is empty when `open` is, and in programs without wildcards both always are.
//!
//! # Who calls what
//!
//! | event | leader | follower |
//! |---|---|---|
//! | the application posts a receive | [`post`](Order::post), then post to the host as it is | [`post`](Order::post) |
//! | a receive is settled | verify it under this index | the same, and post it to the host with this source and tag |
//! | the host completes a wildcard | [`resolve`](Order::resolve), and send the envelope at once | – |
//! | an envelope arrives | – | [`envelope`](Order::envelope) |
//! | the leader's host has cancelled a receive | [`cancel`](Order::cancel) | [`cancel`](Order::cancel), when told |
//!
//! The leader sends the envelope from the host's completion, not from the application's wait: a follower's receives
//! stand behind it. A receive on the leader may complete before it is settled: its verification then has to wait, but
//! not long, because the wildcard in its way has been matched (MPI matched it first) and only has yet to complete.
//!
//! Posts have to come in the same order in every replica: threads that post to one communicator at the same time
//! have to be put in order before.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::counters::Counters;

#[cfg(test)]
mod tests;

/// The caller's name for one receive; unique among the unsettled ones of a communicator.
pub type Ticket = u64;

/// What a receive was posted for; `None` is MPI_ANY_SOURCE or MPI_ANY_TAG.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// Rank of the sender in the communicator.
    pub source: Option<i32>,
    /// Tag of the message; negative ones belong to the host's collectives.
    pub tag: Option<i32>,
}

impl Pattern {
    /// The pattern that only this source and tag match.
    pub const fn exact(source: i32, tag: i32) -> Pattern {
        Pattern { source: Some(source), tag: Some(tag) }
    }

    /// Whether the leader has to decide what it receives.
    pub const fn is_wildcard(self) -> bool {
        self.source.is_none() || self.tag.is_none()
    }

    /// Whether a message of this source and tag matches. Any tag means any that applications use, 0 and above.
    pub fn covers(self, source: i32, tag: i32) -> bool {
        self.source.is_none_or(|own| own == source) && self.tag.map_or(tag >= 0, |own| own == tag)
    }
}

/// A receive whose message is known: the `index`-th (from 0) of this source and tag on this communicator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Settled {
    /// The receive.
    pub ticket: Ticket,
    /// Rank of the sender in the communicator.
    pub source: i32,
    /// Tag of the message.
    pub tag: i32,
    /// How many messages of this source and tag are received before.
    pub index: u64,
}

/// A receive that is not settled yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsettled {
    /// The receive.
    pub ticket: Ticket,
    /// What it can still match: exact for a wildcard already resolved.
    pub pattern: Pattern,
    /// The ordinal of an unresolved wildcard.
    pub ordinal: Option<u64>,
}

/// A decision that does not fit what was posted. The replicas no longer run alike, or a control message is wrong:
/// nothing was changed, and nothing on this communicator can be trusted any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderError {
    /// No unresolved wildcard has this ticket.
    UnknownTicket {
        /// The ticket given.
        ticket: Ticket,
    },
    /// The wildcard has been decided or cancelled before.
    DecidedBefore {
        /// Which wildcard.
        ordinal: u64,
    },
    /// The wildcard cannot have matched a message of this source and tag.
    Unfit {
        /// Which wildcard.
        ordinal: u64,
        /// What it was posted for.
        pattern: Pattern,
        /// The source decided.
        source: i32,
        /// The tag decided.
        tag: i32,
    },
}

impl fmt::Display for OrderError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            OrderError::UnknownTicket { ticket } => {
                write!(formatter, "receive {ticket} is not an unresolved wildcard")
            }
            OrderError::DecidedBefore { ordinal } => {
                write!(formatter, "wildcard receive {ordinal} was decided or cancelled before")
            }
            OrderError::Unfit { ordinal, pattern, source, tag } => {
                let any = |value: Option<i32>| value.map_or_else(|| "any".to_owned(), |value| value.to_string());
                let (own_source, own_tag) = (any(pattern.source), any(pattern.tag));
                write!(
                    formatter,
                    "wildcard receive {ordinal} from source {own_source} with tag {own_tag} cannot have matched a \
                     message from {source} with tag {tag}"
                )
            }
        }
    }
}

impl std::error::Error for OrderError {}

/// A wildcard that the leader has not decided yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    ticket: Ticket,
    /// Place in the order of posting.
    position: u64,
    ordinal: u64,
    pattern: Pattern,
}

/// A receive with known source and tag behind an unresolved wildcard that covers them.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    /// Place in the order of posting.
    position: u64,
    source: i32,
    tag: i32,
}

/// The receives of one communicator, on a leader or a follower.
///
/// Methods append what they settle to `settled`; for one source and tag in the order of posting.
#[derive(Clone, Default, Debug)]
pub struct Order {
    /// In the order of posting, so also by ordinal.
    open: VecDeque<Open>,
    /// In the order of posting. Each is covered by an earlier one of `open`.
    waiting: VecDeque<Waiting>,
    /// Envelopes of wildcards not posted here yet.
    early: BTreeMap<u64, (i32, i32)>,
    indices: Counters,
    /// Wildcards posted so far: the ordinal of the next.
    wildcards: u64,
    /// The position of the next receive that cannot be settled at once.
    position: u64,
}

impl Order {
    /// A communicator without receives.
    pub fn new() -> Order {
        Order::default()
    }

    /// A receive is posted. A wildcard gets its ordinal, under which the leader's envelope names it: the n-th
    /// wildcard of this communicator.
    ///
    /// With no wildcard unresolved, a receive of known source and tag is settled at once at the cost of counting.
    ///
    /// # Errors
    ///
    /// [`OrderError::Unfit`] if an envelope had arrived for this ordinal that the pattern does not cover.
    pub fn post(
        &mut self,
        ticket: Ticket,
        pattern: Pattern,
        settled: &mut Vec<Settled>,
    ) -> Result<Option<u64>, OrderError> {
        if let Pattern { source: Some(source), tag: Some(tag) } = pattern {
            self.post_exact(ticket, source, tag, settled);
            return Ok(None);
        }
        let ordinal = self.wildcards;
        if let Some(&(source, tag)) = self.early.get(&ordinal) {
            if !pattern.covers(source, tag) {
                return Err(OrderError::Unfit { ordinal, pattern, source, tag });
            }
            self.early.remove(&ordinal);
            self.post_exact(ticket, source, tag, settled);
        } else {
            let position = self.next_position();
            self.open.push_back(Open { ticket, position, ordinal, pattern });
        }
        self.wildcards += 1;
        Ok(Some(ordinal))
    }

    /// Leader: the host has completed this wildcard with a message of this source and tag.
    ///
    /// # Errors
    ///
    /// [`OrderError::UnknownTicket`], [`OrderError::Unfit`].
    pub fn resolve(
        &mut self,
        ticket: Ticket,
        source: i32,
        tag: i32,
        settled: &mut Vec<Settled>,
    ) -> Result<(), OrderError> {
        match self.open.iter().position(|open| open.ticket == ticket) {
            Some(place) => self.decide(place, source, tag, settled),
            None => Err(OrderError::UnknownTicket { ticket }),
        }
    }

    /// Follower: the leader's wildcard of this ordinal got a message of this source and tag. Envelopes may come in
    /// any order, and before the wildcard is posted here.
    ///
    /// # Errors
    ///
    /// [`OrderError::DecidedBefore`], [`OrderError::Unfit`].
    pub fn envelope(
        &mut self,
        ordinal: u64,
        source: i32,
        tag: i32,
        settled: &mut Vec<Settled>,
    ) -> Result<(), OrderError> {
        if ordinal >= self.wildcards {
            if self.early.contains_key(&ordinal) {
                return Err(OrderError::DecidedBefore { ordinal });
            }
            self.early.insert(ordinal, (source, tag));
            return Ok(());
        }
        match self.open.binary_search_by_key(&ordinal, |open| open.ordinal) {
            Ok(place) => self.decide(place, source, tag, settled),
            Err(_) => Err(OrderError::DecidedBefore { ordinal }),
        }
    }

    /// Withdraws an unsettled receive that got no message; what only it held up is settled. An ordinal stays used.
    ///
    /// False if no unsettled receive has this ticket. A settled one is withdrawn by [`take_back`](Self::take_back).
    pub fn cancel(&mut self, ticket: Ticket, settled: &mut Vec<Settled>) -> bool {
        if let Some(place) = self.waiting.iter().position(|waiting| waiting.ticket == ticket) {
            // What waits behind it waits for a wildcard, never for it.
            self.waiting.remove(place);
            return true;
        }
        let place = self.open.iter().position(|open| open.ticket == ticket);
        let Some(open) = place.and_then(|place| self.open.remove(place)) else { return false };
        let behind = self.place_in_waiting(open.position);
        self.release(behind, open.pattern, settled);
        true
    }

    /// Withdraws a settled receive that got no message: its index will be used by another.
    ///
    /// Returns how many receives of this source and tag were settled after it, or `None` if this index was never
    /// given. Normally that is 0. Otherwise these have not got a message either (MPI would have given it to the
    /// earlier one), and the caller has to lower the index of each by one: the sender's count of messages knows
    /// nothing of a withdrawn receive, so a hole could not stay.
    ///
    /// Whether a receive got a message may differ between replicas: the leader decides, and a follower whose host
    /// was faster has to give the message to the next receive of this source and tag. That is up to the caller.
    #[must_use = "later receives may have to be renumbered"]
    pub fn take_back(&mut self, source: i32, tag: i32, index: u64) -> Option<u64> {
        let later = self.indices.given(source, tag).checked_sub(index)?.checked_sub(1)?;
        self.indices.take_back(source, tag);
        Some(later)
    }

    /// The index of a message that is received at once without a posted receive (a matched probe found it).
    ///
    /// `None` if an unsettled receive could match the pair: on the leader such a one has its message but has not
    /// completed, on a follower it must not be robbed. [`post`](Self::post) a receive for it then, and wait until it
    /// is settled.
    pub fn take(&mut self, source: i32, tag: i32) -> Option<u64> {
        (!self.is_covered(source, tag, u64::MAX)).then(|| self.indices.next(source, tag))
    }

    /// Whether an unresolved wildcard could match a message of this source and tag.
    pub fn covers(&self, source: i32, tag: i32) -> bool {
        self.is_covered(source, tag, u64::MAX)
    }

    /// How many receives of this source and tag have been settled.
    pub fn given(&self, source: i32, tag: i32) -> u64 {
        self.indices.given(source, tag)
    }

    /// What is not settled, in the order of posting. A follower that becomes the leader posts these to its host,
    /// and resolves those with an ordinal itself.
    pub fn unsettled(&self) -> Vec<Unsettled> {
        let open = self.open.iter().map(|open| {
            let unsettled = Unsettled { ticket: open.ticket, pattern: open.pattern, ordinal: Some(open.ordinal) };
            (open.position, unsettled)
        });
        let waiting = self.waiting.iter().map(|waiting| {
            let pattern = Pattern::exact(waiting.source, waiting.tag);
            (waiting.position, Unsettled { ticket: waiting.ticket, pattern, ordinal: None })
        });
        let mut all: Vec<_> = open.chain(waiting).collect();
        all.sort_unstable_by_key(|&(position, _)| position);
        all.into_iter().map(|(_, unsettled)| unsettled).collect()
    }

    /// Whether every receive is settled.
    pub fn is_settled(&self) -> bool {
        // A receive only waits for an open wildcard.
        self.open.is_empty()
    }

    /// Lets the pairs with these tags begin again at index 0, as [`Counters::forget`] does and under its conditions.
    pub fn forget(&mut self, tags: std::ops::RangeInclusive<i32>) {
        self.indices.forget(tags);
    }

    fn post_exact(&mut self, ticket: Ticket, source: i32, tag: i32, settled: &mut Vec<Settled>) {
        if self.is_covered(source, tag, u64::MAX) {
            let position = self.next_position();
            self.waiting.push_back(Waiting { ticket, position, source, tag });
        } else {
            self.settle(ticket, source, tag, settled);
        }
    }

    /// The wildcard at this place of `open` has become a receive of known source and tag.
    fn decide(&mut self, place: usize, source: i32, tag: i32, settled: &mut Vec<Settled>) -> Result<(), OrderError> {
        let Open { ticket, position, ordinal, pattern } = self.open[place];
        if !pattern.covers(source, tag) {
            return Err(OrderError::Unfit { ordinal, pattern, source, tag });
        }
        self.open.remove(place);
        let place = self.place_in_waiting(position);
        self.waiting.insert(place, Waiting { ticket, position, source, tag });
        self.release(place, pattern, settled);
        Ok(())
    }

    /// A wildcard of this pattern, posted before those from this place of `waiting` on, stands in nobody's way any
    /// more: settles those that nothing else holds up.
    fn release(&mut self, place: usize, pattern: Pattern, settled: &mut Vec<Settled>) {
        let mut kept = place;
        for next in place..self.waiting.len() {
            let waiting = self.waiting[next];
            let Waiting { ticket, position, source, tag } = waiting;
            if !pattern.covers(source, tag) || self.is_covered(source, tag, position) {
                self.waiting[kept] = waiting;
                kept += 1;
            } else {
                self.settle(ticket, source, tag, settled);
            }
        }
        self.waiting.truncate(kept);
    }

    fn settle(&mut self, ticket: Ticket, source: i32, tag: i32, settled: &mut Vec<Settled>) {
        let index = self.indices.next(source, tag);
        settled.push(Settled { ticket, source, tag, index });
    }

    /// Whether an unresolved wildcard posted before this position could match the pair.
    fn is_covered(&self, source: i32, tag: i32, position: u64) -> bool {
        self.open.iter().take_while(|open| open.position < position).any(|open| open.pattern.covers(source, tag))
    }

    /// Where in `waiting` a receive of this position stands or would stand.
    fn place_in_waiting(&self, position: u64) -> usize {
        self.waiting.partition_point(|waiting| waiting.position < position)
    }

    fn next_position(&mut self) -> u64 {
        self.position += 1;
        self.position
    }
}
