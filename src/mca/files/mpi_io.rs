//! MPI-IO: a follower's MPI_File_open gets the private copy's name; what is below it, OMPIO or ROMIO, does not notice.
//! Fortran's and Python's calls come here too (`PMPI_File_open`).

use super::{c_text, gather, heard, here, leads, meet, runtime, tell, text, verify, Met, Prepared, Returned, Target};
use crate::files::overlay::{self, Intent};
use crate::mca::guard::guard;
use crate::mca::host::{Communicator, ERROR, SUCCESS};
use crate::mca::identity;
use crate::mca::runtime::count;
use ompi_headers as mpi;
use std::ffi::{c_char, c_int, c_void, CStr, CString};

/// A communicator, as MPI's calls take it.
pub type Comm = *mut Communicator;
type Info = *mut mpi::ompi_info_t;
/// An open file of MPI's.
pub type File = *mut c_void;

extern "C" {
    fn PMPI_File_open(comm: Comm, name: *const c_char, mode: c_int, info: Info, place: *mut File) -> c_int;
    fn PMPI_File_close(place: *mut File) -> c_int;
    fn PMPI_File_delete(name: *const c_char, info: Info) -> c_int;
    fn PMPI_Comm_rank(comm: Comm, rank: *mut c_int) -> c_int;
    fn PMPI_Barrier(comm: Comm) -> c_int;
}

// mpi.h; the same in all of Open MPI's series.
const CREATE: c_int = 1;
const RDONLY: c_int = 2;
/// MPI_MODE_DELETE_ON_CLOSE.
pub const DELETE_ON_CLOSE: c_int = 16;
const EXCL: c_int = 64;

/// An error code of MPI's.
#[derive(Clone, Copy)]
struct Code(c_int);

impl Returned for Code {
    fn failure(self) -> c_int {
        self.0
    }
    fn failed(reason: c_int) -> Code {
        Code(reason)
    }
}

/// "ufs:" of "ufs:path", and the path: for ROMIO, the name of a file system may stand in front. For OMPIO it belongs to
/// the path.
fn parted(name: &[u8]) -> (&[u8], &[u8]) {
    let romio = std::env::var("OMPI_MCA_io").is_ok_and(|io| io.starts_with("romio") || io.starts_with("^ompio"));
    match name.iter().position(|byte| matches!(byte, b':' | b'/')) {
        Some(at) if romio && name[at] == b':' && at > 1 => name.split_at(at + 1),
        _ => (b"", name),
    }
}

fn with_prefix(prefix: &[u8], path: &CStr) -> CString {
    c_text([prefix, path.to_bytes()].concat())
}

/// Lets all ranks of a communicator come so far.
pub fn barrier(comm: Comm) -> c_int {
    // SAFETY: a communicator that the application has passed, or one of ours.
    unsafe { PMPI_Barrier(comm) }
}

/// This process's rank in a communicator.
pub fn rank(comm: Comm) -> c_int {
    let mut rank = 0;
    // SAFETY: as above, and a place.
    unsafe { PMPI_Comm_rank(comm, &mut rank) };
    rank
}

unsafe extern "C" fn file_open(comm: Comm, name: *const c_char, mode: c_int, info: Info, place: *mut File) -> c_int {
    guard("MPI_File_open", ERROR, || {
        // SAFETY: the application's arguments, but for the name.
        let open = |name: &CStr, mode: c_int| unsafe { PMPI_File_open(comm, name.as_ptr(), mode, info, place) };
        // SAFETY: the application's argument.
        let given = unsafe { text(name) };
        let Some(given) = given.filter(|_| !comm.is_null() && !place.is_null()) else {
            // SAFETY: as above; MPI says what is wrong with it.
            return unsafe { PMPI_File_open(comm, name, mode, info, place) };
        };
        // Names are sent around in there, and they differ; and the leader's sphere opens the file first.
        identity::alone(|| open_any(comm, given, mode, place, &open))
    })
}

fn open_any(comm: Comm, given: &[u8], mode: c_int, place: *mut File, open: &dyn Fn(&CStr, c_int) -> c_int) -> c_int {
    let (prefix, path) = parted(given);
    let name = c_text(given);
    let target = Target::new(libc::AT_FDCWD, path, true);
    if target.is_special() {
        return open(&name, mode);
    }
    let leads = leads();
    if mode & RDONLY != 0 {
        return match target.copied() {
            Some(copy) if !leads => open(&with_prefix(prefix, copy), mode),
            _ => open(&name, mode),
        };
    }
    let first = rank(comm) == 0;
    let intent = Intent { write: true, exclusive: mode & EXCL != 0, ..Intent::default() };
    // One copy, and everybody waits for it.
    let prepared = if first && !leads { target.prepare(intent) } else { Prepared::default() };
    let waited = barrier(comm);
    if waited != SUCCESS {
        return waited;
    }
    let met = here();
    if met {
        gather("MPI_File_open", path);
    }
    let result = if leads {
        let result = Code(open(&name, mode));
        if met {
            tell("MPI_File_open", result);
        }
        if result.0 == SUCCESS && first {
            count(&runtime::get().files.opened);
        }
        result.0
    } else {
        let reason = if met { heard("MPI_File_open") } else { SUCCESS };
        match (&target.copy, prepared.error) {
            // It fails here in the same way, with the same messages.
            _ if reason != SUCCESS => {
                if let Some(copy) = prepared.copied {
                    // SAFETY: a name of our own.
                    unsafe { libc::unlink(copy.as_ptr()) };
                }
                open(&name, mode)
            }
            (_, Some(error)) => target.refuse::<Code>(&error).0,
            (Some(copy), None) => match target.make_folder(met) {
                Ok(()) => {
                    if mode & CREATE != 0 && first {
                        target.remember();
                    }
                    open(&with_prefix(prefix, copy), mode & !EXCL)
                }
                Err(error) => target.refuse::<Code>(&error).0,
            },
            (None, None) => open(&name, mode),
        }
    };
    if result == SUCCESS {
        // SAFETY: the application's place, filled by MPI.
        verify::file_opened(unsafe { *place }, comm, &target, mode);
    }
    result
}

