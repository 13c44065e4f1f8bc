//! The name of the machine: after MPI_Init the leader's. Before it every process tells its own machine's: nothing is known
//! of the leader's, and who groups processes by node needs names that are true to the machines.

use std::ffi::{c_char, c_int, CStr, CString};
use std::sync::OnceLock;

static NAME: OnceLock<CString> = OnceLock::new();

/// From here on this is the machine's name.
pub fn start(name: CString) {
    let _ = NAME.set(name);
}

/// The name, once there is one.
pub fn name() -> Option<&'static CStr> {
    NAME.get().map(CString::as_c_str)
}

/// Copies as much as there is room for, the end included. Says whether all of it fitted.
///
/// # Safety
/// There is room for `length` bytes.
unsafe fn copy(name: &CStr, place: *mut c_char, length: usize) -> bool {
    let bytes = name.to_bytes_with_nul();
    // SAFETY: not more than there is room for.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), place, bytes.len().min(length)) };
    bytes.len() <= length
}

unsafe extern "C-unwind" fn gethostname(place: *mut c_char, length: usize) -> c_int {
    // SAFETY: the caller's place.
    unsafe {
        match NAME.get() {
            Some(name) if !place.is_null() => {
                if copy(name, place, length) {
                    return 0;
                }
                *libc::__errno_location() = libc::ENAMETOOLONG;
                -1
            }
            _ => libc::gethostname(place, length),
        }
    }
}

unsafe extern "C-unwind" fn uname(place: *mut libc::utsname) -> c_int {
    // SAFETY: the caller's place.
    unsafe {
        let result = libc::uname(place);
        if let (0, Some(name)) = (result, NAME.get()) {
            let node = &mut (*place).nodename;
            copy(name, node.as_mut_ptr(), node.len());
            node[node.len() - 1] = 0;
        }
        result
    }
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    match name {
        b"gethostname" => Some(gethostname as *const () as usize),
        b"uname" => Some(uname as *const () as usize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_cut_as_the_c_library_cuts_it() {
        start(CString::from(c"leader"));
        let mut place = [0x7f; 8];
        // SAFETY: places of ours.
        unsafe {
            assert_eq!(gethostname(place.as_mut_ptr(), 8), 0);
            assert_eq!(CStr::from_ptr(place.as_ptr()), c"leader");
            assert_eq!(gethostname(place.as_mut_ptr(), 3), -1);
            assert_eq!(*libc::__errno_location(), libc::ENAMETOOLONG);
            let mut names = std::mem::zeroed();
            assert_eq!(uname(&mut names), 0);
            assert_eq!(CStr::from_ptr(names.nodename.as_ptr()), c"leader");
        }
    }
}
