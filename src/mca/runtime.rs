//! What a process knows of the replicated job: its place, the rank map, the configuration, the counters.

use super::communicator::Registry;
use super::files;
use super::vars::{self, Config};
use crate::inject::{self, Injector};
use crate::protocol::ring::{ReplicaSet, Ring};
use crate::replication::rank_map::RankMap;
use crate::report::Event;
use crate::wire::Control;
use ompi_headers as mpi;
use rustc_hash::FxHasher;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// One process's view of the job.
pub struct Runtime {
    /// The user's wishes, checked.
    pub config: Config,
    /// Which native rank is which replica of which virtual rank.
    pub map: RankMap,
    /// Rank in what mpirun started.
    pub native: u32,
    /// Rank that the application sees.
    pub virtual_rank: u32,
    /// Replica index.
    pub replica: u32,
    /// Ranks that the application sees.
    pub virtual_size: u32,
    /// The live replicas of this virtual rank. All are alive today; who asks, asks here.
    pub ring: Ring,
    /// Communicators' shadows.
    pub registry: Mutex<Registry>,
    /// The fault injector, where this process is to be hit.
    pub injector: Mutex<Option<Injector>>,
    /// What was counted.
    pub counters: Counters,
    /// What was counted of files.
    pub files: files::Counters,
    /// When the process started, for the events' times.
    started: Instant,
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// This process's runtime, once redmpi is active.
#[inline]
pub fn get() -> &'static Runtime {
    RUNTIME.get().expect("redmpi is active")
}

/// Whether redmpi has something to do in this process.
pub fn active() -> bool {
    RUNTIME.get().is_some()
}

/// The place of this process, for people.
pub fn place() -> String {
    match RUNTIME.get() {
        Some(runtime) => {
            format!("native {}, rank {}, replica {}", runtime.native, runtime.virtual_rank, runtime.replica)
        }
        None => format!("pid {}", std::process::id()),
    }
}

/// Locks without minding a panic elsewhere: the guard has ended the voting by then.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks the configuration and finds this process's place. `Ok(false)`: nothing to do, stay out of the way.
///
/// # Errors
/// One text for the user.
pub fn start(native: u32, native_size: u32, threads: bool) -> Result<bool, String> {
    let config = vars::config(native_size)?;
    let degree = config.degree;
    let map = match &config.rank_map {
        Some(path) => RankMap::from_file(path, native_size, degree),
        None => match nodes(native_size) {
            Some(nodes) if degree > 1 && config.by_node => RankMap::by_node(&nodes, degree),
            _ => RankMap::by_formula(native_size, degree),
        },
    }
    .map_err(|error| error.to_string())?;
    if let Some(path) = &config.report {
        check_report(path)?;
    }
    let (virtual_rank, replica) = (map.virtual_of(native), map.replica_of(native));
    let injector = Injector::new(&config.inject, replica, virtual_rank);
    if degree == 1 && native == 0 {
        super::output::say(
            "degree 1: nothing is replicated and nothing is verified (set pml_redmpi_degree to 2 or more)",
        );
    }
    if degree == 1 && config.inject.rate == 0 && config.report.is_none() {
        return Ok(false);
    }
    let ring = Ring::new(ReplicaSet::of_degree(degree as u8), replica as u8)
        .ok_or_else(|| format!("replica {replica} is not one of {degree}"))?;
    log::debug!("start: {native_size} processes, degree {degree}, threads {threads}");
    let runtime = Runtime {
        native,
        virtual_rank,
        replica,
        virtual_size: map.virtual_size(),
        ring,
        map,
        config,
        registry: Mutex::default(),
        injector: Mutex::new(injector),
        counters: Counters::default(),
        files: files::Counters::default(),
        started: Instant::now(),
    };
    if RUNTIME.set(runtime).is_err() {
        return Err(String::from("redmpi was started twice in one process"));
    }
    Ok(true)
}

/// Every native rank's node, where the job has several and Open MPI tells.
fn nodes(native_size: u32) -> Option<Vec<u32>> {
    // SAFETY: MPI_Init knows the job's processes by now.
    if unsafe { mpi::redmpi_shim_one_node() } != 0 {
        return None;
    }
    let mut numbers: HashMap<CString, u32> = HashMap::new();
    (0..native_size)
        .map(|native| {
            // SAFETY: a native rank of this job; the name is malloc'ed and ours.
            let host = unsafe {
                let name = mpi::redmpi_shim_host_of(native);
                if name.is_null() {
                    return None;
                }
                let host = CStr::from_ptr(name).to_owned();
                libc::free(name.cast());
                host
            };
            let next = numbers.len() as u32;
            Some(*numbers.entry(host).or_insert(next))
        })
        .collect()
}

