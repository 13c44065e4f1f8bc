//! The application's calls, turned to us where they leave it (`redmpi_sources::got` does the work).

pub use redmpi_sources::got::{renew, Replacement};

/// Turns the application's calls to us, and those of libraries that are loaded later.
pub fn replace(replacement: &'static Replacement) {
    if !redmpi_sources::got::replace(replacement) {
        super::output::say(
            "warning: a call of the application cannot be followed (mprotect failed); replicas may differ",
        );
    }
}
