//! Calls whose outcome depends on timing: the leader's outcome is everybody's (paper, section III C).
//!
//! MPI_Test*, MPI_Waitany and MPI_Waitsome go through Open MPI's table of request functions, which is replaced here, so
//! that C, Fortran and the profiling names are all reached; MPI_Request_get_status does not, and is turned to us where
//! the application calls it (`got`). Probes come through the PML (`pml`). The leader asks the host and tells what it
//! found; a follower waits for that, then for its own requests to come as far, and finishes the same ones.
//!
//! Where the outcome does not depend on timing (MPI_Wait, MPI_Waitall, no active request, MPI_Waitany of one), nothing is
//! said. Host collectives use the same table inside; their order is nobody's business and is left alone.

use super::communicator::{self, Shadow};
use super::guard::guard;
use super::host::{self, Communicator, Request, Status, ERROR, SUCCESS};
use super::request::is_complete;
use super::runtime::{self, lock};
use super::{channel, collective, identity, pml, receive, request, share};
use crate::determinism::decisions::{Decision, Key, Say, AHEAD, HEED};
use crate::wire::{Body, Control};
use ompi_headers as mpi;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

type Functions = mpi::ompi_request_fns_t;

static HOST: OnceLock<Functions> = OnceLock::new();

macro_rules! functions {
    ($function:ident ( $($argument:expr),* )) => {{
        let function = HOST.get().and_then(|functions| functions.$function).expect("Open MPI has all request functions");
        // SAFETY: Open MPI's own function, with what the application gave.
        unsafe { function($($argument),*) }
    }};
}

/// Steps in front of Open MPI's request functions.
///
/// # Safety
/// To be called once, while no other thread can use them (MPI_Init).
pub unsafe fn interpose() {
    let table = &raw mut mpi::ompi_request_functions;
    // SAFETY: the caller says that nobody else uses the table now; it is plain data.
    unsafe {
        if HOST.set(*table).is_err() {
            return;
        }
        (*table).req_test = Some(test);
        (*table).req_test_any = Some(test_any);
        (*table).req_test_all = Some(test_all);
        (*table).req_test_some = Some(test_some);
        (*table).req_wait_any = Some(wait_any);
        (*table).req_wait_some = Some(wait_some);
    }
}

// ---- the agreement ----

/// Messages with decisions that this process, a leader, has sent to each twin, and how many have arrived at all of them.
static SENT: AtomicU64 = AtomicU64::new(0);
static ARRIVED: AtomicU64 = AtomicU64::new(0);
/// Communicators whose unsuccessful calls were held back.
static HELD: Mutex<Vec<Arc<Shadow>>> = Mutex::new(Vec::new());

fn late() -> bool {
    SENT.load(Ordering::Relaxed) - ARRIVED.load(Ordering::Relaxed) > AHEAD
}

fn say(shadow: &Shadow, say: [Option<Say>; 2], found: &[i32]) {
    let runtime = runtime::get();
    for Say { run, on } in say.into_iter().flatten() {
        let ordinal = {
            let mut inner = lock(&shadow.inner);
            inner.decisions += 1;
            inner.decisions - 1
        };
        SENT.fetch_add(1, Ordering::Relaxed);
        let make = |body| Control::Decided { comm: shadow.id, ordinal, run, on, body };
        for twin in runtime.twins() {
            if run > 0 {
                channel::control(twin, &make(Body::Inline), &[]);
            } else {
                let bytes = found.iter().flat_map(|number| number.to_le_bytes()).collect();
                channel::with_body(twin, make, bytes);
            }
        }
    }
}

