//! Process ids: this process and its parent are told ids that are the same in every replica. They are above all that the
//! system gives, and every call that takes a process id gets the real one back here: so a told id means this process
//! wherever this process uses it, and nobody wherever it gets past us.
//!
//! A forked child has the id that the system gave it (the parent knows that one), and its parent's told id. The thread
//! that runs `main` is told the same id by gettid, as programs compare the two.

use crate::page::Page;
use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

type Pid = libc::pid_t;

/// The process that is told something, and what; 0: nothing.
static REAL: AtomicI32 = AtomicI32::new(0);
static TOLD: AtomicI32 = AtomicI32::new(0);
static PARENT: AtomicI32 = AtomicI32::new(0);
static PARENT_TOLD: AtomicI32 = AtomicI32::new(0);
/// What it was told earlier, should MPI_Init have changed that.
static BEFORE: AtomicI32 = AtomicI32::new(0);
/// Other programs of this native rank.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());

/// From here on this process and its parent have these ids.
pub fn start(told: Pid, parent: Pid, page: Option<&'static Page>) {
    let before = TOLD.load(Ordering::Relaxed);
    if before != told {
        BEFORE.store(before, Ordering::Relaxed);
    }
    // SAFETY: plain system calls.
    let (own, parent_real) = unsafe { (libc::getpid(), libc::getppid()) };
    PARENT.store(parent_real, Ordering::Relaxed);
    PARENT_TOLD.store(parent, Ordering::Relaxed);
    if let Some(page) = page {
        PAGE.store(std::ptr::from_ref(page).cast_mut(), Ordering::Relaxed);
    }
    REAL.store(own, Ordering::Relaxed);
    TOLD.store(told, Ordering::Relaxed);
}

/// An id that this process was told before [`start`], by somebody else's bookkeeping.
pub fn was_told(told: Pid) {
    BEFORE.store(told, Ordering::Relaxed);
}

/// From here on ids are the system's.
pub fn stop() {
    TOLD.store(0, Ordering::Relaxed);
}

fn page() -> Option<&'static Page> {
    // SAFETY: null, or the page that `start` got, which is never unmapped.
    unsafe { PAGE.load(Ordering::Relaxed).as_ref() }
}

/// The real id behind one that a program uses.
pub fn real(pid: Pid) -> Pid {
    if pid <= 1 << 22 {
        return pid; // the system's own, and 0 and negative numbers, which have meanings of their own
    }
    let is = |told: &AtomicI32| told.load(Ordering::Relaxed) == pid;
    if is(&TOLD) || is(&BEFORE) {
        REAL.load(Ordering::Relaxed)
    } else if is(&PARENT_TOLD) {
        PARENT.load(Ordering::Relaxed)
    } else {
        page().and_then(|page| page.real(pid)).unwrap_or(pid)
    }
}

/// What a program is told instead of a real id.
fn told(pid: Pid) -> Pid {
    let told = TOLD.load(Ordering::Relaxed);
    if told != 0 && pid == REAL.load(Ordering::Relaxed) {
        told
    } else {
        pid
    }
}

/// kill and waitpid name a process group by its negative id.
fn real_or_group(pid: Pid) -> Pid {
    if pid < -1 && pid != Pid::MIN {
        -real(-pid)
    } else {
        real(pid)
    }
}

pub(crate) extern "C-unwind" fn getpid() -> Pid {
    // SAFETY: plain system call.
    told(unsafe { libc::getpid() })
}

pub(crate) extern "C-unwind" fn gettid() -> Pid {
    // SAFETY: plain system call.
    told(unsafe { libc::syscall(libc::SYS_gettid) } as Pid)
}

pub(crate) extern "C-unwind" fn getppid() -> Pid {
    // SAFETY: plain system calls.
    let (own, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    let here = TOLD.load(Ordering::Relaxed) != 0 && own == REAL.load(Ordering::Relaxed);
    if here && parent == PARENT.load(Ordering::Relaxed) {
        PARENT_TOLD.load(Ordering::Relaxed)
    } else {
        told(parent) // a forked child; or an orphan, which may want to know
    }
}

pub(crate) extern "C-unwind" fn getpgrp() -> Pid {
    // SAFETY: plain system call.
    told(unsafe { libc::getpgrp() })
}

// Not in every C library that we run with, so not through it.

/// # Safety
/// As for the C library's function.
unsafe extern "C-unwind" fn tgkill(pid: Pid, thread: Pid, signal: c_int) -> c_int {
    // SAFETY: what the caller gave, with real process ids.
    unsafe { libc::syscall(libc::SYS_tgkill, real(pid), real(thread), signal) as c_int }
}

/// # Safety
/// As for the C library's function.
unsafe extern "C-unwind" fn pidfd_open(pid: Pid, flags: c_uint) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_pidfd_open, real(pid), flags) as c_int }
}

macro_rules! call {
    ($($name:ident ( $($argument:ident : $type:ty = $given:expr),* ) -> $result:ty { $real:ident, $after:expr })*) => {
        $(
            /// # Safety
            /// As for the C library's function.
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                extern "C-unwind" {
                    fn $real($($argument: $type),*) -> $result;
                }
                let after: fn($result) -> $result = $after;
                // SAFETY: what the caller gave, with real process ids.
                after(unsafe { $real($($given),*) })
            }
        )*
    };
}

