//! Receives: the host's receive, the comparison, and the one request outside.
//!
//! A receive goes through these steps, in this order or with the first two exchanged on the leader of a wildcard:
//! it is *settled* (source, tag and index are known: its identity), its payload is *complete*, what the other replica
//! of the sender has sent is *told*, the comparison ends, the request completes. Everything about one communicator is
//! behind its shadow's lock; calls of the host, which may call us back, are collected in [`Todo`] and made outside it.

use super::communicator::{Inner, Place, Shadow, Whereabouts};
use super::guard::guard;
use super::host::{self, Communicator, MatchedMessage, Request, Status};
use super::message::{self, Buffer, Region};
use super::request::{self, Outer, Role};
use super::runtime::{self, count, lock};
use super::vars::{Collectives, Comparison, Protocol};
use super::{channel, communicator, finalize, identity, outcome, share};
use crate::determinism::order::{Pattern, Settled};
use crate::protocol::all_to_all::{Verdict, Vote};
use crate::protocol::msg_plus_hash::{self, Action, History, Outcome, Receiver};
use crate::protocol::Value;
use crate::report::{Event, EventKind};
use crate::wire::{Body, Control, Key};
use ompi_headers as mpi;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A receive of the application's (or of a collective's).
pub struct Receive {
    outer: *mut Outer,
    shadow: Arc<Shadow>,
    comm: *mut Communicator,
    buffer: Region,
    /// As given, with the wildcards.
    source: c_int,
    tag: c_int,
    /// A message matched by a probe, to be received with imrecv.
    matched: *mut MatchedMessage,
    /// Of the host's own making, and not to be compared (`identity`).
    private: bool,
    // Below: behind the shadow's lock.
    inner: *mut Request,
    ordinal: Option<u64>,
    place: Option<Place>,
    payload: Option<(Status, Value)>,
    freed: bool,
    done: bool,
    /// MPI_Cancel is asking the other replicas.
    cancelling: bool,
    /// The host has cancelled its receive meanwhile.
    withdrawn: Option<Status>,
    /// The host's request is persistent, and not ours to free.
    again: bool,
}

/// The value of a message that is not compared.
pub const UNCOMPARED: Value = Value { length: u64::MAX, digest: crate::digest::Digest([0; 20]) };

/// A message whose comparison is not over.
pub struct Flight {
    receive: *mut Receive,
    machine: Machine,
    told: Option<Value>,
    correction: Option<Vec<u8>>,
    /// Nothing but a digest has arrived.
    quiet: bool,
}

// SAFETY: a flight lives behind its shadow's lock; the receive it points to lives until its request is complete.
unsafe impl Send for Flight {}

enum Machine {
    Ring(Receiver),
    Vote { vote: Vote, copies: Vec<(u8, CopyOf)> },
}

enum CopyOf {
    Announced { from: u32, tag: i32, length: u64 },
    Coming,
    Here(Vec<u8>),
}

impl Flight {
    fn new(tag: i32) -> Self {
        let runtime = runtime::get();
        let machine = match runtime.config.protocol {
            _ if is_local(tag) => Machine::Ring(Receiver::new(runtime.ring)),
            Protocol::MsgPlusHash => Machine::Ring(Receiver::new(runtime.ring)),
            Protocol::AllToAll => Machine::Vote { vote: Vote::new(runtime.ring), copies: Vec::new() },
        };
        Flight { receive: std::ptr::null_mut(), machine, told: None, correction: None, quiet: true }
    }
}

/// Mismatches that were resolved, for probes that come late.
fn history() -> &'static Mutex<History<Key>> {
    static HISTORY: OnceLock<Mutex<History<Key>>> = OnceLock::new();
    HISTORY.get_or_init(|| Mutex::new(History::new(1 << 16)))
}

/// Calls of the host, to be made when no lock is held.
enum Job {
    Post(*mut Receive),
    Complete(*mut Receive),
    Say(u32, Control),
    Correct(u32, Key, Vec<u8>),
    Fetch { from: u32, tag: i32, length: u64, shadow: Arc<Shadow>, place: Place },
    Abort(String),
}

#[derive(Default)]
struct Todo(Vec<Job>);

impl Todo {
    fn run(self) {
        for job in self.0 {
            match job {
                Job::Post(receive) => post(receive),
                Job::Complete(receive) => complete(receive),
                Job::Say(to, control) => channel::control(to, &control, &[]),
                Job::Correct(to, key, bytes) => {
                    channel::with_body(to, |body| Control::Correction(key, body), bytes);
                }
                Job::Fetch { from, tag, length, shadow, place } => {
                    channel::fetch(from, tag, length, move |bytes| copy_arrived(&shadow, place, from, bytes));
                }
                Job::Abort(text) => finalize::abort(&text),
            }
        }
    }
}

/// Runs a body under a shadow's lock, then what it wants done.
fn with<R>(shadow: &Arc<Shadow>, body: impl FnOnce(&mut Inner, &mut Todo) -> R) -> R {
    let mut todo = Todo::default();
    let result = body(&mut lock(&shadow.inner), &mut todo);
    todo.run();
    result
}

// ---- posting ----

