//! Real programs, unchanged, at degree 2 and 3 with everything compared and nothing wrong: mpi4py's own test suite, the
//! HPC Challenge benchmark (Debian's `hpcc`) and LAMMPS. `ci/test` installs them; a test whose program is missing says
//! that it is left out. `REDMPI_TEST_LARGE=1` adds degree 3 of hpcc and LAMMPS.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use support::{Folder, Job, Outcome};

const RANKS: u32 = 2;

/// What a program left in memory that it then sends without having written it (hpcc's latency test does) differs from
/// process to process. With this, malloc gives every process the same there.
const SAME_MEMORY: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.perturb=85:glibc.malloc.tcache_count=0");

fn installed(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if !found {
        eprintln!("left out: {program} is not installed");
    }
    found
}

fn degrees() -> &'static [u32] {
    if std::env::var("REDMPI_TEST_LARGE").is_ok_and(|value| value == "1") {
        &[2, 3]
    } else {
        &[2]
    }
}

// ---------------------------------------------------------------------------------------------------------------
// mpi4py

/// Modules that are left out.
const MODULES: [(&str, &str); 3] = [
    ("spawn", "starts other programs: an MPI error under redmpi"),
    ("dynproc", "the same"),
    ("test_io", "makes up names of temporary files from random numbers, and every replica writes them"),
];

/// Single tests that are left out.
const TESTS: [(&str, &str); 2] = [
    ("testSharedQuery", "sends the address of its own memory, which differs from process to process"),
    ("testSendrecvReplace", "Open MPI sends packed bytes there, with the padding of long double"),
];

/// Runs mpi4py's runner without the tests named by the first argument.
const RUNNER: &str = r#"
import runpy, sys, unittest
unwanted = sys.argv[1].split(',')
del sys.argv[0:2]
names = unittest.TestLoader.getTestCaseNames
def wanted(self, case):
    return [name for name in names(self, case) if name not in unwanted]
unittest.TestLoader.getTestCaseNames = wanted
sys.path.insert(0, sys.argv[0].rpartition('/')[0])
runpy.run_path(sys.argv[0], run_name='__main__')
"#;

/// The tests' names, with what became of them, of one run in which every process tells on stderr. Lines of several
/// processes may be mixed, so names are looked for by their shape: `testName (module.Class.testName)`.
fn names(outcome: &Outcome) -> BTreeSet<String> {
    let text = format!("{}{}", outcome.stdout, outcome.stderr);
    let name = |part: &str| {
        let (name, rest) = part.split_once(')')?;
        let whole = name.starts_with("test_") && name.matches('.').count() == 2 && rest.starts_with(" ...");
        whole.then(|| name.to_owned())
    };
    text.split('(').filter_map(name).collect()
}

/// N of every `Ran N tests`.
fn counts(outcome: &Outcome) -> Vec<u32> {
    let text = format!("{}{}", outcome.stdout, outcome.stderr);
    text.split("Ran ").filter_map(|part| part.split_once(" tests in ")?.0.parse().ok()).collect()
}

#[test]
fn mpi4py() {
    let Some(source) = std::env::var_os("REDMPI_MPI4PY").map(PathBuf::from) else {
        eprintln!("left out: REDMPI_MPI4PY does not say where mpi4py's source is (ci/test does)");
        return;
    };
    let tests = source.join("test/runtests.py");
    let unwanted: Vec<&str> = TESTS.iter().map(|(name, _)| *name).collect();
    let mut arguments = vec!["-c", RUNNER].into_iter().map(str::to_owned).collect::<Vec<_>>();
    arguments.extend([unwanted.join(","), tests.to_str().unwrap().to_owned(), "--no-builddir".into(), "-v".into()]);
    for (name, _) in MODULES {
        arguments.extend(["-e".to_owned(), name.to_owned()]);
    }
    // The system's Python: it is the one that python3-mpi4py belongs to.
    let job = Job::installed("/usr/bin/python3")
        .arguments(&arguments)
        .ranks(RANKS)
        .environment("PYTHONHASHSEED", "0")
        .environment("PYTHONDONTWRITEBYTECODE", "1")
        .timeout(900);
    let plain = job.clone().without_redmpi().run();
    plain.exits(0);
    let (all, number) = (names(&plain), counts(&plain));
    plain.need(number.len() == RANKS as usize && number[0] > 1200, "not all tests ran in the plain run");
    for degree in [2, 3] {
        let outcome = job.clone().degree(degree).run();
        outcome.has_a_clean_report();
        let ran = counts(&outcome);
        outcome.need(ran.len() >= RANKS as usize, "a rank does not say how many tests it ran");
        outcome.need(ran.iter().all(|count| *count == number[0]), &format!("not {} tests in every rank", number[0]));
        outcome.need(!outcome.stderr.contains("FAILED"), "tests failed");
        let missing: Vec<_> = all.difference(&names(&outcome)).take(20).cloned().collect();
        // Of a thousand names in mixed lines a few may be torn; the count above is exact.
        outcome.need(missing.len() < 20, &format!("tests of the plain run are missing: {missing:?}"));
        outcome.need(outcome.number("/messages/verified") > 10_000, "few messages were compared");
    }
}

// ---------------------------------------------------------------------------------------------------------------
// HPC Challenge

