//! Calls that look at a file by its name or its descriptor: the leader's answer is everybody's, times and numbers too.
//! And reading a folder: redmpi's own folders are not there.

use super::names::is_hidden;
use super::{here, kind, leads, set_errno, text, Returned, Target};
use crate::files::overlay;
use crate::mca::guard::guard;
use crate::mca::share;
use libc::{dirent, stat, statx, DIR};
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

/// Looks through `look`, which fills a value and returns 0 or -1; followers get the leader's answer instead.
///
/// # Safety
/// `T` is plain data for which every pattern of bytes is valid; `place` is null or a place for one.
unsafe fn shared<T: Copy>(what: &'static str, place: *mut T, look: impl Fn(*mut T) -> c_int) -> c_int {
    if place.is_null() || !here() {
        return look(place);
    }
    let mut own = None;
    let bytes = share::leader(kind::LOOK, what, || {
        let result = look(place);
        let reason = result.failure();
        own = Some(reason);
        let value: &[u8] = if reason == 0 {
            // SAFETY: the application's place, which the call has filled.
            unsafe { std::slice::from_raw_parts(place.cast(), size_of::<T>()) }
        } else {
            &[]
        };
        [&reason.to_le_bytes()[..], value].concat()
    });
    let reason = match (own, bytes.split_first_chunk::<4>()) {
        (Some(reason), _) => reason,
        (None, Some((reason, value))) => {
            let reason = c_int::from_le_bytes(*reason);
            if reason == 0 && value.len() == size_of::<T>() {
                // SAFETY: as many bytes as the value has; every pattern is valid.
                unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), place.cast(), value.len()) };
            }
            reason
        }
        (None, None) => libc::EIO,
    };
    set_errno(reason);
    if reason == 0 {
        0
    } else {
        -1
    }
}

/// Looks at a path: in `look`'s own terms, or at the private copy where a follower looks by itself.
///
/// # Safety
/// As for [`shared`]; `path` is what the application passed.
unsafe fn by_path<T: Copy>(
    what: &'static str,
    (dir, path, follow_links): (c_int, *const c_char, bool),
    place: *mut T,
    look: impl Fn(*const c_char, *mut T) -> c_int,
) -> c_int {
    guard(what, -1, || {
        // SAFETY: as above.
        let Some(given) = (unsafe { text(path) }) else { return look(path, place) };
        if overlay::is_system(given) {
            return look(path, place);
        }
        if leads() || here() || given.is_empty() {
            // SAFETY: as above.
            return unsafe { shared(what, place, |place| look(path, place)) };
        }
        let target = Target::new(dir, given, follow_links);
        match target.copied() {
            Some(copy) => look(copy.as_ptr(), place),
            None if target.is_gone() => c_int::failed(libc::ENOENT),
            None => look(path, place),
        }
    })
}

fn follows(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW == 0
}

unsafe extern "C" fn fstatat(dir: c_int, path: *const c_char, place: *mut stat, flags: c_int) -> c_int {
    // SAFETY: the application's arguments, as in all functions below.
    unsafe {
        by_path("stat", (dir, path, follows(flags)), place, |path, place| libc::fstatat(dir, path, place, flags))
    }
}

unsafe extern "C" fn stat_(path: *const c_char, place: *mut stat) -> c_int {
    // SAFETY: as above.
    unsafe { fstatat(libc::AT_FDCWD, path, place, 0) }
}

unsafe extern "C" fn lstat(path: *const c_char, place: *mut stat) -> c_int {
    // SAFETY: as above.
    unsafe { fstatat(libc::AT_FDCWD, path, place, libc::AT_SYMLINK_NOFOLLOW) }
}

unsafe extern "C" fn fstat(descriptor: c_int, place: *mut stat) -> c_int {
    // SAFETY: as above.
    guard("fstat", -1, || unsafe { shared("fstat", place, |place| libc::fstat(descriptor, place)) })
}

// Programs built with a C library before 2.33 call these; their first argument is a version, of which there is one.

unsafe extern "C" fn xstat(_: c_int, path: *const c_char, place: *mut stat) -> c_int {
    // SAFETY: as above.
    unsafe { stat_(path, place) }
}

unsafe extern "C" fn lxstat(_: c_int, path: *const c_char, place: *mut stat) -> c_int {
    // SAFETY: as above.
    unsafe { lstat(path, place) }
}

