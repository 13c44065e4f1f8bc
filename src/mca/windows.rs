//! One-sided communication: what it moves is compared between the replicas, where the standard says that it has arrived.
//!
//! Each window's module is Open MPI's own; the functions in it are turned to us, which reaches C and Fortran alike. Its
//! messages, shared memory and remote accesses are left to the host (addresses and counters in them differ between
//! spheres). Instead, an origin remembers which bytes of which target it has written, and where its gets go. Where an
//! epoch ends (MPI_Win_fence, MPI_Win_complete and MPI_Win_wait, MPI_Win_free) origins tell their targets what they have
//! written, on a communicator of the window's own, whose messages are verified as all others; the target compares those
//! bytes with its other replicas, and the origin what it got. Both are corrected as messages are.
//!
//! What depends on the order of several origins' operations (`determinism::ranges`), on locks, or on atomic operations,
//! differs between spheres without a fault. There the leader's outcome is everybody's (docs/one-sided.md).

use super::guard::guard;
use super::host::{self, Communicator, Datatype, Request, ERROR, SUCCESS};
use super::identity::{within, Scope};
use super::message::{self, Buffer, Region};
use super::receive;
use super::runtime::{self, count, lock};
use super::vars::Windows;
use super::{communicator, finalize, outcome, output, request, share};
use crate::determinism::ranges::{self, Piece, Written};
use crate::inject::Place;
use crate::report::{Event, EventKind};
use ompi_headers as mpi;
use rustc_hash::FxHashMap;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

type Comm = *mut Communicator;
type Info = *mut mpi::ompi_info_t;
type Win = *mut mpi::ompi_win_t;
type Group = *mut mpi::ompi_group_t;
type D = *mut Datatype;
type Op = *mut mpi::ompi_op_t;
type P = *const c_void;
type M = *mut c_void;
type I = c_int;
type R = *mut *mut Request;
type Module = mpi::ompi_osc_base_module_t;

extern "C" {
    fn PMPI_Win_create(base: M, size: isize, unit: I, info: Info, comm: Comm, made: *mut Win) -> I;
    fn PMPI_Win_allocate(size: isize, unit: I, info: Info, comm: Comm, base: M, made: *mut Win) -> I;
    fn PMPI_Win_allocate_shared(size: isize, unit: I, info: Info, comm: Comm, base: M, made: *mut Win) -> I;
    fn PMPI_Win_create_dynamic(info: Info, comm: Comm, made: *mut Win) -> I;
    fn PMPI_Free_mem(base: M) -> I;
    fn PMPI_Comm_group(comm: Comm, group: *mut Group) -> I;
    fn PMPI_Comm_create(comm: Comm, group: Group, made: *mut Comm) -> I;
    fn PMPI_Comm_free(comm: *mut Comm) -> I;
    fn PMPI_Comm_set_name(comm: Comm, name: *const c_char) -> I;
    fn PMPI_Group_free(group: *mut Group) -> I;
    fn PMPI_Group_size(group: Group, size: *mut I) -> I;
    fn PMPI_Group_translate_ranks(from: Group, count: I, ranks: *const I, to: Group, found: *mut I) -> I;
    fn PMPI_Allgather(out: P, n: I, of: D, into: M, m: I, to: D, comm: Comm) -> I;
    fn PMPI_Alltoall(out: P, n: I, of: D, into: M, m: I, to: D, comm: Comm) -> I;
    fn PMPI_Barrier(comm: Comm) -> I;
    fn PMPI_Isend(buffer: P, n: I, of: D, to: I, tag: I, comm: Comm, made: *mut *mut Request) -> I;
    fn PMPI_Recv(buffer: M, n: I, of: D, from: I, tag: I, comm: Comm, status: *mut host::Status) -> I;
}

/// What an operation has brought, or will have when its epoch ends.
struct Brought {
    target: c_int,
    buffer: Buffer,
    /// It depends on timing.
    loose: bool,
}

/// A list on its way to a target.
struct Sending {
    request: *mut Request,
    /// Stays until the request is complete.
    _bytes: Vec<u8>,
    _length: Box<u64>,
}

#[derive(Default)]
struct State {
    /// Epochs of locks that are open; all at once counts as one.
    locks: u32,
    /// What was written in epochs of locks, by target; told at the next fence or at the end.
    locked: FxHashMap<c_int, Written>,
    /// What was written in the present epoch of another kind.
    active: FxHashMap<c_int, Written>,
    brought: Vec<Brought>,
    /// Targets of MPI_Win_start, origins of MPI_Win_post.
    targets: Vec<c_int>,
    origins: Vec<c_int>,
    sending: Vec<Sending>,
}

/// What stands beside a window.
struct Window {
    host: Module,
    /// The window's own communicator, in its order of ranks.
    comm: Comm,
    group: Group,
    size: c_int,
    /// This process's memory; a dynamic window has none of its own.
    base: *mut u8,
    bytes: i64,
    dynamic: bool,
    /// Displacement units of all ranks.
    units: Vec<c_int>,
    state: Mutex<State>,
}

