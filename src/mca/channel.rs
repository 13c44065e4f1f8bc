//! The native world: one communicator of our own over all processes of all spheres, and the control messages on it.
//!
//! A few receives from anybody are always posted; what arrives is decoded and handled inside the host's progress.
//! Bodies too long for that travel as messages of their own, announced by a control message.

use super::guard::guard;
use super::host::{self, Communicator, Request};
use super::runtime::lock;
use super::{message, receive, request};
use crate::wire::{Body, Control, MAX_HEADER};
use ompi_headers as mpi;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, Ordering};
use std::sync::Mutex;

/// Longest control message with its inline body, bytes; less than the eager limit of every BTL of Open MPI.
const LONGEST: usize = 4000;
/// Longest body that travels inside its control message, bytes.
pub const INLINE: usize = LONGEST - MAX_HEADER;
/// Receives that are always posted.
const SLOTS: usize = 16;
/// Tag of control messages; bodies have the tags above.
const CONTROL: c_int = 1;
const BODY: c_int = 2;
/// Tags of bodies in flight from one process; every MPI library has at least 2^15 - 1 (MPI-3.1, 8.1.2).
const BODIES: u32 = 30_000;

const STANDARD: host::SendMode = mpi::MCA_PML_BASE_SEND_STANDARD;

static COMM: AtomicPtr<Communicator> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_BODY: AtomicU32 = AtomicU32::new(0);
static IN_FLIGHT: AtomicI64 = AtomicI64::new(0);
static CLOSING: AtomicBool = AtomicBool::new(false);

struct Slot {
    buffer: Box<[u8; LONGEST]>,
    request: *mut Request,
}

// SAFETY: moved between threads only under the lock; a buffer is read only in its own request's callback.
unsafe impl Send for Slot {}

static SLOT: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

/// Whether a communicator is the native world.
pub fn is_native_world(comm: *mut Communicator) -> bool {
    !comm.is_null() && comm == COMM.load(Ordering::Relaxed)
}

/// Makes the native world of MPI_COMM_WORLD's group as mpirun started it, before the world is split.
pub fn open() -> Result<(), c_int> {
    // SAFETY: called in pml_add_comm of MPI_COMM_WORLD, when the world's group is complete.
    let comm = unsafe { mpi::redmpi_shim_native_comm() };
    if comm.is_null() {
        return Err(mpi::OMPI_ERR_OUT_OF_RESOURCE as c_int);
    }
    COMM.store(comm, Ordering::Relaxed);
    match host::add_comm(comm) {
        host::SUCCESS => Ok(()),
        error => Err(error),
    }
}

/// Begins to listen.
pub fn listen() {
    for index in 0..SLOTS {
        lock(&SLOT).push(Slot { buffer: Box::new([0; LONGEST]), request: std::ptr::null_mut() });
        post(index);
    }
}

fn post(index: usize) {
    loop {
        if CLOSING.load(Ordering::Relaxed) {
            return;
        }
        let buffer = lock(&SLOT)[index].buffer.as_mut_ptr();
        let posted = host::irecv(
            buffer.cast(),
            LONGEST,
            message::byte(),
            mpi::MPI_ANY_SOURCE,
            CONTROL,
            COMM.load(Ordering::Relaxed),
        );
        let request = match posted {
            Ok(request) => request,
            Err(error) => panic!("the host refused a receive of redmpi's own (error {error})"),
        };
        lock(&SLOT)[index].request = request;
        if request::on_completion(request, arrived, index as *mut c_void) {
            return;
        }
        take(request, index);
    }
}

unsafe extern "C" fn arrived(request: *mut Request) -> c_int {
    guard("control message", 0, || {
        let index = request::data(request) as usize;
        take(request, index);
        post(index);
        0
    })
}

/// Handles what a slot has received.
fn take(request: *mut Request, index: usize) {
    // SAFETY: the host has just filled the status of this request.
    let status = unsafe { (*request).req_status };
    let (buffer, length) = {
        let mut slots = lock(&SLOT);
        slots[index].request = std::ptr::null_mut();
        (slots[index].buffer.as_ptr(), status._ucount.min(LONGEST))
    };
    request::retire(request);
    if status._cancelled != 0 {
        return;
    }
    // SAFETY: the slot's buffer stays where it is (boxed), and no receive is posted into it before `post`.
    let bytes = unsafe { std::slice::from_raw_parts(buffer, length) };
    receive::control(status.MPI_SOURCE as u32, bytes);
}

/// Something under way, with what it needs and what follows.
struct Operation {
    buffer: Vec<u8>,
    then: Option<Box<dyn FnOnce(Vec<u8>)>>,
}

