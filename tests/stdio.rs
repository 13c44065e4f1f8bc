//! Standard output and error under redmpi: once, byte for byte what plain Open MPI shows, right though a replica was hit, and
//! never lost. docs/stdio.md says how.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Folder, Job, Outcome};

/// Standard error without what redmpi says.
fn of_the_application(stderr: &str) -> String {
    let mut rest = stderr.to_owned();
    while let Some(at) = rest.find("redmpi: ") {
        let mut end = at + rest[at..].find('\n').map_or(rest.len() - at, |length| length + 1);
        while rest[end..].starts_with("        ") {
            end += rest[end..].find('\n').map_or(rest.len() - end, |length| length + 1);
        }
        rest.replace_range(at..end, "");
    }
    rest
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[track_caller]
fn is_like_plain(job: &Job) -> Outcome {
    let plain = job.clone().without_redmpi().run();
    plain.exits(0);
    let outcome = job.run();
    outcome.exits(0);
    outcome.need(outcome.bytes == plain.bytes, "standard output is not the plain run's");
    outcome.need(of_the_application(&outcome.stderr) == plain.stderr, "standard error is not the plain run's");
    outcome.need(outcome.verdict() == "clean", "the verdict is not clean");
    outcome.need(outcome.number("/output/mismatched") == 0, "output differs without a fault");
    outcome
}

#[test]
fn every_way_of_writing() {
    for degree in [2, 3] {
        let outcome = is_like_plain(&Job::new("stdio").degree(degree));
        let bytes = outcome.number("/output/bytes");
        outcome.need(bytes > 30_000 && bytes < outcome.bytes.len() as u64, "what was compared by MPI_Finalize");
        is_like_plain(&Job::new("stdio_fortran").degree(degree));
    }
}

#[test]
fn python_too() {
    let script =
        "import os, sys\nfrom mpi4py import MPI\nif MPI.COMM_WORLD.rank == 0:\n    print('print', 1.5)\n    \
                  os.write(1, b'write\\n')\n    sys.stdout.write('no line end')\n    sys.stderr.write('error\\n')\n";
    let known = Command::new("python3").args(["-c", "import mpi4py"]).output();
    if !known.is_ok_and(|output| output.status.success()) {
        println!("not run: there is no mpi4py");
        return;
    }
    is_like_plain(&Job::installed("python3").arguments(&["-c", script]).degree(2));
}

#[test]
fn one_stream_stays_one() {
    let program = support::program("stdio");
    let command = format!("exec {} both 2>&1", program.display());
    let job = Job::installed("sh").arguments(&["-c", &command]).degree(2);
    let plain = job.clone().without_redmpi().run();
    let outcome = job.run();
    // The verdict is on standard error, and so there too.
    outcome.need(of_the_application(&outcome.stdout) == plain.stdout, "standard output is not the plain run's");
    outcome.need(plain.stdout.lines().count() == 200, "not all lines came out on standard output");
}

/// The first values that rank 1 sends are hit in its memory, and it prints them: messages and output are both corrected.
#[test]
fn a_hit_replica_prints_wrong_numbers() {
    let job = Job::new("stdio").arguments(&["hit"]).set("stdio_delay", 20_000);
    let plain = job.clone().without_redmpi().run();
    let hit = |degree: u32, replica: u32| {
        let job = job.clone().degree(degree).set("inject_rate", 1).set("inject_count", 1);
        job.set("inject_ranks", 1).set("inject_replicas", replica).run()
    };
    for replica in 0..3 {
        let outcome = hit(3, replica);
        outcome.exits(0);
        outcome.need(outcome.number("/injected") == 1, "not one fault");
        outcome.need(lines(&outcome.stdout) == lines(&plain.stdout), "the output is not the majority's");
        outcome.need(outcome.verdict() == "corrected", "the verdict");
        outcome.need(outcome.number("/output/mismatched") == 1, "not one wrong line");
        outcome.need(outcome.number("/output/corrected") == 1, "the line was not corrected");
        let native = u64::from(replica * 2 + 1);
        outcome.need(outcome.processes_with("suspected") == BTreeSet::from([native]), "another process is suspected");
        let events = outcome.events("output");
        outcome.need(events.len() == 1 && events[0].contains("stdout line 1"), "the event");
        let named = format!("rank 1, stdout line 1: replica {replica} (native {native}, ");
        outcome.need(outcome.stderr.matches(&named).count() == 1, "the dissenter is not named once");
    }
    for replica in 0..2 {
        let outcome = hit(2, replica);
        outcome.exits(65);
        outcome.need(outcome.verdict() == "detected", "the verdict");
        outcome.need(outcome.number("/output/mismatched") >= 1, "no wrong line");
        outcome.need(outcome.number("/output/corrected") == 0, "corrected, with two replicas");
        outcome.need(outcome.stdout.lines().count() == plain.stdout.lines().count(), "the leader's lines, once");
        if replica == 1 {
            // Rank 1 of sphere 0 was not hit; its neighbour has received nothing wrong.
            outcome.need(lines(&outcome.stdout) == lines(&plain.stdout), "the output is not the leader's");
        }
    }
}

#[test]
fn a_hundred_megabytes() {
    for degree in [2, 3] {
        is_like_plain(&Job::new("stdio").ranks(1).arguments(&["large", "100"]).degree(degree));
    }
}

/// What was written before is out, whoever ends the job and how, and once.
#[test]
fn nothing_is_lost_when_a_job_is_ended() {
    for degree in [2, 3] {
        let outcome = Job::new("stdio").arguments(&["abort"]).degree(degree).without_report().run();
        outcome.exits(7);
        for (text, count) in [("before the abort\n", 2), ("and no line end", 2)] {
            outcome.need(outcome.stdout.matches(text).count() == count, text);
        }
        outcome.need(outcome.stderr.matches("error before the abort\n").count() == 2, "standard error");

        let outcome = Job::new("stdio").arguments(&["crash"]).degree(degree).without_report().run();
        outcome.need(outcome.code() != 0, "a crash is no success");
        outcome.need(outcome.stdout.contains("before the crash\n"), "what was written before");
        outcome.need(outcome.stdout.matches("the last line\nand half a line").count() == 1, "what it wrote last");

        for late in 0..degree {
            let job = Job::new("stdio").arguments(&["kill"]).degree(degree).without_report();
            let outcome = job.environment("STDIO_LATE", &late.to_string()).run();
            outcome.need(outcome.code() != 0, "a killed process is no success");
            let wanted: Vec<String> = (0..20).map(|line| format!("line {line} of rank 0")).collect();
            let shown: Vec<&str> = outcome.stdout.lines().filter(|line| line.ends_with("of rank 0")).collect();
            outcome.need(shown.len() >= 9 && shown == wanted[..shown.len()], "what rank 0 wrote");
        }
    }
}

/// A job that is watched while it runs.
fn start(arguments: &[&str], mark: &str) -> std::process::Child {
    let mut command = Command::new("mpirun");
    command.args([
        "--oversubscribe",
        "--bind-to",
        "none",
        "--mca",
        "mpi_yield_when_idle",
        "1",
        "--mca",
        "coll",
        "redmpi",
    ]);
    command.args(arguments);
    command.env("OMPI_MCA_mca_base_component_path", support::component_path());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("REDMPI_TEST_JOB", mark).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn is_left(mark: &str) -> bool {
    let wanted = format!("REDMPI_TEST_JOB={mark}");
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
    })
}

