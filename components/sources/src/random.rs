//! Random numbers: what the system would give at random comes from streams that are the same in every replica.
//!
//! Each thread has a stream of its own, so that threads cannot disturb one another; it is known by its order of creation
//! (`thread`). A forked process goes on with a new stream, as it would otherwise repeat its parent's numbers. No message
//! is needed for a number.
//!
//! These functions are called anywhere, also in signal handlers: a thread that is interrupted in here gets true random
//! bytes then, and nothing here allocates or waits.

use crate::guard::quiet;
use crate::stream::{derive, number, Key, Purpose, Stream};
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The key of this process, in words, and which one it is; threads begin anew with each.
static KEY: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static GENERATION: AtomicU32 = AtomicU32::new(0);
static ON: AtomicBool = AtomicBool::new(false);
static FORKS: AtomicU64 = AtomicU64::new(0);
static FILES: AtomicU64 = AtomicU64::new(0);
/// Threads that nobody has numbered come after all others.
static UNNUMBERED: AtomicU64 = AtomicU64::new(1 << 32);

struct Local {
    generation: u32,
    stream: Option<ManuallyDrop<Stream>>,
}

thread_local! {
    // Constant and without a destructor: no allocation at a thread's first use.
    static LOCAL: RefCell<Local> = const { RefCell::new(Local { generation: 0, stream: None }) };
    static THREAD: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From here on all threads' streams come from this key; the calling thread is the first.
pub fn start(key: &Key) {
    THREAD.set(Some(0));
    set(key);
}

fn set(key: &Key) {
    for (word, bytes) in KEY.iter().zip(key.chunks_exact(8)) {
        word.store(u64::from_le_bytes(bytes.try_into().unwrap_or_default()), Ordering::Relaxed);
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    ON.store(true, Ordering::Release);
}

/// From here on random numbers are random.
pub fn stop() {
    ON.store(false, Ordering::Relaxed);
}

/// Whether random numbers come from a stream.
pub fn active() -> bool {
    ON.load(Ordering::Acquire)
}

fn key() -> Key {
    let mut key = Key::default();
    for (bytes, word) in key.chunks_exact_mut(8).zip(&KEY) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    key
}

/// Numbers the calling thread, before it asks for anything.
pub fn number_thread(ordinal: u64) {
    THREAD.set(Some(ordinal));
}

/// Fills from the calling thread's stream; `false`: there is none, or it is in use (a signal handler).
pub fn fill(bytes: &mut [u8]) -> bool {
    if !active() {
        return false;
    }
    let generation = GENERATION.load(Ordering::Relaxed);
    LOCAL.with(|local| {
        let Ok(mut local) = local.try_borrow_mut() else { return false };
        if local.generation != generation || local.stream.is_none() {
            let thread = THREAD.get().unwrap_or_else(|| {
                let ordinal = UNNUMBERED.fetch_add(1, Ordering::Relaxed);
                THREAD.set(Some(ordinal));
                ordinal
            });
            local.stream = Some(ManuallyDrop::new(Stream::new(&derive(&key(), Purpose::Thread, thread))));
            local.generation = generation;
        }
        if let Some(stream) = &mut local.stream {
            stream.fill(bytes);
        }
        true
    })
}

/// The stream of a file of random bytes that is opened now.
pub fn file_stream() -> Option<Stream> {
    active().then(|| Stream::new(&derive(&key(), Purpose::File, FILES.fetch_add(1, Ordering::Relaxed))))
}

/// To be called before a fork and, in the child, after it (`pthread_atfork`).
pub fn forking() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// See [`forking`].
pub fn forked() {
    if active() {
        set(&derive(&key(), Purpose::Fork, FORKS.load(Ordering::Relaxed)));
    }
}

/// Fills, with true random bytes where there is no stream.
fn fill_always(bytes: &mut [u8]) {
    if quiet(false, || fill(bytes)) {
        return;
    }
    for part in bytes.chunks_mut(256) {
        // SAFETY: a buffer of ours. It cannot fail for 256 bytes, but for a kernel without it.
        unsafe { libc::getrandom(part.as_mut_ptr().cast(), part.len(), 0) };
    }
}

/// # Safety
/// As for the C library's function.
pub(crate) unsafe extern "C-unwind" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    // SAFETY: the caller's buffer.
    let filled = !buffer.is_null()
        && quiet(false, || fill(unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) }));
    if filled {
        return length as isize;
    }
    // SAFETY: what the caller gave.
    unsafe { libc::getrandom(buffer, length, flags) }
}