/// Its input file: HPL of order 400 on one row of processes; everything else follows from that.
fn hpcc_input() -> String {
    let lines = [
        "HPLinpack benchmark input file\nInnovative Computing Laboratory, University of Tennessee",
        "HPL.out      output file name (if any)\n8            device out (6=stdout,7=stderr,file)",
        "1            # of problems sizes (N)\n400          Ns\n1            # of NBs\n40           NBs",
        "0            PMAP process mapping (0=Row-,1=Column-major)",
        "1            # of process grids (P x Q)\n1            Ps",
        "2            Qs\n16.0         threshold\n1            # of panel fact",
        "2            PFACTs (0=left, 1=Crout, 2=Right)\n1            # of recursive stopping criterium",
        "4            NBMINs (>= 1)\n1            # of panels in recursion\n2            NDIVs",
        "1            # of recursive panel fact.\n1            RFACTs (0=left, 1=Crout, 2=Right)",
        "1            # of broadcast\n1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)",
        "1            # of lookahead depth\n1            DEPTHs (>=0)",
        "2            SWAP (0=bin-exch,1=long,2=mix)\n64           swapping threshold",
        "0            L1 in (0=transposed,1=no-transposed) form",
        "0            U  in (0=transposed,1=no-transposed) form",
        "1            Equilibration (0=no,1=yes)\n8            memory alignment in double (> 0)",
        "##### This line (no. 32) is ignored (it serves as a separator). ######",
        "0            Number of additional problem sizes for PTRANS\n1200         values of N",
        "0            number of additional blocking sizes for PTRANS\n40           values of NB\n",
    ];
    lines.join("\n")
}

/// Runs it, each process in a folder of its own, as it writes its result to a file; what the files say.
fn hpcc(folder: &Path, job: &Job) -> (Outcome, Vec<String>) {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("hpccinf.txt"), hpcc_input()).unwrap();
    let outcome = job.run();
    let mut results = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        results.extend(fs::read_to_string(entry.path().join("hpccoutf.txt")));
    }
    (outcome, results)
}

/// What does not depend on how long anything took.
fn without_times(result: &str) -> Vec<&str> {
    let times = ["time", "Time", "flops", "GUPs", "GBs", "GBytes", "usec", "STREAM_"];
    let summary = result.lines().skip_while(|line| !line.starts_with("Begin of Summary"));
    let mut lines: Vec<&str> = summary.filter(|line| !times.iter().any(|word| line.contains(word))).collect();
    lines.extend(result.lines().filter(|line| line.starts_with("||Ax-b||")));
    lines.extend(result.lines().filter(|line| line.starts_with("Node(s) with error")));
    lines
}

#[test]
fn hpc_challenge() {
    if !installed("hpcc") {
        return;
    }
    let folder = Folder::new(&format!("hpcc-{}", std::process::id()));
    let place = folder.0.to_str().unwrap();
    let script = r#"own=$(mktemp -d "$0/XXXXXX") && cp "$0/hpccinf.txt" "$own" && cd "$own" && exec hpcc"#;
    let job = Job::installed("/bin/sh")
        .arguments(&["-c", script, place])
        .ranks(RANKS)
        .environment(SAME_MEMORY.0, SAME_MEMORY.1)
        .timeout(300);
    let (outcome, plain) = hpcc(&folder.0, &job.clone().without_redmpi());
    outcome.exits(0).need(plain.len() == 1, "the plain run wrote not one result");
    let wanted = without_times(&plain[0]);
    outcome.need(wanted.len() > 80 && wanted.contains(&"Success=1"), "the plain run failed");
    for degree in degrees() {
        let (outcome, results) = hpcc(&folder.0, &job.clone().degree(*degree));
        outcome.has_a_clean_report();
        // Rank 0 writes, in every replica (or only the leader's is kept).
        outcome.need(!results.is_empty() && results.len() <= *degree as usize, "not one result of each replica");
        for result in &results {
            let found = without_times(result);
            outcome.need(found == wanted, &format!("another result than plainly:\n{}", found.join("\n")));
            // The times too: the replicas have one clock.
            outcome.need(result == &results[0], "the replicas' results differ");
        }
        outcome.need(outcome.number("/messages/verified") > 1000, "few messages were compared");
    }
}

// ---------------------------------------------------------------------------------------------------------------
// LAMMPS

/// The lines of numbers between the heading and the end of the run.
fn thermo(outcome: &Outcome) -> Vec<String> {
    let lines = outcome.stdout.lines().skip_while(|line| !line.trim_start().starts_with("Step"));
    lines.take_while(|line| !line.starts_with("Loop time")).map(str::to_owned).collect()
}

#[test]
fn lammps() {
    if !installed("lmp") {
        return;
    }
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/in.melt");
    let job = Job::installed("lmp")
        .arguments(&["-in", input.to_str().unwrap(), "-log", "none"])
        .ranks(RANKS)
        .environment("OMP_NUM_THREADS", "1")
        .timeout(300);
    let plain = job.clone().without_redmpi().run();
    let wanted = thermo(plain.exits(0));
    plain.need(wanted.len() > 10, "the plain run printed no numbers");
    for degree in degrees() {
        let outcome = job.clone().degree(*degree).run();
        outcome.has_a_clean_report();
        outcome.need(thermo(&outcome) == wanted, &format!("other numbers than plainly: {:?}", thermo(&outcome)));
        outcome.need(outcome.stdout.matches("Loop time").count() == 1, "the output came not once");
        outcome.need(outcome.number("/messages/verified") > 1000, "few messages were compared");
    }
}
