//! The interposed PML: the functions that Open MPI calls instead of the host's.

use super::communicator::{self, Shadow};
use super::guard::guard;
use super::host::{self, Communicator, Datatype, MatchedMessage, Module, Request, SendMode, Status, ERROR, SUCCESS};
use super::message::Buffer;
use super::request::{self, Outer, Role};
use super::runtime::{self, count, lock};
use super::{
    channel, clock, files, finalize, got, identity, outcome, receive, send, share, sources, stdio, watch, windows,
};
use ompi_headers as mpi;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

/// Steps in front of the host PML.
pub fn interpose() {
    let verifies = runtime::get().verifies();
    // SAFETY: in coll's init_query: selected, and not used yet.
    unsafe {
        host::interpose(|module: &mut Module| {
            module.pml_add_comm = Some(add_comm);
            module.pml_del_comm = Some(del_comm);
            module.pml_isend = Some(isend);
            module.pml_send = Some(send);
            module.pml_isend_init = Some(isend_init);
            module.pml_start = Some(start);
            if verifies {
                module.pml_irecv_init = Some(irecv_init);
                module.pml_irecv = Some(irecv);
                module.pml_recv = Some(recv);
                module.pml_probe = Some(probe);
                module.pml_iprobe = Some(iprobe);
                module.pml_mprobe = Some(mprobe);
                module.pml_improbe = Some(improbe);
                module.pml_imrecv = Some(imrecv);
                module.pml_mrecv = Some(mrecv);
            }
        });
    }
}

unsafe extern "C" fn add_comm(comm: *mut Communicator) -> c_int {
    guard("pml_add_comm", ERROR, || {
        if communicator::is_ours(comm) {
            return host::add_comm(comm);
        }
        let world = communicator::is_world(comm);
        let runtime = runtime::get();
        if world {
            if let Err(error) = channel::open() {
                return error;
            }
            if runtime.verifies() {
                let split = communicator::split_world();
                if split != SUCCESS {
                    return split;
                }
            }
        }
        let added = host::add_comm(comm);
        if added != SUCCESS {
            return added;
        }
        if runtime.verifies() {
            communicator::added(comm);
        }
        if world {
            channel::listen();
            runtime::agree();
            if let Err(error) = finalize::arrange() {
                return error;
            }
            if runtime.verifies() {
                share::start();
                sources::start();
                files::start();
                watch::start();
                stdio::start();
                // SAFETY: in MPI_Init, before the application has a request.
                unsafe { outcome::interpose() };
                got::replace(&replacement);
            }
        }
        SUCCESS
    })
}

/// The function that stands in for one that the application calls.
fn replacement(name: &[u8]) -> Option<usize> {
    let config = &runtime::get().config;
    let found = clock::replacement(name, config.clocks)
        .or_else(|| files::replacement(name, config.files)) // knows more of MPI_File_open than `identity`
        .or_else(|| identity::replacement(name))
        .or_else(|| outcome::replacement(name))
        .or_else(|| stdio::replacement(name));
    sources::replacement(name, config, found).or_else(|| sources::by_other_ways(name, &replacement))
}

unsafe extern "C" fn del_comm(comm: *mut Communicator) -> c_int {
    guard("pml_del_comm", ERROR, || {
        if communicator::is_ours(comm) {
            return host::del_comm(comm);
        }
        if runtime::get().verifies() {
            communicator::removed(comm);
        }
        let result = host::del_comm(comm);
        if communicator::is_world(comm) {
            channel::close();
            windows::tidy();
        }
        result
    })
}

fn buffer(address: *const c_void, count: usize, datatype: *mut Datatype) -> Buffer {
    Buffer { address: address.cast_mut(), count, datatype }
}

unsafe extern "C" fn isend(
    address: *const c_void,
    count_: usize,
    datatype: *mut Datatype,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
    request: *mut *mut Request,
) -> c_int {
    guard("pml_isend", ERROR, || {
        let buffer = buffer(address, count_, datatype);
        match isend_any(buffer, to, tag, mode, comm) {
            Ok(made) => {
                // SAFETY: Open MPI's place for the request.
                unsafe { *request = made };
                SUCCESS
            }
            Err(error) => error,
        }
    })
}

