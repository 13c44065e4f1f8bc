/* MPI_THREAD_MULTIPLE: four threads, each with a communicator of its own, play ping-pong with a neighbour at the
 * same time. Where Open MPI gives less than MULTIPLE, the threads take turns instead. threads [rounds] */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, LARGEST = 9000 };
static int rounds;
static MPI_Comm comms[THREADS];
static uint64_t sums[THREADS];

static void *play(void *argument)
{
    int thread = (int)(intptr_t)argument, peer = rank ^ 1;
    unsigned char *out = allocate(LARGEST), *in = allocate(LARGEST);
    if (peer >= size) peer = rank; /* an odd one out plays with itself */
    for (int round = 0; round < rounds; round++) {
        int bytes = (round * 977 + thread * 131) % LARGEST, got;
        MPI_Status status;
        fill(out, bytes, seed_of(rank, peer, round * THREADS + thread));
        memset(in, 0, LARGEST);
        if (rank < peer) {
            MPI_Send(out, bytes, MPI_BYTE, peer, round, comms[thread]);
            MPI_Recv(in, LARGEST, MPI_BYTE, peer, round, comms[thread], &status);
        } else if (rank > peer) {
            /* Half of the time by a wildcard: on this communicator only one peer sends. */
            MPI_Recv(in, LARGEST, MPI_BYTE, round % 2 ? MPI_ANY_SOURCE : peer, round, comms[thread], &status);
            MPI_Send(out, bytes, MPI_BYTE, peer, round, comms[thread]);
        } else {
            MPI_Sendrecv(out, bytes, MPI_BYTE, rank, round, in, LARGEST, MPI_BYTE, rank, round, comms[thread],
                         &status);
        }
        MPI_Get_count(&status, MPI_BYTE, &got);
        EQUAL(got, bytes);
        EQUAL(status.MPI_SOURCE, peer);
        if (wrong_bytes(in, bytes, seed_of(peer, rank, round * THREADS + thread), NULL) != 0) {
            FAIL("thread %d round %d: wrong data", thread, round);
        }
        for (int i = 0; i < bytes; i += 100) sums[thread] = scramble(sums[thread] ^ in[i]);
    }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rounds = argc > 1 ? atoi(argv[1]) : 50;
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (intptr_t i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, play, (void *)i) == 0);
        if (provided < MPI_THREAD_MULTIPLE) pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        if (provided >= MPI_THREAD_MULTIPLE) pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        mix(&sums[i], sizeof sums[i]);
        MPI_Comm_free(&comms[i]);
    }
    return finish("threads");
}
