//! Real jobs: the programs of `tests/programs` under `mpirun`, with and without redmpi, healthy, with faults
//! injected, and wrongly configured. What is asserted is what a user sees: results, exit status, messages, report.
//!
//! Needs the components of the same profile (`cargo build --release`, then `cargo test --release --test integration`).
//! `REDMPI_TEST_LARGE=1` adds the job of 192 processes, `REDMPI_TEST_BIG=1` the message of more than 2 GiB.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use support::{ask, Folder, Job, Outcome};

fn asked_for(name: &str) -> bool {
    let asked = std::env::var(name).is_ok_and(|value| value == "1");
    if !asked {
        eprintln!("left out: {name}=1 asks for it");
    }
    asked
}

// ---------------------------------------------------------------------------------------------------------------
// Healthy jobs

/// One test for each program: at every degree what plain Open MPI gives, and a clean verdict.
macro_rules! programs {
    ($($name:ident $(($($argument:expr),*))? on $ranks:expr, $($degree:literal)*;)*) => {
        mod healthy {
            use super::support::Job;
            $(
                #[test]
                fn $name() {
                    let arguments: &[i32] = &[$($($argument),*)?];
                    for degree in [$($degree),*] {
                        Job::new(stringify!($name)).arguments(arguments).ranks($ranks).degree(degree).run().is_clean();
                    }
                }
            )*
        }
    };
}

programs! {
    p2p_modes on 3, 1 2 3;
    persistent(30) on 3, 1 2 3;
    datatypes on 2, 1 2 3;
    truncate on 2, 1 2 3;
    wildcard(6) on 4, 1 2 3 5;
    communicators(300) on 3, 1 2 3;
    collectives on 3, 1 2 3;
    ring(20, 5000) on 4, 1 2 3 5;
    inject_fresh(50, 3000) on 3, 1 2 3;
    wtime on 2, 1 2 3;
    bigcount on 2, 1 2 3;
    threads(30) on 2, 1 2 3;
    fortran_p2p on 3, 1 2 3;
    fortran_f08 on 3, 1 2 3;
}

/// One rank: everything is a message to oneself.
#[test]
fn one_virtual_rank() {
    for name in ["p2p_modes", "wildcard", "datatypes", "collectives"] {
        for degree in [2, 3] {
            Job::new(name).ranks(1).degree(degree).run().is_clean();
        }
    }
}

/// Results as plain Open MPI's, or a clear refusal; never wrong data or a hang.
#[test]
fn onesided() {
    Job::new("onesided").ranks(2).degree(1).run().is_clean();
    for degree in [2, 3] {
        let outcome = Job::new("onesided").ranks(2).degree(degree).run();
        if outcome.code() == 0 {
            outcome.is_clean();
        } else {
            outcome.is_refused(&["one-sided"]);
        }
    }
}

#[test]
fn every_switch_does_the_same() {
    for degree in [1, 2, 3] {
        let job = Job::new("ring").ranks(2).degree(degree);
        job.clone().coll().run().is_clean();
        job.clone().pml().run().is_clean();
        job.clone().both().run().is_clean();
    }
    // Everything that goes through a coll module or a pml, also where only the other was asked for.
    Job::new("collectives").ranks(2).degree(2).pml().run().is_clean();
    Job::new("communicators").arguments(&[30]).ranks(2).degree(2).both().run().is_clean();
    Job::new("p2p_modes").ranks(2).degree(2).pml().run().is_clean();
}

#[test]
fn the_command_and_a_prepared_shell() {
    Job::new("ring").ranks(2).degree(3).by_run().run().is_clean();
    Job::new("ring").arguments(&[4, 100]).ranks(3).degree(2).by_run().run().is_clean();
    Job::new("ring").ranks(2).degree(3).by_shell().run().is_clean();
    Job::new("ring").ranks(2).degree(2).by_shell().pml().run().is_clean();
}

