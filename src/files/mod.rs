//! Files of a replicated program, the part that knows nothing of Open MPI: where a follower keeps its private copies
//! ([`overlay`]), which bytes a process has written ([`extents`]), and what the replicas' bytes say together ([`vote`]).

pub mod extents;
pub mod overlay;
pub mod vote;
