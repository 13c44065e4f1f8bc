//! The guard around every entry point from C: a panic ends here, the module is poisoned, and from then on redmpi
//! abstains. A voter that fails must never count as agreement, so the process does not go on: it says what
//! happened and the job is aborted (an unprotected process among protected ones would make the others wait).

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

static POISONED: AtomicBool = AtomicBool::new(false);

/// Whether a panic was caught in this process.
pub fn poisoned() -> bool {
    POISONED.load(Ordering::Relaxed)
}

/// Runs an entry point's body; `failed` is what C gets if it panics or the process is poisoned already.
#[inline]
pub fn guard<T>(place: &'static str, failed: T, body: impl FnOnce() -> T) -> T {
    if poisoned() {
        return failed;
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(cause) => {
            poison(place, &cause);
            failed
        }
    }
}

#[cold]
fn poison(place: &'static str, cause: &Box<dyn std::any::Any + Send>) {
    POISONED.store(true, Ordering::Relaxed);
    let text = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("unknown cause");
    // Not through anything that could panic again.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        super::finalize::abort(&format!(
            "internal error in {place}: {text}. This process no longer votes; the job is ended. Please report this."
        ));
    }));
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_body_without_panic_passes() {
        assert_eq!(super::guard("test", -1, || 5), 5);
    }
}
