//! Properties of the protocols over whole jobs in miniature: all receivers of one virtual rank, joined by a network
//! that delivers in any order (no order per link either), with a `Receiver` for each message as the shell has one.
//!
//! `proptest` chooses faults, rings and orders; for small degrees every reachable state is visited instead, which
//! leaves no interleaving out.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use redmpi::digest::Digest;
use redmpi::protocol::{Action, Event, History, Outcome, Receiver, ReplicaSet, Ring, Status, Value, Verdict, Vote};

fn value(number: u8) -> Value {
    Value { length: 8, digest: Digest([number; 20]) }
}

/// Which message; in the shell: communicator uid, source, tag, index.
type Key = usize;

/// What each sender sent, by replica index.
type Values = BTreeMap<u8, u8>;

/// One event on its way to receiver `to`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Envelope {
    to: u8,
    key: Key,
    event: Event,
}

/// One message at one receiver.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Slot {
    /// The receive is not posted yet; what comes is held back.
    Unposted(Vec<Event>),
    Active(Receiver),
    /// Completed, and the `Receiver` is gone.
    Gone,
}

/// What the senders of one message sent: to the receiver of their own index, and to the one above.
#[derive(Clone, Debug)]
struct Sent {
    payload: Values,
    digest: Values,
}

impl Sent {
    fn alike(values: &Values) -> Self {
        Sent { payload: values.clone(), digest: values.clone() }
    }
}

/// How the shell of the day behaves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Manners {
    /// A `Receiver` is dropped once it has completed, and a `History` answers for it.
    drop: bool,
    /// Receives are posted at any time, not all before anything arrives.
    post_late: bool,
}

const PROMPT: Manners = Manners { drop: true, post_late: false };

fn any_manners() -> impl Strategy<Value = Manners> {
    (any::<bool>(), any::<bool>()).prop_map(|(drop, post_late)| Manners { drop, post_late })
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    members: ReplicaSet,
    manners: Manners,
    slots: BTreeMap<(u8, Key), Slot>,
    history: BTreeMap<u8, History<Key>>,
    flying: Vec<Envelope>,
    /// Receives still to be posted.
    unposted: Vec<(u8, Key)>,
    outcomes: BTreeMap<(u8, Key), Outcome>,
    /// What a receiver was sent to replace its payload.
    corrections: BTreeMap<(u8, Key), Value>,
    /// Who probed whom.
    probes: BTreeMap<(u8, u8, Key), u8>,
}

impl World {
    fn new(members: ReplicaSet, messages: &[Sent], manners: Manners) -> Self {
        let mut world = World {
            members,
            manners,
            slots: BTreeMap::new(),
            history: members.iter().map(|me| (me, History::new(64))).collect(),
            flying: Vec::new(),
            unposted: Vec::new(),
            outcomes: BTreeMap::new(),
            corrections: BTreeMap::new(),
            probes: BTreeMap::new(),
        };
        for (key, sent) in messages.iter().enumerate() {
            for me in members {
                let ring = Ring::new(members, me).unwrap();
                let slot = if manners.post_late {
                    world.unposted.push((me, key));
                    Slot::Unposted(Vec::new())
                } else {
                    Slot::Active(Receiver::new(ring))
                };
                world.slots.insert((me, key), slot);
                let payload = Event::Payload(value(sent.payload[&me]));
                let told = Event::Told(value(sent.digest[&me]));
                world.flying.push(Envelope { to: me, key, event: payload });
                world.flying.push(Envelope { to: ring.above(me), key, event: told });
            }
        }
        world
    }

    /// How many different things can happen next.
    fn choices(&self) -> usize {
        self.flying.len() + self.unposted.len()
    }

    fn step(&mut self, choice: usize) {
        if choice < self.flying.len() {
            let Envelope { to, key, event } = self.flying.remove(choice);
            self.deliver(to, key, event);
        } else {
            let (me, key) = self.unposted.remove(choice - self.flying.len());
            let active = Slot::Active(Receiver::new(Ring::new(self.members, me).unwrap()));
            if let Some(Slot::Unposted(events)) = self.slots.insert((me, key), active) {
                for event in events {
                    self.deliver(me, key, event);
                }
            }
        }
    }

