//! Which mode of `coll_redmpi_verify` catches a fault in which place of MPI_Allreduce, who has seen wrong data, and whom
//! the report suspects: the table of docs/collectives.md. Three virtual ranks; native rank 3 (replica 1 of rank 0) is hit.

mod support;

use std::collections::BTreeSet;
use support::{Job, Outcome};

struct Cell {
    place: &'static str,
    mode: &'static str,
    degree: u32,
    mismatched: u64,
    saw: &'static [u64],
    own: &'static [u64],
    suspected: &'static [u64],
}

const fn cell(
    place: &'static str,
    mode: &'static str,
    degree: u32,
    mismatched: u64,
    saw: &'static [u64],
    own: &'static [u64],
    suspected: &'static [u64],
) -> Cell {
    Cell { place, mode, degree, mismatched, saw, own, suspected }
}

const CELLS: &[Cell] = &[
    cell("input", "result", 3, 3, &[], &[3], &[3, 4, 5]),
    cell("input", "input", 3, 1, &[], &[], &[3]),
    cell("input", "both", 3, 1, &[], &[], &[3]),
    cell("input", "p2p", 3, 1, &[], &[3], &[3]),
    cell("input", "none", 3, 0, &[3, 4, 5], &[3], &[]),
    cell("output", "result", 3, 1, &[], &[], &[3]),
    cell("output", "input", 3, 0, &[3], &[], &[]),
    cell("reduction", "result", 3, 3, &[], &[], &[3, 4, 5]),
    cell("reduction", "input", 3, 0, &[3, 4, 5], &[], &[]),
    cell("input", "result", 2, 3, &[3, 4, 5], &[3], &[0, 1, 2, 3, 4, 5]),
    cell("input", "input", 2, 1, &[3, 4, 5], &[3], &[0, 3]),
    cell("output", "result", 2, 1, &[3], &[], &[0, 3]),
];

fn said(outcome: &Outcome, word: &str) -> BTreeSet<u64> {
    outcome.stderr.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok()).collect()
}

#[test]
fn every_cell_of_the_table() {
    for cell in CELLS {
        let job = Job::new("containment").ranks(3).degree(cell.degree).mca("coll_redmpi_verify", cell.mode);
        let job = job.set("stdio", "all");
        let outcome = if cell.place == "reduction" {
            job.arguments(&["allreduce", "blocking", "3"]).run()
        } else {
            job.arguments(&["allreduce", "blocking"])
                .set("inject_rate", 1)
                .set("inject_count", 1)
                .set("inject_ranks", 0)
                .set("inject_replicas", 1)
                .set("inject_where", cell.place)
                .run()
        };
        let what = format!("{} under {} at degree {}", cell.place, cell.mode, cell.degree);
        let set = |list: &[u64]| list.iter().copied().collect::<BTreeSet<u64>>();
        outcome.exits(if cell.degree == 2 && cell.mismatched > 0 { 65 } else { 0 });
        outcome.need(outcome.number("/collectives/mismatched") == cell.mismatched, &format!("{what}: mismatches"));
        outcome.need(said(&outcome, "SAW ") == set(cell.saw), &format!("{what}: who saw it"));
        outcome.need(said(&outcome, "OWN ") == set(cell.own), &format!("{what}: whose contribution stays wrong"));
        outcome
            .need(outcome.processes_with("suspected") == set(cell.suspected), &format!("{what}: who is suspected"));
    }
}
