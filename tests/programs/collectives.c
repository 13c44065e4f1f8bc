/* The 17 blocking collectives and their non-blocking forms, with MPI_IN_PLACE, the v and w forms, operations of
 * the program's own (one that does not commute, too), derived types, zero counts, and large ones. */
#include "check.h"

static int nonblocking; /* the form of this pass */
static MPI_Comm comm;

/* One call of the form of this pass: both names, then the arguments up to the communicator. */
#define CALL(name, iname, ...)                                                                       \
    do {                                                                                             \
        if (nonblocking) {                                                                           \
            MPI_Request request_;                                                                    \
            MPI_##iname(__VA_ARGS__, comm, &request_);                                               \
            MPI_Wait(&request_, MPI_STATUS_IGNORE);                                                  \
        } else {                                                                                     \
            MPI_##name(__VA_ARGS__, comm);                                                           \
        }                                                                                            \
    } while (0)

/* The value of element i in what `from` has for `to`. */
static int value(int from, int to, int i)
{
    return from * 1000003 + to * 1009 + i;
}

static void set(int *buffer, int from, int to, int count)
{
    for (int i = 0; i < count; i++) buffer[i] = value(from, to, i);
}

static void look(const int *buffer, int from, int to, int count, const char *what)
{
    for (int i = 0; i < count; i++) {
        if (buffer[i] != value(from, to, i)) {
            FAIL("%s%s: element %d of %d from %d is %d, not %d", nonblocking ? "non-blocking " : "", what, i, count,
                 from, buffer[i], value(from, to, i));
        }
    }
    mix(buffer, sizeof(int) * count);
}

static void rooted(int count, int root)
{
    int *mine = allocate(sizeof(int) * count), *all = allocate(sizeof(int) * count * size);
    int counts[size], places[size], total = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = i % 3 == 2 ? 0 : count - i % 2 * (count / 2);
        places[i] = total;
        total += counts[i];
    }

    if (rank == root) set(mine, root, 0, count);
    CALL(Bcast, Ibcast, mine, count, MPI_INT, root);
    look(mine, root, 0, count, "Bcast");

    set(mine, rank, root, count);
    CALL(Gather, Igather, mine, count, MPI_INT, all, count, MPI_INT, root);
    if (rank == root) for (int i = 0; i < size; i++) look(all + (size_t)i * count, i, root, count, "Gather");
    if (rank == root) {
        memset(all, 0, sizeof(int) * count * size);
        set(all + (size_t)root * count, root, root, count);
    }
    CALL(Gather, Igather, rank == root ? MPI_IN_PLACE : mine, count, MPI_INT, all, count, MPI_INT, root);
    if (rank == root) for (int i = 0; i < size; i++) look(all + (size_t)i * count, i, root, count, "Gather in place");

    CALL(Gatherv, Igatherv, mine, counts[rank], MPI_INT, all, counts, places, MPI_INT, root);
    if (rank == root) for (int i = 0; i < size; i++) look(all + places[i], i, root, counts[i], "Gatherv");

    if (rank == root) for (int i = 0; i < size; i++) set(all + (size_t)i * count, root, i, count);
    memset(mine, 0, sizeof(int) * count);
    CALL(Scatter, Iscatter, all, count, MPI_INT, mine, count, MPI_INT, root);
    look(mine, root, rank, count, "Scatter");
    memset(mine, 0, sizeof(int) * count);
    CALL(Scatter, Iscatter, all, count, MPI_INT, rank == root ? MPI_IN_PLACE : mine, count, MPI_INT, root);
    if (rank != root) look(mine, root, rank, count, "Scatter in place");

    if (rank == root) for (int i = 0; i < size; i++) set(all + places[i], root, i, counts[i]);
    CALL(Scatterv, Iscatterv, all, counts, places, MPI_INT, mine, counts[rank], MPI_INT, root);
    look(mine, root, rank, counts[rank], "Scatterv");
    free(mine);
    free(all);
}

