//! The tricky cases one by one; then whole replicas over simulated MPI matching engines, with a literal form of the
//! rule as oracle.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Order, OrderError, Pattern, Settled, Ticket, Unsettled};

const ANY: Option<i32> = None;

fn pattern(source: Option<i32>, tag: Option<i32>) -> Pattern {
    Pattern { source, tag }
}

fn settled(ticket: Ticket, source: i32, tag: i32, index: u64) -> Settled {
    Settled { ticket, source, tag, index }
}

/// Collects what one call settles.
fn settles<T>(call: impl FnOnce(&mut Vec<Settled>) -> T) -> (T, Vec<Settled>) {
    let mut settled = Vec::new();
    (call(&mut settled), settled)
}

/// Posts, and checks that nothing else happens than what is expected.
#[track_caller]
fn post(order: &mut Order, ticket: Ticket, pattern: Pattern, ordinal: Option<u64>, expected: &[Settled]) {
    let (answer, settled) = settles(|settled| order.post(ticket, pattern, settled));
    assert_eq!(answer, Ok(ordinal));
    assert_eq!(settled, expected);
}

#[track_caller]
fn resolve(order: &mut Order, ticket: Ticket, source: i32, tag: i32, expected: &[Settled]) {
    let (answer, settled) = settles(|settled| order.resolve(ticket, source, tag, settled));
    assert_eq!(answer, Ok(()));
    assert_eq!(settled, expected);
}

#[track_caller]
fn envelope(order: &mut Order, ordinal: u64, source: i32, tag: i32, expected: &[Settled]) {
    let (answer, settled) = settles(|settled| order.envelope(ordinal, source, tag, settled));
    assert_eq!(answer, Ok(()));
    assert_eq!(settled, expected);
}

#[test]
fn patterns_cover_what_mpi_matches() {
    assert!(Pattern::exact(1, 2).covers(1, 2));
    assert!(!Pattern::exact(1, 2).covers(1, 3));
    assert!(!Pattern::exact(1, 2).covers(2, 2));
    assert!(pattern(ANY, Some(2)).covers(7, 2));
    assert!(pattern(Some(1), ANY).covers(1, 0));
    // The host's collectives use negative tags, which no "any tag" may match, but an exact one does.
    assert!(!pattern(ANY, ANY).covers(1, -1));
    assert!(!pattern(Some(1), ANY).covers(1, -1));
    assert!(pattern(ANY, Some(-1)).covers(1, -1));
}

#[test]
fn without_wildcards_receives_settle_at_once() {
    let mut order = Order::new();
    post(&mut order, 0, Pattern::exact(1, 5), None, &[settled(0, 1, 5, 0)]);
    post(&mut order, 1, Pattern::exact(1, 5), None, &[settled(1, 1, 5, 1)]);
    post(&mut order, 2, Pattern::exact(2, 5), None, &[settled(2, 2, 5, 0)]);
    assert!(order.is_settled());
}

#[test]
fn a_wildcard_holds_up_only_what_it_covers() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(ANY, Some(5)), Some(0), &[]);
    post(&mut order, 1, Pattern::exact(1, 5), None, &[]);
    post(&mut order, 2, Pattern::exact(1, 6), None, &[settled(2, 1, 6, 0)]);
    resolve(&mut order, 0, 1, 5, &[settled(0, 1, 5, 0), settled(1, 1, 5, 1)]);
    assert!(order.is_settled());
}

#[test]
fn a_wildcard_that_took_another_source_leaves_the_index() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(ANY, Some(5)), Some(0), &[]);
    post(&mut order, 1, Pattern::exact(1, 5), None, &[]);
    resolve(&mut order, 0, 2, 5, &[settled(0, 2, 5, 0), settled(1, 1, 5, 0)]);
}

#[test]
fn disjoint_wildcards_do_not_wait_for_each_other() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(ANY, Some(5)), Some(0), &[]);
    post(&mut order, 1, pattern(ANY, Some(6)), Some(1), &[]);
    resolve(&mut order, 1, 3, 6, &[settled(1, 3, 6, 0)]);
    resolve(&mut order, 0, 3, 5, &[settled(0, 3, 5, 0)]);
}