#[test]
fn both_protocols_and_every_digest() {
    for (protocol, digest) in choices() {
        for name in ["p2p_modes", "datatypes", "wildcard", "collectives"] {
            let outcome = Job::new(name).ranks(2).degree(2).set("protocol", protocol).set("digest", digest).run();
            outcome.is_clean();
            outcome.need(outcome.report()["protocol"] == protocol, "the report names another protocol");
            outcome.need(outcome.report()["digest"] == digest, "the report names another digest");
        }
    }
    for name in ["p2p_modes", "persistent", "datatypes", "truncate", "wildcard", "communicators", "fortran_f08"] {
        Job::new(name).ranks(2).degree(3).set("protocol", "alltoall").run().is_clean();
    }
    Job::new("ring").ranks(2).degree(5).set("protocol", "alltoall").run().is_clean();
}

/// Without shared memory, and with it but without the single copy: other paths through the host.
#[test]
fn other_transports_of_the_host() {
    for (name, value) in [("btl", "tcp,self"), ("btl_vader_single_copy_mechanism", "none")] {
        for program in ["p2p_modes", "datatypes", "truncate", "wildcard"] {
            Job::new(program).ranks(2).degree(2).mca(name, value).run().is_clean();
        }
    }
}

#[test]
fn standard_output_of_the_leader_or_of_all() {
    let job = Job::new("ring").ranks(2).degree(3);
    job.clone().set("stdio", "leader").run().is_clean();
    let all = job.set("stdio", "all").run();
    all.exits(0).has_the_plain_result_in_every_replica();
    all.need(all.verdict() == "clean", "the verdict is not clean");
}

#[test]
fn the_report_has_all_that_it_should() {
    let outcome = Job::new("ring").ranks(2).degree(3).run();
    outcome.is_clean();
    let keys = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default()
    };
    let has = |value: &serde_json::Value, names: &str| {
        for name in names.split_whitespace() {
            outcome.need(keys(value).contains(name), &format!("`{name}` is missing in {value}"));
        }
    };
    let report = outcome.report();
    has(report, "redmpi open_mpi degree virtual_size native_size protocol digest messages collectives injected");
    has(report, "verdict processes events output");
    has(&report["output"], "bytes mismatched corrected");
    has(&report["messages"], "sent verified mismatched corrected uncorrectable");
    has(&report["collectives"], "called verified mismatched corrected uncorrectable");
    let processes = report["processes"].as_array().unwrap();
    outcome.need(processes.len() == 6, "not six processes");
    for (native, process) in processes.iter().enumerate() {
        has(process, "native virtual replica host pid sent suspected injected corrected");
        outcome.need(process["native"] == native, "processes are not in order");
        // By formula: native = replica * N + virtual.
        outcome.need(process["virtual"] == native % 2 && process["replica"] == native / 2, "the rank map");
        outcome.need(process["pid"].as_u64().is_some_and(|pid| pid > 1), "a process without pid");
        outcome.need(process["host"].as_str().is_some_and(|host| !host.is_empty()), "a process without host");
    }
    let pids: BTreeSet<u64> = outcome.per_process("pid").into_values().collect();
    outcome.need(pids.len() == 6, "two processes have one pid");
    // 20 rounds of one message on every native rank, none of them inside a collective.
    outcome.need(outcome.number("/messages/sent") == 20 * 6, "messages.sent is not what the program sends");
    outcome.need(outcome.number("/messages/verified") == 20 * 6, "messages.verified is not what is received");
    outcome.need(outcome.number("/collectives/called") >= 20 * 6, "collectives.called misses calls");
}

/// Installed and not asked for: not a word, and nothing else than without.
#[test]
fn installed_but_not_asked_for() {
    for name in ["ring", "collectives", "communicators"] {
        let outcome = Job::unasked(name).ranks(4).run();
        outcome.exits(0).has_the_plain_result();
        let said = format!("{}{}", outcome.stdout, outcome.stderr).to_lowercase();
        outcome.need(!said.contains("redmpi"), "redmpi says something unasked");
    }
}