// SAFETY: the pointers are the host's objects, which live as long as the window; `state` is behind a lock, and its
// requests and buffers are bound to no thread.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

static ALL: Mutex<Option<FxHashMap<usize, Arc<Window>>>> = Mutex::new(None);

fn find(win: Win) -> Option<Arc<Window>> {
    lock(&ALL).as_ref()?.get(&(win as usize)).cloned()
}

/// Tags on a window's communicator.
const LENGTH: c_int = 1;
const LIST: c_int = 2;

/// Outcomes of the leader's that this process has taken and that differed from its own.
static DIFFERED: AtomicU64 = AtomicU64::new(0);

// ---- making ----

/// Before Open MPI makes a window. `false`: an error.
fn prepare() {
    if !runtime::active() {
        return;
    }
    match runtime::get().config.windows {
        Windows::Abort => finalize::abort(
            "the program makes a window for one-sided communication, and pml_redmpi_windows = abort does not allow it",
        ),
        Windows::Warn => {
            static SAID: AtomicBool = AtomicBool::new(false);
            if runtime::get().native == 0 && !SAID.swap(true, Ordering::Relaxed) {
                output::say(
                    "warning: one-sided communication (MPI_Win_*) is not verified (pml_redmpi_windows = warn); \
                     the rest of the job is",
                );
            }
        }
        Windows::Verify => {}
    }
    own_folder();
}

/// osc/rdma names its shared files after the communicator's context id, which is the same in all spheres: each sphere
/// gets a folder of its own. They are empty at all times but while a window is made.
fn own_folder() {
    static FOLDER: OnceLock<Option<CString>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        prefer_messages();
        let storage: *mut *mut c_char = variable(c"backing_directory").cast();
        if storage.is_null() {
            return None;
        }
        // SAFETY: a C string or null; in Open MPI's own thread of calls, before a window is made.
        let parent = unsafe {
            if (*storage).is_null() {
                return None;
            }
            CStr::from_ptr(*storage).to_string_lossy().into_owned()
        };
        let job: String = std::env::var("PMIX_NAMESPACE")
            .unwrap_or_else(|_| String::from("0"))
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
            .collect();
        // SAFETY: a system call without arguments.
        let user = unsafe { libc::geteuid() };
        let folder = CString::new(format!("{parent}/redmpi-{user}-{job}-{}", runtime::get().replica)).ok()?;
        // SAFETY: the variable's storage; Open MPI frees what is in it at the end, so it gets a malloc'ed text. The old
        // one stays, as somebody may hold it.
        unsafe { *storage = libc::strdup(folder.as_ptr()) };
        Some(folder)
    });
    if let Some(folder) = folder {
        // SAFETY: a path of our own; another process of the sphere may have been faster.
        let made = unsafe { libc::mkdir(folder.as_ptr(), 0o700) };
        if made != 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST) {
            output::say(&format!("{} cannot be made: {}", folder.to_string_lossy(), std::io::Error::last_os_error()));
        }
        static ARRANGED: AtomicBool = AtomicBool::new(false);
        if !ARRANGED.swap(true, Ordering::Relaxed) {
            *lock(&LEFT) = Some(folder.clone());
        }
    }
}

/// Where a variable of osc/rdma is stored; null if it was not loaded.
fn variable(name: &CStr) -> *mut c_void {
    // SAFETY: static texts.
    unsafe { mpi::redmpi_shim_variable(c"osc".as_ptr(), c"rdma".as_ptr(), name.as_ptr()) }
}

/// osc/rdma of 4.1 over shared memory crashes in MPI_Compare_and_swap (without redmpi, too): it is for those whom
/// osc/pt2pt refuses, programs with MPI_THREAD_MULTIPLE.
fn prefer_messages() {
    let priority: *mut std::ffi::c_uint = variable(c"priority").cast();
    // SAFETY: reads a variable of Open MPI's; writes one of its own before it is read for the first window.
    unsafe {
        if cfg!(ompi4) && mpi::redmpi_shim_thread_multiple() == 0 && !priority.is_null() {
            *priority = 0;
        }
    }
}

static LEFT: Mutex<Option<CString>> = Mutex::new(None);

/// At the end: removes the folder of this sphere, where one was made.
pub fn tidy() {
    if let Some(folder) = lock(&LEFT).take() {
        // SAFETY: a path; the first process of the sphere on this node succeeds.
        unsafe { libc::rmdir(folder.as_ptr()) };
    }
}

