/* Polls in vain until the leader promises that more of the same will find nothing, then asks the same question with a
 * call that waits. */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int round = 0; round < 20; round++) {
        int go = round, value = -1, flag = 0;
        MPI_Status status;
        MPI_Message message;
        if (rank == 0) {
            for (int k = 0; k < 1000 + 37 * round && !flag; k++) MPI_Iprobe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &flag, &status);
            REQUIRE(!flag);
            for (int to = 1; to < size; to++) MPI_Send(&go, 1, MPI_INT, to, 4, MPI_COMM_WORLD);
            for (int i = 1; i < size; i++) {
                if (round % 2) {
                    MPI_Probe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
                    MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, 5, MPI_COMM_WORLD, &status);
                } else {
                    MPI_Mprobe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &message, &status);
                    MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
                }
                EQUAL(value, 100 * round + status.MPI_SOURCE);
            }
        } else {
            MPI_Recv(&go, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            go = 100 * round + rank;
            MPI_Send(&go, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
        }
        mix_number(round);
    }
    return finish("probe_again");
}
