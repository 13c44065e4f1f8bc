/* Sizes and extents beyond 2 GiB. Always: types whose extent or displacements are huge but whose data is small.
 * With REDMPI_TEST_BIG=1 in the environment: one message of 2.05 GiB from rank 0 to rank 1, as 2100 blocks of
 * 1 MiB (each rank then holds one such buffer). Needs 2 ranks at least; more ranks look on. */
#include "check.h"

static const MPI_Aint GIB = (MPI_Aint)1 << 30;

static void huge_extents(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, bytes;
    MPI_Datatype far, apart, behind;
    MPI_Count wide, lower, extent;
    MPI_Status status;
    unsigned char out[64], in[64];

    /* One element of an extent of 3 GiB. */
    MPI_Type_create_resized(MPI_LONG, 0, 3 * GIB, &far);
    MPI_Type_commit(&far);
    MPI_Type_get_extent_x(far, &lower, &extent);
    EQUAL(extent, 3 * GIB);
    long number = 123456789L * (rank + 1), got = 0;
    MPI_Sendrecv(&number, 1, far, next, 1, &got, 1, MPI_LONG, previous, 1, MPI_COMM_WORLD, &status);
    EQUAL(got, 123456789L * (previous + 1));
    got = 0;
    MPI_Sendrecv(&number, 1, MPI_LONG, next, 2, &got, 1, far, previous, 2, MPI_COMM_WORLD, &status);
    EQUAL(got, 123456789L * (previous + 1));
    MPI_Get_count(&status, far, &bytes);
    EQUAL(bytes, 1);

    /* Displacements of + and - 5 GiB from an address which is that far away from the data. */
    for (int sign = -1; sign <= 1; sign += 2) {
        MPI_Aint away = sign * 5 * GIB;
        MPI_Type_create_hindexed(2, (int[]){24, 8}, (MPI_Aint[]){away, away + 40}, MPI_BYTE, &apart);
        MPI_Type_create_resized(apart, away - GIB, 9 * GIB, &behind);
        MPI_Type_commit(&behind);
        fill(out, sizeof out, seed_of(rank, next, 3));
        memset(in, 0x5a, sizeof in);
        /* Absolute: from MPI_BOTTOM, so that no pointer outside an object is ever formed in C. */
        MPI_Datatype from, into;
        MPI_Aint at_out, at_in;
        MPI_Get_address(out, &at_out);
        MPI_Get_address(in, &at_in);
        MPI_Type_create_hindexed(1, (int[]){1}, (MPI_Aint[]){at_out - away}, behind, &from);
        MPI_Type_create_hindexed(1, (int[]){1}, (MPI_Aint[]){at_in - away}, behind, &into);
        MPI_Type_commit(&from);
        MPI_Type_commit(&into);
        MPI_Sendrecv(MPI_BOTTOM, 1, from, next, 3, MPI_BOTTOM, 1, into, previous, 3, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        EQUAL(bytes, 32);
        for (int i = 0; i < (int)sizeof in; i++) {
            int data = i < 24 || (i >= 40 && i < 48);
            EQUAL(in[i], data ? byte_of(seed_of(previous, rank, 3), i) : 0x5a);
        }
        mix(in, sizeof in);
        MPI_Type_free(&from);
        MPI_Type_free(&into);
        MPI_Type_free(&behind);
        MPI_Type_free(&apart);
    }

    /* A type of 4 GiB that is only ever sent with count 0. */
    MPI_Type_contiguous(1 << 30, MPI_INT, &apart);
    MPI_Type_commit(&apart);
    MPI_Type_size_x(apart, &wide);
    EQUAL(wide, 4 * GIB);
    MPI_Sendrecv(out, 0, apart, next, 4, in, 0, apart, previous, 4, MPI_COMM_WORLD, &status);
    MPI_Get_elements_x(&status, apart, &wide);
    EQUAL(wide, 0);
    MPI_Type_free(&apart);
    MPI_Type_free(&far);
}

static void large_message(void)
{
    enum { BLOCKS = 2100, BLOCK = 1 << 20 };
    MPI_Datatype block;
    MPI_Type_contiguous(BLOCK, MPI_BYTE, &block);
    MPI_Type_commit(&block);
    if (rank < 2) {
        unsigned char *buffer = allocate((size_t)BLOCKS * BLOCK);
        if (rank == 0) {
            fill(buffer, (size_t)BLOCKS * BLOCK, seed_of(0, 1, 1));
            MPI_Send(buffer, BLOCKS, block, 1, 5, MPI_COMM_WORLD);
        } else {
            MPI_Status status;
            MPI_Count elements = 0;
            int blocks = 0;
            MPI_Recv(buffer, BLOCKS, block, 0, 5, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, block, &blocks);
            EQUAL(blocks, BLOCKS);
            MPI_Get_elements_x(&status, block, &elements);
            EQUAL(elements, (long long)BLOCKS * BLOCK);
            CHECK(buffer, (size_t)BLOCKS * BLOCK, seed_of(0, 1, 1));
        }
        free(buffer);
    }
    MPI_Type_free(&block);
}

int main(int argc, char **argv)
{
    const char *big = getenv("REDMPI_TEST_BIG");
    start(&argc, &argv);
    huge_extents();
    if (big != NULL && strcmp(big, "1") == 0 && size > 1) large_message();
    return finish("bigcount");
}