/// A window was made.
fn adopt(win: Win, comm: Comm, base: *mut u8, bytes: isize, unit: c_int, dynamic: bool) -> c_int {
    let wanted = runtime::active()
        && runtime::get().verifies()
        && runtime::get().config.windows == Windows::Verify
        && communicator::shadow(comm).is_some();
    if !wanted {
        return SUCCESS;
    }
    if dynamic {
        static SAID: AtomicBool = AtomicBool::new(false);
        if runtime::get().native == 0 && !SAID.swap(true, Ordering::Relaxed) {
            output::say(
                "warning: what is written to dynamic windows (MPI_Win_create_dynamic) is not verified, and addresses \
                 that the program sends to other ranks differ between replicas (docs/one-sided.md)",
            );
        }
    }
    let (mut own, mut group) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: collective over the window's communicator, as the making of the window is; places of our own. Not
    // MPI_Comm_dup: that would call what the application has attached to its communicator.
    unsafe {
        for error in [PMPI_Comm_group(comm, &mut group), PMPI_Comm_create(comm, group, &mut own)] {
            if error != SUCCESS {
                return error;
            }
        }
    }
    // SAFETY: a live communicator, just made.
    let size = unsafe { mpi::redmpi_shim_comm_size(own) };
    if let Some(of) = communicator::shadow(comm) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("window {} on {}", NUMBER.fetch_add(1, Ordering::Relaxed), of.name());
        if let Ok(name) = CString::new(name.chars().take(63).collect::<String>()) {
            // SAFETY: as above.
            unsafe { PMPI_Comm_set_name(own, name.as_ptr()) };
        }
    }
    let mut units = vec![0u8; size as usize * size_of::<c_int>()];
    let mine = unit.to_ne_bytes();
    let n = mine.len() as c_int;
    // SAFETY: `n` bytes of each of `size` ranks.
    let shared = unsafe {
        PMPI_Allgather(mine.as_ptr().cast(), n, message::byte(), units.as_mut_ptr().cast(), n, message::byte(), own)
    };
    if shared != SUCCESS {
        return shared;
    }
    let units = units.chunks_exact(4).map(|bytes| c_int::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    // SAFETY: the window was made by Open MPI, and its module is its own (each component allocates one per window); no
    // other thread knows of the window yet.
    unsafe {
        let module = (*win).w_osc_module;
        let window = Window {
            host: *module,
            comm: own,
            group,
            size,
            base,
            bytes: bytes as i64,
            dynamic,
            units: units.collect(),
            state: Mutex::default(),
        };
        lock(&ALL).get_or_insert_default().insert(win as usize, Arc::new(window));
        offer(&mut *module);
    }
    SUCCESS
}

/// Turns a module's functions to us, where the host has them.
fn offer(module: &mut Module) {
    macro_rules! turn {
        ($($field:ident = $ours:ident,)*) => { $(if module.$field.is_some() { module.$field = Some($ours); })* };
    }
    turn! {
        osc_put = put, osc_rput = rput, osc_get = get, osc_rget = rget,
        osc_accumulate = accumulate, osc_raccumulate = raccumulate,
        osc_get_accumulate = get_accumulate, osc_rget_accumulate = rget_accumulate,
        osc_fetch_and_op = fetch_and_op, osc_compare_and_swap = compare_and_swap,
        osc_fence = fence, osc_start = start, osc_complete = complete, osc_post = post, osc_wait = wait, osc_test = test,
        osc_lock = lock_one, osc_unlock = unlock, osc_lock_all = lock_all, osc_unlock_all = unlock_all,
        osc_flush = flush, osc_flush_all = flush_all, osc_flush_local = flush_local,
        osc_flush_local_all = flush_local_all, osc_free = free,
    }
}

macro_rules! making {
    ($($name:ident = $real:ident ($($argument:ident : $type:ty),*) made $base:expr, $size:expr, $unit:expr, $dynamic:expr;)*) => {$(
        unsafe extern "C" fn $name($($argument: $type,)* comm: Comm, base: M, made: *mut Win) -> c_int {
            guard(stringify!($real), ERROR, || {
                prepare();
                // SAFETY: Open MPI's own function, with what the application gave.
                let result = within(Scope::Window, || unsafe { $real($($argument,)* comm, base, made) });
                if result != SUCCESS {
                    return result;
                }
                let memory: fn(M) -> *mut u8 = $base;
                // SAFETY: Open MPI has filled the application's place for the window.
                adopt(unsafe { *made }, comm, memory(base), $size, $unit, $dynamic)
            })
        }
    )*};
}

fn allocated(base: M) -> *mut u8 {
    // SAFETY: MPI_Win_allocate has filled the application's place for the address.
    unsafe { *base.cast::<*mut u8>() }
}

making! {
    win_allocate = PMPI_Win_allocate(size: isize, unit: I, info: Info) made allocated, size, unit, false;
    win_allocate_shared = PMPI_Win_allocate_shared(size: isize, unit: I, info: Info) made allocated, size, unit, false;
}

