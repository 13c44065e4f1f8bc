//! The end of a job: every process's record goes to native rank 0, which prints the verdict, writes the report, and
//! tells the others; and the end of a job whose vote has failed.
//!
//! It happens in a delete callback on MPI_COMM_SELF, which MPI_Finalize calls before anything else, and ours last
//! (MPI-3.1, 8.7.1): the application cannot send any more, and MPI still works.

use super::guard::guard;
use super::runtime::{self, lock};
use super::{channel, files, host, output, request, share, stdio, watch};
use crate::report::{self, CollectiveCounts, JobInfo, MessageCounts, ProcessReport, Report};
use crate::wire::{Body, Control};
use ompi_headers as mpi;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Exit status of a job whose corruption was detected and not corrected (EX_DATAERR of sysexits.h).
pub const DETECTED: c_int = 65;
/// Exit status of a job whose vote failed, or that redmpi had to end.
pub const FAILED: c_int = 66;

static RECORDS: Mutex<Vec<ProcessReport>> = Mutex::new(Vec::new());
static DONE: AtomicI32 = AtomicI32::new(-1);
static ABORTING: AtomicBool = AtomicBool::new(false);
/// MPI_Finalize was called.
static BEGUN: AtomicBool = AtomicBool::new(false);
static STATUS: AtomicI32 = AtomicI32::new(0);
static OVERRIDE: AtomicI32 = AtomicI32::new(0);
static OTHERS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// What is done first at exit. By way of a place, as the `redmpi` command has [`FINI`] too and must not need Open MPI.
static AT_EXIT: OnceLock<fn()> = OnceLock::new();

extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn fflush(stream: *mut c_void) -> c_int;
}

/// Arranges for the end, at MPI_Init.
pub fn arrange() -> Result<(), c_int> {
    let _ = AT_EXIT.set(|| {
        guard("exit", (), || {
            files::clean();
            stdio::at_exit();
        });
    });
    // SAFETY: a function that lives as long as the process.
    unsafe { on_exit(remember_status, std::ptr::null_mut()) };
    // SAFETY: attributes work by the time of MPI_COMM_WORLD's pml_add_comm; the callback is ours.
    match unsafe { mpi::redmpi_shim_at_finalize(Some(at_finalize)) } {
        host::SUCCESS => Ok(()),
        error => Err(error),
    }
}

/// Whether this process is in MPI_Finalize.
pub fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

extern "C" fn remember_status(status: c_int, _: *mut c_void) {
    STATUS.store(status, Ordering::Relaxed);
}

unsafe extern "C" fn at_finalize() -> c_int {
    guard("MPI_Finalize", host::ERROR, || {
        files::finalize();
        BEGUN.store(true, Ordering::Relaxed);
        share::stop();
        watch::stop();
        channel::flush();
        stdio::at_finalize();
        let runtime = runtime::get();
        if runtime.native == 0 {
            conclude();
        } else {
            let bytes = record().to_bytes();
            channel::with_body(0, Control::Report, bytes);
            wait(|| DONE.load(Ordering::Relaxed) >= 0);
        }
        channel::flush();
        host::SUCCESS
    })
}

fn wait(until: impl Fn() -> bool) {
    while !until() {
        host::progress();
        request::reap();
    }
}

/// A record has arrived at native rank 0.
pub fn report_arrived(from: u32, body: Body, rest: &[u8]) {
    let keep = move |bytes: &[u8]| match ProcessReport::from_bytes(bytes) {
        Ok(record) => lock(&RECORDS).push(record),
        Err(error) => panic!("the record of native rank {from} cannot be read: {error}"),
    };
    match body {
        Body::Inline => keep(rest),
        Body::Announced { tag, length } => channel::fetch(from, tag, length, move |bytes| keep(&bytes)),
    }
}

/// The verdict has been printed.
pub fn done(code: i32) {
    DONE.store(code, Ordering::Relaxed);
}

/// What this process has to say.
fn record() -> ProcessReport {
    let runtime = runtime::get();
    let counters = &runtime.counters;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (messages, inside) = (&counters.messages, &counters.collectives);
    let mut record = ProcessReport::new(runtime.native, &runtime.map, host::hostname());
    record.messages = MessageCounts {
        sent: get(&messages.sent),
        verified: get(&messages.verified),
        mismatched: get(&messages.mismatched),
        corrected: get(&messages.corrected),
        uncorrectable: get(&messages.uncorrectable),
    };
    record.collectives = CollectiveCounts {
        called: get(&counters.collectives_called),
        verified: get(&inside.verified),
        mismatched: get(&inside.mismatched),
        corrected: get(&inside.corrected),
        uncorrectable: get(&inside.uncorrectable),
    };
    record.injected = get(&counters.injected);
    record.suspected = lock(&counters.suspected).iter().map(|(native, count)| (*native, *count)).collect();
    let (output, wrote_wrong, differences) = stdio::findings();
    record.output = output;
    record.files = files::counts();
    for (native, count) in wrote_wrong {
        *record.suspected.entry(native).or_default() += count;
    }
    record.votes_failed = get(&counters.failed);
    record.abstained = super::guard::poisoned();
    for event in lock(&counters.events).iter() {
        record.record(event.clone());
    }
    for event in differences {
        record.record(event);
    }
    record.events_omitted += get(&counters.omitted);
    record
}

