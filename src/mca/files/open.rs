//! Calls that open a file, or make one under a name of their own.

use super::{c_text, gather, here, kind, leads, meet, runtime, set_errno, text, verify, Prepared, Returned, Target};
use crate::files::overlay::{self, Intent};
use crate::mca::guard::guard;
use crate::mca::runtime::count;
use crate::mca::share;
use std::ffi::{c_char, c_int, CStr, CString};

type Mode = libc::mode_t;

fn intent_of_flags(flags: c_int) -> Intent {
    Intent {
        write: flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0,
        truncate: flags & libc::O_TRUNC != 0,
        exclusive: flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0,
        append: flags & libc::O_APPEND != 0,
        no_follow: flags & libc::O_NOFOLLOW != 0,
    }
}

/// What `open` and `fopen` share. `call` opens a path; told whether that is a private copy, which exists.
fn open_any<T: Returned>(
    what: &'static str,
    dir: c_int,
    path: &[u8],
    intent: Intent,
    opened: impl FnOnce(T, &Target),
    call: impl Fn(&CStr, bool) -> T,
) -> T {
    let given = c_text(path);
    if overlay::is_system(path) {
        return call(&given, false);
    }
    if !intent.write {
        return read_any(what, dir, path, intent, || call(&given, false), |copy| call(copy, true));
    }
    let target = Target::new(dir, path, !intent.no_follow && !intent.exclusive);
    if target.is_special() {
        return call(&given, false);
    }
    let result = meet(
        what,
        (dir, path),
        || target.prepare(intent),
        || call(&given, false),
        |prepared, met| {
            let met = met.is_meeting();
            // Without a meeting the leader's file may be there already, and says nothing.
            if !met && intent.exclusive && target.copied().is_some() {
                return T::failed(libc::EEXIST);
            }
            match target.ensure(prepared, intent, met) {
                Ok(copy) => call(copy, true),
                Err(error) => target.refuse(&error),
            }
        },
    );
    let reason = result.failure();
    if reason == 0 {
        if leads() {
            count(&runtime::get().files.opened);
        }
        opened(result, &target);
    }
    set_errno(reason);
    result
}

/// Opening for reading: whether it can be is the leader's answer; what is read is the sphere's own.
fn read_any<T: Returned>(
    what: &'static str,
    dir: c_int,
    path: &[u8],
    intent: Intent,
    real: impl FnOnce() -> T,
    copy: impl FnOnce(&CStr) -> T,
) -> T {
    if leads() {
        let result = real();
        if here() {
            let reason = result.failure();
            share::leader(kind::READ, what, || reason.to_le_bytes().to_vec());
            set_errno(reason);
        }
        return result;
    }
    if here() {
        let told = share::leader(kind::READ, what, Vec::new);
        let reason = told.try_into().map_or(0, c_int::from_le_bytes);
        if reason != 0 {
            return T::failed(reason);
        }
    }
    let target = Target::new(dir, path, !intent.no_follow);
    match target.copied() {
        Some(found) => copy(found),
        None if target.is_gone() && !here() => T::failed(libc::ENOENT),
        None => real(),
    }
}

/// # Safety
/// `path` is what the application passed to a function of the `open` family.
unsafe fn open_flags(what: &'static str, dir: c_int, path: *const c_char, flags: c_int, mode: Mode) -> c_int {
    guard(what, -1, || {
        // SAFETY: as above.
        let Some(path) = (unsafe { text(path) }) else { return c_int::failed(libc::EFAULT) };
        // SAFETY: a path; `mode` is used only where the flags say so.
        let open = |path: &CStr, flags: c_int| unsafe { libc::openat(dir, path.as_ptr(), flags, mode) };
        // Files without a name are nobody else's.
        if flags & libc::O_TMPFILE == libc::O_TMPFILE || flags & (libc::O_PATH | libc::O_DIRECTORY) != 0 {
            return open(&c_text(path), flags);
        }
        let intent = intent_of_flags(flags);
        let opened = |descriptor: c_int, target: &Target| verify::opened(descriptor, target, intent, false);
        open_any(what, dir, path, intent, opened, |path, private| {
            open(path, if private { flags & !(libc::O_EXCL | libc::O_CREAT) } else { flags })
        })
    })
}

// `open` and `openat` have a variable number of arguments; on the machines that `got` knows, the fourth is where it would
// be with a fixed one, and it is used only where the flags say that it is there.

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: Mode) -> c_int {
    // SAFETY: the application's arguments.
    unsafe { open_flags("open", libc::AT_FDCWD, path, flags, mode) }
}

unsafe extern "C" fn open_checked(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { open_flags("open", libc::AT_FDCWD, path, flags, 0) }
}

unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: Mode) -> c_int {
    // SAFETY: as above.
    unsafe { open_flags("openat", dir, path, flags, mode) }
}

unsafe extern "C" fn openat_checked(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { open_flags("openat", dir, path, flags, 0) }
}

