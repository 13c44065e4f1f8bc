//! The one place that registers MCA variables, and that turns them into a checked [`Config`].
//!
//! They are `pml_redmpi_*` and, as synonyms, `coll_redmpi_*`: the switch is one of the two names, and nobody should
//! have to remember which. Open MPI itself falls back to the default where a value is not valid, and ignores names it
//! does not know; for a program that is to be protected both would be silent failures, so both are checked here.

use crate::digest::Algorithm;
use crate::inject;
use ompi_headers as mpi;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How messages are verified (paper, section III B).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// One copy and a digest from the ring neighbour.
    MsgPlusHash,
    /// A copy from every replica of the sender.
    AllToAll,
}

impl Protocol {
    /// The name in the variable and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::MsgPlusHash => "msgplushash",
            Protocol::AllToAll => "alltoall",
        }
    }
}

/// How two copies are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// By digest.
    Digest(Algorithm),
    /// Byte by byte; only All-to-all has whole copies.
    Memcmp,
}

impl Comparison {
    /// The name in the variable and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Comparison::Digest(algorithm) => algorithm.name(),
            Comparison::Memcmp => "memcmp",
        }
    }
    /// The digest algorithm to compute with.
    pub fn algorithm(self) -> Algorithm {
        match self {
            Comparison::Digest(algorithm) => algorithm,
            Comparison::Memcmp => Algorithm::Crc32c,
        }
    }
}

/// Which clocks give all replicas the leader's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clocks {
    /// Every process has its own.
    None,
    /// MPI_Wtime and MPI_Wtick.
    Mpi,
    /// Those, and the C library's.
    All,
}

/// Who writes a program's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// The leader; the others write private copies.
    Leader,
    /// As the leader alone, and what the replicas have written is compared when a file is closed.
    Verify,
    /// Every replica.
    All,
}

/// How collective operations are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collectives {
    /// Not at all.
    None,
    /// What every rank gets is compared and corrected after the operation.
    Result,
    /// What every rank contributes is compared and corrected before the operation.
    Input,
    /// Both.
    Both,
    /// Every message inside the operation (as in the paper).
    PointToPoint,
}

impl Collectives {
    /// Whether contributions are compared.
    pub fn input(self) -> bool {
        matches!(self, Collectives::Input | Collectives::Both)
    }
    /// Whether results are compared.
    pub fn result(self) -> bool {
        matches!(self, Collectives::Result | Collectives::Both)
    }
}

/// Whose standard output and error are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stdio {
    /// What the majority of the replicas of a rank wrote.
    Vote,
    /// The leader's.
    Leader,
    /// Everyone's, as it is.
    All,
    /// Everyone's, with the place before each line.
    Tag,
}

/// What is done about one-sided communication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Windows {
    /// What it moves is compared where the standard says it has arrived; outcomes that depend on timing are the leader's.
    Verify,
    /// It works in each sphere; that it is not verified is said once.
    Warn,
    /// The first window ends the job.
    Abort,
}

/// Everything a user can set, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Replication degree r.
    pub degree: u32,
    /// Verification protocol.
    pub protocol: Protocol,
    /// How copies are compared.
    pub comparison: Comparison,
    /// File of the rank map, instead of the formula.
    pub rank_map: Option<PathBuf>,
    /// Whether replicas are kept on different nodes where the formula would not.
    pub by_node: bool,
    /// Whose standard output and error are shown.
    pub stdio: Stdio,
    /// How long the leader's text waits for that of the other replicas.
    pub stdio_delay: Duration,
    /// File for the JSON report.
    pub report: Option<PathBuf>,
    /// Whether a job whose corruption was detected but not corrected ends with a non-zero status.
    pub exit_on_detection: bool,
    /// Which clocks give all replicas the same value.
    pub clocks: Clocks,
    /// Whether random numbers of the system are the same in all replicas.
    pub same_random: bool,
    /// Whether process ids are.
    pub same_pid: bool,
    /// Whether the name of the machine is.
    pub same_host: bool,
    /// How long a process waits for another one before it ends the job; zero: for ever.
    pub patience: Duration,
    /// Who writes files.
    pub files: Files,
    /// How collective operations are verified.
    pub collectives: Collectives,
    /// What is done about one-sided communication.
    pub windows: Windows,
    /// Fault injection.
    pub inject: inject::Config,
}

/// A variable's storage, written by Open MPI.
#[repr(transparent)]
struct Cell<T>(UnsafeCell<T>);

