//! Requests of ours, as the application holds them, and the host's requests behind them.
//!
//! The host calls back when a request of its own completes, from inside its progress and before it has marked the
//! request complete. So a callback never frees the host's request: it is *retired*, and freed at the next
//! opportunity. That holds for every PML, whatever it does after the callback.

use super::host::{Communicator, Request};
use super::runtime::lock;
use ompi_headers as mpi;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// The request struct of ours: Open MPI's, and a pointer.
pub type Outer = mpi::redmpi_request_t;

struct Retired(Vec<*mut Request>);

// SAFETY: requests are not bound to a thread; they are only freed here, under the lock.
unsafe impl Send for Retired {}

static RETIRED: Mutex<Retired> = Mutex::new(Retired(Vec::new()));
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Gives up a host request that has completed or is just completing.
pub fn retire(request: *mut Request) {
    // SAFETY: the address of Open MPI's static request.
    if request.is_null() || request == unsafe { mpi::redmpi_shim_request_empty() } {
        return;
    }
    lock(&RETIRED).0.push(request);
    WAITING.fetch_add(1, Ordering::Relaxed);
}

/// Frees the retired requests that the host has finished with.
#[inline]
pub fn reap() {
    if WAITING.load(Ordering::Relaxed) > 0 {
        reap_some();
    }
}

fn reap_some() {
    let mut ready = Vec::new();
    {
        let mut retired = lock(&RETIRED);
        retired.0.retain(|request| {
            let complete = is_complete(*request);
            if complete {
                ready.push(*request);
            }
            !complete
        });
        WAITING.store(retired.0.len(), Ordering::Relaxed);
    }
    for mut request in ready {
        // SAFETY: complete, retired once, and nobody else knows of it.
        unsafe { mpi::redmpi_shim_request_free(&mut request) };
    }
}

/// Whether the host has completed a request.
pub fn is_complete(request: *const Request) -> bool {
    // SAFETY: a live request.
    unsafe { mpi::redmpi_shim_request_is_complete(request) != 0 }
}

/// Registers a callback. `false`: the request had completed before, so the callback will not be called.
pub fn on_completion(
    request: *mut Request,
    callback: unsafe extern "C" fn(*mut Request) -> c_int,
    data: *mut c_void,
) -> bool {
    // SAFETY: a live host request that no callback was registered for.
    unsafe { mpi::redmpi_shim_request_callback(request, Some(callback), data) == 0 }
}

/// What was registered with a request's callback.
pub fn data(request: *const Request) -> *mut c_void {
    // SAFETY: a live request.
    unsafe { mpi::redmpi_shim_request_data(request) }
}

/// Waits for a request and frees it; its MPI error.
pub fn wait_and_free(mut request: *mut Request) -> c_int {
    // SAFETY: a live request that the caller owns; read before it is freed.
    unsafe {
        mpi::redmpi_shim_request_wait(request);
        let error = (*request).req_status.MPI_ERROR;
        mpi::redmpi_shim_request_free(&mut request);
        error
    }
}

/// Asks the host to cancel.
pub fn cancel(request: *mut Request) -> c_int {
    // SAFETY: a live request.
    unsafe { mpi::redmpi_shim_request_cancel(request) }
}

/// A new active (or, persistent, inactive) request with its functions.
pub fn new(
    comm: *mut Communicator,
    persistent: bool,
    state: *mut c_void,
    free: mpi::ompi_request_free_fn_t,
    cancel: mpi::ompi_request_cancel_fn_t,
) -> *mut Outer {
    // SAFETY: a new object of our own class; nobody else knows of it yet.
    unsafe {
        let outer = mpi::redmpi_shim_request_new();
        assert!(!outer.is_null(), "no memory for a request");
        mpi::redmpi_shim_request_init(outer, c_int::from(persistent));
        (*outer).super_.req_free = free;
        (*outer).super_.req_cancel = cancel;
        (*outer).super_.req_mpi_object.comm = comm;
        (*outer).super_.req_state = if persistent { mpi::OMPI_REQUEST_INACTIVE } else { mpi::OMPI_REQUEST_ACTIVE };
        (*outer).state = state;
        outer
    }
}

/// Requests that were given up and whose memory Open MPI may still look at.
struct Buried(VecDeque<*mut Outer>);

// SAFETY: as with `Retired`.
unsafe impl Send for Buried {}

static BURIED: Mutex<Buried> = Mutex::new(Buried(VecDeque::new()));

/// Destroys a request of ours a while later: MPI_Request_free of a persistent collective operation looks at it once more
/// after the request's own free function.
pub fn bury(outer: *mut Outer) {
    let oldest = {
        let mut buried = lock(&BURIED);
        buried.0.push_back(outer);
        if buried.0.len() > 64 {
            buried.0.pop_front()
        } else {
            None
        }
    };
    if let Some(oldest) = oldest {
        destroy(oldest);
    }
}

/// What a request of ours stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Role {
    /// A receive, or a value that is compared like one.
    Receive = 1,
    /// A persistent request of point-to-point communication.
    Persistent = 2,
}

/// Says what a request of ours stands for.
pub fn set_role(outer: *mut Outer, role: Role) {
    // SAFETY: a live request of ours.
    unsafe { (*outer).role = role as c_int }
}

/// The state behind a request, if it is one of ours and stands for this.
pub fn state_of(request: *mut Request, role: Role) -> Option<*mut c_void> {
    // SAFETY: a live request; one of our class has our fields.
    unsafe {
        let ours = mpi::redmpi_shim_request_is_ours(request) != 0;
        (ours && (*request.cast::<Outer>()).role == role as c_int).then(|| (*request.cast::<Outer>()).state)
    }
}

/// Destroys a request of ours.
pub fn destroy(outer: *mut Outer) {
    // SAFETY: complete or never handed out, and given up by everybody.
    unsafe {
        mpi::redmpi_shim_request_fini(outer);
        mpi::redmpi_shim_request_release(outer);
    }
}

/// Marks a request of ours complete and wakes who waits for it.
pub fn complete(outer: *mut Outer) {
    // SAFETY: active, and completed only once.
    unsafe { mpi::redmpi_shim_request_complete(&raw mut (*outer).super_) }
}

/// MPI_REQUEST_NULL.
pub fn null() -> *mut Request {
    // SAFETY: the address of Open MPI's static request.
    unsafe { mpi::redmpi_shim_request_null() }
}