/// Posts a receive; the request that the application gets.
pub fn irecv(
    shadow: Arc<Shadow>,
    buffer: Buffer,
    source: c_int,
    tag: c_int,
    comm: *mut Communicator,
) -> Result<*mut Request, c_int> {
    request::reap();
    let receive = new(shadow.clone(), Region::One(buffer), source, tag, comm, std::ptr::null_mut());
    // SAFETY: just made; complete only after it was posted.
    let outer = unsafe { (*receive).outer };
    let pattern = Pattern {
        source: (source != mpi::MPI_ANY_SOURCE).then_some(source),
        tag: (tag != mpi::MPI_ANY_TAG).then_some(tag),
    };
    let leads = runtime::get().leads();
    with(&shadow, |inner, todo| {
        inner.outstanding += 1;
        if leads {
            todo.0.push(Job::Post(receive));
        }
        let mut settled = Vec::new();
        if source != mpi::MPI_ANY_SOURCE {
            inner.tidy(tag);
        }
        match inner.order.post(receive as u64, pattern, &mut settled) {
            // SAFETY: behind the shadow's lock.
            Ok(ordinal) => unsafe { (*receive).ordinal = ordinal },
            Err(error) => todo.0.push(diverged(&shadow, &error)),
        }
        settle(&shadow, inner, settled, todo);
    });
    // SAFETY: the request lives until the application gives it up.
    Ok(unsafe { &raw mut (*outer).super_ })
}

/// Receives a message that a matched probe has taken out, and whose place is known.
pub fn imrecv(
    shadow: Arc<Shadow>,
    buffer: Buffer,
    matched: *mut MatchedMessage,
    comm: *mut Communicator,
    place: Place,
) -> *mut Request {
    request::reap();
    let receive = new(shadow.clone(), Region::One(buffer), place.0, place.1, comm, matched);
    // SAFETY: just made.
    let outer = unsafe { (*receive).outer };
    with(&shadow, |inner, todo| {
        inner.outstanding += 1;
        attach(&shadow, inner, receive, place, todo);
        todo.0.push(Job::Post(receive));
    });
    // SAFETY: the request lives until the application gives it up.
    unsafe { &raw mut (*outer).super_ }
}

fn new(
    shadow: Arc<Shadow>,
    buffer: Region,
    source: c_int,
    tag: c_int,
    comm: *mut Communicator,
    matched: *mut MatchedMessage,
) -> *mut Receive {
    buffer.retain();
    // SAFETY: a live communicator; released in `destroy`.
    unsafe { mpi::redmpi_shim_comm_retain(comm) };
    let receive = Box::into_raw(Box::new(Receive {
        outer: std::ptr::null_mut(),
        shadow,
        comm,
        buffer,
        source,
        tag,
        matched,
        private: identity::private(),
        inner: std::ptr::null_mut(),
        ordinal: None,
        place: None,
        payload: None,
        freed: false,
        done: false,
        cancelling: false,
        withdrawn: None,
        again: false,
    }));
    let outer = request::new(comm, false, receive.cast(), Some(free), Some(cancel));
    // SAFETY: just made.
    unsafe { (*receive).outer = outer };
    request::set_role(outer, Role::Receive);
    receive
}

/// Gives settled receives their place, and posts them where that had to wait for it.
fn settle(shadow: &Arc<Shadow>, inner: &mut Inner, settled: Vec<Settled>, todo: &mut Todo) {
    let leads = runtime::get().leads();
    for Settled { ticket, source, tag, index } in settled {
        let receive = ticket as *mut Receive;
        attach(shadow, inner, receive, (source, tag, index), todo);
        if !leads {
            todo.0.push(Job::Post(receive));
        }
    }
}

fn attach(shadow: &Arc<Shadow>, inner: &mut Inner, receive: *mut Receive, place: Place, todo: &mut Todo) {
    let flight = inner.flights.entry(place).or_insert_with(|| Flight::new(place.1));
    flight.receive = receive;
    if let Machine::Vote { copies, .. } = &mut flight.machine {
        for (_, copy) in copies {
            if let CopyOf::Announced { from, tag, length } = *copy {
                *copy = CopyOf::Coming;
                todo.0.push(Job::Fetch { from, tag, length, shadow: shadow.clone(), place });
            }
        }
    }
    // SAFETY: behind the shadow's lock.
    let payload = unsafe {
        (*receive).place = Some(place);
        (*receive).payload
    };
    if payload.is_some() {
        offer(shadow, inner, place, todo);
    }
}

fn post(receive: *mut Receive) {
    // SAFETY: not complete before it was posted; the fields read here do not change, `place` was settled or the
    // pattern is used.
    let (buffer, source, tag, comm, matched) = unsafe {
        let (source, tag) = match (*receive).place {
            Some((source, tag, _)) if !runtime::get().leads() => (source, tag),
            _ => ((*receive).source, (*receive).tag),
        };
        ((*receive).buffer.one(), source, tag, (*receive).comm, &raw mut (*receive).matched)
    };
    // SAFETY: as above.
    let posted = if unsafe { (*matched).is_null() } {
        host::irecv(buffer.address, buffer.count, buffer.datatype, source, tag, comm)
    } else {
        host::imrecv(buffer.address, buffer.count, buffer.datatype, matched)
    };
    match posted {
        Ok(inner) => {
            // SAFETY: still ours; the callback is registered only in the next line.
            unsafe { (*receive).inner = inner };
            if !request::on_completion(inner, payload_complete, receive.cast()) {
                payload(receive, inner);
            }
        }
        Err(error) => finalize::abort(&format!("the host PML refused a receive (error {error})")),
    }
}

// ---- the payload ----

unsafe extern "C" fn payload_complete(inner: *mut Request) -> c_int {
    guard("end of a receive", 0, || {
        payload(request::data(inner).cast(), inner);
        0
    })
}

