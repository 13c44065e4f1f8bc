/* Every send mode, blocking and not, at sizes around the limits between eager and rendezvous; sendrecv,
 * sendrecv_replace, MPI_PROC_NULL, messages to self, Waitall over a mixture, a freed active send. */
#include "check.h"

static const int sizes[] = {0, 1, 8, 1000, 4000, 4096, 5000, 65536, 70000, 300000, 4 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0], MODES = 4, LARGEST = 4 << 20 };

typedef int (*send_t)(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int (*isend_t)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
static const send_t blocking[MODES] = {MPI_Send, MPI_Bsend, MPI_Ssend, MPI_Rsend};
static const isend_t nonblocking[MODES] = {MPI_Isend, MPI_Ibsend, MPI_Issend, MPI_Irsend};

static int next, previous;
static unsigned char *out, *in;

/* The receive is posted, and known by the sender to be, before anyone sends: what a ready send needs, and
 * what lets every rank use a blocking synchronous send at the same time. */
static void modes_in_ring(int nonblocking_form)
{
    for (int s = 0; s < SIZES; s++) {
        for (int mode = 0; mode < MODES; mode++) {
            int bytes = sizes[s], tag = 100 + mode;
            MPI_Request requests[2];
            MPI_Status statuses[2];
            fill(out, bytes, seed_of(rank, next, tag + s));
            memset(in, 0xa5, bytes + 1);
            MPI_Irecv(in, bytes, MPI_BYTE, previous, tag, MPI_COMM_WORLD, &requests[0]);
            MPI_Sendrecv(NULL, 0, MPI_BYTE, previous, 99, NULL, 0, MPI_BYTE, next, 99, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            if (nonblocking_form) {
                nonblocking[mode](out, bytes, MPI_BYTE, next, tag, MPI_COMM_WORLD, &requests[1]);
                MPI_Waitall(2, requests, statuses);
            } else {
                blocking[mode](out, bytes, MPI_BYTE, next, tag, MPI_COMM_WORLD);
                MPI_Wait(&requests[0], &statuses[0]);
            }
            CHECK_STATUS(&statuses[0], previous, tag, bytes);
            CHECK(in, bytes, seed_of(previous, rank, tag + s));
            GUARD(in + bytes, 1, 0xa5);
        }
    }
}

/* Blocking receives whose message may come before or after they are posted. */
static void blocking_pairs(void)
{
    if (size < 2) return;
    for (int s = 0; s < SIZES; s++) {
        for (int mode = 0; mode < 3; mode++) { /* a ready send has no posted receive here */
            int bytes = sizes[s];
            if (rank % 2 == 0 && rank + 1 < size) {
                fill(out, bytes, seed_of(rank, rank + 1, s));
                blocking[mode](out, bytes, MPI_BYTE, rank + 1, s, MPI_COMM_WORLD);
                /* One that is longer than the message, without a status. */
                MPI_Recv(in, LARGEST, MPI_BYTE, rank + 1, s, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                CHECK(in, bytes, seed_of(rank + 1, rank, s));
            } else if (rank % 2 == 1) {
                MPI_Status status;
                MPI_Recv(in, LARGEST, MPI_BYTE, rank - 1, s, MPI_COMM_WORLD, &status);
                CHECK_STATUS(&status, rank - 1, s, bytes);
                CHECK(in, bytes, seed_of(rank - 1, rank, s));
                fill(out, bytes, seed_of(rank, rank - 1, s));
                blocking[mode](out, bytes, MPI_BYTE, rank - 1, s, MPI_COMM_WORLD);
            }
        }
    }
}

static void sendrecv(void)
{
    for (int s = 0; s < SIZES; s++) {
        int bytes = sizes[s];
        MPI_Status status;
        fill(out, bytes, seed_of(rank, next, s));
        MPI_Sendrecv(out, bytes, MPI_BYTE, next, 5, in, LARGEST, MPI_BYTE, previous, 5, MPI_COMM_WORLD, &status);
        CHECK_STATUS(&status, previous, 5, bytes);
        CHECK(in, bytes, seed_of(previous, rank, s));

        fill(out, bytes, seed_of(rank, previous, s));
        MPI_Sendrecv_replace(out, bytes, MPI_BYTE, previous, 6, next, 6, MPI_COMM_WORLD, &status);
        CHECK_STATUS(&status, next, 6, bytes);
        CHECK(out, bytes, seed_of(next, rank, s));
    }
}

static void nobody(void)
{
    MPI_Status status;
    MPI_Request requests[2];
    MPI_Send(out, 10, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Ssend(out, 10, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Recv(in, 10, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    CHECK_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    MPI_Isend(out, 10, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(in, 10, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    /* A chain: the ends send to nobody and receive from nobody. */
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    fill(out, 500, seed_of(rank, right, 7));
    memset(in, 0x11, 500);
    MPI_Sendrecv(out, 500, MPI_BYTE, right, 7, in, 500, MPI_BYTE, left, 7, MPI_COMM_WORLD, &status);
    if (left == MPI_PROC_NULL) GUARD(in, 500, 0x11);
    else CHECK(in, 500, seed_of(left, rank, 7));
}

static void myself(void)
{
    for (int s = 0; s < SIZES; s++) {
        int bytes = sizes[s];
        MPI_Request request;
        MPI_Status status;
        fill(out, bytes, seed_of(rank, rank, s));
        MPI_Irecv(in, bytes, MPI_BYTE, rank, s, MPI_COMM_WORLD, &request);
        MPI_Send(out, bytes, MPI_BYTE, rank, s, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        CHECK_STATUS(&status, rank, s, bytes);
        CHECK(in, bytes, seed_of(rank, rank, s));

        MPI_Isend(out, bytes, MPI_BYTE, 0, s, MPI_COMM_SELF, &request);
        MPI_Recv(in, bytes, MPI_BYTE, 0, s, MPI_COMM_SELF, &status);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK_STATUS(&status, 0, s, bytes);
        CHECK(in, bytes, seed_of(rank, rank, s));
    }
}

/* All sizes and modes in flight at the same time, completed together, with null requests in between. */
static void mixture(void)
{
    enum { COUNT = SIZES * 3 };
    unsigned char *outs[COUNT], *ins[COUNT];
    MPI_Request requests[2 * COUNT + 1];
    MPI_Status statuses[2 * COUNT + 1];
    for (int i = 0; i < COUNT; i++) {
        int bytes = sizes[i % SIZES], mode = i / SIZES; /* standard, buffered, synchronous */
        outs[i] = allocate(bytes);
        ins[i] = allocate(bytes);
        fill(outs[i], bytes, seed_of(rank, next, i));
        if (mode == 1 && bytes > 70000) mode = 0; /* the attached buffer holds a few large ones only */
        nonblocking[mode](outs[i], bytes, MPI_BYTE, next, i, MPI_COMM_WORLD, &requests[2 * i]);
        int last = COUNT - 1 - i; /* the receives in the opposite order, so some messages are unexpected */
        MPI_Irecv(ins[i] = realloc(ins[i], sizes[last % SIZES] + 1), sizes[last % SIZES], MPI_BYTE, previous, last,
                  MPI_COMM_WORLD, &requests[2 * i + 1]);
    }
    requests[2 * COUNT] = MPI_REQUEST_NULL;
    MPI_Waitall(2 * COUNT + 1, requests, statuses);
    for (int i = 0; i < COUNT; i++) {
        int last = COUNT - 1 - i, bytes = sizes[last % SIZES];
        REQUIRE(requests[2 * i] == MPI_REQUEST_NULL && requests[2 * i + 1] == MPI_REQUEST_NULL);
        CHECK_STATUS(&statuses[2 * i + 1], previous, last, bytes);
        CHECK(ins[i], bytes, seed_of(previous, rank, last));
        free(ins[i]);
        free(outs[i]);
    }
}

/* A send whose request is given away still arrives; its buffer is left alone until the answer came. */
static void freed(void)
{
    for (int s = 0; s < SIZES; s++) {
        int bytes = sizes[s], answer = 0;
        MPI_Request request, receive;
        fill(out, bytes, seed_of(rank, next, 1000 + s));
        MPI_Irecv(in, bytes, MPI_BYTE, previous, 20, MPI_COMM_WORLD, &receive);
        MPI_Isend(out, bytes, MPI_BYTE, next, 20, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        REQUIRE(request == MPI_REQUEST_NULL);
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
        CHECK(in, bytes, seed_of(previous, rank, 1000 + s));
        MPI_Sendrecv(&s, 1, MPI_INT, previous, 21, &answer, 1, MPI_INT, next, 21, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EQUAL(answer, s);
    }
}

int main(int argc, char **argv)
{
    int attached = 4 * (LARGEST + MPI_BSEND_OVERHEAD), detached = 0;
    void *buffer;
    start(&argc, &argv);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    out = allocate(LARGEST + 1);
    in = allocate(LARGEST + 1);
    buffer = allocate(attached);
    MPI_Buffer_attach(buffer, attached);

    modes_in_ring(0);
    modes_in_ring(1);
    blocking_pairs();
    sendrecv();
    nobody();
    myself();
    mixture();
    freed();

    MPI_Buffer_detach(&buffer, &detached);
    EQUAL(detached, attached);
    free(buffer);
    free(in);
    free(out);
    return finish("p2p_modes");
}
