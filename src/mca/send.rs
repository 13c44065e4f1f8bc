//! Sends: the application's message travels unchanged through the host inside its sphere; beside it goes a digest to
//! the next replica of the receiver (MsgPlusHash) or a copy to each of them (All-to-all).

use super::communicator::{self, Shadow};
use super::guard::guard;
use super::host::{self, Communicator, Request, SendMode};
use super::message::Buffer;
use super::request::{self, Outer};
use super::runtime::{self, count, lock};
use super::vars::Protocol;
use super::{channel, identity, receive};
use crate::inject::Place;
use crate::report::{Event, EventKind};
use crate::wire::{Control, Key};
use ompi_headers as mpi;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const BUFFERED: SendMode = mpi::MCA_PML_BASE_SEND_BUFFERED;

/// A fault, if the injector wants one: in the application's own memory, before anything reads the message.
pub fn inject(buffer: &Buffer, to: c_int, tag: c_int, comm: *mut Communicator) {
    let runtime = runtime::get();
    if runtime.config.inject.rate == 0 {
        return;
    }
    let shadow = communicator::shadow(comm);
    // Open MPI's own messages for a window, or about names, are nobody's data; a fault there would crash it.
    if identity::private() || (runtime.verifies() && shadow.is_none()) {
        return;
    }
    let size = buffer.size();
    let place = if tag < mpi::MPI_ANY_TAG { Place::Internal } else { Place::Message };
    let Some(bit) = runtime.inject(place, size.saturating_mul(8)) else { return };
    buffer.flip(bit);
    count(&runtime.counters.injected);
    let peer = shadow.as_ref().map(|shadow| runtime.map.native_of(shadow.peer(to), runtime.replica));
    runtime.counters.event(Event {
        kind: EventKind::Injected,
        native: runtime.native,
        peer,
        communicator: shadow.map(|shadow| shadow.name()).unwrap_or_default(),
        tag: Some(tag),
        bytes: size,
        time_s: runtime.seconds(),
    });
    log::info!("injected a fault: bit {bit} of a message of {size} bytes to rank {to}, tag {tag}");
}

fn key(shadow: &Shadow, to: c_int, tag: c_int) -> Key {
    let index = {
        let mut inner = lock(&shadow.inner);
        inner.tidy(tag);
        inner.sends.next(to, tag)
    };
    Key { comm: shadow.id, source: shadow.rank, tag, index }
}

fn tell(shadow: &Shadow, buffer: &Buffer, to: c_int, tag: c_int) {
    let runtime = runtime::get();
    let key = key(shadow, to, tag);
    let value = if identity::private() {
        receive::UNCOMPARED
    } else {
        buffer.value(runtime.config.comparison.algorithm(), buffer.size())
    };
    let above = runtime.ring.above(runtime.ring.me());
    channel::control(runtime.map.native_of(shadow.peer(to), u32::from(above)), &Control::Told(key, value), &[]);
}

/// Non-blocking send.
pub fn isend(
    shadow: &Arc<Shadow>,
    buffer: Buffer,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
) -> Result<*mut Request, c_int> {
    request::reap();
    let runtime = runtime::get();
    count(&runtime.counters.class(tag).sent);
    let sent = host::isend(buffer.address, buffer.count, buffer.datatype, to, tag, mode, comm);
    match runtime.config.protocol {
        Protocol::MsgPlusHash => {
            if sent.is_ok() {
                tell(shadow, &buffer, to, tag);
            }
            sent
        }
        Protocol::AllToAll => copies(shadow, buffer, to, tag, mode, comm, sent?),
    }
}

/// Blocking send.
pub fn send(
    shadow: &Arc<Shadow>,
    buffer: Buffer,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
) -> c_int {
    let runtime = runtime::get();
    if runtime.config.protocol == Protocol::MsgPlusHash && buffer.size() <= 4096 {
        // Short: the host most likely copies it at once, so there is nothing to overlap with.
        request::reap();
        count(&runtime.counters.class(tag).sent);
        tell(shadow, &buffer, to, tag);
        return host::send(buffer.address, buffer.count, buffer.datatype, to, tag, mode, comm);
    }
    match isend(shadow, buffer, to, tag, mode, comm) {
        Ok(request) => request::wait_and_free(request),
        Err(error) => error,
    }
}

