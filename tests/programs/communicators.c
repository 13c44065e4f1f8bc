/* Communicators of every making, with messages on each: duplicates made and freed in a loop (their ids are used
 * again by Open MPI), split, create, create_group, intercommunicators, topologies, idup, several alive with the
 * same group, and one freed while a receive on it is pending. communicators [loops] */
#include "check.h"
#include <unistd.h>

/* A ring of messages on any communicator, of a size that changes, with tags that are the same everywhere. */
static void ring_on(MPI_Comm comm, int number)
{
    int me, all, got_bytes;
    unsigned char out[3000], in[3000];
    MPI_Status status;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    int next = (me + 1) % all, previous = (me + all - 1) % all;
    int bytes = 1 + (me * 7 + number * 13) % 2999, expected = 1 + (previous * 7 + number * 13) % 2999;
    fill(out, bytes, seed_of(me, next, number));
    MPI_Sendrecv(out, bytes, MPI_BYTE, next, 7, in, sizeof in, MPI_BYTE, previous, 7, comm, &status);
    MPI_Get_count(&status, MPI_BYTE, &got_bytes);
    EQUAL(got_bytes, expected);
    EQUAL(status.MPI_SOURCE, previous);
    CHECK(in, expected, seed_of(previous, me, number));
}

static void sum_on(MPI_Comm comm, int number)
{
    int me, all;
    long mine, sum = 0;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    mine = number + me;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
    EQUAL(sum, (long)all * number + (long)all * (all - 1) / 2);
    mix_number(sum);
}

/* One member is late on its own: the processes of the job drift apart while ids are used again. */
static void dup_and_free(int loops)
{
    MPI_Comm parent = MPI_COMM_WORLD, kept = MPI_COMM_NULL;
    for (int i = 0; i < loops; i++) {
        MPI_Comm comm;
        MPI_Comm_dup(parent, &comm);
        if (rank == i % size && i % 10 == 3) usleep(2000);
        ring_on(comm, i);
        if (i % 5 == 0) sum_on(comm, i);
        if (i % 7 == 0) ring_on(comm, i + 1);
        if (i % 50 == 20) { /* one that outlives its neighbours */
            if (kept != MPI_COMM_NULL) MPI_Comm_free(&kept);
            MPI_Comm_dup(comm, &kept);
        }
        if (kept != MPI_COMM_NULL && i % 9 == 0) ring_on(kept, i);
        MPI_Comm_free(&comm);
    }
    if (kept != MPI_COMM_NULL) MPI_Comm_free(&kept);
}

/* The same as above, where the messages on a communicator are still under way when the next is made. */
static void dup_in_flight(void)
{
    enum { COUNT = 12 };
    MPI_Comm comms[COUNT];
    MPI_Request requests[2 * COUNT];
    static int out[COUNT], in[COUNT];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < COUNT; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        out[i] = rank * 100 + i;
        MPI_Irecv(&in[i], 1, MPI_INT, previous, 7, comms[i], &requests[2 * i]);
        MPI_Isend(&out[i], 1, MPI_INT, next, 7, comms[i], &requests[2 * i + 1]);
    }
    MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++) EQUAL(in[i], previous * 100 + i);
    for (int i = COUNT - 1; i >= 0; i--) {
        ring_on(comms[i], i);
        MPI_Comm_free(&comms[i]);
    }
}

static void parts(void)
{
    MPI_Comm comm;
    MPI_Group world, odd;
    int ranks[size];

    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &comm);
    ring_on(comm, 31);
    sum_on(comm, 31);
    MPI_Comm_free(&comm);

    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, rank, &comm);
    REQUIRE((comm == MPI_COMM_NULL) == (rank == 0));
    if (comm != MPI_COMM_NULL) {
        ring_on(comm, 32);
        MPI_Comm_free(&comm);
    }

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comm);
    ring_on(comm, 33);
    MPI_Comm_free(&comm);

    int count = 0;
    for (int i = 0; i < size; i += 2) ranks[count++] = i;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, count, ranks, &odd);
    MPI_Comm_create(MPI_COMM_WORLD, odd, &comm);
    REQUIRE((comm != MPI_COMM_NULL) == (rank % 2 == 0));
    if (comm != MPI_COMM_NULL) {
        ring_on(comm, 34);
        sum_on(comm, 34);
        MPI_Comm_free(&comm);
    }
    if (rank % 2 == 0) { /* collective over the group only */
        for (int i = 0; i < 5; i++) {
            MPI_Comm_create_group(MPI_COMM_WORLD, odd, 40 + i, &comm);
            ring_on(comm, 40 + i);
            sum_on(comm, 40 + i);
            MPI_Comm_free(&comm);
        }
    }
    MPI_Group_free(&odd);
    MPI_Group_free(&world);
}

