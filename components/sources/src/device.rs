//! Files that stand for a source: `/dev/urandom` and `/dev/random`, and the folder in `/proc` of a process id that this
//! process was told.
//!
//! Who opens a random device gets a file in memory with [`BYTES`] bytes of a stream of its own. `read` goes on beyond that
//! for ever; what reads without calling it (stdio, mmap, a program that the descriptor is passed on to) comes to an end
//! after so many bytes.

use crate::guard::quiet;
use crate::stream::Stream;
use crate::{process, random};
use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// Bytes in the file that stands for a random device.
pub const BYTES: usize = 1 << 20;

/// Descriptors whose `read` is looked at; those above are not.
const DESCRIPTORS: usize = 1024;

/// A bit for each descriptor that was opened on a random device.
static OPENED: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

struct Device {
    descriptor: c_int,
    inode: u64,
    device: u64,
    stream: Stream,
}

static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());

/// Where a call goes on that is for neither a random device nor a process id: 0 is the C library.
#[allow(non_upper_case_globals)]
mod next {
    use std::sync::atomic::AtomicUsize;

    macro_rules! names {
        ($($name:ident)*) => {
            $(pub static $name: AtomicUsize = AtomicUsize::new(0);)*

            pub fn of(name: &[u8]) -> Option<&'static AtomicUsize> {
                $(if name == stringify!($name).as_bytes() {
                    return Some(&$name);
                })*
                None
            }
        };
    }

    names! {
        open open64 openat openat64 __open_2 __open64_2 __openat_2 __openat64_2 fopen fopen64
        opendir access stat lstat stat64 lstat64 readlink
    }
}

/// Lets calls of a name go on in this function, which has the arguments of the C library's, instead of in the C library.
pub fn goes_on_in(name: &[u8], function: usize) {
    if let Some(next) = next::of(name) {
        next.store(function, Ordering::Relaxed);
    }
}

fn is_random_device(path: &CStr) -> bool {
    matches!(path.to_bytes(), b"/dev/urandom" | b"/dev/random")
}

fn identity(descriptor: c_int) -> Option<(u64, u64)> {
    // SAFETY: a place of ours; all zero is a valid value.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

/// A descriptor that stands for a random device, if `path` is one and random numbers come from a stream.
pub fn open_random(path: &CStr, flags: c_int) -> Option<c_int> {
    if !is_random_device(path) {
        return None;
    }
    let mut stream = random::file_stream()?;
    let mut bytes = vec![0; BYTES];
    stream.fill(&mut bytes);
    let kind = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: system calls on a descriptor of our own, with a buffer of ours.
    let descriptor = unsafe {
        let descriptor = libc::memfd_create(c"redmpi-random".as_ptr(), kind);
        if descriptor < 0 {
            return None;
        }
        if libc::pwrite(descriptor, bytes.as_ptr().cast(), BYTES, 0) != BYTES as isize {
            libc::close(descriptor);
            return None;
        }
        descriptor
    };
    let (device, inode) = identity(descriptor)?;
    if let Ok(mut devices) = DEVICES.lock() {
        devices.retain(|known| known.descriptor != descriptor);
        devices.push(Device { descriptor, inode, device, stream });
        if let Some(word) = OPENED.get(descriptor as usize / 64) {
            word.fetch_or(1 << (descriptor % 64), Ordering::Relaxed);
        }
    }
    Some(descriptor)
}

/// Reads from a descriptor that stands for a random device; `None`: it does not (any more).
fn read_random(descriptor: c_int, bytes: &mut [u8]) -> Option<()> {
    let word = OPENED.get(usize::try_from(descriptor).ok()? / 64)?;
    let bit = 1 << (descriptor % 64);
    if word.load(Ordering::Relaxed) & bit == 0 {
        return None;
    }
    let found = identity(descriptor);
    let mut devices = DEVICES.try_lock().ok()?;
    let known = devices.iter_mut().find(|known| known.descriptor == descriptor)?;
    if found != Some((known.device, known.inode)) {
        // The number was closed and is another file's now.
        word.fetch_and(!bit, Ordering::Relaxed);
        return None;
    }
    known.stream.fill(bytes);
    Some(())
}

/// `/proc/<told id>/…` with the real id; `None`: not such a path.
pub fn real_path(path: &CStr) -> Option<CString> {
    let rest = path.to_bytes().strip_prefix(b"/proc/")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let told: i32 = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let real = process::real(told);
    if real == told || !matches!(rest.get(digits), None | Some(b'/')) {
        return None;
    }
    let mut changed = format!("/proc/{real}").into_bytes();
    changed.extend(&rest[digits..]);
    CString::new(changed).ok()
}

/// Runs `call` with the path that is meant. The path lives until the call is over; a call that is cancelled leaks it.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn with_path<T>(path: *const c_char, call: impl FnOnce(*const c_char) -> T) -> T {
    // Nothing else begins like this, and most paths do not: no more work for them.
    // SAFETY: as the caller says.
    let changed = unsafe {
        if path.is_null() || libc::strncmp(path, c"/proc/".as_ptr(), 6) != 0 {
            None
        } else {
            quiet(None, || real_path(CStr::from_ptr(path)))
        }
    };
    match changed {
        Some(changed) => call(changed.as_ptr()),
        None => call(path),
    }
}

