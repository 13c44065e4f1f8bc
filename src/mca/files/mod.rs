//! Files: every replica of a program opens, writes and renames the same ones; only the leader's calls reach them.
//!
//! The application's calls that *name* files are turned to us (`got`). A follower's call is redirected to a private copy
//! beside the file (`crate::files::overlay`); what is then done with the descriptor needs nobody's attention, be it
//! `mmap`, `pwrite`, stdio's or MPI-IO's.
//!
//! **Why that is right.** Whatever changes a name or is about to change a file's content happens at a [`meet`]ing: all
//! replicas of the virtual rank are at this call; the followers have made their copies of what is there; then the leader
//! acts and tells how it went. So a change becomes visible only when every replica of this rank has come so far, and
//! with it, messages being what they are, whatever precedes it in other ranks: a follower that is behind still finds
//! what the leader has found. One that is ahead waits, or reads its own copy. That is why folders and links need no copies.
//! What a call tells of a file (`stat`, `access`, whether it can be opened) is the leader's answer.
//!
//! Only the thread that called MPI_Init meets and shares, between MPI_Init and MPI_Finalize; elsewhere a follower's calls
//! are redirected in the same way, without waiting for anybody. `docs/files.md` has the limits.

mod look;
mod mpi_io;
mod names;
mod open;
mod verify;

use super::runtime::{self, lock};
use super::vars::Files;
use super::{finalize, share};
use crate::files::overlay::{self, Overlay};
use crate::report::FileCounts;
use std::collections::HashSet;
use std::ffi::{c_char, c_int, CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// Kinds of shared values.
mod kind {
    pub const MEET: u8 = 80;
    pub const OUTCOME: u8 = 81;
    pub const READ: u8 = 82;
    pub const LOOK: u8 = 83;
    pub const NAME: u8 = 84;
    pub const DIGEST: u8 = 85;
    pub const BLOCKS: u8 = 86;
    pub const BYTES: u8 = 87;
}

/// What this process counts.
#[derive(Default)]
pub struct Counters {
    /// Files that this process, a leader, has opened for writing.
    pub opened: AtomicU64,
    /// Bytes compared between replicas.
    pub verified_bytes: AtomicU64,
    /// Wrong ranges.
    pub mismatched: AtomicU64,
    /// Wrong ranges that were rewritten.
    pub corrected: AtomicU64,
}

struct State {
    overlay: Overlay,
    pid: u32,
    children: Children,
}

/// Names of what forked children have made, one NUL behind each: memory that they share with their parent, which removes
/// it all at its own end.
struct Children {
    memory: *mut u8,
}

// SAFETY: places are given out by an atomic counter, and read by the parent at its end.
unsafe impl Send for Children {}
// SAFETY: as above.
unsafe impl Sync for Children {}

impl Children {
    const SIZE: usize = 1 << 20;
    const HEADER: usize = size_of::<AtomicUsize>();

    fn new() -> Children {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, zeroed, for as long as the process lives; pages that nobody touches cost nothing.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), Self::SIZE, access, kind, -1, 0) };
        Children { memory: if memory == libc::MAP_FAILED { std::ptr::null_mut() } else { memory.cast() } }
    }

    fn used(&self) -> Option<&AtomicUsize> {
        // SAFETY: the memory begins with the counter, is aligned to a page, and stays.
        unsafe { self.memory.cast::<AtomicUsize>().as_ref() }
    }

    fn add(&self, name: &[u8]) {
        let Some(used) = self.used() else { return };
        let length = name.len() + 1;
        let start = used.fetch_add(length, Ordering::Relaxed);
        if start + length <= Self::SIZE - Self::HEADER {
            // SAFETY: a place that nobody else was given, inside the memory; the NUL is there.
            unsafe {
                std::ptr::copy_nonoverlapping(name.as_ptr(), self.memory.add(Self::HEADER + start), name.len());
            }
        }
    }

    fn names(&self) -> Vec<PathBuf> {
        let Some(used) = self.used() else { return Vec::new() };
        let used = used.load(Ordering::Relaxed).min(Self::SIZE - Self::HEADER);
        // SAFETY: inside the memory; who still writes is a child that nobody has waited for, and its name is cut at worst.
        let names = unsafe { std::slice::from_raw_parts(self.memory.add(Self::HEADER), used) };
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
    }
}