static void intercommunicator(void)
{
    MPI_Comm half, inter, again, merged;
    if (size < 2) return;
    int side = rank % 2, me, others, value, got = -1;
    MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 50, &inter);
    MPI_Comm_rank(inter, &me);
    MPI_Comm_remote_size(inter, &others);
    EQUAL(others, side == 0 ? size / 2 : (size + 1) / 2);
    MPI_Comm_dup(inter, &again);
    MPI_Comm both[2] = {inter, again};
    for (int c = 0; c < 2; c++) {
        /* Everybody of one side to rank 0 of the other, by name and from anybody. */
        value = 1000 * side + me + c;
        MPI_Request request;
        MPI_Isend(&value, 1, MPI_INT, 0, 51, both[c], &request);
        if (me == 0) {
            long sum = 0;
            for (int i = 0; i < others; i++) {
                MPI_Status status;
                MPI_Recv(&got, 1, MPI_INT, c == 0 ? i : MPI_ANY_SOURCE, 51, both[c], &status);
                EQUAL(got, 1000 * (1 - side) + status.MPI_SOURCE + c);
                sum += got;
            }
            mix_number(sum);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);

        long mine = 10 + rank, sum = 0, wanted = 0;
        for (int i = 1 - side; i < size; i += 2) wanted += 10 + i;
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, both[c]);
        EQUAL(sum, wanted);
        int word = side == 0 ? 4711 : -1;
        MPI_Bcast(&word, 1, MPI_INT, side == 0 ? (me == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0, both[c]);
        EQUAL(word, 4711);
        MPI_Barrier(both[c]);
    }
    MPI_Intercomm_merge(inter, side, &merged);
    int all;
    MPI_Comm_size(merged, &all);
    EQUAL(all, size);
    ring_on(merged, 52);
    sum_on(merged, 52);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&again);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static void topologies(void)
{
    MPI_Comm cart, row, graph, distributed;
    int dims[2] = {0, 0}, periods[2] = {1, 0}, keep[2] = {1, 0}, up, down, got = -1, me;
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &cart);
    MPI_Comm_rank(cart, &me);
    MPI_Cart_shift(cart, 0, 1, &up, &down);
    MPI_Sendrecv(&me, 1, MPI_INT, down, 60, &got, 1, MPI_INT, up, 60, cart, MPI_STATUS_IGNORE);
    EQUAL(got, up);
    MPI_Cart_shift(cart, 1, 1, &up, &down);
    got = -1;
    MPI_Sendrecv(&me, 1, MPI_INT, down, 61, &got, 1, MPI_INT, up, 61, cart, MPI_STATUS_IGNORE);
    EQUAL(got, up == MPI_PROC_NULL ? -1 : up);
    int neighbours[4] = {-1, -1, -1, -1};
    MPI_Neighbor_allgather(&me, 1, MPI_INT, neighbours, 1, MPI_INT, cart);
    for (int i = 0; i < 2; i++) {
        MPI_Cart_shift(cart, i, 1, &up, &down);
        EQUAL(neighbours[2 * i], up == MPI_PROC_NULL ? -1 : up);
        EQUAL(neighbours[2 * i + 1], down == MPI_PROC_NULL ? -1 : down);
    }
    MPI_Cart_sub(cart, keep, &row);
    ring_on(row, 62);
    MPI_Comm_free(&row);
    MPI_Comm_free(&cart);

    int index[size], edges[size];
    for (int i = 0; i < size; i++) {
        index[i] = i + 1;
        edges[i] = (i + 1) % size;
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &graph);
    ring_on(graph, 63);
    MPI_Comm_free(&graph);

    int previous = (rank + size - 1) % size, next = (rank + 1) % size, weight = 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &previous, &weight, 1, &next, &weight, MPI_INFO_NULL, 0,
                                   &distributed);
    MPI_Neighbor_alltoall(&rank, 1, MPI_INT, &got, 1, MPI_INT, distributed);
    EQUAL(got, previous);
    MPI_Comm_free(&distributed);
}

static void idup(void)
{
    MPI_Comm one, two;
    MPI_Request requests[2];
    MPI_Comm_idup(MPI_COMM_WORLD, &one, &requests[0]);
    ring_on(MPI_COMM_WORLD, 70); /* while it is being made */
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    ring_on(one, 71);
    MPI_Comm_idup(one, &two, &requests[1]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    ring_on(two, 72);
    sum_on(two, 72);
    MPI_Comm_free(&one);
    ring_on(two, 73);
    MPI_Comm_free(&two);
}

/* Freed with a receive pending: the communicator stays until the message is there. */
static void freed_while_pending(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < 5; i++) {
        MPI_Comm comm;
        MPI_Request receive, send;
        int number = rank * 10 + i, got = -1;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Irecv(&got, 1, MPI_INT, previous, 7, comm, &receive);
        if (i % 2) usleep(500 * rank);
        MPI_Isend(&number, 1, MPI_INT, next, 7, comm, &send);
        MPI_Comm_free(&comm);
        ring_on(MPI_COMM_WORLD, 80 + i);
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        EQUAL(got, previous * 10 + i);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    dup_and_free(argc > 1 ? atoi(argv[1]) : 300);
    dup_in_flight();
    parts();
    intercommunicator();
    topologies();
    idup();
    freed_while_pending();
    ring_on(MPI_COMM_WORLD, 90);
    ring_on(MPI_COMM_SELF, 91);
    return finish("communicators");
}
