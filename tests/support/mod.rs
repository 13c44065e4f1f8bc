//! Runs the test programs under `mpirun`: compiles them once, starts a job, watches its time, reads its report, and
//! makes sure that nothing of it is left.
//!
//! Jobs run one at a time, for the machine may be small. Every process of a job carries the job's name in its
//! environment: so all of them are found, in whatever process group, and nobody else's are touched. Temporary files
//! (Open MPI's session folder too) go to a folder of the job's own, which has to be empty afterwards.

// Every test uses a part of it.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// In the environment of every process of a job.
const MARK: &str = "REDMPI_TEST_JOB";
const COMPONENT_PATH: &str = "OMPI_MCA_mca_base_component_path";
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long what a finished job leaves may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// The `redmpi` command, built by cargo for this test.
pub const REDMPI: &str = env!("CARGO_BIN_EXE_redmpi");

/// A lock that a failed test does not take from the others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The folder of the components of this build.
pub fn components() -> PathBuf {
    let folder = Path::new(REDMPI).with_file_name("components");
    for file in ["mca_pml_redmpi.so", "mca_coll_redmpi.so"] {
        // Follows the link: it is there before the library is.
        assert!(
            folder.join(file).exists(),
            "{file} is not in {}: run `cargo build` with the same profile first",
            folder.display()
        );
    }
    folder
}

/// Our components first, then Open MPI's own.
pub fn component_path() -> String {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let output = Command::new("ompi_info")
            .args(["--path", "pkglibdir", "--parsable"])
            .output()
            .unwrap_or_else(|error| panic!("ompi_info: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let native = text
            .lines()
            .find_map(|line| line.strip_prefix("path:pkglibdir:"))
            .unwrap_or_else(|| panic!("ompi_info does not say its pkglibdir: {text}"));
        format!("{}:{}", components().display(), native.trim_matches('"'))
    })
    .clone()
}

/// The compiled program, made at its first use.
pub fn program(name: &str) -> PathBuf {
    static COMPILED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    let binary = folder.join(name);
    let mut compiled = lock(&COMPILED);
    if compiled.contains(name) {
        return binary;
    }
    fs::create_dir_all(&folder).unwrap();
    let has = |extension: &str| source.join(format!("{name}.{extension}")).exists();
    let (compiler, extension, options): (&str, &str, &[&str]) = match () {
        // mpif.h declares every constant there is.
        () if has("f90") => ("mpifort", "f90", &["-Wno-unused-parameter"]),
        // The C++ bindings of Open MPI 4 have warnings of their own.
        () if has("cpp") => ("mpicxx", "cpp", &["-std=c++17", "-DOMPI_SKIP_MPICXX"]),
        () => ("mpicc", "c", &[]),
    };
    let output = Command::new(compiler)
        .args(["-O1", "-g", "-Wall", "-Wextra", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(&binary)
        .arg(source.join(format!("{name}.{extension}")))
        .output()
        .unwrap_or_else(|error| panic!("{compiler}, which compiles the test programs: {error}"));
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} could not compile {name}.{extension}:\n{messages}");
    assert!(messages.is_empty(), "{name}.{extension} has warnings:\n{messages}");
    compiled.insert(name.to_owned());
    binary
}

/// How a job is started.
#[derive(Clone, Debug)]
enum Start {
    /// `mpirun` with the component path in the environment.
    Mpirun,
    /// `redmpi run`.
    Run,
    /// `eval "$(redmpi env)"` in a shell, then `mpirun`.
    Shell,
}

/// A job to be run.
#[derive(Clone, Debug)]
pub struct Job {
    program: PathBuf,
    name: String,
    arguments: Vec<String>,
    start: Start,
    /// Names given to `--mca coll` and `--mca pml`.
    switches: &'static [&'static str],
    installed: bool,
    degree: Option<String>,
    ranks: u32,
    processes: Option<u32>,
    mca: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    options: Vec<String>,
    timeout: Duration,
    wants_report: bool,
    /// What is in the job's current folder before it runs; `None`: the job leaves no files.
    files: Option<Vec<(&'static str, &'static str)>>,
}

impl Job {
    /// The program under `--mca coll redmpi`, at degree 1 with 2 ranks until something else is said.
    pub fn new(name: &str) -> Job {
        Job::with(name, program(name))
    }