fn isend_any(
    buffer: Buffer,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
) -> Result<*mut Request, c_int> {
    if to < 0 {
        return host::isend(buffer.address, buffer.count, buffer.datatype, to, tag, mode, comm);
    }
    send::inject(&buffer, to, tag, comm);
    match receive::protected(comm, tag) {
        Some(shadow) => send::isend(&shadow, buffer, to, tag, mode, comm),
        None => {
            count(&runtime::get().counters.class(tag).sent);
            host::isend(buffer.address, buffer.count, buffer.datatype, to, tag, mode, comm)
        }
    }
}

unsafe extern "C" fn send(
    address: *const c_void,
    count_: usize,
    datatype: *mut Datatype,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
) -> c_int {
    guard("pml_send", ERROR, || {
        let buffer = buffer(address, count_, datatype);
        if to < 0 {
            return host::send(address, count_, datatype, to, tag, mode, comm);
        }
        send::inject(&buffer, to, tag, comm);
        match receive::protected(comm, tag) {
            Some(shadow) => send::send(&shadow, buffer, to, tag, mode, comm),
            None => {
                count(&runtime::get().counters.class(tag).sent);
                host::send(address, count_, datatype, to, tag, mode, comm)
            }
        }
    })
}

unsafe extern "C" fn irecv(
    address: *mut c_void,
    count_: usize,
    datatype: *mut Datatype,
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    request: *mut *mut Request,
) -> c_int {
    guard("pml_irecv", ERROR, || match irecv_any(buffer(address, count_, datatype), from, tag, comm) {
        Ok(made) => {
            // SAFETY: Open MPI's place for the request.
            unsafe { *request = made };
            SUCCESS
        }
        Err(error) => error,
    })
}

fn irecv_any(buffer: Buffer, from: c_int, tag: c_int, comm: *mut Communicator) -> Result<*mut Request, c_int> {
    match receive::protected(comm, tag) {
        Some(shadow) if from != mpi::MPI_PROC_NULL => receive::irecv(shadow, buffer, from, tag, comm),
        _ => host::irecv(buffer.address, buffer.count, buffer.datatype, from, tag, comm),
    }
}

/// Waits for a receive of ours, copies its status, and frees it.
fn finish(mut made: *mut Request, status: *mut Status) -> c_int {
    // SAFETY: a request that this function owns; the status is Open MPI's place for it, or null (MPI_STATUS_IGNORE).
    unsafe {
        mpi::redmpi_shim_request_wait(made);
        let found = (*made).req_status;
        if !status.is_null() {
            *status = found;
        }
        mpi::redmpi_shim_request_free(&mut made);
        request::reap();
        found.MPI_ERROR
    }
}

unsafe extern "C" fn recv(
    address: *mut c_void,
    count_: usize,
    datatype: *mut Datatype,
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    status: *mut Status,
) -> c_int {
    guard("pml_recv", ERROR, || match receive::protected(comm, tag) {
        Some(shadow) if from != mpi::MPI_PROC_NULL => {
            match receive::irecv(shadow, buffer(address, count_, datatype), from, tag, comm) {
                Ok(made) => finish(made, status),
                Err(error) => error,
            }
        }
        _ => host::recv(address, count_, datatype, from, tag, comm, status),
    })
}

// ---- persistent requests ----

/// What a persistent request starts again and again.
struct Persistent {
    outer: *mut Outer,
    buffer: Buffer,
    peer: c_int,
    tag: c_int,
    /// `None` for a receive.
    mode: Option<SendMode>,
    comm: *mut Communicator,
    inner: *mut Request,
    freed: bool,
}

