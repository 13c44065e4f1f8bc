//! `mca_coll_redmpi.so`: the one switch, `--mca coll redmpi`. Open MPI queries coll components after it has selected
//! the PML and before it uses it: the moment at which redmpi steps in front. The work is in `libredmpi.so`.

use ompi_headers as mpi;
use std::os::raw::c_int;

extern "C" {
    fn redmpi_coll_register() -> c_int;
    fn redmpi_coll_open() -> c_int;
    fn redmpi_coll_init_query(progress_threads: bool, threads: bool) -> c_int;
    fn redmpi_coll_comm_query(
        comm: *mut mpi::ompi_communicator_t,
        priority: *mut c_int,
    ) -> *mut mpi::mca_coll_base_module_t;
}

#[cfg(ompi4)]
const INTERFACE: (i32, i32, i32) = (2, 0, 0);
#[cfg(ompi5)]
const INTERFACE: (i32, i32, i32) = (2, 4, 0);

/// What Open MPI's component loader looks for.
#[no_mangle]
#[allow(non_upper_case_globals)]
pub static mca_coll_redmpi_component: mpi::Component<mpi::mca_coll_base_component_t> =
    mpi::Component(std::cell::UnsafeCell::new(mpi::mca_coll_base_component_t {
        collm_version: mpi::component("coll", INTERFACE, Some(redmpi_coll_open), Some(redmpi_coll_register)),
        collm_data: mpi::mca_base_component_data_t { param_field: 0, reserved: [0; 32] },
        collm_init_query: Some(redmpi_coll_init_query),
        collm_comm_query: Some(redmpi_coll_comm_query),
    }));
