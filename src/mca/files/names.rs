//! Calls that change names: a follower does to its private copies what the leader does to the files. Folders, links and
//! pipes are the leader's alone.

use super::{
    c_text, errno, leader_only, lock, meet, mode_at, set_errno, state, text, Met, Prepared, Returned, Target, MADE,
};
use crate::files::overlay::{self, Intent};
use crate::mca::guard::guard;
use std::ffi::{c_char, c_int, c_uint, CStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const HERE: c_int = libc::AT_FDCWD;
const WRITE: Intent = Intent { write: true, truncate: false, exclusive: false, append: false, no_follow: false };

/// # Safety
/// `path` is what the application passed.
unsafe fn remove_any(what: &'static str, dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    guard(what, -1, || {
        // SAFETY: as above.
        let Some(path) = (unsafe { text(path) }) else { return c_int::failed(libc::EFAULT) };
        let given = c_text(path);
        // SAFETY: a path.
        let real = || unsafe { libc::unlinkat(dir, given.as_ptr(), flags) };
        if overlay::is_system(path) {
            return real();
        }
        if flags & libc::AT_REMOVEDIR != 0 {
            return remove_folder(what, dir, path, &real);
        }
        let target = Target::new(dir, path, false);
        meet(what, (dir, path), Prepared::default, real, |_, met| {
            let met = met.is_meeting();
            if !met && target.is_gone() && target.copied().is_none() {
                return c_int::failed(libc::ENOENT);
            }
            if let Some(copy) = target.copied() {
                // SAFETY: a path.
                unsafe { libc::unlinkat(dir, copy.as_ptr(), 0) };
                target.forget();
            }
            if !met {
                target.set_gone(true);
            }
            0
        })
    })
}

/// A folder that the application takes for empty has redmpi's own folders in it.
fn remove_folder(what: &'static str, dir: c_int, path: &[u8], real: &dyn Fn() -> c_int) -> c_int {
    let empty = || {
        let own = c_text([path, b"/", state().overlay.folder()].concat());
        // SAFETY: a path; the call fails where there are private copies in it.
        unsafe { libc::unlinkat(dir, own.as_ptr(), libc::AT_REMOVEDIR) };
        Prepared::default()
    };
    let remove = || {
        let result = real();
        let reason = result.failure();
        if matches!(reason, libc::ENOTEMPTY | libc::EEXIST) && clear(&Target::new(dir, path, false).absolute(path)) {
            return real();
        }
        set_errno(reason);
        result
    };
    meet(what, (dir, path), empty, remove, |_, met| if met == Met::Other { real() } else { 0 })
}

/// Removes the followers' folders where there is nothing else: what is still in them is about to be removed by them, as
/// the leader has done with what it had there.
fn clear(folder: &Path) -> bool {
    let job = state().overlay.folder();
    let job = &job[..overlay::PREFIX.len() + 16];
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(job));
    entries.iter().all(ours) && entries.iter().all(|path| std::fs::remove_dir_all(path).is_ok())
}

unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the application's arguments, as in all functions below.
    unsafe { remove_any("unlink", HERE, path, 0) }
}

unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { remove_any("unlinkat", dir, path, flags) }
}

unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe { remove_any("rmdir", HERE, path, libc::AT_REMOVEDIR) }
}

unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe {
        let folder = text(path).is_some_and(|path| {
            let mode = mode_at(HERE, &c_text(path), libc::AT_SYMLINK_NOFOLLOW);
            mode.is_some_and(|mode| mode & libc::S_IFMT == libc::S_IFDIR)
        });
        remove_any("remove", HERE, path, if folder { libc::AT_REMOVEDIR } else { 0 })
    }
}

/// # Safety
/// The paths are what the application passed.
unsafe fn rename_any(
    what: &'static str,
    (dir, path): (c_int, *const c_char),
    (new_dir, new_path): (c_int, *const c_char),
    flags: c_uint,
) -> c_int {
    guard(what, -1, || {
        // SAFETY: as above.
        let (Some(path), Some(new_path)) = (unsafe { (text(path), text(new_path)) }) else {
            return c_int::failed(libc::EFAULT);
        };
        let (from, to) = (c_text(path), c_text(new_path));
        // SAFETY: two paths.
        let real = || unsafe { libc::renameat2(dir, from.as_ptr(), new_dir, to.as_ptr(), flags) };
        if overlay::is_system(path) || overlay::is_system(new_path) {
            return real();
        }
        let (old, new) = (Target::new(dir, path, false), Target::new(new_dir, new_path, false));
        meet(what, (dir, path), Prepared::default, real, |_, met| {
            let met = met.is_meeting();
            if !met && old.copied().is_none() {
                if !old.is_regular() || old.is_gone() {
                    return 0; // a folder, or what the leader has renamed already
                }
                if let Err(error) = old.duplicate() {
                    return old.refuse(&error);
                }
            }
            let result = match (old.copied(), new.copied()) {
                (Some(copy), there) => {
                    let exchange = flags & libc::RENAME_EXCHANGE;
                    let flags = if there.is_some() { exchange } else { 0 };
                    let renamed = new.make_folder(met).and_then(|()| move_copy(&old, copy, &new, flags));
                    if let Err(error) = renamed {
                        return new.refuse(&error);
                    }
                    0
                }
                // What was no copy, a folder or a file that was there before, has the name now.
                (None, Some(copy)) if flags & libc::RENAME_EXCHANGE != 0 => {
                    match old.make_folder(met).and_then(|()| move_copy(&new, copy, &old, 0)) {
                        Ok(()) => 0,
                        Err(error) => return old.refuse(&error),
                    }
                }
                (None, Some(copy)) => {
                    // SAFETY: a path.
                    unsafe { libc::unlinkat(new_dir, copy.as_ptr(), 0) };
                    new.forget();
                    0
                }
                (None, None) => {
                    moved(&old.absolute(path), &new.absolute(new_path));
                    0
                }
            };
            if !met {
                old.set_gone(true);
                new.set_gone(false);
            }
            result
        })
    })
}

