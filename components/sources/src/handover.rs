//! What `libredmpi_preload.so` tells `libredmpi.so` in MPI_Init.

use std::ffi::c_int;

/// Both have to know this one.
pub const VERSION: u32 = 1;

/// The function that the preloaded library exports; it is called once, and from then on that library steps aside.
pub const SYMBOL: &std::ffi::CStr = c"redmpi_preload_take";

/// Its type: fills a [`Handover`] of this version and returns 0, or -1 where the library is not active or another one.
pub type Take = unsafe extern "C" fn(version: u32, place: *mut Handover) -> c_int;

/// The state before MPI_Init.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The virtual rank that the streams were keyed by; `u32::MAX`: there were none.
    pub virtual_rank: u32,
    /// Which program of its native rank this one is.
    pub program: u32,
    /// The process id that the program was told, and its parent's; 0: the real ones.
    pub pid: i32,
    /// See `pid`.
    pub parent: i32,
    /// Whether the clock was logical.
    pub clock: u32,
    /// Where it was, and where it had started: realtime, ns.
    pub real: i64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: i64,
    /// Processor time, ns.
    pub processor: i64,
    /// Realtime of the start of the job.
    pub epoch_real: i64,
    /// CLOCK_MONOTONIC of the same moment.
    pub epoch_monotonic: i64,
}

impl Handover {
    /// Nothing was done before MPI_Init.
    pub const NONE: Handover = Handover {
        virtual_rank: u32::MAX,
        program: 0,
        pid: 0,
        parent: 0,
        clock: 0,
        real: 0,
        monotonic: 0,
        processor: 0,
        epoch_real: 0,
        epoch_monotonic: 0,
    };
}