/// They overlap, but the later one's message is outside of the earlier one's pattern.
#[test]
fn overlapping_wildcards_wait_only_if_the_message_is_in_the_overlap() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(Some(1), ANY), Some(0), &[]);
    post(&mut order, 1, pattern(ANY, Some(5)), Some(1), &[]);
    post(&mut order, 2, pattern(ANY, Some(5)), Some(2), &[]);
    // Wildcard 1 is still open and covers (2, 5).
    resolve(&mut order, 2, 2, 5, &[]);
    resolve(&mut order, 1, 2, 5, &[settled(1, 2, 5, 0), settled(2, 2, 5, 1)]);
    assert_eq!(order.unsettled().len(), 1);
}

/// Completion is not matching: the later wildcard's short message may complete before the earlier one's long one.
#[test]
fn completion_out_of_order_keeps_the_order_of_posting() {
    let mut order = Order::new();
    for ticket in 0..3 {
        post(&mut order, ticket, pattern(ANY, ANY), Some(ticket), &[]);
    }
    resolve(&mut order, 2, 1, 5, &[]);
    resolve(&mut order, 1, 2, 5, &[]);
    resolve(&mut order, 0, 1, 5, &[settled(0, 1, 5, 0), settled(1, 2, 5, 0), settled(2, 1, 5, 1)]);
}

/// A resolved wildcard behind an open one holds up its own pair, although it is in nobody's list of wildcards.
#[test]
fn a_resolved_wildcard_keeps_its_place_before_later_receives() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(Some(1), ANY), Some(0), &[]);
    post(&mut order, 1, pattern(ANY, Some(5)), Some(1), &[]);
    post(&mut order, 2, Pattern::exact(1, 5), None, &[]);
    post(&mut order, 3, Pattern::exact(2, 5), None, &[]);
    resolve(&mut order, 1, 1, 5, &[settled(3, 2, 5, 0)]);
    post(&mut order, 4, Pattern::exact(1, 5), None, &[]);
    resolve(
        &mut order,
        0,
        1,
        7,
        &[settled(0, 1, 7, 0), settled(1, 1, 5, 0), settled(2, 1, 5, 1), settled(4, 1, 5, 2)],
    );
}

#[test]
fn collectives_pass_by_an_open_wildcard() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(ANY, ANY), Some(0), &[]);
    post(&mut order, 1, Pattern::exact(1, -12), None, &[settled(1, 1, -12, 0)]);
    post(&mut order, 2, Pattern::exact(1, 0), None, &[]);
}

#[test]
fn envelopes_may_come_early_and_in_any_order() {
    let mut order = Order::new();
    envelope(&mut order, 1, 2, 5, &[]);
    envelope(&mut order, 2, 1, 5, &[]);
    post(&mut order, 10, pattern(ANY, Some(5)), Some(0), &[]);
    post(&mut order, 11, pattern(ANY, ANY), Some(1), &[]);
    envelope(&mut order, 0, 1, 5, &[settled(10, 1, 5, 0), settled(11, 2, 5, 0)]);
    // Nothing open any more: the early envelope settles its wildcard when it is posted.
    post(&mut order, 12, pattern(ANY, Some(5)), Some(2), &[settled(12, 1, 5, 1)]);
    assert!(order.is_settled());
}

