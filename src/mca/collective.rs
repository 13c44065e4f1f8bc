//! The collective operations of a communicator: redmpi's module stands in front of the host's, counts, and passes on.
//!
//! Open MPI enables modules in the order of their priority; ours has the highest, so it finds in the communicator what
//! would have been called without it (as Open MPI's own coll/monitoring does). The host's algorithms run in each sphere;
//! the messages inside them pass through the interposed PML, where they are verified (paper, section III C, figure 8).

use super::communicator::Shadow;
use super::guard::guard;
use super::host::{Communicator, Datatype, Request, ERROR, SUCCESS};
use super::message::{Buffer, Region};
use super::region::{Group, Side};
use super::request::{self, Outer};
use super::runtime::{self, count};
use super::{identity, receive};
use crate::inject::Place;
use crate::report::{Event, EventKind};
use ompi_headers as mpi;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

type Module = mpi::mca_coll_base_module_t;
type Ours = mpi::redmpi_coll_module_t;
type P = *const c_void;
type M = *mut c_void;
type I = c_int;
type A = *const c_int;
type L = *const mpi::MPI_Aint;
type D = *mut Datatype;
type W = *const *mut Datatype;
type O = *mut mpi::ompi_op_t;
type N = *mut mpi::ompi_info_t;
type R = *mut *mut Request;

/// In front of all of Open MPI's modules.
const PRIORITY: c_int = 1000;

