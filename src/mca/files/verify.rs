//! `pml_redmpi_files=verify`: what a process has written is compared between its replicas when the file is closed.
//!
//! Each process remembers which bytes of a file it has written ([`Extents`]): from the calls that write to a descriptor, or,
//! for a stream, all from where it began to write. At the close every replica digests these bytes of its own copy. Where the
//! digests differ the blocks are compared, then the bytes of the blocks that differ; with three replicas or more every
//! copy, the leader's file first of all, is put right before the close returns.
//!
//! Only what was opened and is closed on the thread that shares (`share::here`) can be compared, and what is written
//! until MPI_Finalize: the others would not be at the same place.

use super::mpi_io::{barrier, rank, Comm, File, DELETE_ON_CLOSE};
use super::{errno, here, kind, leads, set_errno, Target};
use crate::digest::{self, Digest, Hasher};
use crate::files::extents::Extents;
use crate::files::overlay::Intent;
use crate::files::vote::{self, Difference};
use crate::mca::guard::guard;
use crate::mca::host::SUCCESS;
use crate::mca::runtime::{self, count, lock};
use crate::mca::vars::Files;
use crate::mca::{finalize, output, share};
use crate::report::{Event, EventKind};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes that are compared at a time.
const BLOCK: u64 = 64 << 10;
/// Blocks whose bytes are exchanged at a time.
const AT_A_TIME: usize = 32;
/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// What is known of an open file.
struct Written {
    /// Openings are counted: replicas have to close the same one.
    number: u64,
    /// The file's name, as the application and its user know it.
    name: String,
    extents: Extents,
    /// For a stream: what was written begins here, and ends where the file does.
    from: Option<u64>,
    /// Where the file ended when it was opened to be appended to.
    appends_from: Option<u64>,
}

type Shared = Arc<Mutex<Written>>;

static OPEN: Mutex<Option<HashMap<c_int, Shared>>> = Mutex::new(None);
static NUMBER: AtomicU64 = AtomicU64::new(0);

fn wanted() -> bool {
    runtime::get().config.files == Files::Verify
}

/// A file was opened for writing.
pub fn opened(descriptor: c_int, target: &Target, intent: Intent, stream: bool) {
    if !wanted() {
        return;
    }
    let name = target.absolute(&target.path).display().to_string();
    if !here() {
        unverified(&name);
        return;
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let appends_from = intent.append.then(|| size_of(descriptor)).flatten();
    let from = stream.then(|| appends_from.unwrap_or(0));
    let written = Written { number, name, extents: Extents::default(), from, appends_from };
    lock(&OPEN).get_or_insert_default().insert(descriptor, Arc::new(Mutex::new(written)));
}

/// Says once that something is not verified.
fn unverified(name: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if share::open() && leads() && !SAID.swap(true, Ordering::Relaxed) {
        output::say(&format!(
            "warning: {name} is opened or closed in a child process or another thread than the one that called MPI_Init: \
             what is written there is not verified"
        ));
    }
}

fn size_of(descriptor: c_int) -> Option<u64> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a place for what is found, read only where the call has filled it.
    unsafe { (libc::fstat(descriptor, found.as_mut_ptr()) == 0).then(|| found.assume_init().st_size as u64) }
}

fn known(descriptor: c_int) -> Option<Shared> {
    lock(&OPEN).as_ref()?.get(&descriptor).cloned()
}

/// Keeps errno, which the calls in between may change.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let before = errno();
    let result = work();
    set_errno(before);
    result
}

/// So many bytes were written where the descriptor was before.
fn wrote_on(descriptor: c_int, bytes: isize) {
    if bytes <= 0 {
        return;
    }
    if let Some(written) = known(descriptor) {
        // SAFETY: a system call on a descriptor.
        let end = quietly(|| unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) });
        if end >= bytes as i64 {
            lock(&written).extents.add((end - bytes as i64) as u64, end as u64);
        }
    }
}

/// So many bytes were written at an offset.
fn wrote_at(descriptor: c_int, offset: i64, bytes: isize) {
    if bytes <= 0 || offset < 0 {
        return;
    }
    if let Some(written) = known(descriptor) {
        lock(&written).extents.add(offset as u64, offset as u64 + bytes as u64);
    }
}

/// Another descriptor of the same file.
fn duplicated(descriptor: c_int, other: c_int) {
    if other < 0 {
        return;
    }
    if let Some(written) = known(descriptor) {
        lock(&OPEN).get_or_insert_default().insert(other, written);
    }
}