#[test]
fn decisions_that_do_not_fit_are_refused_and_change_nothing() {
    let mut order = Order::new();
    let mut none = Vec::new();
    assert_eq!(order.resolve(0, 1, 5, &mut none), Err(OrderError::UnknownTicket { ticket: 0 }));
    envelope(&mut order, 1, 1, 6, &[]);
    assert_eq!(order.envelope(1, 1, 6, &mut none), Err(OrderError::DecidedBefore { ordinal: 1 }));
    let any_with_tag_5 = pattern(ANY, Some(5));
    post(&mut order, 0, any_with_tag_5, Some(0), &[]);
    let unfit = |ordinal| OrderError::Unfit { ordinal, pattern: any_with_tag_5, source: 1, tag: 6 };
    assert_eq!(order.resolve(0, 1, 6, &mut none), Err(unfit(0)));
    assert_eq!(order.envelope(0, 1, 6, &mut none), Err(unfit(0)));
    assert_eq!(order.post(1, any_with_tag_5, &mut none), Err(unfit(1)));
    assert_eq!(
        unfit(1).to_string(),
        "wildcard receive 1 from source any with tag 5 cannot have matched a message from 1 with tag 6"
    );
    envelope(&mut order, 0, 1, 5, &[settled(0, 1, 5, 0)]);
    assert_eq!(order.envelope(0, 1, 5, &mut none), Err(OrderError::DecidedBefore { ordinal: 0 }));
    assert_eq!(none, []);
}

#[test]
fn a_cancelled_wildcard_lets_others_pass_and_keeps_its_ordinal() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(ANY, Some(5)), Some(0), &[]);
    post(&mut order, 1, Pattern::exact(1, 5), None, &[]);
    let (found, passed) = settles(|settled| order.cancel(0, settled));
    assert!(found);
    assert_eq!(passed, [settled(1, 1, 5, 0)]);
    post(&mut order, 2, pattern(ANY, Some(5)), Some(1), &[]);
    assert_eq!(order.envelope(0, 1, 5, &mut Vec::new()), Err(OrderError::DecidedBefore { ordinal: 0 }));
}

#[test]
fn a_cancelled_waiting_receive_takes_no_index() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(ANY, Some(5)), Some(0), &[]);
    post(&mut order, 1, Pattern::exact(1, 5), None, &[]);
    post(&mut order, 2, Pattern::exact(1, 5), None, &[]);
    assert_eq!(settles(|settled| order.cancel(1, settled)), (true, vec![]));
    resolve(&mut order, 0, 1, 5, &[settled(0, 1, 5, 0), settled(2, 1, 5, 1)]);
    assert_eq!(settles(|settled| order.cancel(2, settled)), (false, vec![]));
}

#[test]
fn a_settled_receive_is_taken_back_with_those_behind_it() {
    let mut order = Order::new();
    post(&mut order, 0, Pattern::exact(1, 5), None, &[settled(0, 1, 5, 0)]);
    post(&mut order, 1, Pattern::exact(1, 5), None, &[settled(1, 1, 5, 1)]);
    post(&mut order, 2, Pattern::exact(1, 5), None, &[settled(2, 1, 5, 2)]);
    assert_eq!(order.take_back(1, 5, 3), None);
    assert_eq!(order.take_back(2, 5, 0), None);
    // 2 was the latest; then 0, and 1 has to move down.
    assert_eq!(order.take_back(1, 5, 2), Some(0));
    assert_eq!(order.take_back(1, 5, 0), Some(1));
    post(&mut order, 3, Pattern::exact(1, 5), None, &[settled(3, 1, 5, 1)]);
}

#[test]
fn a_probed_message_is_taken_unless_a_wildcard_may_have_it() {
    let mut order = Order::new();
    assert_eq!(order.take(1, 5), Some(0));
    post(&mut order, 0, Pattern::exact(1, 5), None, &[settled(0, 1, 5, 1)]);
    post(&mut order, 1, pattern(ANY, Some(5)), Some(0), &[]);
    assert_eq!(order.take(1, 5), None);
    assert_eq!(order.take(1, 6), Some(0));
    resolve(&mut order, 1, 1, 5, &[settled(1, 1, 5, 2)]);
    assert_eq!(order.take(1, 5), Some(3));
}

#[test]
fn forgotten_tags_begin_again() {
    let mut order = Order::new();
    assert_eq!((order.take(1, -40), order.take(1, 5)), (Some(0), Some(0)));
    order.forget(-50..=-30);
    assert_eq!((order.take(1, -40), order.take(1, 5)), (Some(0), Some(1)));
}

