//! What replicas are told of clocks, random numbers, process ids and names: programs that send all of it in messages. With
//! everything on, no message differs; with a source switched off, its messages differ, and no others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

mod support;

use support::{Job, Outcome, REDMPI};

fn source(name: &str) -> String {
    format!("{}/tests/programs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The library that `sources` loads while it runs.
fn plugin() -> String {
    static MADE: OnceLock<String> = OnceLock::new();
    MADE.get_or_init(|| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sources_plugin.so");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-o"])
            .arg(&file)
            .arg(source("sources_plugin.c"))
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        file.to_str().unwrap().to_owned()
    })
    .clone()
}

/// The library that is loaded before the program.
fn preload() -> PathBuf {
    let file = Path::new(REDMPI).with_file_name("libredmpi_preload.so");
    assert!(file.exists(), "{} is missing: run `cargo build` with the same profile first", file.display());
    file
}

/// By plain mpirun, with the library preloaded as docs/determinism.md says.
fn preloaded(job: Job) -> Job {
    job.options(&["-x", &format!("LD_PRELOAD={}", preload().display())])
}

/// Tags of the messages that differed.
fn differing(outcome: &Outcome) -> BTreeSet<i64> {
    let events = outcome.report()["events"].as_array().unwrap();
    events.iter().filter_map(|event| event["tag"].as_i64()).filter(|tag| *tag > 0).collect()
}

const RANDOM: std::ops::Range<i64> = 1..20;
const IDS: std::ops::Range<i64> = 20..40;
const NAMES: std::ops::Range<i64> = 40..60;
const CLOCKS: std::ops::Range<i64> = 60..80;
/// Random number, process id and clock of a library that was loaded later.
const LOADED: [i64; 3] = [80, 81, 82];

#[test]
fn after_init_by_plain_mpirun() {
    for degree in [2, 3] {
        Job::new("sources").arguments(&[plugin()]).degree(degree).run().is_clean();
    }
}

#[test]
fn before_init_by_the_command() {
    for degree in [2, 3] {
        Job::new("sources").arguments(&[plugin(), "before".to_owned()]).degree(degree).by_run().run().is_clean();
    }
}

#[test]
fn before_init_by_plain_mpirun_with_the_library() {
    let job = Job::new("sources").arguments(&[plugin(), "before".to_owned()]).degree(2);
    preloaded(job).run().is_clean();
}

/// The same program, without anything that makes it behave: what the tests above see if nothing works.
#[test]
fn a_source_that_is_off_differs_and_no_other() {
    let without = |variable: &str, value: &str| {
        let job =
            Job::new("sources").arguments(&[plugin()]).degree(2).set(variable, value).set("exit_on_detection", 0);
        let outcome = job.run();
        outcome.exits(0);
        outcome.need(outcome.verdict() == "detected", "nothing differed");
        let tags = differing(&outcome);
        println!("{variable} = {value}: {tags:?}");
        tags
    };
    let expect = |tags: BTreeSet<i64>, all: std::ops::Range<i64>, loaded: i64, least: &[i64]| {
        assert!(tags.iter().all(|tag| all.contains(tag) || *tag == loaded), "others differ too: {tags:?}");
        assert!(least.iter().chain([&loaded]).all(|tag| tags.contains(tag)), "some do not differ: {tags:?}");
    };
    expect(without("same_random", "0"), RANDOM, LOADED[0], &[1, 2, 3, 4, 5, 6, 7, 8]);
    expect(without("same_pid", "0"), IDS, LOADED[1], &[20, 22]);
    // Whole seconds and CPU time may be the same by chance.
    expect(without("same_clock", "mpi"), CLOCKS, LOADED[2], &[60, 61, 63, 68, 69]);
}

#[test]
fn before_init_without_the_library() {
    // `before` would have the program check that ids stay what they were, which only the library can keep.
    let script = concat!(
        "import os,random;before=random.random();from mpi4py import MPI;w=MPI.COMM_WORLD;",
        "w.sendrecv(before,(w.rank+1)%w.size,5,None,(w.rank-1)%w.size,5);print('RESULT x y') if w.rank==0 else 0"
    );
    if !python() {
        return;
    }
    let job = Job::installed("/usr/bin/python3").arguments(&["-c", script]).degree(2).set("exit_on_detection", 0);
    let bare = job.clone().run();
    bare.need(bare.verdict() == "detected", "Python's random numbers were the same without the library");
    let with = preloaded(job.clone()).run();
    with.exits(0).need(with.verdict() == "clean", "Python's random numbers differ with the library");
    let off = preloaded(job).set("same_random", 0).run();
    off.need(off.verdict() == "detected", "same_random = 0 does not hold before MPI_Init");
}