/// A descriptor is about to be closed.
fn closes(descriptor: c_int) {
    let Some(written) = lock(&OPEN).as_mut().and_then(|open| open.remove(&descriptor)) else { return };
    // Not if there is another descriptor of it.
    let Ok(written) = Arc::try_unwrap(written) else { return };
    let written = written.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if here() {
        quietly(|| compare(descriptor, &written));
    } else {
        unverified(&written.name);
    }
}

/// A stream is about to be closed.
pub fn stream_closes(stream: *mut libc::FILE) {
    if stream.is_null() || !wanted() {
        return;
    }
    // SAFETY: the application's stream.
    let descriptor = quietly(|| unsafe { libc::fileno(stream) });
    if known(descriptor).is_some() {
        // SAFETY: as above.
        quietly(|| unsafe { libc::fflush(stream) });
        closes(descriptor);
    }
}

/// What is still open when MPI_Finalize begins: compared as far as it is written, and then no more.
pub fn the_rest() {
    if !here() {
        return;
    }
    // SAFETY: flushes C's streams and, where there is a Fortran program, its units.
    unsafe {
        let fortran = libc::dlsym(libc::RTLD_DEFAULT, c"_gfortran_flush_i4".as_ptr());
        if !fortran.is_null() {
            let flush: extern "C" fn(*const c_int) = std::mem::transmute(fortran);
            flush(std::ptr::null());
        }
        libc::fflush(std::ptr::null_mut());
    }
    let mut open: Vec<(c_int, Shared)> = lock(&OPEN).take().into_iter().flatten().collect();
    open.sort_by_key(|(descriptor, written)| (lock(written).number, *descriptor));
    open.dedup_by_key(|(_, written)| lock(written).number);
    for (descriptor, written) in open {
        compare(descriptor, &lock(&written));
    }
}

// ---- the comparison ----

/// What a replica says first.
struct First {
    number: u64,
    readable: bool,
    digest: Digest,
    extents: Extents,
}

impl First {
    fn to_bytes(&self) -> Vec<u8> {
        let head = [&self.number.to_le_bytes()[..], &[u8::from(self.readable)], &self.digest.0].concat();
        [head, self.extents.to_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<First> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let (readable, rest) = rest.split_first()?;
        let (digest, rest) = rest.split_first_chunk::<20>()?;
        Some(First {
            number: u64::from_le_bytes(*number),
            readable: *readable != 0,
            digest: Digest(*digest),
            extents: Extents::from_bytes(rest)?,
        })
    }
}

/// Reads a range; what is behind the file's end is zeros.
fn read(file: &std::fs::File, start: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], start + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[done..].fill(0);
    Ok(())
}

fn digest_of(file: &std::fs::File, extents: &Extents) -> io::Result<Digest> {
    let mut hasher = Hasher::new(runtime::get().config.comparison.algorithm());
    let mut piece = vec![0; PIECE.min(extents.bytes() as usize)];
    for (mut start, end) in extents.iter() {
        while start < end {
            let length = (end - start).min(PIECE as u64) as usize;
            read(file, start, &mut piece[..length])?;
            hasher.update(&piece[..length]);
            start += length as u64;
        }
    }
    Ok(hasher.finish())
}