fn payload(receive: *mut Receive, inner_request: *mut Request) {
    // SAFETY: the host has filled the status; the receive lives until its request is complete.
    let (status, shadow, buffer, private) = unsafe {
        (*receive).inner = std::ptr::null_mut();
        ((*inner_request).req_status, (*receive).shadow.clone(), &(*receive).buffer, (*receive).private)
    };
    request::retire(inner_request);
    HEARD.fetch_add(1, Ordering::Relaxed);
    if status._cancelled != 0 {
        let asked = {
            let _inner = lock(&shadow.inner);
            // SAFETY: behind the lock.
            unsafe {
                if (*receive).cancelling {
                    (*receive).withdrawn = Some(status);
                }
                (*receive).cancelling
            }
        };
        if !asked {
            withdrawn(receive, &shadow, status);
        }
        return;
    }
    let truncated = status.MPI_ERROR != 0;
    let length = status._ucount as u64;
    let runtime = runtime::get();
    let value = match (runtime.config.comparison, truncated) {
        _ if private => UNCOMPARED,
        (Comparison::Digest(algorithm), false) => buffer.value(algorithm, length),
        _ => Value { length, digest: message::class(0) },
    };
    let leads = runtime.leads();
    with(&shadow, |inner, todo| {
        // SAFETY: behind the shadow's lock.
        let (place, ordinal) = unsafe {
            (*receive).payload = Some((status, value));
            ((*receive).place, (*receive).ordinal)
        };
        if let Some(place) = place {
            offer(&shadow, inner, place, todo);
        } else if leads {
            // Not settled: behind a wildcard, or one itself. What the host has matched decides, for all replicas.
            let mut settled = Vec::new();
            if let Some(ordinal) = ordinal {
                let resolved = inner.order.resolve(receive as u64, status.MPI_SOURCE, status.MPI_TAG, &mut settled);
                if let Err(error) = resolved {
                    todo.0.push(diverged(&shadow, &error));
                }
                let envelope =
                    Control::Envelope { comm: shadow.id, ordinal, source: status.MPI_SOURCE, tag: status.MPI_TAG };
                for twin in runtime.twins() {
                    todo.0.push(Job::Say(twin, envelope));
                }
            }
            settle(&shadow, inner, settled, todo);
        }
    });
}

/// A cancelled receive completes as cancelled.
fn withdrawn(receive: *mut Receive, shadow: &Arc<Shadow>, status: Status) {
    with(shadow, |inner, todo| {
        let mut settled = Vec::new();
        // SAFETY: behind the shadow's lock.
        match unsafe { (*receive).place } {
            Some(place) => give_back(inner, place),
            None => {
                inner.order.cancel(receive as u64, &mut settled);
            }
        }
        // SAFETY: as above.
        unsafe { (*receive).payload = Some((status, Value::default())) };
        settle(shadow, inner, settled, todo);
        todo.0.push(Job::Complete(receive));
    });
}

/// A settled receive was withdrawn: its place belongs to the next receive of the same source and tag.
fn give_back(inner: &mut Inner, (source, tag, index): Place) {
    let later = inner.order.take_back(source, tag, index).unwrap_or(0);
    for index in index..index + later {
        let next = inner
            .flights
            .get_mut(&(source, tag, index + 1))
            .map(|flight| std::mem::replace(&mut flight.receive, std::ptr::null_mut()));
        let next = next.unwrap_or(std::ptr::null_mut());
        if let Some(flight) = inner.flights.get_mut(&(source, tag, index)) {
            flight.receive = next;
        }
        if !next.is_null() {
            // SAFETY: behind the shadow's lock; it has no message yet, as an earlier one had none.
            unsafe { (*next).place = Some((source, tag, index)) };
        }
    }
    let last = (source, tag, index + later);
    if let Some(flight) = inner.flights.get_mut(&last) {
        flight.receive = std::ptr::null_mut();
        let known = match &flight.machine {
            Machine::Ring(_) => flight.told.is_some(),
            Machine::Vote { copies, .. } => !copies.is_empty(),
        };
        if !known {
            inner.flights.remove(&last);
        }
    }
}

/// The replicas have done different things.
fn diverged(shadow: &Shadow, error: &dyn std::fmt::Display) -> Job {
    Job::Abort(format!("the replicas have diverged on {}: {error}", shadow.name()))
}

/// Brings the payload and what is known of the other copies together.
fn offer(shadow: &Arc<Shadow>, inner: &mut Inner, place: Place, todo: &mut Todo) {
    let Some(flight) = inner.flights.get_mut(&place) else { return };
    if flight.receive.is_null() {
        return;
    }
    // SAFETY: behind the shadow's lock; a flight's receive is not complete.
    let Some((status, mut value)) = (unsafe { (*flight.receive).payload }) else { return };
    let truncated = status.MPI_ERROR != 0;
    let mut actions = Vec::new();
    match &mut flight.machine {
        Machine::Ring(receiver) => {
            if truncated && value != UNCOMPARED {
                // The rest of the message was never received here: only its length can be compared.
                let Some(told) = flight.told else { return };
                if told.length == value.length {
                    value = told;
                }
            }
            receiver.handle(msg_plus_hash::Event::Payload(value), &mut actions);
            act(shadow, inner, place, actions, todo);
        }
        Machine::Vote { .. } => vote(shadow, inner, place, todo),
    }
}

// ---- MsgPlusHash ----