#[test]
fn a_replica_that_is_late_keeps_nothing_back_for_long() {
    let program = support::program("stdio");
    for (degree, late) in [("2", "1"), ("3", "2"), ("3", "0")] {
        let delay =
            ["--mca", "pml_redmpi_degree", degree, "--mca", "pml_redmpi_stdio_delay", "500", "-x", "STDIO_LATE"];
        let mut arguments: Vec<&str> = delay.to_vec();
        arguments.extend(["-n", degree, program.to_str().unwrap(), "late"]);
        // `-x NAME` alone passes the value on; the variable is set for this child only.
        let words: Vec<String> = arguments.iter().map(|word| word.to_string()).collect();
        let words: Vec<String> = words
            .into_iter()
            .map(|word| if word == "STDIO_LATE" { format!("STDIO_LATE={late}") } else { word })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut job = start(&words, "late");
        let mut lines = BufReader::new(job.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("first"));
        let begin = Instant::now();
        assert_eq!(lines.next().as_deref(), Some("second"));
        // The one that is late sleeps six seconds.
        assert!(begin.elapsed() < Duration::from_secs(4), "{degree} {late}: {:?}", begin.elapsed());
        assert_eq!(lines.next(), None);
        assert!(job.wait().unwrap().success());
    }
}

#[test]
fn no_helper_outlives_a_job_whose_mpirun_was_killed() {
    let program = support::program("stdio");
    let mark = format!("killed-{}", std::process::id());
    let words =
        ["--mca", "pml_redmpi_degree", "2", "-x", "STDIO_LATE=1", "-n", "2", program.to_str().unwrap(), "late"];
    let mut job = start(&words, &mark);
    let mut first = String::new();
    BufReader::new(job.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "first\n");
    assert!(is_left(&mark));
    job.kill().unwrap();
    job.wait().unwrap();
    let begin = Instant::now();
    while is_left(&mark) {
        assert!(begin.elapsed() < Duration::from_secs(20), "processes are left");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A child that goes on after its parent may write for a while, and cannot keep the job.
#[test]
fn a_child_that_holds_the_streams() {
    let outcome = Job::new("stdio").ranks(1).arguments(&["child"]).degree(2).run();
    outcome.exits(0);
    outcome.need(outcome.stdout == "before the child\nthe child writes later\n", "what both wrote, once");
    outcome.need(outcome.elapsed < Duration::from_secs(15), "the child has kept the job");
}

#[test]
fn leader_all_and_tag() {
    let job = Job::new("stdio").arguments(&["hit"]);
    let plain = job.clone().without_redmpi().run();
    let wanted = lines(&plain.stdout);
    for degree in [2, 3] {
        let outcome = job.clone().degree(degree).set("stdio", "leader").run();
        outcome.need(lines(&outcome.stdout) == wanted, "leader: not once");
        let outcome = job.clone().degree(degree).set("stdio", "all").run();
        outcome.need(outcome.stdout.lines().count() == wanted.len() * degree as usize, "all: not from all");
        let outcome = job.clone().degree(degree).set("stdio", "tag").run();
        let mut tagged: Vec<String> = Vec::new();
        for line in &wanted {
            let rank = &line[5..6];
            tagged.extend((0..degree).map(|replica| format!("[{rank}.{replica}] {line}")));
        }
        tagged.sort();
        outcome.need(lines(&outcome.stdout) == tagged, "tag: not each line with its place");
        outcome.need(outcome.verdict() == "clean", "the verdict");
    }
}

/// A cluster to which only the libraries were copied.
#[test]
fn without_the_command_the_leaders_output_is_shown() {
    let folder = Folder::new(&format!("lib-{}", std::process::id()));
    let components = folder.0.join("redmpi/components");
    std::fs::create_dir_all(&components).unwrap();
    let built = support::components();
    for file in ["mca_pml_redmpi.so", "mca_coll_redmpi.so"] {
        std::fs::copy(built.join(file), components.join(file)).unwrap();
    }
    std::fs::copy(built.join("../libredmpi.so"), folder.0.join("redmpi/libredmpi.so")).unwrap();
    let native = support::component_path();
    let path = format!("{}:{}", components.display(), native.split_once(':').unwrap().1);
    let outcome = Job::new("stdio").arguments(&["hit"]).degree(2).mca("mca_base_component_path", &path).run();
    outcome.exits(0);
    let plain = Job::new("stdio").arguments(&["hit"]).without_redmpi().run();
    outcome.need(lines(&outcome.stdout) == lines(&plain.stdout), "the leader's output, once");
    let warnings = outcome.stderr.matches("redmpi: warning: output is not compared").count();
    outcome.need(warnings == 1, "not one warning");
    outcome.need(outcome.stderr.contains("the redmpi command is neither"), "the warning does not say why");
    outcome.need(outcome.stderr.contains("Note: output is not compared"), "the verdict does not say it");
    outcome.need(outcome.number("/output/bytes") == 0, "something was compared");
    assert!(Path::new(support::REDMPI).exists());
}
