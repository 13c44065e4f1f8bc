/* Started by mpirun, but never calls MPI. */
#include <stdio.h>

int main(void)
{
    puts("never called MPI");
    return 0;
}