unsafe extern "C" fn finished(request: *mut Request) -> c_int {
    guard("end of a transfer", 0, || {
        let operation = request::data(request).cast::<Operation>();
        request::retire(request);
        finish(operation);
        0
    })
}

fn finish(operation: *mut Operation) {
    // SAFETY: made by `Box::into_raw` in this module, and finished once.
    let operation = unsafe { Box::from_raw(operation) };
    IN_FLIGHT.fetch_sub(1, Ordering::Relaxed);
    if let Some(then) = operation.then {
        then(operation.buffer);
    }
}

fn follow(request: Result<*mut Request, c_int>, operation: *mut Operation) {
    match request {
        Ok(request) => {
            if request::is_complete(request) || !request::on_completion(request, finished, operation.cast()) {
                request::retire(request);
                finish(operation);
            }
        }
        Err(error) => panic!("the host refused a message of redmpi's own (error {error})"),
    }
}

fn start(buffer: Vec<u8>, then: Option<Box<dyn FnOnce(Vec<u8>)>>) -> *mut Operation {
    IN_FLIGHT.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(Box::new(Operation { buffer, then }))
}

fn send(to: u32, tag: c_int, buffer: Vec<u8>) {
    request::reap();
    let operation = start(buffer, None);
    // SAFETY: the operation is ours until `finish`.
    let (address, length) = unsafe { ((*operation).buffer.as_ptr(), (*operation).buffer.len()) };
    let comm = COMM.load(Ordering::Relaxed);
    follow(host::isend(address.cast(), length, message::byte(), to as c_int, tag, STANDARD, comm), operation);
}

/// Sends a control message, with an inline body if there is one.
pub fn control(to: u32, control: &Control, inline: &[u8]) {
    let mut bytes = Vec::with_capacity(MAX_HEADER + inline.len());
    control.encode(&mut bytes);
    bytes.extend_from_slice(inline);
    debug_assert!(bytes.len() <= LONGEST);
    send(to, CONTROL, bytes);
}

fn announce(length: u64) -> (c_int, Body) {
    let tag = BODY + (NEXT_BODY.fetch_add(1, Ordering::Relaxed) % BODIES) as c_int;
    (tag, Body::Announced { tag, length })
}

/// Sends a control message with a body of any length.
pub fn with_body(to: u32, make: impl FnOnce(Body) -> Control, body: Vec<u8>) {
    if body.len() <= INLINE {
        control(to, &make(Body::Inline), &body);
    } else {
        let (tag, announced) = announce(body.len() as u64);
        control(to, &make(announced), &[]);
        send(to, tag, body);
    }
}

/// Sends a control message and, as its body, memory of the application's that stays untouched until `then`.
///
/// # Safety
/// `address` is readable for `length` bytes until `then` was called.
pub unsafe fn with_memory(
    to: u32,
    make: impl FnOnce(Body) -> Control,
    address: *const u8,
    length: usize,
    then: impl FnOnce() + 'static,
) {
    request::reap();
    let (tag, announced) = announce(length as u64);
    control(to, &make(announced), &[]);
    let operation = start(Vec::new(), Some(Box::new(move |_| then())));
    let comm = COMM.load(Ordering::Relaxed);
    follow(host::isend(address.cast(), length, message::byte(), to as c_int, tag, STANDARD, comm), operation);
}

/// Receives an announced body.
pub fn fetch(from: u32, tag: i32, length: u64, then: impl FnOnce(Vec<u8>) + 'static) {
    request::reap();
    let operation = start(vec![0; length as usize], Some(Box::new(then)));
    // SAFETY: the operation is ours until `finish`.
    let address = unsafe { (*operation).buffer.as_mut_ptr() };
    let comm = COMM.load(Ordering::Relaxed);
    follow(host::irecv(address.cast(), length as usize, message::byte(), from as c_int, tag, comm), operation);
}

/// Waits until everything that was sent has left.
pub fn flush() {
    while IN_FLIGHT.load(Ordering::Relaxed) > 0 {
        host::progress();
        request::reap();
    }
}

/// Stops listening and gives the native world back.
pub fn close() {
    let comm = COMM.swap(std::ptr::null_mut(), Ordering::Relaxed);
    if comm.is_null() {
        return;
    }
    CLOSING.store(true, Ordering::Relaxed);
    for index in 0..SLOTS {
        let request = match lock(&SLOT).get(index) {
            Some(slot) => slot.request,
            None => break,
        };
        if !request.is_null() {
            request::cancel(request);
        }
    }
    request::reap();
    COMM.store(comm, Ordering::Relaxed); // so that its own del_comm is recognised
                                         // SAFETY: the reference that `open` got; the host's del_comm runs in the destructor.
    unsafe { mpi::redmpi_shim_native_comm_free(comm) };
    COMM.store(std::ptr::null_mut(), Ordering::Relaxed);
}