fn persistent(
    buffer: Buffer,
    peer: c_int,
    tag: c_int,
    mode: Option<SendMode>,
    comm: *mut Communicator,
) -> *mut Request {
    buffer.retain();
    // SAFETY: a live communicator; released in `persistent_destroy`.
    unsafe { mpi::redmpi_shim_comm_retain(comm) };
    let state = Box::into_raw(Box::new(Persistent {
        outer: std::ptr::null_mut(),
        buffer,
        peer,
        tag,
        mode,
        comm,
        inner: std::ptr::null_mut(),
        freed: false,
    }));
    let outer = request::new(comm, true, state.cast(), Some(persistent_free), Some(persistent_cancel));
    request::set_role(outer, Role::Persistent);
    // SAFETY: both just made.
    unsafe {
        (*state).outer = outer;
        (*outer).super_.req_start = Some(start);
        &raw mut (*outer).super_
    }
}

unsafe extern "C" fn isend_init(
    address: *const c_void,
    count_: usize,
    datatype: *mut Datatype,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
    request: *mut *mut Request,
) -> c_int {
    guard("pml_isend_init", ERROR, || {
        // SAFETY: Open MPI's place for the request.
        unsafe { *request = persistent(buffer(address, count_, datatype), to, tag, Some(mode), comm) };
        SUCCESS
    })
}

unsafe extern "C" fn irecv_init(
    address: *mut c_void,
    count_: usize,
    datatype: *mut Datatype,
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    request: *mut *mut Request,
) -> c_int {
    guard("pml_irecv_init", ERROR, || {
        // SAFETY: Open MPI's place for the request.
        unsafe { *request = persistent(buffer(address, count_, datatype), from, tag, None, comm) };
        SUCCESS
    })
}

unsafe extern "C" fn start(count_: usize, requests: *mut *mut Request) -> c_int {
    guard("pml_start", ERROR, || {
        for i in 0..count_ {
            // SAFETY: Open MPI passes `count_` requests.
            let request = unsafe { *requests.add(i) };
            if request.is_null() {
                continue; // MPI_Startall groups requests by their function and leaves gaps
            }
            // SAFETY: a live request; all persistent requests of our class are the ones made here.
            let ours = unsafe { mpi::redmpi_shim_request_is_ours(request) != 0 };
            let result = if ours { start_one(request.cast()) } else { host::start(1, &mut { request }) };
            if result != SUCCESS {
                return result;
            }
        }
        SUCCESS
    })
}

fn start_one(outer: *mut Outer) -> c_int {
    // SAFETY: a persistent request of ours, inactive, so that nobody else uses its state.
    let (state, buffer, peer, tag, mode, comm) = unsafe {
        let state: *mut Persistent = (*outer).state.cast();
        // Pending again before anything can complete it.
        (*outer).super_.req_complete = std::ptr::null_mut();
        (*outer).super_.req_state = mpi::OMPI_REQUEST_ACTIVE;
        (*outer).super_.req_status.MPI_ERROR = 0;
        (*outer).super_.req_status._cancelled = 0;
        (state, (*state).buffer, (*state).peer, (*state).tag, (*state).mode, (*state).comm)
    };
    let made = match mode {
        Some(mode) => isend_any(buffer, peer, tag, mode, comm),
        None => irecv_any(buffer, peer, tag, comm),
    };
    match made {
        Ok(inner) => {
            // SAFETY: as above.
            unsafe { (*state).inner = inner };
            if request::is_complete(inner) || !request::on_completion(inner, started_complete, state.cast()) {
                started(state, inner);
            }
            SUCCESS
        }
        Err(error) => error,
    }
}

unsafe extern "C" fn started_complete(inner: *mut Request) -> c_int {
    guard("end of a persistent request", 0, || {
        started(request::data(inner).cast(), inner);
        0
    })
}

fn started(state: *mut Persistent, inner: *mut Request) {
    // SAFETY: active, so the application cannot have destroyed it (a freed one is destroyed below).
    let (outer, freed) = unsafe {
        (*state).inner = std::ptr::null_mut();
        (*(*state).outer).super_.req_status = (*inner).req_status;
        ((*state).outer, (*state).freed)
    };
    request::retire(inner);
    request::complete(outer);
    if freed {
        persistent_destroy(state);
    }
}

