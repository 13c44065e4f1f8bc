//! `libredmpi_preload.so`: loaded before the program (`LD_PRELOAD`, set by `redmpi run`), so that what it reads of clocks,
//! random numbers and process ids before MPI_Init is the same in every replica. Python's hash seed and names of temporary
//! files are of this kind. It knows nothing of MPI, as it is loaded into wrapper scripts and interpreters too; outside a
//! replicated job it does nothing. `libredmpi.so` takes over in MPI_Init ([`redmpi_preload_take`]).
//!
//! What it cannot know: the arrangement of replicas over several nodes, which is decided in MPI_Init. There random numbers
//! and process ids before MPI_Init are left alone, unless a rank map file or `pml_redmpi_placement = formula` tells.

use redmpi_sources::guard::quiet;
use redmpi_sources::handover::{Handover, VERSION};
use redmpi_sources::job::{self, Switches};
use redmpi_sources::page::{self, Page};
use redmpi_sources::stream::{derive, Purpose};
use redmpi_sources::time::Family;
use redmpi_sources::{device, got, later, process, random, time};
use std::ffi::c_int;
use std::sync::OnceLock;

/// What was begun in this program.
struct Active {
    page: &'static Page,
    done: Switches,
    handover: Handover,
}

static ACTIVE: OnceLock<Active> = OnceLock::new();

/// Runs before the program's own constructors and `main`.
extern "C" fn begin() {
    quiet((), || {
        if let Some(active) = activate() {
            let _ = ACTIVE.set(active);
            // SAFETY: functions that live as long as the process and only change atomic numbers.
            unsafe { libc::pthread_atfork(Some(forking), None, Some(forked)) };
            got::replace_for_now(&replacement);
        }
    });
}

#[used]
#[link_section = ".init_array"]
static BEGIN: extern "C" fn() = begin;

fn activate() -> Option<Active> {
    let get = |name: &str| std::env::var(name).ok();
    let job = job::read(&get, &|path| std::fs::read_to_string(path).ok())?;
    let page = Page::open(&job)?;
    let program = page.enter();
    let mut handover = Handover { program, ..Handover::NONE };
    let mut done = Switches { clocks: false, random: false, pids: false };
    if let Some(rank) = job.virtual_rank {
        handover.virtual_rank = rank;
        if job.switches.random {
            random::start(&derive(&job.rank_key(rank), Purpose::Program, u64::from(program)));
            done.random = true;
        }
        // A program that is started after MPI_Init is a stranger to libredmpi.so: it has its own id and clock.
        if job.switches.pids && !page.is_taken() {
            // SAFETY: plain system calls.
            let (own, parent) = unsafe { (libc::getpid(), libc::getppid()) };
            let (fresh, above) = job.pids(rank, program);
            let pid = page.told(own).unwrap_or(fresh);
            if page.note(program, own, pid) {
                let parent = page.told(parent).unwrap_or(above);
                process::start(pid, parent, Some(page));
                (handover.pid, handover.parent) = (pid, parent);
                done.pids = true;
            }
        }
    }
    if job.switches.clocks && !page.is_taken() {
        let now = time::epoch_now();
        let epoch = match job.epoch {
            Some(epoch) => Some(epoch),
            None if job.one_node => page::agree_on_epoch(&job, now),
            None => None,
        };
        if let Some(epoch) = epoch {
            time::start(epoch, &page.ticks);
            handover.clock = 1;
            (handover.epoch_real, handover.epoch_monotonic) = (epoch.real, epoch.monotonic);
            done.clocks = true;
        }
    }
    Some(Active { page, done, handover })
}

extern "C" fn forking() {
    random::forking();
}

extern "C" fn forked() {
    random::forked();
    time::forked();
}

fn sources(name: &[u8]) -> Option<usize> {
    let done = ACTIVE.get()?.done;
    let found = if done.random { random::replacement(name) } else { None };
    let found = found.or_else(|| if done.pids { process::replacement(name) } else { None });
    let found = found.or_else(|| if done.clocks { time::replacement(name) } else { None });
    found.or_else(|| if done.random || done.pids { device::replacement(name, done.random, done.pids) } else { None })
}

fn replacement(name: &[u8]) -> Option<usize> {
    sources(name).or_else(|| later::replacement(name, &sources))
}

/// MPI_Init: says what was done, and does nothing any more. Calls that still come here go on to the C library; objects
/// that turn out to be Open MPI's get their tables back. -1: nothing was done, or the caller is another version.
///
/// # Safety
/// `place` is a place for a `Handover` of this version.
#[no_mangle]
pub unsafe extern "C" fn redmpi_preload_take(version: u32, place: *mut Handover) -> c_int {
    quiet(-1, || {
        let Some(active) = ACTIVE.get().filter(|_| version == VERSION && !place.is_null()) else { return -1 };
        let now = |family| time::now(family).unwrap_or_default();
        let mut handover = active.handover;
        if active.done.clocks {
            handover.real = now(Family::Real);
            handover.monotonic = now(Family::Monotonic);
            handover.processor = now(Family::Processor);
        }
        active.page.take();
        time::stop();
        random::stop();
        process::stop();
        got::give_back();
        // SAFETY: as the caller says.
        unsafe { place.write(handover) };
        0
    })
}