impl<T> Cell<T> {
    const fn new(value: T) -> Self {
        Cell(UnsafeCell::new(value))
    }
    fn get(&self) -> *mut T {
        self.0.get()
    }
}

// SAFETY: Open MPI writes the cells while it registers variables, single-threaded; we read them once, later, in
// coll's init_query.
unsafe impl<T> Sync for Cell<T> {}

/// All variables' storage.
struct Storage {
    degree: Cell<c_int>,
    protocol: Cell<c_int>,
    digest: Cell<c_int>,
    rank_map: Cell<*mut c_char>,
    placement: Cell<c_int>,
    stdio: Cell<c_int>,
    stdio_delay: Cell<u64>,
    report: Cell<*mut c_char>,
    exit_on_detection: Cell<bool>,
    same_clock: Cell<c_int>,
    same_random: Cell<bool>,
    same_pid: Cell<bool>,
    same_host: Cell<bool>,
    patience: Cell<u64>,
    files: Cell<c_int>,
    verbose: Cell<c_int>,
    inject_rate: Cell<u64>,
    inject_seed: Cell<u64>,
    inject_replicas: Cell<*mut c_char>,
    inject_ranks: Cell<*mut c_char>,
    inject_count: Cell<u64>,
    inject_where: Cell<*mut c_char>,
    inject_after: Cell<u64>,
    verify: Cell<c_int>,
    windows: Cell<c_int>,
}

static STORAGE: Storage = Storage {
    degree: Cell::new(1),
    protocol: Cell::new(0),
    digest: Cell::new(0),
    rank_map: Cell::new(std::ptr::null_mut()),
    placement: Cell::new(0),
    stdio: Cell::new(0),
    stdio_delay: Cell::new(1000),
    report: Cell::new(std::ptr::null_mut()),
    exit_on_detection: Cell::new(true),
    same_clock: Cell::new(2),
    same_random: Cell::new(true),
    same_pid: Cell::new(true),
    same_host: Cell::new(true),
    patience: Cell::new(600),
    files: Cell::new(0),
    verbose: Cell::new(0),
    inject_rate: Cell::new(0),
    inject_seed: Cell::new(1),
    inject_replicas: Cell::new(std::ptr::null_mut()),
    inject_ranks: Cell::new(std::ptr::null_mut()),
    inject_count: Cell::new(0),
    inject_where: Cell::new(std::ptr::null_mut()),
    inject_after: Cell::new(0),
    verify: Cell::new(0),
    windows: Cell::new(0),
};

