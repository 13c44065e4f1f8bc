//! Calls whose outcome depends on timing have the same outcome in every replica; replicas that differ for another reason
//! are told from slow ones, and the job ends.

mod support;

use support::Job;

#[test]
fn the_leader_decides() {
    for degree in [1, 2, 3] {
        Job::new("outcomes").ranks(3).degree(degree).run().is_clean();
    }
    Job::new("outcomes").ranks(1).degree(2).run().is_clean();
    Job::new("outcomes").ranks(3).degree(3).set("protocol", "alltoall").run().is_clean();
}

#[test]
fn replicas_that_diverge_are_named() {
    let job = Job::new("diverge").ranks(2).degree(2).set("patience", 20);
    job.run().is_clean();
    for (how, words) in [
        ("count", ["diverged", "native rank 3", "rank 1, tag 1", "MPI_COMM_WORLD"]),
        ("wildcard", ["diverged", "native rank 1", "wildcard receive 0", "MPI_COMM_WORLD"]),
        ("test", ["diverged", "native rank 1", "MPI_Iprobe", "MPI_COMM_WORLD"]),
    ] {
        let outcome = job.clone().environment("DIVERGE", how).run();
        outcome.need(outcome.code() != 0, "the job ended as if nothing had been");
        let said = outcome.message();
        for word in words {
            outcome.need(said.contains(word), &format!("the message does not say `{word}`"));
        }
    }
}