fn act(shadow: &Arc<Shadow>, inner: &mut Inner, place: Place, actions: Vec<Action>, todo: &mut Todo) {
    let runtime = runtime::get();
    let key = key(shadow, place);
    let twin = |replica: u8| runtime.map.native_of(runtime.virtual_rank, u32::from(replica));
    for action in actions {
        match action {
            Action::Probe { to, status } => todo.0.push(Job::Say(twin(to), Control::Probe(key, status))),
            Action::Answer { to, status } => todo.0.push(Job::Say(twin(to), Control::Answer(key, status))),
            Action::Correct { to } => {
                if let Some(flight) = inner.flights.get(&place) {
                    // SAFETY: behind the shadow's lock; the receive is not complete, so the payload is still there.
                    let bytes = unsafe {
                        let length = (*flight.receive).payload.map_or(0, |(_, value)| value.length);
                        let buffer = &(*flight.receive).buffer;
                        buffer.gather(length)
                    };
                    todo.0.push(Job::Correct(twin(to), key, bytes));
                }
            }
            Action::Complete(outcome) => {
                let Some(flight) = inner.flights.remove(&place) else { continue };
                if let Machine::Ring(receiver) = &flight.machine {
                    if !matches!(outcome, Outcome::Verified) {
                        if let Some(status) = receiver.status() {
                            lock(history()).insert(key, status);
                        }
                    }
                }
                conclude(shadow, place, flight, outcome, todo);
            }
        }
    }
}

/// The comparison is over.
fn conclude(shadow: &Arc<Shadow>, place: Place, flight: Flight, outcome: Outcome, todo: &mut Todo) {
    let runtime = runtime::get();
    let counters = &runtime.counters;
    let class = counters.class(place.1);
    count(&class.verified);
    let sender = |replica: u8| runtime.map.native_of(origin(shadow, place), u32::from(replica));
    // SAFETY: behind the shadow's lock.
    let bytes = unsafe { (*flight.receive).payload.map_or(0, |(_, value)| value.length) };
    let event = |kind: EventKind, peer: u32| Event {
        kind,
        native: runtime.native,
        peer: Some(peer),
        communicator: shadow.name(),
        tag: (!is_local(place.1)).then_some(place.1),
        bytes,
        time_s: runtime.seconds(),
    };
    match outcome {
        Outcome::Verified => {}
        Outcome::Kept { wrong } => {
            log::debug!("kept the good message {place:?}, wrong were replicas {wrong:?}");
        }
        Outcome::Corrected { .. } => {
            count(&class.mismatched);
            count(&class.corrected);
            let suspect = sender(runtime.ring.me());
            counters.suspect(suspect);
            counters.event(event(EventKind::Corrected, suspect));
            if let Some(correction) = &flight.correction {
                correct(flight.receive, correction);
            }
        }
        Outcome::Detected { suspects } => {
            // Both replicas have seen the same pair of messages; it is counted once.
            if runtime.leads() {
                count(&class.mismatched);
                count(&class.uncorrectable);
                for replica in suspects.iter() {
                    counters.suspect(sender(replica));
                }
            }
            counters.event(event(EventKind::Detected, sender(runtime.ring.me())));
        }
        Outcome::Failed { values } => {
            count(&class.mismatched);
            count(&class.uncorrectable);
            count(&counters.failed);
            for (replica, _) in &values {
                counters.suspect(sender(*replica));
            }
            counters.event(event(EventKind::Failed, sender(runtime.ring.me())));
            todo.0.push(Job::Abort(failure(shadow, place, &values)));
            return;
        }
    }
    todo.0.push(Job::Complete(flight.receive));
}

/// The text of a vote without majority.
fn failure(shadow: &Shadow, place: Place, values: &[(u8, Option<Value>)]) -> String {
    let runtime = runtime::get();
    let peer = origin(shadow, place);
    let mut text = if is_local(place.1) {
        format!(
            "no majority: the replicas of virtual rank {} disagree about the {} of a collective operation.\n  \
             communicator {}, operation {} there (from 0). What its processes have:",
            runtime.virtual_rank,
            if place.1 == INPUT { "contribution to" } else { "result" },
            shadow.name(),
            place.2,
        )
        .replace("contribution to of", "contribution to")
    } else {
        format!(
        "no majority: virtual rank {} (native rank {}) received a message of which the replicas of its sender disagree.\n  \
         communicator {}, tag {}, message {} from rank {} (virtual rank {peer}). What the sender's processes sent:",
        runtime.virtual_rank,
        runtime.native,
        shadow.name(),
        place.1,
        place.2,
        place.0
        )
    };
    for (replica, value) in values {
        let native = runtime.map.native_of(peer, u32::from(*replica));
        let what = match value {
            Some(value) => {
                let digest: String = value.digest.0[..8].iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{} bytes, digest {digest}", value.length)
            }
            None => String::from("not known"),
        };
        text.push_str(&format!("\n    native rank {native} (replica {replica}): {what}"));
    }
    text
}

/// Replaces the wrong message in the application's buffer.
fn correct(receive: *mut Receive, bytes: &[u8]) {
    // SAFETY: behind the shadow's lock; the receive is not complete, so the buffer is ours.
    unsafe {
        let buffer = &(*receive).buffer;
        buffer.scatter(bytes);
        if let Some((status, _)) = &mut (*receive).payload {
            status._ucount = bytes.len();
            let fits = bytes.len() as u64 <= buffer.size();
            status.MPI_ERROR = if fits { 0 } else { mpi::MPI_ERR_TRUNCATE as c_int };
        }
    }
}