    fn deliver(&mut self, me: u8, key: Key, event: Event) {
        let mut actions = Vec::new();
        let mut held = None;
        match self.slots.get_mut(&(me, key)).unwrap() {
            Slot::Unposted(events) => events.push(event),
            Slot::Active(receiver) => {
                receiver.handle(event, &mut actions);
                if let Some(status) = receiver.status() {
                    if let Status::Mismatch { held: payload, .. } = status {
                        held = Some(payload);
                    }
                    if self.manners.drop && receiver.is_complete() {
                        self.history.get_mut(&me).unwrap().insert(key, status);
                        self.slots.insert((me, key), Slot::Gone);
                    }
                }
            }
            Slot::Gone => {
                if let Event::Probe { from, .. } = event {
                    actions.push(Action::Answer { to: from, status: self.history[&me].answer(&key) });
                }
            }
        }
        let last = actions.len().wrapping_sub(1);
        for (position, action) in actions.into_iter().enumerate() {
            let (to, event) = match action {
                Action::Probe { to, status } => {
                    *self.probes.entry((me, to, key)).or_default() += 1;
                    (to, Event::Probe { from: me, status })
                }
                Action::Answer { to, status } => (to, Event::Answer { from: me, status }),
                Action::Correct { to } => {
                    let value = held.expect("only a receiver with a mismatch corrects");
                    assert_eq!(self.corrections.insert((to, key), value), None, "{to} has one corrector");
                    (to, Event::Correction { from: me, value })
                }
                Action::Complete(outcome) => {
                    assert_eq!(position, last, "completion is the last action");
                    assert_eq!(self.outcomes.insert((me, key), outcome), None, "it completes once");
                    continue;
                }
            };
            assert!(to != me && self.members.contains(to), "messages go to other members");
            self.flying.push(Envelope { to, key, event });
        }
    }

    /// Delivers everything, in the order that `choices` say, then in the order of sending.
    fn run(&mut self, choices: &[u16]) {
        let mut choices = choices.iter();
        let mut steps = 0;
        while self.choices() > 0 {
            let choice = choices.next().map_or(0, |&choice| usize::from(choice));
            self.step(choice % self.choices());
            steps += 1;
            assert!(steps < 100_000, "it goes on for ever");
        }
    }

    /// Takes out what cannot change anything any more, so that fewer states differ.
    fn tidy(&mut self) {
        let slots = &self.slots;
        self.flying.retain(|envelope| match &slots[&(envelope.to, envelope.key)] {
            Slot::Gone => matches!(envelope.event, Event::Probe { .. }),
            _ => true,
        });
        self.flying.sort_unstable();
        self.probes.clear();
    }
}

/// The value that more than half of the senders sent.
fn majority(values: &Values) -> Option<u8> {
    values.values().copied().find(|one| values.values().filter(|other| *other == one).count() * 2 > values.len())
}

/// The outcome for which any order of events has to be good, whatever the senders sent.
fn judge_that_all_decide(world: &World, key: Key) {
    for me in world.members {
        assert!(world.outcomes.contains_key(&(me, key)), "receiver {me} is undecided: {world:#?}");
    }
    for ((from, to, _), &times) in &world.probes {
        assert_eq!(times, 1, "{from} probed {to}");
    }
}

