/* Wildcard receives: source, tag, both; blocking and not; many at once beside named ones, on two communicators;
 * and a master that serves whoever asks first. Which source comes first differs from run to run, but must not
 * differ between replicas: the master sends the order it saw on to everybody, so that replicas that saw
 * different orders send different messages, which redmpi would count as mismatched.
 * The RESULT holds only what is the same in every run. An optional argument gives the number of rounds. */
#include "check.h"
#include <unistd.h>

enum { LARGEST = 20000 };
static int rounds;
static uint64_t order;
static unsigned char in[LARGEST], out[LARGEST];

static void saw(int source, int tag, int bytes)
{
    order = scramble(order ^ ((uint64_t)source << 40) ^ ((uint64_t)tag << 20) ^ (uint64_t)bytes);
}

static int bytes_of(int from, int number)
{
    static const int some[] = {0, 1, 8, 100, 3000, 4096, 5000, LARGEST};
    return some[(from * 3 + number) % 8];
}

/* Puts together what does not depend on the order of arrival. */
static uint64_t together;

static void received(const void *buffer, const MPI_Status *status)
{
    int bytes, source = status->MPI_SOURCE, tag = status->MPI_TAG;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if (source < 0 || source >= size) FAIL("status says source %d", source);
    EQUAL(bytes, bytes_of(source, tag));
    size_t first = 0;
    if (wrong_bytes(buffer, bytes, seed_of(source, rank, tag), &first) != 0) {
        FAIL("message %d from %d is wrong at byte %zu", tag, source, first);
    }
    together += scramble(seed_of(source, rank, tag) ^ (uint64_t)bytes);
    saw(source, tag, bytes);
}

