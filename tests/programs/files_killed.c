/* Killed half-way through writing. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char name[40];
    start(&argc, &argv);
    snprintf(name, sizeof name, "half.%d", rank);
    int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    REQUIRE(file >= 0 && write(file, "first half\n", 11) == 11);
    MPI_Barrier(MPI_COMM_WORLD);
    raise(SIGKILL);
    REQUIRE(write(file, "second half\n", 12) == 12);
    return finish("files_killed");
}