unsafe extern "C" fn creat(path: *const c_char, mode: Mode) -> c_int {
    // SAFETY: as above.
    unsafe { open_flags("creat", libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

type Stream = *mut libc::FILE;

/// # Safety
/// What the application passed to `fopen` or `freopen`; `call` is one of them.
unsafe fn open_mode(
    what: &'static str,
    path: *const c_char,
    mode: *const c_char,
    call: impl Fn(*const c_char, *const c_char) -> Stream,
) -> Stream {
    guard(what, std::ptr::null_mut(), || {
        // SAFETY: as above.
        let (Some(path), Some(letters)) = (unsafe { (text(path), text(mode)) }) else { return call(path, mode) };
        let intent = overlay::intent_of_mode(letters);
        let plain: CString = c_text(overlay::mode_of_copy(letters));
        let opened = |stream: Stream, target: &Target| {
            // SAFETY: a stream that was just opened.
            verify::opened(unsafe { libc::fileno(stream) }, target, intent, true);
        };
        open_any(what, libc::AT_FDCWD, path, intent, opened, |path, private| {
            call(path.as_ptr(), if private { plain.as_ptr() } else { mode })
        })
    })
}

unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> Stream {
    // SAFETY: the application's arguments, or a private copy's name.
    unsafe { open_mode("fopen", path, mode, |path, mode| libc::fopen(path, mode)) }
}

unsafe extern "C" fn freopen(path: *const c_char, mode: *const c_char, stream: Stream) -> Stream {
    // SAFETY: as above.
    unsafe {
        verify::stream_closes(stream);
        open_mode("freopen", path, mode, |path, mode| libc::freopen(path, mode, stream))
    }
}

// ---- names that are made up ----

extern "C" {
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fn mktemp(template: *mut c_char) -> *mut c_char;
    fn tempnam(folder: *const c_char, prefix: *const c_char) -> *mut c_char;
    fn tmpnam(place: *mut c_char) -> *mut c_char;
}

/// Has the leader fill in a name: reason of failure and bytes, the same everywhere.
fn shared_name(what: &'static str, make: impl FnOnce() -> Result<Vec<u8>, c_int>) -> Result<Vec<u8>, c_int> {
    let told = share::leader(kind::NAME, what, || match make() {
        Ok(name) => [&0_i32.to_le_bytes()[..], &name].concat(),
        Err(reason) => reason.to_le_bytes().to_vec(),
    });
    let Some((reason, name)) = told.split_first_chunk::<4>() else { return Err(libc::EIO) };
    match c_int::from_le_bytes(*reason) {
        0 => Ok(name.to_vec()),
        reason => Err(reason),
    }
}

/// # Safety
/// `template` is what the application passed to a function of the `mkstemp` family.
unsafe fn make_temporary(what: &'static str, template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    guard(what, -1, || {
        // SAFETY: a template of the application's, or a copy of one.
        let make = |template: *mut c_char| unsafe { mkostemps(template, suffix, flags) };
        // SAFETY: as above.
        let Some(given) = (unsafe { text(template) }).map(<[u8]>::to_vec) else { return make(template) };
        if overlay::is_system(&given) {
            return make(template);
        }
        // SAFETY: as many bytes as the template has.
        let put = |name: &[u8]| unsafe {
            std::ptr::copy_nonoverlapping(name.as_ptr().cast(), template, name.len().min(given.len()));
        };
        let intent = Intent { write: true, exclusive: true, ..Intent::default() };
        let done = |descriptor: c_int, name: &[u8]| {
            let reason = descriptor.failure();
            if reason == 0 {
                if leads() {
                    count(&runtime::get().files.opened);
                }
                verify::opened(descriptor, &Target::new(libc::AT_FDCWD, name, false), intent, false);
            }
            set_errno(reason);
            descriptor
        };
        let open_copy = |name: &[u8], met: bool| {
            let target = Target::new(libc::AT_FDCWD, name, false);
            match target.ensure(Prepared::default(), intent, met) {
                // SAFETY: a path.
                Ok(copy) => unsafe { libc::open(copy.as_ptr(), libc::O_RDWR | flags) },
                Err(error) => target.refuse(&error),
            }
        };
        if here() {
            gather(what, &given);
            let mut made = -1;
            let name = shared_name(what, || {
                made = make(template);
                match made.failure() {
                    // SAFETY: the template, filled in.
                    0 => Ok(unsafe { text(template) }.unwrap_or_default().to_vec()),
                    reason => Err(reason),
                }
            });
            return match name {
                Err(reason) => c_int::failed(reason),
                Ok(name) if leads() => done(made, &name),
                Ok(name) => {
                    put(&name);
                    done(open_copy(&name, true), &name)
                }
            };
        }
        if leads() {
            return make(template);
        }
        // In the private folder, under the name that the C library finds there.
        let target = Target::new(libc::AT_FDCWD, &given, false);
        let (Some(copy), Ok(())) = (target.copy.clone(), target.make_folder(false)) else { return make(template) };
        let mut name = copy.into_bytes_with_nul();
        let made = make(name.as_mut_ptr().cast());
        name.pop();
        if let (true, Some((_, last)), Some((before, _))) = (made >= 0, overlay::split(&name), overlay::split(&given))
        {
            let name = [before, last].concat();
            put(&name);
            Target::new(libc::AT_FDCWD, &name, false).remember();
        }
        made
    })
}

unsafe extern "C" fn mkstemp(template: *mut c_char) -> c_int {
    // SAFETY: the application's arguments, as in the next ones.
    unsafe { make_temporary("mkstemp", template, 0, 0) }
}

unsafe extern "C" fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { make_temporary("mkostemp", template, 0, flags) }
}