/// Compares what this process has written with what its twins have, and puts it right where it can.
fn compare(descriptor: c_int, written: &Written) {
    let mut extents = written.extents.clone();
    let size = size_of(descriptor).unwrap_or(0);
    if let Some(from) = written.from {
        extents.add(from, size);
    }
    extents.cut(size);
    // By another descriptor: this one may be for writing only, and has a position of its own.
    let path = format!("/proc/self/fd/{descriptor}");
    let file = OpenOptions::new().read(true).open(&path);
    let digest = file.as_ref().map_or(Ok(Digest::default()), |file| digest_of(file, &extents));
    let first = First {
        number: written.number,
        readable: file.is_ok() && digest.is_ok(),
        digest: digest.unwrap_or_default(),
        extents,
    };
    let told = share::exchange(kind::DIGEST, "the digest of a file", first.to_bytes());
    let all: Vec<(u8, First)> =
        told.iter().filter_map(|(replica, bytes)| Some((*replica, First::from_bytes(bytes)?))).collect();
    if all.len() != told.len() || all.iter().any(|(_, other)| other.number != first.number) {
        finalize::abort(&format!(
            "the replicas have diverged: this process closes {}, opening number {}, and another one does not",
            written.name, written.number
        ));
        return;
    }
    let counters = &runtime::get().files;
    let file = match file {
        Ok(file) if all.iter().all(|(_, other)| other.readable) => file,
        _ => {
            if leads() {
                output::say(&format!("warning: {} cannot be read again, and so it is not verified", written.name));
            }
            return;
        }
    };
    if leads() {
        counters.verified_bytes.fetch_add(first.extents.bytes(), Ordering::Relaxed);
    }
    if all.iter().all(|(_, other)| other.digest == first.digest && other.extents == first.extents) {
        return;
    }
    let replicas: Vec<u8> = all.iter().map(|(replica, _)| *replica).collect();
    let ends: Vec<u64> = all.iter().map(|(_, other)| other.extents.end()).collect();
    let mut union = Extents::default();
    for (_, other) in &all {
        union.join(&other.extents);
    }
    let job = Job { name: &written.name, path: &path, file: &file, replicas: &replicas };
    let result = job.blocks(&union).and_then(|()| {
        // A copy that became too long.
        match vote::majority(&ends) {
            Some(&end) if first.extents.end() > end && size == first.extents.end() => {
                OpenOptions::new().write(true).open(&path)?.set_len(end)
            }
            _ => Ok(()),
        }
    });
    if let Err(error) = result {
        finalize::abort(&format!("{}, whose copies differ, cannot be compared or put right: {error}", written.name));
    }
}

/// A file whose copies differ.
struct Job<'a> {
    name: &'a str,
    path: &'a str,
    file: &'a std::fs::File,
    /// Whose bytes are compared, ascending.
    replicas: &'a [u8],
}

impl Job<'_> {
    /// Finds the blocks that differ, and compares their bytes.
    fn blocks(&self, union: &Extents) -> io::Result<()> {
        let algorithm = runtime::get().config.comparison.algorithm();
        let blocks: Vec<(u64, u64)> = union.blocks(BLOCK).collect();
        let mut digests = Vec::with_capacity(blocks.len() * 20);
        let mut piece = vec![0; BLOCK as usize];
        for (start, end) in &blocks {
            let piece = &mut piece[..(end - start) as usize];
            read(self.file, *start, piece)?;
            digests.extend(digest::digest(algorithm, piece).0);
        }
        let told = share::exchange(kind::BLOCKS, "the digests of a file's blocks", digests);
        let of = |replica: usize, block: usize| told[replica].1.get(block * 20..block * 20 + 20);
        let differ: Vec<(u64, u64)> = (0..blocks.len())
            .filter(|block| (1..told.len()).any(|replica| of(replica, *block) != of(0, *block)))
            .map(|block| blocks[block])
            .collect();
        for some in differ.chunks(AT_A_TIME) {
            let mut mine = vec![0; some.iter().map(|(start, end)| (end - start) as usize).sum()];
            let mut at = 0;
            for (start, end) in some {
                let length = (end - start) as usize;
                read(self.file, *start, &mut mine[at..at + length])?;
                at += length;
            }
            let told = share::exchange(kind::BYTES, "a file's bytes", mine);
            let mut at = 0;
            for (start, end) in some {
                let length = (end - start) as usize;
                let copies: Vec<&[u8]> =
                    told.iter().map(|(_, bytes)| bytes.get(at..at + length).unwrap_or_default()).collect();
                let outcome = vote::vote(&copies);
                for difference in &outcome.differences {
                    self.settle(*start, difference, &outcome.right)?;
                }
                at += length;
            }
        }
        Ok(())
    }

    /// Counts a difference, and writes what is right where this process is wrong.
    fn settle(&self, start: u64, difference: &Difference, right: &[u8]) -> io::Result<()> {
        let runtime = runtime::get();
        let offset = start + difference.start as u64;
        let bytes = (difference.end - difference.start) as u64;
        let native = |at: usize| runtime.map.native_of(runtime.virtual_rank, u32::from(self.replicas[at]));
        let wrong: Vec<u32> = difference.wrong.iter().map(|at| native(*at)).collect();
        if leads() {
            count(&runtime.files.mismatched);
            if difference.decided {
                count(&runtime.files.corrected);
            }
            for native in &wrong {
                runtime.counters.suspect(*native);
            }
            runtime.counters.event(Event {
                kind: EventKind::File,
                native: runtime.native,
                peer: if difference.decided && wrong.len() == 1 { Some(wrong[0]) } else { None },
                communicator: format!("{}, byte {offset}", self.name),
                tag: None,
                bytes,
                time_s: runtime.seconds(),
            });
        }
        if !difference.decided && self.replicas.len() > 2 {
            count(&runtime.counters.failed);
            finalize::abort(&format!(
                "no majority: the replicas of virtual rank {} have written different bytes to {} at byte {offset}, \
                 {bytes} long: native ranks {wrong:?}",
                runtime.virtual_rank, self.name
            ));
        }
        let me = self.replicas.iter().position(|replica| *replica == runtime.ring.me());
        if difference.decided && me.is_some_and(|me| difference.wrong.contains(&me)) {
            let file = OpenOptions::new().write(true).open(self.path)?;
            file.write_all_at(&right[difference.start..difference.end], offset)?;
        }
        Ok(())
    }
}

