/* The last rank gives up: the whole job has to end, with the code it gave, whatever the others wait for. */
#include "check.h"

int main(int argc, char **argv)
{
    int never;
    start(&argc, &argv);
    if (rank == size - 1) MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Recv(&never, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 1;
}