unsafe extern "C" fn file_close(place: *mut File) -> c_int {
    guard("MPI_File_close", ERROR, || {
        // SAFETY: the application's argument.
        let close = || unsafe { PMPI_File_close(place) };
        identity::alone(|| {
            if place.is_null() {
                return close();
            }
            // SAFETY: not null.
            verify::file_closes(unsafe { *place }, close)
        })
    })
}

unsafe extern "C" fn file_delete(name: *const c_char, info: Info) -> c_int {
    guard("MPI_File_delete", ERROR, || {
        // SAFETY: the application's arguments.
        let real = || Code(identity::alone(|| unsafe { PMPI_File_delete(name, info) }));
        // SAFETY: as above.
        let Some((_, path)) = (unsafe { text(name) }).map(parted) else { return real().0 };
        if overlay::is_system(path) {
            return real().0;
        }
        let target = Target::new(libc::AT_FDCWD, path, false);
        meet("MPI_File_delete", (libc::AT_FDCWD, path), Prepared::default, real, |_, met| {
            if let Some(copy) = target.copied() {
                // SAFETY: a path.
                unsafe { libc::unlink(copy.as_ptr()) };
                target.forget();
            }
            if met == Met::Not {
                target.set_gone(true);
            }
            Code(SUCCESS)
        })
        .0
    })
}

type Kept = *mut c_void;

/// Calls that move a shared pointer: where it is kept, and under which name, is the sphere's own affair.
macro_rules! shared_pointer {
    ($($name:ident = $real:ident ($($argument:ident: $type:ty),*);)*) => {
        extern "C" {
            $(fn $real(file: File, $($argument: $type),*) -> c_int;)*
        }
        $(unsafe extern "C" fn $name(file: File, $($argument: $type),*) -> c_int {
            guard(stringify!($real), ERROR, || {
                if stringify!($real).contains("write_shared") {
                    verify::file_without_order(file);
                }
                // SAFETY: Open MPI's own function, with what the application gave.
                identity::alone(|| unsafe { $real(file, $($argument),*) })
            })
        })*
    };
}

shared_pointer! {
    read_shared = PMPI_File_read_shared(buffer: Kept, count: c_int, datatype: Kept, status: Kept);
    write_shared = PMPI_File_write_shared(buffer: Kept, count: c_int, datatype: Kept, status: Kept);
    iread_shared = PMPI_File_iread_shared(buffer: Kept, count: c_int, datatype: Kept, request: Kept);
    iwrite_shared = PMPI_File_iwrite_shared(buffer: Kept, count: c_int, datatype: Kept, request: Kept);
    read_ordered = PMPI_File_read_ordered(buffer: Kept, count: c_int, datatype: Kept, status: Kept);
    write_ordered = PMPI_File_write_ordered(buffer: Kept, count: c_int, datatype: Kept, status: Kept);
    read_ordered_begin = PMPI_File_read_ordered_begin(buffer: Kept, count: c_int, datatype: Kept);
    read_ordered_end = PMPI_File_read_ordered_end(buffer: Kept, status: Kept);
    write_ordered_begin = PMPI_File_write_ordered_begin(buffer: Kept, count: c_int, datatype: Kept);
    write_ordered_end = PMPI_File_write_ordered_end(buffer: Kept, status: Kept);
    seek_shared = PMPI_File_seek_shared(offset: i64, whence: c_int);
    get_position_shared = PMPI_File_get_position_shared(offset: Kept);
    set_view = PMPI_File_set_view(offset: i64, unit: Kept, datatype: Kept, representation: Kept, info: Kept);
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address = match name.strip_prefix(b"P").unwrap_or(name) {
        b"MPI_File_open" => file_open as *const (),
        b"MPI_File_close" => file_close as *const (),
        b"MPI_File_delete" => file_delete as *const (),
        b"MPI_File_read_shared" => read_shared as *const (),
        b"MPI_File_write_shared" => write_shared as *const (),
        b"MPI_File_iread_shared" => iread_shared as *const (),
        b"MPI_File_iwrite_shared" => iwrite_shared as *const (),
        b"MPI_File_read_ordered" => read_ordered as *const (),
        b"MPI_File_write_ordered" => write_ordered as *const (),
        b"MPI_File_read_ordered_begin" => read_ordered_begin as *const (),
        b"MPI_File_read_ordered_end" => read_ordered_end as *const (),
        b"MPI_File_write_ordered_begin" => write_ordered_begin as *const (),
        b"MPI_File_write_ordered_end" => write_ordered_end as *const (),
        b"MPI_File_seek_shared" => seek_shared as *const (),
        b"MPI_File_get_position_shared" => get_position_shared as *const (),
        b"MPI_File_set_view" => set_view as *const (),
        _ => return None,
    };
    Some(address as usize)
}
