//! The one place that prints, and the one that stops a job at its start.

use super::descriptors;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

/// Where this module writes: standard error as mpirun made it. What the application has there is compared with that of the
/// other replicas, which is nothing for what redmpi says itself.
static ERROR: AtomicI32 = AtomicI32::new(2);

/// From now on standard error is there.
pub fn elsewhere(number: RawFd) {
    ERROR.store(number, Ordering::Relaxed);
}

fn write(text: &str) {
    let _ = descriptors::write_all(ERROR.load(Ordering::Relaxed), text.as_bytes());
}

/// One line (or several) on stderr, in one write, so that lines of several processes do not mix.
pub fn say(text: &str) {
    let mut line = String::with_capacity(text.len() + 9);
    line.push_str("redmpi: ");
    line.push_str(text);
    line.push('\n');
    write(&line);
}

/// Text as it is, on stderr.
pub fn print(text: &str) {
    write(text);
}

/// Ends a job that is configured wrongly, with one text: all processes find the same error, so the first process
/// of each node speaks and the others wait to be ended by mpirun; should nobody end them, they speak too.
pub fn refuse(text: &str) -> ! {
    let local_rank = std::env::var("OMPI_COMM_WORLD_LOCAL_RANK").ok().and_then(|text| text.parse::<u32>().ok());
    let node_rank_known = local_rank.is_some();
    if node_rank_known && local_rank != Some(0) {
        std::thread::sleep(std::time::Duration::from_secs(10));
    }
    let bar = "-".repeat(76);
    print(&format!("{bar}\nredmpi cannot start this job ({}):\n\n  {text}\n{bar}\n", super::host::hostname()));
    // SAFETY: ends the process at once; nothing of MPI was used yet, and exit handlers of the application must not
    // run in a process that never started.
    unsafe { libc::_exit(64) }
}

/// The `log` facade on stderr, with the process's place in front; `pml_redmpi_verbose` sets the level.
pub struct Logger;

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::max_level()
    }
    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            let place = super::runtime::place();
            say(&format!("[{place}] {}", record.args()));
        }
    }
    fn flush(&self) {}
}
