//! Calls inside which Open MPI itself exchanges what differs between spheres by its nature: process names, addresses,
//! file names. They must not be compared: MPI_Intercomm_create sends the names of the group's processes, windows send
//! addresses.
//!
//! The application's calls of these functions are turned to us (`got`); while one is under way, this thread's messages are
//! exchanged and ordered like all others, and not compared. A communicator that comes into being inside the making of a
//! window is the host's own for good: what is verified of one-sided communication is said in `windows`.

use super::host::{Communicator, Datatype, Request};
use super::{dynamic, windows};
use ompi_headers as mpi;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

/// In whose name this thread communicates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The application's.
    Application,
    /// Open MPI's, which exchanges names.
    Names,
    /// Open MPI's, which makes a window.
    Window,
    Host,
}

thread_local! {
    static SCOPE: Cell<Scope> = const { Cell::new(Scope::Application) };
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the application has called the non-blocking operation that is being started, and not Open MPI itself.
pub fn asked() -> bool {
    ASKED.get()
}

/// Whether this thread's messages are the host's own, and differ between spheres.
#[inline]
pub fn private() -> bool {
    SCOPE.get() != Scope::Application
}

/// Whether this thread's messages are not even exchanged.
#[inline]
pub fn left_alone() -> bool {
    SCOPE.get() == Scope::Host
}

/// Whether a communicator that is made now belongs to a window.
pub fn making_window() -> bool {
    SCOPE.get() == Scope::Window
}

/// Runs a call of Open MPI's.
pub fn within(scope: Scope, call: impl FnOnce() -> c_int) -> c_int {
    let outer = SCOPE.replace(scope);
    let result = call();
    SCOPE.set(outer);
    result
}

type Comm = *mut Communicator;
type Info = *mut mpi::ompi_info_t;

extern "C" {
    fn PMPI_Intercomm_create(
        local: Comm,
        leader: c_int,
        bridge: Comm,
        remote: c_int,
        tag: c_int,
        made: *mut Comm,
    ) -> c_int;
    fn PMPI_File_open(comm: Comm, name: *const c_char, mode: c_int, info: Info, made: *mut *mut c_void) -> c_int;
}

unsafe extern "C" fn intercomm_create(
    local: Comm,
    leader: c_int,
    bridge: Comm,
    remote: c_int,
    tag: c_int,
    made: *mut Comm,
) -> c_int {
    // SAFETY: Open MPI's own function, with what the application gave.
    within(Scope::Names, || unsafe { PMPI_Intercomm_create(local, leader, bridge, remote, tag, made) })
}

// ompio names its shared files after a process number.
unsafe extern "C" fn file_open(
    comm: Comm,
    name: *const c_char,
    mode: c_int,
    info: Info,
    made: *mut *mut c_void,
) -> c_int {
    // SAFETY: as above.
    within(Scope::Names, || unsafe { PMPI_File_open(comm, name, mode, info, made) })
}

/// A call inside which this thread's messages are the host's alone: they stay inside the sphere, and no sphere waits for
/// another one in them. All processes that such a message goes to or comes from have to be in such a call.
pub fn alone<T>(call: impl FnOnce() -> T) -> T {
    let outer = SCOPE.replace(Scope::Host);
    let result = call();
    SCOPE.set(outer);
    result
}

type P = *const c_void;
type M = *mut c_void;
type D = *mut Datatype;
type Op = *mut mpi::ompi_op_t;
type R = *mut *mut Request;

extern "C" {
    fn PMPI_Iallreduce(send: P, receive: M, n: c_int, of: D, op: Op, comm: Comm, request: R) -> c_int;
    fn PMPI_Ireduce(send: P, receive: M, n: c_int, of: D, op: Op, root: c_int, comm: Comm, request: R) -> c_int;
    fn PMPI_Ibcast(buffer: M, n: c_int, of: D, root: c_int, comm: Comm, request: R) -> c_int;
}

fn of_application(call: impl FnOnce() -> c_int) -> c_int {
    let outer = ASKED.replace(true);
    let result = call();
    ASKED.set(outer);
    result
}

unsafe extern "C" fn iallreduce(send: P, receive: M, n: c_int, of: D, op: Op, comm: Comm, request: R) -> c_int {
    // SAFETY: Open MPI's own function, with what the application gave.
    of_application(|| unsafe { PMPI_Iallreduce(send, receive, n, of, op, comm, request) })
}

unsafe extern "C" fn ireduce(
    send: P,
    receive: M,
    n: c_int,
    of: D,
    op: Op,
    root: c_int,
    comm: Comm,
    request: R,
) -> c_int {
    // SAFETY: as above.
    of_application(|| unsafe { PMPI_Ireduce(send, receive, n, of, op, root, comm, request) })
}

unsafe extern "C" fn ibcast(buffer: M, n: c_int, of: D, root: c_int, comm: Comm, request: R) -> c_int {
    // SAFETY: as above.
    of_application(|| unsafe { PMPI_Ibcast(buffer, n, of, root, comm, request) })
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let name = name.strip_prefix(b"P").unwrap_or(name);
    match name {
        b"MPI_Intercomm_create" => Some(intercomm_create as *const () as usize),
        b"MPI_File_open" => Some(file_open as *const () as usize),
        b"MPI_Iallreduce" => Some(iallreduce as *const () as usize),
        b"MPI_Ireduce" => Some(ireduce as *const () as usize),
        b"MPI_Ibcast" => Some(ibcast as *const () as usize),
        _ => windows::replacement(name).or_else(|| dynamic::replacement(name)),
    }
}
