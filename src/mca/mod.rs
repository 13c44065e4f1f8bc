//! The shell: where Open MPI calls us, and where all `unsafe` code that deals with it lives.
//!
//! Read `docs/SAFETY.md` first: who owns a request, what a callback may do, which lock is held when.
#![allow(unsafe_code)]

pub mod channel;
pub mod clock;
pub mod collective;
pub mod communicator;
pub mod component;
pub mod descriptors;
pub mod dynamic;
pub mod files;
pub mod finalize;
pub mod got;
pub mod guard;
pub mod host;
pub mod identity;
pub mod message;
pub mod outcome;
pub mod output;
pub mod pml;
pub mod receive;
pub mod region;
pub mod request;
pub mod runtime;
pub mod send;
pub mod share;
pub mod sources;
pub mod stdio;
pub mod vars;
pub mod watch;
pub mod windows;