/// # Safety
/// `path` is null or a C string.
unsafe fn opened(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: as the caller says.
    unsafe {
        if path.is_null() || libc::strncmp(path, c"/dev/".as_ptr(), 5) != 0 {
            return None;
        }
        quiet(None, || open_random(CStr::from_ptr(path), flags))
    }
}

macro_rules! open {
    ($name:ident ( $($argument:ident : $type:ty),* ), $path:ident, $flags:ident) => {
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            extern "C-unwind" {
                #[link_name = stringify!($name)]
                fn real($($argument: $type),*) -> c_int;
            }
            // SAFETY: what the caller gave; the mode, which only some calls pass, is read and passed on as it is.
            unsafe {
                if let Some(descriptor) = opened($path, $flags) {
                    return descriptor;
                }
                let next = next::$name.load(Ordering::Relaxed);
                with_path($path, |$path| match next {
                    0 => real($($argument),*),
                    next => {
                        let next: unsafe extern "C-unwind" fn($($type),*) -> c_int = std::mem::transmute(next);
                        next($($argument),*)
                    }
                })
            }
        }
    };
}

open!(open(path: *const c_char, flags: c_int, mode: c_uint), path, flags);
open!(open64(path: *const c_char, flags: c_int, mode: c_uint), path, flags);
open!(openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint), path, flags);
open!(openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint), path, flags);
open!(__open_2(path: *const c_char, flags: c_int), path, flags);
open!(__open64_2(path: *const c_char, flags: c_int), path, flags);
open!(__openat_2(folder: c_int, path: *const c_char, flags: c_int), path, flags);
open!(__openat64_2(folder: c_int, path: *const c_char, flags: c_int), path, flags);

macro_rules! fopen {
    ($name:ident) => {
        unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char) -> *mut c_void {
            extern "C-unwind" {
                #[link_name = stringify!($name)]
                fn real(path: *const c_char, mode: *const c_char) -> *mut c_void;
            }
            // SAFETY: what the caller gave.
            unsafe {
                let closes = !mode.is_null() && !libc::strchr(mode, c_int::from(b'e')).is_null();
                if let Some(descriptor) = opened(path, if closes { libc::O_CLOEXEC } else { 0 }) {
                    return libc::fdopen(descriptor, mode).cast();
                }
                let next = next::$name.load(Ordering::Relaxed);
                with_path(path, |path| match next {
                    0 => real(path, mode),
                    next => {
                        let next: unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut c_void =
                            std::mem::transmute(next);
                        next(path, mode)
                    }
                })
            }
        }
    };
}

