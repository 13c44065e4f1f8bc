//! Clocks: the leader's reading is everybody's (paper, section III C, "Deterministic Results").
//!
//! MPI_Wtime passes through no component, and programs read the C library's clocks too (LAMMPS reduces the CPU time that
//! getrusage tells). So the application's calls are turned to us where they leave it (`got`), at MPI_Init.
//!
//! Only the thread that called MPI_Init shares its readings: among several threads there is no order that replicas have
//! in common.
//!
//! Readings are counted by the place in the program that takes them, because some places read on a whim: Python takes
//! the time whenever its interpreter lock is contended. So they cannot bring others out of step; and where a follower
//! waits for a reading that the leader does not come to take, that place is given up: there every process has its own
//! clock from then on (`share::wanted`). Such a place, other threads, and all of them after MPI_Finalize, read this
//! machine's clock, moved by what lay between it and the leader's, so that times of one process can be compared.
//!
//! No clock goes back. Where `libredmpi_preload.so` kept a logical clock before MPI_Init, the leader moves each clock that
//! would; and if its machine was started at another time than that where the job was (`REDMPI_EPOCH`), the monotonic clock
//! goes on as it began, so that times from before and after MPI_Init can be subtracted.

use super::guard::guard;
use super::runtime::lock;
use super::vars::Clocks;
use super::{got, share};
use ompi_headers as mpi;
use redmpi_sources::handover::Handover;
use redmpi_sources::time::{self as sources, deadline, nanoseconds, timespec, Family};
use rustc_hash::{FxHashMap, FxHasher};
use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void, CStr};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Mutex;

/// What is read.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Wtime,
    Wtick,
    Time,
    TimeOfDay,
    ClockGettime,
    Clock,
    Rusage,
    Times,
    TimespecGet,
    SystemNow,
    SteadyNow,
}

const SECOND: i64 = 1_000_000_000;
/// Clocks of the system that are told apart here; the others are passed on as they are.
const CLOCKS: usize = 12;
/// Differences of clocks that are only the time that a message takes, ns.
const SMALL: i64 = 10_000_000;
/// Machines that were started at the same time, as far as that can be told, ns.
const SAME_START: i64 = 60 * SECOND;

/// Where each family of clocks was when the preloaded library handed over, ns.
static FLOOR: [AtomicI64; 3] = [const { AtomicI64::new(i64::MIN) }; 3];
/// What the leader adds to its readings of each clock, ns; `i64::MIN`: not known yet.
static SHIFT: [AtomicI64; CLOCKS] = [const { AtomicI64::new(i64::MIN) }; CLOCKS];
/// How far each clock, as told, is ahead of this machine's, ns.
static OFFSET: [AtomicI64; CLOCKS] = [const { AtomicI64::new(0) }; CLOCKS];
/// The last that was told of each clock, ns.
static LAST: [AtomicI64; CLOCKS] = [const { AtomicI64::new(i64::MIN) }; CLOCKS];

thread_local! {
    /// This thread is sharing a reading: a signal handler must not share another one.
    static SHARING: Cell<bool> = const { Cell::new(false) };
}

/// This machine's reading of a clock, ns.
fn own(clock: libc::clockid_t) -> i64 {
    let mut time = timespec(0);
    // SAFETY: a place of ours; all clocks here exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    nanoseconds(&time)
}

fn floor(family: Family) -> &'static AtomicI64 {
    &FLOOR[family as usize]
}

/// What was read before MPI_Init.
pub fn start(handover: &Handover) {
    if handover.clock == 0 {
        return;
    }
    floor(Family::Real).store(handover.real, Ordering::Relaxed);
    floor(Family::Monotonic).store(handover.monotonic, Ordering::Relaxed);
    floor(Family::Processor).store(handover.processor, Ordering::Relaxed);
    // As if the monotonic clock had gone on beside the time of day since the start of the job.
    let (real, monotonic) = (own(libc::CLOCK_REALTIME), own(libc::CLOCK_MONOTONIC));
    let difference = handover.epoch_monotonic + (real - handover.epoch_real) - monotonic;
    if difference.abs() > SAME_START {
        SHIFT[libc::CLOCK_MONOTONIC as usize].store(difference, Ordering::Relaxed);
    }
}