/// What has to hold of message `key` at the end, if each sender sent the same value twice.
fn judge(world: &World, key: Key, values: &Values) {
    judge_that_all_decide(world, key);
    let members = world.members;
    let good = majority(values);
    let mut accepted_wrong = false;
    let mut failed = false;
    for me in members {
        let below = Ring::new(members, me).unwrap().below(me);
        let (held, told) = (values[&me], values[&below]);
        let outcome = &world.outcomes[&(me, key)];
        let check = |wrong: ReplicaSet| {
            assert!(wrong.is_subset(members));
            assert!(wrong.iter().all(|sender| Some(values[&sender]) != good), "{wrong} of {values:?} are wrong?");
        };
        match outcome {
            Outcome::Verified => {
                assert_eq!(held, told, "verified only if equal");
                accepted_wrong |= good.is_some_and(|good| good != held);
                continue;
            }
            Outcome::Detected { suspects } => {
                assert!(members.len() == 2 && *suspects == members);
            }
            Outcome::Kept { wrong } => {
                assert_eq!(Some(held), good, "kept the wrong one of {values:?}");
                assert!(wrong.contains(below));
                check(*wrong);
            }
            Outcome::Corrected { wrong } => {
                assert_ne!(Some(held), good, "corrected the right one of {values:?}");
                assert_eq!(world.corrections.get(&(me, key)).copied(), good.map(value));
                assert!(wrong.contains(me));
                check(*wrong);
            }
            Outcome::Failed { values: found } => {
                failed = true;
                assert!(found.iter().map(|&(sender, _)| sender).eq(members));
                for &(sender, found) in found {
                    assert!(found.is_none_or(|found| found == value(values[&sender])), "{sender} of {values:?}");
                }
            }
        }
        assert_ne!(held, told, "a clean receiver has nothing to resolve");
        assert_eq!(matches!(outcome, Outcome::Detected { .. }), members.len() == 2);
        if good.is_none() && members.len() > 2 {
            assert!(matches!(outcome, Outcome::Failed { .. }), "{me} of {values:?}: {outcome:?}");
        }
    }
    if members.len() > 2 {
        assert!(failed || !accepted_wrong, "a wrong value was accepted and nobody failed: {values:?}");
        // With a majority and no two neighbours alike in error, everybody ends with the right value.
        assert!(!failed || accepted_wrong || good.is_none(), "{values:?} failed: {:?}", world.outcomes);
    }
}

/// Visits every state that any order of events can reach, judges each end, and gives the number of states.
fn explore(world: World, judge: &dyn Fn(&World)) -> usize {
    let mut visited = HashSet::new();
    let mut waiting = vec![world];
    while let Some(mut world) = waiting.pop() {
        world.tidy();
        if visited.contains(&world) {
            continue;
        }
        if world.choices() == 0 {
            judge(&world);
        }
        for choice in 0..world.choices() {
            let mut next = world.clone();
            next.step(choice);
            waiting.push(next);
        }
        visited.insert(world);
    }
    visited.len()
}

/// All vectors of `length` values that differ in more than the names of the values.
fn vectors(length: usize) -> Vec<Vec<u8>> {
    (1..length).fold(vec![vec![0]], |shorter, _| {
        let longer = |vector: Vec<u8>| {
            let fresh = vector.iter().max().unwrap() + 1;
            (0..=fresh).map(move |last| [vector.as_slice(), &[last]].concat())
        };
        shorter.into_iter().flat_map(longer).collect()
    })
}

fn numbered(members: ReplicaSet, values: &[u8]) -> Values {
    members.iter().zip(values.iter().copied()).collect()
}

#[test]
fn every_order_of_events_up_to_degree_three() {
    for drop in [false, true] {
        for members in [&[0][..], &[0, 1], &[0, 1, 2], &[7], &[7, 63], &[1, 5, 63]] {
            let members: ReplicaSet = members.iter().copied().collect();
            for values in vectors(members.len()) {
                let values = numbered(members, &values);
                let world = World::new(members, &[Sent::alike(&values)], Manners { drop, post_late: false });
                explore(world, &|world| judge(world, 0, &values));
            }
        }
    }
}

/// Also what no single sender can do that sends one value twice: each payload and each digest is anything.
#[test]
fn every_order_of_events_at_degree_three_with_inconsistent_senders() {
    let members = ReplicaSet::of_degree(3);
    for sent in vectors(6) {
        let sent = Sent { payload: numbered(members, &sent[..3]), digest: numbered(members, &sent[3..]) };
        explore(World::new(members, &[sent], PROMPT), &|world| judge_that_all_decide(world, 0));
    }
}

/// Every pattern of four values, and those of five that have a majority, but only one of each that differ by where
/// the ring begins: smaller rings are tried at every place.
#[test]
fn every_order_of_events_at_degrees_four_and_five() {
    for degree in [4, 5] {
        let members = ReplicaSet::of_degree(degree);
        for pattern in vectors(degree.into()).into_iter().filter(|pattern| is_first_rotation(pattern)) {
            let values = numbered(members, &pattern);
            if degree == 4 || majority(&values).is_some() {
                explore(World::new(members, &[Sent::alike(&values)], PROMPT), &|world| judge(world, 0, &values));
            }
        }
    }
}