fopen!(fopen);
fopen!(fopen64);

unsafe extern "C-unwind" fn read(descriptor: c_int, buffer: *mut c_void, length: usize) -> isize {
    extern "C-unwind" {
        #[link_name = "read"]
        fn real(descriptor: c_int, buffer: *mut c_void, length: usize) -> isize;
    }
    // SAFETY: the caller's buffer.
    unsafe {
        let random = (descriptor as usize) < DESCRIPTORS
            && OPENED[descriptor as usize / 64].load(Ordering::Relaxed) & (1 << (descriptor % 64)) != 0
            && !buffer.is_null()
            && quiet(None, || {
                read_random(descriptor, std::slice::from_raw_parts_mut(buffer.cast(), length.min(BYTES)))
            })
            .is_some();
        if random {
            return length.min(BYTES) as isize;
        }
        real(descriptor, buffer, length)
    }
}

/// The checked form of `read` (`_FORTIFY_SOURCE`).
unsafe extern "C-unwind" fn __read_chk(descriptor: c_int, buffer: *mut c_void, length: usize, room: usize) -> isize {
    extern "C-unwind" {
        #[link_name = "__read_chk"]
        fn real(descriptor: c_int, buffer: *mut c_void, length: usize, room: usize) -> isize;
    }
    // SAFETY: the caller's buffer; too long a read is ended by the C library.
    unsafe {
        if length <= room {
            return read(descriptor, buffer, length);
        }
        real(descriptor, buffer, length, room)
    }
}

macro_rules! of_path {
    ($($name:ident ( path $(, $argument:ident : $type:ty)* ) -> $result:ty;)*) => {
        $(
            unsafe extern "C-unwind" fn $name(
                path: *const c_char $(, $argument: $type)*
            ) -> $result {
                extern "C-unwind" {
                    #[link_name = stringify!($name)]
                    fn real(path: *const c_char $(, $argument: $type)*) -> $result;
                }
                // SAFETY: what the caller gave, with the path that is meant.
                unsafe {
                    let next = next::$name.load(Ordering::Relaxed);
                    with_path(path, |path| match next {
                        0 => real(path $(, $argument)*),
                        next => {
                            let next: unsafe extern "C-unwind" fn(*const c_char $(, $type)*) -> $result =
                                std::mem::transmute(next);
                            next(path $(, $argument)*)
                        }
                    })
                }
            }
        )*
    };
}

of_path! {
    opendir(path) -> *mut c_void;
    access(path, mode: c_int) -> c_int;
    stat(path, place: *mut c_void) -> c_int;
    lstat(path, place: *mut c_void) -> c_int;
    stat64(path, place: *mut c_void) -> c_int;
    lstat64(path, place: *mut c_void) -> c_int;
    readlink(path, place: *mut c_char, length: usize) -> isize;
}

/// The function that stands in for a name, for random devices and for process ids.
pub fn replacement(name: &[u8], random: bool, pids: bool) -> Option<usize> {
    let address = match name {
        b"open" => open as *const (),
        b"open64" => open64 as *const (),
        b"openat" => openat as *const (),
        b"openat64" => openat64 as *const (),
        b"__open_2" => __open_2 as *const (),
        b"__open64_2" => __open64_2 as *const (),
        b"__openat_2" => __openat_2 as *const (),
        b"__openat64_2" => __openat64_2 as *const (),
        b"fopen" => fopen as *const (),
        b"fopen64" => fopen64 as *const (),
        b"read" if random => read as *const (),
        b"__read_chk" if random => __read_chk as *const (),
        b"opendir" if pids => opendir as *const (),
        b"access" if pids => access as *const (),
        b"stat" if pids => stat as *const (),
        b"lstat" if pids => lstat as *const (),
        b"stat64" if pids => stat64 as *const (),
        b"lstat64" if pids => lstat64 as *const (),
        b"readlink" if pids => readlink as *const (),
        _ => return None,
    };
    Some(address as usize)
}