    fn with(name: &str, program: PathBuf) -> Job {
        Job {
            program,
            name: name.to_owned(),
            arguments: Vec::new(),
            start: Start::Mpirun,
            switches: &["coll"],
            installed: true,
            degree: None,
            ranks: 2,
            processes: None,
            mca: Vec::new(),
            environment: Vec::new(),
            options: Vec::new(),
            timeout: TIMEOUT,
            wants_report: true,
            files: None,
        }
    }

    /// Any program that is installed (an interpreter, a shell).
    pub fn installed(name: &str) -> Job {
        Job::with(name, PathBuf::from(name))
    }

    /// The program under Open MPI alone: redmpi is not even installed.
    pub fn plain(name: &str) -> Job {
        Job::new(name).without_redmpi()
    }

    /// The same program under Open MPI alone.
    pub fn without_redmpi(self) -> Job {
        Job { installed: false, switches: &[], wants_report: false, degree: None, mca: Vec::new(), ..self }
    }

    /// redmpi is installed and nobody asks for it.
    pub fn unasked(name: &str) -> Job {
        Job { installed: true, ..Job::plain(name) }
    }

    pub fn degree(mut self, degree: u32) -> Job {
        self.degree = Some(degree.to_string());
        self
    }

    /// A degree as a user might type it.
    pub fn degree_text(mut self, degree: &str) -> Job {
        self.degree = Some(degree.to_owned());
        self
    }

    /// Virtual ranks.
    pub fn ranks(mut self, ranks: u32) -> Job {
        self.ranks = ranks;
        self
    }

    /// Native processes, where they are not degree times ranks.
    pub fn processes(mut self, processes: u32) -> Job {
        self.processes = Some(processes);
        self
    }

    pub fn arguments<T: ToString>(mut self, arguments: &[T]) -> Job {
        self.arguments = arguments.iter().map(T::to_string).collect();
        self
    }

    /// An MCA variable; the last value counts (mpirun itself refuses two).
    pub fn mca(mut self, name: &str, value: impl ToString) -> Job {
        self.mca.retain(|(known, _)| known != name);
        self.mca.push((name.to_owned(), value.to_string()));
        self
    }

    /// `pml_redmpi_<name>`.
    pub fn set(self, name: &str, value: impl ToString) -> Job {
        self.mca(&format!("pml_redmpi_{name}"), value)
    }