// ---- All-to-all ----

/// Votes when all copies are here.
fn vote(shadow: &Arc<Shadow>, inner: &mut Inner, place: Place, todo: &mut Todo) {
    let runtime = runtime::get();
    let Some(flight) = inner.flights.get_mut(&place) else { return };
    let receive = flight.receive;
    let Machine::Vote { vote, copies } = &mut flight.machine else { return };
    if receive.is_null() {
        return;
    }
    // SAFETY: behind the shadow's lock.
    let (Some((status, own)), buffer) = (unsafe { ((*receive).payload, &(*receive).buffer) }) else { return };
    if copies.len() + 1 < runtime.ring.len() || copies.iter().any(|(_, copy)| !matches!(copy, CopyOf::Here(_))) {
        return;
    }
    // Copies of private messages are empty; they are only waited for.
    let private = own == UNCOMPARED;
    let fits = own.length.min(buffer.size());
    let mut classes: Vec<&[u8]> = Vec::new();
    let mut verdict = vote.handle(runtime.ring.me(), Value { length: own.length, ..own });
    for (replica, copy) in copies.iter() {
        let CopyOf::Here(bytes) = copy else { return };
        let length = bytes.len() as u64;
        // A truncated message is compared as far as it was received.
        let cut = || status.MPI_ERROR != 0 && length == own.length && buffer.equals(&bytes[..fits as usize]);
        let value = if private || cut() {
            own
        } else {
            match runtime.config.comparison {
                Comparison::Digest(algorithm) => Value { length, digest: crate::digest::digest(algorithm, bytes) },
                Comparison::Memcmp if length == own.length && buffer.equals(bytes) => own,
                Comparison::Memcmp => {
                    let known = classes.iter().position(|class| class == bytes).unwrap_or_else(|| {
                        classes.push(bytes);
                        classes.len() - 1
                    });
                    Value { length, digest: message::class(known as u8 + 1) }
                }
            }
        };
        verdict = vote.handle(*replica, value).or(verdict);
    }
    let Some(verdict) = verdict else { return };
    let Some(mut flight) = inner.flights.remove(&place) else { return };
    let outcome = match verdict {
        Verdict::Verified => Outcome::Verified,
        Verdict::Keep { wrong } => Outcome::Kept { wrong },
        Verdict::Replace { with, wrong } => {
            if let Machine::Vote { copies, .. } = &mut flight.machine {
                let good = copies.iter_mut().find(|(replica, _)| *replica == with);
                if let Some((_, CopyOf::Here(bytes))) = good {
                    flight.correction = Some(std::mem::take(bytes));
                }
            }
            Outcome::Corrected { wrong }
        }
        Verdict::Detected { suspects } => Outcome::Detected { suspects },
        Verdict::Failed { values } => {
            Outcome::Failed { values: values.into_iter().map(|(replica, value)| (replica, Some(value))).collect() }
        }
    };
    conclude(shadow, place, flight, outcome, todo);
}

fn copy_arrived(shadow: &Arc<Shadow>, place: Place, from: u32, bytes: Vec<u8>) {
    let replica = runtime::get().map.replica_of(from) as u8;
    with(shadow, |inner, todo| {
        if let Some(Flight { machine: Machine::Vote { copies, .. }, .. }) = inner.flights.get_mut(&place) {
            if let Some(copy) = copies.iter_mut().find(|(known, _)| *known == replica) {
                copy.1 = CopyOf::Here(bytes);
            }
        }
        vote(shadow, inner, place, todo);
    });
}

/// Messages that have arrived here and are not compared yet, and whose word each waits for.
pub fn overdue(shadow: &Shadow, inner: &Inner) -> Vec<(Place, u32)> {
    let runtime = runtime::get();
    let mut overdue = Vec::new();
    for (place, flight) in &inner.flights {
        // SAFETY: behind the shadow's lock, which the caller holds; a flight's receive is not complete.
        if flight.receive.is_null() || unsafe { (*flight.receive).payload.is_none() } {
            continue;
        }
        let native = |replica: u8| runtime.map.native_of(origin(shadow, *place), u32::from(replica));
        match &flight.machine {
            Machine::Ring(_) => overdue.push((*place, native(runtime.ring.below(runtime.ring.me())))),
            Machine::Vote { copies, .. } => {
                let here = |replica: u8| {
                    replica == runtime.ring.me()
                        || copies.iter().any(|(from, copy)| *from == replica && matches!(copy, CopyOf::Here(_)))
                };
                overdue
                    .extend(runtime.ring.iter().find(|replica| !here(*replica)).map(|late| (*place, native(late))));
            }
        }
    }
    overdue
}

/// Whether a request is a receive whose message is here and whose comparison is not over.
pub fn is_nearly_complete(request: *mut Request) -> bool {
    let Some(state) = request::state_of(request, Role::Receive) else { return false };
    let receive: *mut Receive = state.cast();
    // SAFETY: a receive lives until its request is freed.
    let shadow = unsafe { (*receive).shadow.clone() };
    let _inner = lock(&shadow.inner);
    // SAFETY: behind the lock.
    unsafe { (*receive).payload.is_some() && !(*receive).done }
}

/// Messages of any kind that have arrived so far.
pub fn heard_so_far() -> u64 {
    HEARD.load(Ordering::Relaxed)
}

static HEARD: AtomicU64 = AtomicU64::new(0);

// ---- completion ----