/// # Safety
/// As for the C library's function.
pub(crate) unsafe extern "C-unwind" fn getentropy(buffer: *mut c_void, length: usize) -> c_int {
    // SAFETY: the caller's buffer; more than 256 bytes are an error, which the C library tells.
    let filled = length <= 256
        && !buffer.is_null()
        && quiet(false, || fill(unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) }));
    if filled {
        return 0;
    }
    // SAFETY: what the caller gave.
    unsafe { libc::getentropy(buffer, length) }
}

pub(crate) extern "C-unwind" fn arc4random() -> u32 {
    let mut bytes = [0; 4];
    fill_always(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// # Safety
/// As for the C library's function.
pub(crate) unsafe extern "C-unwind" fn arc4random_buf(buffer: *mut c_void, length: usize) {
    if length > 0 {
        // SAFETY: the caller's buffer.
        fill_always(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) });
    }
}

pub(crate) extern "C-unwind" fn arc4random_uniform(bound: u32) -> u32 {
    if bound < 2 {
        return 0;
    }
    // Values below 2^32 mod bound would make some results likelier.
    let least = bound.wrapping_neg() % bound;
    loop {
        let value = arc4random();
        if value >= least {
            return value % bound;
        }
    }
}

/// `std::random_device::_M_getval`: libstdc++ would execute RDRAND.
pub(crate) unsafe extern "C-unwind" fn random_device(_: *mut c_void) -> c_uint {
    arc4random()
}

/// Six letters for the name of a temporary file; `None`: the C library shall choose them.
fn letters() -> Option<[u8; 6]> {
    const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut word: Key = Key::default();
    quiet(false, || fill(&mut word)).then(|| {
        let mut rest = number(&word);
        std::array::from_fn(|_| {
            let letter = LETTERS[(rest % 62) as usize];
            rest /= 62;
            letter
        })
    })
}

/// As many names as the C library tries.
const TRIES: u32 = 62 * 62 * 62;

/// Replaces `XXXXXX`, `suffix` bytes before the end, until `make` does not say that the name exists.
///
/// # Safety
/// `template` is a C string that may be written to.
unsafe fn temporary(template: *mut c_char, suffix: c_int, make: impl Fn(*mut c_char) -> c_int) -> Option<c_int> {
    if template.is_null() || suffix < 0 || !active() {
        return None;
    }
    // SAFETY: as the caller says.
    let length = unsafe { libc::strlen(template) };
    let start = length.checked_sub(6 + suffix as usize)?;
    // SAFETY: within the string.
    let place = unsafe { std::slice::from_raw_parts_mut(template.cast::<u8>().add(start), 6) };
    if place != b"XXXXXX" {
        return None; // an error, which the C library tells
    }
    for _ in 0..TRIES {
        let Some(letters) = letters() else {
            place.copy_from_slice(b"XXXXXX");
            return None;
        };
        place.copy_from_slice(&letters);
        let made = make(template);
        // SAFETY: this thread's errno.
        if made >= 0 || unsafe { *libc::__errno_location() } != libc::EEXIST {
            return Some(made);
        }
    }
    Some(-1)
}

macro_rules! temporary_file {
    ($name:ident, ($($argument:ident : $type:ty),*), $suffix:expr, $flags:expr, $real:path) => {
        /// # Safety
        /// As for the C library's function.
        pub(crate) unsafe extern "C-unwind" fn $name(template: *mut c_char, $($argument: $type),*) -> c_int {
            let flags = ($flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            // SAFETY: the caller's template, which is a C string.
            let made = unsafe { temporary(template, $suffix, |path| libc::open(path, flags, 0o600 as c_uint)) };
            // SAFETY: what the caller gave.
            made.unwrap_or_else(|| unsafe { $real(template, $($argument),*) })
        }
    };
}

temporary_file!(mkstemp, (), 0, 0, libc::mkstemp);
temporary_file!(mkostemp, (flags: c_int), 0, flags, libc::mkostemp);
temporary_file!(mkstemps, (suffix: c_int), suffix, 0, libc::mkstemps);
temporary_file!(mkostemps, (suffix: c_int, flags: c_int), suffix, flags, libc::mkostemps);

/// # Safety
/// As for the C library's function.
pub(crate) unsafe extern "C-unwind" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's template.
    match unsafe { temporary(template, 0, |path| libc::mkdir(path, 0o700)) } {
        Some(0) => template,
        Some(_) => std::ptr::null_mut(),
        // SAFETY: as above.
        None => unsafe { libc::mkdtemp(template) },
    }
}