unsafe extern "C" fn win_create(base: M, size: isize, unit: I, info: Info, comm: Comm, made: *mut Win) -> I {
    guard("MPI_Win_create", ERROR, || {
        prepare();
        // SAFETY: Open MPI's own function, with what the application gave; then the window it has made.
        unsafe {
            match within(Scope::Window, || PMPI_Win_create(base, size, unit, info, comm, made)) {
                SUCCESS => adopt(*made, comm, base.cast(), size, unit, false),
                error => error,
            }
        }
    })
}

unsafe extern "C" fn win_create_dynamic(info: Info, comm: Comm, made: *mut Win) -> I {
    guard("MPI_Win_create_dynamic", ERROR, || {
        prepare();
        // SAFETY: as above.
        unsafe {
            match within(Scope::Window, || PMPI_Win_create_dynamic(info, comm, made)) {
                SUCCESS => adopt(*made, comm, std::ptr::null_mut(), 0, 1, true),
                error => error,
            }
        }
    })
}

/// Memory that is given up: what was to be brought there is nobody's any more. A program should not do this before the
/// epoch ends, but some do, and it must not be written to.
unsafe extern "C" fn free_mem(base: M) -> I {
    guard("MPI_Free_mem", ERROR, || {
        let windows: Vec<Arc<Window>> = lock(&ALL).iter().flat_map(|all| all.values().cloned()).collect();
        for window in windows {
            lock(&window.state).brought.retain(|brought| {
                let keep = brought.buffer.address != base;
                if !keep {
                    brought.buffer.release();
                }
                keep
            });
        }
        // SAFETY: Open MPI's own function, with what the application gave.
        unsafe { PMPI_Free_mem(base) }
    })
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address = match name {
        b"MPI_Win_create" => win_create as *const (),
        b"MPI_Win_allocate" => win_allocate as *const (),
        b"MPI_Win_allocate_shared" => win_allocate_shared as *const (),
        b"MPI_Win_create_dynamic" => win_create_dynamic as *const (),
        b"MPI_Free_mem" => free_mem as *const (),
        _ => return None,
    };
    Some(address as usize)
}

// ---- the host's functions ----

macro_rules! host {
    ($window:expr, $function:ident ( $($argument:expr),* )) => {{
        let function = $window.host.$function.expect("only functions that the host has are turned to us");
        // SAFETY: the host's own function for this window, with what the application gave.
        unsafe { function($($argument),*) }
    }};
}

/// An entry point: finds the window, and runs under the guard.
macro_rules! entry {
    ($($name:ident ($($argument:ident : $type:ty),*) |$window:ident, $win:ident $(, $last:ident : $last_type:ty)?| $body:expr)*) => {$(
        unsafe extern "C" fn $name($($argument: $type,)* $win: Win $(, $last: $last_type)?) -> c_int {
            guard(concat!("osc_", stringify!($name)), ERROR, || match find($win) {
                Some(window) => {
                    let $window: &Window = &window;
                    $body
                }
                None => ERROR,
            })
        }
    )*};
}

// ---- operations ----

fn buffer(address: P, count: I, datatype: D) -> Buffer {
    Buffer { address: address.cast_mut(), count: usize::try_from(count).unwrap_or(0), datatype }
}

/// A fault in what is written, if the injector wants one.
fn inject(window: &Window, target: I, origin: Buffer) {
    let runtime = runtime::get();
    if runtime.config.inject.rate == 0 || target < 0 {
        return;
    }
    let bytes = origin.size();
    let Some(bit) = runtime.inject(Place::Message, bytes.saturating_mul(8)) else { return };
    origin.flip(bit);
    count(&runtime.counters.injected);
    let shadow = communicator::shadow(window.comm);
    runtime.counters.event(Event {
        kind: EventKind::Injected,
        native: runtime.native,
        peer: shadow.as_ref().map(|shadow| runtime.map.native_of(shadow.peer(target), runtime.replica)),
        communicator: shadow.map(|shadow| shadow.name()).unwrap_or_default(),
        tag: None,
        bytes,
        time_s: runtime.seconds(),
    });
}

struct Collect {
    pieces: Vec<(i64, i64)>,
}

/// Far from zero, so that a negative lower bound does not wrap.
const NOWHERE: usize = 1 << 46;

extern "C" fn collect(context: *mut c_void, address: *mut c_void, length: usize) -> c_int {
    // SAFETY: the `Collect` that `written` gives the shim for the time of the call; the address is not read.
    let collect = unsafe { &mut *context.cast::<Collect>() };
    let start = address as i64 - NOWHERE as i64;
    collect.pieces.push((start, start + length as i64));
    0
}