/* Every rank tells its order to the next, which passes it on to its own checksum's message. */
static void tell_order(void)
{
    uint64_t theirs = 0, all = 0;
    MPI_Sendrecv(&order, 1, MPI_UINT64_T, (rank + 1) % size, 77, &theirs, 1, MPI_UINT64_T, (rank + size - 1) % size,
                 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(&theirs, &all, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
    order = scramble(order ^ all);
}

/* Everybody sends `rounds` messages to rank 0, at its own pace. */
static void blocking(int source_open, int tag_open, MPI_Comm comm)
{
    if (rank == 0) {
        for (int i = 0; i < rounds * (size - 1); i++) {
            MPI_Status status;
            int source = source_open ? MPI_ANY_SOURCE : 1 + i % (size - 1);
            int tag = tag_open ? MPI_ANY_TAG : i / (size - 1);
            MPI_Recv(in, LARGEST, MPI_BYTE, source, tag, comm, &status);
            if (!source_open) EQUAL(status.MPI_SOURCE, source);
            if (!tag_open) EQUAL(status.MPI_TAG, tag);
            received(in, &status);
        }
    } else {
        for (int i = 0; i < rounds; i++) {
            if ((i + rank) % 7 == 0) usleep(300);
            fill(out, bytes_of(rank, i), seed_of(rank, 0, i));
            MPI_Send(out, bytes_of(rank, i), MPI_BYTE, 0, i, comm);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Many receives outstanding, named and open by turns, on two communicators. Tags keep them apart where the
 * standard's order of matching alone would let a named receive starve: 0… open source, 1000… named. */
static void mixture(MPI_Comm one, MPI_Comm two)
{
    MPI_Comm comms[2] = {one, two};
    int count = 2 * 2 * rounds * size, at = 0, sent = 0;
    MPI_Request *requests = allocate(sizeof *requests * count), *sends = allocate(sizeof *sends * count);
    MPI_Status *statuses = allocate(sizeof *statuses * count);
    unsigned char(*buffers)[LARGEST] = allocate((size_t)LARGEST * count), *outs = allocate((size_t)LARGEST * count);
    for (int i = 0; i < rounds; i++) {
        for (int peer = 0; peer < size; peer++) {
            for (int c = 0; c < 2; c++) {
                MPI_Irecv(buffers[at], LARGEST, MPI_BYTE, MPI_ANY_SOURCE, i, comms[c], &requests[at]);
                at++;
                MPI_Irecv(buffers[at], LARGEST, MPI_BYTE, peer, 1000 + i, comms[c], &requests[at]);
                at++;
            }
        }
    }
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < size; k++) {
            int peer = (rank + k) % size;
            for (int c = 0; c < 2; c++) {
                for (int tag = i; tag <= 1000 + i; tag += 1000, sent++) {
                    unsigned char *buffer = outs + (size_t)LARGEST * sent;
                    fill(buffer, bytes_of(rank, tag), seed_of(rank, peer, tag));
                    MPI_Isend(buffer, bytes_of(rank, tag), MPI_BYTE, peer, tag, comms[c], &sends[sent]);
                }
            }
        }
        if (rank % 2 == 1) usleep(500);
    }
    EQUAL(at, count);
    EQUAL(sent, count);
    MPI_Waitall(count, requests, statuses);
    MPI_Waitall(count, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; i++) {
        received(buffers[i], &statuses[i]);
        if (i % 2 == 1) {
            EQUAL(statuses[i].MPI_SOURCE, i / 4 % size);
            EQUAL(statuses[i].MPI_TAG, 1000 + i / 4 / size);
        } else {
            EQUAL(statuses[i].MPI_TAG, i / 4 / size);
        }
    }
    free(requests);
    free(sends);
    free(statuses);
    free(buffers);
    free(outs);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 hands out numbers to whoever asks; the others square them. */
static void master_and_workers(void)
{
    enum { ASK = 5, WORK = 6 };
    long numbers = 15L * rounds, result[2];
    if (rank == 0) {
        long given = 0, sum = 0, wanted = 0, working = size - 1;
        while (working > 0) {
            MPI_Status status;
            MPI_Recv(result, 2, MPI_LONG, MPI_ANY_SOURCE, ASK, MPI_COMM_WORLD, &status);
            saw(status.MPI_SOURCE, ASK, (int)result[0]);
            EQUAL(result[1], result[0] * result[0]);
            sum += result[1];
            long work = given < numbers ? ++given : 0;
            if (work == 0) working--;
            MPI_Send(&work, 1, MPI_LONG, status.MPI_SOURCE, WORK, MPI_COMM_WORLD);
        }
        for (long i = 1; i <= given; i++) wanted += i * i;
        if (size > 1) EQUAL(given, numbers);
        EQUAL(sum, wanted);
        together += scramble((uint64_t)sum);
    } else {
        long work = 0;
        do {
            result[0] = work;
            result[1] = work * work;
            if (work % 5 == 1) usleep(100 * rank);
            MPI_Send(result, 2, MPI_LONG, 0, ASK, MPI_COMM_WORLD);
            MPI_Recv(&work, 1, MPI_LONG, 0, WORK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            saw(0, WORK, (int)work);
        } while (work != 0);
    }
}

/* The first of two open receives cannot complete before the second: its message is sent in answer to it. */
static void second_first(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < rounds; i++) {
        int first = -1, second = -1, number = rank * 1000 + i;
        MPI_Request requests[2];
        MPI_Status status;
        MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&second, 1, MPI_INT, MPI_ANY_SOURCE, 51, MPI_COMM_WORLD, &requests[1]);
        MPI_Send(&number, 1, MPI_INT, next, 51, MPI_COMM_WORLD);
        MPI_Wait(&requests[1], &status);
        EQUAL(second, previous * 1000 + i);
        EQUAL(status.MPI_SOURCE, previous);
        /* The answer. */
        MPI_Send(&second, 1, MPI_INT, previous, 50, MPI_COMM_WORLD);
        MPI_Wait(&requests[0], &status);
        EQUAL(first, number);
        EQUAL(status.MPI_SOURCE, next);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    together += scramble((uint64_t)rounds);
}

int main(int argc, char **argv)
{
    MPI_Comm other;
    start(&argc, &argv);
    rounds = argc > 1 ? atoi(argv[1]) : 8;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    for (int open = 1; open < 4; open++) {
        blocking(open & 1, open & 2, MPI_COMM_WORLD);
        tell_order();
        blocking(open & 1, open & 2, other);
        tell_order();
    }
    mixture(MPI_COMM_WORLD, other);
    tell_order();
    master_and_workers();
    tell_order();
    second_first();
    tell_order();
    MPI_Comm_free(&other);
    mix(&together, sizeof together);
    return finish("wildcard");
}