static void everybody(int count)
{
    int *mine = allocate(sizeof(int) * count * size), *all = allocate(sizeof(int) * count * size);
    int counts[size], places[size], back[size], back_places[size], total = 0, back_total = 0;
    MPI_Datatype types[size];

    set(mine, rank, 0, count);
    CALL(Allgather, Iallgather, mine, count, MPI_INT, all, count, MPI_INT);
    for (int i = 0; i < size; i++) look(all + (size_t)i * count, i, 0, count, "Allgather");
    memset(all, 0, sizeof(int) * count * size);
    set(all + (size_t)rank * count, rank, 0, count);
    CALL(Allgather, Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, MPI_INT);
    for (int i = 0; i < size; i++) look(all + (size_t)i * count, i, 0, count, "Allgather in place");

    for (int i = 0; i < size; i++) {
        counts[i] = i % 3 == 1 ? 0 : count / (i + 1);
        places[i] = total;
        total += counts[i];
    }
    CALL(Allgatherv, Iallgatherv, mine, counts[rank], MPI_INT, all, counts, places, MPI_INT);
    for (int i = 0; i < size; i++) look(all + places[i], i, 0, counts[i], "Allgatherv");

    for (int i = 0; i < size; i++) set(mine + (size_t)i * count, rank, i, count);
    CALL(Alltoall, Ialltoall, mine, count, MPI_INT, all, count, MPI_INT);
    for (int i = 0; i < size; i++) look(all + (size_t)i * count, i, rank, count, "Alltoall");

    /* From a to b: count / (1 + (a + 2 b) % 4), and nothing where the two add up to a multiple of 3. */
    total = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = (rank + i) % 3 == 0 ? 0 : count / (1 + (rank + 2 * i) % 4);
        back[i] = (rank + i) % 3 == 0 ? 0 : count / (1 + (i + 2 * rank) % 4);
        places[i] = total;
        back_places[i] = back_total;
        total += counts[i];
        back_total += back[i];
        set(mine + places[i], rank, i, counts[i]);
        types[i] = MPI_INT;
    }
    CALL(Alltoallv, Ialltoallv, mine, counts, places, MPI_INT, all, back, back_places, MPI_INT);
    for (int i = 0; i < size; i++) look(all + back_places[i], i, rank, back[i], "Alltoallv");
    memset(all, 0, sizeof(int) * count * size);
    for (int i = 0; i < size; i++) { /* the w form has its places in bytes */
        places[i] *= (int)sizeof(int);
        back_places[i] *= (int)sizeof(int);
    }
    CALL(Alltoallw, Ialltoallw, mine, counts, places, types, all, back, back_places, types);
    for (int i = 0; i < size; i++) {
        look(all + back_places[i] / sizeof(int), i, rank, back[i], "Alltoallw");
    }
    free(mine);
    free(all);
}

/* Sums whose every step is exact, whatever the order. */
static void reductions(int count, int root)
{
    long long *mine = allocate(sizeof *mine * count * size), *all = allocate(sizeof *all * count * size);
    long long ranks = (long long)size * (size - 1) / 2;
#define SET(n) for (int i = 0; i < (n); i++) mine[i] = (long long)rank * 7 + i
#define LOOK(buffer, n, wanted, what)                                                                \
    do {                                                                                             \
        for (int i = 0; i < (n); i++) {                                                              \
            if ((buffer)[i] != (wanted)) FAIL("%s: element %d is %lld", what, i, (buffer)[i]);       \
        }                                                                                            \
        mix(buffer, sizeof *(buffer) * (n));                                                         \
    } while (0)

    SET(count);
    CALL(Reduce, Ireduce, mine, all, count, MPI_LONG_LONG, MPI_SUM, root);
    if (rank == root) LOOK(all, count, 7 * ranks + (long long)size * i, "Reduce");
    SET(count);
    CALL(Reduce, Ireduce, rank == root ? MPI_IN_PLACE : mine, mine, count, MPI_LONG_LONG, MPI_MAX, root);
    if (rank == root) LOOK(mine, count, 7LL * (size - 1) + i, "Reduce in place");

    SET(count);
    CALL(Allreduce, Iallreduce, mine, all, count, MPI_LONG_LONG, MPI_SUM);
    LOOK(all, count, 7 * ranks + (long long)size * i, "Allreduce");
    SET(count);
    CALL(Allreduce, Iallreduce, MPI_IN_PLACE, mine, count, MPI_LONG_LONG, MPI_MIN);
    LOOK(mine, count, i, "Allreduce in place");

    int counts[size], before = 0, total = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = i % 2 ? count / 2 : count;
        if (i < rank) before += counts[i];
        total += counts[i];
    }
    SET(total);
    CALL(Reduce_scatter, Ireduce_scatter, mine, all, counts, MPI_LONG_LONG, MPI_SUM);
    LOOK(all, counts[rank], 7 * ranks + (long long)size * (before + i), "Reduce_scatter");
    SET(count * size);
    CALL(Reduce_scatter_block, Ireduce_scatter_block, mine, all, count, MPI_LONG_LONG, MPI_SUM);
    LOOK(all, count, 7 * ranks + (long long)size * (rank * count + i), "Reduce_scatter_block");

    long long lower = (long long)rank * (rank - 1) / 2;
    SET(count);
    CALL(Scan, Iscan, mine, all, count, MPI_LONG_LONG, MPI_SUM);
    LOOK(all, count, 7 * (lower + rank) + (rank + 1LL) * i, "Scan");
    SET(count);
    CALL(Scan, Iscan, MPI_IN_PLACE, mine, count, MPI_LONG_LONG, MPI_SUM);
    LOOK(mine, count, 7 * (lower + rank) + (rank + 1LL) * i, "Scan in place");
    SET(count);
    CALL(Exscan, Iexscan, mine, all, count, MPI_LONG_LONG, MPI_SUM);
    if (rank > 0) LOOK(all, count, 7 * lower + (long long)rank * i, "Exscan"); /* undefined on rank 0 */
    free(mine);
    free(all);
}

/* x → a x + b, put one after the other: the order matters. */
struct line {
    unsigned a, b;
};

