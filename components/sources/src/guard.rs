//! No panic crosses into C.

use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs a body that calls nothing of the application's and nothing that a thread can be cancelled in; if it panics the
/// caller goes on with `otherwise`, which is what the system itself would do.
pub fn quiet<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}