fn merge(records: Vec<ProcessReport>) -> Report {
    let config = &runtime::get().config;
    report::merge(
        records,
        JobInfo {
            map: &runtime::get().map,
            open_mpi: &open_mpi(),
            protocol: config.protocol.name(),
            digest: config.comparison.name(),
        },
    )
}

/// "4.1.4" of "Open MPI v4.1.4, package: …".
fn open_mpi() -> String {
    let text = host::version();
    text.split([' ', ','])
        .find_map(|word| word.strip_prefix('v').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
        .unwrap_or(&text)
        .to_owned()
}

/// Native rank 0: gather, judge, print, write, tell.
fn conclude() {
    let runtime = runtime::get();
    let size = runtime.map.native_size() as usize;
    wait(|| lock(&RECORDS).len() + 1 >= size);
    let mut records = std::mem::take(&mut *lock(&RECORDS));
    records.push(record());
    let here = host::hostname();
    let others: Vec<i32> = records
        .iter()
        .filter(|record| record.host == here && record.native != 0)
        .map(|record| record.pid as i32)
        .collect();
    let report = merge(records);
    output::print(&report::verdict_text(&report, report::placement_note(&report).as_deref()));
    write(&report);
    let code = match report.verdict {
        report::Verdict::Detected if runtime.config.exit_on_detection => DETECTED,
        report::Verdict::Failed => FAILED,
        _ => 0,
    };
    OVERRIDE.store(code, Ordering::Relaxed);
    *lock(&OTHERS) = others;
    for native in 1..size as u32 {
        channel::control(native, &Control::Done(code), &[]);
    }
}

fn write(report: &Report) {
    let Some(path) = &runtime::get().config.report else { return };
    if let Err(error) = report::write_json(path, report) {
        output::say(&error.to_string());
    }
}

/// Ends the job with a text: a vote without majority, or an error of redmpi's own.
pub fn abort(text: &str) {
    if ABORTING.swap(true, Ordering::Relaxed) {
        return;
    }
    // All receivers of a message find the same at about the same time: the first to speak ends the others.
    std::thread::sleep(Duration::from_millis(50) * runtime::get().native.min(40));
    output::say(&format!("[{}] {text}", runtime::place()));
    let mut report = merge(vec![record()]);
    report.verdict = report::Verdict::Failed;
    if let Some(path) = &runtime::get().config.report {
        if let Err(error) = report::write_json_first(path, &report) {
            output::say(&error.to_string());
        }
    }
    stdio::before_abort();
    // SAFETY: ends the job through the runtime; does not return.
    unsafe { mpi::ompi_mpi_abort(mpi::redmpi_shim_world(), FAILED) };
}

/// Runs after the application's exit handlers: replaces a good exit status where the verdict is not good.
extern "C" fn fini() {
    if let Some(first) = AT_EXIT.get() {
        first();
    }
    let code = OVERRIDE.load(Ordering::Relaxed);
    if code == 0 || STATUS.load(Ordering::Relaxed) != 0 {
        return;
    }
    // mpirun ends a job at the first bad exit status: the others on this node may still be writing their output.
    let deadline = Instant::now() + Duration::from_secs(60);
    for pid in lock(&OTHERS).iter() {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis() as c_int;
        // SAFETY: system calls on a descriptor of our own.
        unsafe {
            let descriptor = libc::syscall(libc::SYS_pidfd_open, *pid, 0) as c_int;
            if descriptor >= 0 {
                let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
                libc::poll(&mut poll, 1, left);
                libc::close(descriptor);
            }
        }
    }
    flush_streams();
    // SAFETY: ends the process; what `exit` still had to do is done.
    unsafe { libc::_exit(code) };
}

/// Flushes C's streams and, where there is a Fortran program, its units (their own flush may come after us).
pub fn flush_streams() {
    // SAFETY: the library's functions with the arguments that mean "all".
    unsafe {
        let fortran = libc::dlsym(libc::RTLD_DEFAULT, c"_gfortran_flush_i4".as_ptr());
        if !fortran.is_null() {
            let flush: extern "C" fn(*const c_int) = std::mem::transmute(fortran);
            flush(std::ptr::null());
        }
        fflush(std::ptr::null_mut());
    }
}

#[used]
#[link_section = ".fini_array"]
static FINI: extern "C" fn() = fini;