unsafe extern "C" fn fxstat(_: c_int, descriptor: c_int, place: *mut stat) -> c_int {
    // SAFETY: as above.
    unsafe { fstat(descriptor, place) }
}

unsafe extern "C" fn fxstatat(_: c_int, dir: c_int, path: *const c_char, place: *mut stat, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { fstatat(dir, path, place, flags) }
}

unsafe extern "C" fn statx_(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, place: *mut statx) -> c_int {
    // SAFETY: as above.
    unsafe {
        by_path("statx", (dir, path, follows(flags)), place, |path, place| libc::statx(dir, path, flags, mask, place))
    }
}

unsafe extern "C" fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    let mut nothing = 0u8;
    // SAFETY: as above.
    unsafe {
        by_path("access", (dir, path, follows(flags)), &raw mut nothing, |path, _| {
            libc::faccessat(dir, path, mode, flags)
        })
    }
}

unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { faccessat(libc::AT_FDCWD, path, mode, 0) }
}

unsafe extern "C" fn eaccess(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { faccessat(libc::AT_FDCWD, path, mode, libc::AT_EACCESS) }
}

// ---- folders ----

extern "C" {
    fn scandir(
        folder: *const c_char,
        list: *mut *mut *mut dirent,
        filter: *const c_void,
        compare: *const c_void,
    ) -> c_int;
    #[allow(deprecated)]
    fn readdir_r(folder: *mut DIR, place: *mut dirent, result: *mut *mut dirent) -> c_int;
}

/// # Safety
/// An entry of the C library's.
unsafe fn hides(entry: *const dirent) -> bool {
    // SAFETY: its name ends with a NUL.
    is_hidden(unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) })
}

unsafe extern "C" fn readdir(folder: *mut DIR) -> *mut dirent {
    guard("readdir", std::ptr::null_mut(), || loop {
        // SAFETY: the application's open folder.
        let entry = unsafe { libc::readdir(folder) };
        // SAFETY: what the C library has just returned.
        if entry.is_null() || !unsafe { hides(entry) } {
            return entry;
        }
    })
}

unsafe extern "C" fn readdir_to(folder: *mut DIR, place: *mut dirent, result: *mut *mut dirent) -> c_int {
    guard("readdir_r", libc::EIO, || loop {
        // SAFETY: the application's arguments.
        let failed = unsafe { readdir_r(folder, place, result) };
        // SAFETY: filled by the call, if it has not failed and is not at the end.
        if failed != 0 || unsafe { (*result).is_null() || !hides(*result) } {
            return failed;
        }
    })
}

unsafe extern "C" fn scandir_(
    folder: *const c_char,
    list: *mut *mut *mut dirent,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    guard("scandir", -1, || {
        // SAFETY: the application's arguments.
        let count = unsafe { scandir(folder, list, filter, compare) };
        if count <= 0 {
            return count;
        }
        // SAFETY: so many entries of the C library's, each allocated, and the list writable.
        let entries = unsafe { std::slice::from_raw_parts_mut(*list, count as usize) };
        let mut kept = 0;
        for at in 0..entries.len() {
            // SAFETY: as above; what is left out is freed, as its owner would.
            unsafe {
                if hides(entries[at]) {
                    libc::free(entries[at].cast());
                } else {
                    entries[kept] = entries[at];
                    kept += 1;
                }
            }
        }
        kept as c_int
    })
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address = match name {
        b"stat" | b"stat64" => stat_ as *const (),
        b"lstat" | b"lstat64" => lstat as *const (),
        b"fstat" | b"fstat64" => fstat as *const (),
        b"fstatat" | b"fstatat64" => fstatat as *const (),
        b"__xstat" | b"__xstat64" => xstat as *const (),
        b"__lxstat" | b"__lxstat64" => lxstat as *const (),
        b"__fxstat" | b"__fxstat64" => fxstat as *const (),
        b"__fxstatat" | b"__fxstatat64" => fxstatat as *const (),
        b"statx" => statx_ as *const (),
        b"access" => access as *const (),
        b"eaccess" | b"euidaccess" => eaccess as *const (),
        b"faccessat" => faccessat as *const (),
        b"readdir" | b"readdir64" => readdir as *const (),
        b"readdir_r" | b"readdir64_r" => readdir_to as *const (),
        b"scandir" | b"scandir64" => scandir_ as *const (),
        _ => return None,
    };
    Some(address as usize)
}
