/* One-sided communication: fence with put, get and accumulate; lock and unlock; post-start-complete-wait. It has
 * to work, or be refused with a clear message; wrong data or a hang is a failure.
 * Needs 2 ranks at least: plain Open MPI 4.1.4 itself has no window for one process. */
#include "check.h"

int main(int argc, char **argv)
{
    enum { COUNT = 200 };
    int *memory, put[COUNT], got[COUNT];
    MPI_Win window;
    start(&argc, &argv);
    REQUIRE(size > 1);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Alloc_mem(sizeof(int) * (COUNT + 1), MPI_INFO_NULL, &memory);
    memset(memory, 0, sizeof(int) * (COUNT + 1));
    MPI_Win_create(memory, sizeof(int) * (COUNT + 1), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COUNT; i++) put[i] = rank * 1000 + round * 7 + i;
        MPI_Win_fence(0, window);
        MPI_Put(put, COUNT, MPI_INT, next, 0, COUNT, MPI_INT, window);
        MPI_Win_fence(0, window);
        for (int i = 0; i < COUNT; i++) EQUAL(memory[i], previous * 1000 + round * 7 + i);
        mix(memory, sizeof(int) * COUNT);
        memset(got, 0, sizeof got);
        MPI_Get(got, COUNT, MPI_INT, previous, 0, COUNT, MPI_INT, window);
        MPI_Win_fence(0, window);
        for (int i = 0; i < COUNT; i++) EQUAL(got[i], (previous + size - 1) % size * 1000 + round * 7 + i);
    }

    /* Everybody adds to rank 0's counter under a lock. */
    int one = rank + 1;
    for (int i = 0; i < 5; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Accumulate(&one, 1, MPI_INT, 0, COUNT, 1, MPI_INT, MPI_SUM, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        EQUAL(memory[COUNT], 5 * size * (size + 1) / 2);
        MPI_Win_unlock(0, window);
        mix(&memory[COUNT], sizeof(int));
    }

    {
        MPI_Group world, to, from;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_incl(world, 1, &next, &to);
        MPI_Group_incl(world, 1, &previous, &from);
        int word = rank + 5000;
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(&word, 1, MPI_INT, next, 3, 1, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        EQUAL(memory[3], previous + 5000);
        MPI_Group_free(&to);
        MPI_Group_free(&from);
        MPI_Group_free(&world);
    }
    MPI_Win_free(&window);
    MPI_Free_mem(memory);
    return finish("onesided");
}