static STATE: OnceLock<State> = OnceLock::new();

/// Private copies and folders that this process has made, by their absolute names.
static MADE: Mutex<Option<Made>> = Mutex::new(None);

#[derive(Default)]
struct Made {
    copies: HashSet<PathBuf>,
    folders: HashSet<PathBuf>,
    /// Files that this follower has removed without a meeting: they may still be there.
    gone: HashSet<PathBuf>,
}

/// In MPI_Init, before the application's calls are turned to us.
pub fn start() {
    // The same in all processes of a job, and not in the next job: the launcher's address.
    let job = ["OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]
        .iter()
        .find_map(std::env::var_os)
        .unwrap_or_default();
    let runtime = runtime::get();
    let overlay = Overlay::new(job.as_bytes(), runtime.replica);
    let _ = STATE.set(State { overlay, pid: std::process::id(), children: Children::new() });
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8], files: Files) -> Option<usize> {
    if files == Files::All {
        return None;
    }
    open::replacement(name)
        .or_else(|| names::replacement(name))
        .or_else(|| look::replacement(name))
        .or_else(|| mpi_io::replacement(name))
        .or_else(|| if files == Files::Verify { verify::replacement(name) } else { None })
}

/// What is reported of files.
pub fn counts() -> FileCounts {
    let counters = &runtime::get().files;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    FileCounts {
        opened: get(&counters.opened),
        verified_bytes: get(&counters.verified_bytes),
        mismatched: get(&counters.mismatched),
        corrected: get(&counters.corrected),
    }
}

/// MPI_Finalize has begun, and values can still be shared: what is open is compared as far as it is written.
pub fn finalize() {
    if STATE.get().is_some() && runtime::get().config.files == Files::Verify {
        verify::the_rest();
    }
}

/// The process ends, after the application's exit handlers: its private copies go.
pub fn clean() {
    let Some(state) = STATE.get().filter(|state| state.pid == std::process::id()) else { return };
    let made = lock(&MADE).take().unwrap_or_default();
    let of_children = state.children.names();
    for copy in made.copies.iter().chain(&of_children) {
        let _ = std::fs::remove_file(copy);
    }
    let folders = of_children.iter().filter_map(|copy| copy.parent().map(PathBuf::from));
    for folder in made.folders.into_iter().chain(folders) {
        // The last process of the sphere finds it empty.
        let _ = std::fs::remove_dir(folder);
    }
}

fn state() -> &'static State {
    STATE.get().expect("calls are turned to us after `start`")
}

fn leads() -> bool {
    runtime::get().leads()
}

/// Whether this call meets its twins': not in other threads, nor in a forked child, which carries our thread's name.
fn here() -> bool {
    share::here() && std::process::id() == state().pid
}

fn errno() -> c_int {
    // SAFETY: this thread's own errno.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: this thread's own errno.
    unsafe { *libc::__errno_location() = value };
}

/// What a call of the C library or of MPI returns.
trait Returned: Copy {
    /// Why it failed: an errno or an MPI error; 0 if it did not.
    fn failure(self) -> c_int;
    /// The same failure.
    fn failed(reason: c_int) -> Self;
}

impl Returned for c_int {
    fn failure(self) -> c_int {
        if self < 0 {
            errno()
        } else {
            0
        }
    }
    fn failed(reason: c_int) -> c_int {
        set_errno(reason);
        -1
    }
}

impl<T> Returned for *mut T {
    fn failure(self) -> c_int {
        if self.is_null() {
            errno()
        } else {
            0
        }
    }
    fn failed(reason: c_int) -> *mut T {
        set_errno(reason);
        std::ptr::null_mut()
    }
}

