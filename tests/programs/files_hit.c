/* Buffers are sent, and then written to files: where the injector has hit the sender's buffer, its file would be wrong.
 * What is written: by a stream, a descriptor, in parts out of order, appended, through memory, into one file by all ranks,
 * by MPI-IO; one file is still open in MPI_Finalize. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 150000 };

static unsigned char buffer[BYTES], received[BYTES];

/* New content, which is then sent around: here a fault may come in. */
static void fresh(int number)
{
    fill(buffer, BYTES, seed_of(rank, 0, number));
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Sendrecv(buffer, BYTES, MPI_BYTE, next, number, received, BYTES, MPI_BYTE, before, number, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    mix(received, BYTES);
}

int main(int argc, char **argv)
{
    char name[40];
    MPI_File file;
    start(&argc, &argv);

    fresh(1);
    snprintf(name, sizeof name, "stream.%d", rank);
    FILE *stream = fopen(name, "w");
    REQUIRE(stream != NULL && fwrite(buffer, 1, BYTES, stream) == BYTES && fclose(stream) == 0);

    fresh(2);
    stream = fopen(name, "a");
    REQUIRE(stream != NULL && fwrite(buffer, 1, BYTES, stream) == BYTES && fclose(stream) == 0);

    fresh(3);
    snprintf(name, sizeof name, "descriptor.%d", rank);
    int descriptor = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
    REQUIRE(descriptor >= 0 && write(descriptor, buffer, BYTES / 2) == BYTES / 2);
    int other = dup(descriptor);
    REQUIRE(other >= 0 && close(descriptor) == 0);
    REQUIRE(write(other, buffer + BYTES / 2, BYTES / 2) == BYTES / 2 && close(other) == 0);

    fresh(4);
    snprintf(name, sizeof name, "parts.%d", rank);
    descriptor = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
    for (int part = 9; part >= 0; --part) {
        const int length = BYTES / 10;
        REQUIRE(pwrite(descriptor, buffer + part * length, (size_t) length, part * length + 4096) == length);
    }
    REQUIRE(close(descriptor) == 0);

    fresh(5);
    snprintf(name, sizeof name, "memory.%d", rank);
    descriptor = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
    REQUIRE(ftruncate(descriptor, BYTES) == 0);
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    REQUIRE(memory != MAP_FAILED);
    memcpy(memory, buffer, BYTES);
    REQUIRE(munmap(memory, BYTES) == 0 && close(descriptor) == 0);

    fresh(6);
    descriptor = open("shared", O_CREAT | O_RDWR, 0644);
    REQUIRE(descriptor >= 0 && pwrite(descriptor, buffer, BYTES, (off_t) rank * BYTES) == BYTES);
    REQUIRE(close(descriptor) == 0);

    fresh(7);
    EQUAL(MPI_File_open(MPI_COMM_WORLD, "mpi", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file), MPI_SUCCESS);
    EQUAL(MPI_File_write_at(file, (MPI_Offset) rank * BYTES, buffer, BYTES, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EQUAL(MPI_File_close(&file), MPI_SUCCESS);

    /* What is read back is right, where it was put right. */
    snprintf(name, sizeof name, "descriptor.%d", rank);
    descriptor = open(name, O_RDONLY);
    REQUIRE(descriptor >= 0 && read(descriptor, received, BYTES) == BYTES && close(descriptor) == 0);
    size_t first = 0, wrong = wrong_bytes(received, BYTES, seed_of(rank, 0, 3), &first);
    if (wrong != 0) fprintf(stderr, "BAD rank %d reads %zu wrong bytes, the first at %zu\n", rank, wrong, first);

    fresh(8);
    snprintf(name, sizeof name, "open.%d", rank);
    stream = fopen(name, "w");
    REQUIRE(stream != NULL && fwrite(buffer, 1, BYTES, stream) == BYTES);
    return finish("files_hit");
}