static void compose(void *in, void *inout, int *count, MPI_Datatype *type)
{
    struct line *first = in, *second = inout;
    (void)type;
    for (int i = 0; i < *count; i++) {
        struct line both = {first[i].a * second[i].a, first[i].b * second[i].a + second[i].b};
        second[i] = both;
    }
}

static struct line line_of(int who, int i)
{
    return (struct line){(unsigned)(2 * who + 3), (unsigned)(who + i)};
}

static void own_operation(int count)
{
    MPI_Op op;
    MPI_Datatype type;
    struct line *mine = allocate(sizeof *mine * count), *all = allocate(sizeof *all * count);
    struct line *wanted = allocate(sizeof *wanted * count);
    MPI_Type_contiguous(2, MPI_UNSIGNED, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose, 0, &op);
    for (int i = 0; i < count; i++) {
        mine[i] = line_of(rank, i);
        wanted[i] = line_of(0, i);
        for (int k = 1; k < size; k++) {
            struct line next = line_of(k, i);
            int one = 1;
            compose(&wanted[i], &next, &one, &type);
            wanted[i] = next;
        }
    }
    CALL(Allreduce, Iallreduce, mine, all, count, type, op);
    REQUIRE(memcmp(all, wanted, sizeof *all * count) == 0);
    memset(all, 0, sizeof *all * count);
    CALL(Reduce, Ireduce, mine, all, count, type, op, size - 1);
    if (rank == size - 1) REQUIRE(memcmp(all, wanted, sizeof *all * count) == 0);
    memset(all, 0, sizeof *all * count);
    CALL(Scan, Iscan, mine, all, count, type, op);
    if (rank == size - 1) REQUIRE(memcmp(all, wanted, sizeof *all * count) == 0);
    mix(wanted, sizeof *wanted * count);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    free(mine);
    free(all);
    free(wanted);
}

/* A column sent, a row received; the gaps of the receiving type stay as they were. */
static void derived(int count)
{
    MPI_Datatype vector, column;
    int room = count * 3, *out = allocate(sizeof(int) * room), *in = allocate(sizeof(int) * room * size);
    MPI_Type_vector(count, 1, 3, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, sizeof(int) * room, &column);
    MPI_Type_commit(&column);
    for (int root = 0; root < size; root += 2) {
        memset(in, 0xff, sizeof(int) * room);
        if (rank == root) for (int i = 0; i < count; i++) in[3 * i] = value(root, 5, i);
        CALL(Bcast, Ibcast, in, rank == root ? 1 : count, rank == root ? column : MPI_INT, root);
        if (rank != root) look(in, root, 5, count, "Bcast of a column");
    }
    set(out, rank, 6, count);
    memset(in, 0xff, sizeof(int) * room * size);
    CALL(Allgather, Iallgather, out, count, MPI_INT, in, 1, column);
    for (int k = 0; k < size; k++) {
        for (int i = 0; i < room; i++) {
            EQUAL(in[k * room + i], i % 3 == 0 ? value(k, 6, i / 3) : -1);
        }
    }
    mix(in, sizeof(int) * room * size);
    MPI_Type_free(&column);
    MPI_Type_free(&vector);
    free(out);
    free(in);
}

/* Several under way at a time, completed in the other order, with messages in between. */
static void overlapping(void)
{
    enum { COUNT = 6 };
    MPI_Request requests[COUNT + 1];
    long long mine[COUNT], sum[COUNT];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, got = -1;
    for (int i = 0; i < COUNT; i++) {
        mine[i] = rank + i;
        MPI_Iallreduce(&mine[i], &sum[i], 1, MPI_LONG_LONG, MPI_SUM, comm, &requests[i]);
    }
    MPI_Ibarrier(comm, &requests[COUNT]);
    MPI_Sendrecv(&rank, 1, MPI_INT, next, 1, &got, 1, MPI_INT, previous, 1, comm, MPI_STATUS_IGNORE);
    EQUAL(got, previous);
    for (int i = COUNT; i >= 0; i--) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    for (int i = 0; i < COUNT; i++) EQUAL(sum[i], (long long)size * (size - 1) / 2 + (long long)size * i);
}

static void barrier(void)
{
    if (nonblocking) {
        MPI_Request request;
        MPI_Ibarrier(comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Barrier(comm);
    }
}

static void everything(void)
{
    static const int counts[] = {0, 1, 3, 1000, 20000};
    for (nonblocking = 0; nonblocking < 2; nonblocking++) {
        barrier();
        for (unsigned c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            rooted(counts[c], (int)c % size);
            everybody(counts[c]);
            reductions(counts[c], (int)(c + 1) % size);
        }
        own_operation(1);
        own_operation(3000);
        derived(10);
        derived(5000);
        barrier();
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    comm = MPI_COMM_WORLD;
    everything();
    overlapping();
    for (nonblocking = 0; nonblocking < 2; nonblocking++) {
        rooted(1 << 18, size - 1); /* 1 MiB each */
        reductions(1 << 17, 0);
    }
    nonblocking = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &comm);
    int world_rank = rank, world_size = size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    rooted(100, 0);
    everybody(100);
    reductions(100, size - 1);
    rank = world_rank;
    size = world_size;
    MPI_Comm_free(&comm);
    return finish("collectives");
}
