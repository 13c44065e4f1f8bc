//! What could differ between replicas and is therefore decided by the leader (paper, section III C).

pub mod counters;
pub mod decisions;
pub mod order;
pub mod ranges;