// ---- calls that write ----

type Vectors = *const libc::iovec;

unsafe extern "C" fn write(descriptor: c_int, buffer: *const c_void, bytes: usize) -> isize {
    guard("write", -1, || {
        // SAFETY: the application's arguments, as in all functions below.
        let done = unsafe { libc::write(descriptor, buffer, bytes) };
        wrote_on(descriptor, done);
        done
    })
}

unsafe extern "C" fn writev(descriptor: c_int, parts: Vectors, number: c_int) -> isize {
    guard("writev", -1, || {
        // SAFETY: as above.
        let done = unsafe { libc::writev(descriptor, parts, number) };
        wrote_on(descriptor, done);
        done
    })
}

unsafe extern "C" fn pwrite(descriptor: c_int, buffer: *const c_void, bytes: usize, offset: i64) -> isize {
    guard("pwrite", -1, || {
        // SAFETY: as above.
        let done = unsafe { libc::pwrite(descriptor, buffer, bytes, offset) };
        wrote_at(descriptor, offset, done);
        done
    })
}

unsafe extern "C" fn pwritev(descriptor: c_int, parts: Vectors, number: c_int, offset: i64) -> isize {
    guard("pwritev", -1, || {
        // SAFETY: as above.
        let done = unsafe { libc::pwritev(descriptor, parts, number, offset) };
        wrote_at(descriptor, offset, done);
        done
    })
}

unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut i64, bytes: usize) -> isize {
    guard("sendfile", -1, || {
        // SAFETY: as above.
        let done = unsafe { libc::sendfile(to, from, offset, bytes) };
        wrote_on(to, done);
        done
    })
}

unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    offset: *mut i64,
    bytes: usize,
    flags: u32,
) -> isize {
    guard("copy_file_range", -1, || {
        // SAFETY: as above; null or a place for an offset.
        let at = unsafe { offset.as_ref() }.copied();
        // SAFETY: as above.
        let done = unsafe { libc::copy_file_range(from, from_offset, to, offset, bytes, flags) };
        match at {
            Some(at) => wrote_at(to, at, done),
            None => wrote_on(to, done),
        }
        done
    })
}

unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    guard("mmap", libc::MAP_FAILED, || {
        // SAFETY: as above.
        let made = unsafe { libc::mmap(address, bytes, access, flags, descriptor, offset) };
        if made != libc::MAP_FAILED && access & libc::PROT_WRITE != 0 && flags & libc::MAP_SHARED != 0 {
            wrote_at(descriptor, offset, bytes as isize);
        }
        made
    })
}

unsafe extern "C" fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut libc::FILE {
    guard("fdopen", std::ptr::null_mut(), || {
        // SAFETY: as above.
        let stream = unsafe { libc::fdopen(descriptor, mode) };
        if let Some(written) = known(descriptor) {
            let mut written = lock(&written);
            written.from = Some(written.appends_from.unwrap_or(0));
        }
        stream
    })
}

unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    guard("dup", -1, || {
        // SAFETY: as above.
        let made = unsafe { libc::dup(descriptor) };
        duplicated(descriptor, made);
        made
    })
}

unsafe extern "C" fn dup2(descriptor: c_int, place: c_int) -> c_int {
    guard("dup2", -1, || {
        if descriptor != place {
            closes(place);
        }
        // SAFETY: as above.
        let made = unsafe { libc::dup2(descriptor, place) };
        duplicated(descriptor, made);
        made
    })
}

unsafe extern "C" fn dup3(descriptor: c_int, place: c_int, flags: c_int) -> c_int {
    guard("dup3", -1, || {
        if descriptor != place {
            closes(place);
        }
        // SAFETY: as above.
        let made = unsafe { libc::dup3(descriptor, place, flags) };
        duplicated(descriptor, made);
        made
    })
}