/// Remembers what an operation writes to a target.
fn written(window: &Window, target: I, displacement: isize, count: I, datatype: D, exact: u32) {
    let Some(unit) = usize::try_from(target).ok().and_then(|target| window.units.get(target)) else { return };
    if window.dynamic || count <= 0 {
        return;
    }
    let at = displacement as i64 * i64::from(*unit);
    let mut state = lock(&window.state);
    let list = if state.locks > 0 { &mut state.locked } else { &mut state.active };
    let list = list.entry(target).or_default();
    // SAFETY: a live datatype; addresses are computed and not read.
    unsafe {
        let size = mpi::redmpi_shim_message_size(datatype, count as usize);
        let block = mpi::redmpi_shim_contiguous(datatype, count as usize, NOWHERE as P);
        if size == 0 {
            return;
        }
        if !block.is_null() {
            let start = at + block as i64 - NOWHERE as i64;
            return list.add(Piece { start, end: start + size as i64, exact });
        }
        let mut pieces = Collect { pieces: Vec::new() };
        mpi::redmpi_shim_walk(datatype, count as usize, NOWHERE as P, Some(collect), (&raw mut pieces).cast());
        for (start, end) in pieces.pieces {
            list.add(Piece { start: at + start, end: at + end, exact });
        }
    }
}

/// Remembers where an operation's outcome goes.
fn brings(window: &Window, target: I, buffer: Buffer, atomic: bool) {
    if target < 0 || buffer.size() == 0 {
        return;
    }
    buffer.retain();
    let mut state = lock(&window.state);
    let loose = atomic || state.locks > 0;
    state.brought.push(Brought { target, buffer, loose });
}

fn exact(op: Op, datatype: D) -> u32 {
    // SAFETY: the application's live operation and datatype, which Open MPI has checked.
    unsafe { mpi::redmpi_shim_exact(op, datatype) as u32 }
}

fn reads_only(op: Op) -> bool {
    // SAFETY: as above.
    unsafe { mpi::redmpi_shim_is_no_op(op) != 0 }
}

/// Waits for the request of an operation that brings something: what it brings is agreed on before anybody sees it.
fn arrived(window: &Window, buffer: Buffer, request: R) -> c_int {
    // SAFETY: Open MPI's place for the request, filled by the host.
    let made = unsafe { *request };
    while !request::is_complete(made) {
        host::progress();
        request::reap();
    }
    if buffer.size() > 0 {
        heed(window, &Region::One(buffer));
    }
    SUCCESS
}

entry! {
    put(origin: P, n: I, of: D, target: I, at: isize, m: I, to: D) |window, win| {
        inject(window, target, buffer(origin, n, of));
        let result = host!(window, osc_put(origin, n, of, target, at, m, to, win));
        if result == SUCCESS {
            written(window, target, at, m, to, 0);
        }
        result
    }
    rput(origin: P, n: I, of: D, target: I, at: isize, m: I, to: D) |window, win, request: R| {
        inject(window, target, buffer(origin, n, of));
        let result = host!(window, osc_rput(origin, n, of, target, at, m, to, win, request));
        if result == SUCCESS {
            written(window, target, at, m, to, 0);
        }
        result
    }
    accumulate(origin: P, n: I, of: D, target: I, at: isize, m: I, to: D, op: Op) |window, win| {
        inject(window, target, buffer(origin, n, of));
        let result = host!(window, osc_accumulate(origin, n, of, target, at, m, to, op, win));
        if result == SUCCESS {
            written(window, target, at, m, to, exact(op, to));
        }
        result
    }
    raccumulate(origin: P, n: I, of: D, target: I, at: isize, m: I, to: D, op: Op) |window, win, request: R| {
        inject(window, target, buffer(origin, n, of));
        let result = host!(window, osc_raccumulate(origin, n, of, target, at, m, to, op, win, request));
        if result == SUCCESS {
            written(window, target, at, m, to, exact(op, to));
        }
        result
    }
    get(origin: M, n: I, of: D, target: I, at: isize, m: I, to: D) |window, win| {
        let result = host!(window, osc_get(origin, n, of, target, at, m, to, win));
        if result == SUCCESS {
            brings(window, target, buffer(origin, n, of), false);
        }
        result
    }
    rget(origin: M, n: I, of: D, target: I, at: isize, m: I, to: D) |window, win, request: R| {
        match host!(window, osc_rget(origin, n, of, target, at, m, to, win, request)) {
            SUCCESS => arrived(window, buffer(origin, n, of), request),
            error => error,
        }
    }
    get_accumulate(origin: P, n: I, of: D, result: M, k: I, into: D, target: I, at: isize, m: I, to: D, op: Op)
        |window, win| {
        let done = host!(window, osc_get_accumulate(origin, n, of, result, k, into, target, at, m, to, op, win));
        if done == SUCCESS {
            if !reads_only(op) {
                written(window, target, at, m, to, exact(op, to));
            }
            brings(window, target, buffer(result, k, into), true);
        }
        done
    }
    rget_accumulate(origin: P, n: I, of: D, result: M, k: I, into: D, target: I, at: isize, m: I, to: D, op: Op)
        |window, win, request: R| {
        let function = window.host.osc_rget_accumulate.expect("turned to us");
        // SAFETY: the host's own function, with what the application gave.
        match unsafe { function(origin, n, of, result, k, into, target, at, m, to, op, win, request) } {
            SUCCESS => {
                if !reads_only(op) {
                    written(window, target, at, m, to, exact(op, to));
                }
                arrived(window, buffer(result, k, into), request)
            }
            error => error,
        }
    }
    fetch_and_op(origin: P, result: M, of: D, target: I, at: isize, op: Op) |window, win| {
        let done = host!(window, osc_fetch_and_op(origin, result, of, target, at, op, win));
        if done == SUCCESS {
            if !reads_only(op) {
                written(window, target, at, 1, of, exact(op, of));
            }
            brings(window, target, buffer(result, 1, of), true);
        }
        done
    }
    compare_and_swap(origin: P, compare: P, result: M, of: D, target: I, at: isize) |window, win| {
        let done = host!(window, osc_compare_and_swap(origin, compare, result, of, target, at, win));
        if done == SUCCESS {
            written(window, target, at, 1, of, 0);
            brings(window, target, buffer(result, 1, of), true);
        }
        done
    }
}