/// # Safety
/// As for the C library's function.
pub(crate) unsafe extern "C-unwind" fn mktemp(template: *mut c_char) -> *mut c_char {
    extern "C" {
        #[link_name = "mktemp"]
        fn real(template: *mut c_char) -> *mut c_char;
    }
    let free = |path: *mut c_char| {
        // SAFETY: system calls with the caller's string; a name that is there shall look like EEXIST.
        unsafe {
            let there = libc::access(path, libc::F_OK) == 0;
            *libc::__errno_location() = if there { libc::EEXIST } else { 0 };
            -c_int::from(there)
        }
    };
    // SAFETY: the caller's template.
    match unsafe { temporary(template, 0, free) } {
        Some(0) => template,
        // SAFETY: as above.
        _ => unsafe { real(template) },
    }
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address = match name {
        b"getrandom" => getrandom as *const (),
        b"getentropy" => getentropy as *const (),
        b"arc4random" => arc4random as *const (),
        b"arc4random_buf" => arc4random_buf as *const (),
        b"arc4random_uniform" => arc4random_uniform as *const (),
        b"_ZNSt13random_device9_M_getvalEv" => random_device as *const (),
        b"mkstemp" | b"mkstemp64" => mkstemp as *const (),
        b"mkostemp" | b"mkostemp64" => mkostemp as *const (),
        b"mkstemps" | b"mkstemps64" => mkstemps as *const (),
        b"mkostemps" | b"mkostemps64" => mkostemps as *const (),
        b"mkdtemp" => mkdtemp as *const (),
        b"mktemp" => mktemp as *const (),
        _ => return None,
    };
    Some(address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The key is the process's.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn bytes() -> [u8; 16] {
        let mut bytes = [0; 16];
        assert!(fill(&mut bytes));
        bytes
    }

    #[test]
    fn a_key_decides_and_threads_differ() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let key = [7; 32];
        start(&key);
        let first = [bytes(), bytes()];
        assert_ne!(first[0], first[1]);
        let thread = |ordinal| {
            std::thread::spawn(move || {
                number_thread(ordinal);
                bytes()
            })
            .join()
            .unwrap()
        };
        let (one, two) = (thread(1), thread(2));
        assert_ne!(one, two);
        start(&key);
        assert_eq!([bytes(), bytes()], first, "the same key, the same numbers");
        assert_eq!(thread(1), one);
        forking();
        forked();
        assert!(!first.contains(&bytes()), "a fork repeats its parent");
        stop();
        assert!(!fill(&mut [0; 4]));
    }

    #[test]
    fn temporary_names_come_from_the_stream() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let make = || {
            let mut template = format!("{}/redmpi-XXXXXX.tmp\0", std::env::temp_dir().display()).into_bytes();
            // SAFETY: a C string of ours.
            let descriptor = unsafe { mkstemps(template.as_mut_ptr().cast(), 4) };
            assert!(descriptor >= 0);
            // SAFETY: as above.
            unsafe { libc::close(descriptor) };
            template.pop();
            String::from_utf8(template).unwrap()
        };
        start(&[9; 32]);
        let (first, second) = (make(), make());
        assert_ne!(first, second);
        std::fs::remove_file(&first).unwrap();
        start(&[9; 32]);
        let (again, next) = (make(), make());
        assert_eq!(again, first);
        assert_ne!(next, second, "it exists");
        for file in [again, second, next] {
            std::fs::remove_file(file).unwrap();
        }
        let mut wrong = *b"/tmp/redmpi\0";
        // SAFETY: a C string of ours.
        assert_eq!(unsafe { mkstemp(wrong.as_mut_ptr().cast()) }, -1);
        stop();
    }
}