/// A report that cannot be written should not be found out after a month.
fn check_report(path: &std::path::Path) -> Result<(), String> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => std::path::Path::new("."),
    };
    let refuse = |why: String| format!("pml_redmpi_report = {}: {why}", path.display());
    if path.is_dir() {
        return Err(refuse(String::from("this is a folder, a file is wanted")));
    }
    // Only native rank 0 writes, perhaps on another machine than this process's.
    if std::env::var("OMPI_COMM_WORLD_RANK").is_ok_and(|rank| rank != "0") {
        return Ok(());
    }
    let probe = folder.join(format!(".redmpi-report-{}", std::process::id()));
    std::fs::write(&probe, b"")
        .map_err(|error| refuse(format!("no file can be made in {}: {error}", folder.display())))?;
    let _ = std::fs::remove_file(&probe);
    // The report of an earlier job must not be taken for this one's, should this one not come to its end.
    if path.is_file() {
        std::fs::remove_file(path)
            .map_err(|error| refuse(format!("an earlier report cannot be removed: {error}")))?;
    }
    Ok(())
}

/// What all processes have to agree on, as a number.
fn hash() -> u64 {
    let runtime = get();
    let config = &runtime.config;
    let mut hasher = FxHasher::default();
    let words = (env!("CARGO_PKG_VERSION"), config.degree, config.protocol.name(), config.comparison.name());
    (words, config.collectives as u8, &runtime.map).hash(&mut hasher);
    hasher.finish()
}

/// Tells the next process how this one sees the job: a file that differs between hosts must not go unnoticed.
pub fn agree() {
    let runtime = get();
    let next = (runtime.native + 1) % runtime.map.native_size();
    if next != runtime.native {
        super::channel::control(next, &Control::Agree(hash()), &[]);
    }
}

/// The process before this one sees the job so.
pub fn compare(from: u32, other: u64) {
    if other != hash() {
        super::finalize::abort(&format!(
            "this process on {} and native rank {from} do not agree on version, degree, protocol, digest, verification of collectives or rank map: \
             the same redmpi, the same variables and the same rank map file are wanted on every host",
            super::host::hostname()
        ));
    }
}

impl Runtime {
    /// Whether messages are compared at all.
    pub fn verifies(&self) -> bool {
        self.config.degree > 1
    }

    /// Whether this process decides for its virtual rank: the lowest live replica.
    pub fn leads(&self) -> bool {
        self.ring.members().lowest() == Some(self.ring.me())
    }

    /// Native rank of the process that decides for this virtual rank.
    pub fn leader(&self) -> u32 {
        let lowest = self.ring.members().lowest().unwrap_or(self.ring.me());
        self.map.native_of(self.virtual_rank, u32::from(lowest))
    }

    /// Native ranks of this virtual rank's other live replicas.
    pub fn twins(&self) -> impl Iterator<Item = u32> + '_ {
        let me = self.ring.me();
        self.ring
            .iter()
            .filter(move |replica| *replica != me)
            .map(|replica| self.map.native_of(self.virtual_rank, u32::from(replica)))
    }

    /// Seconds since the start of this process.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// The bit of a message of `bits` bits that the injector wants flipped.
    pub fn inject(&self, place: inject::Place, bits: u64) -> Option<u64> {
        if self.config.inject.rate == 0 {
            return None;
        }
        lock(&self.injector).as_mut()?.next(place, bits)
    }
}

/// Counters of application messages or of messages inside collectives.
#[derive(Default)]
pub struct Class {
    /// Messages that this process has sent.
    pub sent: AtomicU64,
    /// Messages received and compared.
    pub verified: AtomicU64,
    /// Wrong messages.
    pub mismatched: AtomicU64,
    /// Wrong messages that were replaced.
    pub corrected: AtomicU64,
    /// Wrong messages that could not be.
    pub uncorrectable: AtomicU64,
}

/// What a process counts.
#[derive(Default)]
pub struct Counters {
    /// Application messages.
    pub messages: Class,
    /// Messages inside collectives.
    pub collectives: Class,
    /// Collective operations called by the application.
    pub collectives_called: AtomicU64,
    /// Faults injected.
    pub injected: AtomicU64,
    /// Wrong messages by native rank of their sender.
    pub suspected: Mutex<HashMap<u32, u64>>,
    /// Whether a vote failed.
    pub failed: AtomicU64,
    /// What happened, as far as it fits.
    pub events: Mutex<Vec<Event>>,
    /// Events that did not fit.
    pub omitted: AtomicU64,
}

/// Events that a process keeps; the others are counted.
const EVENTS: usize = 200;

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Collectives' messages have negative tags.
    pub fn class(&self, tag: i32) -> &Class {
        if tag < 0 {
            &self.collectives
        } else {
            &self.messages
        }
    }

    /// Keeps an event.
    pub fn event(&self, event: Event) {
        let mut events = lock(&self.events);
        if events.len() < EVENTS {
            events.push(event);
        } else {
            count(&self.omitted);
        }
    }

    /// A wrong message came from this process.
    pub fn suspect(&self, native: u32) {
        *lock(&self.suspected).entry(native).or_default() += 1;
    }
}
