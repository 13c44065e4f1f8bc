/* MPI-IO: individual, collective and shared file pointers, views, append, a file that was there before, deletion. What is
 * left is compared, by the runner, with what plain Open MPI leaves. */
#include "check.h"

enum { BLOCK = 5000 };

/* The outcome of a call that may fail, as a class: codes differ between runs. */
static int class_of(int code)
{
    int class = 0;
    MPI_Error_class(code, &class);
    return class;
}

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Status status;
    char block[BLOCK], seen[BLOCK];
    start(&argc, &argv);

    /* Explicit offsets, each rank its own regions; read back what the next rank wrote. */
    EQUAL(MPI_File_open(MPI_COMM_WORLD, "regions", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_SUCCESS);
    for (int round = 0; round < 4; ++round) {
        fill(block, BLOCK, seed_of(rank, 0, round));
        EQUAL(MPI_File_write_at(file, (MPI_Offset) (round * size + rank) * BLOCK, block, BLOCK, MPI_BYTE, &status),
              MPI_SUCCESS);
    }
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    int next = (rank + 1) % size;
    EQUAL(MPI_File_read_at(file, (MPI_Offset) (size + next) * BLOCK, seen, BLOCK, MPI_BYTE, &status), MPI_SUCCESS);
    CHECK(seen, BLOCK, seed_of(next, 0, 1));
    MPI_Offset bytes = 0;
    MPI_File_get_size(file, &bytes);
    EQUAL(bytes, (MPI_Offset) 4 * size * BLOCK);
    EQUAL(MPI_File_close(&file), MPI_SUCCESS);

    /* Collective, through a view that interleaves the ranks; once more into the middle. */
    MPI_Datatype strided;
    MPI_Type_vector(BLOCK / 100, 100, 100 * size, MPI_BYTE, &strided);
    MPI_Type_commit(&strided);
    EQUAL(MPI_File_open(MPI_COMM_WORLD, "collective", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file),
          MPI_SUCCESS);
    EQUAL(MPI_File_set_view(file, (MPI_Offset) rank * 100, MPI_BYTE, strided, "native", MPI_INFO_NULL), MPI_SUCCESS);
    fill(block, BLOCK, seed_of(rank, 1, 0));
    EQUAL(MPI_File_write_all(file, block, BLOCK, MPI_BYTE, &status), MPI_SUCCESS);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    memset(seen, 0, BLOCK);
    EQUAL(MPI_File_read_all(file, seen, BLOCK, MPI_BYTE, &status), MPI_SUCCESS);
    CHECK(seen, BLOCK, seed_of(rank, 1, 0));
    EQUAL(MPI_File_close(&file), MPI_SUCCESS);
    MPI_Type_free(&strided);

    /* A shared pointer, in order of the ranks. */
    EQUAL(MPI_File_open(MPI_COMM_WORLD, "ordered", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file),
          MPI_SUCCESS);
    for (int round = 0; round < 2; ++round) {
        fill(block, 700 + rank, seed_of(rank, 2, round));
        EQUAL(MPI_File_write_ordered(file, block, 700 + rank, MPI_BYTE, &status), MPI_SUCCESS);
    }
    EQUAL(MPI_File_close(&file), MPI_SUCCESS);

    /* A file that was there before: read, changed in part, read again; append. */
    EQUAL(MPI_File_open(MPI_COMM_WORLD, "before", MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_SUCCESS);
    EQUAL(MPI_File_read_at_all(file, 0, seen, 6, MPI_BYTE, &status), MPI_SUCCESS);
    REQUIRE(memcmp(seen, "before", 6) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    EQUAL(MPI_File_write_at_all(file, 2 * rank, "XY", 2, MPI_BYTE, &status), MPI_SUCCESS);
    EQUAL(MPI_File_close(&file), MPI_SUCCESS);
    EQUAL(MPI_File_open(MPI_COMM_WORLD, "before", MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_SUCCESS);
    EQUAL(MPI_File_read_at_all(file, 0, seen, 17, MPI_BYTE, &status), MPI_SUCCESS);
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    mix(seen, (size_t) count);
    EQUAL(MPI_File_close(&file), MPI_SUCCESS);

    /* What fails. */
    mix_number(class_of(MPI_File_open(MPI_COMM_WORLD, "missing", MPI_MODE_RDWR, MPI_INFO_NULL, &file)));
    mix_number(class_of(MPI_File_open(MPI_COMM_WORLD, "regions", MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR,
                                      MPI_INFO_NULL, &file)));
    MPI_Barrier(MPI_COMM_WORLD);

    /* On one rank alone, with the name of a file system; deleted again. */
    char name[40];
    snprintf(name, sizeof name, "ufs:alone.%d", rank);
    EQUAL(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY, MPI_INFO_NULL, &file),
          MPI_SUCCESS);
    EQUAL(MPI_File_write(file, block, 100, MPI_BYTE, &status), MPI_SUCCESS);
    EQUAL(MPI_File_close(&file), MPI_SUCCESS);
    char temporary[40];
    snprintf(temporary, sizeof temporary, "temporary.%d", rank);
    EQUAL(MPI_File_open(MPI_COMM_SELF, temporary, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                        MPI_INFO_NULL, &file), MPI_SUCCESS);
    EQUAL(MPI_File_close(&file), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        EQUAL(MPI_File_delete("obsolete", MPI_INFO_NULL), MPI_SUCCESS);
        mix_number(class_of(MPI_File_delete("obsolete", MPI_INFO_NULL)));
    }
    return finish("files_mpiio");
}