    /// mpirun's own options.
    pub fn options(mut self, options: &[&str]) -> Job {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    pub fn environment(mut self, name: &str, value: &str) -> Job {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `--mca coll redmpi`.
    pub fn coll(mut self) -> Job {
        self.switches = &["coll"];
        self
    }

    /// `--mca pml redmpi`.
    pub fn pml(mut self) -> Job {
        self.switches = &["pml"];
        self
    }

    /// `--mca coll redmpi --mca pml redmpi`.
    pub fn both(mut self) -> Job {
        self.switches = &["coll", "pml"];
        self
    }

    /// By `redmpi run`, which brings its own switch and component path.
    pub fn by_run(mut self) -> Job {
        self.start = Start::Run;
        self
    }

    /// By plain `mpirun` in a shell that `redmpi env` prepared.
    pub fn by_shell(mut self) -> Job {
        self.start = Start::Shell;
        self
    }

    pub fn timeout(mut self, seconds: u64) -> Job {
        self.timeout = Duration::from_secs(seconds);
        self
    }

    /// The test says itself where the report goes, or wants none.
    pub fn without_report(mut self) -> Job {
        self.wants_report = false;
        self
    }

    /// The same program under Open MPI alone, with the variables of its own that were set.
    pub fn made_plain(self) -> Job {
        let mca = self.mca.iter().filter(|(name, _)| !name.contains("redmpi")).cloned().collect();
        Job { mca, ..self.without_redmpi() }
    }

    /// Runs in a folder of its own, in which these files are before; what is in it afterwards is in the outcome.
    pub fn in_folder(mut self, files: &[(&'static str, &'static str)]) -> Job {
        self.files = Some(files.to_vec());
        self
    }

    fn degree_number(&self) -> u32 {
        self.degree.as_ref().and_then(|text| text.parse().ok()).unwrap_or(1)
    }

    fn command(&self, folder: &Path) -> Command {
        let mut words: Vec<String> =
            ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"].map(str::to_owned).into();
        let mut mca = |name: &str, value: &str| words.extend(["--mca", name, value].map(str::to_owned));
        for (name, value) in &self.mca {
            mca(name, value);
        }
        let report = folder.join("report.json");
        let report = report.to_str().expect("the temporary folder's name is text");
        let mut command = match self.start {
            Start::Run => {
                let mut command = Command::new(REDMPI);
                command.args(["run", "-r", self.degree.as_deref().unwrap_or("1"), "-n", &self.ranks.to_string()]);
                if self.wants_report {
                    command.args(["--report", report]);
                }
                command.args(&words).args(&self.options).arg("--");
                command.arg(&self.program).args(&self.arguments);
                return command;
            }
            Start::Mpirun => Command::new("mpirun"),
            Start::Shell => {
                let mut command = Command::new("sh");
                command.args(["-ec", r#"eval "$("$0" env)"; exec mpirun "$@""#, REDMPI]);
                command
            }
        };
        for framework in self.switches {
            mca(framework, "redmpi");
        }
        if let Some(degree) = &self.degree {
            mca("pml_redmpi_degree", degree);
        }
        if self.wants_report {
            mca("pml_redmpi_report", report);
        }
        let processes = self.processes.unwrap_or(self.ranks * self.degree_number().max(1));
        command.args(words).args(&self.options).args(["-n", &processes.to_string()]);
        command.arg(&self.program).args(&self.arguments);
        if self.installed && matches!(self.start, Start::Mpirun) {
            command.env(COMPONENT_PATH, component_path());
        }
        command
    }

    /// Runs the job to its end. Panics if it takes too long, or leaves anything behind.
    pub fn run(&self) -> Outcome {
        static MACHINE: Mutex<u32> = Mutex::new(0);
        let mut number = lock(&MACHINE);
        *number += 1;
        let mark = format!("{}-{}", std::process::id(), *number);
        let folder = Folder::new(&mark);
        let temporary = folder.0.join("tmp");
        fs::create_dir(&temporary).unwrap();

        let work = folder.0.join("work");
        if let Some(files) = &self.files {
            fs::create_dir(&work).unwrap();
            for (name, content) in files {
                fs::write(work.join(name), content).unwrap();
            }
        }

        let mut command = self.command(&folder.0);
        forget_the_callers_environment(&mut command);
        command
            .env(MARK, &mark)
            .env("TMPDIR", &temporary)
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(if self.files.is_some() { &work } else { &folder.0 })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let line = format!("{command:?}");
        let shared = shared_memory();
        let begin = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        let stdout = Reader::new(child.stdout.take().unwrap());
        let stderr = Reader::new(child.stderr.take().unwrap());
        let output = || format!("{line}\n--- stdout\n{}\n--- stderr\n{}", stdout.text(), stderr.text());

        let Some(status) = wait(&mut child, self.timeout) else {
            let listing = listing(&processes(&mark));
            end(&mark);
            let _ = child.wait();
            panic!("{} took longer than {:?}\n{}\n--- processes\n{listing}", self.name, self.timeout, output());
        };
        let elapsed = begin.elapsed();

        // mpirun returns before the last of its children are gone.
        if !until(|| processes(&mark).is_empty()) {
            let listing = listing(&processes(&mark));
            end(&mark);
            panic!("processes of {} are left\n{}\n--- processes\n{listing}", self.name, output());
        }
        stdout.join();
        stderr.join();
        let fresh = || -> Vec<PathBuf> {
            let mapped = mapped_shared_memory(None);
            shared_memory().into_iter().filter(|file| !shared.contains(file) && !mapped.contains(file)).collect()
        };
        if !until(|| fresh().is_empty()) {
            panic!("{} left shared memory: {:?}\n{}", self.name, fresh(), output());
        }
        if !until(|| files_below(&temporary).is_empty()) {
            panic!("{} left files: {:?}\n{}", self.name, files_below(&temporary), output());
        }

        let report = fs::read_to_string(folder.0.join("report.json")).ok().map(|text| {
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("the report is no JSON: {error}\n{text}"))
        });
        let files = all_below(&work);
        let _ = fs::remove_dir_all(&work);
        let rest: Vec<PathBuf> =
            files_below(&folder.0).into_iter().filter(|file| !file.ends_with("report.json")).collect();
        assert!(rest.is_empty(), "{} left files beside its report: {rest:?}", self.name);
        let bytes = lock(&stdout.bytes).clone();
        let (stdout, stderr) = (stdout.text(), stderr.text());
        Outcome { job: self.clone(), line, status, elapsed, stdout, stderr, bytes, report, files }
    }
}

/// What `cargo test` sets, or the caller's shell, must not decide how a job runs.
fn forget_the_callers_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("OMPI_MCA_") || text.starts_with("REDMPI_") {
            command.env_remove(&name);
        }
    }
    // Cargo puts its target folder there: the components have to find their library without it.
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        let target = Path::new(REDMPI).parent().unwrap();
        let others = std::env::split_paths(&path).filter(|folder| !folder.starts_with(target));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(others).unwrap());
    }
}