/// One request outside for several legs inside: the host's send, and copies that read the application's memory.
struct Legs {
    outer: *mut Outer,
    /// Legs under way; whoever takes the last one completes the request.
    left: AtomicUsize,
    state: Mutex<State>,
    buffer: Buffer,
}

#[derive(Default)]
struct State {
    freed: bool,
    done: bool,
}

/// All-to-all: a copy to every other replica of the receiver.
fn copies(
    shadow: &Arc<Shadow>,
    buffer: Buffer,
    to: c_int,
    tag: c_int,
    mode: SendMode,
    comm: *mut Communicator,
    primary: *mut Request,
) -> Result<*mut Request, c_int> {
    let runtime = runtime::get();
    let key = key(shadow, to, tag);
    let peer = shadow.peer(to);
    let others = runtime
        .ring
        .iter()
        .filter(|replica| *replica != runtime.ring.me())
        .map(|replica| runtime.map.native_of(peer, u32::from(replica)));
    let size = if identity::private() { 0 } else { buffer.size() };
    let in_place = if size as usize > channel::INLINE && mode != BUFFERED { buffer.contiguous(size) } else { None };
    let Some(address) = in_place else {
        let bytes = buffer.gather(size);
        for native in others {
            channel::with_body(native, |body| Control::Copy(key, body), bytes.clone());
        }
        return Ok(primary);
    };
    buffer.retain();
    let legs = Box::into_raw(Box::new(Legs {
        outer: std::ptr::null_mut(),
        left: AtomicUsize::new(2),
        state: Mutex::default(),
        buffer,
    }));
    let outer = request::new(comm, false, legs.cast(), Some(free), Some(cancel));
    // SAFETY: just made. The extra leg keeps it until this function is through.
    unsafe { (*legs).outer = outer };
    for native in others {
        // SAFETY: as above.
        unsafe { (*legs).left.fetch_add(1, Ordering::AcqRel) };
        // SAFETY: MPI leaves the send buffer untouched until the request is complete, which waits for this leg.
        unsafe {
            channel::with_memory(native, |body| Control::Copy(key, body), address, size as usize, move || leg(legs));
        }
    }
    if request::is_complete(primary) || !request::on_completion(primary, primary_complete, legs.cast()) {
        request::retire(primary);
        leg(legs);
    }
    leg(legs);
    // SAFETY: the request lives until the application gives it up.
    Ok(unsafe { &raw mut (*outer).super_ })
}

unsafe extern "C" fn primary_complete(request: *mut Request) -> c_int {
    guard("end of a send", 0, || {
        let legs: *mut Legs = request::data(request).cast();
        // SAFETY: both live; the outer request is not complete before this leg.
        unsafe { (*(*legs).outer).super_.req_status = (*request).req_status };
        request::retire(request);
        leg(legs);
        0
    })
}

fn leg(legs: *mut Legs) {
    // SAFETY: lives until the last leg and the application are through.
    let last = unsafe { (*legs).left.fetch_sub(1, Ordering::AcqRel) } == 1;
    if !last {
        return;
    }
    // SAFETY: as above.
    request::complete(unsafe { (*legs).outer });
    let destroy_now = {
        // SAFETY: as above.
        let mut state = lock(unsafe { &(*legs).state });
        state.done = true;
        state.freed
    };
    if destroy_now {
        destroy(legs);
    }
}

fn destroy(legs: *mut Legs) {
    // SAFETY: complete and given up; made by `Box::into_raw` in `copies`.
    let legs = unsafe { Box::from_raw(legs) };
    legs.buffer.release();
    request::destroy(legs.outer);
}

unsafe extern "C" fn free(request: *mut *mut Request) -> c_int {
    guard("MPI_Request_free", host::ERROR, || {
        // SAFETY: Open MPI passes a request of ours.
        let legs: *mut Legs = unsafe {
            let outer = (*request).cast::<Outer>();
            *request = request::null();
            (*outer).state.cast()
        };
        let done = {
            // SAFETY: lives until done and freed.
            let mut state = lock(unsafe { &(*legs).state });
            state.freed = true;
            state.done
        };
        if done {
            destroy(legs);
        }
        host::SUCCESS
    })
}

/// Sends are not cancelled, as in ob1; MPI allows the cancellation to fail.
unsafe extern "C" fn cancel(_: *mut Request, _: c_int) -> c_int {
    host::SUCCESS
}