/// What a persistent request of point-to-point communication has under way.
pub fn under_way(request: *mut Request) -> Option<*mut Request> {
    let state: *mut Persistent = request::state_of(request, Role::Persistent)?.cast();
    // SAFETY: lives until its request is freed.
    let inner = unsafe { (*state).inner };
    (!inner.is_null()).then_some(inner)
}

fn persistent_destroy(state: *mut Persistent) {
    // SAFETY: complete or inactive, and given up; made by `Box::into_raw` in `persistent`.
    let state = unsafe { Box::from_raw(state) };
    state.buffer.release();
    request::destroy(state.outer);
    // SAFETY: retained in `persistent`.
    unsafe { mpi::redmpi_shim_comm_release(state.comm) };
}

unsafe extern "C" fn persistent_free(request: *mut *mut Request) -> c_int {
    guard("MPI_Request_free", ERROR, || {
        // SAFETY: Open MPI passes a request of ours.
        let state: *mut Persistent = unsafe {
            let outer = (*request).cast::<Outer>();
            *request = request::null();
            (*outer).state.cast()
        };
        // SAFETY: lives until freed and not active.
        let active = unsafe { !(*state).inner.is_null() };
        if active {
            // SAFETY: as above.
            unsafe { (*state).freed = true };
        } else {
            persistent_destroy(state);
        }
        SUCCESS
    })
}

unsafe extern "C" fn persistent_cancel(request: *mut Request, _: c_int) -> c_int {
    guard("MPI_Cancel", ERROR, || {
        // SAFETY: Open MPI passes an active request of ours.
        let state = unsafe { &*(*request.cast::<Outer>()).state.cast::<Persistent>() };
        if !state.inner.is_null() {
            return request::cancel(state.inner);
        }
        // Received already; the other replicas may not have it yet, and ask.
        if state.mode.is_none() && state.peer != mpi::MPI_PROC_NULL {
            if let Some(shadow) = receive::protected(state.comm, state.tag) {
                outcome::all_withdrawn(&shadow, false);
            }
        }
        SUCCESS
    })
}

// ---- probes: the leader's outcome is everybody's (paper, section III C) ----

/// Agrees on the outcome of a probe: the leader's `look` is asked, the others take what it found, source and tag.
fn agree(
    shadow: &Arc<Shadow>,
    what: &'static str,
    (from, tag): (c_int, c_int),
    blocking: bool,
    look: impl FnOnce() -> Result<Option<(i32, i32)>, c_int>,
) -> Result<Option<(i32, i32)>, c_int> {
    let mut result = Ok(());
    let found = outcome::agree(shadow, outcome::probe_key(from, tag), what, blocking, || match look() {
        Ok(found) => found.map(|(source, tag)| vec![source, tag]),
        Err(error) => {
            result = Err(error);
            blocking.then(Vec::new)
        }
    });
    result.map(|()| match found.as_deref() {
        Some([source, tag]) => Some((*source, *tag)),
        _ => None,
    })
}

/// Earlier receives that could have taken the message have been matched on the leader: they are to come here first.
fn wait_for_earlier(shadow: &Shadow, source: i32, tag: i32) {
    let what = || format!("what earlier receives on {} have matched", shadow.name());
    share::wait(what, runtime::get().leader(), || !lock(&shadow.inner).order.covers(source, tag));
}

fn empty_status() -> Status {
    // SAFETY: plain data; all zero is a valid status.
    unsafe { std::mem::zeroed() }
}

fn give(status: *mut Status, found: Status) {
    if !status.is_null() {
        // SAFETY: Open MPI's place for the status; null is MPI_STATUS_IGNORE.
        unsafe {
            let error = (*status).MPI_ERROR;
            *status = found;
            (*status).MPI_ERROR = error;
        }
    }
}

