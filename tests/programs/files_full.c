/* In a follower's private folder nothing can be made: there is a file of its name. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The entries as the kernel has them: redmpi hides its own from readdir. */
static int spoil(void)
{
    char entries[4096];
    int folder = (int) syscall(SYS_openat, AT_FDCWD, ".", O_RDONLY | O_DIRECTORY);
    long bytes, spoilt = 0;
    while ((bytes = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
        for (long at = 0; at < bytes; at += *(unsigned short *) (entries + at + 16)) {
            const char *name = entries + at + 19;
            if (strncmp(name, ".redmpi-", 8) == 0 && syscall(SYS_rmdir, name) == 0) {
                syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_WRONLY, 0600));
                ++spoilt;
            }
        }
    }
    syscall(SYS_close, folder);
    return (int) spoilt;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (rank == 0) {
        FILE *file = fopen("made", "w");
        REQUIRE(file != NULL && fclose(file) == 0 && unlink("made") == 0);
        const char *native = getenv("OMPI_COMM_WORLD_RANK");
        if (native != NULL && atoi(native) >= size) EQUAL(spoil(), 1);
        fopen("second", "w");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return finish("files_full");
}
