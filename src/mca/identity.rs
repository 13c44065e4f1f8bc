//! Calls inside which Open MPI itself exchanges what differs between spheres by its nature: process names, addresses,
//! file names. They must not be compared: MPI_Intercomm_create sends the names of the group's processes, windows send
//! addresses.
//!
//! The application's calls of these functions are turned to us (`got`); while one is under way, this thread's messages are
//! exchanged and ordered like all others, and not compared. A communicator that comes into being inside the making of a
//! window is the window's own and is left to the host for good: one-sided communication is not verified, which is said
//! once.

use super::host::{Communicator, SUCCESS};
use super::{output, runtime};
use ompi_headers as mpi;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Application,
    Names,
    Window,
    Host,
}

thread_local! {
    static SCOPE: Cell<Scope> = const { Cell::new(Scope::Application) };
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

fn within(scope: Scope, call: impl FnOnce() -> c_int) -> c_int {
    let outer = SCOPE.replace(scope);
    let result = call();
    SCOPE.set(outer);
    result
}

static WARNED: AtomicBool = AtomicBool::new(false);

fn window(call: impl FnOnce() -> c_int) -> c_int {
    let result = within(Scope::Window, call);
    if result == SUCCESS && runtime::active() && runtime::get().native == 0 && !WARNED.swap(true, Ordering::Relaxed) {
        output::say("warning: one-sided communication (MPI_Win_*) is not verified; the rest of the job is");
    }
    result
}

type Comm = *mut Communicator;
type Info = *mut mpi::ompi_info_t;
type Win = *mut *mut mpi::ompi_win_t;

extern "C" {
    fn PMPI_Intercomm_create(
        local: Comm,
        leader: c_int,
        bridge: Comm,
        remote: c_int,
        tag: c_int,
        made: *mut Comm,
    ) -> c_int;
    fn PMPI_Win_create(base: *mut c_void, size: isize, unit: c_int, info: Info, comm: Comm, made: Win) -> c_int;
    fn PMPI_Win_allocate(size: isize, unit: c_int, info: Info, comm: Comm, base: *mut c_void, made: Win) -> c_int;
    fn PMPI_Win_allocate_shared(
        size: isize,
        unit: c_int,
        info: Info,
        comm: Comm,
        base: *mut c_void,
        made: Win,
    ) -> c_int;
    fn PMPI_Win_create_dynamic(info: Info, comm: Comm, made: Win) -> c_int;
    fn PMPI_Win_free(win: Win) -> c_int;
    fn PMPI_Comm_spawn(
        command: *const c_char,
        argv: *mut *mut c_char,
        count: c_int,
        info: Info,
        root: c_int,
        comm: Comm,
        made: *mut Comm,
        errors: *mut c_int,
    ) -> c_int;
    fn PMPI_Comm_spawn_multiple(
        count: c_int,
        commands: *mut *mut c_char,
        argvs: *mut *mut *mut c_char,
        counts: *const c_int,
        infos: *const Info,
        root: c_int,
        comm: Comm,
        made: *mut Comm,
        errors: *mut c_int,
    ) -> c_int;
    fn PMPI_File_open(comm: Comm, name: *const c_char, mode: c_int, info: Info, made: *mut *mut c_void) -> c_int;
    fn PMPI_Comm_connect(port: *const c_char, info: Info, root: c_int, comm: Comm, made: *mut Comm) -> c_int;
    fn PMPI_Comm_accept(port: *const c_char, info: Info, root: c_int, comm: Comm, made: *mut Comm) -> c_int;
}

macro_rules! scoped {
    ($scope:expr, $name:ident = $real:ident ($($argument:ident : $type:ty),*)) => {
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: Open MPI's own function, with what the application gave.
            $scope(|| unsafe { $real($($argument),*) })
        }
    };
}

fn names(call: impl FnOnce() -> c_int) -> c_int {
    within(Scope::Names, call)
}

scoped!(names, intercomm_create = PMPI_Intercomm_create(
    local: Comm, leader: c_int, bridge: Comm, remote: c_int, tag: c_int, made: *mut Comm));
scoped!(window, win_create = PMPI_Win_create(
    base: *mut c_void, size: isize, unit: c_int, info: Info, comm: Comm, made: Win));
scoped!(window, win_allocate = PMPI_Win_allocate(
    size: isize, unit: c_int, info: Info, comm: Comm, base: *mut c_void, made: Win));
scoped!(window, win_allocate_shared = PMPI_Win_allocate_shared(
    size: isize, unit: c_int, info: Info, comm: Comm, base: *mut c_void, made: Win));
scoped!(window, win_create_dynamic = PMPI_Win_create_dynamic(info: Info, comm: Comm, made: Win));
scoped!(names, win_free = PMPI_Win_free(win: Win));
scoped!(names, comm_spawn = PMPI_Comm_spawn(
    command: *const c_char, argv: *mut *mut c_char, count: c_int, info: Info, root: c_int, comm: Comm,
    made: *mut Comm, errors: *mut c_int));
scoped!(names, comm_spawn_multiple = PMPI_Comm_spawn_multiple(
    count: c_int, commands: *mut *mut c_char, argvs: *mut *mut *mut c_char, counts: *const c_int,
    infos: *const Info, root: c_int, comm: Comm, made: *mut Comm, errors: *mut c_int));
// ompio names its shared files after a process number.
scoped!(names, file_open = PMPI_File_open(
    comm: Comm, name: *const c_char, mode: c_int, info: Info, made: *mut *mut c_void));
scoped!(names, comm_connect = PMPI_Comm_connect(
    port: *const c_char, info: Info, root: c_int, comm: Comm, made: *mut Comm));
scoped!(names, comm_accept = PMPI_Comm_accept(
    port: *const c_char, info: Info, root: c_int, comm: Comm, made: *mut Comm));

/// A call inside which this thread's messages are the host's alone: they stay inside the sphere, and no sphere waits for
/// another one in them. All processes that such a message goes to or comes from have to be in such a call.
pub fn alone<T>(call: impl FnOnce() -> T) -> T {
    let outer = SCOPE.replace(Scope::Host);
    let result = call();
    SCOPE.set(outer);
    result
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let name = name.strip_prefix(b"P").unwrap_or(name);
    let address = match name {
        b"MPI_Intercomm_create" => intercomm_create as *const (),
        b"MPI_Win_create" => win_create as *const (),
        b"MPI_Win_allocate" => win_allocate as *const (),
        b"MPI_Win_allocate_shared" => win_allocate_shared as *const (),
        b"MPI_Win_create_dynamic" => win_create_dynamic as *const (),
        b"MPI_Win_free" => win_free as *const (),
        b"MPI_Comm_spawn" => comm_spawn as *const (),
        b"MPI_Comm_spawn_multiple" => comm_spawn_multiple as *const (),
        b"MPI_File_open" => file_open as *const (),
        b"MPI_Comm_connect" => comm_connect as *const (),
        b"MPI_Comm_accept" => comm_accept as *const (),
        _ => return None,
    };
    Some(address as usize)
}