mod calls {
    use super::*;
    type Siginfo = *mut c_void;
    fn same<T>(result: T) -> T {
        result
    }
    call! {
        own_getpgid(pid: Pid = real(pid)) -> Pid { getpgid, told }
        own_getsid(pid: Pid = real(pid)) -> Pid { getsid, told }
        own_setpgid(pid: Pid = real(pid), group: Pid = real(group)) -> c_int { setpgid, same }
        own_kill(pid: Pid = real_or_group(pid), signal: c_int = signal) -> c_int { kill, same }
        own_killpg(group: Pid = real(group), signal: c_int = signal) -> c_int { killpg, same }
        own_sigqueue(pid: Pid = real(pid), signal: c_int = signal, value: *mut c_void = value) -> c_int { sigqueue, same }
        own_sched_setaffinity(pid: Pid = real(pid), size: usize = size, set: *const c_void = set) -> c_int
            { sched_setaffinity, same }
        own_sched_getaffinity(pid: Pid = real(pid), size: usize = size, set: *mut c_void = set) -> c_int
            { sched_getaffinity, same }
        own_sched_setscheduler(pid: Pid = real(pid), policy: c_int = policy, parameter: *const c_void = parameter) -> c_int
            { sched_setscheduler, same }
        own_sched_getscheduler(pid: Pid = real(pid)) -> c_int { sched_getscheduler, same }
        own_sched_setparam(pid: Pid = real(pid), parameter: *const c_void = parameter) -> c_int { sched_setparam, same }
        own_sched_getparam(pid: Pid = real(pid), parameter: *mut c_void = parameter) -> c_int { sched_getparam, same }
        own_sched_rr_get_interval(pid: Pid = real(pid), interval: *mut c_void = interval) -> c_int
            { sched_rr_get_interval, same }
        own_getpriority(which: c_int = which, who: Pid = real(who)) -> c_int { getpriority, same }
        own_setpriority(which: c_int = which, who: Pid = real(who), priority: c_int = priority) -> c_int
            { setpriority, same }
        own_waitpid(pid: Pid = real_or_group(pid), status: *mut c_int = status, options: c_int = options) -> Pid
            { waitpid, same }
        own_wait4(pid: Pid = real_or_group(pid), status: *mut c_int = status, options: c_int = options,
            usage: *mut c_void = usage) -> Pid { wait4, same }
        own_waitid(kind: c_int = kind, pid: Pid = real(pid), info: Siginfo = info, options: c_int = options) -> c_int
            { waitid, same }
        own_prlimit(pid: Pid = real(pid), resource: c_int = resource, new: *const c_void = new, old: *mut c_void = old)
            -> c_int { prlimit, same }
        own_process_vm_readv(pid: Pid = real(pid), local: *const c_void = local, locals: c_ulong = locals,
            remote: *const c_void = remote, remotes: c_ulong = remotes, flags: c_ulong = flags) -> isize
            { process_vm_readv, same }
        own_process_vm_writev(pid: Pid = real(pid), local: *const c_void = local, locals: c_ulong = locals,
            remote: *const c_void = remote, remotes: c_ulong = remotes, flags: c_ulong = flags) -> isize
            { process_vm_writev, same }
        own_clock_getcpuclockid(pid: Pid = real(pid), clock: *mut c_int = clock) -> c_int { clock_getcpuclockid, same }
    }
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    use calls::*;
    let address = match name {
        b"getpid" | b"__getpid" => getpid as *const (),
        b"gettid" => gettid as *const (),
        b"getppid" => getppid as *const (),
        b"getpgrp" => getpgrp as *const (),
        b"getpgid" | b"__getpgid" => own_getpgid as *const (),
        b"getsid" => own_getsid as *const (),
        b"setpgid" => own_setpgid as *const (),
        b"kill" => own_kill as *const (),
        b"killpg" => own_killpg as *const (),
        b"tgkill" => tgkill as *const (),
        b"sigqueue" => own_sigqueue as *const (),
        b"sched_setaffinity" => own_sched_setaffinity as *const (),
        b"sched_getaffinity" => own_sched_getaffinity as *const (),
        b"sched_setscheduler" => own_sched_setscheduler as *const (),
        b"sched_getscheduler" => own_sched_getscheduler as *const (),
        b"sched_setparam" => own_sched_setparam as *const (),
        b"sched_getparam" => own_sched_getparam as *const (),
        b"sched_rr_get_interval" => own_sched_rr_get_interval as *const (),
        b"getpriority" => own_getpriority as *const (),
        b"setpriority" => own_setpriority as *const (),
        b"waitpid" => own_waitpid as *const (),
        b"wait4" => own_wait4 as *const (),
        b"waitid" => own_waitid as *const (),
        b"prlimit" | b"prlimit64" => own_prlimit as *const (),
        b"pidfd_open" => pidfd_open as *const (),
        b"process_vm_readv" => own_process_vm_readv as *const (),
        b"process_vm_writev" => own_process_vm_writev as *const (),
        b"clock_getcpuclockid" => own_clock_getcpuclockid as *const (),
        _ => return None,
    };
    Some(address as usize)
}