// ---- agreement ----

/// The leader's bytes instead of this process's own. The leader does not wait: it may hold a lock.
fn heed(window: &Window, region: &Region) {
    let Some(shadow) = communicator::shadow(window.comm) else { return };
    if !share::open() {
        return;
    }
    let mine = region.gather(region.size());
    let runtime = runtime::get();
    if runtime.leads() {
        share::leader_on(shadow.id, share::kind::WINDOW, "what a one-sided operation has brought", mine);
        return;
    }
    let what = "what a one-sided operation has brought the leader";
    let theirs = share::leader_on(shadow.id, share::kind::WINDOW, what, Vec::new());
    if theirs.len() != mine.len() {
        finalize::abort(&format!(
            "the replicas have diverged on {}: an operation has brought {} bytes here, and {} to the leader",
            shadow.name(),
            mine.len(),
            theirs.len()
        ));
    }
    if theirs != mine {
        region.scatter(&theirs);
        if DIFFERED.fetch_add(1, Ordering::Relaxed) == 0 {
            log::warn!(
                "{}: what several ranks have written, or what was read under locks, differs from the leader's; the \
                 leader's is taken (timing or a fault, which cannot be told)",
                shadow.name()
            );
        }
        runtime.counters.event(Event {
            kind: EventKind::Note,
            native: runtime.native,
            peer: Some(runtime.leader()),
            communicator: shadow.name(),
            tag: None,
            bytes: mine.len() as u64,
            time_s: runtime.seconds(),
        });
    }
}

/// Compares a region with the other replicas', and corrects it.
fn compare(window: &Window, region: Region) -> c_int {
    match communicator::shadow(window.comm) {
        Some(shadow) if region.size() > 0 => receive::compare(&shadow, window.comm, receive::RESULT, region),
        _ => SUCCESS,
    }
}

/// What operations have brought by now (from one target, or from all).
fn settle_brought(window: &Window, from: Option<c_int>) -> c_int {
    let (now, later): (Vec<Brought>, Vec<Brought>) = {
        let mut state = lock(&window.state);
        let all = std::mem::take(&mut state.brought);
        all.into_iter().partition(|brought| from.is_none_or(|target| target == brought.target))
    };
    lock(&window.state).brought.extend(later);
    if now.is_empty() {
        return SUCCESS;
    }
    let of = |loose: bool| -> Region {
        Region::Many(now.iter().filter(|brought| brought.loose == loose).map(|brought| brought.buffer).collect())
    };
    let (firm, loose) = (of(false), of(true));
    let result = compare(window, firm);
    if loose.size() > 0 {
        heed(window, &loose);
    }
    now.iter().for_each(|brought| brought.buffer.release());
    result
}

/// What origins have written here.
fn settle_written(window: &Window, lists: &[Vec<Piece>]) -> c_int {
    let arranged = ranges::arrange(lists);
    let region = |list: &[(i64, i64)]| -> Region {
        let part = |(start, end): &(i64, i64)| Buffer {
            // SAFETY: inside the window (`ranges::decode`), whose memory the application has given to MPI.
            address: unsafe { window.base.offset(*start as isize) }.cast(),
            count: (end - start) as usize,
            datatype: message::byte(),
        };
        Region::Many(list.iter().map(part).collect())
    };
    let result = compare(window, region(&arranged.firm));
    if !arranged.loose.is_empty() {
        heed(window, &region(&arranged.loose));
    }
    result
}

