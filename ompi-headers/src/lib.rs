//! Open MPI as its installed headers declare it, and the C shim beside them.
//!
//! Nothing here is safe to use as it is; `redmpi::mca` is the safe face. Made anew by bindgen for every build,
//! so that a field that moves in another release of Open MPI moves here too.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, missing_docs, unnecessary_transmutes)]
#![allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// A C string in an array of fixed size, as component structs want it; too long a text is cut.
pub const fn fixed<const N: usize>(text: &str) -> [std::os::raw::c_char; N] {
    let mut array = [0; N];
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() && i + 1 < N {
        array[i] = bytes[i] as std::os::raw::c_char;
        i += 1;
    }
    array
}

/// A component struct that Open MPI finds by its symbol and may write to.
#[repr(transparent)]
pub struct Component<T>(pub std::cell::UnsafeCell<T>);

// SAFETY: Rust never reads or writes the struct after its constant initialisation; Open MPI does, single-threaded,
// while it opens and closes frameworks.
unsafe impl<T> Sync for Component<T> {}

/// The part that all components have. `interface` is the version of the framework's interface.
pub const fn component(
    framework: &str,
    interface: (i32, i32, i32),
    open: mca_base_open_component_1_0_0_fn_t,
    register: mca_base_register_component_params_2_0_0_fn_t,
) -> mca_base_component_t {
    mca_base_component_t {
        mca_major_version: 2,
        mca_minor_version: 1,
        mca_release_version: 0,
        mca_project_name: fixed("ompi"),
        mca_project_major_version: OMPI_MAJOR_VERSION as i32,
        mca_project_minor_version: OMPI_MINOR_VERSION as i32,
        mca_project_release_version: OMPI_RELEASE_VERSION as i32,
        mca_type_name: fixed(framework),
        mca_type_major_version: interface.0,
        mca_type_minor_version: interface.1,
        mca_type_release_version: interface.2,
        mca_component_name: fixed("redmpi"),
        mca_component_major_version: 0,
        mca_component_minor_version: 1,
        mca_component_release_version: 0,
        mca_open_component: open,
        mca_close_component: None,
        mca_query_component: None,
        mca_register_component_params: register,
        mca_component_flags: 0,
        reserved: [0; 28],
    }
}
