//! What a program asks the system for and what replicas have to be told alike: random numbers, process ids, the name of
//! the machine, and the clock before MPI_Init.
//!
//! Two libraries stand on this crate. `libredmpi_preload.so` (components/preload) is loaded before the program and knows
//! only its environment; `libredmpi.so` takes over from it in MPI_Init, when replicas can talk. Each has its own copy of
//! the state here; [`handover::Handover`] is what one tells the other.
//!
//! Functions that stand in for the C library's are `extern "C-unwind"`, as a thread may be cancelled in many of them:
//! around the real call they have no destructors, and what they do themselves is run by `guard::quiet`.

pub mod device;
pub mod got;
pub mod guard;
pub mod handover;
pub mod host;
pub mod job;
pub mod later;
pub mod page;
pub mod process;
pub mod random;
pub mod stream;
pub mod time;
