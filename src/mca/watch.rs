//! Whether what this process waits for, inside Open MPI's own waiting, will ever come. `share::wait` watches its own
//! waiting; a receive that waits for a digest, or for its envelope, stands in MPI_Wait or MPI_Recv, so its age is looked at
//! now and then from Open MPI's progress.

use super::guard::guard;
use super::runtime::{self, lock};
use super::share::{self, Patience, Watch};
use super::{finalize, receive};
use crate::wire::CommId;
use ompi_headers as mpi;
use rustc_hash::FxHashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What is waited for: on a communicator, source, tag and index of a message, or the ordinal of a receive; and from whom.
type Label = (CommId, i32, i32, u64, u32);

#[derive(Default)]
struct Watches {
    last: Option<Instant>,
    by_label: FxHashMap<Label, Watch>,
    /// The job as a whole: a replica of this rank that has come to its end while this one hears nothing more.
    end: Watch,
    heard: u64,
}

static WATCHES: Mutex<Option<Watches>> = Mutex::new(None);
static CALLS: AtomicU32 = AtomicU32::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Calls of Open MPI's progress between two looks at the clock.
const CALLS_PER_LOOK: u32 = 2048;
/// Between two looks at what is under way.
const INTERVAL: Duration = Duration::from_millis(500);

/// Begins to watch.
pub fn start() {
    // SAFETY: a function that lives as long as the process; unregistered in `stop`.
    unsafe { mpi::opal_progress_register_lp(Some(progress)) };
    RUNNING.store(true, Ordering::Relaxed);
}

/// Stops watching.
pub fn stop() {
    if RUNNING.swap(false, Ordering::Relaxed) {
        // SAFETY: registered in `start`.
        unsafe { mpi::opal_progress_unregister(Some(progress)) };
    }
}

unsafe extern "C" fn progress() -> c_int {
    if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(CALLS_PER_LOOK) {
        guard("the watch", (), look);
    }
    0
}

/// Processes whose word about a message that has arrived here is missing.
pub fn overdue() -> Vec<u32> {
    let mut natives = Vec::new();
    for shadow in lock(&runtime::get().registry).all() {
        if let Ok(inner) = shadow.inner.try_lock() {
            natives.extend(receive::overdue(&shadow, &inner).into_iter().map(|(_, native)| native));
        }
    }
    natives
}

fn look() {
    if !share::open() {
        return;
    }
    let Ok(mut watches) = WATCHES.try_lock() else { return };
    let watches = watches.get_or_insert_default();
    let now = Instant::now();
    if watches.last.is_some_and(|last| now - last < INTERVAL) {
        return;
    }
    watches.last = Some(now);
    let runtime = runtime::get();
    let shadows = lock(&runtime.registry).all();
    let mut present = FxHashMap::default();
    for shadow in shadows {
        let Ok(inner) = shadow.inner.try_lock() else { continue };
        for (place, on) in receive::overdue(&shadow, &inner) {
            present.insert((shadow.id, place.0, place.1, place.2, on), (shadow.clone(), Patience::Ends));
        }
        if !runtime.leads() {
            for unsettled in inner.order.unsettled().iter().filter_map(|unsettled| unsettled.ordinal) {
                let label = (shadow.id, i32::MIN, i32::MIN, unsettled, runtime.leader());
                present.insert(label, (shadow.clone(), Patience::UntilFinalize));
            }
        }
    }
    watches.by_label.retain(|label, _| present.contains_key(label));
    for (label, (shadow, patience)) in present {
        let (_, source, tag, index, on) = label;
        let what = || match patience {
            Patience::UntilFinalize => {
                format!("the leader's decision about wildcard receive {index} on {}", shadow.name())
            }
            _ => format!(
                "its copy or digest of message {index} from rank {source}, tag {tag}, on {}, which has arrived here",
                shadow.name()
            ),
        };
        watches.by_label.entry(label).or_default().look(&what, on, patience);
    }
    let heard = receive::heard_so_far();
    if heard != std::mem::replace(&mut watches.heard, heard) {
        watches.end = Watch::default();
    }
    if let Some(twin) = runtime.twins().next() {
        if !finalize::has_begun() {
            let what = || String::from("the next message or digest, as all that this rank has to do is done there,");
            watches.end.look(&what, twin, Patience::AfterFinalize);
        }
    }
}
