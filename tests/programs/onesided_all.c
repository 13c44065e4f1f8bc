/* One-sided communication of every kind: windows of every flavour, every synchronisation, every operation, derived
 * types; and outcomes that depend on the order of several ranks (tickets, a lock made of compare-and-swap, sums of
 * floating point numbers), which all replicas of a rank have to see alike: they are sent on as messages, which are
 * compared. onesided_all [rounds]. Needs 2 ranks at least: plain Open MPI 4.1.4 itself has no window for one process. */
#include "check.h"

enum { COUNT = 64 };
static int rounds, next, previous;

/* Goes around as a message: replicas that differ are found out. */
static void show(long long value)
{
    long long got;
    MPI_Sendrecv(&value, 1, MPI_LONG_LONG, next, 7, &got, 1, MPI_LONG_LONG, previous, 7, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void fences(int *memory, MPI_Win window)
{
    MPI_Datatype column;
    int out[COUNT + 8], in[COUNT], ones[8];
    MPI_Type_vector(8, 1, 8, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 8; i++) ones[i] = i + 1;
    for (int i = 0; i < COUNT; i++) memory[i] = 0;
    MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < COUNT + 8; i++) out[i] = rank * 100000 + round * 100 + i;
        /* A column from each side, and sums from everybody into a column of their own. */
        MPI_Put(out, 8, MPI_INT, next, 0, 1, column, window);
        MPI_Put(out + 8, 1, column, previous, 1, 1, column, window);
        for (int to = 0; to < size; to++) MPI_Accumulate(ones, 8, MPI_INT, to, 2, 1, column, MPI_SUM, window);
        MPI_Win_fence(0, window);
        for (int i = 0; i < 8; i++) {
            EQUAL(memory[8 * i], previous * 100000 + round * 100 + i);
            EQUAL(memory[8 * i + 2], (round + 1) * size * (i + 1));
        }
        for (int i = 0; i < COUNT; i += 8) EQUAL(memory[i + 1], next * 100000 + round * 100 + 8 + i);
        mix(memory, sizeof(int) * COUNT);
        MPI_Get(in, COUNT, MPI_INT, next, 0, COUNT, MPI_INT, window);
        MPI_Win_fence(MPI_MODE_NOPUT, window);
        EQUAL(in[0], rank * 100000 + round * 100);
        mix(in, sizeof in);
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
    MPI_Type_free(&column);
}

/* Sums of floating point numbers in whatever order: not the same in every run, and the same in every replica. */
static void floats(double *memory, MPI_Win window)
{
    double mine = 1.0 / (rank + 3) * 1e10 + 1e-7 * rank, all = 0;
    memory[0] = 0.1;
    MPI_Win_fence(0, window);
    for (int round = 0; round < rounds; round++) {
        for (int to = 0; to < size; to++) MPI_Accumulate(&mine, 1, MPI_DOUBLE, to, 0, 1, MPI_DOUBLE, MPI_SUM, window);
        MPI_Win_fence(0, window);
        long long bits;
        memcpy(&bits, memory, sizeof bits);
        MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT, window); /* nobody adds before it was read */
        show(bits);
        all += mine;
    }
    REQUIRE(memory[0] > all);
}

static void post_and_start(int *memory, MPI_Win window)
{
    MPI_Group world, to, from;
    int out[COUNT];
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &next, &to);
    MPI_Group_incl(world, 1, &previous, &from);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < COUNT; i++) out[i] = rank * 1000 + round + i;
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(out, COUNT / 2, MPI_INT, next, 0, COUNT / 2, MPI_INT, window);
        MPI_Accumulate(out, COUNT / 2, MPI_INT, next, COUNT / 2, COUNT / 2, MPI_INT, MPI_REPLACE, window);
        MPI_Win_complete(window);
        if (round % 2) {
            int done = 0;
            while (!done) MPI_Win_test(window, &done);
        } else {
            MPI_Win_wait(window);
        }
        EQUAL(memory[0], previous * 1000 + round);
        EQUAL(memory[COUNT / 2], previous * 1000 + round);
        mix(memory, sizeof(int) * COUNT);
    }
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&world);
}

