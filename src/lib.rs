//! redmpi: replication with voting for unmodified MPI programs, inside Open MPI.
//!
//! The crate has a pure core, which knows nothing of Open MPI and is tested without it (`protocol`, `digest`,
//! `replication`, `determinism`, `files`, `inject`, `report`, `stdio`), and a shell, `mca`, which is where Open MPI calls us and
//! where all `unsafe` code lives. `docs/architecture.md` has the picture.
#![deny(unsafe_code)]

pub mod determinism;
pub mod digest;
pub mod files;
pub mod inject;
mod mca;
pub mod protocol;
pub mod replication;
pub mod report;
pub mod stdio;
pub mod wire;

pub use mca::descriptors;
