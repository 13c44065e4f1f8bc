//! `mca_pml_redmpi.so`: so that `--mca pml redmpi` is a known name. Asked for, it hands the choice of the host PML
//! back to Open MPI and wakes coll/redmpi, which does the work; all of it is in `libredmpi.so`.

use ompi_headers as mpi;
use std::os::raw::c_int;

extern "C" {
    fn redmpi_pml_register() -> c_int;
    fn redmpi_pml_open() -> c_int;
    fn redmpi_pml_init(
        priority: *mut c_int,
        progress_threads: bool,
        threads: bool,
    ) -> *mut mpi::mca_pml_base_module_t;
}

#[cfg(ompi4)]
const INTERFACE: (i32, i32, i32) = (2, 0, 0);
#[cfg(ompi5)]
const INTERFACE: (i32, i32, i32) = (2, 1, 0);

/// What Open MPI's component loader looks for.
#[no_mangle]
#[allow(non_upper_case_globals)]
pub static mca_pml_redmpi_component: mpi::Component<mpi::mca_pml_base_component_t> =
    mpi::Component(std::cell::UnsafeCell::new(mpi::mca_pml_base_component_t {
        pmlm_version: mpi::component("pml", INTERFACE, Some(redmpi_pml_open), Some(redmpi_pml_register)),
        pmlm_data: mpi::mca_base_component_data_t { param_field: 0, reserved: [0; 32] },
        pmlm_init: Some(redmpi_pml_init),
        pmlm_finalize: None,
    }));