#[test]
fn ompi_info_lists_every_variable_with_a_description() {
    for framework in ["pml", "coll"] {
        let text = ask("ompi_info", &["--param", framework, "redmpi", "--level", "9", "--parsable"]);
        for name in [
            "degree",
            "protocol",
            "digest",
            "rank_map",
            "stdio",
            "stdio_delay",
            "report",
            "exit_on_detection",
            "inject_rate",
            "inject_seed",
            "inject_replicas",
            "inject_ranks",
            "inject_count",
        ] {
            let of = |prefix: &str, field: &str| -> Option<String> {
                let wanted = format!(":param:{prefix}_redmpi_{name}:{field}:");
                text.lines().find_map(|line| Some(line.split_once(&wanted)?.1.to_owned()))
            };
            // The variables belong to one of the frameworks and have synonyms in the other.
            let help = of(framework, "help").unwrap_or_else(|| panic!("{framework}: no {name} in\n{text}"));
            assert!(help.trim_matches('"').len() > 20, "{framework}: {name} is not described: {help}");
        }
        let plain = ask("ompi_info", &["--param", framework, "redmpi", "--level", "9"]);
        for value in ["msgplushash", "alltoall", "crc32c", "xxh3", "sha1", "memcmp"] {
            assert!(plain.contains(value), "{framework}: {value} is not listed in\n{plain}");
        }
    }
}

#[test]
fn how_programs_end() {
    for degree in [1, 2, 3] {
        let aborted = Job::new("abort").ranks(2).degree(degree).without_report().timeout(30).run();
        aborted.exits(7);
        let never = Job::new("noinit").ranks(2).degree(degree).without_report().timeout(30).run();
        never.exits(0);
        let lines = never.stdout.lines().filter(|line| *line == "never called MPI").count();
        never.need(lines == 2 * degree as usize, "not one line of each process");
        Job::new("early_exit").ranks(2).degree(degree).without_report().timeout(30).run().exits(5);
    }
}

#[test]
fn sixty_four_ranks_three_times() {
    if asked_for("REDMPI_TEST_LARGE") {
        Job::new("ring").arguments(&[5, 1000]).ranks(64).degree(3).timeout(400).run().is_clean();
    }
}

#[test]
fn a_message_of_more_than_two_gib() {
    if asked_for("REDMPI_TEST_BIG") {
        Job::new("bigcount").environment("REDMPI_TEST_BIG", "1").ranks(2).degree(2).timeout(400).run().is_clean();
    }
}

/// The runner itself: a job that does not end is ended, all of it, and told of.
#[test]
fn a_job_that_hangs_is_ended() {
    let hangs = Job::plain("ring").arguments(&[1_000_000_000]).timeout(2);
    let panic = std::panic::catch_unwind(|| hangs.run()).err().expect("the job has to time out");
    let text = panic.downcast_ref::<String>().expect("a panic with a text");
    assert!(text.contains("took longer") && text.matches("programs/ring 1000000000").count() > 2, "{text}");
    // The next job sees whatever is left, processes and shared memory.
    Job::plain("ring").run().exits(0);
}

// ---------------------------------------------------------------------------------------------------------------
// Faults

/// Protocols with the digests that they allow.
fn choices() -> [(&'static str, &'static str); 7] {
    [
        ("msgplushash", "crc32c"),
        ("msgplushash", "xxh3"),
        ("msgplushash", "sha1"),
        ("alltoall", "crc32c"),
        ("alltoall", "xxh3"),
        ("alltoall", "sha1"),
        ("alltoall", "memcmp"),
    ]
}

const RANKS: u32 = 3;
const MESSAGES: u64 = 40;

/// 40 messages of this size and type from each rank, every one from a buffer written for it.
fn fresh(bytes: u32, kind: &str, window: u32) -> Job {
    Job::new("inject_fresh")
        .arguments(&[&MESSAGES.to_string(), &bytes.to_string(), kind, &window.to_string()])
        .ranks(RANKS)
        .timeout(60)
}

