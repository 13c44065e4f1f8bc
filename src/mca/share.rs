//! Values that the replicas of one virtual rank share, and the one way to wait for another process.
//!
//! A value is known by its kind and its number: the n-th one that this process shares of that kind is the n-th of its
//! twins. So nothing has to arrive in order, and one kind cannot bring another out of step.
//!
//! Whoever waits for another process waits here ([`wait`]): after a while it asks that process where it is. A process
//! that is in MPI_Finalize will not come any more: the replicas have diverged, and the job ends with both sides' texts.
//! One that says something else is waited for as long as `pml_redmpi_patience` allows.

use super::runtime::{self, lock};
use super::{channel, finalize, host, output, receive, request, watch};
use crate::wire::{Body, CommId, Control};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Sender, communicator, kind, number.
type Label = (u32, CommId, u8, u64);

static TOLD: Mutex<Option<FxHashMap<Label, Vec<u8>>>> = Mutex::new(None);
static NEXT: Mutex<Option<FxHashMap<(CommId, u8), u64>>> = Mutex::new(None);
static THREAD: Mutex<Option<ThreadId>> = Mutex::new(None);
static OPEN: AtomicBool = AtomicBool::new(false);

/// No communicator.
pub const NONE: CommId = CommId { members: 0, incarnation: 0 };

/// The kinds of other modules' values; those of clocks are 0 to 31, of other sources 32 to 63, of the standard streams
/// 64 to 79, of files 80 to 111, of tests 112 to 127.
pub mod kind {
    /// Whether a receive could be cancelled.
    pub const CANCEL: u8 = 128;
    /// What one-sided communication has brought, where that depends on timing.
    pub const WINDOW: u8 = 129;
}

/// From here on the calling thread shares values (MPI_Init).
pub fn start() {
    *lock(&THREAD) = Some(std::thread::current().id());
    OPEN.store(true, Ordering::Relaxed);
}

/// Nothing is shared any more (MPI_Finalize).
pub fn stop() {
    OPEN.store(false, Ordering::Relaxed);
}

/// Whether this thread's values are shared now: in a replicated job, between MPI_Init and MPI_Finalize, on the thread
/// that called MPI_Init. Among several threads there is no order that replicas have in common.
pub fn here() -> bool {
    OPEN.load(Ordering::Relaxed) && *lock(&THREAD) == Some(std::thread::current().id())
}

/// Whether outcomes are decided by the leader now, on any thread.
pub fn open() -> bool {
    OPEN.load(Ordering::Relaxed)
}

fn next(comm: CommId, kind: u8) -> u64 {
    let mut numbers = lock(&NEXT);
    let number = numbers.get_or_insert_default().entry((comm, kind)).or_default();
    *number += 1;
    *number - 1
}

/// A communicator is gone: its numbers are not needed any more.
pub fn forget(comm: CommId) {
    if let Some(numbers) = lock(&NEXT).as_mut() {
        numbers.retain(|(of, _), _| *of != comm);
    }
}

fn tell(comm: CommId, kind: u8, ordinal: u64, bytes: &[u8]) {
    let make = |body| Control::Shared { comm, kind, ordinal, body };
    for twin in runtime::get().twins() {
        if bytes.len() <= channel::INLINE {
            channel::control(twin, &make(Body::Inline), bytes);
        } else {
            channel::with_body(twin, make, bytes.to_vec());
        }
    }
}

fn hear(what: &'static str, label: Label) -> Vec<u8> {
    let mut bytes = None;
    wait(
        || format!("{what}, number {}", label.3),
        label.0,
        || {
            bytes = lock(&TOLD).as_mut().and_then(|told| told.remove(&label));
            bytes.is_some()
        },
    );
    bytes.unwrap_or_default()
}

// ---- readings of clocks, which may be taken on a whim ----

/// A place in the program, and what it reads: readings are counted by it.
fn of_site(site: u64) -> CommId {
    CommId { members: site, incarnation: u32::MAX }
}

/// Places that were given up.
static LOOSE: Mutex<Option<FxHashMap<(CommId, u8), ()>>> = Mutex::new(None);
/// What followers wait for in vain: since when, and what had arrived here by then.
static WANTED: Mutex<Option<FxHashMap<Label, (Instant, u64)>>> = Mutex::new(None);
/// Readings of one place that a follower has not taken.
const MOST_READINGS: u64 = 100_000;

fn is_loose(comm: CommId, kind: u8) -> bool {
    lock(&LOOSE).as_ref().is_some_and(|loose| loose.contains_key(&(comm, kind)))
}