unsafe extern "C" fn probe(from: c_int, tag: c_int, comm: *mut Communicator, status: *mut Status) -> c_int {
    guard("pml_probe", ERROR, || {
        let Some(shadow) = receive::protected(comm, tag) else { return host::probe(from, tag, comm, status) };
        if from == mpi::MPI_PROC_NULL {
            return host::probe(from, tag, comm, status);
        }
        let mut found = empty_status();
        let agreed = if from >= 0 && tag != mpi::MPI_ANY_TAG {
            Ok(Some((from, tag))) // nothing to decide
        } else {
            agree(&shadow, "MPI_Probe", (from, tag), true, || match host::probe(from, tag, comm, &mut found) {
                SUCCESS => Ok(Some((found.MPI_SOURCE, found.MPI_TAG))),
                error => Err(error),
            })
        };
        match agreed {
            Ok(Some((source, tag))) => {
                wait_for_earlier(&shadow, source, tag);
                let result = host::probe(source, tag, comm, &mut found);
                give(status, found);
                result
            }
            Ok(None) => ERROR,
            Err(error) => error,
        }
    })
}

unsafe extern "C" fn iprobe(
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    matched: *mut c_int,
    status: *mut Status,
) -> c_int {
    guard("pml_iprobe", ERROR, || {
        let shadow = match receive::protected(comm, tag) {
            Some(shadow) if from != mpi::MPI_PROC_NULL => shadow,
            _ => return host::iprobe(from, tag, comm, matched, status),
        };
        let mut found = empty_status();
        let agreed = agree(&shadow, "MPI_Iprobe", (from, tag), false, || {
            let mut flag = 0;
            match host::iprobe(from, tag, comm, &mut flag, &mut found) {
                SUCCESS => Ok((flag != 0).then_some((found.MPI_SOURCE, found.MPI_TAG))),
                error => Err(error),
            }
        });
        match agreed {
            Ok(outcome) => {
                if let Some((source, tag)) = outcome {
                    if !runtime::get().leads() {
                        wait_for_earlier(&shadow, source, tag);
                        let result = host::probe(source, tag, comm, &mut found);
                        if result != SUCCESS {
                            return result;
                        }
                    }
                    give(status, found);
                }
                // SAFETY: Open MPI's place for the flag.
                unsafe { *matched = c_int::from(outcome.is_some()) };
                SUCCESS
            }
            Err(error) => error,
        }
    })
}

struct Matched(HashMap<usize, (*mut Communicator, (i32, i32, u64))>);

// SAFETY: the communicators are only handed back to the host, which keeps them alive for a matched message.
unsafe impl Send for Matched {}

static MATCHED: Mutex<Option<Matched>> = Mutex::new(None);

/// Takes a matched message's place in the order of its source and tag.
fn take_place(shadow: &Shadow, comm: *mut Communicator, message: *mut MatchedMessage, source: i32, tag: i32) {
    let mut index = 0;
    let what = || format!("what earlier receives on {} have matched", shadow.name());
    share::wait(what, runtime::get().leader(), || {
        let taken = lock(&shadow.inner).order.take(source, tag);
        index = taken.unwrap_or(0);
        taken.is_some()
    });
    lock(&MATCHED)
        .get_or_insert_with(|| Matched(HashMap::new()))
        .0
        .insert(message as usize, (comm, (source, tag, index)));
}

unsafe extern "C" fn mprobe(
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    message: *mut *mut MatchedMessage,
    status: *mut Status,
) -> c_int {
    guard("pml_mprobe", ERROR, || {
        let shadow = match receive::protected(comm, tag) {
            Some(shadow) if from != mpi::MPI_PROC_NULL => shadow,
            _ => return host::mprobe(from, tag, comm, message, status),
        };
        let mut found = empty_status();
        let agreed = agree(&shadow, "MPI_Mprobe", (from, tag), true, || {
            match host::mprobe(from, tag, comm, message, &mut found) {
                SUCCESS => Ok(Some((found.MPI_SOURCE, found.MPI_TAG))),
                error => Err(error),
            }
        });
        match agreed {
            Ok(Some((source, tag))) => matched_here(&shadow, source, tag, comm, message, status, found),
            Ok(None) => ERROR,
            Err(error) => error,
        }
    })
}