fn complete(receive: *mut Receive) {
    // SAFETY: the comparison is over, so nobody but the application's side (under the lock) and we know the receive.
    let (outer, shadow) = unsafe {
        let receive = &*receive;
        if let Some((status, _)) = receive.payload {
            (*receive.outer).super_.req_status = status;
        }
        (receive.outer, receive.shadow.clone())
    };
    request::complete(outer);
    // The application may have given the request up before or just now; it left the rest to us then.
    let (destroy_now, gone) = {
        let mut inner = lock(&shadow.inner);
        inner.outstanding -= 1;
        // SAFETY: behind the lock; `free` destroys it only if `done` is set.
        unsafe {
            (*receive).done = true;
            ((*receive).freed, inner.freed && inner.outstanding == 0)
        }
    };
    if gone {
        lock(&runtime::get().registry).forget(shadow.id);
    }
    if destroy_now {
        destroy(receive);
    }
}

fn destroy(receive: *mut Receive) {
    // SAFETY: complete and given up; made by `Box::into_raw` in `new`.
    let receive = unsafe { Box::from_raw(receive) };
    receive.buffer.release();
    request::destroy(receive.outer);
    // SAFETY: retained in `new`.
    unsafe { mpi::redmpi_shim_comm_release(receive.comm) };
}

unsafe extern "C" fn free(request: *mut *mut Request) -> c_int {
    guard("MPI_Request_free", host::ERROR, || {
        // SAFETY: Open MPI passes a request of ours.
        let receive: *mut Receive = unsafe {
            let outer = (*request).cast::<Outer>();
            *request = request::null();
            (*outer).state.cast()
        };
        // SAFETY: a receive lives until its request is freed and complete.
        let shadow = unsafe { (*receive).shadow.clone() };
        let done = {
            let _inner = lock(&shadow.inner);
            // SAFETY: behind the lock.
            unsafe {
                (*receive).freed = true;
                (*receive).done
            }
        };
        if done {
            destroy(receive);
        }
        // The host's request holds on to the communicator, whose context id must come free as early as without us.
        request::reap();
        host::SUCCESS
    })
}

unsafe extern "C" fn cancel(request: *mut Request, _complete: c_int) -> c_int {
    guard("MPI_Cancel", host::ERROR, || {
        // SAFETY: Open MPI passes an active request of ours.
        let receive: *mut Receive = unsafe { (*request.cast::<Outer>()).state.cast() };
        // SAFETY: as above.
        let shadow = unsafe { (*receive).shadow.clone() };
        let (inner, open) = {
            let _inner = lock(&shadow.inner);
            // SAFETY: behind the lock.
            unsafe {
                let open = !(*receive).done && (*receive).payload.is_none();
                (*receive).cancelling = open;
                ((*receive).inner, open)
            }
        };
        // A follower's receive that waits for its envelope is not posted, and nobody else knows of it.
        let unposted = open && inner.is_null();
        if open && !inner.is_null() {
            request::cancel(inner);
        }
        // Whether a message was faster is a matter of timing: the receive is cancelled in all replicas or in none. One
        // that was withdrawn in vain is posted again; its message is the one that the others have received.
        let mine = {
            let _inner = lock(&shadow.inner);
            // SAFETY: behind the lock.
            unsafe { unposted && (*receive).inner.is_null() || (*receive).withdrawn.is_some() }
        };
        let cancelled = outcome::all_withdrawn(&shadow, mine);
        let withdrawn = {
            let _inner = lock(&shadow.inner);
            // SAFETY: behind the lock.
            unsafe {
                (*receive).cancelling = false;
                (*receive).withdrawn.take()
            }
        };
        if cancelled {
            let status = withdrawn.unwrap_or_else(|| {
                // SAFETY: plain data; all zero is a valid status.
                let mut status: Status = unsafe { std::mem::zeroed() };
                status._cancelled = 1;
                status.MPI_SOURCE = mpi::MPI_ANY_SOURCE;
                status.MPI_TAG = mpi::MPI_ANY_TAG;
                status
            });
            self::withdrawn(receive, &shadow, status);
        } else if withdrawn.is_some() {
            post(receive);
        }
        host::SUCCESS
    })
}

// ---- what the other replicas say ----

fn key(shadow: &Shadow, place: Place) -> Key {
    Key { comm: shadow.id, source: place.0, tag: place.1, index: place.2 }
}

/// Handles a control message.
pub fn control(from: u32, bytes: &[u8]) {
    let Some((control, rest)) = Control::decode(bytes) else {
        finalize::abort(&format!(
            "native rank {from} sent a control message that cannot be read ({} bytes)",
            bytes.len()
        ));
        return;
    };
    match control {
        Control::Shared { comm, kind, ordinal, body } => share::told(from, comm, kind, ordinal, body, rest),
        Control::Heeded(count) => outcome::heeded(from, count),
        Control::Wanted { comm, kind, ordinal } => share::wanted(from, comm, kind, ordinal),
        Control::Loose { comm, kind } => share::loosen(comm, kind),
        // Not a sign of life: it is said that nothing happens.
        Control::Where => share::asked(from),
        Control::Here { finalizing } => share::answered(from, finalizing, rest),
        Control::Report(body) => finalize::report_arrived(from, body, rest),
        Control::Done(code) => finalize::done(code),
        Control::Agree(hash) => runtime::compare(from, hash),
        _ => {
            HEARD.fetch_add(1, Ordering::Relaxed);
            let Some(id) = control.comm() else { return };
            let whereabouts = lock(&runtime::get().registry).find(id, from, bytes);
            match (whereabouts, control) {
                (Whereabouts::Here(shadow), control) => heard(&shadow, from, control, rest),
                (Whereabouts::Gone, Control::Probe(key, _)) => {
                    let status = lock(history()).answer(&key);
                    channel::control(from, &Control::Answer(key, status), &[]);
                }
                (Whereabouts::Gone, control) => log::debug!("of a communicator that is gone: {control:?}"),
                (Whereabouts::Kept, _) => {}
            }
        }
    }
}