fn until(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ids of the living processes of a job.
fn processes(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let is_ours = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
    };
    all_processes().into_iter().filter(is_ours).collect()
}

fn all_processes() -> Vec<u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Ends a job by force, and removes the shared memory that it then cannot remove itself.
fn end(mark: &str) {
    let deadline = Instant::now() + PATIENCE;
    let mut memory = BTreeSet::new();
    loop {
        let left = processes(mark);
        if left.is_empty() || Instant::now() > deadline {
            break;
        }
        memory.extend(mapped_shared_memory(Some(&left)));
        let _ = Command::new("kill").arg("-KILL").args(left.iter().map(u32::to_string)).output();
        thread::sleep(Duration::from_millis(50));
    }
    for file in memory {
        let _ = fs::remove_file(file);
    }
}

fn listing(pids: &[u32]) -> String {
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    match Command::new("ps").args(["-o", "pid,ppid,stat,wchan:20,etime,time,args", "-p", &list.join(",")]).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("{list:?} (ps: {error})"),
    }
}

fn shared_memory() -> BTreeSet<PathBuf> {
    fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Files in /dev/shm that living processes have mapped: all processes, or these.
fn mapped_shared_memory(pids: Option<&[u32]>) -> BTreeSet<PathBuf> {
    let all;
    let pids = match pids {
        Some(pids) => pids,
        None => {
            all = all_processes();
            &all
        }
    };
    pids.iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/maps")).ok())
        .flat_map(|maps| {
            let files = maps.lines().filter_map(|line| Some(PathBuf::from(&line[line.find("/dev/shm/")?..])));
            files.collect::<Vec<_>>()
        })
        .collect()
}

/// Everything below a folder that is not a folder itself.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}

/// Everything below a folder: the content of files, where links lead, nothing for folders.
fn all_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn add(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let content = match entry.file_type().unwrap() {
                kind if kind.is_dir() => {
                    add(root, &path, found);
                    Vec::new()
                }
                kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                _ => fs::read(&path).unwrap(),
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), content);
        }
    }
    let mut found = BTreeMap::new();
    add(folder, folder, &mut found);
    found
}

