//! A page that the programs of one native rank share (a wrapper script, the interpreter it starts, …): how many there
//! were, how far their clock is, which process ids they were told. It is a file in the job's session folder, which Open
//! MPI removes at the end of the job; processes of other native ranks never touch it.

use crate::job::{Epoch, Job};
use std::ffi::{c_int, CString};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering};

/// Programs whose process ids are known; those after them are told their own.
const PROGRAMS: usize = 256;

/// The page; all zero at first.
#[repr(C)]
pub struct Page {
    /// Programs that were started.
    programs: AtomicU32,
    /// MPI_Init was called: clocks are shared otherwise, and programs that start now have their own.
    taken: AtomicU32,
    /// How far the clock before MPI_Init has come, ns.
    pub ticks: AtomicI64,
    pids: [Pid; PROGRAMS],
}

/// A process id as the system gave it, and as the program was told.
#[repr(C)]
struct Pid {
    real: AtomicI32,
    told: AtomicI32,
}

impl Page {
    /// The page of this native rank.
    pub fn open(job: &Job) -> Option<&'static Page> {
        let path = CString::new(format!("{}/redmpi-{}-{}", job.folder, job.name, job.native)).ok()?;
        let length = size_of::<Page>();
        // SAFETY: system calls on a descriptor of our own; the mapping is never unmapped. The file is at least as long
        // as the page before anybody maps it, and all of the page's fields are atomic integers, for which any bytes
        // are valid values.
        unsafe {
            let descriptor =
                libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC, 0o600 as c_int);
            if descriptor < 0 {
                return None;
            }
            let mut page = libc::MAP_FAILED;
            if libc::ftruncate(descriptor, length as libc::off_t) == 0 {
                let rights = libc::PROT_READ | libc::PROT_WRITE;
                page = libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, descriptor, 0);
            }
            libc::close(descriptor);
            (page != libc::MAP_FAILED).then(|| &*page.cast::<Page>())
        }
    }

    /// Counts a program; the first is 0.
    pub fn enter(&self) -> u32 {
        self.programs.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether MPI_Init was called.
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) != 0
    }

    /// MPI_Init is called.
    pub fn take(&self) {
        self.taken.store(1, Ordering::Relaxed);
    }

    /// What the process with this id was told, if a program ran in it before (`exec` keeps the process).
    pub fn told(&self, real: i32) -> Option<i32> {
        self.find(|pid| pid.real.load(Ordering::Relaxed) == real).map(|pid| pid.told.load(Ordering::Relaxed))
    }

    /// The process that was told this id.
    pub fn real(&self, told: i32) -> Option<i32> {
        self.find(|pid| pid.told.load(Ordering::Relaxed) == told).map(|pid| pid.real.load(Ordering::Relaxed))
    }

    /// Notes what a process is told. Says whether there was room.
    pub fn note(&self, program: u32, real: i32, told: i32) -> bool {
        let Some(pid) = self.pids.get(program as usize) else { return false };
        pid.told.store(told, Ordering::Relaxed);
        pid.real.store(real, Ordering::Relaxed);
        true
    }

    /// The latest of them, for the system uses its numbers again.
    fn find(&self, is_it: impl Fn(&Pid) -> bool) -> Option<&Pid> {
        let count = (self.programs.load(Ordering::Relaxed) as usize).min(PROGRAMS);
        self.pids[..count].iter().rev().find(|pid| is_it(pid) && pid.real.load(Ordering::Relaxed) != 0)
    }
}

/// The epoch that the processes of a job on one machine agree on: the first to come leaves it in the session folder.
pub fn agree_on_epoch(job: &Job, now: Epoch) -> Option<Epoch> {
    let path = format!("{}/redmpi-{}-epoch", job.folder, job.name);
    let mine = format!("{path}-{}", std::process::id());
    // A link appears whole, or is there already.
    std::fs::write(&mine, now.text()).ok()?;
    let _ = std::fs::hard_link(&mine, &path);
    let _ = std::fs::remove_file(&mine);
    Epoch::parse(&std::fs::read_to_string(&path).ok()?)
}