/// Every fault is seen once, put right, and laid at the right door; no replica notices anything.
#[track_caller]
fn is_corrected(outcome: &Outcome) {
    outcome.exits(0).has_the_plain_result_in_every_replica();
    let injected = outcome.number("/injected");
    outcome.need(injected > 0, "nothing was injected");
    for count in ["mismatched", "corrected"] {
        let number = outcome.number(&format!("/messages/{count}"));
        outcome.need(number == injected, &format!("{number} {count}, but {injected} injected"));
    }
    outcome.need(outcome.number("/messages/uncorrectable") == 0, "something could not be corrected");
    outcome.need(outcome.bad() == 0, "a replica received wrong data");
    outcome.need(outcome.verdict() == "corrected", "the verdict is not corrected");
    outcome.need(outcome.verdict_line().contains("corrected"), "the verdict's line does not say corrected");
    // No message goes to two receivers here, so the counts agree process by process.
    let suspected = outcome.per_process("suspected");
    outcome.need(suspected == outcome.per_process("injected"), "suspected and injected are not the same");
    let corrected: u64 = outcome.per_process("corrected").values().sum();
    outcome.need(corrected == injected, "the processes' corrections do not add up");
}

#[test]
fn one_faulty_replica_of_three_is_corrected() {
    for (protocol, digest) in choices() {
        for (bytes, kind, window) in [(300, "contig", 1), (30_000, "vector", 4)] {
            let job = fresh(bytes, kind, window).degree(3).set("protocol", protocol).set("digest", digest);
            let outcome =
                job.set("stdio", "all").set("inject_rate", 4).set("inject_seed", 7).set("inject_replicas", 1).run();
            is_corrected(&outcome);
            outcome.need(outcome.report()["digest"] == digest, "another digest was used");
        }
    }
}

/// Whichever replica it is, at every message; then in all sizes.
#[test]
fn every_message_of_a_replica_is_wrong() {
    let hit = |job: Job, replica: u32| {
        let outcome = job.degree(3).set("stdio", "all").set("inject_rate", 1).set("inject_replicas", replica).run();
        is_corrected(&outcome);
        outcome.need(outcome.number("/injected") == u64::from(RANKS) * MESSAGES, "a message was not hit");
        let replicas: BTreeSet<u64> =
            outcome.processes_with("suspected").into_iter().map(|native| native / u64::from(RANKS)).collect();
        outcome.need(replicas == BTreeSet::from([u64::from(replica)]), "another replica is suspected");
    };
    for protocol in ["msgplushash", "alltoall"] {
        for replica in 0..3 {
            hit(fresh(500, "contig", 2).set("protocol", protocol), replica);
        }
        for bytes in [1, 8, 4096, 5000, 70_000, 300_000] {
            hit(fresh(bytes, "contig", 1).set("protocol", protocol), 1);
        }
        hit(fresh(100_000, "vector", 2).set("protocol", protocol), 2);
    }
}

#[test]
fn two_faulty_replicas_of_five_are_corrected() {
    for protocol in ["msgplushash", "alltoall"] {
        let job = fresh(300, "contig", 2).degree(5).set("protocol", protocol).set("stdio", "all");
        is_corrected(&job.set("inject_rate", 1).set("inject_replicas", "1,3").run());
    }
}

#[test]
fn different_faults_in_different_places_are_corrected() {
    // Replica 0 is hit on virtual rank 0 alone, so that the leader is the one that is wrong.
    let leader = fresh(300, "contig", 4).degree(3).set("stdio", "all").set("inject_rate", 2);
    let outcome = leader.set("inject_replicas", 0).set("inject_ranks", 0).run();
    is_corrected(&outcome);
    outcome.need(outcome.processes_with("injected") == BTreeSet::from([0]), "another process was hit");
}

#[test]
fn degree_two_detects() {
    for (protocol, digest) in choices() {
        let job = fresh(300, "vector", 2).degree(2).set("protocol", protocol).set("digest", digest);
        // What the followers say of the faults that reached them is wanted too.
        let outcome = job.set("inject_rate", 4).set("inject_replicas", 1).set("stdio", "all").run();
        outcome.exits(65);
        is_detected(&outcome);
    }
    // The status can be turned off; nothing else.
    let outcome = fresh(300, "contig", 2)
        .degree(2)
        .set("inject_rate", 4)
        .set("inject_replicas", 0)
        .set("exit_on_detection", 0)
        .run();
    outcome.exits(0);
    is_detected(&outcome);
}

