//! What `collectives.c` leaves out: persistent forms, neighbourhoods, intercommunicators; and which of Open MPI's
//! components a replicated job leaves out.

mod support;

use support::Job;

#[test]
fn other_forms_in_every_mode() {
    for degree in [2, 3] {
        for mode in ["result", "input", "both", "p2p", "none"] {
            Job::new("collectives_more").ranks(4).degree(degree).mca("coll_redmpi_verify", mode).run().is_clean();
        }
    }
}

/// han chosen above all others is not opened, and a user who names it is told.
#[test]
fn components_that_may_differ_are_left_out() {
    let job = Job::new("ring").ranks(2).degree(2);
    let opened = |job: Job| {
        let outcome = job.mca("coll_han_priority", 100).mca("coll_base_verbose", 20).run();
        outcome.exits(0);
        outcome.stderr.contains("component han open function successful")
    };
    assert!(!opened(job.clone()), "han was opened");
    assert!(opened(job.clone().mca("coll_redmpi_exclude", "none")), "han was left out though the list is empty");
    let named = job.pml().mca("coll", "han,tuned,libnbc,basic,self").without_report();
    named.run().is_refused(&["han", "coll_redmpi_exclude"]);
}