fn move_copy(old: &Target, copy: &CStr, new: &Target, flags: c_uint) -> std::io::Result<()> {
    let name = new.copy.as_deref().ok_or(std::io::ErrorKind::IsADirectory)?;
    // SAFETY: two paths.
    if unsafe { libc::renameat2(old.dir, copy.as_ptr(), new.dir, name.as_ptr(), flags) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    if flags & libc::RENAME_EXCHANGE == 0 {
        old.forget();
    }
    new.remember();
    Ok(())
}

/// A folder has another name now; what this process has made below it is there.
fn moved(old: &Path, new: &Path) {
    if let Some(made) = lock(&MADE).as_mut() {
        for names in [&mut made.copies, &mut made.folders, &mut made.gone] {
            *names = names
                .drain()
                .map(|name| name.strip_prefix(old).map(|rest| new.join(rest)).unwrap_or_else(|_| name.clone()))
                .collect();
        }
    }
}

unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe { rename_any("rename", (HERE, old), (HERE, new), 0) }
}

unsafe extern "C" fn renameat(dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe { rename_any("renameat", (dir, old), (new_dir, new), 0) }
}

unsafe extern "C" fn renameat2(
    dir: c_int,
    old: *const c_char,
    new_dir: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: as above.
    unsafe { rename_any("renameat2", (dir, old), (new_dir, new), flags) }
}

/// # Safety
/// The paths are what the application passed.
unsafe fn link_any(
    what: &'static str,
    (dir, path): (c_int, *const c_char),
    (new_dir, new_path): (c_int, *const c_char),
    flags: c_int,
) -> c_int {
    guard(what, -1, || {
        // SAFETY: as above.
        let (Some(path), Some(new_path)) = (unsafe { (text(path), text(new_path)) }) else {
            return c_int::failed(libc::EFAULT);
        };
        let (from, to) = (c_text(path), c_text(new_path));
        // SAFETY: two paths.
        let real = || unsafe { libc::linkat(dir, from.as_ptr(), new_dir, to.as_ptr(), flags) };
        if overlay::is_system(new_path) {
            return real();
        }
        // A file without a name gets one by its descriptor.
        let by_descriptor = path.is_empty() || overlay::is_system(path);
        let old = Target::new(dir, path, flags & libc::AT_SYMLINK_FOLLOW != 0 && !by_descriptor);
        let new = Target::new(new_dir, new_path, false);
        meet(what, (dir, path), Prepared::default, real, |_, met| {
            let met = met.is_meeting();
            let Some(name) = new.copy.as_deref() else { return 0 };
            if !met && !by_descriptor && old.copied().is_none() {
                if let Err(error) = old.duplicate() {
                    return c_int::failed(error.raw_os_error().unwrap_or(libc::EIO));
                }
            }
            let from = if by_descriptor { Some(from.as_c_str()) } else { old.copied() };
            let Some(from) = from else { return 0 }; // a link to what is the same for all
            if let Err(error) = new.make_folder(met) {
                return new.refuse(&error);
            }
            // SAFETY: two paths.
            let result = unsafe { libc::linkat(dir, from.as_ptr(), new_dir, name.as_ptr(), flags) };
            if result == 0 {
                new.remember();
            }
            if met {
                return 0;
            }
            result
        })
    })
}

unsafe extern "C" fn link(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe { link_any("link", (HERE, old), (HERE, new), 0) }
}

unsafe extern "C" fn linkat(
    dir: c_int,
    old: *const c_char,
    new_dir: c_int,
    new: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: as above.
    unsafe { link_any("linkat", (dir, old), (new_dir, new), flags) }
}