/// The leader's reading, on every replica; `None`: this process reads for itself.
pub fn reading(kind: u8, site: u64, make: impl FnOnce() -> Vec<u8>) -> Option<Vec<u8>> {
    let runtime = runtime::get();
    let comm = of_site(site);
    let ordinal = next(comm, kind);
    let loose = is_loose(comm, kind);
    if runtime.leads() {
        let bytes = make();
        if !loose {
            tell(comm, kind, ordinal, &bytes);
        }
        return Some(bytes);
    }
    let leader = runtime.leader();
    let label = (leader, comm, kind, ordinal);
    let take = || lock(&TOLD).as_mut().and_then(|told| told.remove(&label));
    let mut bytes = take();
    if bytes.is_some() || loose {
        return bytes;
    }
    let (mut asked, mut rounds) = (Instant::now(), 0u32);
    wait(
        || format!("the reading of a clock, number {ordinal} at its place"),
        leader,
        || {
            bytes = take();
            rounds += 1;
            if rounds.is_multiple_of(1024) && asked.elapsed() > Duration::from_millis(300) {
                asked = Instant::now();
                channel::control(leader, &Control::Wanted { comm, kind, ordinal }, &[]);
            }
            bytes.is_some() || is_loose(comm, kind)
        },
    );
    bytes
}

/// A follower waits for a reading that has not been taken here yet. If this process in turn waits for that one, or has heard
/// nothing for long while it waits for another replica, neither will ever go on.
pub fn wanted(from: u32, comm: CommId, kind: u8, ordinal: u64) {
    if lock(&NEXT).as_ref().is_some_and(|numbers| numbers.get(&(comm, kind)).is_some_and(|next| *next > ordinal)) {
        return; // taken meanwhile, and on its way
    }
    let heard = receive::heard_so_far();
    let since = {
        let mut wanted = lock(&WANTED);
        let entry =
            wanted.get_or_insert_default().entry((from, comm, kind, ordinal)).or_insert((Instant::now(), heard));
        if entry.1 != heard {
            *entry = (Instant::now(), heard);
        }
        entry.0
    };
    let overdue = watch::overdue();
    let patience = if overdue.contains(&from) { Duration::from_millis(200) } else { Duration::from_secs(5) };
    if overdue.is_empty() || since.elapsed() < patience {
        return;
    }
    log::debug!("a place that reads a clock is given up: the replicas do not read it equally often");
    loosen(comm, kind);
    for twin in runtime::get().twins() {
        channel::control(twin, &Control::Loose { comm, kind }, &[]);
    }
}

/// A place is given up.
pub fn loosen(comm: CommId, kind: u8) {
    lock(&LOOSE).get_or_insert_default().insert((comm, kind), ());
    if let Some(wanted) = lock(&WANTED).as_mut() {
        wanted.retain(|(_, of, what, _), _| (*of, *what) != (comm, kind));
    }
}

/// A shared value has arrived.
pub fn told(from: u32, comm: CommId, kind: u8, ordinal: u64, body: Body, rest: &[u8]) {
    if comm.incarnation == u32::MAX {
        // A follower that takes fewer readings than the leader would pile them up for ever.
        let taken = lock(&NEXT).as_ref().and_then(|numbers| numbers.get(&(comm, kind)).copied()).unwrap_or(0);
        if ordinal > taken + MOST_READINGS {
            if !is_loose(comm, kind) {
                loosen(comm, kind);
                channel::control(from, &Control::Loose { comm, kind }, &[]);
            }
            return;
        }
    }
    let keep = move |bytes: Vec<u8>| {
        lock(&TOLD).get_or_insert_default().insert((from, comm, kind, ordinal), bytes);
    };
    match body {
        Body::Inline => keep(rest.to_vec()),
        Body::Announced { tag, length } => channel::fetch(from, tag, length, keep),
    }
}

/// The leader's bytes, on every replica. The leader does not wait.
#[allow(dead_code)] // for sources and files, which come next
pub fn leader(kind: u8, what: &'static str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let runtime = runtime::get();
    let ordinal = next(NONE, kind);
    if runtime.leads() {
        let bytes = make();
        tell(NONE, kind, ordinal, &bytes);
        return bytes;
    }
    hear(what, (runtime.leader(), NONE, kind, ordinal))
}

/// The leader's bytes instead of this process's own, about a communicator. The leader does not wait.
pub fn leader_on(comm: CommId, kind: u8, what: &'static str, mine: Vec<u8>) -> Vec<u8> {
    let runtime = runtime::get();
    let ordinal = next(comm, kind);
    if runtime.leads() {
        tell(comm, kind, ordinal, &mine);
        return mine;
    }
    hear(what, (runtime.leader(), comm, kind, ordinal))
}

/// Every live replica's bytes, by replica index, this one's included. Waits for all of them.
#[allow(dead_code)] // for sources and files, which come next
pub fn exchange(kind: u8, what: &'static str, mine: Vec<u8>) -> Vec<(u8, Vec<u8>)> {
    exchange_on(NONE, kind, what, mine)
}

/// The same about a communicator, counted on its own: for threads that each have one.
pub fn exchange_on(comm: CommId, kind: u8, what: &'static str, mine: Vec<u8>) -> Vec<(u8, Vec<u8>)> {
    let runtime = runtime::get();
    let ordinal = next(comm, kind);
    tell(comm, kind, ordinal, &mine);
    let mut all: Vec<(u8, Vec<u8>)> = runtime
        .twins()
        .map(|twin| (runtime.map.replica_of(twin) as u8, hear(what, (twin, comm, kind, ordinal))))
        .collect();
    all.push((runtime.ring.me(), mine));
    all.sort_unstable_by_key(|(replica, _)| *replica);
    all
}

