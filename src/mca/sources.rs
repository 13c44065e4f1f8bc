//! Random numbers, process ids and the name of the machine, the same in every replica (`redmpi_sources` has the functions
//! that stand in). In MPI_Init the leader tells its twins, once, a true random seed, the ids and the name; after that no
//! message is needed.
//!
//! Where `libredmpi_preload.so` was loaded, it has kept these and the clock the same until now, and hands over.

use super::vars::{Clocks, Config};
use super::{clock, runtime, share};
use redmpi_sources::handover::{Handover, Take, SYMBOL, VERSION};
use redmpi_sources::stream::Key;
use redmpi_sources::{device, host, job, later, process, random};
use serde::{Deserialize, Serialize};
use std::ffi::{c_char, c_int, CStr, CString};

/// Kind of the shared value, see `share::kind`.
const KIND: u8 = 32;

/// What the leader tells.
#[derive(Serialize, Deserialize)]
struct Told {
    seed: Key,
    pid: i32,
    parent: i32,
    host: Vec<u8>,
    /// Its clocks now, as the application is told them.
    real: i64,
    monotonic: i64,
    /// What it had before MPI_Init: rank, program, clock.
    before: (u32, u32, i64),
}

/// What the preloaded library did before MPI_Init; it steps aside.
fn take_over() -> Handover {
    let mut handover = Handover::NONE;
    // SAFETY: a function of this name has this type, and checks the version.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr());
        if !symbol.is_null() {
            let take: Take = std::mem::transmute(symbol);
            if take(VERSION, &mut handover) != 0 {
                handover = Handover::NONE;
            }
        }
    }
    handover
}

/// In MPI_Init, on the thread that called it, when values can be shared.
pub fn start() {
    let runtime = runtime::get();
    let config = &runtime.config;
    let handover = take_over();
    let before = (handover.virtual_rank, handover.program, handover.real);
    clock::start(&handover);
    let bytes = share::leader(KIND, "the seed of random numbers", || {
        let (pid, parent) = ids(&handover);
        let (real, monotonic) = clock::now();
        let told = Told { seed: seed(), pid, parent, host: hostname(), real, monotonic, before };
        serde_json::to_vec(&told).unwrap_or_default()
    });
    let told: Told = match serde_json::from_slice(&bytes) {
        Ok(told) => told,
        Err(error) => panic!("what the leader told of its sources cannot be read: {error}"),
    };
    if told.before != before {
        log::warn!(
            "before MPI_Init this process read other clocks or random numbers than the leader: its rank there, its program \
             and its clock were {before:?}, the leader's {:?}",
            told.before
        );
    }
    if config.clocks == Clocks::All {
        clock::agree(told.real, told.monotonic);
    }
    if config.same_random {
        random::start(&told.seed);
    }
    if config.same_pid {
        process::was_told(handover.pid);
        process::start(told.pid, told.parent, None);
    }
    if config.same_host {
        host::start(CString::new(told.host).unwrap_or_default());
    }
    // SAFETY: functions that live as long as the process and only change atomic numbers.
    unsafe { libc::pthread_atfork(Some(forking), None, Some(forked)) };
}

extern "C" fn forking() {
    random::forking();
}

/// A forked process is not part of the job: it shares nothing.
extern "C" fn forked() {
    share::stop();
    random::forked();
}

fn ids(handover: &Handover) -> (i32, i32) {
    let runtime = runtime::get();
    if handover.pid != 0 && handover.virtual_rank == runtime.virtual_rank {
        return (handover.pid, handover.parent);
    }
    let (key, _) = job::job_key(&|name| std::env::var(name).ok());
    job::pids(&key, runtime.virtual_size, runtime.virtual_rank, 0)
}

/// True random bytes.
fn seed() -> Key {
    let mut seed = Key::default();
    // SAFETY: a buffer of ours. libredmpi's own calls go to the C library.
    if unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) } != seed.len() as isize {
        panic!("the system gives no random numbers");
    }
    seed
}

fn hostname() -> Vec<u8> {
    let mut name = [0u8; 257];
    // SAFETY: a buffer of ours, whose last byte stays 0.
    unsafe {
        libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1);
        CStr::from_ptr(name.as_ptr().cast()).to_bytes().to_vec()
    }
}

/// Open MPI gives the name of the machine, so it is asked for that one here too.
unsafe extern "C-unwind" fn processor_name(place: *mut c_char, length: *mut c_int) -> c_int {
    extern "C" {
        fn PMPI_Get_processor_name(place: *mut c_char, length: *mut c_int) -> c_int;
    }
    // SAFETY: the application's places; MPI wants room for MPI_MAX_PROCESSOR_NAME (256) bytes.
    unsafe {
        let result = PMPI_Get_processor_name(place, length);
        if result != super::host::SUCCESS {
            return result;
        }
        if let Some(name) = host::name() {
            let bytes = &name.to_bytes()[..name.to_bytes().len().min(255)];
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), place, bytes.len());
            *place.add(bytes.len()) = 0;
            *length = bytes.len() as c_int;
        }
        result
    }
}

/// The function that stands in for a name; `found` is another module's.
pub fn replacement(name: &[u8], config: &Config, found: Option<usize>) -> Option<usize> {
    // Random devices and the folders of process ids are no files: they are looked for first.
    if config.same_random || config.same_pid {
        if let Some(ours) = device::replacement(name, config.same_random, config.same_pid) {
            if let Some(next) = found {
                device::goes_on_in(name, next);
            }
            return Some(ours);
        }
    }
    let on = |wanted: bool, find: fn(&[u8]) -> Option<usize>| if wanted { find(name) } else { None };
    found
        .or_else(|| on(config.same_random, random::replacement))
        .or_else(|| on(config.same_pid, process::replacement))
        .or_else(|| on(config.same_host, host::replacement))
        .or(match name {
            b"MPI_Get_processor_name" | b"PMPI_Get_processor_name" if config.same_host => {
                Some(processor_name as *const () as usize)
            }
            _ => None,
        })
}

/// Ways to the functions of `others` that do not lead through a table (dlsym, syscall, …).
pub fn by_other_ways(name: &[u8], others: &dyn Fn(&[u8]) -> Option<usize>) -> Option<usize> {
    later::replacement(name, others)
}