/// Sends a list to a target; it may be received much later.
fn send_list(window: &Window, target: c_int, pieces: &[Piece]) -> c_int {
    let bytes = ranges::encode(pieces);
    let length = Box::new(bytes.len() as u64);
    let mut messages: Vec<(P, usize, c_int)> = vec![((&raw const *length).cast(), size_of::<u64>(), LENGTH)];
    if !bytes.is_empty() {
        messages.push((bytes.as_ptr().cast(), bytes.len(), LIST));
    }
    let mut requests = Vec::new();
    for (address, length, tag) in messages {
        let mut request = std::ptr::null_mut();
        // SAFETY: memory that stays with the request (`Sending`; moving a Vec or a Box does not move what is in it).
        let sent =
            unsafe { PMPI_Isend(address, length as c_int, message::byte(), target, tag, window.comm, &mut request) };
        if sent != SUCCESS {
            return sent;
        }
        requests.push(request);
    }
    let (mut bytes, mut length) = (Some(bytes), Some(length));
    let mut state = lock(&window.state);
    // The last request keeps the memory; they are waited for in this order.
    let last = requests.len() - 1;
    for (i, request) in requests.into_iter().enumerate() {
        let keep = i == last;
        state.sending.push(Sending {
            request,
            _bytes: if keep { bytes.take().unwrap_or_default() } else { Vec::new() },
            _length: if keep { length.take().unwrap_or_default() } else { Box::default() },
        });
    }
    SUCCESS
}

/// Waits for lists that were sent: their targets have received them, or are just doing so.
fn sent_lists(window: &Window) -> c_int {
    let sending = std::mem::take(&mut lock(&window.state).sending);
    sending.into_iter().map(|sending| request::wait_and_free(sending.request)).fold(SUCCESS, |first, error| {
        if first == SUCCESS {
            error
        } else {
            first
        }
    })
}

fn receive_list(window: &Window, origin: c_int) -> Result<Vec<Piece>, c_int> {
    let mut length = 0u64;
    let mut bytes = Vec::new();
    let receive = |address: M, length: usize, tag: c_int| {
        // SAFETY: `length` bytes of our own; null is MPI_STATUS_IGNORE.
        let result = unsafe {
            PMPI_Recv(address, length as c_int, message::byte(), origin, tag, window.comm, std::ptr::null_mut())
        };
        if result == SUCCESS {
            Ok(())
        } else {
            Err(result)
        }
    };
    receive((&raw mut length).cast(), size_of::<u64>(), LENGTH)?;
    if length > 0 {
        bytes = vec![0u8; length as usize];
        receive(bytes.as_mut_ptr().cast(), bytes.len(), LIST)?;
    }
    Ok(ranges::decode(&bytes, window.bytes))
}

/// All ranks have come to the same point and all their operations are done: everything is settled.
fn settle(window: &Window, more_follow: bool) -> c_int {
    let brought = settle_brought(window, None);
    if brought != SUCCESS {
        return brought;
    }
    let mut lists: FxHashMap<c_int, Written> = {
        let mut state = lock(&window.state);
        let mut lists = std::mem::take(&mut state.active);
        for (target, written) in std::mem::take(&mut state.locked) {
            lists.entry(target).or_default().join(written);
        }
        lists
    };
    let pieces: Vec<Vec<Piece>> =
        (0..window.size).map(|target| lists.get_mut(&target).map(Written::take).unwrap_or_default()).collect();
    let out: Vec<u8> = pieces.iter().map(|pieces| u8::from(!pieces.is_empty())).collect();
    let mut into = vec![0u8; out.len()];
    // SAFETY: one byte of and for each rank.
    let told = unsafe {
        PMPI_Alltoall(
            out.as_ptr().cast(),
            1,
            message::byte(),
            into.as_mut_ptr().cast(),
            1,
            message::byte(),
            window.comm,
        )
    };
    if told != SUCCESS {
        return told;
    }
    for (target, pieces) in pieces.iter().enumerate().filter(|(_, pieces)| !pieces.is_empty()) {
        let sent = send_list(window, target as c_int, pieces);
        if sent != SUCCESS {
            return sent;
        }
    }
    let mut lists = Vec::new();
    for origin in (0..window.size).filter(|origin| into[*origin as usize] != 0) {
        match receive_list(window, origin) {
            Ok(list) => lists.push(list),
            Err(error) => return error,
        }
    }
    let mut result = settle_written(window, &lists);
    let sent = sent_lists(window);
    if result == SUCCESS {
        result = sent;
    }
    if result == SUCCESS && more_follow {
        // Nobody reads or writes what is being compared.
        // SAFETY: the window's own communicator.
        result = unsafe { PMPI_Barrier(window.comm) };
    }
    result
}

fn ranks(window: &Window, group: Group) -> Result<Vec<c_int>, c_int> {
    let mut size = 0;
    // SAFETY: live groups and places of our own.
    unsafe {
        let counted = PMPI_Group_size(group, &mut size);
        if counted != SUCCESS {
            return Err(counted);
        }
        let all: Vec<c_int> = (0..size).collect();
        let mut found = vec![-1; all.len()];
        match PMPI_Group_translate_ranks(group, size, all.as_ptr(), window.group, found.as_mut_ptr()) {
            SUCCESS => Ok(found),
            error => Err(error),
        }
    }
}