/// The leader's decision has arrived.
pub fn decided(shadow: &Arc<Shadow>, from: u32, ordinal: u64, run: u32, on: bool, body: Body, rest: &[u8]) {
    let count = ARRIVED.fetch_add(1, Ordering::Relaxed) + 1;
    if count.is_multiple_of(HEED) {
        channel::control(from, &Control::Heeded(count), &[]);
    }
    if run > 0 {
        lock(&shadow.inner).following.heard(ordinal, on, Decision::Nothing(u64::from(run)));
        return;
    }
    let numbers = |bytes: &[u8]| {
        Decision::Found(
            bytes.chunks_exact(4).map(|four| i32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect(),
        )
    };
    match body {
        Body::Inline => lock(&shadow.inner).following.heard(ordinal, on, numbers(rest)),
        Body::Announced { tag, length } => {
            let shadow = shadow.clone();
            channel::fetch(from, tag, length, move |bytes| {
                lock(&shadow.inner).following.heard(ordinal, on, numbers(&bytes));
            });
        }
    }
}

/// So many decisions have arrived at a twin.
pub fn heeded(from: u32, count: u64) {
    static BY_TWIN: Mutex<Vec<(u32, u64)>> = Mutex::new(Vec::new());
    {
        let mut twins = lock(&BY_TWIN);
        match twins.iter_mut().find(|(twin, _)| *twin == from) {
            Some((_, known)) => *known = count.max(*known),
            None => twins.push((from, count)),
        }
        let slowest = if twins.len() == runtime::get().twins().count() {
            twins.iter().map(|(_, count)| *count).min()
        } else {
            None
        };
        ARRIVED.fetch_max(slowest.unwrap_or(0), Ordering::Relaxed);
    }
    if !late() {
        // They may wait for what was held back, and this process for them.
        for shadow in std::mem::take(&mut *lock(&HELD)) {
            let held = lock(&shadow.inner).leading.release();
            say(&shadow, [held, None], &[]);
        }
    }
}

fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Agrees on the outcome of a call: the leader's `look` is asked, the others take what it found. A blocking call always
/// finds something.
pub fn agree(
    shadow: &Arc<Shadow>,
    key: Key,
    what: &'static str,
    blocking: bool,
    look: impl FnOnce() -> Option<Vec<i32>>,
) -> Option<Vec<i32>> {
    // A promise that MPI_Iprobe finds nothing is none for MPI_Probe.
    let key = key ^ u64::from(blocking) << 63;
    let runtime = runtime::get();
    if runtime.leads() {
        if !blocking && lock(&shadow.inner).leading.promised(key) {
            host::progress();
            request::reap();
            return None;
        }
        let found = look();
        match &found {
            Some(numbers) => {
                let saying = lock(&shadow.inner).leading.something();
                say(shadow, saying, numbers);
            }
            None => {
                let late = late();
                let saying = lock(&shadow.inner).leading.nothing(key, nanoseconds(), late);
                if late {
                    let mut held = lock(&HELD);
                    if !held.iter().any(|other| Arc::ptr_eq(other, shadow)) {
                        held.push(shadow.clone());
                    }
                }
                say(shadow, saying, &[]);
            }
        }
        return found;
    }
    let mut outcome = lock(&shadow.inner).following.call(key);
    if outcome.is_none() {
        let what = || format!("the outcome of {what} on {}", shadow.name());
        share::wait(what, runtime.leader(), || {
            outcome = lock(&shadow.inner).following.call(key);
            outcome.is_some()
        });
    } else {
        host::progress();
        request::reap();
    }
    let found = outcome.flatten();
    if blocking && found.is_none() {
        super::finalize::abort(&format!(
            "the replicas have diverged on {}: this process called {what}, and the leader something that found nothing",
            shadow.name()
        ));
    }
    found
}

// ---- requests ----

fn status_of(request: *mut Request) -> mpi::ompi_request_state_t {
    // SAFETY: the application passes live requests (MPI_REQUEST_NULL is one of Open MPI's own).
    unsafe { (*request).req_state }
}

fn is_active(request: *mut Request) -> bool {
    status_of(request) != mpi::OMPI_REQUEST_INACTIVE
}

/// The communicator in whose order of calls a request's outcomes are decided: its own, or MPI_COMM_WORLD.
fn shadow_of(request: *mut Request) -> Option<Arc<Shadow>> {
    // SAFETY: a live request; the communicator of an active request of these types lives.
    let comm: *mut Communicator = unsafe {
        match (*request).req_type {
            mpi::OMPI_REQUEST_PML | mpi::OMPI_REQUEST_COLL => (*request).req_mpi_object.comm,
            _ => std::ptr::null_mut(),
        }
    };
    let own = if comm.is_null() { None } else { communicator::shadow(comm) };
    // SAFETY: the address of Open MPI's own communicator.
    own.or_else(|| communicator::shadow(unsafe { mpi::redmpi_shim_world() }))
}

/// What a call asks, and of whom.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Call {
    Test = 1,
    TestAny,
    TestAll,
    TestSome,
    WaitAny,
    WaitSome,
    Status,
    /// Probes have keys of their own.
    #[allow(dead_code)]
    Probe,
}

