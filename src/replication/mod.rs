//! Which native process stands for which virtual rank, and in which sphere (paper, section III A).
//!
//! Pure: nothing here knows Open MPI.

pub mod rank_map;

pub use rank_map::{RankMap, RankMapError};
