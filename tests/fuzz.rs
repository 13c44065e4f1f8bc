//! Random communication programs (`tests/programs/fuzz.c`): the same result plainly, replicated, and with faults.
//!
//! A fixed set of seeds here; `ci/fuzz FROM TO` runs others, by `REDMPI_FUZZ=FROM-TO`.

mod support;

use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};

use support::{Job, Outcome};

/// Seeds of an ordinary test run: chosen so that together they do every kind of round on every kind of communicator.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;

/// The replica that is hit where faults are injected.
const HIT: u64 = 1;

fn seeds() -> std::ops::RangeInclusive<u64> {
    let Ok(text) = std::env::var("REDMPI_FUZZ") else { return SEEDS };
    let range = text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..=to.parse().ok()?));
    range.filter(|range| !range.is_empty()).unwrap_or_else(|| panic!("REDMPI_FUZZ={text}: wanted is FROM-TO"))
}

/// From 1 to 5 ranks, by the seed.
fn ranks(seed: u64) -> u32 {
    [3, 2, 4, 3, 1, 3, 2, 5][(seed % 8) as usize]
}

/// Runs every seed, then fails with all that failed.
fn every_seed(test: &str, one: impl Fn(u64)) {
    let failed: Vec<String> = seeds()
        .filter(|seed| catch_unwind(AssertUnwindSafe(|| one(*seed))).is_err())
        .map(|seed| format!("seed {seed} on {} ranks; to repeat it: ci/fuzz {seed} {seed} {test}", ranks(seed)))
        .collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

fn job(seed: u64) -> Job {
    Job::new("fuzz").arguments(&[seed]).ranks(ranks(seed)).timeout(90).set("patience", 40)
}

/// Nothing is wrong, nothing is different, and what every replica saw reached the others as the same data.
#[test]
fn replicated() {
    every_seed("replicated", |seed| {
        for degree in [2, 3] {
            job(seed).degree(degree).run().is_clean();
        }
    });
}

/// By the other protocol, and with every message inside collectives compared.
#[test]
fn otherwise() {
    every_seed("otherwise", |seed| {
        job(seed).degree(3).set("protocol", "alltoall").run().is_clean();
    });
}

/// One replica is hit again and again; the others must not notice.
#[test]
fn with_faults() {
    every_seed("with_faults", |seed| {
        for protocol in ["msgplushash", "alltoall"] {
            let job = Job::new("fuzz").arguments(&[&*seed.to_string(), "12", "tolerant"]).ranks(ranks(seed));
            let job = job.degree(3).timeout(90).set("patience", 40).set("protocol", protocol);
            let outcome = job.set("inject_rate", 15).set("inject_replicas", HIT).set("inject_seed", seed).run();
            is_corrected(&outcome, u64::from(ranks(seed)));
        }
    });
}

#[track_caller]
fn is_corrected(outcome: &Outcome, ranks: u64) {
    outcome.exits(0).has_the_plain_result();
    let sum = |count: &str| {
        outcome.number(&format!("/messages/{count}")) + outcome.number(&format!("/collectives/{count}"))
    };
    outcome.need(outcome.number("/injected") > 0, "nothing was injected");
    outcome.need(sum("mismatched") > 0, "no fault was seen");
    outcome.need(sum("corrected") == sum("mismatched"), "a fault was not corrected");
    outcome.need(sum("uncorrectable") == 0, "a fault could not be corrected");
    outcome.need(outcome.verdict() == "corrected", "the verdict is not corrected");
    let hit: BTreeSet<u64> = outcome.processes_with("injected");
    outcome.need(hit.iter().all(|native| native / ranks == HIT), "another replica was hit");
    outcome.need(outcome.processes_with("suspected").is_subset(&hit), "a process was suspected that was not hit");
    // A process whose own memory was hit may find its own result wrong, and says so. Nobody else, and never a message.
    for line in outcome.stderr.lines().filter(|line| line.starts_with("BAD ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let native = words.iter().position(|word| *word == "native").and_then(|at| words.get(at + 1)?.parse().ok());
        let own = words.get(1) == Some(&"collective") && native.is_some_and(|native: u64| native / ranks == HIT);
        outcome.need(own, &format!("wrong data was received: {line}"));
    }
}

/// What the tests above would look like if redmpi did nothing: the program finds every kind of fault by itself.
#[test]
fn the_fuzzer_sees_faults() {
    let outcome = Job::new("fuzz").arguments(&["2", "12", "tolerant"]).ranks(3).degree(1).set("inject_rate", 4).run();
    outcome.need(outcome.number("/injected") > 0, "nothing was injected");
    for kind in ["BAD message", "BAD collective"] {
        outcome.need(outcome.stderr.contains(kind), &format!("no {kind}"));
    }
}