/// A matched probe has found something: followers take the same message out, everybody notes its place.
fn matched_here(
    shadow: &Shadow,
    source: i32,
    tag: i32,
    comm: *mut Communicator,
    message: *mut *mut MatchedMessage,
    status: *mut Status,
    mut found: Status,
) -> c_int {
    if !runtime::get().leads() {
        wait_for_earlier(shadow, source, tag);
        let result = host::mprobe(source, tag, comm, message, &mut found);
        if result != SUCCESS {
            return result;
        }
    }
    give(status, found);
    // SAFETY: Open MPI's place for the message, just filled.
    take_place(shadow, comm, unsafe { *message }, source, tag);
    SUCCESS
}

unsafe extern "C" fn improbe(
    from: c_int,
    tag: c_int,
    comm: *mut Communicator,
    matched: *mut c_int,
    message: *mut *mut MatchedMessage,
    status: *mut Status,
) -> c_int {
    guard("pml_improbe", ERROR, || {
        let shadow = match receive::protected(comm, tag) {
            Some(shadow) if from != mpi::MPI_PROC_NULL => shadow,
            _ => return host::improbe(from, tag, comm, matched, message, status),
        };
        let mut found = empty_status();
        let agreed = agree(&shadow, "MPI_Improbe", (from, tag), false, || {
            let mut flag = 0;
            match host::improbe(from, tag, comm, &mut flag, message, &mut found) {
                SUCCESS => Ok((flag != 0).then_some((found.MPI_SOURCE, found.MPI_TAG))),
                error => Err(error),
            }
        });
        match agreed {
            Ok(outcome) => {
                // SAFETY: Open MPI's place for the flag.
                unsafe { *matched = c_int::from(outcome.is_some()) };
                match outcome {
                    Some((source, tag)) => matched_here(&shadow, source, tag, comm, message, status, found),
                    None => SUCCESS,
                }
            }
            Err(error) => error,
        }
    })
}

/// The receive of a matched message; `None` where it is not verified.
fn imrecv_any(buffer: Buffer, message: *mut *mut MatchedMessage) -> Result<*mut Request, c_int> {
    // SAFETY: Open MPI's place for the message.
    let matched = unsafe { *message };
    let known = lock(&MATCHED).as_mut().and_then(|known| known.0.remove(&(matched as usize)));
    if let Some((comm, place)) = known {
        if let Some(shadow) = receive::protected(comm, place.1) {
            // SAFETY: as above; the message is used up.
            unsafe { *message = mpi::redmpi_shim_message_null() };
            return Ok(receive::imrecv(shadow, buffer, matched, comm, place));
        }
    }
    host::imrecv(buffer.address, buffer.count, buffer.datatype, message)
}

unsafe extern "C" fn imrecv(
    address: *mut c_void,
    count_: usize,
    datatype: *mut Datatype,
    message: *mut *mut MatchedMessage,
    request: *mut *mut Request,
) -> c_int {
    guard("pml_imrecv", ERROR, || match imrecv_any(buffer(address, count_, datatype), message) {
        Ok(made) => {
            // SAFETY: Open MPI's place for the request.
            unsafe { *request = made };
            SUCCESS
        }
        Err(error) => error,
    })
}

unsafe extern "C" fn mrecv(
    address: *mut c_void,
    count_: usize,
    datatype: *mut Datatype,
    message: *mut *mut MatchedMessage,
    status: *mut Status,
) -> c_int {
    guard("pml_mrecv", ERROR, || match imrecv_any(buffer(address, count_, datatype), message) {
        Ok(made) => finish(made, status),
        Err(error) => error,
    })
}