/// A folder that goes with its owner. Its path is short: there are sockets in it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("redmpi-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reads a pipe while the job runs, so that a timeout can show what was written.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Reader {
    fn new(mut pipe: impl Read + Send + 'static) -> Reader {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let thread = thread::spawn(move || {
            let mut part = [0; 8192];
            while let Ok(length @ 1..) = pipe.read(&mut part) {
                lock(&shared).extend_from_slice(&part[..length]);
            }
        });
        Reader { bytes, thread: Mutex::new(Some(thread)) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.bytes)).into_owned()
    }

    fn join(&self) {
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

/// What a job did.
pub struct Outcome {
    job: Job,
    line: String,
    status: ExitStatus,
    pub elapsed: Duration,
    pub stdout: String,
    pub stderr: String,
    /// Standard output as it was, text or not.
    pub bytes: Vec<u8>,
    pub report: Option<Value>,
    /// What was in the job's folder at its end, by name: content of files, where links lead, nothing for folders.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Outcome {
    /// Fails the test with everything that is known of the job.
    #[track_caller]
    pub fn fail(&self, why: &str) -> ! {
        let mut text = format!("{}: {why}\n{}\n{}, {:?}\n", self.job.name, self.line, self.status, self.elapsed);
        let _ = write!(text, "--- stdout\n{}\n--- stderr\n{}\n", self.stdout, self.stderr);
        if let Some(report) = &self.report {
            let _ = write!(text, "--- report\n{report:#}\n");
        }
        panic!("{text}");
    }

    #[track_caller]
    pub fn need(&self, condition: bool, what: &str) {
        if !condition {
            self.fail(what);
        }
    }

    /// Exit status; a job that a signal ended has none.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| self.fail("mpirun was ended by a signal"))
    }

    #[track_caller]
    pub fn exits(&self, code: i32) -> &Outcome {
        if self.code() != code {
            self.fail(&format!("exit status {} instead of {code}", self.code()));
        }
        self
    }

    /// All `RESULT` lines.
    pub fn results(&self) -> Vec<&str> {
        self.stdout.lines().filter(|line| line.starts_with("RESULT ")).collect()
    }

    /// The one `RESULT` line.
    #[track_caller]
    pub fn result(&self) -> &str {
        match self.results()[..] {
            [one] => one,
            ref all => self.fail(&format!("{} RESULT lines instead of one", all.len())),
        }
    }

    /// Lines by which a process says that it received wrong data.
    pub fn bad(&self) -> usize {
        self.stderr.lines().filter(|line| line.starts_with("BAD ")).count()
    }

    #[track_caller]
    pub fn report(&self) -> &Value {
        self.report.as_ref().unwrap_or_else(|| self.fail("no report was written"))
    }

    /// A number of the report, by its path: `/messages/sent`.
    #[track_caller]
    pub fn number(&self, pointer: &str) -> u64 {
        match self.report().pointer(pointer).and_then(Value::as_u64) {
            Some(number) => number,
            None => self.fail(&format!("the report has no number at {pointer}")),
        }
    }

    #[track_caller]
    pub fn verdict(&self) -> &str {
        self.report()["verdict"].as_str().unwrap_or_else(|| self.fail("the report has no verdict"))
    }

    /// `field` of every process in the report, by native rank.
    #[track_caller]
    pub fn per_process(&self, field: &str) -> BTreeMap<u64, u64> {
        let of = |process: &Value| Some((process["native"].as_u64()?, process[field].as_u64()?));
        let list = self.report()["processes"].as_array().unwrap_or_else(|| self.fail("the report has no processes"));
        list.iter().map(|process| of(process).unwrap_or_else(|| self.fail(&format!("no number {field}")))).collect()
    }

    /// Native ranks whose `field` is not 0.
    #[track_caller]
    pub fn processes_with(&self, field: &str) -> BTreeSet<u64> {
        self.per_process(field).into_iter().filter(|(_, count)| *count > 0).map(|(native, _)| native).collect()
    }

    /// Events of a kind, in an order of their own, without the time.
    #[track_caller]
    pub fn events(&self, kind: &str) -> Vec<String> {
        let list = self.report()["events"].as_array().unwrap_or_else(|| self.fail("the report has no events"));
        let mut events: Vec<String> = list
            .iter()
            .filter(|event| event["kind"] == kind)
            .map(|event| {
                let field = |name: &str| event[name].to_string();
                ["native", "peer", "communicator", "tag", "bytes"].map(field).join(" ")
            })
            .collect();
        events.sort();
        events
    }

    /// The verdict's first line on stderr, of which there is one. Open MPI may put the process's name before it.
    #[track_caller]
    pub fn verdict_line(&self) -> &str {
        let lines: Vec<&str> = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("redmpi: "))
            .filter(|line| ["clean", "corrected", "detected", "failed"].iter().any(|word| line.contains(word)))
            .collect();
        match lines[..] {
            [one] => one,
            ref all => self.fail(&format!("{} verdict lines instead of one", all.len())),
        }
    }

    /// Ended well, with the result of the plain run, nothing wrong, and everything compared.
    #[track_caller]
    pub fn is_clean(&self) -> &Outcome {
        self.exits(0);
        self.has_the_plain_result();
        self.has_a_clean_report()
    }

    /// Ended well, nothing wrong, and everything compared.
    #[track_caller]
    pub fn has_a_clean_report(&self) -> &Outcome {
        self.exits(0);
        for (part, count) in ["messages", "collectives"]
            .iter()
            .flat_map(|part| ["mismatched", "corrected", "uncorrectable"].map(|count| (part, count)))
        {
            let number = self.number(&format!("/{part}/{count}"));
            self.need(number == 0, &format!("{part}: {count} is {number} without any fault"));
        }
        self.need(self.number("/injected") == 0, "faults were injected that nobody asked for");
        self.need(self.verdict() == "clean", "the verdict is not clean");
        self.need(self.processes_with("suspected").is_empty(), "a process is suspected without any fault");
        self.need(self.bad() == 0, "wrong data was received");
        let degree = self.job.degree_number();
        self.need(self.number("/degree") == u64::from(degree), "the degree is not what was asked for");
        self.need(self.number("/virtual_size") == u64::from(self.job.ranks), "virtual_size");
        self.need(self.number("/native_size") == u64::from(self.job.ranks * degree), "native_size");
        if degree > 1 {
            let compared = self.number("/messages/verified") + self.number("/collectives/verified");
            self.need(compared > 0, "nothing was compared");
            self.need(self.verdict_line().contains("clean"), "the verdict's line does not say clean");
        }
        self
    }

    /// One RESULT line, that of the same program under plain Open MPI.
    #[track_caller]
    pub fn has_the_plain_result(&self) -> &Outcome {
        let wanted = plain_result(&self.job);
        if self.result() != wanted {
            self.fail(&format!("another result than plain Open MPI's `{wanted}`"));
        }
        self
    }

    /// All replicas show a RESULT line (`stdout` is `all`), all that of the plain run.
    #[track_caller]
    pub fn has_the_plain_result_in_every_replica(&self) -> &Outcome {
        let wanted = plain_result(&self.job);
        let results = self.results();
        self.need(results.len() == self.job.degree_number() as usize, "not one RESULT line of each replica");
        self.need(results.iter().all(|line| *line == wanted), &format!("a replica's result is not `{wanted}`"));
        self
    }

    /// What redmpi says on stderr, from its first line on, without what mpirun puts behind it. (A value that is not
    /// in a variable's enumeration is refused by Open MPI, in words of its own.)
    pub fn message(&self) -> String {
        let begins = |line: &&str| line.starts_with("redmpi") || line.starts_with("An invalid value was supplied");
        let lines = self.stderr.lines().skip_while(|line| !begins(line));
        lines.take_while(|line| !line.starts_with("-----")).collect::<Vec<_>>().join("\n")
    }

    /// Refused at the start: soon, with a non-zero status, no result, and a text of ours that has all these words.
    #[track_caller]
    pub fn is_refused<T: AsRef<str>>(&self, words: &[T]) {
        self.need(self.code() != 0, "a job that has to be refused ended with status 0");
        self.need(self.results().is_empty(), "a job that has to be refused ran");
        self.need(self.elapsed < Duration::from_secs(30), "it took long to refuse");
        let said = self.message().to_lowercase();
        self.need(!said.is_empty(), "redmpi says nothing");
        self.need(!said.contains("panicked"), "redmpi failed instead of refusing");
        // A number has to stand by itself, not in a path.
        let tokens: BTreeSet<&str> =
            said.split(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '/')).collect();
        for word in words {
            let word = word.as_ref().to_lowercase();
            let there = if word.parse::<i64>().is_ok() { tokens.contains(&*word) } else { said.contains(&word) };
            self.need(there, &format!("the message does not say `{word}`"));
        }
    }
}

/// The result under plain Open MPI of the job's program, arguments, ranks and environment; run once for each.
fn plain_result(job: &Job) -> String {
    static KNOWN: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);
    let key = format!("{} {} {:?} {:?}", job.name, job.ranks, job.arguments, job.environment);
    if let Some(known) = lock(&KNOWN).as_ref().and_then(|known| known.get(&key)) {
        return known.clone();
    }
    let plain = Job {
        arguments: job.arguments.clone(),
        environment: job.environment.clone(),
        timeout: job.timeout,
        ..Job::plain(&job.name).ranks(job.ranks)
    };
    let result = plain.run().exits(0).result().to_owned();
    lock(&KNOWN).get_or_insert_with(HashMap::new).insert(key, result.clone());
    result
}

/// What a command prints on stdout, with the component path in its environment.
pub fn ask<T: AsRef<OsStr>>(command: &str, arguments: &[T]) -> String {
    let output = Command::new(command)
        .args(arguments)
        .env(COMPONENT_PATH, component_path())
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