/// What a follower has done while the leader waits.
#[derive(Default)]
struct Prepared {
    /// The private copy that it has made, to be removed if the leader's call fails.
    copied: Option<CString>,
    /// Why none could be made.
    error: Option<io::Error>,
}

/// How a follower comes to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Met {
    /// By itself: the leader does the same at some time.
    Not,
    /// Together with the leader, which names the same file.
    Same,
    /// Together, but under another name: one made up by chance. What it names is this process's own.
    Other,
}

impl Met {
    fn is_meeting(self) -> bool {
        self != Met::Not
    }
}

/// Waits until all replicas of this rank are at this call.
fn gather(what: &'static str, path: &[u8]) -> Met {
    let leader = runtime::get().ring.members().lowest();
    let all = share::exchange(kind::MEET, what, path.to_vec());
    let same = all.iter().any(|(replica, other)| Some(*replica) == leader && other == path);
    if same {
        Met::Same
    } else {
        Met::Other
    }
}

/// A call that changes a name or is about to change a file. `real` is the call itself; followers `prepare` while the
/// leader waits and then `follow` (told whether this was a meeting), but only if the leader's call has not failed.
fn meet<T: Returned>(
    what: &'static str,
    (dir, path): (c_int, &[u8]),
    prepare: impl FnOnce() -> Prepared,
    real: impl FnOnce() -> T,
    follow: impl FnOnce(Prepared, Met) -> T,
) -> T {
    let leads = leads();
    if !here() {
        return if leads { real() } else { follow(prepare(), Met::Not) };
    }
    let prepared = if leads { Prepared::default() } else { prepare() };
    let met = gather(what, path);
    if leads {
        let result = real();
        tell(what, result);
        return result;
    }
    let reason = heard(what);
    if reason == 0 {
        return follow(prepared, met);
    }
    if let Some(copy) = prepared.copied {
        // SAFETY: a name of our own.
        unsafe { libc::unlinkat(dir, copy.as_ptr(), 0) };
    }
    T::failed(reason)
}

/// The leader tells how its call went.
fn tell<T: Returned>(what: &'static str, result: T) {
    let reason = result.failure();
    share::leader(kind::OUTCOME, what, || reason.to_le_bytes().to_vec());
    set_errno(reason);
}

/// How the leader's call went: why it failed, or 0.
fn heard(what: &'static str) -> c_int {
    share::leader(kind::OUTCOME, what, Vec::new).try_into().map_or(libc::EIO, c_int::from_le_bytes)
}

/// A call that only the leader makes: folders and links are the same for everybody. Without a meeting `alone` is what
/// a follower does.
fn leader_only<T: Returned>(
    what: &'static str,
    path: &[u8],
    done: T,
    real: impl Fn() -> T,
    alone: impl FnOnce() -> T,
) -> T {
    meet(what, (libc::AT_FDCWD, path), Prepared::default, &real, |_, met| match met {
        Met::Not => alone(),
        Met::Same => done,
        Met::Other => real(),
    })
}

/// What the application passed as a path; `None` for null.
///
/// # Safety
/// `path` is null or NUL-terminated.
unsafe fn text<'a>(path: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as above; the application leaves it alone during its call.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Bytes as C wants them. Paths come from C and have no NUL inside.
fn c_text(bytes: impl Into<Vec<u8>>) -> CString {
    CString::new(bytes).unwrap_or_default()
}

fn link_at(dir: c_int, path: &[u8]) -> Option<Vec<u8>> {
    let mut content = [0u8; libc::PATH_MAX as usize];
    // SAFETY: a path, and a place with its length.
    let length = unsafe { libc::readlinkat(dir, c_text(path).as_ptr(), content.as_mut_ptr().cast(), content.len()) };
    (length > 0).then(|| content[..length as usize].to_vec())
}

fn mode_at(dir: c_int, path: &CStr, flags: c_int) -> Option<libc::mode_t> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a path, and a place for what is found; read only where the call has filled it.
    unsafe {
        (libc::fstatat(dir, path.as_ptr(), found.as_mut_ptr(), flags) == 0).then(|| found.assume_init().st_mode)
    }
}