/// A new leader posts what the old one had not decided, as the application did.
#[test]
fn the_unsettled_are_told_in_the_order_of_posting() {
    let mut order = Order::new();
    post(&mut order, 0, pattern(ANY, Some(5)), Some(0), &[]);
    post(&mut order, 1, Pattern::exact(1, 5), None, &[]);
    post(&mut order, 2, pattern(Some(1), ANY), Some(1), &[]);
    envelope(&mut order, 1, 1, 5, &[]);
    let expected = [
        Unsettled { ticket: 0, pattern: pattern(ANY, Some(5)), ordinal: Some(0) },
        Unsettled { ticket: 1, pattern: Pattern::exact(1, 5), ordinal: None },
        Unsettled { ticket: 2, pattern: Pattern::exact(1, 5), ordinal: None },
    ];
    assert_eq!(order.unsettled(), expected);
    // It resolves wildcard 0 by its own host.
    resolve(&mut order, 0, 2, 5, &[settled(0, 2, 5, 0), settled(1, 1, 5, 0), settled(2, 1, 5, 1)]);
}

/// The rule as the module states it, in one list and without thought of speed.
#[derive(Default)]
struct Literal {
    unsettled: Vec<Unsettled>,
    early: BTreeMap<u64, (i32, i32)>,
    given: BTreeMap<(i32, i32), u64>,
    wildcards: u64,
}

impl Literal {
    fn post(&mut self, ticket: Ticket, pattern: Pattern) -> Vec<Settled> {
        let mut entry = Unsettled { ticket, pattern, ordinal: None };
        if pattern.is_wildcard() {
            match self.early.remove(&self.wildcards) {
                Some((source, tag)) => entry.pattern = Pattern::exact(source, tag),
                None => entry.ordinal = Some(self.wildcards),
            }
            self.wildcards += 1;
        }
        self.unsettled.push(entry);
        self.settle()
    }

    fn decide(&mut self, ordinal: u64, source: i32, tag: i32) -> Vec<Settled> {
        match self.unsettled.iter_mut().find(|entry| entry.ordinal == Some(ordinal)) {
            Some(entry) => *entry = Unsettled { pattern: Pattern::exact(source, tag), ordinal: None, ..*entry },
            None => {
                self.early.insert(ordinal, (source, tag));
            }
        }
        self.settle()
    }

    fn cancel(&mut self, ticket: Ticket) -> Vec<Settled> {
        self.unsettled.retain(|entry| entry.ticket != ticket);
        self.settle()
    }

    fn settle(&mut self) -> Vec<Settled> {
        let mut settled = Vec::new();
        let mut place = 0;
        while place < self.unsettled.len() {
            let Unsettled { ticket, pattern, .. } = self.unsettled[place];
            let (earlier, _) = self.unsettled.split_at(place);
            match (pattern.source, pattern.tag) {
                (Some(source), Some(tag)) if !earlier.iter().any(|entry| entry.pattern.covers(source, tag)) => {
                    self.unsettled.remove(place);
                    let given = self.given.entry((source, tag)).or_default();
                    settled.push(Settled { ticket, source, tag, index: *given });
                    *given += 1;
                }
                _ => place += 1,
            }
        }
        settled
    }
}

/// A message on its way: the `index`-th of its source and tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Message {
    source: i32,
    tag: i32,
    index: u64,
}

/// An MPI library's matching of messages with receives.
#[derive(Default)]
struct Host {
    posted: Vec<(Ticket, Pattern)>,
    unexpected: Vec<Message>,
    /// Matched; complete in any order.
    matched: Vec<(Ticket, Message)>,
}

impl Host {
    fn arrive(&mut self, message: Message) {
        match self.posted.iter().position(|(_, pattern)| pattern.covers(message.source, message.tag)) {
            Some(place) => {
                let (ticket, _) = self.posted.remove(place);
                self.matched.push((ticket, message));
            }
            None => self.unexpected.push(message),
        }
    }