thread_local! {
    /// Collectives of the host that call others are one call of the application's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a collective operation of the host.
pub fn inside() -> bool {
    INSIDE.get()
}

/// Runs an operation of the host's; what it calls inside is its own business.
fn within(operation: impl FnOnce() -> c_int) -> c_int {
    let outer = INSIDE.replace(true);
    let result = operation();
    INSIDE.set(outer);
    result
}

/// The shadow of a communicator on which this call is to be verified; `None`: only counted.
fn verified(comm: *mut Communicator) -> Option<Arc<Shadow>> {
    let runtime = runtime::get();
    count(&runtime.counters.collectives_called);
    let wanted = runtime.config.collectives;
    if !(wanted.input() || wanted.result()) || identity::private() {
        return None;
    }
    receive::protected(comm, 0)
}

/// A fault, if the injector wants one here.
fn inject(place: Place, region: impl FnOnce() -> Region, shadow: Option<&Arc<Shadow>>) {
    let runtime = runtime::get();
    if runtime.config.inject.rate == 0 || !runtime.config.inject.places.contains(place) {
        return;
    }
    let region = region();
    let bytes = region.size();
    let Some(bit) = runtime.inject(place, bytes.saturating_mul(8)) else { return };
    region.flip(bit);
    count(&runtime.counters.injected);
    runtime.counters.event(Event {
        kind: EventKind::Injected,
        native: runtime.native,
        peer: None,
        communicator: shadow.map(|shadow| shadow.name()).unwrap_or_default(),
        tag: None,
        bytes,
        time_s: runtime.seconds(),
    });
}

/// A fault in what a non-blocking operation has received.
pub fn inject_output(region: &Region, shadow: &Arc<Shadow>) {
    inject(Place::Output, || region.clone(), Some(shadow));
}

/// Before an operation: what this process contributes is made equal in all replicas.
fn contribute(comm: *mut Communicator, region: &impl Fn(Side) -> Region, shadow: Option<&Arc<Shadow>>) -> c_int {
    inject(Place::Input, || region(Side::Input), shadow);
    match shadow {
        Some(shadow) if runtime::get().config.collectives.input() => {
            let region = region(Side::Input);
            if region.size() > 0 {
                return receive::compare(shadow, comm, receive::INPUT, region);
            }
            SUCCESS
        }
        _ => SUCCESS,
    }
}

fn blocking(comm: *mut Communicator, region: impl Fn(Side) -> Region, operation: impl FnOnce() -> c_int) -> c_int {
    if INSIDE.get() {
        return operation();
    }
    let shadow = verified(comm);
    let contributed = contribute(comm, &region, shadow.as_ref());
    if contributed != SUCCESS {
        return contributed;
    }
    let result = within(operation);
    if result != SUCCESS {
        return result;
    }
    inject(Place::Output, || region(Side::Result), shadow.as_ref());
    match shadow {
        Some(shadow) if runtime::get().config.collectives.result() => {
            let region = region(Side::Result);
            if region.size() > 0 {
                return receive::compare(&shadow, comm, receive::RESULT, region);
            }
            SUCCESS
        }
        _ => SUCCESS,
    }
}

fn nonblocking(
    comm: *mut Communicator,
    region: impl Fn(Side) -> Region,
    operation: impl FnOnce() -> c_int,
    request: R,
) -> c_int {
    if INSIDE.get() {
        return operation();
    }
    let shadow = verified(comm);
    let contributed = contribute(comm, &region, shadow.as_ref());
    if contributed != SUCCESS {
        return contributed;
    }
    let result = within(operation);
    if result != SUCCESS {
        return result;
    }
    if let Some(shadow) = shadow {
        let region = region(Side::Result);
        if runtime::get().config.collectives.result() && region.size() > 0 {
            // SAFETY: Open MPI's place for the request, filled by the host.
            unsafe { *request = receive::follow(&shadow, comm, region, *request, false) };
        }
    }
    SUCCESS
}

/// An operation that Open MPI also uses itself, to agree on the context id of a new communicator: one MPI_INT, and not
/// through the application's call. Ids differ between spheres without a fault (a freed communicator keeps its own until
/// its last request is done), and so does the number of attempts: they are not compared.
fn agreement(
    comm: *mut Communicator,
    region: impl Fn(Side) -> Region,
    operation: impl FnOnce() -> c_int,
    request: R,
) -> c_int {
    // SAFETY: a live datatype.
    let id = |side| matches!(region(side), Region::One(buffer) if buffer.count == 1 && unsafe { mpi::redmpi_shim_is_int(buffer.datatype) != 0 });
    if !identity::asked() && (id(Side::Input) || id(Side::Result)) {
        return within(operation);
    }
    nonblocking(comm, region, operation, request)
}

// ---- persistent operations ----

/// What a persistent operation does again and again.
struct Persistent {
    outer: *mut Outer,
    host: *mut Request,
    input: Region,
    result: Region,
    comm: *mut Communicator,
}

fn persistent(
    comm: *mut Communicator,
    region: impl Fn(Side) -> Region,
    operation: impl FnOnce() -> c_int,
    request: R,
) -> c_int {
    if INSIDE.get() {
        return operation();
    }
    let made = within(operation);
    let wanted = runtime::get().config.collectives;
    if made != SUCCESS || !(wanted.input() || wanted.result()) || receive::protected(comm, 0).is_none() {
        return made;
    }
    let (input, result) = (region(Side::Input), region(Side::Result));
    input.retain();
    result.retain();
    // SAFETY: a live communicator, released in `persistent_free`; Open MPI's place for the request, filled by the host.
    let host = unsafe {
        mpi::redmpi_shim_comm_retain(comm);
        *request
    };
    let state = Box::into_raw(Box::new(Persistent { outer: std::ptr::null_mut(), host, input, result, comm }));
    let outer = request::new(comm, true, state.cast(), Some(persistent_free), None);
    // SAFETY: both just made.
    unsafe {
        (*state).outer = outer;
        (*outer).super_.req_start = Some(persistent_start);
        (*outer).super_.req_type = mpi::OMPI_REQUEST_COLL;
        *request = &raw mut (*outer).super_;
    }
    SUCCESS
}

unsafe extern "C" fn persistent_start(count_: usize, requests: *mut *mut Request) -> c_int {
    guard("MPI_Start of a collective operation", ERROR, || {
        for i in 0..count_ {
            // SAFETY: Open MPI passes `count_` requests; MPI_Startall groups them by their function and leaves gaps.
            let outer: *mut Outer = unsafe { *requests.add(i) }.cast();
            if outer.is_null() {
                continue;
            }
            // SAFETY: a persistent request made above, inactive.
            let (state, host) = unsafe {
                (*outer).super_.req_complete = std::ptr::null_mut();
                (*outer).super_.req_state = mpi::OMPI_REQUEST_ACTIVE;
                (*outer).super_.req_status.MPI_ERROR = 0;
                let state: *mut Persistent = (*outer).state.cast();
                (&*state, (*state).host)
            };
            let shadow = verified(state.comm);
            let region = |side| if side == Side::Input { state.input.clone() } else { state.result.clone() };
            let contributed = contribute(state.comm, &region, shadow.as_ref());
            if contributed != SUCCESS {
                return contributed;
            }
            // SAFETY: the host's own request and its own function.
            let started = within(|| unsafe {
                match (*host).req_start {
                    Some(start) => start(1, &mut { host }),
                    None => ERROR,
                }
            });
            if started != SUCCESS {
                return started;
            }
            let inner = match &shadow {
                Some(shadow) if runtime::get().config.collectives.result() && state.result.size() > 0 => {
                    receive::follow(shadow, state.comm, state.result.clone(), host, true)
                }
                _ => host,
            };
            let data = (&raw const *state).cast_mut();
            if request::is_complete(inner) || !request::on_completion(inner, persistent_complete, data.cast()) {
                persistent_done(data, inner);
            }
        }
        SUCCESS
    })
}

unsafe extern "C" fn persistent_complete(inner: *mut Request) -> c_int {
    guard("end of a persistent collective operation", 0, || {
        persistent_done(request::data(inner).cast(), inner);
        0
    })
}

fn persistent_done(state: *mut Persistent, inner: *mut Request) {
    // SAFETY: active, so the application cannot free it (MPI-4.0, 6.13).
    let outer = unsafe {
        (*(*state).outer).super_.req_status = (*inner).req_status;
        // The host's own request is started again; its state is what MPI_Wait would have left.
        (*(*state).host).req_state = mpi::OMPI_REQUEST_INACTIVE;
        if inner != (*state).host {
            request::retire(inner);
        }
        (*state).outer
    };
    request::complete(outer);
}

unsafe extern "C" fn persistent_free(request: *mut *mut Request) -> c_int {
    guard("MPI_Request_free", ERROR, || {
        // SAFETY: Open MPI passes an inactive request made in `persistent`.
        let mut state = unsafe {
            let outer = (*request).cast::<Outer>();
            *request = request::null();
            Box::from_raw((*outer).state.cast::<Persistent>())
        };
        state.input.release();
        state.result.release();
        request::bury(state.outer);
        // SAFETY: the host's request is inactive; the communicator was retained in `persistent`.
        unsafe {
            let freed = mpi::redmpi_shim_request_free(&mut state.host);
            mpi::redmpi_shim_comm_release(state.comm);
            freed
        }
    })
}

// ---- MPI_Reduce_local ----

unsafe extern "C" fn reduce_local(
    input: P,
    inout: M,
    count_: c_int,
    datatype: D,
    op: O,
    module: *mut Module,
) -> c_int {
    guard("coll_reduce_local", ERROR, || {
        // SAFETY: Open MPI passes the module that it found the function in, which is ours.
        let (function, host) = unsafe {
            let host = &(*module.cast::<Ours>()).host;
            (host.coll_reduce_local, host.coll_reduce_local_module)
        };
        let Some(function) = function else { return ERROR };
        // SAFETY: the communicator whose module Open MPI uses for this operation, which has none itself.
        let comm = unsafe { mpi::redmpi_shim_self() };
        let region = |side: Side| {
            let address = if side == Side::Input { input } else { inout.cast_const() };
            Region::One(Buffer { address: address.cast_mut(), count: usize::try_from(count_).unwrap_or(0), datatype })
        };
        // SAFETY: the host's own function, with what the application gave.
        blocking(comm, region, || unsafe { function(input, inout, count_, datatype, op, host) })
    })
}

macro_rules! operations {
    (@run blocking $comm:ident $region:ident $operation:ident) => { blocking($comm, $region, $operation) };
    (@run nonblocking $comm:ident $region:ident $operation:ident $request:ident) => {
        nonblocking($comm, $region, $operation, $request)
    };
    (@run agreement $comm:ident $region:ident $operation:ident $request:ident) => {
        agreement($comm, $region, $operation, $request)
    };
    (@run persistent $comm:ident $region:ident $operation:ident $info:ident $request:ident) => {
        persistent($comm, $region, $operation, $request)
    };
    ($($field:ident $module_field:ident ($($name:ident : $type:ty),*) ($($last:ident : $last_type:ty),*) $region:ident $how:ident;)*) => {
        $(
            unsafe extern "C" fn $field(
                $($name: $type,)* comm: *mut Communicator, $($last: $last_type,)* module: *mut Module,
            ) -> c_int {
                guard(stringify!($field), ERROR, || {
                    // SAFETY: Open MPI passes the module that it found the function in, which is ours.
                    let (function, host) = unsafe { ((*module.cast::<Ours>()).host.$field, (*module.cast::<Ours>()).host.$module_field) };
                    let Some(function) = function else { return ERROR };
                    let region = |side: Side| Group::of(comm).$region(side, $($name),*);
                    // SAFETY: the host's own function, with what the application gave.
                    let operation = || unsafe { function($($name,)* comm, $($last,)* host) };
                    operations!(@run $how comm region operation $($last)*)
                })
            }
        )*

        /// Puts our functions where the host has one.
        ///
        /// # Safety
        /// `module` is ours, and its `host` is filled.
        unsafe fn offer(module: *mut Ours) {
            // SAFETY: see above; nobody else uses the module yet.
            unsafe {
                $((*module).super_.$field = (*module).host.$field.is_some().then_some($field as _);)*
                (*module).super_.coll_reduce_local = (*module).host.coll_reduce_local.is_some().then_some(reduce_local as _);
            }
        }

        /// Calls `visit` with every module that the host's functions belong to.
        ///
        /// # Safety
        /// `module` is ours.
        unsafe fn each_host(module: *mut Ours, visit: impl Fn(*mut Module)) {
            $(
                // SAFETY: see above.
                let host = unsafe { (*module).host.$module_field };
                if !host.is_null() {
                    visit(host);
                }
            )*
            // SAFETY: as above.
            let host = unsafe { (*module).host.coll_reduce_local_module };
            if !host.is_null() {
                visit(host);
            }
        }
    };
}

operations! {
    coll_allgather coll_allgather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) () allgather blocking;
    coll_allgatherv coll_allgatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) () allgatherv blocking;
    coll_allreduce coll_allreduce_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) () allreduce blocking;
    coll_alltoall coll_alltoall_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) () alltoall blocking;
    coll_alltoallv coll_alltoallv_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) () alltoallv blocking;
    coll_alltoallw coll_alltoallw_module (sbuf: P, scounts: A, sdispls: A, stypes: W, rbuf: M, rcounts: A, rdispls: A, rtypes: W) () alltoallw blocking;
    coll_barrier coll_barrier_module () () barrier blocking;
    coll_bcast coll_bcast_module (buf: M, count: I, datatype: D, root: I) () bcast blocking;
    coll_exscan coll_exscan_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) () exscan blocking;
    coll_gather coll_gather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) () gather blocking;
    coll_gatherv coll_gatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D, root: I) () gatherv blocking;
    coll_reduce coll_reduce_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O, root: I) () reduce blocking;
    coll_reduce_scatter coll_reduce_scatter_module (sbuf: P, rbuf: M, rcounts: A, datatype: D, op: O) () reduce_scatter blocking;
    coll_reduce_scatter_block coll_reduce_scatter_block_module (sbuf: P, rbuf: M, rcount: I, datatype: D, op: O) () reduce_scatter_block blocking;
    coll_scan coll_scan_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) () allreduce blocking;
    coll_scatter coll_scatter_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) () scatter blocking;
    coll_scatterv coll_scatterv_module (sbuf: P, scounts: A, displs: A, stype: D, rbuf: M, rcount: I, rtype: D, root: I) () scatterv blocking;
    coll_iallgather coll_iallgather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (request: R) allgather nonblocking;
    coll_iallgatherv coll_iallgatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) (request: R) allgatherv nonblocking;
    coll_iallreduce coll_iallreduce_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (request: R) allreduce agreement;
    coll_ialltoall coll_ialltoall_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (request: R) alltoall nonblocking;
    coll_ialltoallv coll_ialltoallv_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) (request: R) alltoallv nonblocking;
    coll_ialltoallw coll_ialltoallw_module (sbuf: P, scounts: A, sdispls: A, stypes: W, rbuf: M, rcounts: A, rdispls: A, rtypes: W) (request: R) alltoallw nonblocking;
    coll_ibarrier coll_ibarrier_module () (request: R) barrier nonblocking;
    coll_ibcast coll_ibcast_module (buf: M, count: I, datatype: D, root: I) (request: R) bcast agreement;
    coll_iexscan coll_iexscan_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (request: R) exscan nonblocking;
    coll_igather coll_igather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (request: R) gather nonblocking;
    coll_igatherv coll_igatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D, root: I) (request: R) gatherv nonblocking;
    coll_ireduce coll_ireduce_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O, root: I) (request: R) reduce agreement;
    coll_ireduce_scatter coll_ireduce_scatter_module (sbuf: P, rbuf: M, rcounts: A, datatype: D, op: O) (request: R) reduce_scatter nonblocking;
    coll_ireduce_scatter_block coll_ireduce_scatter_block_module (sbuf: P, rbuf: M, rcount: I, datatype: D, op: O) (request: R) reduce_scatter_block nonblocking;
    coll_iscan coll_iscan_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (request: R) allreduce nonblocking;
    coll_iscatter coll_iscatter_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (request: R) scatter nonblocking;
    coll_iscatterv coll_iscatterv_module (sbuf: P, scounts: A, displs: A, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (request: R) scatterv nonblocking;
    coll_allgather_init coll_allgather_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (info: N, request: R) allgather persistent;
    coll_allgatherv_init coll_allgatherv_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) (info: N, request: R) allgatherv persistent;
    coll_allreduce_init coll_allreduce_init_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (info: N, request: R) allreduce persistent;
    coll_alltoall_init coll_alltoall_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (info: N, request: R) alltoall persistent;
    coll_alltoallv_init coll_alltoallv_init_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) (info: N, request: R) alltoallv persistent;
    coll_alltoallw_init coll_alltoallw_init_module (sbuf: P, scounts: A, sdispls: A, stypes: W, rbuf: M, rcounts: A, rdispls: A, rtypes: W) (info: N, request: R) alltoallw persistent;
    coll_barrier_init coll_barrier_init_module () (info: N, request: R) barrier persistent;
    coll_bcast_init coll_bcast_init_module (buf: M, count: I, datatype: D, root: I) (info: N, request: R) bcast persistent;
    coll_exscan_init coll_exscan_init_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (info: N, request: R) exscan persistent;
    coll_gather_init coll_gather_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (info: N, request: R) gather persistent;
    coll_gatherv_init coll_gatherv_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D, root: I) (info: N, request: R) gatherv persistent;
    coll_reduce_init coll_reduce_init_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O, root: I) (info: N, request: R) reduce persistent;
    coll_reduce_scatter_init coll_reduce_scatter_init_module (sbuf: P, rbuf: M, rcounts: A, datatype: D, op: O) (info: N, request: R) reduce_scatter persistent;
    coll_reduce_scatter_block_init coll_reduce_scatter_block_init_module (sbuf: P, rbuf: M, rcount: I, datatype: D, op: O) (info: N, request: R) reduce_scatter_block persistent;
    coll_scan_init coll_scan_init_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (info: N, request: R) allreduce persistent;
    coll_scatter_init coll_scatter_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (info: N, request: R) scatter persistent;
    coll_scatterv_init coll_scatterv_init_module (sbuf: P, scounts: A, displs: A, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (info: N, request: R) scatterv persistent;
    coll_neighbor_allgather coll_neighbor_allgather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) () neighbor_allgather blocking;
    coll_neighbor_allgatherv coll_neighbor_allgatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) () neighbor_allgatherv blocking;
    coll_neighbor_alltoall coll_neighbor_alltoall_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) () neighbor_alltoall blocking;
    coll_neighbor_alltoallv coll_neighbor_alltoallv_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) () neighbor_alltoallv blocking;
    coll_neighbor_alltoallw coll_neighbor_alltoallw_module (sbuf: P, scounts: A, sdispls: L, stypes: W, rbuf: M, rcounts: A, rdispls: L, rtypes: W) () neighbor_alltoallw blocking;
    coll_ineighbor_allgather coll_ineighbor_allgather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (request: R) neighbor_allgather nonblocking;
    coll_ineighbor_allgatherv coll_ineighbor_allgatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) (request: R) neighbor_allgatherv nonblocking;
    coll_ineighbor_alltoall coll_ineighbor_alltoall_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (request: R) neighbor_alltoall nonblocking;
    coll_ineighbor_alltoallv coll_ineighbor_alltoallv_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) (request: R) neighbor_alltoallv nonblocking;
    coll_ineighbor_alltoallw coll_ineighbor_alltoallw_module (sbuf: P, scounts: A, sdispls: L, stypes: W, rbuf: M, rcounts: A, rdispls: L, rtypes: W) (request: R) neighbor_alltoallw nonblocking;
    coll_neighbor_allgather_init coll_neighbor_allgather_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (info: N, request: R) neighbor_allgather persistent;
    coll_neighbor_allgatherv_init coll_neighbor_allgatherv_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) (info: N, request: R) neighbor_allgatherv persistent;
    coll_neighbor_alltoall_init coll_neighbor_alltoall_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (info: N, request: R) neighbor_alltoall persistent;
    coll_neighbor_alltoallv_init coll_neighbor_alltoallv_init_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) (info: N, request: R) neighbor_alltoallv persistent;
    coll_neighbor_alltoallw_init coll_neighbor_alltoallw_init_module (sbuf: P, scounts: A, sdispls: L, stypes: W, rbuf: M, rcounts: A, rdispls: L, rtypes: W) (info: N, request: R) neighbor_alltoallw persistent;
}

