/* What collectives.c leaves out: persistent forms, neighbourhoods with borders, intercommunicators, MPI_Reduce_local,
 * derived types with a negative lower bound. */
#include "check.h"
#include <mpi-ext.h>

enum { COUNT = 500, ROUNDS = 5 };

static int value(int from, int to, int i)
{
    return from * 1000003 + to * 1009 + i;
}

static void persistent(void)
{
    static int sums[COUNT], mine[COUNT], all[COUNT], spread[COUNT];
    int *out = allocate(sizeof(int) * COUNT * size), *in = allocate(sizeof(int) * COUNT * size);
    MPI_Request requests[3];
    int last = size - 1;
    MPIX_Allreduce_init(mine, sums, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPIX_Bcast_init(spread, COUNT, MPI_INT, last, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPIX_Alltoall_init(out, COUNT, MPI_INT, in, COUNT, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) {
            mine[i] = rank + round + i;
            spread[i] = rank == last ? value(round, 7, i) : -1;
            for (int to = 0; to < size; to++) out[to * COUNT + i] = value(rank, to, i + round);
        }
        memset(all, 0, sizeof all);
        memset(in, 0xff, sizeof(int) * COUNT * size);
        if (round % 2) {
            MPI_Startall(3, requests);
        } else {
            for (int k = 0; k < 3; k++) MPI_Start(&requests[k]);
        }
        if (round == 2) {
            for (int k = 2; k >= 0; k--) MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
        } else {
            MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        }
        for (int i = 0; i < COUNT; i++) {
            EQUAL(sums[i], size * (size - 1) / 2 + size * (round + i));
            EQUAL(spread[i], value(round, 7, i));
            for (int from = 0; from < size; from++) EQUAL(in[from * COUNT + i], value(from, rank, i + round));
        }
        mix(sums, sizeof sums);
        mix(in, sizeof(int) * COUNT * size);
    }
    for (int k = 0; k < 3; k++) MPI_Request_free(&requests[k]);
    free(out);
    free(in);
}

/* A line of processes: its ends have MPI_PROC_NULL for a neighbour, whose place in the buffer stays as it was. */
static void line(void)
{
    int periodic = 0, below, above, out[2 * COUNT], in[2 * COUNT];
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &cart);
    MPI_Cart_shift(cart, 0, 1, &below, &above);
    for (int form = 0; form < 4; form++) {
        MPI_Request request;
        for (int i = 0; i < COUNT; i++) {
            out[i] = value(rank, form < 2 ? below : rank, i);
            out[COUNT + i] = value(rank, above, i);
        }
        memset(in, 0xff, sizeof in);
        if (form == 0) MPI_Neighbor_alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, cart);
        if (form == 1) MPI_Ineighbor_alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, cart, &request);
        if (form == 2) MPI_Neighbor_allgather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, cart);
        if (form == 3) MPI_Ineighbor_allgather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, cart, &request);
        if (form % 2) MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < COUNT; i++) {
            EQUAL(in[i], below == MPI_PROC_NULL ? -1 : value(below, form < 2 ? rank : below, i));
            EQUAL(in[COUNT + i], above == MPI_PROC_NULL ? -1 : value(above, form < 2 ? rank : above, i));
        }
        mix(in, sizeof in);
    }
    MPI_Comm_free(&cart);
}

/* Everybody hears the two ranks before it. */
static void graph(void)
{
    int from[2] = {(rank + size - 1) % size, (rank + size - 2 + size) % size};
    int to[2] = {(rank + 1) % size, (rank + 2) % size};
    int weights[2] = {1, 1}, counts[2] = {COUNT, COUNT / 2}, places[2] = {COUNT, 0}, out[COUNT], in[2 * COUNT];
    MPI_Comm comm;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, weights, 2, to, weights, MPI_INFO_NULL, 0, &comm);
    for (int i = 0; i < COUNT; i++) out[i] = value(rank, 3, i);
    int starts[2] = {0, 0};
    memset(in, 0xff, sizeof in);
    MPI_Neighbor_alltoallv(out, counts, starts, MPI_INT, in, counts, places, MPI_INT, comm);
    for (int i = 0; i < COUNT; i++) {
        EQUAL(in[COUNT + i], value(from[0], 3, i));
        EQUAL(in[i], i < COUNT / 2 ? value(from[1], 3, i) : -1);
    }
    mix(in, sizeof in);
    MPI_Comm_free(&comm);
}

/* Even ranks and odd ranks, facing each other. */
static void between(void)
{
    MPI_Comm half, both;
    int odd = rank % 2, mine, others, buffer[COUNT], sums[COUNT];
    MPI_Comm_split(MPI_COMM_WORLD, odd, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - odd, 5, &both);
    MPI_Comm_rank(both, &mine);
    MPI_Comm_remote_size(both, &others);
    for (int form = 0; form < 2; form++) {
        MPI_Request request = MPI_REQUEST_NULL;
        /* From the first of the even ranks to all odd ones; the other even ranks take no part. */
        int root = odd ? 0 : mine == 0 ? MPI_ROOT : MPI_PROC_NULL;
        for (int i = 0; i < COUNT; i++) buffer[i] = odd || mine ? -1 : value(9, form, i);
        if (form) MPI_Ibcast(buffer, COUNT, MPI_INT, root, both, &request);
        else MPI_Bcast(buffer, COUNT, MPI_INT, root, both);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < COUNT; i++) EQUAL(buffer[i], odd || !mine ? value(9, form, i) : -1);
        /* Each group gets the other's sum. */
        for (int i = 0; i < COUNT; i++) buffer[i] = mine * 3 + odd + i;
        if (form) MPI_Iallreduce(buffer, sums, COUNT, MPI_INT, MPI_SUM, both, &request);
        else MPI_Allreduce(buffer, sums, COUNT, MPI_INT, MPI_SUM, both);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < COUNT; i++) EQUAL(sums[i], 3 * others * (others - 1) / 2 + others * (1 - odd + i));
        mix(sums, sizeof sums);
        MPI_Barrier(both);
    }
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

/* The elements lie before the address that is given, with gaps. */
static void negative(void)
{
    int counts[3] = {1, 1, 1}, room[16];
    MPI_Aint places[3] = {-4 * (MPI_Aint)sizeof(int), 0, 3 * (MPI_Aint)sizeof(int)};
    MPI_Datatype type;
    MPI_Type_create_hindexed(3, counts, places, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < 16; i++) room[i] = rank == 0 ? i * 11 : -1;
    MPI_Bcast(room + 8, 1, type, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 16; i++) EQUAL(room[i], rank == 0 || i == 4 || i == 8 || i == 11 ? i * 11 : -1);
    MPI_Bcast(NULL, 0, type, 0, MPI_COMM_WORLD);
    MPI_Type_free(&type);
    int a[COUNT], b[COUNT];
    for (int i = 0; i < COUNT; i++) {
        a[i] = i + rank;
        b[i] = 2 * i;
    }
    MPI_Reduce_local(a, b, COUNT, MPI_INT, MPI_SUM);
    for (int i = 0; i < COUNT; i++) EQUAL(b[i], 3 * i + rank);
    mix(b, sizeof b);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    REQUIRE(size >= 3);
    persistent();
    line();
    graph();
    between();
    negative();
    return finish("collectives_more");
}
