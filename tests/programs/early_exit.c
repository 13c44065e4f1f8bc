/* Ends with a code of its own after MPI_Finalize; mpirun has to report it. */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    exit(5);
}