/// The end of an exposure epoch: what the origins have written.
fn exposed(window: &Window) -> c_int {
    let origins = std::mem::take(&mut lock(&window.state).origins);
    let mut lists = Vec::new();
    for origin in origins {
        match receive_list(window, origin) {
            Ok(list) => lists.push(list),
            Err(error) => return error,
        }
    }
    settle_written(window, &lists)
}

/// After a call that ends with what operations have brought from a target, or from all.
fn after(result: c_int, window: &Window, from: Option<c_int>) -> c_int {
    if result == SUCCESS {
        settle_brought(window, from)
    } else {
        result
    }
}

entry! {
    fence(assert: I) |window, win| {
        let result = host!(window, osc_fence(assert, win));
        // Given by all ranks or by none (MPI-3.1, 11.5.5): nothing has happened.
        if result != SUCCESS || assert & mpi::MPI_MODE_NOPRECEDE as c_int != 0 {
            return result;
        }
        settle(window, assert & mpi::MPI_MODE_NOSUCCEED as c_int == 0)
    }
    start(group: Group, assert: I) |window, win| {
        match ranks(window, group) {
            Ok(ranks) => lock(&window.state).targets = ranks,
            Err(error) => return error,
        }
        host!(window, osc_start(group, assert, win))
    }
    complete() |window, win| {
        let mut result = after(host!(window, osc_complete(win)), window, None);
        if result != SUCCESS {
            return result;
        }
        // Those of the last epoch: its targets have received them, or this epoch would not have begun.
        result = sent_lists(window);
        let (targets, mut lists) = {
            let mut state = lock(&window.state);
            (std::mem::take(&mut state.targets), std::mem::take(&mut state.active))
        };
        for target in targets {
            if result == SUCCESS {
                result = send_list(window, target, &lists.get_mut(&target).map(Written::take).unwrap_or_default());
            }
        }
        result
    }
    post(group: Group, assert: I) |window, win| {
        match ranks(window, group) {
            Ok(ranks) => lock(&window.state).origins = ranks,
            Err(error) => return error,
        }
        host!(window, osc_post(group, assert, win))
    }
    wait() |window, win| {
        match host!(window, osc_wait(win)) {
            SUCCESS => exposed(window),
            error => error,
        }
    }
    test() |window, win, flag: *mut c_int| {
        let Some(shadow) = communicator::shadow(window.comm) else { return host!(window, osc_test(win, flag)) };
        let mut result = SUCCESS;
        let key = (win as u64) << 4;
        let found = outcome::agree(&shadow, key, "MPI_Win_test", false, || {
            result = host!(window, osc_test(win, flag));
            // SAFETY: Open MPI's place for the flag.
            (result == SUCCESS && unsafe { *flag } != 0).then(Vec::new)
        });
        // SAFETY: as above.
        unsafe { *flag = c_int::from(found.is_some()) };
        if found.is_none() || result != SUCCESS {
            return result;
        }
        if !runtime::get().leads() {
            result = host!(window, osc_wait(win));
        }
        if result == SUCCESS { exposed(window) } else { result }
    }
    lock_one(kind: I, target: I, assert: I) |window, win| {
        let result = host!(window, osc_lock(kind, target, assert, win));
        if result == SUCCESS {
            lock(&window.state).locks += 1;
        }
        result
    }
    unlock(target: I) |window, win| {
        let result = after(host!(window, osc_unlock(target, win)), window, Some(target));
        let mut state = lock(&window.state);
        state.locks = state.locks.saturating_sub(1);
        result
    }
    lock_all(assert: I) |window, win| {
        let result = host!(window, osc_lock_all(assert, win));
        if result == SUCCESS {
            lock(&window.state).locks += 1;
        }
        result
    }
    unlock_all() |window, win| {
        let result = after(host!(window, osc_unlock_all(win)), window, None);
        let mut state = lock(&window.state);
        state.locks = state.locks.saturating_sub(1);
        result
    }
    flush(target: I) |window, win| after(host!(window, osc_flush(target, win)), window, Some(target))
    flush_all() |window, win| after(host!(window, osc_flush_all(win)), window, None)
    flush_local(target: I) |window, win| after(host!(window, osc_flush_local(target, win)), window, Some(target))
    flush_local_all() |window, win| after(host!(window, osc_flush_local_all(win)), window, None)
    free() |window, win| {
        if !share::open() {
            // Left over at MPI_Finalize.
            return host!(window, osc_free(win));
        }
        let mut result = settle(window, true);
        if result != SUCCESS {
            return result;
        }
        if let Some(all) = lock(&ALL).as_mut() {
            all.remove(&(win as usize));
        }
        result = within(Scope::Names, || host!(window, osc_free(win)));
        let (mut comm, mut group) = (window.comm, window.group);
        // SAFETY: the window's own, and nobody uses them any more.
        unsafe {
            PMPI_Comm_free(&mut comm);
            PMPI_Group_free(&mut group);
        }
        result
    }
}
