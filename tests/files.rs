//! Files of replicated programs under real `mpirun`: what a job leaves in its folder is what the same job leaves under plain
//! Open MPI, byte by byte, and nothing else.

mod support;

use std::path::PathBuf;
use support::{Job, Outcome};

/// What is there before any of the programs runs.
const BEFORE: &[(&str, &str)] = &[
    ("log", "was there before\n"),
    ("rotate", "before\n"),
    ("config", "default=1\n"),
    ("obsolete", "x\n"),
    ("before", "before\n"),
    ("checkpoint", "old\n"),
    ("state.0", "step 0\n"),
    ("state.1", "step 0\n"),
    ("state.2", "step 0\n"),
];

/// The names that differ, with both contents' lengths.
fn differences(outcome: &Outcome, wanted: &Outcome) -> Vec<String> {
    let names: std::collections::BTreeSet<&PathBuf> = outcome.files.keys().chain(wanted.files.keys()).collect();
    let told = |files: &Outcome, name: &PathBuf| {
        files.files.get(name).map_or(String::from("not there"), |content| format!("{} bytes", content.len()))
    };
    names
        .into_iter()
        .filter(|name| outcome.files.get(*name) != wanted.files.get(*name))
        .map(|name| format!("{}: {}, plain: {}", name.display(), told(outcome, name), told(wanted, name)))
        .collect()
}

#[track_caller]
fn leaves_the_same(outcome: &Outcome, wanted: &Outcome) {
    let differences = differences(outcome, wanted);
    outcome
        .need(differences.is_empty(), &format!("other files than plain Open MPI's:\n  {}", differences.join("\n  ")));
}

/// Plain, then at degree 2 and 3, in both modes.
#[track_caller]
fn as_plain(job: Job) {
    let plain = job.clone().made_plain().run();
    plain.exits(0);
    for (degree, files) in [(2, "leader"), (2, "verify"), (3, "leader"), (3, "verify")] {
        let outcome = job.clone().degree(degree).set("files", files).run();
        outcome.exits(0);
        outcome.need(outcome.results() == plain.results(), "another result than plain Open MPI's");
        outcome.need(outcome.verdict() == "clean", "the verdict is not clean");
        leaves_the_same(&outcome, &plain);
        outcome.need(outcome.number("/files/opened") > 0, "no file was opened");
        let compared = outcome.number("/files/verified_bytes");
        outcome.need((compared > 0) == (files == "verify"), &format!("{compared} bytes were compared"));
    }
}

#[test]
fn every_call_of_the_c_library() {
    as_plain(Job::new("files").in_folder(BEFORE));
    as_plain(Job::new("files").in_folder(BEFORE).ranks(1));
}

#[test]
fn fortran() {
    as_plain(Job::new("files_fortran").in_folder(BEFORE));
}

#[test]
fn cpp() {
    as_plain(Job::new("files_stream").in_folder(BEFORE));
}