#[track_caller]
fn is_detected(outcome: &Outcome) {
    let injected = outcome.number("/injected");
    outcome.need(injected > 0, "nothing was injected");
    for count in ["mismatched", "uncorrectable"] {
        let number = outcome.number(&format!("/messages/{count}"));
        outcome.need(number == injected, &format!("{number} {count}, but {injected} injected"));
    }
    outcome.need(outcome.number("/messages/corrected") == 0, "degree 2 cannot correct");
    outcome.need(outcome.bad() > 0, "the faults did not reach the program, so nothing was tested");
    outcome.need(outcome.verdict() == "detected", "the verdict is not detected");
    outcome.need(outcome.verdict_line().contains("detected"), "the verdict's line does not say detected");
    // Of two senders that differ nobody can say which is right: both are named.
    let ranks = |field: &str| -> BTreeSet<u64> {
        outcome.processes_with(field).into_iter().map(|native| native % u64::from(RANKS)).collect()
    };
    outcome.need(ranks("suspected") == ranks("injected"), "other virtual ranks are suspected than were hit");
}

#[test]
fn a_vote_without_majority_ends_the_job() {
    for protocol in ["msgplushash", "alltoall"] {
        for window in [1, 4] {
            // Two replicas are wrong in different bits, the third is right: three different messages.
            let job = fresh(3000, "contig", window).degree(3).set("protocol", protocol);
            let outcome = job.set("inject_rate", 1).set("inject_replicas", "0,1").run();
            outcome.need(outcome.code() != 0, "the job ended as if nothing had been");
            outcome.need(outcome.code() != 65, "nothing was only detected here");
            outcome.need(outcome.results().is_empty(), "the job went on to its end");
            let said = outcome.message().to_lowercase();
            for word in ["majority", "mpi_comm_world", "tag", "native", "rank"] {
                outcome.need(said.contains(word), &format!("the message does not say `{word}`"));
            }
            if outcome.report.is_some() {
                outcome.need(outcome.verdict() == "failed", "the verdict is not failed");
            }
        }
    }
}

/// Faults in collectives' messages too. (A process whose memory was hit may itself go on with wrong data; the
/// replicas that were not hit must not notice.)
#[test]
fn a_ring_with_collectives_survives() {
    for protocol in ["msgplushash", "alltoall"] {
        let job = Job::new("ring").arguments(&[40, 2000]).ranks(4).degree(3).set("protocol", protocol);
        let outcome = job.set("inject_rate", 10).set("inject_replicas", 1).timeout(60).run();
        outcome.exits(0).has_the_plain_result();
        outcome.need(outcome.number("/injected") > 0, "nothing was injected");
        outcome.need(outcome.verdict() == "corrected", "the verdict is not corrected");
        let sum = |count: &str| {
            outcome.number(&format!("/messages/{count}")) + outcome.number(&format!("/collectives/{count}"))
        };
        outcome.need(sum("mismatched") >= outcome.number("/injected"), "a fault was not seen");
        outcome.need(sum("corrected") == sum("mismatched"), "a fault was not corrected");
        outcome.need(outcome.number("/messages/mismatched") <= outcome.number("/injected"), "more than were hit");
        outcome.need(outcome.processes_with("suspected") == outcome.processes_with("injected"), "wrong suspects");
    }
}