fn key(call: Call, request: *mut Request) -> Key {
    (request as u64) << 4 | call as u64
}

/// The key of a probe.
pub fn probe_key(source: c_int, tag: c_int) -> Key {
    ((source as u32 as u64) << 32 | u64::from(tag as u32)).wrapping_mul(16) | Call::Probe as u64
}

/// Waits for the end of comparisons whose messages are here: without redmpi these receives would be complete, and programs
/// may rely on it (after a synchronous send to itself, say). It is a wait for another replica that has come as far, or
/// will: all that its message depends on was sent before.
fn finish_comparisons(count: usize, requests: *mut *mut Request) {
    // SAFETY: Open MPI passes `count` requests.
    for request in unsafe { std::slice::from_raw_parts(requests, count) } {
        // What a persistent request has under way is freed when it completes: it is asked for anew each time.
        let nearly = || receive::is_nearly_complete(pml::under_way(*request).unwrap_or(*request));
        if nearly() {
            let runtime = runtime::get();
            let below = runtime.ring.below(runtime.ring.me());
            let on = runtime.map.native_of(runtime.virtual_rank, u32::from(below));
            share::wait(|| String::from("the comparison of a message that has arrived"), on, || !nearly());
        }
    }
}

/// Who decides about these requests: the shadow and the first active request. `None`: nothing to decide.
fn decider(count: usize, requests: *mut *mut Request) -> Option<(Arc<Shadow>, *mut Request, usize)> {
    if !share::open() || collective::inside() || identity::left_alone() || count == 0 {
        return None;
    }
    // SAFETY: Open MPI passes `count` requests.
    let requests = unsafe { std::slice::from_raw_parts(requests, count) };
    let mut active = requests.iter().copied().filter(|request| is_active(*request));
    let first = active.next()?;
    Some((shadow_of(first)?, first, 1 + active.count()))
}

/// Waits until a follower's own request has come as far as the leader's.
fn catch_up(what: &'static str, request: *mut Request) {
    let runtime = runtime::get();
    share::wait(
        || format!("what completes a request that is complete there ({what})"),
        runtime.leader(),
        || is_complete(request),
    );
}

/// Finishes one request that is complete, as Open MPI does; its MPI error.
fn finish(what: &'static str, request: *mut *mut Request, status: *mut Status) -> c_int {
    // SAFETY: one of the application's requests.
    catch_up(what, unsafe { *request });
    let mut completed = 0;
    functions!(req_test(request, &mut completed, status))
}

/// The `index`-th place, where the leader's index is one of this call's.
fn place(
    shadow: &Shadow,
    what: &'static str,
    requests: *mut *mut Request,
    count: usize,
    index: i32,
) -> *mut *mut Request {
    let fits = usize::try_from(index).is_ok_and(|index| index < count);
    if !fits {
        super::finalize::abort(&format!(
            "the replicas have diverged on {}: the leader's {what} has found request {index}, this one has {count}",
            shadow.name()
        ));
    }
    // SAFETY: inside the array that the application passed (`abort` does not return).
    unsafe { requests.add(if fits { index as usize } else { 0 }) }
}

unsafe extern "C" fn test(request: *mut *mut Request, completed: *mut c_int, status: *mut Status) -> c_int {
    guard("MPI_Test", ERROR, || {
        let Some((shadow, first, _)) = decider(1, request) else {
            return functions!(req_test(request, completed, status));
        };
        let mut result = SUCCESS;
        let found = agree(&shadow, key(Call::Test, first), "MPI_Test", false, || {
            host::progress();
            finish_comparisons(1, request);
            result = functions!(req_test(request, completed, status));
            // SAFETY: Open MPI's place for the flag.
            (unsafe { *completed } != 0).then(Vec::new)
        });
        // SAFETY: as above.
        unsafe { *completed = c_int::from(found.is_some()) };
        match found {
            Some(_) if !runtime::get().leads() => finish("MPI_Test", request, status),
            _ => result,
        }
    })
}