/// True for one of the rotations of a pattern: the one that is first in the order of [`vectors`].
fn is_first_rotation(pattern: &[u8]) -> bool {
    (0..pattern.len()).all(|by| {
        let mut rotated = pattern.to_vec();
        rotated.rotate_left(by);
        let mut names = Vec::new();
        for name in &mut rotated {
            let position = names.iter().position(|known| known == name).unwrap_or(names.len());
            if position == names.len() {
                names.push(*name);
            }
            *name = position as u8;
        }
        pattern <= rotated.as_slice()
    })
}

/// Rings of the given sizes, of any live replicas, half of them the plain 0 … r−1.
fn any_members(degrees: impl Strategy<Value = usize>) -> impl Strategy<Value = ReplicaSet> {
    let plain = ReplicaSet::of_degree(64).iter().collect::<Vec<_>>();
    (degrees, any::<bool>()).prop_flat_map(move |(degree, dense)| {
        let indices = if dense { plain[..degree].to_vec() } else { plain.clone() };
        proptest::sample::subsequence(indices, degree).prop_map(|members| members.into_iter().collect())
    })
}

fn any_order() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 0..200)
}

/// The degrees that the properties are tried at.
fn any_degree() -> impl Strategy<Value = usize> {
    prop_oneof![2..=5_usize, Just(7)]
}

fn all_good(members: ReplicaSet) -> Values {
    members.iter().map(|sender| (sender, 0)).collect()
}

fn is_failure(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. })
}