/// What the leader adds to its own reading.
fn shift(clock: libc::clockid_t, own: i64) -> i64 {
    let shift = &SHIFT[clock as usize];
    let known = shift.load(Ordering::Relaxed);
    let floor = Family::of(clock).map_or(i64::MIN, |family| floor(family).load(Ordering::Relaxed));
    if known != i64::MIN && own.saturating_add(known) >= floor {
        return known;
    }
    let fresh = floor.saturating_sub(own).max(0);
    shift.store(fresh, Ordering::Relaxed);
    fresh
}

/// The leader's clocks, realtime and monotonic, as the application is told them.
pub fn now() -> (i64, i64) {
    let told = |clock| {
        let own = own(clock);
        own.saturating_add(shift(clock, own))
    };
    (told(libc::CLOCK_REALTIME), told(libc::CLOCK_MONOTONIC))
}

/// The leader's clocks at MPI_Init.
pub fn agree(real: i64, monotonic: i64) {
    note(libc::CLOCK_REALTIME, real);
    note(libc::CLOCK_MONOTONIC, monotonic);
}

/// A clock has been told.
fn note(clock: libc::clockid_t, told: i64) {
    LAST[clock as usize].fetch_max(told, Ordering::Relaxed);
    let (offset, before) = (told.saturating_sub(own(clock)), OFFSET[clock as usize].load(Ordering::Relaxed));
    if (offset - before).abs() > SMALL {
        OFFSET[clock as usize].store(offset, Ordering::Relaxed);
        match clock {
            libc::CLOCK_REALTIME => deadline::set_offset(Family::Real, offset),
            libc::CLOCK_MONOTONIC => deadline::set_offset(Family::Monotonic, offset),
            _ => {}
        }
    }
}

/// The leader's reading as bytes, where this thread may share now and this place still does.
fn leaders(kind: Kind, caller: usize, make: impl FnOnce() -> Vec<u8>) -> Option<Vec<u8>> {
    if !share::here() || SHARING.replace(true) {
        return None;
    }
    got::renew();
    let bytes = share::reading(kind as u8, site(caller), make);
    SHARING.set(false);
    bytes
}

/// A clock as all replicas are told it, ns.
fn told(kind: Kind, caller: usize, clock: libc::clockid_t) -> i64 {
    let bytes = leaders(kind, caller, || {
        let own = own(clock);
        own.saturating_add(shift(clock, own)).to_le_bytes().to_vec()
    });
    // Another build's leader could tell something else; `runtime::agree` ends such jobs.
    if let Some(told) = bytes.and_then(|bytes| bytes.try_into().ok()).map(i64::from_le_bytes) {
        note(clock, told);
        return told;
    }
    let index = clock as usize;
    if clock == libc::CLOCK_THREAD_CPUTIME_ID {
        return own(clock); // another thread's has nothing to do with it
    }
    own(clock).saturating_add(OFFSET[index].load(Ordering::Relaxed)).max(LAST[index].load(Ordering::Relaxed))
}

/// Reads through `read`, which fills a value; followers get the leader's bytes instead.
///
/// # Safety
/// `T` is plain data for which every pattern of bytes is valid.
unsafe fn shared<T: Copy>(kind: Kind, caller: usize, read: impl Fn() -> T) -> T {
    let mut own = None;
    let bytes = leaders(kind, caller, || {
        let value = own.insert(read());
        // SAFETY: plain data, see above.
        unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }.to_vec()
    });
    match (own, bytes) {
        (Some(value), _) => value,
        // SAFETY: as many bytes as the value has, and every pattern is valid.
        (None, Some(bytes)) if bytes.len() == size_of::<T>() => unsafe {
            std::ptr::read_unaligned(bytes.as_ptr().cast())
        },
        _ => read(),
    }
}

/// The place in the program that calls, the same in every replica: the object's file name and the offset in it.
fn site(caller: usize) -> u64 {
    static KNOWN: Mutex<Option<FxHashMap<usize, u64>>> = Mutex::new(None);
    let mut known = lock(&KNOWN);
    *known.get_or_insert_default().entry(caller).or_insert_with(|| {
        let mut hasher = FxHasher::default();
        // SAFETY: plain data that dladdr fills; the name it gives is NUL-terminated and lives as long as the object.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            if libc::dladdr(caller as *const c_void, &mut info) != 0 && !info.dli_fname.is_null() {
                let path = CStr::from_ptr(info.dli_fname).to_bytes();
                let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
                (name, caller - info.dli_fbase as usize).hash(&mut hasher);
            }
        }
        hasher.finish().max(1)
    })
}

