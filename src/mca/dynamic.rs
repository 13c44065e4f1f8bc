//! Dynamic processes: refused. The replicas of a rank would each start, or meet, processes of their own, and those would
//! talk to a part of the job that nobody compares. An MPI error through the communicator's error handler says so, in
//! every replica alike and before anything has happened.

use super::guard::guard;
use super::host::{Communicator, ERROR};
use super::runtime;
use ompi_headers as mpi;
use std::ffi::{c_char, c_int, c_void, CString};
use std::sync::OnceLock;

type Comm = *mut Communicator;
type Info = *mut mpi::ompi_info_t;

extern "C" {
    fn PMPI_Add_error_code(class: c_int, code: *mut c_int) -> c_int;
    fn PMPI_Add_error_string(code: c_int, text: *const c_char) -> c_int;
}

/// Error codes whose text names redmpi: of class MPI_ERR_SPAWN, and of MPI_ERR_UNSUPPORTED_OPERATION.
fn code(class: u32) -> c_int {
    static CODES: OnceLock<[c_int; 2]> = OnceLock::new();
    let codes = CODES.get_or_init(|| {
        [mpi::MPI_ERR_SPAWN, mpi::MPI_ERR_UNSUPPORTED_OPERATION].map(|class| {
            let mut code = class as c_int;
            let text = c"redmpi: dynamic processes are refused, as they would not be replicated";
            // SAFETY: a place of our own, and a static text. Without a code of our own the class's is used.
            unsafe {
                if PMPI_Add_error_code(class as c_int, &mut code) == 0 {
                    PMPI_Add_error_string(code, text.as_ptr());
                } else {
                    code = class as c_int;
                }
            }
            code
        })
    });
    codes[usize::from(class != mpi::MPI_ERR_SPAWN)]
}

/// The error of a call on a communicator (null: MPI_COMM_WORLD).
fn refuse(name: &'static str, class: u32, comm: Comm) -> c_int {
    let text = format!(
        "{name}, which redmpi refuses (pml_redmpi_degree = {}): processes that are started or met later would not be \
         replicated, and their messages not verified",
        runtime::get().config.degree
    );
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the shim takes MPI_COMM_WORLD where the communicator is not a live one; the error handler may not return.
    unsafe { mpi::redmpi_shim_comm_error(comm, code(class), text.as_ptr()) }
}

/// Puts "no communicator" where the application wants one.
fn none(made: *mut Comm) {
    if !made.is_null() {
        // SAFETY: the application's place for the communicator.
        unsafe { *made = mpi::redmpi_shim_comm_null() };
    }
}

unsafe extern "C" fn spawn(
    _: *const c_char,
    _: *mut *mut c_char,
    count: c_int,
    _: Info,
    _: c_int,
    comm: Comm,
    made: *mut Comm,
    errors: *mut c_int,
) -> c_int {
    guard("MPI_Comm_spawn", ERROR, || {
        none(made);
        for i in 0..if errors.is_null() { 0 } else { count.max(0) as usize } {
            // SAFETY: null is MPI_ERRCODES_IGNORE; otherwise the application has room for as many codes as processes.
            unsafe { *errors.add(i) = code(mpi::MPI_ERR_SPAWN) };
        }
        refuse("MPI_Comm_spawn", mpi::MPI_ERR_SPAWN, comm)
    })
}

unsafe extern "C" fn spawn_multiple(
    _: c_int,
    _: *mut *mut c_char,
    _: *mut *mut *mut c_char,
    _: *const c_int,
    _: *const Info,
    _: c_int,
    comm: Comm,
    made: *mut Comm,
    _: *mut c_int,
) -> c_int {
    guard("MPI_Comm_spawn_multiple", ERROR, || {
        // The codes of single processes are left: only at the root it is known how many there are.
        none(made);
        refuse("MPI_Comm_spawn_multiple", mpi::MPI_ERR_SPAWN, comm)
    })
}

macro_rules! refused {
    ($($ours:ident = $name:literal ($($argument:ident : $type:ty),*) $comm:expr, $made:expr;)*) => {$(
        #[allow(unused_variables)]
        unsafe extern "C" fn $ours($($argument: $type),*) -> c_int {
            guard($name, ERROR, || {
                none($made);
                refuse($name, mpi::MPI_ERR_UNSUPPORTED_OPERATION, $comm)
            })
        }
    )*};
}

refused! {
    connect = "MPI_Comm_connect" (port: *const c_char, info: Info, root: c_int, comm: Comm, made: *mut Comm) comm, made;
    accept = "MPI_Comm_accept" (port: *const c_char, info: Info, root: c_int, comm: Comm, made: *mut Comm) comm, made;
    join = "MPI_Comm_join" (socket: c_int, made: *mut Comm) std::ptr::null_mut(), made;
    open_port = "MPI_Open_port" (info: Info, port: *mut c_char) std::ptr::null_mut(), std::ptr::null_mut();
    close_port = "MPI_Close_port" (port: *const c_char) std::ptr::null_mut(), std::ptr::null_mut();
    publish_name = "MPI_Publish_name" (service: *const c_char, info: Info, port: *const c_char)
        std::ptr::null_mut(), std::ptr::null_mut();
    unpublish_name = "MPI_Unpublish_name" (service: *const c_char, info: Info, port: *const c_char)
        std::ptr::null_mut(), std::ptr::null_mut();
    lookup_name = "MPI_Lookup_name" (service: *const c_char, info: Info, port: *mut c_char)
        std::ptr::null_mut(), std::ptr::null_mut();
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address: *const c_void = match name {
        b"MPI_Comm_spawn" => spawn as *const c_void,
        b"MPI_Comm_spawn_multiple" => spawn_multiple as *const c_void,
        b"MPI_Comm_connect" => connect as *const c_void,
        b"MPI_Comm_accept" => accept as *const c_void,
        b"MPI_Comm_join" => join as *const c_void,
        b"MPI_Open_port" => open_port as *const c_void,
        b"MPI_Close_port" => close_port as *const c_void,
        b"MPI_Publish_name" => publish_name as *const c_void,
        b"MPI_Unpublish_name" => unpublish_name as *const c_void,
        b"MPI_Lookup_name" => lookup_name as *const c_void,
        _ => return None,
    };
    Some(address as usize)
}
