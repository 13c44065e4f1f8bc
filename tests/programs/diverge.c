/* Replicas that do different things: the environment variable DIVERGE says how, and the process number decides who.
 * redmpi has to notice, say so, and end the job; plain, the program ends well. */
#define _GNU_SOURCE
#include "check.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Replica 1 of rank 1, by what nobody shares. */
static int odd(void)
{
    const char *native = getenv("OMPI_COMM_WORLD_RANK");
    return native != NULL && atoi(native) == size + 1;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *how = getenv("DIVERGE");
    int mine = rank, theirs = -1, flag = 0, peer = (rank + 1) % size;
    MPI_Request request;
    if (how == NULL) how = "";
    if (strcmp(how, "count") == 0) {
        /* One replica sends a message less, and its receiver's replica does not wait for it. */
        if (rank == 1 && !odd()) MPI_Send(&mine, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(&theirs, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "wildcard") == 0) {
        /* One replica receives from anybody what the leader receives by name. */
        MPI_Isend(&mine, 1, MPI_INT, peer, 2, MPI_COMM_WORLD, &request);
        MPI_Recv(&theirs, 1, MPI_INT, odd() ? MPI_ANY_SOURCE : (rank + size - 1) % size, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "test") == 0) {
        /* One replica tests once more. */
        MPI_Irecv(&theirs, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, &request);
        MPI_Send(&mine, 1, MPI_INT, peer, 3, MPI_COMM_WORLD);
        while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        if (odd()) {
            MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
    }
    mix_number(size);
    return finish("diverge");
}