/// The member at `position`, counted around the ring.
fn member(members: ReplicaSet, position: usize) -> u8 {
    members.iter().nth(position % members.len()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_healthy_message_is_verified_without_a_word(
        members in any_members(1..=8_usize), manners in any_manners(), order in any_order(),
    ) {
        let mut world = World::new(members, &[Sent::alike(&all_good(members))], manners);
        world.run(&order);
        prop_assert!(world.outcomes.values().all(|outcome| *outcome == Outcome::Verified));
        prop_assert_eq!((world.outcomes.len(), world.probes.len()), (members.len(), 0));
    }

    #[test]
    fn one_wrong_sender_is_corrected_or_detected(
        members in any_members(any_degree()), at in any::<usize>(), manners in any_manners(), order in any_order(),
    ) {
        let bad = member(members, at);
        let mut values = all_good(members);
        values.insert(bad, 1);
        let mut world = World::new(members, &[Sent::alike(&values)], manners);
        world.run(&order);
        judge(&world, 0, &values);
        let ring = Ring::new(members, bad).unwrap();
        let wrong = ReplicaSet::from_iter([bad]);
        for me in members {
            let expected = match () {
                () if members.len() == 2 => Outcome::Detected { suspects: members },
                () if me == bad => Outcome::Corrected { wrong },
                () if me == ring.above(bad) => Outcome::Kept { wrong },
                () => Outcome::Verified,
            };
            prop_assert_eq!(&world.outcomes[&(me, 0)], &expected);
        }
        prop_assert_eq!(world.corrections.len(), usize::from(members.len() > 2));
        prop_assert!(members.len() > 2 || world.probes.is_empty());
    }

    /// Enough wrong senders to disturb, too few to win, and no two of them alike.
    #[test]
    fn a_minority_of_different_errors_is_corrected(
        members in any_members(prop_oneof![Just(5_usize), Just(7), Just(9)]), start in any::<usize>(),
        gaps in proptest::collection::vec(1..3_usize, 2..=4), manners in any_manners(), order in any_order(),
    ) {
        let mut values = all_good(members);
        let mut position = start % members.len();
        for gap in gaps {
            if values.values().filter(|&&sent| sent != 0).count() < (members.len() - 1) / 2 {
                values.insert(member(members, position), position as u8 + 1);
            }
            position += gap;
        }
        let mut world = World::new(members, &[Sent::alike(&values)], manners);
        world.run(&order);
        judge(&world, 0, &values);
        prop_assert!(!world.outcomes.values().any(is_failure));
        // Each wrong receiver got the right value.
        for (sender, sent) in values {
            prop_assert_eq!(world.corrections.get(&(sender, 0)).copied(), (sent != 0).then_some(value(0)));
        }
    }

    /// Degree five, two senders with the same wrong value: apart they are corrected; side by side the upper one of
    /// their receivers accepts, and the receiver above the two fails.
    #[test]
    fn two_equal_errors(
        members in any_members(Just(5)), first in 0..5_usize, distance in 1..5_usize, manners in any_manners(),
        order in any_order(),
    ) {
        let (one, other) = (member(members, first), member(members, first + distance));
        let mut values = all_good(members);
        values.insert(one, 1);
        values.insert(other, 1);
        let mut world = World::new(members, &[Sent::alike(&values)], manners);
        world.run(&order);
        judge(&world, 0, &values);
        let ring = Ring::new(members, one).unwrap();
        let upper = if ring.above(one) == other { Some(other) } else { (ring.above(other) == one).then_some(one) };
        match upper {
            Some(upper) => {
                let failed = is_failure(&world.outcomes[&(ring.above(upper), 0)]);
                prop_assert!(failed && world.outcomes[&(upper, 0)] == Outcome::Verified);
            }
            None => prop_assert_eq!(world.corrections.len(), 2),
        }
    }

    #[test]
    fn three_different_values_fail_wherever_it_is_noticed(
        members in any_members(Just(3)), manners in any_manners(), order in any_order(),
    ) {
        let values = numbered(members, &[0, 1, 2]);
        let mut world = World::new(members, &[Sent::alike(&values)], manners);
        world.run(&order);
        judge(&world, 0, &values);
        prop_assert!(world.outcomes.values().all(is_failure));
    }

    /// Anything at all may have been sent.
    #[test]
    fn any_values(
        members in any_members(1..=9_usize), sent in proptest::collection::vec(0..4_u8, 9),
        manners in any_manners(), order in any_order(),
    ) {
        let values = numbered(members, &sent);
        let mut world = World::new(members, &[Sent::alike(&values)], manners);
        world.run(&order);
        judge(&world, 0, &values);
    }

    /// Two messages in flight, with different faults on neighbours: what is about one leaves the other alone.
    #[test]
    fn two_messages_at_once(
        members in any_members(any_degree()), first in any::<u8>(), sent in proptest::collection::vec(0..3_u8, 7),
        manners in any_manners(), order in any_order(),
    ) {
        let one = member(members, first.into());
        let mut early = all_good(members);
        early.insert(one, 1);
        let mut neighbour = all_good(members);
        neighbour.insert(Ring::new(members, one).unwrap().above(one), 2);
        let messages = [early, neighbour, numbered(members, &sent)];
        let mut world = World::new(members, &messages.each_ref().map(Sent::alike), manners);
        world.run(&order);
        for (key, values) in messages.iter().enumerate() {
            judge(&world, key, values);
        }
    }

    /// One payload or one digest wrong, as a fault on the way would do it: one receiver notices, and fails, unless
    /// there are only two.
    #[test]
    fn one_inconsistent_sender_is_noticed(
        members in any_members(any_degree()), at in any::<usize>(), in_payload in any::<bool>(),
        manners in any_manners(), order in any_order(),
    ) {
        let bad = member(members, at);
        let mut sent = Sent::alike(&all_good(members));
        let (values, who) = match in_payload {
            true => (&mut sent.payload, bad),
            false => (&mut sent.digest, Ring::new(members, bad).unwrap().above(bad)),
        };
        values.insert(bad, 1);
        let mut world = World::new(members, &[sent], manners);
        world.run(&order);
        judge_that_all_decide(&world, 0);
        for me in members {
            let outcome = &world.outcomes[&(me, 0)];
            prop_assert_eq!(me != who, *outcome == Outcome::Verified);
            let noticed = matches!(outcome, Outcome::Failed { .. } | Outcome::Detected { .. });
            prop_assert_eq!(me == who, noticed);
        }
    }

    /// Any payloads and any digests: everybody still decides, and nobody verifies what differs.
    #[test]
    fn any_inconsistency_ends(
        members in any_members(1..=7_usize), payload in proptest::collection::vec(0..3_u8, 7),
        digest in proptest::collection::vec(0..3_u8, 7), manners in any_manners(), order in any_order(),
    ) {
        let sent = Sent { payload: numbered(members, &payload), digest: numbered(members, &digest) };
        let mut world = World::new(members, std::slice::from_ref(&sent), manners);
        world.run(&order);
        judge_that_all_decide(&world, 0);
        for me in members {
            let below = Ring::new(members, me).unwrap().below(me);
            prop_assert_eq!(world.outcomes[&(me, 0)] == Outcome::Verified, sent.payload[&me] == sent.digest[&below]);
        }
    }

    /// Whatever is thrown at one receiver, it does not panic, completes at most once, and its status stands.
    #[test]
    fn any_events(
        members in any_members(1..=5_usize), events in proptest::collection::vec(any_event(), 0..40),
    ) {
        let me = members.lowest().unwrap();
        let mut receiver = Receiver::new(Ring::new(members, me).unwrap());
        let mut actions = Vec::new();
        let mut status = None;
        for event in events {
            receiver.handle(event, &mut actions);
            prop_assert!(status.is_none() || status == receiver.status());
            status = receiver.status();
        }
        let complete = |action: &&Action| matches!(action, Action::Complete(_));
        prop_assert_eq!(actions.iter().filter(complete).count(), usize::from(receiver.is_complete()));
        prop_assert!(status.is_some() || actions.is_empty());
    }

    /// All-to-all against a plain count, for any values in any order.
    #[test]
    fn all_to_all_votes(
        members in any_members(1..=9_usize), at in any::<usize>(), sent in proptest::collection::vec(0..4_u8, 9),
        order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let values = numbered(members, &sent);
        let me = member(members, at);
        let mut vote = Vote::new(Ring::new(members, me).unwrap());
        let mut verdicts = Vec::new();
        for sender in order.into_iter().filter_map(|position| members.iter().nth(position)) {
            prop_assert!(verdicts.is_empty());
            verdicts.extend(vote.handle(sender, value(values[&sender])));
            prop_assert_eq!(vote.handle(sender, value(9)), None);
        }
        prop_assert_eq!(verdicts.len(), 1);
        let equal = values.values().all(|sent| *sent == values[&me]);
        let good = majority(&values);
        let check = |wrong: ReplicaSet| members.iter().all(|who| wrong.contains(who) == (Some(values[&who]) != good));
        match verdicts.remove(0) {
            Verdict::Verified => prop_assert!(equal),
            Verdict::Detected { suspects } => prop_assert!(!equal && members.len() == 2 && suspects == members),
            Verdict::Keep { wrong } => prop_assert!(!equal && good == Some(values[&me]) && check(wrong)),
            Verdict::Replace { with, wrong } => {
                prop_assert!(good.is_some() && good != Some(values[&me]) && good == Some(values[&with]) && check(wrong));
            }
            Verdict::Failed { values: found } => {
                prop_assert!(good.is_none() && members.len() > 2);
                prop_assert!(found.into_iter().eq(values.into_iter().map(|(who, sent)| (who, value(sent)))));
            }
        }
    }

    /// A history is the last mismatches, for as many as it has room.
    #[test]
    fn history_is_bounded(capacity in 0..6_usize, keys in proptest::collection::vec(0..12_u8, 0..40)) {
        let mut history = History::new(capacity);
        let mut model: Vec<(u8, Status)> = Vec::new();
        for (time, key) in keys.into_iter().enumerate() {
            let status = Status::Mismatch { held: value(time as u8), told: value(100) };
            history.insert(key, status);
            if model.iter().all(|&(known, _)| known != key) {
                model.push((key, status));
            }
            if model.len() > capacity {
                model.remove(0);
            }
            for key in 0..12 {
                let expected = model.iter().find(|&&(known, _)| known == key).map_or(Status::Clean, |&(_, status)| status);
                prop_assert_eq!(history.answer(&key), expected);
            }
        }
    }
}

/// Events about few values from few replicas, some of them strangers, so that they meet.
fn any_event() -> impl Strategy<Value = Event> {
    let few = || (0..3_u8).prop_map(value);
    let who = || prop_oneof![4 => 0..5_u8, 1 => any::<u8>()];
    let status = move || {
        let mismatch = (few(), few()).prop_map(|(held, told)| Status::Mismatch { held, told });
        prop_oneof![1 => Just(Status::Clean), 2 => mismatch]
    };
    prop_oneof![
        few().prop_map(Event::Payload),
        few().prop_map(Event::Told),
        (who(), status()).prop_map(|(from, status)| Event::Probe { from, status }),
        (who(), status()).prop_map(|(from, status)| Event::Answer { from, status }),
        (who(), few()).prop_map(|(from, value)| Event::Correction { from, value }),
    ]
}