/// A function that passes its caller's address on, as one more argument, in this register.
macro_rules! with_caller {
    ($name:ident => $inner:ident, $x86_64:literal, $aarch64:literal) => {
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(concat!("mov ", $x86_64, ", [rsp]"), "jmp {}", sym $inner)
        }
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(concat!("mov ", $aarch64, ", x30"), "b {}", sym $inner)
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        unsafe extern "C" fn $name() {
            unreachable!("global offset tables are not touched on this architecture")
        }
    };
}

with_caller!(wtime => wtime_of, "rdi", "x0");
with_caller!(wtick => wtick_of, "rdi", "x0");
with_caller!(time => time_of, "rsi", "x1");
with_caller!(gettimeofday => gettimeofday_of, "rdx", "x2");
with_caller!(clock_gettime => clock_gettime_of, "rdx", "x2");
with_caller!(clock => clock_of, "rdi", "x0");
with_caller!(getrusage => getrusage_of, "rdx", "x2");
with_caller!(times => times_of, "rsi", "x1");
with_caller!(timespec_get => timespec_get_of, "rdx", "x2");
with_caller!(system_now => system_now_of, "rdi", "x0");
with_caller!(steady_now => steady_now_of, "rdi", "x0");

extern "C" fn wtime_of(caller: usize) -> f64 {
    // SAFETY: PMPI_Wtime has no conditions; a number is plain data.
    guard("MPI_Wtime", 0.0, || unsafe { shared(Kind::Wtime, caller, || mpi::redmpi_shim_wtime()) })
}

extern "C" fn wtick_of(caller: usize) -> f64 {
    // SAFETY: as above.
    guard("MPI_Wtick", 0.0, || unsafe { shared(Kind::Wtick, caller, || mpi::redmpi_shim_wtick()) })
}

/// Result and filled value of a call of the C library.
#[derive(Clone, Copy)]
#[repr(C)]
struct Filled<T> {
    value: T,
    result: c_long,
}

/// # Safety
/// `place` is null or a place for a `T`; `read` is the C library's function.
unsafe fn fill<T: Copy>(kind: Kind, caller: usize, place: *mut T, read: impl Fn(*mut T) -> c_long) -> c_long {
    guard("a clock", -1, || {
        // SAFETY: structs of numbers of the C library; what it leaves unset is zero.
        let filled = unsafe {
            shared(kind, caller, || {
                let mut value: T = std::mem::zeroed();
                let result = read(&mut value);
                Filled { value, result }
            })
        };
        if !place.is_null() {
            // SAFETY: the application's place for it.
            unsafe { *place = filled.value };
        }
        filled.result
    })
}

unsafe extern "C" fn time_of(place: *mut libc::time_t, caller: usize) -> libc::time_t {
    guard("time", -1, || {
        let seconds = told(Kind::Time, caller, libc::CLOCK_REALTIME).div_euclid(SECOND);
        if !place.is_null() {
            // SAFETY: the application's place for it.
            unsafe { *place = seconds };
        }
        seconds
    })
}

unsafe extern "C" fn gettimeofday_of(place: *mut libc::timeval, zone: *mut c_void, caller: usize) -> c_int {
    guard("gettimeofday", -1, || {
        // SAFETY: the application's places; the C library fills the zone, and says what is wrong with them.
        unsafe {
            if place.is_null() || !zone.is_null() {
                let result = libc::gettimeofday(place, zone.cast());
                if place.is_null() || result != 0 {
                    return result;
                }
            }
            let now = told(Kind::TimeOfDay, caller, libc::CLOCK_REALTIME);
            *place = libc::timeval { tv_sec: now.div_euclid(SECOND), tv_usec: now.rem_euclid(SECOND) / 1000 };
        }
        0
    })
}

unsafe extern "C" fn clock_gettime_of(clock: libc::clockid_t, place: *mut libc::timespec, caller: usize) -> c_int {
    if Family::of(clock).is_none() || place.is_null() {
        // SAFETY: the C library's function, with a place of ours.
        return unsafe {
            fill(Kind::ClockGettime, caller, place, |value| c_long::from(libc::clock_gettime(clock, value))) as c_int
        };
    }
    guard("clock_gettime", -1, || {
        // SAFETY: the application's place for it.
        unsafe { *place = timespec(told(Kind::ClockGettime, caller, clock)) };
        0
    })
}

