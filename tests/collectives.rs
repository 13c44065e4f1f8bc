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
    job.clone().mca("coll_han_priority", 100).run().is_clean();
    let named = job.mca("coll", "redmpi,han,tuned,libnbc,basic,self").without_report();
    named.run().is_refused(&["han", "coll_redmpi_exclude"]);
}
