//! Communicators of every making and what hangs on them, and the Fortran faces of calls that depend on timing.

mod support;

use support::Job;

/// How many communicators are made and freed. `groups` makes sure that they take no memory for good.
const LOOPS: u32 = 10_000;

#[test]
fn groups_attributes_topologies() {
    for degree in [1, 2, 3] {
        Job::new("groups").arguments(&[600]).ranks(3).degree(degree).run().is_clean();
    }
    Job::new("groups").arguments(&[600]).ranks(4).degree(2).set("protocol", "alltoall").run().is_clean();
    Job::new("groups").arguments(&[600]).ranks(1).degree(2).run().is_clean();
}

#[test]
fn a_loop_that_makes_communicators_leaks_nothing() {
    Job::new("groups").arguments(&[LOOPS]).ranks(2).degree(2).timeout(300).run().is_clean();
}

/// Several duplicates of the same members under way at a time: they may be made in a different order in every replica.
#[test]
#[ignore = "hangs: the identity of a communicator is drawn when it is made, not when MPI_Comm_idup is called"]
fn several_duplicates_at_a_time() {
    for ranks in [1, 3] {
        Job::new("groups").arguments(&["60", "idups"]).ranks(ranks).degree(2).set("patience", 30).run().is_clean();
    }
}

#[test]
fn fortran() {
    for degree in [1, 2, 3] {
        Job::new("fortran_outcomes").ranks(3).degree(degree).run().is_clean();
    }
    Job::new("fortran_outcomes").ranks(1).degree(2).run().is_clean();
}

/// A probe that waits, right after one that did not and found nothing, of the same source and tag.
#[test]
#[ignore = "ends with 66: a promise made to MPI_Iprobe is kept to MPI_Probe, whose key is the same"]
fn a_probe_after_a_probe_in_vain() {
    for degree in [2, 3] {
        Job::new("probe_again").ranks(2).degree(degree).set("patience", 30).run().is_clean();
    }
}
