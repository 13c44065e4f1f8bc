//! Ways to a source that do not lead through a table: functions looked up by name while the program runs, system calls by
//! number, threads whose streams have to be told apart.

use crate::guard::quiet;
use crate::{got, random};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_void, CStr};

// ---- dlsym ----

/// What the assembly below does: go on in `real`, or return `result`.
#[repr(C)]
struct Next {
    real: usize,
    result: usize,
}

/// `dlsym` was called. A program that looks something up may have loaded it just now.
unsafe extern "C" fn looked_up(handle: *mut c_void, name: *const c_char) -> Next {
    let real = libc::dlsym as *const () as usize;
    quiet(Next { real, result: 0 }, || {
        got::renew();
        // RTLD_NEXT means "after the caller", and is for wrappers of the application's own.
        if handle == libc::RTLD_NEXT || name.is_null() {
            return Next { real, result: 0 };
        }
        // SAFETY: what the caller gave.
        let (found, ours) = unsafe { (libc::dlsym(handle, name), got::replaced(CStr::from_ptr(name).to_bytes())) };
        match ours {
            // Only the system's own function of this name is replaced.
            Some(ours) if !found.is_null() && got::is_the_systems(found as usize) => Next { real: 0, result: ours },
            _ => Next { real, result: 0 },
        }
    })
}

// `dlsym` looks at its caller's address (RTLD_NEXT, namespaces): so the real one is jumped to, not called.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl redmpi_sources_dlsym",
    ".hidden redmpi_sources_dlsym",
    ".type redmpi_sources_dlsym, @function",
    "redmpi_sources_dlsym:",
    ".cfi_startproc",
    "endbr64",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {hook}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "test rax, rax",
    "jz 2f",
    "jmp rax",
    "2: mov rax, rdx",
    "ret",
    ".cfi_endproc",
    ".size redmpi_sources_dlsym, . - redmpi_sources_dlsym",
    hook = sym looked_up,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl redmpi_sources_dlsym",
    ".hidden redmpi_sources_dlsym",
    ".type redmpi_sources_dlsym, %function",
    "redmpi_sources_dlsym:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-32]!",
    ".cfi_adjust_cfa_offset 32",
    ".cfi_rel_offset x29, 0",
    ".cfi_rel_offset x30, 8",
    "stp x0, x1, [sp, #16]",
    "bl {hook}",
    "mov x16, x0",
    "mov x17, x1",
    "ldp x0, x1, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    ".cfi_adjust_cfa_offset -32",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "cbz x16, 2f",
    "br x16",
    "2: mov x0, x17",
    "ret",
    ".cfi_endproc",
    ".size redmpi_sources_dlsym, . - redmpi_sources_dlsym",
    hook = sym looked_up,
);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn dlsym() -> Option<usize> {
    extern "C" {
        fn redmpi_sources_dlsym();
    }
    Some(redmpi_sources_dlsym as *const () as usize)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn dlsym() -> Option<usize> {
    None
}

// ---- syscall ----

/// A call by number that has a name as well.
fn name_of(number: c_long) -> Option<&'static [u8]> {
    Some(match number {
        libc::SYS_getrandom => b"getrandom",
        libc::SYS_getpid => b"getpid",
        libc::SYS_getppid => b"getppid",
        libc::SYS_gettid => b"gettid",
        libc::SYS_kill => b"kill",
        libc::SYS_tgkill => b"tgkill",
        libc::SYS_clock_gettime => b"clock_gettime",
        libc::SYS_gettimeofday => b"gettimeofday",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_time => b"time",
        libc::SYS_sched_setaffinity => b"sched_setaffinity",
        libc::SYS_pidfd_open => b"pidfd_open",
        _ => return None,
    })
}

