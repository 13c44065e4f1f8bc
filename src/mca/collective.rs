//! The collective operations of a communicator: redmpi's module stands in front of the host's, counts, and passes on.
//!
//! Open MPI enables modules in the order of their priority; ours has the highest, so it finds in the communicator what
//! would have been called without it (as Open MPI's own coll/monitoring does). The host's algorithms run in each sphere;
//! the messages inside them pass through the interposed PML, where they are verified (paper, section III C, figure 8).

use super::guard::guard;
use super::host::{Communicator, Datatype, Request, ERROR, SUCCESS};
use super::runtime::{self, count};
use ompi_headers as mpi;
use std::cell::Cell;
use std::ffi::{c_int, c_void};

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

/// Counts an operation that the application calls.
fn counted(operation: impl FnOnce() -> c_int) -> c_int {
    if INSIDE.get() {
        return operation();
    }
    count(&runtime::get().counters.collectives_called);
    INSIDE.set(true);
    let result = operation();
    INSIDE.set(false);
    result
}

macro_rules! operations {
    ($($field:ident $module_field:ident ($($name:ident : $type:ty),*) ($($last:ident : $last_type:ty),*);)*) => {
        $(
            unsafe extern "C" fn $field(
                $($name: $type,)* comm: *mut Communicator, $($last: $last_type,)* module: *mut Module,
            ) -> c_int {
                guard(stringify!($field), ERROR, || {
                    // SAFETY: Open MPI passes the module that it found the function in, which is ours.
                    let (function, host) = unsafe { ((*module.cast::<Ours>()).host.$field, (*module.cast::<Ours>()).host.$module_field) };
                    let Some(function) = function else { return ERROR };
                    // SAFETY: the host's own function, with what the application gave.
                    counted(|| unsafe { function($($name,)* comm, $($last,)* host) })
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
        }
    };
}

operations! {
    coll_allgather coll_allgather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) ();
    coll_allgatherv coll_allgatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) ();
    coll_allreduce coll_allreduce_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) ();
    coll_alltoall coll_alltoall_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) ();
    coll_alltoallv coll_alltoallv_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) ();
    coll_alltoallw coll_alltoallw_module (sbuf: P, scounts: A, sdispls: A, stypes: W, rbuf: M, rcounts: A, rdispls: A, rtypes: W) ();
    coll_barrier coll_barrier_module () ();
    coll_bcast coll_bcast_module (buf: M, count: I, datatype: D, root: I) ();
    coll_exscan coll_exscan_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) ();
    coll_gather coll_gather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) ();
    coll_gatherv coll_gatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D, root: I) ();
    coll_reduce coll_reduce_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O, root: I) ();
    coll_reduce_scatter coll_reduce_scatter_module (sbuf: P, rbuf: M, rcounts: A, datatype: D, op: O) ();
    coll_reduce_scatter_block coll_reduce_scatter_block_module (sbuf: P, rbuf: M, rcount: I, datatype: D, op: O) ();
    coll_scan coll_scan_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) ();
    coll_scatter coll_scatter_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) ();
    coll_scatterv coll_scatterv_module (sbuf: P, scounts: A, displs: A, stype: D, rbuf: M, rcount: I, rtype: D, root: I) ();
    coll_iallgather coll_iallgather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (request: R);
    coll_iallgatherv coll_iallgatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) (request: R);
    coll_iallreduce coll_iallreduce_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (request: R);
    coll_ialltoall coll_ialltoall_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (request: R);
    coll_ialltoallv coll_ialltoallv_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) (request: R);
    coll_ialltoallw coll_ialltoallw_module (sbuf: P, scounts: A, sdispls: A, stypes: W, rbuf: M, rcounts: A, rdispls: A, rtypes: W) (request: R);
    coll_ibarrier coll_ibarrier_module () (request: R);
    coll_ibcast coll_ibcast_module (buf: M, count: I, datatype: D, root: I) (request: R);
    coll_iexscan coll_iexscan_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (request: R);
    coll_igather coll_igather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (request: R);
    coll_igatherv coll_igatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D, root: I) (request: R);
    coll_ireduce coll_ireduce_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O, root: I) (request: R);
    coll_ireduce_scatter coll_ireduce_scatter_module (sbuf: P, rbuf: M, rcounts: A, datatype: D, op: O) (request: R);
    coll_ireduce_scatter_block coll_ireduce_scatter_block_module (sbuf: P, rbuf: M, rcount: I, datatype: D, op: O) (request: R);
    coll_iscan coll_iscan_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (request: R);
    coll_iscatter coll_iscatter_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (request: R);
    coll_iscatterv coll_iscatterv_module (sbuf: P, scounts: A, displs: A, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (request: R);
    coll_allgather_init coll_allgather_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (info: N, request: R);
    coll_allgatherv_init coll_allgatherv_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) (info: N, request: R);
    coll_allreduce_init coll_allreduce_init_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (info: N, request: R);
    coll_alltoall_init coll_alltoall_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (info: N, request: R);
    coll_alltoallv_init coll_alltoallv_init_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) (info: N, request: R);
    coll_alltoallw_init coll_alltoallw_init_module (sbuf: P, scounts: A, sdispls: A, stypes: W, rbuf: M, rcounts: A, rdispls: A, rtypes: W) (info: N, request: R);
    coll_barrier_init coll_barrier_init_module () (info: N, request: R);
    coll_bcast_init coll_bcast_init_module (buf: M, count: I, datatype: D, root: I) (info: N, request: R);
    coll_exscan_init coll_exscan_init_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (info: N, request: R);
    coll_gather_init coll_gather_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (info: N, request: R);
    coll_gatherv_init coll_gatherv_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D, root: I) (info: N, request: R);
    coll_reduce_init coll_reduce_init_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O, root: I) (info: N, request: R);
    coll_reduce_scatter_init coll_reduce_scatter_init_module (sbuf: P, rbuf: M, rcounts: A, datatype: D, op: O) (info: N, request: R);
    coll_reduce_scatter_block_init coll_reduce_scatter_block_init_module (sbuf: P, rbuf: M, rcount: I, datatype: D, op: O) (info: N, request: R);
    coll_scan_init coll_scan_init_module (sbuf: P, rbuf: M, count: I, datatype: D, op: O) (info: N, request: R);
    coll_scatter_init coll_scatter_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (info: N, request: R);
    coll_scatterv_init coll_scatterv_init_module (sbuf: P, scounts: A, displs: A, stype: D, rbuf: M, rcount: I, rtype: D, root: I) (info: N, request: R);
    coll_neighbor_allgather coll_neighbor_allgather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) ();
    coll_neighbor_allgatherv coll_neighbor_allgatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) ();
    coll_neighbor_alltoall coll_neighbor_alltoall_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) ();
    coll_neighbor_alltoallv coll_neighbor_alltoallv_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) ();
    coll_neighbor_alltoallw coll_neighbor_alltoallw_module (sbuf: P, scounts: A, sdispls: L, stypes: W, rbuf: M, rcounts: A, rdispls: L, rtypes: W) ();
    coll_ineighbor_allgather coll_ineighbor_allgather_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (request: R);
    coll_ineighbor_allgatherv coll_ineighbor_allgatherv_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) (request: R);
    coll_ineighbor_alltoall coll_ineighbor_alltoall_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (request: R);
    coll_ineighbor_alltoallv coll_ineighbor_alltoallv_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) (request: R);
    coll_ineighbor_alltoallw coll_ineighbor_alltoallw_module (sbuf: P, scounts: A, sdispls: L, stypes: W, rbuf: M, rcounts: A, rdispls: L, rtypes: W) (request: R);
    coll_neighbor_allgather_init coll_neighbor_allgather_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (info: N, request: R);
    coll_neighbor_allgatherv_init coll_neighbor_allgatherv_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcounts: A, displs: A, rtype: D) (info: N, request: R);
    coll_neighbor_alltoall_init coll_neighbor_alltoall_init_module (sbuf: P, scount: I, stype: D, rbuf: M, rcount: I, rtype: D) (info: N, request: R);
    coll_neighbor_alltoallv_init coll_neighbor_alltoallv_init_module (sbuf: P, scounts: A, sdispls: A, stype: D, rbuf: M, rcounts: A, rdispls: A, rtype: D) (info: N, request: R);
    coll_neighbor_alltoallw_init coll_neighbor_alltoallw_init_module (sbuf: P, scounts: A, sdispls: L, stypes: W, rbuf: M, rcounts: A, rdispls: L, rtypes: W) (info: N, request: R);
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
