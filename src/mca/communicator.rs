//! Shadow communicators: what redmpi keeps beside each communicator of the application.
//!
//! A shadow spans all spheres by formula: member `i`'s replica `k` is native rank `map.native_of(virtual(i), k)`, so it
//! needs no group of its own. Its identity is the same in every replica and never used again (`wire::CommId`). The
//! messages that belong to it travel on the native world, keyed by that identity.

use super::host::{self, Communicator};
use super::receive::Flight;
use super::runtime::{self, lock};
use super::{channel, output};
use crate::determinism::counters::Counters;
use crate::determinism::decisions::{Following, Leading};
use crate::determinism::order::Order;
use crate::wire::CommId;
use ompi_headers as mpi;
use std::collections::HashMap;
use std::ffi::{c_int, CStr};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What stands beside a communicator.
pub struct Shadow {
    /// Identity in all spheres.
    pub id: CommId,
    /// This process's rank in it.
    pub rank: i32,
    /// Ranks of the peers are those of the remote group.
    remote: bool,
    /// The communicator; the host keeps it alive while a request of its own is on it.
    comm: *mut Communicator,
    /// What changes.
    pub inner: Mutex<Inner>,
}

// SAFETY: the pointer is only read through while the communicator lives (see `peer`); the rest is behind a lock.
unsafe impl Send for Shadow {}
// SAFETY: as above.
unsafe impl Sync for Shadow {}

/// Source, tag and index of a message on one communicator.
pub type Place = (i32, i32, u64);

/// The changing part of a shadow.
#[derive(Default)]
pub struct Inner {
    /// Receives in the order of posting, with wildcards.
    pub order: Order,
    /// Messages sent, by destination and tag.
    pub sends: Counters,
    /// Messages whose comparison is not over.
    pub flights: HashMap<Place, Flight, BuildHasherDefault<Mix>>,
    /// Decisions of a leader that were sent.
    pub decisions: u64,
    /// Calls whose outcome depends on timing, on the leader.
    pub leading: Leading,
    /// The same on a follower.
    pub following: Following,
    /// Results of collectives compared so far, and contributions to them.
    locals: [u64; 2],
    /// Receives posted and not complete.
    pub outstanding: usize,
    /// The application has freed the communicator.
    pub freed: bool,
    /// Tag of a non-blocking collective at which older ones were last forgotten.
    forgotten: i32,
}

/// Tags of blocking collectives are above this, those of non-blocking ones below, each used once (coll_tags.h).
const USED_ONCE: i32 = -64;
/// Non-blocking collectives on one communicator that are remembered.
const REMEMBERED: i32 = 1 << 15;

impl Inner {
    /// The number of the next of a rank's own values; `None` where the tag is a message's.
    pub fn local(&mut self, tag: i32) -> Option<&mut u64> {
        match tag {
            super::receive::RESULT => Some(&mut self.locals[0]),
            super::receive::INPUT => Some(&mut self.locals[1]),
            _ => None,
        }
    }

    /// Non-blocking collectives take a fresh tag each: what was counted for old ones would pile up for ever.
    #[inline]
    pub fn tidy(&mut self, tag: i32) {
        if tag < USED_ONCE && self.forgotten.wrapping_sub(tag) > 2 * REMEMBERED {
            self.sends.forget(tag + REMEMBERED..=USED_ONCE);
            self.order.forget(tag + REMEMBERED..=USED_ONCE);
            self.forgotten = tag;
        } else if tag < USED_ONCE && tag > self.forgotten {
            self.forgotten = tag; // the host's tags have begun again
        }
    }
}

/// A hash for keys of small numbers: multiply and rotate; nobody attacks these tables.
#[derive(Default, Clone, Copy)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_i32(&mut self, value: i32) {
        self.write_u64(value as u32 as u64);
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