/// A file as the application names it: a folder's descriptor and a path, with the links at the path's end followed.
struct Target {
    dir: c_int,
    path: Vec<u8>,
    copy: Option<CString>,
}

impl Target {
    fn new(dir: c_int, path: &[u8], follow_links: bool) -> Target {
        let mut path = path.to_vec();
        if follow_links {
            for _ in 0..overlay::LINKS {
                let Some(content) = link_at(dir, &path) else { break };
                path = overlay::link(&path, &content);
            }
        }
        let copy = state().overlay.copy_of(&path).map(c_text);
        Target { dir, path, copy }
    }

    fn c_path(&self) -> CString {
        c_text(self.path.clone())
    }

    /// The private copy's name, if there is one.
    fn copied(&self) -> Option<&CStr> {
        let copy = self.copy.as_deref()?;
        mode_at(self.dir, copy, libc::AT_SYMLINK_NOFOLLOW).map(|_| copy)
    }

    /// What the file is; `None` where there is none.
    fn mode(&self) -> Option<libc::mode_t> {
        mode_at(self.dir, &self.c_path(), libc::AT_SYMLINK_NOFOLLOW)
    }

    fn is_regular(&self) -> bool {
        self.mode().is_some_and(|mode| mode & libc::S_IFMT == libc::S_IFREG)
    }