fn heard(shadow: &Arc<Shadow>, from: u32, control: Control, rest: &[u8]) {
    let runtime = runtime::get();
    let replica = runtime.map.replica_of(from) as u8;
    match control {
        Control::Told(key, value) => with(shadow, |inner, todo| {
            let place = (key.source, key.tag, key.index);
            let flight = inner.flights.entry(place).or_insert_with(|| Flight::new(place.1));
            flight.told = Some(value);
            let mut actions = Vec::new();
            if let Machine::Ring(receiver) = &mut flight.machine {
                receiver.handle(msg_plus_hash::Event::Told(value), &mut actions);
            }
            act(shadow, inner, place, actions, todo);
            // A truncated payload waits for what is told.
            offer(shadow, inner, place, todo);
        }),
        Control::Probe(key, status) => with(shadow, |inner, todo| {
            let place = (key.source, key.tag, key.index);
            let given = match inner.local(key.tag) {
                Some(local) => *local,
                None => inner.order.given(key.source, key.tag),
            };
            if !inner.flights.contains_key(&place) && key.index < given {
                let status = lock(history()).answer(&key);
                todo.0.push(Job::Say(from, Control::Answer(key, status)));
                return;
            }
            feed(shadow, inner, place, msg_plus_hash::Event::Probe { from: replica, status }, todo);
        }),
        Control::Answer(key, status) => with(shadow, |inner, todo| {
            let place = (key.source, key.tag, key.index);
            if inner.flights.contains_key(&place) {
                feed(shadow, inner, place, msg_plus_hash::Event::Answer { from: replica, status }, todo);
            }
        }),
        Control::Correction(key, Body::Inline) => correction(shadow, key, replica, rest.to_vec()),
        Control::Correction(key, Body::Announced { tag, length }) => {
            let shadow = shadow.clone();
            channel::fetch(from, tag, length, move |bytes| correction(&shadow, key, replica, bytes));
        }
        Control::Copy(key, body) => with(shadow, |inner, todo| {
            let place = (key.source, key.tag, key.index);
            let flight = inner.flights.entry(place).or_insert_with(|| Flight::new(place.1));
            let settled = !flight.receive.is_null();
            if let Machine::Vote { copies, .. } = &mut flight.machine {
                let copy = match body {
                    Body::Inline => CopyOf::Here(rest.to_vec()),
                    // Fetched when a receive is there for it, as the host does with large messages.
                    Body::Announced { tag, length } if settled => {
                        todo.0.push(Job::Fetch { from, tag, length, shadow: shadow.clone(), place });
                        CopyOf::Coming
                    }
                    Body::Announced { tag, length } => CopyOf::Announced { from, tag, length },
                };
                copies.push((replica, copy));
            }
            vote(shadow, inner, place, todo);
        }),
        Control::Envelope { ordinal, source, tag, .. } => with(shadow, |inner, todo| {
            let mut settled = Vec::new();
            if let Err(error) = inner.order.envelope(ordinal, source, tag, &mut settled) {
                todo.0.push(diverged(shadow, &error));
            }
            settle(shadow, inner, settled, todo);
        }),
        Control::Decided { ordinal, run, on, body, .. } => {
            outcome::decided(shadow, from, ordinal, run, on, body, rest);
        }
        Control::Shared { .. }
        | Control::Wanted { .. }
        | Control::Loose { .. }
        | Control::Heeded(_)
        | Control::Where
        | Control::Here { .. }
        | Control::Report(_)
        | Control::Done(_)
        | Control::Agree(_) => {}
    }
}

fn feed(shadow: &Arc<Shadow>, inner: &mut Inner, place: Place, event: msg_plus_hash::Event, todo: &mut Todo) {
    let flight = inner.flights.entry(place).or_insert_with(|| Flight::new(place.1));
    flight.quiet = false;
    let mut actions = Vec::new();
    if let Machine::Ring(receiver) = &mut flight.machine {
        receiver.handle(event, &mut actions);
    }
    act(shadow, inner, place, actions, todo);
}

fn correction(shadow: &Arc<Shadow>, key: Key, replica: u8, bytes: Vec<u8>) {
    let algorithm = runtime::get().config.comparison.algorithm();
    let value = Value { length: bytes.len() as u64, digest: crate::digest::digest(algorithm, &bytes) };
    with(shadow, |inner, todo| {
        let place = (key.source, key.tag, key.index);
        let Some(flight) = inner.flights.get_mut(&place) else { return };
        flight.correction = Some(bytes);
        feed(shadow, inner, place, msg_plus_hash::Event::Correction { from: replica, value }, todo);
    });
}

/// The shadow of a communicator whose messages with this tag are verified; `None`: leave them to the host. The
/// messages inside collectives are, where their results are compared.
#[inline]
pub fn protected(comm: *mut Communicator, tag: c_int) -> Option<Arc<Shadow>> {
    let runtime = runtime::get();
    if !runtime.verifies()
        || (tag < mpi::MPI_ANY_TAG && runtime.config.collectives != Collectives::PointToPoint)
        || identity::left_alone()
    {
        return None;
    }
    communicator::shadow(comm)
}