/// Our module for a communicator.
pub fn query(comm: *mut Communicator, priority: *mut c_int) -> *mut Module {
    if super::communicator::is_ours(comm) || priority.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a new object of our own class, and Open MPI's variable for our answer.
    unsafe {
        let module = mpi::redmpi_shim_coll_module_new();
        if module.is_null() {
            return std::ptr::null_mut();
        }
        (*module).super_.coll_module_enable = Some(enable);
        (*module).super_.coll_module_disable = Some(disable);
        *priority = PRIORITY;
        &raw mut (*module).super_
    }
}

unsafe extern "C" fn enable(module: *mut Module, comm: *mut Communicator) -> c_int {
    guard("coll module_enable", ERROR, || {
        let ours = module.cast::<Ours>();
        // SAFETY: Open MPI enables our module on its communicator, whose table is filled with the host's functions. Their
        // modules are retained, as Open MPI releases what it replaces.
        unsafe {
            (*ours).host = *mpi::redmpi_shim_comm_coll(comm);
            each_host(ours, |host| mpi::redmpi_shim_module_retain(host));
            offer(ours);
        }
        SUCCESS
    })
}

unsafe extern "C" fn disable(module: *mut Module, comm: *mut Communicator) -> c_int {
    guard("coll module_disable", ERROR, || {
        let ours = module.cast::<Ours>();
        // SAFETY: ours. Open MPI calls this once for every function it took from a module; what was retained in `enable`
        // is given up at the first call.
        unsafe {
            each_host(ours, |host| {
                if let Some(disable) = (*host).coll_module_disable {
                    disable(host, comm);
                }
                mpi::redmpi_shim_module_release(host);
            });
            (*ours).host = std::mem::zeroed();
        }
        SUCCESS
    })
}