    /// Of several sources MPI may choose any, of one source only the first that matches.
    fn post(&mut self, ticket: Ticket, pattern: Pattern, choice: &mut Choice) {
        let mut sources = Vec::new();
        let mut candidates = Vec::new();
        for (place, message) in self.unexpected.iter().enumerate() {
            if pattern.covers(message.source, message.tag) && !sources.contains(&message.source) {
                sources.push(message.source);
                candidates.push(place);
            }
        }
        if candidates.is_empty() {
            self.posted.push((ticket, pattern));
        } else {
            let message = self.unexpected.remove(candidates[choice.below(candidates.len())]);
            self.matched.push((ticket, message));
        }
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        let before = self.posted.len();
        self.posted.retain(|&(posted, _)| posted != ticket);
        self.posted.len() < before
    }
}

/// Which of several possible things happens next.
struct Choice(u64);

impl Choice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// What the application does, the same in every replica. The ticket of a receive is its place in the program.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Post(Pattern),
    /// Cancels the receive posted at this place, if it is a wildcard: MPI may be too late for it.
    Cancel(usize),
}

#[derive(Default)]
struct Replica {
    host: Host,
    order: Order,
    literal: Literal,
    /// Next operation of the program.
    next: usize,
    /// Messages arrived, of each source.
    arrived: Vec<usize>,
    /// Envelopes on their way to here.
    envelopes: Vec<(u64, i32, i32)>,
    settled: BTreeMap<Ticket, Settled>,
    received: BTreeMap<Ticket, Message>,
}

impl Replica {
    /// Both forms of the rule have settled the same; a follower posts it.
    fn settle(&mut self, mut settled: Vec<Settled>, mut expected: Vec<Settled>, leads: bool, choice: &mut Choice) {
        for entry in &settled {
            assert_eq!(self.settled.insert(entry.ticket, *entry), None);
            if !leads {
                self.host.post(entry.ticket, Pattern::exact(entry.source, entry.tag), choice);
            }
        }
        settled.sort_unstable();
        expected.sort_unstable();
        assert_eq!(settled, expected);
        assert_eq!(self.order.unsettled(), self.literal.unsettled);
        assert_eq!(self.order.is_settled(), self.literal.unsettled.is_empty());
    }
}

#[derive(Clone, Copy)]
enum Event {
    Step,
    Arrive(usize),
    Complete(usize),
    Envelope(usize),
}