// ---- what every rank has for itself: contributions to collectives and their results ----

/// "Tags" of a rank's own values; no message has them.
pub const RESULT: i32 = i32::MIN;
/// The same, before the operation.
pub const INPUT: i32 = i32::MIN + 1;

/// Whether a value is a rank's own, and no message.
pub fn is_local(tag: i32) -> bool {
    tag <= INPUT
}

/// Virtual rank whose replicas have sent a message, or hold a value.
fn origin(shadow: &Shadow, place: Place) -> u32 {
    if is_local(place.1) {
        runtime::get().virtual_rank
    } else {
        shadow.peer(place.0)
    }
}

/// The place of the next value of this kind.
pub fn local_place(shadow: &Shadow, tag: i32) -> Place {
    let mut inner = lock(&shadow.inner);
    let next = inner.local(tag).expect("a rank's own value");
    *next += 1;
    (shadow.rank, tag, *next - 1)
}

fn tell_local(shadow: &Shadow, place: Place, value: Value) {
    let runtime = runtime::get();
    let above = runtime.map.native_of(runtime.virtual_rank, u32::from(runtime.ring.above(runtime.ring.me())));
    channel::control(above, &Control::Told(key(shadow, place), value), &[]);
}

/// Compares a region with the other replicas' and corrects it, before it returns.
pub fn compare(shadow: &Arc<Shadow>, comm: *mut Communicator, tag: i32, region: Region) -> c_int {
    let runtime = runtime::get();
    request::reap();
    let place = local_place(shadow, tag);
    let value = region.value(runtime.config.comparison.algorithm(), region.size());
    tell_local(shadow, place, value);
    {
        let mut inner = lock(&shadow.inner);
        if inner.flights.get(&place).is_some_and(|flight| flight.quiet && flight.told == Some(value)) {
            inner.flights.remove(&place);
            count(&runtime.counters.class(tag).verified);
            return host::SUCCESS;
        }
    }
    let receive = begin(shadow, comm, place, region);
    // SAFETY: just made; it is complete when it is freed.
    let mut outer: *mut Request = unsafe { &raw mut (*(*receive).outer).super_ };
    have(receive, empty(), value);
    // SAFETY: ours; the wait ends with the comparison.
    unsafe {
        mpi::redmpi_shim_request_wait(outer);
        let error = (*outer).req_status.MPI_ERROR;
        mpi::redmpi_shim_request_free(&mut outer);
        error
    }
}

/// A receive that takes no message: its value comes with [`have`].
pub fn begin(shadow: &Arc<Shadow>, comm: *mut Communicator, place: Place, region: Region) -> *mut Receive {
    let receive = new(shadow.clone(), region, place.0, place.1, comm, std::ptr::null_mut());
    // SAFETY: just made.
    unsafe { (*(*receive).outer).super_.req_type = mpi::OMPI_REQUEST_COLL };
    with(shadow, |inner, todo| {
        inner.outstanding += 1;
        attach(shadow, inner, receive, place, todo);
    });
    receive
}

/// The value is there.
pub fn have(receive: *mut Receive, status: Status, value: Value) {
    // SAFETY: lives until its comparison is over.
    let shadow = unsafe { (*receive).shadow.clone() };
    with(&shadow, |inner, todo| {
        // SAFETY: behind the shadow's lock.
        let place = unsafe {
            (*receive).payload = Some((status, value));
            (*receive).place
        };
        if let Some(place) = place {
            offer(&shadow, inner, place, todo);
        }
    });
}

/// An operation of the host is under way whose result is compared when it completes; the request that the application
/// gets instead. `again`: the host's request is persistent and stays.
pub fn follow(
    shadow: &Arc<Shadow>,
    comm: *mut Communicator,
    region: Region,
    request: *mut Request,
    again: bool,
) -> *mut Request {
    let receive = begin(shadow, comm, local_place(shadow, RESULT), region);
    // SAFETY: just made; complete only after the host's.
    let outer = unsafe {
        (*receive).inner = request;
        (*receive).again = again;
        (*(*receive).outer).super_.req_cancel = None;
        &raw mut (*(*receive).outer).super_
    };
    if request::is_complete(request) || !request::on_completion(request, operation_complete, receive.cast()) {
        operation(receive, request);
    }
    outer
}

unsafe extern "C" fn operation_complete(request: *mut Request) -> c_int {
    guard("end of a collective operation", 0, || {
        operation(request::data(request).cast(), request);
        0
    })
}

fn operation(receive: *mut Receive, request: *mut Request) {
    // SAFETY: the host has filled the status; the receive lives until its request is complete.
    let (status, shadow, region, place, again) = unsafe {
        (*receive).inner = std::ptr::null_mut();
        let place = (*receive).place.expect("given when it began");
        ((*request).req_status, (*receive).shadow.clone(), &(*receive).buffer, place, (*receive).again)
    };
    if !again {
        request::retire(request);
    }
    super::collective::inject_output(region, &shadow);
    let value = if status.MPI_ERROR == 0 {
        region.value(runtime::get().config.comparison.algorithm(), region.size())
    } else {
        UNCOMPARED
    };
    tell_local(&shadow, place, value);
    have(receive, status, value);
}

fn empty() -> Status {
    // SAFETY: plain data; all zero is a valid status.
    unsafe { std::mem::zeroed() }
}
