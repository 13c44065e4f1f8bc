/* One collective operation that a fault hits: who sees what? `containment <operation> <form> [<native rank>]`: form is
 * blocking or nonblocking; a native rank's reduction (an operation of the program's own) flips a bit, once.
 *
 * SAW <native rank>: its result is wrong. OWN <native rank>: what it contributed is no longer what it wrote. */
#include "check.h"

enum { COUNT = 4096 };

static int flip;

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    unsigned *from = in, *into = inout;
    (void)type;
    for (int i = 0; i < *count; i++) into[i] += from[i];
    if (flip && *count > 0) into[*count / 2] ^= 1u << 20;
    flip = 0;
}

static unsigned value(int from, int to, int i)
{
    return (unsigned)(from * 1000003 + to * 1009 + i);
}

int main(int argc, char **argv)
{
    static unsigned in[64 * COUNT], out[64 * COUNT];
    int wrong = 0, own = 0;
    const char *native = getenv("OMPI_COMM_WORLD_RANK");
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Op op;
    start(&argc, &argv);
    REQUIRE(argc >= 3 && size <= 64 && native != NULL);
    const char *name = argv[1];
    int later = strcmp(argv[2], "nonblocking") == 0;
    flip = argc > 3 && strcmp(argv[3], native) == 0;
    MPI_Op_create(add, 1, &op);
#define IS(wanted) (strcmp(name, wanted) == 0)
#define CALL(call, icall, ...)                                                                       \
    do {                                                                                             \
        if (later) MPI_##icall(__VA_ARGS__, MPI_COMM_WORLD, &request);                               \
        else MPI_##call(__VA_ARGS__, MPI_COMM_WORLD);                                                \
        MPI_Wait(&request, MPI_STATUS_IGNORE);                                                       \
    } while (0)
    for (int to = 0; to < size; to++) {
        for (int i = 0; i < COUNT; i++) out[to * COUNT + i] = value(rank, IS("alltoall") ? to : 0, i);
    }
    if (IS("allreduce") || IS("reduce")) {
        if (IS("allreduce")) CALL(Allreduce, Iallreduce, out, in, COUNT, MPI_UNSIGNED, op);
        else CALL(Reduce, Ireduce, out, in, COUNT, MPI_UNSIGNED, op, 0);
        for (int i = 0; i < COUNT && (IS("allreduce") || rank == 0); i++) {
            unsigned sum = 0;
            for (int from = 0; from < size; from++) sum += value(from, 0, i);
            wrong += in[i] != sum;
        }
    } else if (IS("bcast")) {
        if (rank == 0) memcpy(in, out, sizeof(unsigned) * COUNT);
        CALL(Bcast, Ibcast, in, COUNT, MPI_UNSIGNED, 0);
        for (int i = 0; i < COUNT; i++) wrong += in[i] != value(0, 0, i);
    } else if (IS("gather")) {
        CALL(Gather, Igather, out, COUNT, MPI_UNSIGNED, in, COUNT, MPI_UNSIGNED, 0);
        for (int from = 0; from < size && rank == 0; from++) {
            for (int i = 0; i < COUNT; i++) wrong += in[from * COUNT + i] != value(from, 0, i);
        }
    } else if (IS("alltoall")) {
        CALL(Alltoall, Ialltoall, out, COUNT, MPI_UNSIGNED, in, COUNT, MPI_UNSIGNED);
        for (int from = 0; from < size; from++) {
            for (int i = 0; i < COUNT; i++) wrong += in[from * COUNT + i] != value(from, rank, i);
        }
    } else {
        FAIL("no operation %s", name);
    }
    for (int to = 0; to < size; to++) {
        for (int i = 0; i < COUNT; i++) own += out[to * COUNT + i] != value(rank, IS("alltoall") ? to : 0, i);
    }
    if (wrong) fprintf(stderr, "SAW %s\n", native);
    if (own) fprintf(stderr, "OWN %s\n", native);
    fflush(stderr);
    MPI_Op_free(&op);
    MPI_Finalize();
    return 0;
}