/* Tickets, a lock of compare-and-swap around something that is read, changed and written, and a maximum. */
static void atomics(MPI_Win window)
{
    long long one = 1, ticket, sum = 0, total;
    enum { TICKET, LOCK, SHARED, MAXIMUM, WORDS };
    long long zero[WORDS] = {0, 0, 0, 0};
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    MPI_Put(zero, WORDS, MPI_LONG_LONG, rank, 0, WORDS, MPI_LONG_LONG, window);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int round = 0; round < rounds; round++) {
        MPI_Fetch_and_op(&one, &ticket, MPI_LONG_LONG, 0, TICKET, MPI_SUM, window);
        MPI_Win_flush(0, window);
        REQUIRE(ticket >= 0 && ticket < (long long)size * rounds);
        show(ticket);
        sum += ticket;

        long long free_ = 0, mine = rank + 1, was = -1, value, found;
        for (;;) {
            MPI_Compare_and_swap(&mine, &free_, &was, MPI_LONG_LONG, 0, LOCK, window);
            MPI_Win_flush(0, window);
            if (was == free_) break;
        }
        MPI_Get(&value, 1, MPI_LONG_LONG, 0, SHARED, 1, MPI_LONG_LONG, window);
        MPI_Win_flush(0, window);
        long long seen = value++;
        MPI_Put(&value, 1, MPI_LONG_LONG, 0, SHARED, 1, MPI_LONG_LONG, window);
        MPI_Win_flush(0, window);
        MPI_Compare_and_swap(&free_, &mine, &was, MPI_LONG_LONG, 0, LOCK, window);
        MPI_Win_flush(0, window);
        EQUAL(was, mine);
        show(seen);

        value = rank + (long long)round * size;
        MPI_Get_accumulate(&value, 1, MPI_LONG_LONG, &found, 1, MPI_LONG_LONG, 0, MAXIMUM, 1, MPI_LONG_LONG, MPI_MAX,
                           window);
        MPI_Win_flush_local(0, window);
        show(found);
    }
    MPI_Win_unlock_all(window);
    MPI_Allreduce(&sum, &total, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    long long tickets = (long long)size * rounds, end[WORDS];
    EQUAL(total, tickets * (tickets - 1) / 2); /* each was given once */
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(end, WORDS, MPI_LONG_LONG, 0, 0, WORDS, MPI_LONG_LONG, window);
    MPI_Win_unlock(0, window);
    EQUAL(end[TICKET], tickets);
    EQUAL(end[LOCK], 0);
    EQUAL(end[SHARED], tickets); /* nobody was in the middle of somebody else's change */
    EQUAL(end[MAXIMUM], tickets - 1);
    mix(end, sizeof end);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void requests(int *memory, MPI_Win window)
{
    int out[COUNT], in[COUNT], was[COUNT];
    MPI_Request made[3];
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    for (int i = 0; i < COUNT; i++) memory[i] = 0;
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < COUNT; i++) out[i] = rank + round + i;
        MPI_Rput(out, COUNT / 2, MPI_INT, next, 0, COUNT / 2, MPI_INT, window, &made[0]);
        MPI_Raccumulate(out, COUNT / 2, MPI_INT, next, COUNT / 2, COUNT / 2, MPI_INT, MPI_SUM, window, &made[1]);
        MPI_Waitall(2, made, MPI_STATUSES_IGNORE);
        MPI_Win_flush(next, window);
        MPI_Rget(in, COUNT, MPI_INT, next, 0, COUNT, MPI_INT, window, &made[0]);
        MPI_Rget_accumulate(out, COUNT / 4, MPI_INT, was, COUNT / 4, MPI_INT, next, COUNT / 2, COUNT / 4, MPI_INT,
                            MPI_NO_OP, window, &made[1]);
        int done = 0;
        while (!done) MPI_Testall(2, made, &done, MPI_STATUSES_IGNORE);
        EQUAL(in[1], rank + round + 1);
        EQUAL(was[0], in[COUNT / 2]);
        mix(in, sizeof in);
        mix(was, sizeof(int) * (COUNT / 4));
    }
    MPI_Win_unlock(next, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    mix(memory, sizeof(int) * COUNT);
    MPI_Win_unlock(rank, window);
}

static void shared(void)
{
    int *mine, *theirs, unit;
    MPI_Aint bytes;
    MPI_Win window;
    MPI_Win_allocate_shared(sizeof(int) * COUNT, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window);
    MPI_Win_shared_query(window, next, &bytes, &unit, &theirs);
    MPI_Win_fence(0, window);
    for (int i = 0; i < COUNT; i++) theirs[i] = rank * 10 + i;
    MPI_Win_fence(0, window);
    for (int i = 0; i < COUNT; i++) EQUAL(mine[i], previous * 10 + i);
    mix(mine, sizeof(int) * COUNT);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    int *memory, *allocated;
    double *doubles;
    long long *words;
    MPI_Win window, other, real, word;
    start(&argc, &argv);
    REQUIRE(size > 1);
    rounds = argc > 1 ? atoi(argv[1]) : 10;
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    MPI_Alloc_mem(sizeof(int) * COUNT, MPI_INFO_NULL, &memory);
    MPI_Win_create(memory, sizeof(int) * COUNT, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_allocate(sizeof(int) * COUNT, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &allocated, &other);
    MPI_Win_allocate(sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &doubles, &real);
    MPI_Win_allocate(4 * sizeof(long long), sizeof(long long), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &word);
    fences(memory, window);
    fences(allocated, other);
    floats(doubles, real);
    post_and_start(memory, window);
    post_and_start(allocated, other);
    atomics(word);
    requests(memory, window);
    requests(allocated, other);
    shared();
    for (int i = 0; i < 10; i++) {
        MPI_Win many;
        MPI_Win_create(memory, i % 2 ? 0 : sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &many);
        MPI_Win_fence(0, many);
        MPI_Win_free(&many);
    }
    MPI_Win_free(&word);
    MPI_Win_free(&real);
    MPI_Win_free(&other);
    MPI_Win_free(&window);
    MPI_Free_mem(memory);
    return finish("onesided_all");
}
