//! Clocks: the leader's reading is everybody's (paper, section III C, "Deterministic Results").
//!
//! MPI_Wtime passes through no component, and programs read the C library's clocks too (LAMMPS reduces the CPU time that
//! getrusage tells). So the application's calls are turned to us where they leave it (`got`), at MPI_Init.
//!
//! Only the thread that called MPI_Init shares its readings: among several threads there is no order that replicas have
//! in common.

use super::guard::guard;
use super::share;
use super::vars::Clocks;
use ompi_headers as mpi;
use std::ffi::{c_int, c_long, c_void};

/// What is read. Each kind is counted on its own, so that a library that reads one of them now and then, on a whim,
/// cannot bring the others out of step.
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
unsafe fn shared<T: Copy>(kind: Kind, read: impl Fn() -> T) -> T {
    if !share::here() {
        return read();
    }
    let mut own = None;
    let bytes = share::leader(kind as u8, "the reading of a clock", || {
        let value = own.insert(read());
        // SAFETY: plain data, see above.
        unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }.to_vec()
    });
    if let Some(value) = own {
        return value;
    }
    if bytes.len() != size_of::<T>() {
        return read(); // another build's leader; `runtime::agree` ends such jobs
    }
    // SAFETY: as many bytes as the value has, and every pattern is valid.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
}

extern "C" fn wtime() -> f64 {
    // SAFETY: PMPI_Wtime has no conditions; a number is plain data.
    guard("MPI_Wtime", 0.0, || unsafe { shared(Kind::Wtime, || mpi::redmpi_shim_wtime()) })
}

extern "C" fn wtick() -> f64 {
    // SAFETY: as above.
    guard("MPI_Wtick", 0.0, || unsafe { shared(Kind::Wtick, || mpi::redmpi_shim_wtick()) })
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
unsafe fn fill<T: Copy>(kind: Kind, place: *mut T, read: impl Fn(*mut T) -> c_long) -> c_long {
    guard("a clock", -1, || {
        // SAFETY: structs of numbers of the C library; what it leaves unset is zero.
        let filled = unsafe {
            shared(kind, || {
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

unsafe extern "C" fn time(place: *mut libc::time_t) -> libc::time_t {
    // SAFETY: the C library's function, with a place of ours.
    unsafe { fill(Kind::Time, place, |value| libc::time(value)) }
}

unsafe extern "C" fn gettimeofday(place: *mut libc::timeval, zone: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { fill(Kind::TimeOfDay, place, |value| c_long::from(libc::gettimeofday(value, zone.cast()))) as c_int }
}

unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, place: *mut libc::timespec) -> c_int {
    // SAFETY: as above.
    unsafe { fill(Kind::ClockGettime, place, |value| c_long::from(libc::clock_gettime(clock, value))) as c_int }
}

unsafe extern "C" fn clock() -> libc::clock_t {
    // SAFETY: as above.
    unsafe { fill(Kind::Clock, std::ptr::null_mut::<u8>(), |_| libc_clock()) }
}

extern "C" {
    #[link_name = "clock"]
    fn libc_clock() -> libc::clock_t;
}

unsafe extern "C" fn getrusage(who: c_int, place: *mut libc::rusage) -> c_int {
    // SAFETY: as above; the type of `who` differs between C libraries.
    unsafe { fill(Kind::Rusage, place, |value| c_long::from(libc::getrusage(who as _, value))) as c_int }
}

unsafe extern "C" fn times(place: *mut libc::tms) -> libc::clock_t {
    // SAFETY: as above.
    unsafe { fill(Kind::Times, place, |value| libc::times(value)) }
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