#[test]
fn injection_is_repeatable_and_bounded() {
    let job = |seed: u64| {
        let job = fresh(300, "contig", 1).degree(3).set("stdio", "all").set("inject_replicas", 2);
        job.set("inject_rate", 6).set("inject_seed", seed)
    };
    let first = job(11).run();
    let second = job(11).run();
    let other = job(12).run();
    for outcome in [&first, &second, &other] {
        is_corrected(outcome);
    }
    let seen = |outcome: &Outcome| -> (BTreeMap<u64, u64>, Vec<String>, Vec<String>) {
        (outcome.per_process("injected"), outcome.events("injected"), outcome.events("corrected"))
    };
    first.need(seen(&first) == seen(&second), "the same seed gave other faults");
    first.need(!first.events("injected").is_empty(), "the report has no events of injection");
    first.need(seen(&first) != seen(&other), "another seed gave the same faults");

    let bounded = job(11).set("inject_ranks", "0,2").set("inject_count", 2).set("inject_rate", 1).run();
    is_corrected(&bounded);
    let expected = BTreeMap::from([0, 1, 2, 3, 4, 5, 6, 7, 8].map(|n| (n, if n == 6 || n == 8 { 2 } else { 0 })));
    bounded.need(bounded.per_process("injected") == expected, "not two faults in ranks 0 and 2 of replica 2");

    let off = fresh(300, "contig", 1).degree(3).set("inject_replicas", 1).set("inject_seed", 5).run();
    off.is_clean();
}

/// An unprotected program shows its faults: what the tests above would look like if redmpi did nothing.
#[test]
fn injection_without_replication_does_harm() {
    let outcome = fresh(300, "contig", 1).degree(1).set("inject_rate", 4).run();
    outcome.need(outcome.number("/injected") > 0, "nothing was injected");
    outcome.need(outcome.bad() > 0, "the faults did not arrive");
}

// ---------------------------------------------------------------------------------------------------------------
// Configuration

/// Native ranks 0, 1, 2 are virtual rank 0, and so on: the other way round than by formula.
const ADJACENT: &str =
    "# native virtual replica\n\n0 0 0\n1 0 1\n2 0 2   # the last of rank 0\n5 1 2\n4 1 1\n3 1 0\n";