unsafe extern "C" fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { make_temporary("mkstemps", template, suffix, 0) }
}

unsafe extern "C" fn mkostemps_(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { make_temporary("mkostemps", template, suffix, flags) }
}

/// A template that is filled in without opening a file: the leader's name is everybody's.
///
/// # Safety
/// `template` is what the application passed; `fill` is the C library's function.
unsafe fn fill_template(
    what: &'static str,
    template: *mut c_char,
    fill: impl Fn(*mut c_char) -> *mut c_char,
) -> *mut c_char {
    guard(what, std::ptr::null_mut(), || {
        // SAFETY: as above.
        let Some(given) = (unsafe { text(template) }).map(<[u8]>::len).filter(|_| here()) else {
            return fill(template);
        };
        gather(what, b"");
        let name = shared_name(what, || {
            let filled = fill(template);
            match filled.failure() {
                // SAFETY: the template, filled in.
                0 => Ok(unsafe { text(template) }.unwrap_or_default().to_vec()),
                reason => Err(reason),
            }
        });
        match name {
            Ok(name) => {
                // SAFETY: as many bytes as the template has.
                unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), template, name.len().min(given)) };
                template
            }
            Err(reason) => <*mut c_char>::failed(reason),
        }
    })
}

unsafe extern "C" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the application's argument.
    unsafe { fill_template("mkdtemp", template, |template| libc::mkdtemp(template)) }
}

unsafe extern "C" fn mktemp_(template: *mut c_char) -> *mut c_char {
    // SAFETY: as above.
    unsafe { fill_template("mktemp", template, |template| mktemp(template)) }
}

unsafe extern "C" fn tempnam_(folder: *const c_char, prefix: *const c_char) -> *mut c_char {
    guard("tempnam", std::ptr::null_mut(), || {
        // SAFETY: the application's arguments.
        let make = || unsafe { tempnam(folder, prefix) };
        if !here() {
            return make();
        }
        let mut own = std::ptr::null_mut();
        let name = shared_name("tempnam", || {
            own = make();
            match own.failure() {
                // SAFETY: a name of the C library's.
                0 => Ok(unsafe { text(own) }.unwrap_or_default().to_vec()),
                reason => Err(reason),
            }
        });
        match name {
            Ok(_) if leads() => own,
            // SAFETY: a string; the application frees its copy.
            Ok(name) => unsafe { libc::strdup(c_text(name).as_ptr()) },
            Err(reason) => <*mut c_char>::failed(reason),
        }
    })
}

/// `L_tmpnam` of glibc.
const TMPNAM: usize = 20;

unsafe extern "C" fn tmpnam_(place: *mut c_char) -> *mut c_char {
    guard("tmpnam", std::ptr::null_mut(), || {
        // SAFETY: the application's argument: null or a place for a name.
        let result = unsafe { tmpnam(place) };
        if !here() || result.is_null() {
            return result;
        }
        // SAFETY: a name of the C library's, in the application's place or a static one of TMPNAM bytes.
        let own = unsafe { text(result) }.unwrap_or_default().to_vec();
        if let Ok(name) = shared_name("tmpnam", || Ok(own)) {
            if name.len() < TMPNAM {
                // SAFETY: it fits, with its NUL.
                unsafe {
                    std::ptr::copy_nonoverlapping(name.as_ptr().cast(), result, name.len());
                    *result.add(name.len()) = 0;
                }
            }
        }
        result
    })
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address = match name {
        b"open" | b"open64" => open as *const (),
        b"__open_2" | b"__open64_2" => open_checked as *const (),
        b"openat" | b"openat64" => openat as *const (),
        b"__openat_2" | b"__openat64_2" => openat_checked as *const (),
        b"creat" | b"creat64" => creat as *const (),
        b"fopen" | b"fopen64" => fopen as *const (),
        b"freopen" | b"freopen64" => freopen as *const (),
        b"mkstemp" | b"mkstemp64" => mkstemp as *const (),
        b"mkostemp" | b"mkostemp64" => mkostemp as *const (),
        b"mkstemps" | b"mkstemps64" => mkstemps as *const (),
        b"mkostemps" | b"mkostemps64" => mkostemps_ as *const (),
        b"mkdtemp" => mkdtemp as *const (),
        b"mktemp" => mktemp_ as *const (),
        b"tempnam" => tempnam_ as *const (),
        b"tmpnam" => tmpnam_ as *const (),
        _ => return None,
    };
    Some(address as usize)
}