/// Every process has a host name of its own: only the leader's is told.
#[test]
fn names_of_machines() {
    let command =
        format!("hostname host$OMPI_COMM_WORLD_RANK && exec {} {}", support::program("sources").display(), plugin());
    let words = ["--uts", "sh", "-c", &command];
    let able = Command::new("unshare").args(["--uts", "hostname", "redmpi-test"]).output();
    if !able.is_ok_and(|output| output.status.success()) {
        println!("not run: `unshare --uts` is not allowed here");
        return;
    }
    let job = Job::installed("unshare").arguments(&words).degree(2).mca("btl_vader_single_copy_mechanism", "none");
    let same = job.clone().run();
    same.exits(0).need(same.verdict() == "clean", "names of machines differ");
    let own = job.set("same_host", 0).set("exit_on_detection", 0).run();
    own.exits(0).need(own.verdict() == "detected", "each process has its own name, and nothing differed");
    let tags = differing(&own);
    assert!(tags.iter().all(|tag| NAMES.contains(tag)), "others differ too: {tags:?}");
    assert!([40, 41, 42].iter().all(|tag| tags.contains(tag)), "{tags:?}");
}

#[test]
fn cpp() {
    Job::new("sources_stream").degree(3).run().is_clean();
    Job::new("sources_stream").arguments(&["before"]).degree(2).by_run().run().is_clean();
    let off = Job::new("sources_stream").degree(2).set("same_random", 0).set("exit_on_detection", 0).run();
    let tags = differing(&off);
    assert_eq!(tags, BTreeSet::from([1, 2, 3, 4, 5]), "random numbers of C++");
    let off = Job::new("sources_stream").degree(2).set("same_clock", "mpi").set("exit_on_detection", 0).run();
    assert_eq!(differing(&off), BTreeSet::from([65, 66, 67]), "clocks of C++");
}

#[test]
fn fortran() {
    for degree in [2, 3] {
        Job::new("sources_fortran").degree(degree).by_run().run().is_clean();
    }
    let bare = Job::new("sources_fortran").degree(2).set("exit_on_detection", 0).run();
    let tags = differing(&bare);
    // Asked before MPI_Init, without the library: random number, count, and the process.
    assert!([1, 2, 5].iter().all(|tag| tags.contains(tag)), "{tags:?}");
    assert!(tags.iter().all(|tag| *tag <= 5), "asked after MPI_Init: {tags:?}");
}

fn python() -> bool {
    let there = Command::new("/usr/bin/python3").args(["-c", "import mpi4py"]).output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        println!("not run: the system's Python has no mpi4py");
    }
    there
}

#[test]
fn python_programs() {
    if !python() {
        return;
    }
    for degree in [2, 3] {
        let job = Job::installed("/usr/bin/python3").arguments(&["-B", &source("sources_python.py")]).degree(degree);
        job.clone().by_run().run().has_a_clean_report();
        preloaded(job).run().has_a_clean_report();
    }
    // Through a script, which is the first program of its process.
    let command = format!("x=$(mktemp -u); /usr/bin/python3 -B {}; exit $?", source("sources_python.py"));
    Job::installed("sh").arguments(&["-c", &command]).degree(2).by_run().run().has_a_clean_report();
}

/// Children are not started with the same random numbers again and again.
#[test]
fn programs_of_one_rank_have_different_streams() {
    let count = "for i in 1 2 3 4; do mktemp -u; done | sort -u | wc -l";
    let command = format!("if [ $({count}) = 4 ]; then exec {}; fi", support::program("ring").display());
    Job::installed("sh").arguments(&["-c", &command]).degree(2).by_run().run().has_a_clean_report();
}

/// What the user preloads, and exports, stays.
#[test]
fn the_users_own_preloads_are_kept() {
    let command =
        "case $LD_PRELOAD in *libredmpi_preload.so:*libm.so.6) ;; *) echo $LD_PRELOAD >&2; exit 9 ;; esac; \
                   [ $KEPT = yes ] || exit 8; exec ";
    let command = format!("{command}{}", support::program("ring").display());
    let job = Job::installed("sh").arguments(&["-c", &command]).degree(2).by_run();
    job.options(&["-x", "KEPT=yes", "-x", "LD_PRELOAD=libm.so.6"]).run().has_a_clean_report();
}

#[test]
fn outside_a_replicated_job_nothing_is_touched() {
    let script = "import os;print(os.getpid() < 2**22, abs(__import__('time').time()) > 1e9)";
    let output = Command::new("/usr/bin/python3").args(["-c", script]).env("LD_PRELOAD", preload()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True True\n");
    // Degree 1, and redmpi not asked for.
    let job = Job::unasked("ring").options(&["-x", &format!("LD_PRELOAD={}", preload().display())]);
    job.run().exits(0).has_the_plain_result();
}