unsafe extern "C" fn test_any(
    count: usize,
    requests: *mut *mut Request,
    index: *mut c_int,
    completed: *mut c_int,
    status: *mut Status,
) -> c_int {
    guard("MPI_Testany", ERROR, || {
        let Some((shadow, first, _)) = decider(count, requests) else {
            return functions!(req_test_any(count, requests, index, completed, status));
        };
        let mut result = SUCCESS;
        let found = agree(&shadow, key(Call::TestAny, first), "MPI_Testany", false, || {
            host::progress();
            finish_comparisons(count, requests);
            result = functions!(req_test_any(count, requests, index, completed, status));
            // SAFETY: Open MPI's places for flag and index.
            unsafe { (*completed != 0).then(|| vec![*index]) }
        });
        let found = found.and_then(|numbers| numbers.first().copied());
        // SAFETY: as above.
        unsafe {
            *completed = c_int::from(found.is_some());
            *index = found.unwrap_or(mpi::MPI_UNDEFINED);
        }
        match found {
            Some(found) if !runtime::get().leads() => {
                finish("MPI_Testany", place(&shadow, "MPI_Testany", requests, count, found), status)
            }
            _ => result,
        }
    })
}

unsafe extern "C" fn test_all(
    count: usize,
    requests: *mut *mut Request,
    completed: *mut c_int,
    statuses: *mut Status,
) -> c_int {
    guard("MPI_Testall", ERROR, || {
        let Some((shadow, first, _)) = decider(count, requests) else {
            return functions!(req_test_all(count, requests, completed, statuses));
        };
        let mut result = SUCCESS;
        let found = agree(&shadow, key(Call::TestAll, first), "MPI_Testall", false, || {
            host::progress();
            finish_comparisons(count, requests);
            result = functions!(req_test_all(count, requests, completed, statuses));
            // SAFETY: Open MPI's place for the flag.
            (unsafe { *completed } != 0).then(Vec::new)
        });
        if found.is_some() && !runtime::get().leads() {
            for i in 0..count {
                // SAFETY: inside the array that the application passed.
                let request = unsafe { *requests.add(i) };
                if is_active(request) {
                    catch_up("MPI_Testall", request);
                }
            }
            return functions!(req_test_all(count, requests, completed, statuses));
        }
        // SAFETY: as above.
        unsafe { *completed = c_int::from(found.is_some()) };
        result
    })
}

