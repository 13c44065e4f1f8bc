/* Round trips between ranks 0 and 1: pingpong BYTES ROUNDS. Blocking send and receive, buffers rewritten each time. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank;
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 8;
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
    char *buffer = calloc(bytes + 1, 1);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (long i = 0; i < rounds; i++) {
        buffer[0] = (char) i;
        if (rank == 0) {
            MPI_Send(buffer, (int) bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer, (int) bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(buffer, (int) bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, (int) bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
        }
    }
    MPI_Finalize();
    free(buffer);
    return 0;
}