impl Shadow {
    /// Virtual rank of a peer; the communicator is alive, as the application is using it or a request is on it.
    pub fn peer(&self, rank: i32) -> u32 {
        // SAFETY: alive, see above; the shim checks the rank.
        let native = unsafe { mpi::redmpi_shim_comm_member(self.comm, c_int::from(self.remote), rank) };
        runtime::get()
            .map
            .virtual_of(u32::try_from(native).expect("a protected communicator's members are of this job"))
    }

    /// The communicator's name for people.
    pub fn name(&self) -> String {
        // SAFETY: alive, see `peer`; Open MPI keeps the name NUL-terminated.
        let name = unsafe { CStr::from_ptr(mpi::redmpi_shim_comm_name(self.comm)) }.to_string_lossy();
        if name.is_empty() {
            format!("communicator {:08x}.{}", self.id.members as u32, self.id.incarnation)
        } else {
            name.into_owned()
        }
    }
}

/// All shadows of a process.
#[derive(Default)]
pub struct Registry {
    /// By the host's context id, for the application's calls.
    by_context: Vec<Option<Arc<Shadow>>>,
    /// By identity, for what other spheres say.
    by_id: HashMap<CommId, Arc<Shadow>>,
    /// Communicators made so far of exactly these members.
    incarnations: HashMap<u64, u32>,
    /// What other spheres have said of communicators that do not exist here yet.
    early: HashMap<CommId, Vec<(u32, Vec<u8>)>>,
}

/// Where a control message about a communicator belongs.
pub enum Whereabouts {
    /// Here it is.
    Here(Arc<Shadow>),
    /// It existed and is gone.
    Gone,
    /// It will exist; the message was kept.
    Kept,
}

impl Registry {
    /// Finds a communicator by identity; keeps the message where it does not exist yet.
    pub fn find(&mut self, id: CommId, from: u32, bytes: &[u8]) -> Whereabouts {
        if let Some(shadow) = self.by_id.get(&id) {
            return Whereabouts::Here(shadow.clone());
        }
        if self.incarnations.get(&id.members).is_some_and(|next| id.incarnation < *next) {
            return Whereabouts::Gone;
        }
        self.early.entry(id).or_default().push((from, bytes.to_vec()));
        Whereabouts::Kept
    }

    /// All communicators.
    pub fn all(&self) -> Vec<Arc<Shadow>> {
        self.by_id.values().cloned().collect()
    }

    /// Forgets a communicator that the application has freed and that has no receive left.
    pub fn forget(&mut self, id: CommId) {
        self.by_id.remove(&id);
        super::share::forget(id);
    }
}

fn context(comm: *mut Communicator) -> usize {
    // SAFETY: a live communicator.
    unsafe { mpi::redmpi_shim_comm_context(comm) as usize }
}

/// The shadow of a communicator; `None` where it is not protected.
#[inline]
pub fn shadow(comm: *mut Communicator) -> Option<Arc<Shadow>> {
    lock(&runtime::get().registry).by_context.get(context(comm))?.clone()
}

fn members(comm: *mut Communicator, remote: bool) -> Option<Vec<u32>> {
    let runtime = runtime::get();
    // SAFETY: a live communicator.
    let size = unsafe {
        if remote {
            mpi::redmpi_shim_comm_remote_size(comm)
        } else {
            mpi::redmpi_shim_comm_size(comm)
        }
    };
    (0..size)
        .map(|rank| {
            // SAFETY: as above.
            let native = unsafe { mpi::redmpi_shim_comm_member(comm, c_int::from(remote), rank) };
            u32::try_from(native).ok().map(|native| runtime.map.virtual_of(native))
        })
        .collect()
}

fn identity(groups: &[Vec<u32>]) -> u64 {
    let mut hasher = Mix::default();
    for group in groups {
        hasher.write_u64(0xA000_0000_0000_0000 | group.len() as u64);
        for member in group {
            hasher.write_u32(*member);
        }
    }
    hasher.finish()
}