/// Finishes the requests that the leader has finished.
fn finish_some(
    (shadow, what): (&Shadow, &'static str),
    (count, requests): (usize, *mut *mut Request),
    found: &[i32],
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> c_int {
    let mut result = SUCCESS;
    for (i, index) in found.iter().enumerate() {
        let request = place(shadow, what, requests, count, *index);
        // SAFETY: the application's arrays have room for every request; null is MPI_STATUSES_IGNORE.
        let status = if statuses.is_null() { statuses } else { unsafe { statuses.add(i) } };
        let error = finish(what, request, status);
        // SAFETY: as above.
        unsafe {
            *indices.add(i) = *index;
            if !status.is_null() {
                (*status).MPI_ERROR = error;
            }
        }
        if error != SUCCESS {
            result = mpi::MPI_ERR_IN_STATUS as c_int;
        }
    }
    // SAFETY: the application's place for the count.
    unsafe { *outcount = found.len() as c_int };
    result
}

/// What Open MPI's own call has found.
fn some(outcount: *mut c_int, indices: *mut c_int) -> Vec<i32> {
    // SAFETY: Open MPI has filled as many indices as it counts.
    unsafe { (0..usize::try_from(*outcount).unwrap_or(0)).map(|i| *indices.add(i)).collect() }
}

unsafe extern "C" fn test_some(
    count: usize,
    requests: *mut *mut Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> c_int {
    guard("MPI_Testsome", ERROR, || {
        let Some((shadow, first, _)) = decider(count, requests) else {
            return functions!(req_test_some(count, requests, outcount, indices, statuses));
        };
        let mut result = SUCCESS;
        let found = agree(&shadow, key(Call::TestSome, first), "MPI_Testsome", false, || {
            host::progress();
            finish_comparisons(count, requests);
            result = functions!(req_test_some(count, requests, outcount, indices, statuses));
            let found = some(outcount, indices);
            (!found.is_empty()).then_some(found)
        });
        match found {
            Some(found) if !runtime::get().leads() => {
                finish_some((&shadow, "MPI_Testsome"), (count, requests), &found, outcount, indices, statuses)
            }
            Some(_) => result,
            None => {
                // SAFETY: the application's place for the count.
                unsafe { *outcount = 0 };
                result
            }
        }
    })
}

unsafe extern "C" fn wait_any(
    count: usize,
    requests: *mut *mut Request,
    index: *mut c_int,
    status: *mut Status,
) -> c_int {
    guard("MPI_Waitany", ERROR, || {
        let host = || functions!(req_wait_any(count, requests, index, status));
        let Some((shadow, first, active)) = decider(count, requests) else { return host() };
        if active == 1 {
            return host();
        }
        let mut result = SUCCESS;
        let found = agree(&shadow, key(Call::WaitAny, first), "MPI_Waitany", true, || {
            result = host();
            // SAFETY: Open MPI's place for the index.
            Some(vec![unsafe { *index }])
        });
        if runtime::get().leads() {
            return result;
        }
        let found = found.and_then(|numbers| numbers.first().copied()).unwrap_or(mpi::MPI_UNDEFINED);
        // SAFETY: as above.
        unsafe { *index = found };
        finish("MPI_Waitany", place(&shadow, "MPI_Waitany", requests, count, found), status)
    })
}

unsafe extern "C" fn wait_some(
    count: usize,
    requests: *mut *mut Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> c_int {
    guard("MPI_Waitsome", ERROR, || {
        let host = || functions!(req_wait_some(count, requests, outcount, indices, statuses));
        let Some((shadow, first, active)) = decider(count, requests) else { return host() };
        if active == 1 {
            return host();
        }
        let mut result = SUCCESS;
        let found = agree(&shadow, key(Call::WaitSome, first), "MPI_Waitsome", true, || {
            host::progress();
            finish_comparisons(count, requests);
            result = host();
            Some(some(outcount, indices))
        });
        match found {
            Some(found) if !runtime::get().leads() => {
                finish_some((&shadow, "MPI_Waitsome"), (count, requests), &found, outcount, indices, statuses)
            }
            _ => result,
        }
    })
}

extern "C" {
    fn PMPI_Request_get_status(request: *mut Request, flag: *mut c_int, status: *mut Status) -> c_int;
}

unsafe extern "C" fn request_get_status(mut request: *mut Request, flag: *mut c_int, status: *mut Status) -> c_int {
    guard("MPI_Request_get_status", ERROR, || {
        // SAFETY: Open MPI's own function, with what the application gave.
        let host = |request| unsafe { PMPI_Request_get_status(request, flag, status) };
        if request.is_null() || flag.is_null() {
            return host(request); // which says what is wrong
        }
        let Some((shadow, first, _)) = decider(1, &mut request) else { return host(request) };
        let mut result = SUCCESS;
        let found = agree(&shadow, key(Call::Status, first), "MPI_Request_get_status", false, || {
            host::progress();
            finish_comparisons(1, &mut request.clone());
            result = host(request);
            // SAFETY: the application's place for the flag.
            (unsafe { *flag } != 0).then(Vec::new)
        });
        match found {
            Some(_) if !runtime::get().leads() => {
                catch_up("MPI_Request_get_status", request);
                host(request)
            }
            Some(_) => result,
            None => {
                // SAFETY: as above.
                unsafe { *flag = 0 };
                result
            }
        }
    })
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let name = name.strip_prefix(b"P").unwrap_or(name);
    (name == b"MPI_Request_get_status").then_some(request_get_status as *const () as usize)
}

// ---- cancelling ----

/// Whether every replica could withdraw its receive: it is cancelled in all of them, or in none.
pub fn all_withdrawn(shadow: &Shadow, mine: bool) -> bool {
    if !share::open() {
        return mine;
    }
    share::exchange_on(shadow.id, share::kind::CANCEL, "MPI_Cancel", vec![u8::from(mine)])
        .iter()
        .all(|(_, withdrawn)| withdrawn.first() == Some(&1))
}
