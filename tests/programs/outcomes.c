/* Calls whose outcome depends on timing. Whatever was found is folded into `seen` and sent to the neighbour, so that a
 * difference between replicas is a mismatch; what is printed does not depend on timing. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int next_, prev;
static unsigned long seen;

static void see(long value)
{
    seen = seen * 1099511628211UL + (unsigned long) value;
}

/* What was seen, compared: it goes round in messages. */
static void show(void)
{
    unsigned long theirs = 0;
    MPI_Sendrecv(&seen, 1, MPI_UNSIGNED_LONG, next_, 99, &theirs, 1, MPI_UNSIGNED_LONG, prev, 99, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

/* Each process is late at times of its own: replicas too. */
static void dawdle(void)
{
    static unsigned state;
    if (state == 0) {
        struct timespec now;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now); /* not shared, nor is the process number */
        state = (unsigned) (syscall(SYS_getpid) * 2654435761u) ^ (unsigned) now.tv_nsec;
    }
    state = state * 1664525u + 1013904223u;
    if (state >> 29 == 0) {
        usleep(state >> 20 & 1023);
    }
}

enum { N = 8 };

static void post(int values[N], MPI_Request requests[2 * N], int out[N])
{
    for (int i = 0; i < N; i++) {
        values[i] = -1;
        MPI_Irecv(&values[i], 1, MPI_INT, prev, i, MPI_COMM_WORLD, &requests[i]);
    }
    dawdle();
    for (int i = 0; i < N; i++) {
        int k = (i * 5 + rank) % N;
        out[k] = 100 * rank + k;
        MPI_Isend(&out[k], 1, MPI_INT, next_, k, MPI_COMM_WORLD, &requests[N + k]);
        dawdle();
    }
}

static void done(int values[N])
{
    for (int i = 0; i < N; i++) {
        if (!(values[i] == 100 * prev + i)) FAIL("value %d is %d", i, values[i]);
        mix_number(values[i]);
    }
}

static void waitany(void)
{
    int values[N], out[N], index;
    MPI_Request requests[2 * N];
    MPI_Status status;
    post(values, requests, out);
    for (int i = 0; i < 2 * N; i++) {
        MPI_Waitany(2 * N, requests, &index, &status);
        see(index);
        if (index < N) {
            if (!(status.MPI_TAG == index && status.MPI_SOURCE == prev)) FAIL("status of %d", index);
        }
        if (!(requests[index] == MPI_REQUEST_NULL)) FAIL("request %d is left", index);
        dawdle();
    }
    MPI_Waitany(2 * N, requests, &index, &status);
    if (!(index == MPI_UNDEFINED)) FAIL("index %d of nothing", index);
    done(values);
}

static void waitsome(void)
{
    int values[N], out[N], indices[2 * N], count, left = 2 * N;
    MPI_Request requests[2 * N];
    MPI_Status statuses[2 * N];
    post(values, requests, out);
    while (left > 0) {
        MPI_Waitsome(2 * N, requests, &count, indices, statuses);
        if (!(count > 0)) FAIL("count %d", count);
        for (int i = 0; i < count; i++) {
            see(indices[i]);
            if (indices[i] < N) {
                if (!(statuses[i].MPI_TAG == indices[i])) FAIL("status of %d", indices[i]);
            }
        }
        left -= count;
    }
    MPI_Waitsome(2 * N, requests, &count, indices, statuses);
    if (!(count == MPI_UNDEFINED)) FAIL("count %d of nothing", count);
    done(values);
}

static void testany(void)
{
    int values[N], out[N], index, flag, left = 2 * N;
    MPI_Request requests[2 * N];
    post(values, requests, out);
    while (left > 0) {
        MPI_Testany(2 * N, requests, &index, &flag, MPI_STATUS_IGNORE);
        see(flag ? index : -1);
        left -= flag;
    }
    done(values);
}

static void testsome(void)
{
    int values[N], out[N], indices[2 * N], count, left = 2 * N;
    MPI_Request requests[2 * N];
    post(values, requests, out);
    while (left > 0) {
        MPI_Testsome(2 * N, requests, &count, indices, MPI_STATUSES_IGNORE);
        see(count);
        for (int i = 0; i < count; i++) {
            see(indices[i]);
        }
        left -= count;
        dawdle();
    }
    done(values);
}

static void testall(void)
{
    int values[N], out[N], flag = 0;
    MPI_Request requests[2 * N];
    MPI_Status statuses[2 * N];
    post(values, requests, out);
    while (!flag) {
        MPI_Testall(2 * N, requests, &flag, statuses);
        see(flag);
    }
    for (int i = 0; i < N; i++) {
        if (!(statuses[i].MPI_TAG == i)) FAIL("status of %d", i);
    }
    done(values);
}

static void test_and_status(void)
{
    int values[N], out[N];
    MPI_Request requests[2 * N];
    MPI_Status status;
    post(values, requests, out);
    for (int i = 0; i < 2 * N; i++) {
        int flag = 0;
        long tries = 0;
        while (!flag) {
            MPI_Request_get_status(requests[i], &flag, &status);
            see(flag);
            dawdle();
        }
        if (!(requests[i] != MPI_REQUEST_NULL)) FAIL("request %d is gone", i);
        flag = 0;
        while (!flag) {
            MPI_Test(&requests[i], &flag, &status);
            tries++;
        }
        see(tries);
    }
    done(values);
}

/* Collectives and generalised requests among the others. */
static int query(void *state, MPI_Status *status)
{
    (void) state;
    MPI_Status_set_elements(status, MPI_INT, 1);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 7;
    status->MPI_TAG = 8;
    return MPI_SUCCESS;
}
static int freed(void *state)
{
    ++*(int *) state;
    return MPI_SUCCESS;
}
static int cancelled(void *state, int complete)
{
    (void) state;
    (void) complete;
    return MPI_SUCCESS;
}

static void mixture(void)
{
    int in = rank + 1, all = 0, value = -1, out = rank, index, frees = 0, persistent = -1;
    MPI_Request requests[6];
    MPI_Grequest_start(query, freed, cancelled, &frees, &requests[0]);
    MPI_Iallreduce(&in, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &requests[3]);
    MPI_Recv_init(&persistent, 1, MPI_INT, prev, 51, MPI_COMM_WORLD, &requests[4]);
    MPI_Start(&requests[4]);
    requests[5] = MPI_REQUEST_NULL;
    MPI_Send(&out, 1, MPI_INT, next_, 50, MPI_COMM_WORLD);
    MPI_Send(&out, 1, MPI_INT, next_, 51, MPI_COMM_WORLD);
    MPI_Request persistent_request = requests[4];
    for (int i = 0; i < 5; i++) {
        MPI_Status status;
        if (i == 2) {
            MPI_Grequest_complete(requests[0]);
        }
        MPI_Waitany(6, requests, &index, &status);
        see(index);
        if (index == 0) {
            if (!(status.MPI_TAG == 8)) FAIL("tag of a generalised request: %d", status.MPI_TAG);
        }
        dawdle();
    }
    if (!(frees == 1 && all == size * (size + 1) / 2 && value == prev && persistent == prev)) FAIL("mixture: %d %d %d %d",
          frees, all, value, persistent);
    if (!(requests[4] == persistent_request)) FAIL("the persistent request is gone");
    MPI_Request_free(&requests[4]);
    mix_number(all);
}

static void probes(void)
{
    int out = rank, value, flag, found = 0;
    long tries = 0;
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    dawdle();
    MPI_Isend(&out, 1, MPI_INT, next_, 60, MPI_COMM_WORLD, &request);
    while (!found) {
        MPI_Iprobe(MPI_ANY_SOURCE, 60, MPI_COMM_WORLD, &found, &status);
        tries++;
    }
    see(tries);
    MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, 60, MPI_COMM_WORLD, &status);
    if (!(value == prev)) FAIL("after the probe: %d", value);
    MPI_Wait(&request, MPI_STATUS_IGNORE);

    dawdle();
    MPI_Isend(&out, 1, MPI_INT, next_, 61, MPI_COMM_WORLD, &request);
    for (tries = 0, flag = 0; !flag; tries++) {
        MPI_Improbe(prev, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status);
        dawdle();
    }
    see(tries);
    MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
    if (!(value == prev && status.MPI_TAG == 61)) FAIL("matched: %d tag %d", value, status.MPI_TAG);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A receive that may be cancelled just when its message comes. */
static void cancel(void)
{
    int out = rank, values[2] = {-1, -1}, flag;
    MPI_Request receive, send;
    MPI_Status status;
    MPI_Irecv(values, 1, MPI_INT, prev, 70, MPI_COMM_WORLD, &receive);
    MPI_Isend(&out, 1, MPI_INT, next_, 70, MPI_COMM_WORLD, &send);
    dawdle();
    MPI_Cancel(&receive);
    MPI_Wait(&receive, &status);
    MPI_Test_cancelled(&status, &flag);
    see(flag);
    if (flag) {
        if (!(values[0] == -1)) FAIL("a cancelled receive has received %d", values[0]);
        MPI_Recv(values, 1, MPI_INT, prev, 70, MPI_COMM_WORLD, &status);
    }
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    if (!(values[0] == prev)) FAIL("after cancelling: %d", values[0]);

    /* Nothing comes: it is cancelled, wildcards and persistent ones too. */
    MPI_Irecv(values + 1, 1, MPI_INT, MPI_ANY_SOURCE, 71, MPI_COMM_WORLD, &receive);
    MPI_Cancel(&receive);
    MPI_Wait(&receive, &status);
    MPI_Test_cancelled(&status, &flag);
    if (!(flag)) FAIL("a receive that nothing matches was not cancelled");
    MPI_Recv_init(values + 1, 1, MPI_INT, prev, 72, MPI_COMM_WORLD, &receive);
    for (int i = 0; i < 2; i++) {
        MPI_Start(&receive);
        MPI_Cancel(&receive);
        MPI_Wait(&receive, &status);
        MPI_Test_cancelled(&status, &flag);
        if (!(flag && values[1] == -1)) FAIL("persistent: %d %d", flag, values[1]);
    }
    MPI_Request_free(&receive);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Sendrecv(&out, 1, MPI_INT, next_, 71, &values[1], 1, MPI_INT, prev, 71, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!(values[1] == prev)) FAIL("the place of a cancelled receive: %d", values[1]);
}

/* A loop of very many unsuccessful tests: the neighbour waits a while. */
static void a_million(void)
{
    int value = -1, out = rank, flag = 0;
    long tries = 0;
    MPI_Request receive;
    MPI_Irecv(&value, 1, MPI_INT, prev, 80, MPI_COMM_WORLD, &receive);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        usleep(300000);
        MPI_Send(&out, 1, MPI_INT, next_, 80, MPI_COMM_WORLD);
    }
    while (!flag) {
        MPI_Test(&receive, &flag, MPI_STATUS_IGNORE);
        tries++;
    }
    if (rank != 0) {
        MPI_Send(&out, 1, MPI_INT, next_, 80, MPI_COMM_WORLD);
    }
    see(tries);
    if (!(value == prev)) FAIL("at last: %d", value);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    next_ = (rank + 1) % size;
    prev = (rank + size - 1) % size;
    for (int round = 0; round < 20; round++) {
        waitany();
        waitsome();
        testany();
        testsome();
        testall();
        test_and_status();
        mixture();
        probes();
        cancel();
        show();
    }
    a_million();
    show();
    return finish("outcomes");
}
