//! The host PML: Open MPI's own module that redmpi stands in front of. Its functions are saved here before ours are
//! put into the global module.

use ompi_headers as mpi;
use std::ffi::{c_int, c_void, CStr};
use std::sync::OnceLock;

pub use mpi::{
    mca_pml_base_module_t as Module, mca_pml_base_send_mode_t as SendMode, ompi_communicator_t as Communicator,
    ompi_datatype_t as Datatype, ompi_message_t as MatchedMessage, ompi_request_t as Request,
    ompi_status_public_t as Status,
};

/// MPI_SUCCESS and OMPI_SUCCESS.
pub const SUCCESS: c_int = mpi::OMPI_SUCCESS as c_int;
/// OMPI_ERROR.
pub const ERROR: c_int = -1;

static HOST: OnceLock<Module> = OnceLock::new();

/// Saves the module in front of which redmpi steps, then lets `change` put our functions into Open MPI's own.
///
/// # Safety
/// To be called once, after the PML was selected and before any other thread can use it (coll's init_query).
pub unsafe fn interpose(change: impl FnOnce(&mut Module)) {
    let module = &raw mut mpi::mca_pml;
    // SAFETY: the caller says that nobody else uses the module now; it is plain data.
    unsafe {
        let _ = HOST.set(*module);
        change(&mut *module);
    }
}

/// The saved module.
#[inline]
pub fn module() -> &'static Module {
    HOST.get().expect("the host PML is saved before anything is sent")
}

macro_rules! host {
    ($function:ident ( $($argument:expr),* )) => {{
        let function = module().$function.expect(concat!("the host PML has ", stringify!($function)));
        // SAFETY: the host's own function with arguments as Open MPI or redmpi's own buffers provide them; the
        // contracts of pml.h are the caller's (each caller is an entry point that passes on what it was given, or
        // the channel, whose buffers live until completion).
        unsafe { function($($argument),*) }
    }};
}

/// `pml_isend`.
#[allow(clippy::too_many_arguments)]
pub fn isend(
    buffer: *const c_void,
    count: usize,
    datatype: *mut Datatype,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
) -> Result<*mut Request, c_int> {
    let mut request = std::ptr::null_mut();
    match host!(pml_isend(buffer, count, datatype, to, tag, mode, comm, &mut request)) {
        SUCCESS => Ok(request),
        error => Err(error),
    }
}

/// `pml_send`.
pub fn send(
    buffer: *const c_void,
    count: usize,
    datatype: *mut Datatype,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
) -> c_int {
    host!(pml_send(buffer, count, datatype, to, tag, mode, comm))
}

/// `pml_irecv`.
pub fn irecv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut Datatype,
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
) -> Result<*mut Request, c_int> {
    let mut request = std::ptr::null_mut();
    match host!(pml_irecv(buffer, count, datatype, from, tag, comm, &mut request)) {
        SUCCESS => Ok(request),
        error => Err(error),
    }
}

/// `pml_recv`.
pub fn recv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut Datatype,
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    status: *mut Status,
) -> c_int {
    host!(pml_recv(buffer, count, datatype, from, tag, comm, status))
}

/// `pml_imrecv`.
pub fn imrecv(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut Datatype,
    message: *mut *mut MatchedMessage,
) -> Result<*mut Request, c_int> {
    let mut request = std::ptr::null_mut();
    match host!(pml_imrecv(buffer, count, datatype, message, &mut request)) {
        SUCCESS => Ok(request),
        error => Err(error),
    }
}

/// `pml_probe`.
pub fn probe(from: c_int, tag: c_int, comm: *mut Communicator, status: *mut Status) -> c_int {
    host!(pml_probe(from, tag, comm, status))
}

/// `pml_iprobe`.
pub fn iprobe(from: c_int, tag: c_int, comm: *mut Communicator, matched: *mut c_int, status: *mut Status) -> c_int {
    host!(pml_iprobe(from, tag, comm, matched, status))
}

/// `pml_mprobe`.
pub fn mprobe(
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    message: *mut *mut MatchedMessage,
    status: *mut Status,
) -> c_int {
    host!(pml_mprobe(from, tag, comm, message, status))
}

/// `pml_improbe`.
pub fn improbe(
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    matched: *mut c_int,
    message: *mut *mut MatchedMessage,
    status: *mut Status,
) -> c_int {
    host!(pml_improbe(from, tag, comm, matched, message, status))
}

/// `pml_start`.
pub fn start(count: usize, requests: *mut *mut Request) -> c_int {
    host!(pml_start(count, requests))
}

/// `pml_add_comm`.
pub fn add_comm(comm: *mut Communicator) -> c_int {
    host!(pml_add_comm(comm))
}

/// `pml_del_comm`.
pub fn del_comm(comm: *mut Communicator) -> c_int {
    host!(pml_del_comm(comm))
}

/// Lets the host work on what is under way.
pub fn progress() {
    // SAFETY: opal_progress may be called by any thread at any time between MPI_Init and MPI_Finalize.
    unsafe { mpi::opal_progress() };
}

/// This machine's name, as Open MPI tells it.
pub fn hostname() -> String {
    text(|| {
        // SAFETY: Open MPI's own string; it lives as long as the process.
        unsafe { mpi::redmpi_shim_hostname() }
    })
}

/// Version text of the library that is loaded.
pub fn version() -> String {
    text(|| {
        // SAFETY: a static buffer of the shim.
        unsafe { mpi::redmpi_shim_host_version() }
    })
}

/// Version of the headers redmpi was built with, "4.1.4".
pub fn built_version() -> String {
    text(|| {
        // SAFETY: a string literal of the shim.
        unsafe { mpi::redmpi_shim_built_version() }
    })
}

fn text(get: impl FnOnce() -> *const std::ffi::c_char) -> String {
    let pointer = get();
    if pointer.is_null() {
        return String::from("unknown");
    }
    // SAFETY: not null, and the callers above give NUL-terminated strings that outlive the call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