    /// Devices, pipes, sockets, and the system's own files: nobody keeps copies of them.
    fn is_special(&self) -> bool {
        overlay::is_system(&self.path)
            || self.copy.is_none()
            || self
                .mode()
                .is_some_and(|mode| !matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK))
    }

    /// The absolute name of a path beside the file, or of the file, without links, as far as there are such folders.
    fn absolute(&self, path: &[u8]) -> PathBuf {
        let (before, name) = overlay::split(path).unwrap_or((path, b""));
        let before = PathBuf::from(OsStr::from_bytes(before));
        let base = if self.dir == libc::AT_FDCWD {
            std::env::current_dir()
        } else {
            std::fs::read_link(format!("/proc/self/fd/{}", self.dir))
        };
        let folder = base.unwrap_or_default().join(before);
        folder.canonicalize().unwrap_or(folder).join(OsStr::from_bytes(name))
    }

    /// Makes the folder for the private copy. Without a meeting the leader may not have made the folder around it yet.
    fn make_folder(&self, met: bool) -> io::Result<()> {
        let folder = state().overlay.folder_of(&self.path).ok_or(io::ErrorKind::IsADirectory)?;
        let name = c_text(folder.clone());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            // SAFETY: a path.
            if unsafe { libc::mkdirat(self.dir, name.as_ptr(), 0o700) } == 0 {
                break;
            }
            match errno() {
                libc::EEXIST => break,
                libc::ENOENT if !met && std::time::Instant::now() < until => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
        lock(&MADE).get_or_insert_default().folders.insert(self.absolute(&folder));
        Ok(())
    }

    /// This process has made the private copy.
    fn remember(&self) {
        if let Some(copy) = &self.copy {
            let copy = self.absolute(copy.to_bytes());
            if std::process::id() == state().pid {
                lock(&MADE).get_or_insert_default().copies.insert(copy);
            } else {
                state().children.add(copy.as_os_str().as_bytes());
            }
        }
    }

    fn forget(&self) {
        if let (Some(copy), Some(made)) = (&self.copy, lock(&MADE).as_mut()) {
            made.copies.remove(&self.absolute(copy.to_bytes()));
        }
    }

    /// This follower has removed the file, or made it anew, without a meeting.
    fn set_gone(&self, gone: bool) {
        let path = self.absolute(&self.path);
        let mut made = lock(&MADE);
        let known = &mut made.get_or_insert_default().gone;
        if gone {
            known.insert(path);
        } else {
            known.remove(&path);
        }
    }

    fn is_gone(&self) -> bool {
        let made = lock(&MADE);
        made.as_ref().is_some_and(|made| !made.gone.is_empty() && made.gone.contains(&self.absolute(&self.path)))
    }

    /// Makes the private copy, with what is in the file. Of several processes of the sphere that do so at a time the
    /// first one's is taken; no leader has changed the file before that, for each waits for its own follower.
    fn duplicate(&self) -> io::Result<Prepared> {
        let copy = self.copy.as_deref().ok_or(io::ErrorKind::IsADirectory)?;
        self.make_folder(true)?;
        let unfinished = c_text([copy.to_bytes(), format!(".{}", std::process::id()).as_bytes()].concat());
        let made = self.duplicate_to(&unfinished).and_then(|()| {
            // SAFETY: two paths.
            match unsafe { libc::linkat(self.dir, unfinished.as_ptr(), self.dir, copy.as_ptr(), 0) } {
                0 => Ok(true),
                _ if errno() == libc::EEXIST => Ok(false),
                // No hard links here: then nobody else is kept from making it at the same time, which is the price.
                // SAFETY: two paths.
                _ if unsafe { libc::renameat(self.dir, unfinished.as_ptr(), self.dir, copy.as_ptr()) } == 0 => {
                    Ok(true)
                }
                _ => Err(io::Error::last_os_error()),
            }
        });
        // SAFETY: a path.
        unsafe { libc::unlinkat(self.dir, unfinished.as_ptr(), 0) };
        Ok(if made? {
            self.remember();
            Prepared { copied: Some(copy.to_owned()), error: None }
        } else {
            Prepared::default()
        })
    }

    fn duplicate_to(&self, name: &CStr) -> io::Result<()> {
        let mut from = open_at(self.dir, &self.c_path(), libc::O_RDONLY | libc::O_NONBLOCK, 0)?;
        let mode = from.metadata().map(|data| std::os::unix::fs::PermissionsExt::mode(&data.permissions()))?;
        let mut to = open_at(self.dir, name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, mode | 0o600)?;
        use std::os::fd::AsRawFd;
        // SAFETY: two descriptors of ours; where blocks cannot be shared the call fails and changes nothing.
        if unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE as _, from.as_raw_fd()) } == 0 {
            return Ok(());
        }
        io::copy(&mut from, &mut to).map(|_| ())
    }

    /// What a follower prepares before its leader opens the file for writing.
    fn prepare(&self, intent: overlay::Intent) -> Prepared {
        if intent.truncate || intent.exclusive || !self.is_regular() || self.copied().is_some() || self.is_gone() {
            return Prepared::default();
        }
        self.duplicate().unwrap_or_else(|error| Prepared { copied: None, error: Some(error) })
    }

    /// The private copy, which is there in any case afterwards.
    fn ensure(&self, prepared: Prepared, intent: overlay::Intent, met: bool) -> Result<&CStr, io::Error> {
        if let Some(error) = prepared.error {
            return Err(error);
        }
        let copy = self.copy.as_deref().ok_or(io::ErrorKind::IsADirectory)?;
        if met && intent.exclusive {
            // The leader has found none: what is here is about to be removed by another process of this sphere.
            // SAFETY: a path.
            unsafe { libc::unlinkat(self.dir, copy.as_ptr(), 0) };
        }
        if mode_at(self.dir, copy, libc::AT_SYMLINK_NOFOLLOW).is_none() {
            self.make_folder(met)?;
            match open_at(self.dir, copy, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600) {
                Ok(_) => self.remember(),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        if !met {
            self.set_gone(false);
        }
        Ok(copy)
    }

    /// A follower cannot do as the leader: it would go another way from here on.
    fn refuse<T: Returned>(&self, error: &io::Error) -> T {
        finalize::abort(&format!(
            "this process cannot have a private copy of {} beside it: {error}. Followers write copies of the files that \
             the application writes (pml_redmpi_files = leader or verify); pml_redmpi_files = all leaves files alone.",
            self.absolute(&self.path).display()
        ));
        T::failed(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

fn open_at(dir: c_int, path: &CStr, flags: c_int, mode: u32) -> io::Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: a path; the descriptor is nobody else's.
    unsafe {
        let descriptor = libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(std::fs::File::from_raw_fd(descriptor))
    }
}