unsafe extern "C" fn timespec_get_of(place: *mut libc::timespec, base: c_int, caller: usize) -> c_int {
    const TIME_UTC: c_int = 1;
    if base != TIME_UTC || place.is_null() {
        return 0;
    }
    guard("timespec_get", 0, || {
        // SAFETY: the application's place for it.
        unsafe { *place = timespec(told(Kind::TimespecGet, caller, libc::CLOCK_REALTIME)) };
        base
    })
}

/// `std::chrono::system_clock::now`, which libstdc++ may read where we do not reach it.
extern "C" fn system_now_of(caller: usize) -> i64 {
    guard("std::chrono::system_clock::now", 0, || told(Kind::SystemNow, caller, libc::CLOCK_REALTIME))
}

/// `std::chrono::steady_clock::now`.
extern "C" fn steady_now_of(caller: usize) -> i64 {
    guard("std::chrono::steady_clock::now", 0, || told(Kind::SteadyNow, caller, libc::CLOCK_MONOTONIC))
}

unsafe extern "C" fn clock_of(caller: usize) -> libc::clock_t {
    guard("clock", -1, || told(Kind::Clock, caller, libc::CLOCK_PROCESS_CPUTIME_ID) / (SECOND / 1_000_000))
}

/// What was told before MPI_Init and has not been used yet, ns.
fn processor_shift() -> i64 {
    shift(libc::CLOCK_PROCESS_CPUTIME_ID, own(libc::CLOCK_PROCESS_CPUTIME_ID))
}

unsafe extern "C" fn getrusage_of(who: c_int, place: *mut libc::rusage, caller: usize) -> c_int {
    let read = |value: *mut libc::rusage| {
        // SAFETY: the C library's function, with a place of ours; the type of `who` differs between C libraries.
        unsafe {
            let result = libc::getrusage(who as _, value);
            if result == 0 && who == libc::RUSAGE_SELF as c_int {
                let time = &mut (*value).ru_utime;
                let sum = time.tv_sec * SECOND + time.tv_usec * 1000 + processor_shift();
                *time = libc::timeval { tv_sec: sum / SECOND, tv_usec: sum % SECOND / 1000 };
            }
            c_long::from(result)
        }
    };
    // SAFETY: as above.
    unsafe { fill(Kind::Rusage, caller, place, read) as c_int }
}

unsafe extern "C" fn times_of(place: *mut libc::tms, caller: usize) -> libc::clock_t {
    let read = |value: *mut libc::tms| {
        // SAFETY: the C library's functions, with a place of ours. Its result counts from a time of its own; ours is the
        // monotonic clock, as before MPI_Init.
        unsafe {
            if libc::times(value) == -1 {
                return -1;
            }
            let now = own(libc::CLOCK_MONOTONIC);
            (now + shift(libc::CLOCK_MONOTONIC, now)) / (SECOND / libc::sysconf(libc::_SC_CLK_TCK).clamp(1, SECOND))
        }
    };
    // SAFETY: as above.
    unsafe { fill(Kind::Times, caller, place, read) }
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8], clocks: Clocks) -> Option<usize> {
    let address = match name {
        _ if clocks == Clocks::None => return None,
        b"MPI_Wtime" | b"PMPI_Wtime" => wtime as *const (),
        b"MPI_Wtick" | b"PMPI_Wtick" => wtick as *const (),
        _ if clocks != Clocks::All => return None,
        b"time" => time as *const (),
        b"gettimeofday" => gettimeofday as *const (),
        b"clock_gettime" | b"__clock_gettime" => clock_gettime as *const (),
        b"timespec_get" => timespec_get as *const (),
        b"_ZNSt6chrono3_V212system_clock3nowEv" => system_now as *const (),
        b"_ZNSt6chrono3_V212steady_clock3nowEv" => steady_now as *const (),
        b"clock" => clock as *const (),
        b"getrusage" => getrusage as *const (),
        b"times" => times as *const (),
        _ => return sources::deadline::replacement(name),
    };
    Some(address as usize)
}
