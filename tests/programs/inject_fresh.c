/* Point-to-point only, every message from a buffer written for it: inject_fresh [messages] [bytes]
 * [contig|vector] [window]. Each rank sends to the next, `window` messages in flight at a time. What arrives is
 * compared with what was meant; every wrong byte counts, and the sum is told as `BAD <n>` on stderr and the
 * program goes on. What was received is never sent on, so an injected fault makes exactly one wrong message. */
#include "check.h"

enum { GAP = 5, BLOCK = 7, WINDOW = 8 };

int main(int argc, char **argv)
{
    int messages, bytes, typed, window, next, previous, blocks;
    size_t room, bad = 0;
    MPI_Datatype type;
    unsigned char *out[WINDOW], *in[WINDOW], *plain;
    start(&argc, &argv);
    messages = argc > 1 ? atoi(argv[1]) : 100;
    bytes = argc > 2 ? atoi(argv[2]) : 500;
    typed = argc > 3 && strcmp(argv[3], "vector") == 0;
    window = argc > 4 ? atoi(argv[4]) : 1;
    REQUIRE(window >= 1 && window <= WINDOW);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;

    if (typed) {
        blocks = (bytes + BLOCK - 1) / BLOCK;
        bytes = blocks * BLOCK;
        MPI_Type_vector(blocks, BLOCK, BLOCK + GAP, MPI_BYTE, &type);
    } else {
        blocks = 1;
        MPI_Type_contiguous(bytes, MPI_BYTE, &type);
    }
    MPI_Type_commit(&type);
    int block = typed ? BLOCK : bytes, stride = typed ? BLOCK + GAP : bytes;
    room = (size_t)blocks * stride;
    plain = allocate(bytes);
    for (int w = 0; w < window; w++) {
        out[w] = allocate(room);
        in[w] = allocate(room);
    }

    for (int message = 0; message < messages; message += window) {
        int count = messages - message < window ? messages - message : window;
        MPI_Request requests[2 * WINDOW];
        for (int w = 0; w < count; w++) {
            memset(out[w], 0x11, room);
            memset(in[w], 0x22, room);
            fill(plain, bytes, seed_of(rank, next, message + w));
            for (int b = 0; b < blocks; b++) memcpy(out[w] + (size_t)b * stride, plain + (size_t)b * block, block);
            MPI_Irecv(in[w], 1, type, previous, w, MPI_COMM_WORLD, &requests[2 * w]);
            MPI_Isend(out[w], 1, type, next, w, MPI_COMM_WORLD, &requests[2 * w + 1]);
        }
        MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
        for (int w = 0; w < count; w++) {
            for (int b = 0; b < blocks; b++) {
                memcpy(plain + (size_t)b * block, in[w] + (size_t)b * stride, block);
                /* Neither a fault nor a correction may touch what lies between the blocks. */
                GUARD(in[w] + (size_t)b * stride + block, stride - block, 0x22);
                GUARD(out[w] + (size_t)b * stride + block, stride - block, 0x11);
            }
            bad += wrong_bytes(plain, bytes, seed_of(previous, rank, message + w), NULL);
            mix(plain, bytes);
        }
    }

    /* Of rank 0 alone, and no message for it: with two replicas what the others received may really be wrong, and a
     * message that tells of it would be one more that differs. The others have BAD. */
    if (rank == 0) printf("RESULT inject_fresh %016llx\n", (unsigned long long)checksum);
    if (bad != 0) fprintf(stderr, "BAD %zu\n", bad);
    fflush(NULL);
    MPI_Type_free(&type);
    for (int w = 0; w < window; w++) {
        free(out[w]);
        free(in[w]);
    }
    free(plain);
    MPI_Finalize();
    return 0;
}
