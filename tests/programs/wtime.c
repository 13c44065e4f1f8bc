/* Clock values are sent on and reduced, so replicas that read different clocks would send different messages.
 * The program itself checks that the clock never goes back, moves on, and roughly fits a sleep. */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    enum { ROUNDS = 200 };
    double first, last;
    start(&argc, &argv);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    first = last = MPI_Wtime();
    for (int round = 0; round < ROUNDS; round++) {
        double mine[3], theirs[3], largest[3];
        mine[0] = MPI_Wtime();
        mine[1] = round % 2 ? PMPI_Wtime() : MPI_Wtime();
        mine[2] = round % 3 ? MPI_Wtick() : PMPI_Wtick();
        REQUIRE(mine[0] >= last && mine[1] >= mine[0]);
        REQUIRE(mine[2] > 0 && mine[2] < 0.1);
        last = mine[1];
        MPI_Sendrecv(mine, 3, MPI_DOUBLE, next, 1, theirs, 3, MPI_DOUBLE, previous, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        REQUIRE(theirs[1] >= theirs[0]);
        MPI_Allreduce(mine, largest, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        REQUIRE(largest[0] >= mine[0] && largest[1] >= theirs[1] && largest[2] >= mine[2]);
        /* Work whose amount depends on the clock: the number of messages then does, too. */
        if (round % 50 == 0) {
            double until = MPI_Wtime() + 0.002;
            while (MPI_Wtime() < until) {
                int token = round, got = -1;
                MPI_Sendrecv(&token, 1, MPI_INT, rank, 2, &got, 1, MPI_INT, rank, 2, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
                EQUAL(got, round);
            }
        }
    }
    last = MPI_Wtime();
    usleep(20000);
    double slept = MPI_Wtime() - last;
    if (slept < 0.015 || slept > 60) FAIL("20 ms of sleep took %g s by MPI_Wtime", slept);
    REQUIRE(last > first);
    mix_number(ROUNDS);
    return finish("wtime");
}