static FOREIGN: AtomicBool = AtomicBool::new(false);

/// A communicator has come into being and its PML part exists.
pub fn added(comm: *mut Communicator) {
    let runtime = runtime::get();
    // SAFETY: a live communicator.
    let (inter, rank) = unsafe { (mpi::redmpi_shim_comm_is_inter(comm) != 0, mpi::redmpi_shim_comm_rank(comm)) };
    if super::identity::making_window() {
        return;
    }
    let groups = match (members(comm, false), if inter { members(comm, true) } else { Some(Vec::new()) }) {
        (Some(local), Some(remote)) => {
            let mut groups = vec![local];
            if inter {
                groups.push(remote);
                // Both sides have to see the same two groups in the same order.
                groups.sort();
            }
            groups
        }
        _ => {
            if !FOREIGN.swap(true, Ordering::Relaxed) && runtime.replica == 0 {
                output::say(&format!(
                    "warning: rank {} uses a communicator with processes of another job (dynamic processes); \
                     messages on it are NOT verified",
                    runtime.virtual_rank
                ));
            }
            return;
        }
    };
    let identity = identity(&groups);
    let early = {
        let mut registry = lock(&runtime.registry);
        let next = registry.incarnations.entry(identity).or_default();
        let id = CommId { members: identity, incarnation: *next };
        *next += 1;
        let shadow = Arc::new(Shadow { id, rank, remote: inter, comm, inner: Mutex::default() });
        let context = context(comm);
        if registry.by_context.len() <= context {
            registry.by_context.resize(context + 1, None);
        }
        registry.by_context[context] = Some(shadow.clone());
        registry.by_id.insert(id, shadow);
        registry.early.remove(&id)
    };
    for (from, bytes) in early.into_iter().flatten() {
        super::receive::control(from, &bytes);
    }
}

/// The application has freed a communicator.
pub fn removed(comm: *mut Communicator) {
    let mut registry = lock(&runtime::get().registry);
    let Some(shadow) = registry.by_context.get_mut(context(comm)).and_then(Option::take) else { return };
    let mut inner = lock(&shadow.inner);
    inner.freed = true;
    if inner.outstanding == 0 {
        registry.forget(shadow.id);
    }
}

/// Puts this process's sphere into MPI_COMM_WORLD; nothing above the PML notices.
pub fn split_world() -> c_int {
    let runtime = runtime::get();
    let members: Vec<u32> =
        (0..runtime.virtual_size).map(|rank| runtime.map.native_of(rank, runtime.replica)).collect();
    // SAFETY: in pml_add_comm of MPI_COMM_WORLD, before anybody has looked at its group.
    let result = unsafe {
        mpi::redmpi_shim_world_split(members.as_ptr(), members.len() as c_int, runtime.virtual_rank as c_int)
    };
    if result == host::SUCCESS {
        check_world(runtime.virtual_size);
    }
    result
}

/// The layout of what we have just written has to be the one that Open MPI reads.
fn check_world(size: u32) {
    // SAFETY: Open MPI's own communicator.
    let (name, found) = unsafe {
        let world = mpi::redmpi_shim_world();
        (CStr::from_ptr((*world).c_name.as_ptr()).to_string_lossy().into_owned(), mpi::redmpi_shim_comm_size(world))
    };
    if name != "MPI_COMM_WORLD" || found as u32 != size {
        output::refuse(
            "the communicators of this Open MPI are laid out otherwise than in the headers redmpi was built with",
        );
    }
}

/// Whether a communicator is MPI_COMM_WORLD.
pub fn is_world(comm: *mut Communicator) -> bool {
    // SAFETY: an address.
    comm == unsafe { mpi::redmpi_shim_world() }
}

/// Whether a communicator is redmpi's own.
pub fn is_ours(comm: *mut Communicator) -> bool {
    channel::is_native_world(comm)
}
