//! Open MPI as its installed headers declare it, and the C shim beside them.
//!
//! Nothing here is safe to use as it is; `redmpi::mca` is the safe face. Made anew by bindgen for every build,
//! so that a field that moves in another release of Open MPI moves here too.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, missing_docs, unnecessary_transmutes)]
#![allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