unsafe extern "C" fn truncate(path: *const c_char, length: libc::off_t) -> c_int {
    guard("truncate", -1, || {
        // SAFETY: as above.
        let Some(given) = (unsafe { text(path) }) else { return c_int::failed(libc::EFAULT) };
        let name = c_text(given);
        // SAFETY: a path.
        let real = || unsafe { libc::truncate(name.as_ptr(), length) };
        let target = Target::new(HERE, given, true);
        if target.is_special() {
            return real();
        }
        meet(
            "truncate",
            (HERE, given),
            || target.prepare(WRITE),
            real,
            |prepared, met| {
                match target.ensure(prepared, WRITE, met.is_meeting()) {
                    // SAFETY: a path.
                    Ok(copy) => unsafe { libc::truncate(copy.as_ptr(), length) },
                    Err(error) => target.refuse(&error),
                }
            },
        )
    })
}

/// What only the leader does. Without a meeting the others take it for done.
macro_rules! leaders {
    ($($name:ident = $what:literal ($($argument:ident: $type:ty),*) $path:ident;)*) => {
        $(unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            guard($what, -1, || {
                // SAFETY: as above.
                let real = || unsafe { libc::$name($($argument),*) };
                // SAFETY: as above.
                let Some(given) = (unsafe { text($path) }).filter(|path| !overlay::is_system(path)) else {
                    return real();
                };
                leader_only($what, given, 0, real, || 0)
            })
        })*
    };
}

leaders! {
    symlink = "symlink"(content: *const c_char, path: *const c_char) path;
    symlinkat = "symlinkat"(content: *const c_char, dir: c_int, path: *const c_char) path;
    mkfifo = "mkfifo"(path: *const c_char, mode: libc::mode_t) path;
    mkfifoat = "mkfifoat"(dir: c_int, path: *const c_char, mode: libc::mode_t) path;
    mknod = "mknod"(path: *const c_char, mode: libc::mode_t, device: libc::dev_t) path;
    mknodat = "mknodat"(dir: c_int, path: *const c_char, mode: libc::mode_t, device: libc::dev_t) path;
    chmod = "chmod"(path: *const c_char, mode: libc::mode_t) path;
    fchmodat = "fchmodat"(dir: c_int, path: *const c_char, mode: libc::mode_t, flags: c_int) path;
    chown = "chown"(path: *const c_char, user: libc::uid_t, group: libc::gid_t) path;
    lchown = "lchown"(path: *const c_char, user: libc::uid_t, group: libc::gid_t) path;
    fchownat = "fchownat"(dir: c_int, path: *const c_char, user: libc::uid_t, group: libc::gid_t, flags: c_int) path;
    utime = "utime"(path: *const c_char, times: *const libc::utimbuf) path;
    utimes = "utimes"(path: *const c_char, times: *const libc::timeval) path;
    utimensat = "utimensat"(dir: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) path;
}

/// # Safety
/// `path` is what the application passed.
unsafe fn make_folder(what: &'static str, dir: c_int, path: *const c_char, mode: libc::mode_t) -> c_int {
    guard(what, -1, || {
        // SAFETY: as above.
        let real = || unsafe { libc::mkdirat(dir, path, mode) };
        // SAFETY: as above.
        let Some(given) = (unsafe { text(path) }) else { return real() };
        if overlay::is_system(given) {
            return real();
        }
        leader_only(what, given, 0, real, || {
            // The leader makes it; what follows here may need it.
            let until = Instant::now() + Duration::from_secs(10);
            while mode_at(dir, &c_text(given), 0).is_none() && errno() == libc::ENOENT && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            0
        })
    })
}

unsafe extern "C" fn mkdir(path: *const c_char, mode: libc::mode_t) -> c_int {
    // SAFETY: as above.
    unsafe { make_folder("mkdir", HERE, path, mode) }
}

unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: libc::mode_t) -> c_int {
    // SAFETY: as above.
    unsafe { make_folder("mkdirat", dir, path, mode) }
}

/// Whether a name in a folder is to be kept from the application.
pub fn is_hidden(name: &CStr) -> bool {
    overlay::is_private(name.to_bytes())
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address = match name {
        b"unlink" => unlink as *const (),
        b"unlinkat" => unlinkat as *const (),
        b"rmdir" => rmdir as *const (),
        b"remove" => remove as *const (),
        b"rename" => rename as *const (),
        b"renameat" => renameat as *const (),
        b"renameat2" => renameat2 as *const (),
        b"link" => link as *const (),
        b"linkat" => linkat as *const (),
        b"truncate" | b"truncate64" => truncate as *const (),
        b"symlink" => symlink as *const (),
        b"symlinkat" => symlinkat as *const (),
        b"mkfifo" => mkfifo as *const (),
        b"mkfifoat" => mkfifoat as *const (),
        b"mknod" => mknod as *const (),
        b"mknodat" => mknodat as *const (),
        b"chmod" => chmod as *const (),
        b"fchmodat" => fchmodat as *const (),
        b"chown" => chown as *const (),
        b"lchown" => lchown as *const (),
        b"fchownat" => fchownat as *const (),
        b"utime" => utime as *const (),
        b"utimes" => utimes as *const (),
        b"utimensat" => utimensat as *const (),
        b"mkdir" => mkdir as *const (),
        b"mkdirat" => mkdirat as *const (),
        _ => return None,
    };
    Some(address as usize)
}
