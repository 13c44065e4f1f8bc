/* Persistent requests: all send modes, named and wildcard receives, Start and Startall over many rounds,
 * waiting for and testing inactive ones, and freeing. An optional argument gives the number of rounds. */
#include "check.h"

enum { MODES = 4, BYTES = 6000 };

int main(int argc, char **argv)
{
    /* The buffered one is short: Open MPI up to 4.1.8 and 5.0.8 sends stale bytes when a longer Bsend_init is
     * started again (its pull requests 14366 and 14210). A longer one is started once, below. */
    static const int lengths[MODES] = {BYTES, 16, 3000, 1};
    static unsigned char out[MODES][BYTES], in[MODES][BYTES], any[BYTES];
    int (*const init[MODES])(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) = {
        MPI_Send_init, MPI_Bsend_init, MPI_Ssend_init, MPI_Rsend_init};
    MPI_Request sends[MODES], receives[MODES], wildcard, to_next;
    MPI_Status statuses[MODES], status;
    int rounds, next, previous, flag, attached = 20 * (BYTES + MPI_BSEND_OVERHEAD);
    void *buffer;

    start(&argc, &argv);
    rounds = argc > 1 ? atoi(argv[1]) : 60;
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    buffer = allocate(attached);
    MPI_Buffer_attach(buffer, attached);

    for (int mode = 0; mode < MODES; mode++) {
        init[mode](out[mode], lengths[mode], MPI_BYTE, next, mode, MPI_COMM_WORLD, &sends[mode]);
        MPI_Recv_init(in[mode], BYTES, MPI_BYTE, previous, mode, MPI_COMM_WORLD, &receives[mode]);
    }
    /* Only one rank sends with tag 10 in a round, so the source is known though the receive does not say it. */
    MPI_Recv_init(any, BYTES, MPI_BYTE, MPI_ANY_SOURCE, 10, MPI_COMM_WORLD, &wildcard);
    MPI_Send_init(out[0], BYTES, MPI_BYTE, next, 10, MPI_COMM_WORLD, &to_next);

    /* Inactive: complete at once, with an empty status, and stay what they are. */
    MPI_Wait(&sends[0], &status);
    CHECK_STATUS(&status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    MPI_Test(&wildcard, &flag, &status);
    REQUIRE(flag);
    CHECK_STATUS(&status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    REQUIRE(sends[0] != MPI_REQUEST_NULL && wildcard != MPI_REQUEST_NULL);

    for (int round = 0; round < rounds; round++) {
        for (int mode = 0; mode < MODES; mode++) {
            fill(out[mode], lengths[mode], seed_of(rank, next, round * MODES + mode));
            memset(in[mode], 0, BYTES);
        }
        MPI_Startall(MODES, receives);
        MPI_Start(&wildcard);
        /* The ready send: whoever passes here knows that its neighbour's receives are posted. */
        MPI_Sendrecv(NULL, 0, MPI_BYTE, previous, 99, NULL, 0, MPI_BYTE, next, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (round % 2 == 0) {
            MPI_Startall(MODES, sends);
        } else {
            for (int mode = MODES - 1; mode >= 0; mode--) MPI_Start(&sends[mode]);
        }
        MPI_Start(&to_next);
        MPI_Waitall(MODES, receives, statuses);
        MPI_Wait(&wildcard, &status);
        MPI_Waitall(MODES, sends, MPI_STATUSES_IGNORE);
        MPI_Wait(&to_next, MPI_STATUS_IGNORE);
        for (int mode = 0; mode < MODES; mode++) {
            CHECK_STATUS(&statuses[mode], previous, mode, lengths[mode]);
            CHECK(in[mode], lengths[mode], seed_of(previous, rank, round * MODES + mode));
            REQUIRE(sends[mode] != MPI_REQUEST_NULL && receives[mode] != MPI_REQUEST_NULL);
        }
        CHECK_STATUS(&status, previous, 10, BYTES);
        CHECK(any, BYTES, seed_of(previous, rank, round * MODES));
        /* Inactive again. */
        MPI_Test(&receives[0], &flag, MPI_STATUS_IGNORE);
        REQUIRE(flag);
        MPI_Waitall(MODES, receives, MPI_STATUSES_IGNORE);
    }

    /* Tags left open too: the message is told by its status. */
    MPI_Request open;
    MPI_Recv_init(any, BYTES, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &open);
    for (int round = 0; round < 10; round++) {
        fill(out[0], lengths[0], seed_of(rank, next, 7000 + round));
        MPI_Start(&open);
        MPI_Start(&sends[0]);
        MPI_Wait(&open, &status);
        MPI_Wait(&sends[0], MPI_STATUS_IGNORE);
        CHECK_STATUS(&status, previous, 0, lengths[0]);
        CHECK(any, lengths[0], seed_of(previous, rank, 7000 + round));
        /* Nobody's next message may meet this round's open receive of a slower rank: rounds are separate. */
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Request_free(&open);

    /* Freed while active: it completes all the same. */
    MPI_Start(&receives[0]);
    fill(out[0], lengths[0], seed_of(rank, next, 9000));
    MPI_Start(&sends[0]);
    MPI_Request_free(&sends[0]);
    MPI_Wait(&receives[0], &status);
    CHECK_STATUS(&status, previous, 0, lengths[0]);
    CHECK(in[0], lengths[0], seed_of(previous, rank, 9000));
    MPI_Barrier(MPI_COMM_WORLD);

    /* A longer buffered send, whose buffer is overwritten as soon as it is complete. */
    MPI_Request once;
    fill(out[3], BYTES, seed_of(rank, next, 9001));
    MPI_Bsend_init(out[3], BYTES, MPI_BYTE, next, 0, MPI_COMM_WORLD, &once);
    MPI_Start(&once);
    MPI_Wait(&once, MPI_STATUS_IGNORE);
    memset(out[3], 0, BYTES);
    MPI_Start(&receives[0]);
    MPI_Wait(&receives[0], &status);
    CHECK_STATUS(&status, previous, 0, BYTES);
    CHECK(in[0], BYTES, seed_of(previous, rank, 9001));
    MPI_Request_free(&once);

    for (int mode = 0; mode < MODES; mode++) {
        if (mode > 0) MPI_Request_free(&sends[mode]);
        MPI_Request_free(&receives[mode]);
        REQUIRE(receives[mode] == MPI_REQUEST_NULL);
    }
    MPI_Request_free(&wildcard);
    MPI_Request_free(&to_next);

    MPI_Buffer_detach(&buffer, &attached);
    free(buffer);
    return finish("persistent");
}