// ---- waiting ----

/// After this long a process asks the one it waits for where it is, and again after as long.
fn ask() -> Duration {
    (runtime::get().config.patience / 20).clamp(Duration::from_secs(1), Duration::from_secs(20))
}

/// The longest step of time that counts: a job that was suspended has not waited.
const STEP: Duration = Duration::from_secs(1);

/// What a process that was asked has answered last.
struct Answer {
    when: Instant,
    finalizing: bool,
    text: String,
}

static ANSWERS: Mutex<Option<FxHashMap<u32, Answer>>> = Mutex::new(None);
/// What this process waits for.
static WAITING: Mutex<Option<String>> = Mutex::new(None);

/// When waiting ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// When the other process is in MPI_Finalize, or `pml_redmpi_patience` is over.
    Ends,
    /// Only when the other process is in MPI_Finalize.
    UntilFinalize,
    /// When the other process has been in MPI_Finalize for as long as `pml_redmpi_patience`.
    AfterFinalize,
}

/// Time that passes while a process waits in vain, and what follows from it.
#[derive(Default)]
pub struct Watch {
    last: Option<Instant>,
    waited: Duration,
    /// When the other process was asked last.
    asked: Option<Instant>,
    said: bool,
    /// It was in MPI_Finalize after so much waiting.
    finalizing: Option<Duration>,
}

impl Watch {
    /// To be called now and then; `what` and `on` tell what is waited for, and from whom.
    pub fn look(&mut self, what: &dyn Fn() -> String, on: u32, patience: Patience) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.waited += (now - last).min(STEP);
        }
        let ask = ask();
        if self.waited < ask {
            return;
        }
        let runtime = runtime::get();
        if self.asked.is_none_or(|asked| now - asked > ask) {
            self.asked = Some(now);
            channel::control(on, &Control::Where, &[]);
        }
        let answer = lock(&ANSWERS).as_ref().and_then(|answers| {
            let answer = answers.get(&on)?;
            (self.asked < Some(answer.when)).then(|| (answer.finalizing, answer.text.clone()))
        });
        let who = || {
            let (rank, replica) = (runtime.map.virtual_of(on), runtime.map.replica_of(on));
            format!("native rank {on} (rank {rank}, replica {replica})")
        };
        let seconds = self.waited.as_secs();
        match answer {
            Some((true, _)) if patience != Patience::AfterFinalize => finalize::abort(&format!(
                "the replicas have diverged: this process waits for {} from {}, which is in MPI_Finalize.\n  {ADVICE}",
                what(),
                who()
            )),
            Some((true, _)) => {
                self.finalizing.get_or_insert(self.waited);
            }
            Some((false, text)) if patience == Patience::Ends && !self.said => {
                self.said = true;
                output::say(&format!(
                    "[{}] has waited {seconds} s for {} from {}, which says: {text}",
                    runtime::place(),
                    what(),
                    who()
                ));
            }
            _ => {}
        }
        let limit = runtime.config.patience;
        let since = match patience {
            Patience::Ends => self.waited,
            Patience::UntilFinalize => Duration::ZERO,
            Patience::AfterFinalize => self.finalizing.map_or(Duration::ZERO, |then| self.waited - then),
        };
        if !limit.is_zero() && since > limit {
            finalize::abort(&format!(
                "this process has waited {seconds} s for {} from {} in vain (pml_redmpi_patience = {}).\n  {ADVICE}",
                what(),
                who(),
                limit.as_secs()
            ));
        }
    }
}

const ADVICE: &str =
    "What to look at: does the program behave the same every time it runs? What it does may depend on a clock, \
    a random number, an address, a file, or the order of threads, which redmpi did not make the same \
    (docs/determinism.md lists what it does); or the process may be very slow or stopped.";

/// Lets Open MPI work until something is so; `what` comes from native rank `on`.
pub fn wait(what: impl Fn() -> String, on: u32, mut until: impl FnMut() -> bool) {
    let (mut watch, mut rounds) = (Watch::default(), 0u32);
    while !until() {
        host::progress();
        request::reap();
        rounds = rounds.wrapping_add(1);
        if rounds % 4096 == 0 {
            if watch.waited >= ask() / 2 {
                *lock(&WAITING) = Some(what());
            }
            watch.look(&what, on, Patience::Ends);
        }
    }
    if watch.waited >= ask() / 2 {
        *lock(&WAITING) = None;
    }
}

/// Another process asks where this one is.
pub fn asked(from: u32) {
    let finalizing = finalize::has_begun();
    let text = lock(&WAITING).clone().map_or_else(
        || String::from("it is in an MPI call of the application's"),
        |what| format!("it waits itself, for {what}"),
    );
    channel::control(from, &Control::Here { finalizing }, text.as_bytes());
}

/// The process that was asked has answered.
pub fn answered(from: u32, finalizing: bool, text: &[u8]) {
    let text = String::from_utf8_lossy(text).into_owned();
    lock(&ANSWERS).get_or_insert_default().insert(from, Answer { when: Instant::now(), finalizing, text });
}
