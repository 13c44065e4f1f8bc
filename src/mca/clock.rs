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
//! clock from then on (`share::wanted`).

use super::guard::guard;
use super::runtime::lock;
use super::share;
use super::vars::Clocks;
use ompi_headers as mpi;
use rustc_hash::{FxHashMap, FxHasher};
use std::ffi::{c_int, c_long, c_void, CStr};
use std::hash::{Hash, Hasher};
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
}

/// Reads through `read`, which fills a value; followers get the leader's bytes instead.
///
/// # Safety
/// `T` is plain data for which every pattern of bytes is valid.
unsafe fn shared<T: Copy>(kind: Kind, caller: usize, read: impl Fn() -> T) -> T {
    if !share::here() {
        return read();
    }
    let mut own = None;
    let bytes = share::reading(kind as u8, site(caller), || {
        let value = own.insert(read());
        // SAFETY: plain data, see above.
        unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }.to_vec()
    });
    if let Some(value) = own {
        return value;
    }
    let Some(bytes) = bytes else { return read() };
    if bytes.len() != size_of::<T>() {
        return read(); // another build's leader; `runtime::agree` ends such jobs
    }
    // SAFETY: as many bytes as the value has, and every pattern is valid.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
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
    // SAFETY: the C library's function, with a place of ours.
    unsafe { fill(Kind::Time, caller, place, |value| libc::time(value)) }
}

unsafe extern "C" fn gettimeofday_of(place: *mut libc::timeval, zone: *mut c_void, caller: usize) -> c_int {
    // SAFETY: as above.
    unsafe {
        fill(Kind::TimeOfDay, caller, place, |value| c_long::from(libc::gettimeofday(value, zone.cast()))) as c_int
    }
}

unsafe extern "C" fn clock_gettime_of(clock: libc::clockid_t, place: *mut libc::timespec, caller: usize) -> c_int {
    // SAFETY: as above.
    unsafe {
        fill(Kind::ClockGettime, caller, place, |value| c_long::from(libc::clock_gettime(clock, value))) as c_int
    }
}

unsafe extern "C" fn clock_of(caller: usize) -> libc::clock_t {
    // SAFETY: as above.
    unsafe { fill(Kind::Clock, caller, std::ptr::null_mut::<u8>(), |_| libc_clock()) }
}

extern "C" {
    #[link_name = "clock"]
    fn libc_clock() -> libc::clock_t;
}

unsafe extern "C" fn getrusage_of(who: c_int, place: *mut libc::rusage, caller: usize) -> c_int {
    // SAFETY: as above; the type of `who` differs between C libraries.
    unsafe { fill(Kind::Rusage, caller, place, |value| c_long::from(libc::getrusage(who as _, value))) as c_int }
}

unsafe extern "C" fn times_of(place: *mut libc::tms, caller: usize) -> libc::clock_t {
    // SAFETY: as above.
    unsafe { fill(Kind::Times, caller, place, |value| libc::times(value)) }
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
        b"clock_gettime" => clock_gettime as *const (),
        b"clock" => clock as *const (),
        b"getrusage" => getrusage as *const (),
        b"times" => times as *const (),
        _ => return None,
    };
    Some(address as usize)
}