/// Runs the program in some replicas until nothing more can happen, everything in random order.
fn simulate(program: &[Operation], sent: &[Vec<Message>], degree: usize, choice: &mut Choice) -> Vec<Replica> {
    let mut replicas: Vec<Replica> =
        (0..degree).map(|_| Replica { arrived: vec![0; sent.len()], ..Replica::default() }).collect();
    let mut ordinals = BTreeMap::new();
    // Which cancels the leader's host has carried out, as far as it got.
    let mut cancelled = BTreeMap::new();
    loop {
        let mut events = Vec::new();
        for (who, replica) in replicas.iter().enumerate() {
            let known = who == 0 || cancelled.contains_key(&replica.next);
            match program.get(replica.next) {
                Some(Operation::Cancel(_)) if !known => {}
                Some(_) => events.push((who, Event::Step)),
                None => {}
            }
            let coming = (0..sent.len()).filter(|&source| replica.arrived[source] < sent[source].len());
            events.extend(coming.map(|source| (who, Event::Arrive(source))));
            events.extend((0..replica.host.matched.len()).map(|place| (who, Event::Complete(place))));
            events.extend((0..replica.envelopes.len()).map(|place| (who, Event::Envelope(place))));
        }
        if events.is_empty() {
            return replicas;
        }
        let (who, event) = events[choice.below(events.len())];
        let leads = who == 0;
        let replica = &mut replicas[who];
        match event {
            Event::Step => {
                let place = replica.next;
                replica.next += 1;
                match program[place] {
                    Operation::Post(pattern) => {
                        let ticket = place as Ticket;
                        let (ordinal, settled) = settles(|settled| replica.order.post(ticket, pattern, settled));
                        if let Some(ordinal) = ordinal.unwrap() {
                            assert_eq!(*ordinals.entry(ticket).or_insert(ordinal), ordinal);
                        }
                        if leads {
                            replica.host.post(ticket, pattern, choice);
                        }
                        let expected = replica.literal.post(ticket, pattern);
                        replica.settle(settled, expected, leads, choice);
                    }
                    Operation::Cancel(target) => {
                        let ticket = target as Ticket;
                        let wildcard = matches!(program.get(target), Some(Operation::Post(p)) if p.is_wildcard());
                        if leads {
                            cancelled.insert(place, wildcard && replica.host.cancel(ticket));
                        }
                        if cancelled[&place] {
                            let (found, settled) = settles(|settled| replica.order.cancel(ticket, settled));
                            assert!(found);
                            let expected = replica.literal.cancel(ticket);
                            replica.settle(settled, expected, leads, choice);
                        }
                    }
                }
            }
            Event::Arrive(source) => {
                replica.host.arrive(sent[source][replica.arrived[source]]);
                replica.arrived[source] += 1;
            }
            Event::Complete(place) => {
                let (ticket, message) = replica.host.matched.swap_remove(place);
                assert_eq!(replica.received.insert(ticket, message), None);
                if let (true, Some(&ordinal)) = (leads, ordinals.get(&ticket)) {
                    let Message { source, tag, .. } = message;
                    let (answer, settled) = settles(|settled| replica.order.resolve(ticket, source, tag, settled));
                    assert_eq!(answer, Ok(()));
                    let expected = replica.literal.decide(ordinal, source, tag);
                    replica.settle(settled, expected, leads, choice);
                    for follower in &mut replicas[1..] {
                        follower.envelopes.push((ordinal, source, tag));
                    }
                }
            }
            Event::Envelope(place) => {
                let (ordinal, source, tag) = replica.envelopes.swap_remove(place);
                let (answer, settled) = settles(|settled| replica.order.envelope(ordinal, source, tag, settled));
                assert_eq!(answer, Ok(()));
                let expected = replica.literal.decide(ordinal, source, tag);
                replica.settle(settled, expected, leads, choice);
            }
        }
    }
}

const SOURCES: i32 = 3;

/// Tags that are few, so that receives compete; a collective's is among them.
fn tag() -> impl Strategy<Value = i32> {
    prop_oneof![1 => Just(-7), 4 => Just(0), 4 => Just(1)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let source = prop_oneof![3 => (0..SOURCES).prop_map(Some), 2 => Just(None)];
    let tag = prop_oneof![3 => tag().prop_map(Some), 1 => Just(None)];
    prop_oneof![
        12 => (source, tag).prop_map(|(source, tag)| Operation::Post(Pattern { source, tag })),
        1 => (0..40usize).prop_map(Operation::Cancel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn replicas_agree_and_every_receive_gets_its_message(
        program in prop::collection::vec(operation(), 0..40),
        sends in prop::collection::vec((0..SOURCES, tag()), 0..40),
        degree in 2..=4usize,
        schedule: u64,
    ) {
        let mut given = BTreeMap::new();
        let mut sent = vec![Vec::new(); SOURCES as usize];
        for (source, tag) in sends {
            let count = given.entry((source, tag)).or_insert(0);
            sent[source as usize].push(Message { source, tag, index: *count });
            *count += 1;
        }
        let replicas = simulate(&program, &sent, degree, &mut Choice(schedule));
        let leader = &replicas[0];
        for replica in &replicas {
            // Every replica has received the same messages, in the same receives, and knew them beforehand.
            prop_assert_eq!(&replica.received, &leader.received);
            prop_assert_eq!(&replica.settled, &leader.settled);
            prop_assert_eq!(replica.order.unsettled(), leader.order.unsettled());
            for (ticket, &Message { source, tag, index }) in &replica.received {
                prop_assert_eq!(replica.settled.get(ticket), Some(&settled(*ticket, source, tag, index)));
            }
        }
    }
}