type Call = unsafe extern "C-unwind" fn(c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// What the caller did not pass is passed on unread, as the C library's own function does it.
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    extern "C-unwind" {
        #[link_name = "syscall"]
        fn real(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
    }
    let ours = name_of(number).and_then(|name| quiet(None, || got::replaced(name)));
    // SAFETY: what the caller gave; the functions that stand in take no more than six words, and have the arguments of the
    // system call. The ids and results of 32 bits are in the lower half of the register.
    unsafe {
        match ours {
            Some(ours) => {
                let call: Call = std::mem::transmute::<usize, Call>(ours);
                let result = call(a, b, c, d, e, f);
                if matches!(number, libc::SYS_getrandom | SYS_TIME) {
                    result
                } else {
                    c_long::from(result as c_int)
                }
            }
            None => real(number, a, b, c, d, e, f),
        }
    }
}

#[cfg(target_arch = "x86_64")]
const SYS_TIME: c_long = libc::SYS_time;
#[cfg(not(target_arch = "x86_64"))]
const SYS_TIME: c_long = -1;

// ---- threads ----

type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

struct Start {
    routine: Routine,
    argument: *mut c_void,
    ordinal: u64,
}

thread_local! {
    static SELF: Cell<u64> = const { Cell::new(0) };
    static CHILDREN: Cell<u64> = const { Cell::new(0) };
}

/// A thread is known by who has created it, and as which of its creations.
fn next_thread() -> u64 {
    let child = CHILDREN.get() + 1;
    CHILDREN.set(child);
    // One of 2^56, mixed so that no two threads of a program are likely to be the same one.
    let mut word = SELF.get().wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(child);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)) & ((1 << 56) - 1)
}

/// A thread begins. It may end by unwinding (pthread_exit): nothing here has a destructor by then.
unsafe extern "C-unwind" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: the box that `pthread_create` made for this thread.
    let Start { routine, argument, ordinal } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    SELF.set(ordinal);
    random::number_thread(ordinal);
    // SAFETY: the application's routine and argument.
    unsafe { routine(argument) }
}

unsafe extern "C-unwind" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    extern "C-unwind" {
        #[link_name = "pthread_create"]
        fn real(
            thread: *mut libc::pthread_t,
            attributes: *const c_void,
            routine: Routine,
            argument: *mut c_void,
        ) -> c_int;
    }
    // SAFETY: what the caller gave; the box is `begin`'s, or ours again where there will be no thread.
    unsafe {
        if !random::active() {
            return real(thread, attributes, routine, argument);
        }
        let start = Box::into_raw(Box::new(Start { routine, argument, ordinal: next_thread() }));
        let result = real(thread, attributes, begin, start.cast());
        if result != 0 {
            drop(Box::from_raw(start));
        }
        result
    }
}

/// The checked forms of functions that stand in elsewhere (`_FORTIFY_SOURCE`).
mod checked {
    use super::*;

    pub unsafe extern "C-unwind" fn gethostname(place: *mut c_char, length: usize, room: usize) -> c_int {
        extern "C" {
            fn __gethostname_chk(place: *mut c_char, length: usize, room: usize) -> c_int;
        }
        // SAFETY: what the caller gave; the function has the arguments of the name it is looked up by.
        unsafe {
            match got::replaced(b"gethostname") {
                Some(ours) if length <= room => {
                    let call: unsafe extern "C-unwind" fn(*mut c_char, usize) -> c_int = std::mem::transmute(ours);
                    call(place, length)
                }
                _ => __gethostname_chk(place, length, room),
            }
        }
    }

    pub unsafe extern "C-unwind" fn poll(list: *mut c_void, count: libc::nfds_t, time: c_int, room: usize) -> c_int {
        extern "C-unwind" {
            fn __poll_chk(list: *mut c_void, count: libc::nfds_t, time: c_int, room: usize) -> c_int;
        }
        // SAFETY: as above.
        unsafe {
            match got::replaced(b"poll") {
                Some(ours) if count as usize <= room / size_of::<libc::pollfd>() => {
                    let call: unsafe extern "C-unwind" fn(*mut c_void, libc::nfds_t, c_int) -> c_int =
                        std::mem::transmute(ours);
                    call(list, count, time)
                }
                _ => __poll_chk(list, count, time, room),
            }
        }
    }
}

/// The function that stands in for a name, next to those that `others` has.
pub fn replacement(name: &[u8], others: &dyn Fn(&[u8]) -> Option<usize>) -> Option<usize> {
    match name {
        b"dlsym" => dlsym(),
        b"syscall" => Some(syscall as *const () as usize),
        b"pthread_create" if others(b"getrandom").is_some() => Some(pthread_create as *const () as usize),
        b"__gethostname_chk" if others(b"gethostname").is_some() => Some(checked::gethostname as *const () as usize),
        b"__poll_chk" if others(b"poll").is_some() => Some(checked::poll as *const () as usize),
        _ => None,
    }
}
