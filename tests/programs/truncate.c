/* A message longer than the receive buffer: MPI_ERR_TRUNCATE for blocking, non-blocking and wildcard receives,
 * eager and rendezvous, and correct traffic afterwards.
 *
 * Two things that plain Open MPI 4.1.4 does not do are not asked for here: a rendezvous by single copy writes the
 * whole message, over the end of the buffer (so the memory here is long enough, and only short messages have
 * guard bytes right behind the buffer); and a short message to oneself into a posted receive reports no error. */
#include "check.h"

enum { LARGEST = 400000 };
static const int sizes[] = {2, 100, 5000, 70000, LARGEST};

int main(int argc, char **argv)
{
    enum { BLOCKING, NONBLOCKING, ANY_SOURCE, ANY_BOTH, WAITALL, FORMS };
    unsigned char *out, *in;
    int next, previous;
    start(&argc, &argv);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    out = allocate(LARGEST);
    in = allocate(LARGEST + 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    for (unsigned s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int form = 0; form < FORMS; form++) {
            for (int posted_early = 0; posted_early < 2; posted_early++) {
                int bytes = sizes[s], room = bytes / 2, code, class;
                int source = form == ANY_SOURCE || form == ANY_BOTH ? MPI_ANY_SOURCE : previous;
                int tag = form == ANY_BOTH ? MPI_ANY_TAG : 3;
                MPI_Request send, receive[2];
                MPI_Status status, statuses[2];
                /* A wildcard may meet only this round's message. */
                MPI_Barrier(MPI_COMM_WORLD);
                fill(out, bytes, seed_of(rank, next, (int)s));
                memset(in, 0x77, bytes + 1);
                receive[1] = MPI_REQUEST_NULL;
                if (posted_early && form != BLOCKING) {
                    MPI_Irecv(in, room, MPI_BYTE, source, tag, MPI_COMM_WORLD, &receive[0]);
                    MPI_Barrier(MPI_COMM_WORLD);
                }
                MPI_Isend(out, bytes, MPI_BYTE, next, 3, MPI_COMM_WORLD, &send);
                if (!posted_early && form != BLOCKING) {
                    MPI_Irecv(in, room, MPI_BYTE, source, tag, MPI_COMM_WORLD, &receive[0]);
                }
                if (form == BLOCKING) {
                    code = MPI_Recv(in, room, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status);
                } else if (form == WAITALL) {
                    code = MPI_Waitall(2, receive, statuses);
                    if (code != MPI_SUCCESS) {
                        MPI_Error_class(code, &class);
                        EQUAL(class, MPI_ERR_IN_STATUS);
                        code = statuses[0].MPI_ERROR;
                    }
                } else {
                    code = MPI_Wait(&receive[0], &status);
                }
                MPI_Error_class(code, &class);
                if (class != MPI_ERR_TRUNCATE && !(size == 1 && posted_early && class == MPI_SUCCESS)) {
                    FAIL("form %d bytes %d: class %d", form, bytes, class);
                }
                if (bytes <= 100) GUARD(in + room, bytes - room + 1, 0x77);
                GUARD(in + bytes, 1, 0x77);
                EQUAL(MPI_Wait(&send, MPI_STATUS_IGNORE), MPI_SUCCESS);

                /* Now one that fits, and one that fits exactly. */
                for (int more = 0; more < 2; more++) {
                    EQUAL(MPI_Sendrecv(out, bytes, MPI_BYTE, next, 4, in, bytes + 1 - more, MPI_BYTE, previous, 4,
                                       MPI_COMM_WORLD, &status), MPI_SUCCESS);
                    CHECK_STATUS(&status, previous, 4, bytes);
                    CHECK(in, bytes, seed_of(previous, rank, (int)s));
                }
            }
        }
    }
    free(in);
    free(out);
    return finish("truncate");
}
