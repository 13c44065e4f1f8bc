/* A ring and an allreduce per round, for many ranks: ring [rounds] [bytes].
 * Send buffers are written anew in each round and what was received is checked, not forwarded, so that an
 * injected fault stays in its one message. Wrong data is counted and told as `BAD <n>` on stderr; the program
 * goes on, and the RESULT does not depend on it. */
#include "check.h"

int main(int argc, char **argv)
{
    int rounds, bytes, next, previous;
    long bad = 0;
    unsigned char *out, *in;
    start(&argc, &argv);
    rounds = argc > 1 ? atoi(argv[1]) : 20;
    bytes = argc > 2 ? atoi(argv[2]) : 1000;
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    out = allocate(bytes);
    in = allocate(bytes);
    for (int round = 0; round < rounds; round++) {
        MPI_Request requests[2];
        fill(out, bytes, seed_of(rank, next, round));
        memset(in, 0, bytes);
        MPI_Irecv(in, bytes, MPI_BYTE, previous, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, next, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (wrong_bytes(in, bytes, seed_of(previous, rank, round), NULL) != 0) bad++;

        long long mine[2] = {(long long)rank * rank + round, 1}, sum[2] = {0, 0}, wanted = 0;
        MPI_Allreduce(mine, sum, 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (long long i = 0; i < size; i++) wanted += i * i + round;
        if (sum[0] != wanted || sum[1] != size) bad++;
        mix_number(wanted);
    }
    if (bad != 0) fprintf(stderr, "BAD %ld\n", bad);
    fflush(stderr);
    free(in);
    free(out);
    return finish("ring");
}