#[test]
fn python() {
    let there = std::process::Command::new("/usr/bin/python3").args(["-c", "import mpi4py"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("left out: there is no mpi4py");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/files_python.py");
    as_plain(Job::installed("/usr/bin/python3").arguments(&["-B", script]).in_folder(BEFORE));
}

#[test]
fn mpi_io_of_ompio_and_romio() {
    let before = &[("before", "before and after\n"), ("obsolete", "x\n")];
    for io in ["ompio", "romio321"] {
        as_plain(Job::new("files_mpiio").in_folder(before).ranks(3).mca("io", io));
    }
}

/// Whoever is late, the leader or a follower.
#[test]
fn a_replica_that_is_late() {
    let plain = Job::new("files_behind").in_folder(BEFORE).ranks(3).made_plain().run();
    plain.exits(0);
    for (degree, late) in [(2, 0), (2, 1), (3, 2)] {
        let job = Job::new("files_behind").arguments(&[late]).in_folder(BEFORE).ranks(3).degree(degree);
        let outcome = job.run();
        outcome.exits(0);
        outcome.need(outcome.results() == plain.results(), "another result than plain Open MPI's");
        leaves_the_same(&outcome, &plain);
    }
}

#[test]
fn a_job_that_is_killed_leaves_the_leaders_files() {
    let job = Job::new("files_killed").in_folder(BEFORE).without_report();
    let plain = job.clone().made_plain().run();
    plain.need(plain.code() != 0, "it was not killed");
    let mut outcome = job.degree(2).run();
    outcome.need(outcome.code() != 0, "it was not killed");
    // What is left of the private copies can be told by its name.
    outcome.files.retain(|name, _| !name.to_string_lossy().starts_with(".redmpi-"));
    leaves_the_same(&outcome, &plain);
    outcome.need(outcome.files[&PathBuf::from("half.1")] == b"first half\n", "half of the file");
}

#[test]
fn what_a_killed_job_has_left_can_be_removed() {
    let folder = support::Folder::new("clean");
    let private = folder.0.join("a/.redmpi-0123456789abcdef-r1");
    let other = folder.0.join("a/.redmpi-notes");
    for made in [&private, &other] {
        std::fs::create_dir_all(made).unwrap();
        std::fs::write(made.join("file"), "x").unwrap();
    }
    let said = support::ask(support::REDMPI, &["clean", folder.0.to_str().unwrap()]);
    assert_eq!(said, format!("removed {}\n", private.display()));
    assert!(!private.exists() && other.join("file").exists());
}

/// The injector hits every buffer that is sent, and then written, in these replicas.
fn hit(degree: u32, replicas: &str, files: &str) -> Job {
    Job::new("files_hit")
        .in_folder(&[])
        .degree(degree)
        .set("files", files)
        .set("inject_rate", 1)
        .set("inject_where", "message")
        .set("inject_replicas", replicas)
}

/// Eight buffers a rank, written to seven files of its own, of which one twice, and to two that both ranks share.
const WRITTEN: u64 = 16;
const BYTES: u64 = WRITTEN * 150_000;

#[test]
fn wrong_bytes_are_put_right_though_the_leader_wrote_them() {
    let plain = hit(1, "0", "leader").made_plain().run();
    plain.exits(0);
    for replica in ["0", "1", "2"] {
        for io in ["ompio", "romio321"] {
            let outcome = hit(3, replica, "verify").mca("io", io).run();
            outcome.exits(0);
            leaves_the_same(&outcome, &plain);
            outcome.need(outcome.verdict() == "corrected", "the verdict is not corrected");
            outcome.need(outcome.bad() == 0, "what was read back is wrong");
            for count in ["mismatched", "corrected"] {
                let number = outcome.number(&format!("/files/{count}"));
                outcome.need(number == WRITTEN, &format!("{number} {count} instead of {WRITTEN}"));
            }
            outcome.need(outcome.number("/files/verified_bytes") == BYTES, "not all bytes were compared");
            // The right process is named, the file, and where in it.
            let events = outcome.events("file");
            outcome.need(events.len() as u64 == WRITTEN, "not one event for each wrong byte");
            let blamed = |event: &String| {
                let native: u64 = event.split(' ').nth(1).and_then(|peer| peer.parse().ok()).unwrap_or(99);
                (native / 2).to_string() == replica
            };
            outcome.need(events.iter().all(blamed), "another process is blamed");
            let names = |name: &str| events.iter().filter(|event| event.contains(name)).count();
            for (name, times) in
                [("stream.0, byte ", 2), ("open.1, byte ", 1), ("shared, byte ", 2), ("mpi, byte ", 2)]
            {
                outcome.need(names(name) == times, &format!("{name}: not named {times} times in {events:?}"));
            }
        }
    }
}

#[test]
fn wrong_bytes_are_detected_at_degree_2() {
    let plain = hit(1, "0", "leader").made_plain().run();
    for replica in ["0", "1"] {
        let outcome = hit(2, replica, "verify").run();
        outcome.exits(65);
        outcome.need(outcome.verdict() == "detected", "the verdict is not detected");
        outcome.need(outcome.number("/files/mismatched") == WRITTEN, "not all wrong bytes were found");
        outcome.need(outcome.number("/files/corrected") == 0, "of two replicas one was believed");
        // The files are the leader's.
        outcome.need(differences(&outcome, &plain).is_empty() == (replica == "1"), "the files are not the leader's");
    }
}

/// Without verification the leader's files are as the leader has written them.
#[test]
fn unverified_files_are_the_leaders() {
    let plain = hit(1, "0", "leader").made_plain().run();
    let outcome = hit(3, "0", "leader").run();
    outcome.need(differences(&outcome, &plain).len() > 5, "files that nobody verifies were put right");
    outcome.need(outcome.number("/files/mismatched") == 0, "files were compared");
    let outcome = hit(3, "1", "leader").run();
    leaves_the_same(&outcome, &plain);
}

/// As if nobody minded: every replica makes every file, and one of them finds it made.
#[test]
fn all_replicas_write() {
    let outcome = Job::new("files_hit").in_folder(&[]).degree(2).set("files", "all").without_report().run();
    outcome.exits(99);
    outcome.need(outcome.stderr.contains("descriptor >= 0"), "it failed elsewhere than at O_EXCL");
    outcome.need(!outcome.files.keys().any(|name| name.to_string_lossy().starts_with(".redmpi-")), "private copies");
}

/// A follower that cannot have its copy says why, and does not go another way.
#[test]
fn a_folder_in_which_nothing_can_be_made() {
    let job = Job::new("files_full").in_folder(BEFORE).degree(2).without_report();
    let outcome = job.run();
    outcome.need(outcome.code() != 0, "it ended well");
    outcome.need(outcome.stderr.contains("private copy of"), "it does not say what is missing");
    outcome.need(outcome.stderr.contains("pml_redmpi_files"), "it does not say what can be done");
}

#[test]
fn lammps_with_dumps_and_restarts() {
    if std::process::Command::new("lmp").arg("-h").output().is_err() {
        eprintln!("left out: there is no lmp");
        return;
    }
    let script = "units lj\natom_style atomic\nlattice fcc 0.8442\nregion box block 0 4 0 4 0 4\ncreate_box 1 box\n\
                  create_atoms 1 box\nmass 1 1.0\nvelocity all create 3.0 87287\npair_style lj/cut 2.5\n\
                  pair_coeff 1 1 1.0 1.0 2.5\nfix 1 all nve\ndump d all custom 10 dump.text id type x y z vx vy vz\n\
                  dump_modify d sort id\ndump b all atom 10 dump.*.bin\nrestart 20 restart.*\nrun 50\n\
                  write_data final.data\n";
    let job = Job::installed("lmp").arguments(&["-in", "in.melt"]).in_folder(&[("in.melt", script)]);
    let mut plain = job.clone().made_plain().run();
    plain.exits(0);
    plain.need(plain.files.len() > 10, "LAMMPS has not written its files");
    // It tells how long everything took.
    plain.files.remove(&PathBuf::from("log.lammps"));
    for files in ["leader", "verify"] {
        let mut outcome = job.clone().degree(2).set("files", files).run();
        outcome.exits(0);
        outcome.need(outcome.verdict() == "clean", "the verdict is not clean");
        outcome.files.remove(&PathBuf::from("log.lammps"));
        leaves_the_same(&outcome, &plain);
    }
}