fn map_file(folder: &Folder, text: &str) -> String {
    let file = folder.0.join("ranks.txt");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_rank_map_from_a_file() {
    let folder = Folder::new(&format!("map-{}", std::process::id()));
    let file = map_file(&folder, ADJACENT);
    let outcome = Job::new("wildcard").ranks(2).degree(3).set("rank_map", &file).run();
    outcome.is_clean();
    for (native, rank) in outcome.per_process("virtual") {
        outcome.need(rank == native / 3, "the virtual rank is not that of the file");
    }
    for (native, replica) in outcome.per_process("replica") {
        outcome.need(replica == native % 3, "the replica is not that of the file");
    }
    // Faults are laid at the door of native ranks as the file has them.
    let job = Job::new("inject_fresh").ranks(2).degree(3).set("rank_map", &file).set("stdio", "all");
    let outcome = job.set("inject_rate", 5).set("inject_replicas", 1).run();
    is_corrected(&outcome);
    outcome.need(outcome.processes_with("suspected") == BTreeSet::from([1, 4]), "other processes are suspected");
}

#[test]
fn wrong_rank_maps() {
    let folder = Folder::new(&format!("maps-{}", std::process::id()));
    let refused = |text: &str, words: &[&str]| {
        let file = map_file(&folder, text);
        let job = Job::new("ring").ranks(2).degree(3).set("rank_map", &file).without_report().timeout(30);
        let mut all = vec![file.as_str()];
        all.extend(words);
        job.run().is_refused(&all);
    };
    // The words are the line as a message may write it, after the file's name, and what is wrong there.
    refused(&ADJACENT.replace("4 1 1\n", ""), &["4"]);
    refused(&ADJACENT.replace("4 1 1\n", "3 1 1\n"), &[":8", "3"]);
    refused(&ADJACENT.replace("4 1 1\n", "4 1 2\n"), &[":7", "5"]); // who has that place

    refused(&ADJACENT.replace("4 1 1\n", "6 1 1\n"), &[":7", "6"]);
    refused(&ADJACENT.replace("4 1 1\n", "4 2 1\n"), &[":7", "2"]);
    refused(&ADJACENT.replace("4 1 1\n", "4 1 3\n"), &[":7", "3"]);
    refused(&ADJACENT.replace("4 1 1\n", "4 one 1\n"), &[":7", "one"]);
    refused(&ADJACENT.replace("4 1 1\n", "4 -1 1\n"), &[":7", "-1"]);
    refused(&ADJACENT.replace("4 1 1\n", "4 1\n"), &[":7"]);
    refused(&ADJACENT.replace("4 1 1\n", "4 1 1 9\n"), &[":7"]);
    refused("", &["0"]);
    let missing = folder.0.join("nowhere.txt");
    let missing = missing.to_str().unwrap();
    let job = Job::new("ring").ranks(2).degree(3).set("rank_map", missing).without_report().timeout(30);
    job.run().is_refused(&[missing]);
}

#[test]
fn a_size_that_the_degree_does_not_divide() {
    let job = |degree: u32, processes: u32| {
        Job::new("ring").degree(degree).processes(processes).without_report().timeout(30).run()
    };
    job(3, 4).is_refused(&["3", "6", "4"]);
    job(2, 5).is_refused(&["4", "6", "5"]);
    job(3, 2).is_refused(&["3"]);
}

#[test]
fn values_that_are_not_allowed() {
    let ring = || Job::new("ring").ranks(2).without_report().timeout(30);
    for degree in ["0", "-1", "abc", "65", "3x", ""] {
        let job = ring().degree_text(degree).processes(6);
        job.run().is_refused(&["degree", degree]);
    }
    let job = || ring().degree(2);
    job().set("protocol", "foo").run().is_refused(&["protocol", "foo", "msgplushash", "alltoall"]);
    job().set("digest", "md5").run().is_refused(&["digest", "md5", "crc32c", "xxh3", "sha1", "memcmp"]);
    job().set("digest", "memcmp").run().is_refused(&["digest", "memcmp", "alltoall"]);
    job().set("stdio", "some").run().is_refused(&["stdio", "some", "vote", "leader", "all", "tag"]);
    job().set("stdio_delay", "soon").run().is_refused(&["stdio_delay", "soon"]);
    job().set("exit_on_detection", "maybe").run().is_refused(&["exit_on_detection", "maybe"]);
    job().set("degre", 3).run().is_refused(&["pml_redmpi_degre", "pml_redmpi_degree"]);
    job().mca("coll_redmpi_protocl", "x").run().is_refused(&["coll_redmpi_protocl", "protocol"]);
    for (name, value) in [
        ("inject_replicas", "2"),
        ("inject_replicas", "0,5"),
        ("inject_replicas", "x"),
        ("inject_replicas", "-1"),
        ("inject_ranks", "2"),
        ("inject_ranks", "0-7"),
        ("inject_rate", "abc"),
        ("inject_rate", "-3"),
        ("inject_seed", "1.5"),
        ("inject_count", "many"),
    ] {
        job().set("inject_rate", 10).set(name, value).run().is_refused(&[name]);
    }
}

/// The switches' synonyms: the same variable by its other name.
#[test]
fn variables_have_two_names() {
    let outcome = Job::new("ring").ranks(2).processes(4).mca("coll_redmpi_degree", 2).run();
    outcome.exits(0).has_the_plain_result();
    outcome.need(outcome.number("/degree") == 2, "coll_redmpi_degree did not count");
}

/// Found out at the start, not after hours of work. (Folders that not even root can write to.)
#[test]
fn a_report_that_cannot_be_written() {
    let folder = Folder::new(&format!("report-{}", std::process::id()));
    let beside = folder.0.join("no/such/folder/report.json");
    let is_folder = folder.0.clone();
    for file in [beside.to_str().unwrap(), is_folder.to_str().unwrap(), "/proc/report.json", "/dev/null/report.json"]
    {
        let job = Job::new("ring").ranks(2).degree(2).set("report", file).without_report().timeout(30);
        job.run().is_refused(&[file]);
    }
    let rest = fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(rest, 0, "something was left in the report's folder");
}