enum Kind {
    Int(&'static Cell<c_int>),
    Unsigned(&'static Cell<u64>),
    Bool(&'static Cell<bool>),
    Text(&'static Cell<*mut c_char>),
    Choice(&'static Cell<c_int>, &'static [&'static CStr]),
}

struct Variable {
    name: &'static CStr,
    kind: Kind,
    level: u32,
    description: &'static CStr,
}

const PROTOCOLS: &[&CStr] = &[c"msgplushash", c"alltoall"];
const DIGESTS: &[&CStr] = &[c"crc32c", c"xxh3", c"sha1", c"memcmp"];
const CLOCKS: &[&CStr] = &[c"none", c"mpi", c"all"];
const FILES: &[&CStr] = &[c"leader", c"verify", c"all"];
const VERIFIED: &[&CStr] = &[c"result", c"input", c"both", c"p2p", c"none"];
const WINDOWS: &[&CStr] = &[c"verify", c"warn", c"abort"];
const PLACEMENTS: &[&CStr] = &[c"apart", c"formula"];
const OUTPUTS: &[&CStr] = &[c"vote", c"leader", c"all", c"tag"];

static VARIABLES: &[Variable] = &[
    Variable {
        name: c"degree",
        kind: Kind::Int(&STORAGE.degree),
        level: 1,
        description: c"Replication degree r, 1 to 64: mpirun starts r times as many processes as the application sees ranks. \
            1 replicates nothing, 2 detects corruption, 3 and more correct it",
    },
    Variable {
        name: c"protocol",
        kind: Kind::Choice(&STORAGE.protocol, PROTOCOLS),
        level: 2,
        description: c"How messages are verified: msgplushash (one copy, and a digest from the neighbouring replica) or \
            alltoall (a copy from every replica)",
    },
    Variable {
        name: c"digest",
        kind: Kind::Choice(&STORAGE.digest, DIGESTS),
        level: 2,
        description: c"How copies are compared: crc32c (hardware CRC-32C), xxh3 (XXH3, 128 bits), sha1 (as in the paper) or, \
            with protocol alltoall only, memcmp (whole copies)",
    },
    Variable {
        name: c"rank_map",
        kind: Kind::Text(&STORAGE.rank_map),
        level: 3,
        description: c"File that says which native rank runs which replica of which virtual rank, one line \
            'native virtual replica' each; the default is the formula native = replica * N + virtual",
    },
    Variable {
        name: c"placement",
        kind: Kind::Choice(&STORAGE.placement, PLACEMENTS),
        level: 3,
        description: c"Without a rank map file: apart (the formula, over the processes in order of their nodes where that keeps \
            replicas of a rank on different nodes and the plain formula does not) or formula (always the plain one)",
    },
    Variable {
        name: c"stdio",
        kind: Kind::Choice(&STORAGE.stdio, OUTPUTS),
        level: 2,
        description: c"Standard output and error of the replicas of a rank: vote (compared line by line; the majority's is shown, \
            once; with two replicas the leader's), leader (the leader's), all (everyone's) or tag (everyone's, each line \
            with [rank.replica] before it)",
    },
    Variable {
        name: c"stdio_delay",
        kind: Kind::Unsigned(&STORAGE.stdio_delay),
        level: 4,
        description: c"Milliseconds that what the leader writes waits at most for the other replicas before it is shown; what \
            they write later is compared nevertheless",
    },
    Variable {
        name: c"files",
        kind: Kind::Choice(&STORAGE.files, FILES),
        level: 2,
        description: c"Who writes the files that the application writes: leader (replica 0; the others write private copies, \
            which go at the end), verify (the same, and what the replicas have written is compared when a file is closed, and \
            corrected with three replicas or more) or all (every replica writes every file)",
    },
    Variable {
        name: c"report",
        kind: Kind::Text(&STORAGE.report),
        level: 1,
        description: c"File for the report of the job (JSON), written by native rank 0 at MPI_Finalize",
    },
    Variable {
        name: c"exit_on_detection",
        kind: Kind::Bool(&STORAGE.exit_on_detection),
        level: 3,
        description: c"Whether a job ends with exit status 65 when corruption was detected and could not be corrected",
    },
    Variable {
        name: c"same_clock",
        kind: Kind::Choice(&STORAGE.same_clock, CLOCKS),
        level: 5,
        description: c"Which clocks return the leader's value in every replica: none, mpi (MPI_Wtime, MPI_Wtick) or all (those \
            and time, gettimeofday, clock_gettime, clock, getrusage, times, as the application calls them; with the \
            preloaded library also before MPI_Init)",
    },
    Variable {
        name: c"same_random",
        kind: Kind::Bool(&STORAGE.same_random),
        level: 5,
        description: c"Whether random numbers of the system are the same in every replica: getrandom, getentropy, arc4random, \
            /dev/urandom, /dev/random, std::random_device, names of temporary files; with the preloaded library also before \
            MPI_Init",
    },
    Variable {
        name: c"same_pid",
        kind: Kind::Bool(&STORAGE.same_pid),
        level: 5,
        description: c"Whether getpid, getppid and, in the main thread, gettid return the same in every replica: an id above \
            all of the system's, which kill, sched_setaffinity and their like translate back; with the preloaded library \
            also before MPI_Init",
    },
    Variable {
        name: c"same_host",
        kind: Kind::Bool(&STORAGE.same_host),
        level: 5,
        description: c"Whether gethostname, uname and MPI_Get_processor_name tell the name of the leader's machine, after \
            MPI_Init",
    },
    Variable {
        name: c"patience",
        kind: Kind::Unsigned(&STORAGE.patience),
        level: 4,
        description: c"Seconds that a process waits in vain for another replica before it says where both are and ends the job; \
            0 waits for ever",
    },
    Variable {
        name: c"windows",
        kind: Kind::Choice(&STORAGE.windows, WINDOWS),
        level: 3,
        description: c"One-sided communication (MPI_Win_*): verify (what it moves is compared between replicas, and outcomes that \
            depend on timing are the leader's), warn (it runs unverified, which is said once) or abort (the first window ends the job)",
    },
    Variable {
        name: c"verbose",
        kind: Kind::Int(&STORAGE.verbose),
        level: 5,
        description: c"What redmpi says of its work on stderr: 0 nothing, 1 warnings, 2 information, 3 debugging, 4 every message",
    },
    Variable {
        name: c"inject_rate",
        kind: Kind::Unsigned(&STORAGE.inject_rate),
        level: 4,
        description: c"Fault injection for tests: flip a random bit in one of x messages sent, in the application's memory; 0 is off",
    },
    Variable {
        name: c"inject_seed",
        kind: Kind::Unsigned(&STORAGE.inject_seed),
        level: 4,
        description: c"Seed of the fault injection; the same seed gives the same faults",
    },
    Variable {
        name: c"inject_replicas",
        kind: Kind::Text(&STORAGE.inject_replicas),
        level: 4,
        description: c"Replica indices that faults are injected into, e.g. '1' or '0,2'; empty means all",
    },
    Variable {
        name: c"inject_ranks",
        kind: Kind::Text(&STORAGE.inject_ranks),
        level: 4,
        description: c"Virtual ranks that faults are injected into, e.g. '0-3,7'; empty means all",
    },
    Variable {
        name: c"inject_count",
        kind: Kind::Unsigned(&STORAGE.inject_count),
        level: 4,
        description: c"Most faults injected into one process; 0 means no limit",
    },
    Variable {
        name: c"inject_where",
        kind: Kind::Text(&STORAGE.inject_where),
        level: 5,
        description: c"Where faults are injected, with commas between: message (a message's send buffer), internal (a message inside \
            a collective operation), input (what a process contributes to a collective operation), output (what it has \
            received from one, before it is compared); the default is message,internal",
    },
    Variable {
        name: c"inject_after",
        kind: Kind::Unsigned(&STORAGE.inject_after),
        level: 5,
        description: c"So many messages or operations of a process pass before faults are injected",
    },
    Variable {
        name: c"verify",
        kind: Kind::Choice(&STORAGE.verify, VERIFIED),
        level: 2,
        description: c"How collective operations are verified: result (what every rank gets is compared, and corrected, before the \
            operation is complete), input (what every rank contributes is, before the operation begins), both, p2p (every \
            message inside the operation) or none",
    },
];

/// Variables that are coll_redmpi_* only.
const OF_COLL: &[&CStr] = &[c"verify"];

/// The component under whose name a variable is registered, and the one of its synonym.
fn components(variable: &Variable) -> (&'static CStr, Option<&'static CStr>) {
    if OF_COLL.contains(&variable.name) {
        (c"coll", None)
    } else {
        (c"pml", Some(c"coll"))
    }
}

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers all variables; called by whichever component is registered first, and again by the other.
pub fn register() -> c_int {
    let again = REGISTERED.swap(true, Ordering::Relaxed);
    for variable in VARIABLES {
        let (kind, storage, enumerator) = match &variable.kind {
            Kind::Int(cell) => (mpi::MCA_BASE_VAR_TYPE_INT, cell.get().cast::<c_void>(), std::ptr::null_mut()),
            Kind::Unsigned(cell) => {
                (mpi::MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, cell.get().cast(), std::ptr::null_mut())
            }
            Kind::Bool(cell) => (mpi::MCA_BASE_VAR_TYPE_BOOL, cell.get().cast(), std::ptr::null_mut()),
            Kind::Text(cell) => (mpi::MCA_BASE_VAR_TYPE_STRING, cell.get().cast(), std::ptr::null_mut()),
            Kind::Choice(cell, names) => {
                (mpi::MCA_BASE_VAR_TYPE_INT, cell.get().cast(), enumerator(variable.name, names))
            }
        };
        let (component, synonym) = components(variable);
        // SAFETY: static strings and storage that lives as long as the process; Open MPI copies the texts.
        let index = unsafe {
            mpi::mca_base_var_register(
                c"ompi".as_ptr(),
                component.as_ptr(),
                c"redmpi".as_ptr(),
                variable.name.as_ptr(),
                variable.description.as_ptr(),
                kind,
                enumerator,
                0,
                0,
                (variable.level - 1) as mpi::mca_base_var_info_lvl_t,
                mpi::MCA_BASE_VAR_SCOPE_READONLY,
                storage,
            )
        };
        if index < 0 {
            return index;
        }
        let (false, Some(synonym)) = (again, synonym) else { continue };
        // SAFETY: as above.
        unsafe {
            mpi::mca_base_var_register_synonym(
                index,
                c"ompi".as_ptr(),
                synonym.as_ptr(),
                c"redmpi".as_ptr(),
                variable.name.as_ptr(),
                0,
            );
        }
    }
    super::host::SUCCESS
}

/// An enumerator for Open MPI; leaked on purpose, once a process and variable: the variable keeps pointing to it.
fn enumerator(name: &CStr, names: &'static [&'static CStr]) -> *mut mpi::mca_base_var_enum_t {
    let mut values: Vec<mpi::mca_base_var_enum_value_t> = names
        .iter()
        .enumerate()
        .map(|(value, name)| mpi::mca_base_var_enum_value_t { value: value as c_int, string: name.as_ptr() })
        .collect();
    values.push(mpi::mca_base_var_enum_value_t { value: 0, string: std::ptr::null() });
    let mut result = std::ptr::null_mut();
    // SAFETY: `values` ends with a null name; Open MPI copies it.
    unsafe { mpi::mca_base_var_enum_create(name.as_ptr(), values.as_ptr(), &mut result) };
    result
}

fn text(cell: &Cell<*mut c_char>) -> Option<String> {
    // SAFETY: Open MPI has written a NUL-terminated string or null, and nobody writes now.
    let pointer = unsafe { *cell.get() };
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, see above.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}

fn read<T: Copy>(cell: &Cell<T>) -> T {
    // SAFETY: nobody writes after registration.
    unsafe { *cell.get() }
}

/// Names and values as the user gave them in the environment (which is where `mpirun --mca` puts them).
fn given() -> impl Iterator<Item = (String, String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let full = name.to_string_lossy().strip_prefix("OMPI_MCA_")?.to_owned();
        let short = full.strip_prefix("pml_redmpi_").or_else(|| full.strip_prefix("coll_redmpi_"))?.to_owned();
        Some((full, short, value.to_string_lossy().into_owned()))
    })
}

/// Checks what Open MPI does not: names, and values that it would replace by a default.
///
/// # Errors
/// A text naming the variable, what was given, and what is allowed.
pub fn check_given() -> Result<(), String> {
    for (full, short, value) in given() {
        // Registered by Open MPI for every component.
        if matches!(short.as_str(), "major_version" | "minor_version" | "release_version") {
            continue;
        }
        let of_coll = full.starts_with("coll_");
        let fits = |variable: &&Variable| {
            variable.name.to_bytes() == short.as_bytes() && (of_coll || components(variable).0 == c"pml")
        };
        let Some(variable) = VARIABLES.iter().find(fits) else {
            let names: Vec<&str> = VARIABLES.iter().filter_map(|variable| variable.name.to_str().ok()).collect();
            let near = names.iter().min_by_key(|name| distance(name, &short)).copied().unwrap_or_default();
            let prefix = if OF_COLL.iter().any(|name| name.to_str() == Ok(near)) { "coll" } else { "pml" };
            return Err(format!(
                "there is no variable {full}. Did you mean {prefix}_redmpi_{near}?\n  Known: {}",
                names.join(", ")
            ));
        };
        let number = |limits: &str| format!("{full} = '{value}' is not allowed: {limits}");
        match &variable.kind {
            Kind::Int(_) if value.trim().parse::<i32>().is_err() => return Err(number("a whole number is wanted")),
            Kind::Unsigned(_) if value.trim().parse::<u64>().is_err() => {
                return Err(number("a whole number of 0 or more is wanted"))
            }
            Kind::Bool(_)
                if !matches!(
                    value.trim().to_ascii_lowercase().as_str(),
                    "0" | "1" | "true" | "false" | "yes" | "no" | "t" | "f" | "y" | "n" | "enabled" | "disabled"
                ) =>
            {
                return Err(number("0 or 1 is wanted"))
            }
            Kind::Choice(_, names) => {
                let known: Vec<&str> = names.iter().filter_map(|name| name.to_str().ok()).collect();
                let by_number = value.parse::<usize>().is_ok_and(|number| number < known.len());
                if !by_number && !known.contains(&value.as_str()) {
                    return Err(number(&format!("one of {} is wanted", known.join(", "))));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Edit distance, for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replace = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = replace.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Whether a degree of 2 or more was asked for, checked or not.
pub fn replicates() -> bool {
    read(&STORAGE.degree) > 1
}

/// What the user has asked for, or one text that says what is wrong with it.
///
/// # Errors
/// A text naming the variable, what was given, and what is allowed.
pub fn config(native_size: u32) -> Result<Config, String> {
    check_given()?;
    let verbose = read(&STORAGE.verbose);
    log::set_max_level(match verbose {
        ..=0 => log::LevelFilter::Off,
        1 => log::LevelFilter::Warn,
        2 => log::LevelFilter::Info,
        3 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    });
    let _ = log::set_logger(&super::output::Logger);

    let degree = read(&STORAGE.degree);
    if !(1..=64).contains(&degree) {
        return Err(format!("pml_redmpi_degree = {degree} is not allowed: 1 to 64 is wanted"));
    }
    let degree = degree as u32;
    let protocol = match read(&STORAGE.protocol) {
        0 => Protocol::MsgPlusHash,
        _ => Protocol::AllToAll,
    };
    let comparison = match read(&STORAGE.digest) {
        0 => Comparison::Digest(Algorithm::Crc32c),
        1 => Comparison::Digest(Algorithm::Xxh3),
        2 => Comparison::Digest(Algorithm::Sha1),
        _ => Comparison::Memcmp,
    };
    if comparison == Comparison::Memcmp && protocol != Protocol::AllToAll {
        return Err(String::from(
            "pml_redmpi_digest = memcmp needs whole copies, and pml_redmpi_protocol = msgplushash has none: \
             choose alltoall, or one of crc32c, xxh3, sha1",
        ));
    }
    let set = |name: &str, cell: &Cell<*mut c_char>, limit: u32| {
        inject::IndexSet::parse(&text(cell).unwrap_or_default(), limit)
            .map_err(|error| format!("pml_redmpi_{name}: {error}"))
    };
    let virtual_size = (native_size / degree).max(1);
    let inject = inject::Config {
        rate: read(&STORAGE.inject_rate),
        seed: read(&STORAGE.inject_seed),
        replicas: set("inject_replicas", &STORAGE.inject_replicas, degree)?,
        ranks: set("inject_ranks", &STORAGE.inject_ranks, virtual_size)?,
        count: read(&STORAGE.inject_count),
        places: inject::Places::parse(&text(&STORAGE.inject_where).unwrap_or_default())
            .map_err(|error| format!("pml_redmpi_inject_where: {error}"))?,
        after: read(&STORAGE.inject_after),
    };
    let report = text(&STORAGE.report).map(PathBuf::from);
    Ok(Config {
        degree,
        protocol,
        comparison,
        rank_map: text(&STORAGE.rank_map).map(PathBuf::from),
        by_node: read(&STORAGE.placement) == 0,
        stdio: match read(&STORAGE.stdio) {
            0 => Stdio::Vote,
            1 => Stdio::Leader,
            2 => Stdio::All,
            _ => Stdio::Tag,
        },
        // A day is as good as for ever, and no time overflows.
        stdio_delay: Duration::from_millis(read(&STORAGE.stdio_delay).min(86_400_000)),
        report,
        exit_on_detection: read(&STORAGE.exit_on_detection),
        clocks: match read(&STORAGE.same_clock) {
            0 => Clocks::None,
            1 => Clocks::Mpi,
            _ => Clocks::All,
        },
        same_random: read(&STORAGE.same_random),
        same_pid: read(&STORAGE.same_pid),
        same_host: read(&STORAGE.same_host),
        patience: Duration::from_secs(read(&STORAGE.patience)),
        files: match read(&STORAGE.files) {
            0 => Files::Leader,
            1 => Files::Verify,
            _ => Files::All,
        },
        collectives: match read(&STORAGE.verify) {
            0 => Collectives::Result,
            1 => Collectives::Input,
            2 => Collectives::Both,
            3 => Collectives::PointToPoint,
            _ => Collectives::None,
        },
        windows: match read(&STORAGE.windows) {
            0 => Windows::Verify,
            1 => Windows::Warn,
            _ => Windows::Abort,
        },
        inject,
    })
}

/// `path` as C wants it.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_near_to_what_was_meant() {
        assert_eq!(distance("degree", "degree"), 0);
        assert_eq!(distance("degree", "degre"), 1);
        assert_eq!(distance("digest", "degree"), 4);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn every_variable_has_a_level_and_a_description() {
        for variable in VARIABLES {
            assert!((1..=9).contains(&variable.level), "{:?}", variable.name);
            assert!(variable.description.to_bytes().len() > 20, "{:?}", variable.name);
        }
    }
}