// Its third argument depends on the second; a word is passed on as it is (see `open`).
unsafe extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: usize) -> c_int {
    guard("fcntl", -1, || {
        // SAFETY: as above.
        let result = unsafe { libc::fcntl(descriptor, command, argument) };
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            duplicated(descriptor, result);
        }
        result
    })
}

unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    guard("close", -1, || {
        closes(descriptor);
        // SAFETY: as above.
        unsafe { libc::close(descriptor) }
    })
}

unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    guard("fclose", -1, || {
        stream_closes(stream);
        // SAFETY: as above.
        unsafe { libc::fclose(stream) }
    })
}

// ---- MPI-IO ----

/// A file of MPI's: its whole content is compared, by the first rank of its communicator.
struct MpiFile {
    comm: usize,
    path: Vec<u8>,
    name: String,
    number: u64,
    ordered: bool,
}

static MPI_FILES: Mutex<Option<HashMap<usize, MpiFile>>> = Mutex::new(None);

extern "C" {
    fn PMPI_Comm_dup(comm: Comm, made: *mut Comm) -> c_int;
    fn PMPI_Comm_free(comm: *mut Comm) -> c_int;
}

/// A file of MPI's was opened for writing, by all processes of a communicator.
pub fn file_opened(file: File, comm: Comm, target: &Target, mode: c_int) {
    if !wanted() || mode & DELETE_ON_CLOSE != 0 {
        return;
    }
    let name = target.absolute(&target.path);
    if !here() {
        unverified(&name.display().to_string());
        return;
    }
    let mut own: Comm = std::ptr::null_mut();
    // SAFETY: the application's communicator, and a place for ours.
    if unsafe { PMPI_Comm_dup(comm, &mut own) } != SUCCESS {
        return;
    }
    let path = match (leads(), &target.copy) {
        (false, Some(copy)) => target.absolute(copy.to_bytes()),
        _ => name.clone(),
    };
    use std::os::unix::ffi::OsStrExt;
    let file_of_mpi = MpiFile {
        comm: own as usize,
        path: path.as_os_str().as_bytes().to_vec(),
        name: name.display().to_string(),
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        ordered: true,
    };
    lock(&MPI_FILES).get_or_insert_default().insert(file as usize, file_of_mpi);
}

/// A file in which the order of what several ranks write is left open.
pub fn file_without_order(file: File) {
    if let Some(known) = lock(&MPI_FILES).as_mut().and_then(|files| files.get_mut(&(file as usize))) {
        known.ordered = false;
    }
}

/// A file of MPI's is closed, by all of its processes.
pub fn file_closes(file: File, close: impl FnOnce() -> c_int) -> c_int {
    let Some(known) = lock(&MPI_FILES).as_mut().and_then(|files| files.remove(&(file as usize))) else {
        return close();
    };
    let mut comm = known.comm as Comm;
    let result = close();
    // Every rank has written all of its part.
    barrier(comm);
    if rank(comm) == 0 && known.ordered && here() {
        use std::os::fd::AsRawFd;
        use std::os::unix::ffi::OsStrExt;
        let open = OpenOptions::new().read(true).open(std::ffi::OsStr::from_bytes(&known.path));
        let written = Written {
            number: known.number,
            name: known.name,
            extents: Extents::default(),
            from: Some(0),
            appends_from: None,
        };
        // Without a descriptor it says so to the others.
        compare(open.as_ref().map_or(-1, |open| open.as_raw_fd()), &written);
    }
    barrier(comm);
    // SAFETY: made in `file_opened`.
    unsafe { PMPI_Comm_free(&mut comm) };
    result
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address = match name {
        b"write" => write as *const (),
        b"writev" => writev as *const (),
        b"pwrite" | b"pwrite64" => pwrite as *const (),
        b"pwritev" | b"pwritev64" => pwritev as *const (),
        b"sendfile" | b"sendfile64" => sendfile as *const (),
        b"copy_file_range" => copy_file_range as *const (),
        b"mmap" | b"mmap64" => mmap as *const (),
        b"fdopen" => fdopen as *const (),
        b"dup" => dup as *const (),
        b"dup2" => dup2 as *const (),
        b"dup3" => dup3 as *const (),
        b"fcntl" | b"fcntl64" => fcntl as *const (),
        b"close" => close as *const (),
        b"fclose" => fclose as *const (),
        _ => return None,
    };
    Some(address as usize)
}
