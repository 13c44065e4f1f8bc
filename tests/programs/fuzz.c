/* A random communication program. All ranks draw the same script from SEED; it is right by construction: no deadlock,
 * every message received exactly once, every result known.  fuzz SEED [ROUNDS] [tolerant]
 *
 * What depends on timing (which index completed, which source matched, how often a test was in vain) is folded into
 * `order`, which decides what this rank does next and travels in messages: so replicas that see different outcomes
 * send different messages, or wait for different ones. What is printed holds only what does not depend on timing.
 *
 * Two kinds of random numbers, then: `draw`, the script's, the same on all members of a communicator; and `own`, this
 * rank's, seeded by `order`. Neither ever depends on the contents of a message: with faults injected (`tolerant`), a
 * process whose own memory was hit goes on with wrong data, says so (BAD), and must still do the same calls. It then
 * makes no communicators: Open MPI agrees on their ids in messages, and a process that has them wrong is lost.
 *
 * A word on what is left out because plain Open MPI 4.1.4 is wrong there: restarted MPI_Bsend_init above 1 KB (stale
 * bytes), truncated rendezvous messages (writes past the buffer), sums of MPI_UNSIGNED_CHAR with AVX-512, a broadcast
 * whose ranks describe the same data by different types (segments do not fit), MPI_Ialltoallw on a topology. */
#define _GNU_SOURCE
#include "check.h"
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed, order, sum;
static int rounds = 12, current, tolerant;

/* ---- random numbers ---- */

static uint64_t draw_from(uint64_t *state, uint64_t below)
{
    *state += 0x9e3779b97f4a7c15u;
    return scramble(*state) % below;
}

static uint64_t own_state;

static uint64_t own(uint64_t below)
{
    own_state = scramble(own_state ^ order);
    return own_state % below;
}

static void see(uint64_t outcome)
{
    order = scramble(order ^ outcome);
}

/* Each process is late at times of its own, replicas too: by a clock and a process number that nobody shares. */
static void dawdle(void)
{
    static uint64_t state;
    if (state == 0) {
        struct timespec now;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        state = scramble(((uint64_t)syscall(SYS_getpid) << 32) ^ (uint64_t)now.tv_nsec);
    }
    state = scramble(state);
    if (state % 24 == 0) usleep((state >> 32) % 700);
}

__attribute__((format(printf, 3, 4))) static void complain(int line, const char *kind, const char *format, ...)
{
    va_list arguments;
    const char *native = getenv("OMPI_COMM_WORLD_RANK");
    fprintf(stderr, "BAD %s native %s rank %d of %d, seed %llu round %d line %d: ", kind, native == NULL ? "?" : native,
            rank, size, (unsigned long long)seed, current, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    if (tolerant) return;
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 99);
}

#define BAD(kind, ...) complain(__LINE__, kind, __VA_ARGS__)

/* ---- communicators ---- */

enum { WORLD, DUP, PARTS, INTER, SELF, CART, GRAPH, CHANGING, COMMS };

struct comm {
    MPI_Comm comm;
    int me, local, remote, inter, side, part;
};

static struct comm comms[COMMS];

/* Numbers that all members of a communicator draw alike. */
static uint64_t script_of(int c, uint64_t purpose)
{
    return scramble(scramble(seed ^ ((uint64_t)current << 40)) ^ ((uint64_t)c << 20) ^
                    ((uint64_t)(comms[c].part + 1) << 8) ^ purpose);
}

static void describe(int c, MPI_Comm comm, int part)
{
    struct comm *it = &comms[c];
    memset(it, 0, sizeof *it);
    it->comm = comm;
    it->part = part;
    if (comm == MPI_COMM_NULL) return;
    MPI_Comm_rank(comm, &it->me);
    MPI_Comm_size(comm, &it->local);
    MPI_Comm_test_inter(comm, &it->inter);
    it->remote = it->local;
    if (it->inter) {
        MPI_Comm_remote_size(comm, &it->remote);
        it->side = rank % 2; /* the only intercommunicator is that of odd and even ranks */
        it->part = 0;
    }
}

static int members_on(const struct comm *it, int side)
{
    return it->inter && side != it->side ? it->remote : it->local;
}

static void make_comms(void)
{
    MPI_Comm comm, parts;
    int dims[2] = {0, 0}, periods[2] = {1, 0};
    describe(WORLD, MPI_COMM_WORLD, 0);
    describe(SELF, MPI_COMM_SELF, rank);
    for (int c = 0; tolerant && c < COMMS; c++) {
        if (c != WORLD && c != SELF) describe(c, MPI_COMM_NULL, 0);
    }
    if (tolerant) return;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    describe(DUP, comm, 0);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &parts);
    describe(PARTS, parts, rank % 2);
    comm = MPI_COMM_NULL;
    if (size > 1) MPI_Intercomm_create(parts, 0, comms[DUP].comm, rank % 2 ? (size - 1) / 2 * 2 : (size / 2) * 2 - 1, 3, &comm);
    describe(INTER, comm, 0);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &comm);
    describe(CART, comm, 0);
    int from[2] = {(rank + size - 1) % size, rank}, to[2] = {(rank + 1) % size, rank}, weights[2] = {1, 1};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, weights, 2, to, weights, MPI_INFO_NULL, 0, &comm);
    describe(GRAPH, comm, 0);
    MPI_Comm_split(comms[DUP].comm, 0, size - rank, &comm);
    describe(CHANGING, comm, 0);
}

/* One of them. It may be MPI_COMM_NULL for this rank. */
static int draw_comm(uint64_t *script, int with_inter)
{
    if (tolerant) return draw_from(script, 4) == 0 ? SELF : WORLD;
    for (;;) {
        int c = (int)draw_from(script, COMMS);
        if (c == INTER && (size < 2 || !with_inter)) continue;
        return c;
    }
}

/* ---- where the elements of a message lie ---- */

enum { GUARD_BYTES = 64, UNTOUCHED = 0xa5 };

struct layout {
    MPI_Datatype type;
    int count, elements, width, owned;
    size_t bytes;   /* from the buffer's begin to its end */
    size_t *offset; /* of each element */
};

static const struct { MPI_Datatype type; int width; } bases[3] = {{MPI_BYTE, 1}, {MPI_INT, 4}, {MPI_DOUBLE, 8}};

/* Room for `elements` of a base type, described in one of many ways. */
static struct layout layout_of(uint64_t shape, int base, int elements)
{
    struct layout it = {bases[base].type, elements, elements, bases[base].width, 0, 0, NULL};
    MPI_Datatype type = it.type;
    int kind = (int)draw_from(&shape, 8), n = elements;
    size_t width = (size_t)it.width;
    it.offset = allocate((size_t)(n + 1) * sizeof *it.offset);
    for (int i = 0; i <= n; i++) it.offset[i] = (size_t)i * width;
    if (n == 0) kind = 0;
    it.bytes = (size_t)n * width;
    switch (kind) {
    case 1:
        MPI_Type_contiguous(n, type, &it.type);
        it.count = 1;
        break;
    case 2: { /* blocks at a stride; in bytes or in elements */
        static const int lengths[] = {16, 7, 5, 3, 2, 1};
        int length = 1, gap = 1 + (int)draw_from(&shape, 5);
        for (int i = 0; i < 6; i++) {
            if (n % lengths[i] == 0) {
                length = lengths[i];
                break;
            }
        }
        if (draw_from(&shape, 2)) MPI_Type_vector(n / length, length, length + gap, type, &it.type);
        else MPI_Type_create_hvector(n / length, length, (MPI_Aint)((size_t)(length + gap) * width), type, &it.type);
        it.count = 1;
        for (int i = 0; i < n; i++) it.offset[i] = (size_t)(i / length * (length + gap) + i % length) * width;
        it.bytes = it.offset[n - 1] + width;
        break;
    }
    case 3: /* blocks of any length with gaps of any length */
    case 4: { /* the same, the later ones at lower addresses */
        int *lengths = allocate((size_t)n * sizeof *lengths), *places = allocate((size_t)n * sizeof *places);
        int blocks = 0, at = 0, place = 0;
        while (at < n) {
            int length = 1 + (int)draw_from(&shape, n > 2000 ? 900 : 9);
            if (length > n - at) length = n - at;
            place += (int)draw_from(&shape, 4);
            lengths[blocks] = length;
            places[blocks++] = place;
            place += length;
            at += length;
        }
        at = 0;
        for (int b = 0; b < blocks; b++) {
            if (kind == 4) places[b] = place - places[b] - lengths[b];
            for (int i = 0; i < lengths[b]; i++) it.offset[at++] = (size_t)(places[b] + i) * width;
        }
        MPI_Type_indexed(blocks, lengths, places, type, &it.type);
        it.count = 1;
        it.bytes = (size_t)place * width;
        free(lengths);
        free(places);
        break;
    }
    case 5: { /* every element with a gap behind it */
        MPI_Type_create_resized(type, 0, (MPI_Aint)(2 * width), &it.type);
        for (int i = 0; i < n; i++) it.offset[i] = (size_t)i * 2 * width;
        it.bytes = (size_t)n * 2 * width;
        break;
    }
    case 6: { /* a structure of two parts */
        int first = 1 + (int)draw_from(&shape, (uint64_t)n), gap = (int)draw_from(&shape, 6);
        int lengths[2] = {first, n - first};
        MPI_Aint places[2] = {0, (MPI_Aint)((size_t)(first + gap) * width)};
        MPI_Datatype types[2] = {type, type};
        MPI_Type_create_struct(2, lengths, places, types, &it.type);
        it.count = 1;
        for (int i = first; i < n; i++) it.offset[i] = (size_t)(i + gap) * width;
        it.bytes = (size_t)(n + gap) * width;
        break;
    }
    case 7: { /* part of a matrix */
        int columns = n % 6 == 0 ? 6 : n % 4 == 0 ? 4 : n % 3 == 0 ? 3 : 1, left = (int)draw_from(&shape, 3);
        int sizes[2] = {n / columns + 1, columns + 3}, parts[2] = {n / columns, columns}, starts[2] = {1, left};
        MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, type, &it.type);
        it.count = 1;
        for (int i = 0; i < n; i++) {
            it.offset[i] = (size_t)((i / columns + 1) * (columns + 3) + left + i % columns) * width;
        }
        it.bytes = (size_t)(sizes[0] * sizes[1]) * width;
        break;
    }
    default:
        break;
    }
    if (it.type != type) {
        MPI_Type_commit(&it.type);
        it.owned = 1;
    }
    return it;
}

static void free_layout(struct layout *it)
{
    if (it->owned) MPI_Type_free(&it->type);
    free(it->offset);
}

/* A buffer with guards on both sides; what is returned lies between them. */
static unsigned char *buffer_for(const struct layout *it)
{
    unsigned char *memory = allocate(it->bytes + 2 * GUARD_BYTES);
    memset(memory, UNTOUCHED, it->bytes + 2 * GUARD_BYTES);
    return memory + GUARD_BYTES;
}

static void free_buffer(unsigned char *buffer)
{
    if (buffer != NULL) free(buffer - GUARD_BYTES);
}

static void put(unsigned char *buffer, const struct layout *it, int elements, uint64_t content)
{
    for (int i = 0; i < elements; i++) {
        uint64_t word = scramble(content + (uint64_t)i);
        memcpy(buffer + it->offset[i], &word, (size_t)it->width);
    }
}

/* The buffer holds that message, and nothing else was touched. */
static void check_message(int line, const unsigned char *buffer, const struct layout *it, int elements, uint64_t content)
{
    size_t bytes = it->bytes + 2 * GUARD_BYTES;
    unsigned char *wanted = buffer_for(it);
    put(wanted, it, elements, content);
    if (memcmp(wanted - GUARD_BYTES, buffer - GUARD_BYTES, bytes) != 0) {
        size_t at = 0;
        while (wanted[(ptrdiff_t)at - GUARD_BYTES] == buffer[(ptrdiff_t)at - GUARD_BYTES]) at++;
        complain(line, "message", "byte %td of %zu (%d elements of %d bytes) is wrong", (ptrdiff_t)at - GUARD_BYTES,
                 it->bytes, elements, it->width);
    }
    free_buffer(wanted);
    sum += scramble(content ^ (uint64_t)elements);
}

static int draw_elements(uint64_t *script, int width)
{
    static const int bytes[] = {8, 64, 1000, 4000, 4096, 4200, 20000, 70000};
    switch (draw_from(script, 8)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return 1 + (int)draw_from(script, 12);
    case 3: return 1 + (int)draw_from(script, 600);
    case 4: return draw_from(script, 6) == 0 ? 300000 / width : 30;
    default: return bytes[draw_from(script, 8)] / width;
    }
}

/* ---- requests of all kinds in one array ---- */

enum { MOST = 1000 };
enum what { SEND, RECEIVE, GENERAL, COLLECTIVE };

static struct {
    MPI_Request requests[MOST];
    MPI_Status statuses[MOST];
    enum what what[MOST];
    int persistent[MOST], done[MOST], ready[MOST]; /* ready: a generalized request that was completed */
    int count, left;
} all;

static int add(MPI_Request request, enum what what, int persistent)
{
    if (all.count == MOST) FAIL("too many requests");
    int i = all.count++;
    all.requests[i] = request;
    all.what[i] = what;
    all.persistent[i] = persistent;
    all.done[i] = all.ready[i] = 0;
    all.left++;
    return i;
}

static void finished(int i, const MPI_Status *status)
{
    if (i < 0 || i >= all.count || all.done[i]) {
        FAIL("seed %llu round %d: request %d of %d completed twice", (unsigned long long)seed, current, i, all.count);
    }
    all.done[i] = 1;
    all.left--;
    all.statuses[i] = *status;
    see((uint64_t)i);
    if (all.what[i] == RECEIVE) {
        see(((uint64_t)status->MPI_SOURCE << 40) ^ (uint64_t)status->MPI_TAG);
    }
    if (!all.persistent[i] && all.requests[i] != MPI_REQUEST_NULL) FAIL("request %d is not null", i);
    if (all.persistent[i] && all.requests[i] == MPI_REQUEST_NULL) FAIL("persistent request %d is null", i);
}

static int query_general(void *state, MPI_Status *status)
{
    MPI_Status_set_elements(status, MPI_INT, *(int *)state);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int free_general(void *state)
{
    free(state);
    return MPI_SUCCESS;
}

static int cancel_general(void *state, int complete)
{
    (void)state, (void)complete;
    return MPI_SUCCESS;
}

static void start_general(int number)
{
    MPI_Request request;
    int *state = allocate(sizeof *state);
    *state = number;
    MPI_Grequest_start(query_general, free_general, cancel_general, state, &request);
    add(request, GENERAL, 0);
}

static void complete_general(int every)
{
    for (int i = 0; i < all.count; i++) {
        if (all.what[i] != GENERAL || all.ready[i] || (!every && own(3) != 0)) continue;
        all.ready[i] = 1;
        MPI_Grequest_complete(all.requests[i]);
    }
}

static int one_left(void)
{
    int nth = (int)own((uint64_t)all.left);
    for (int i = 0; i < all.count; i++) {
        if (!all.done[i] && nth-- == 0) return i;
    }
    FAIL("none is left");
}

/* One call that completes some or none. Without `may_block` only those that return at once. */
static void advance(int may_block)
{
    static int indices[MOST];
    static MPI_Status statuses[MOST];
    MPI_Status status;
    int found = 0, index, i, how;
    dawdle();
    complete_general(0);
    how = (int)own(may_block ? 11 : 7);
    if (how >= 7) complete_general(1);
    see((uint64_t)how << 32);
    switch (how) {
    case 0:
        i = one_left();
        MPI_Test(&all.requests[i], &found, &status);
        if (found) finished(i, &status);
        break;
    case 1:
        MPI_Testany(all.count, all.requests, &index, &found, &status);
        if (found) finished(index, &status);
        break;
    case 2:
        MPI_Testsome(all.count, all.requests, &found, indices, statuses);
        for (i = 0; i < found; i++) finished(indices[i], &statuses[i]);
        break;
    case 3:
        MPI_Testall(all.count, all.requests, &found, statuses);
        for (i = 0; found && i < all.count; i++) {
            if (!all.done[i]) finished(i, &statuses[i]);
        }
        break;
    case 4: /* looks, and takes it later */
        i = one_left();
        MPI_Request_get_status(all.requests[i], &found, &status);
        if (found && own(2)) {
            MPI_Wait(&all.requests[i], &status);
            finished(i, &status);
        }
        break;
    case 5: /* insists */
        for (int k = 0; k < 200 && !found; k++) {
            MPI_Testany(all.count, all.requests, &index, &found, &status);
            see((uint64_t)found);
        }
        if (found) finished(index, &status);
        break;
    case 6: { /* a part of them */
        int from = (int)own((uint64_t)all.count), many = 1 + (int)own((uint64_t)(all.count - from));
        MPI_Testsome(many, all.requests + from, &found, indices, statuses);
        if (found == MPI_UNDEFINED) found = 0;
        for (i = 0; i < found; i++) finished(from + indices[i], &statuses[i]);
        break;
    }
    case 7:
        i = one_left();
        MPI_Wait(&all.requests[i], &status);
        finished(i, &status);
        break;
    case 8:
        MPI_Waitany(all.count, all.requests, &index, &status);
        finished(index, &status);
        break;
    case 9:
        MPI_Waitsome(all.count, all.requests, &found, indices, statuses);
        for (i = 0; i < found; i++) finished(indices[i], &statuses[i]);
        break;
    case 10:
        if (own(3) != 0) break;
        MPI_Waitall(all.count, all.requests, statuses);
        for (i = 0; i < all.count; i++) {
            if (!all.done[i]) finished(i, &statuses[i]);
        }
        break;
    }
    see((uint64_t)found);
}

/* Whatever is still wanted is under way everywhere: everything may be waited for. */
static void complete_all(void)
{
    for (int turns = 0; all.left > 0; turns++) {
        advance(1);
        if (turns > 60 && all.left > 0) {
            static MPI_Status statuses[MOST];
            complete_general(1);
            MPI_Waitall(all.count, all.requests, statuses);
            for (int i = 0; i < all.count; i++) {
                if (!all.done[i]) finished(i, &statuses[i]);
            }
        }
    }
}

/* ---- collectives: everything is words of 8 bytes ---- */

static MPI_Datatype spaced, pair;
static MPI_Op affine, both;

/* x -> a x + b, one after the other: associative, not commutative. */
static void join_affine(void *in, void *inout, int *count, MPI_Datatype *type)
{
    uint64_t *first = in, *second = inout;
    (void)type;
    for (int i = 0; i < 2 * *count; i += 2) {
        uint64_t a = first[i] * second[i], b = first[i + 1] * second[i] + second[i + 1];
        second[i] = a;
        second[i + 1] = b;
    }
}

static void join_both(void *in, void *inout, int *count, MPI_Datatype *type)
{
    uint64_t *first = in, *second = inout;
    (void)type;
    for (int i = 0; i < 2 * *count; i += 2) {
        second[i] ^= first[i];
        second[i + 1] += first[i + 1];
    }
}

enum { SUM, MAXIMUM, MINIMUM, XOR, PRODUCT, AFFINE, BOTH, OPERATIONS };

static void join(int operation, const uint64_t *in, uint64_t *inout, int words)
{
    int pairs = words / 2;
    if (operation == AFFINE) join_affine((void *)(uintptr_t)in, inout, &pairs, NULL);
    else if (operation == BOTH) join_both((void *)(uintptr_t)in, inout, &pairs, NULL);
    else {
        for (int i = 0; i < words; i++) {
            switch (operation) {
            case SUM: inout[i] += in[i]; break;
            case MAXIMUM: inout[i] = in[i] > inout[i] ? in[i] : inout[i]; break;
            case MINIMUM: inout[i] = in[i] < inout[i] ? in[i] : inout[i]; break;
            case XOR: inout[i] ^= in[i]; break;
            default: inout[i] *= in[i]; break;
            }
        }
    }
}

enum {
    BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, REDUCE,
    ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, NEIGHBOUR_ALLGATHER, NEIGHBOUR_ALLTOALL, COLLECTIVES
};

struct collective {
    int kind, comm;
    uint64_t *out, *in, *wanted;
    size_t words; /* of in and wanted */
    int *numbers; /* counts and places; live as long as the call is under way */
    MPI_Datatype *types;
};

static uint64_t word(uint64_t content, int from, int to, int i)
{
    return scramble(content ^ ((uint64_t)from << 44) ^ ((uint64_t)to << 24) ^ (uint64_t)i) | 1;
}

/* What rank `from` contributes to a reduction. */
static void contribution(uint64_t content, int side, int from, uint64_t *words, int count)
{
    for (int i = 0; i < count; i++) words[i] = word(content ^ (uint64_t)(side * 77), from, 0, i);
}

/* Starts a collective (or does it, when `request` is null) and works out what it has to give. */
static struct collective begin(int c, uint64_t script, MPI_Request *request)
{
    const struct comm *at = &comms[c];
    MPI_Comm comm = at->comm;
    struct collective it = {0, c, NULL, NULL, NULL, 0, NULL, NULL};
    static const int sizes[] = {1, 2, 5, 60, 513, 1024, 3000};
    int kind, n, root, step, me = at->me, P = at->local, Q = at->remote, in_place, operation, root_side, e = MPI_SUCCESS;
    uint64_t content = draw_from(&script, UINT64_MAX);
    static const int between[] = {BARRIER, BCAST, ALLGATHER, ALLREDUCE, ALLTOALL, GATHER, SCATTER, REDUCE};
    kind = at->inter ? between[draw_from(&script, 8)] : (int)draw_from(&script, COLLECTIVES);
    /* Open MPI 4.1.4 takes MPI_Ialltoallw on any topology for the call among neighbours, and reads too many types. */
    if (kind == ALLTOALLW && request != NULL && (c == CART || c == GRAPH)) kind = ALLTOALLV;
    if ((kind == NEIGHBOUR_ALLGATHER || kind == NEIGHBOUR_ALLTOALL) && c != CART && c != GRAPH) kind = ALLREDUCE;
    n = sizes[draw_from(&script, 7)];
    if (draw_from(&script, 12) == 0) n = 0;
    step = 1 + (int)draw_from(&script, 2);
    operation = (int)draw_from(&script, OPERATIONS);
    in_place = !at->inter && draw_from(&script, 4) == 0;
    root_side = at->inter ? (int)draw_from(&script, 2) : 0;
    root = (int)draw_from(&script, (uint64_t)members_on(at, root_side));
    it.kind = kind;

    /* From whom this rank receives, under what number a sender is known to the receiver. */
    int many = P > Q ? P : Q, reduces = kind == REDUCE || kind == ALLREDUCE || kind >= REDUCE_SCATTER, degree = 0;
    if (kind == NEIGHBOUR_ALLGATHER || kind == NEIGHBOUR_ALLTOALL) {
        degree = c == CART ? 4 : 2;
        many = many > degree ? many : degree;
        reduces = 0;
    }
    if (reduces) {
        step = 1;
        n = (n + 1) / 2 * 2;
        if ((kind == REDUCE_SCATTER || kind == REDUCE_SCATTER_BLOCK) && n > 1024) n = 1024;
    } else if (n > 1024 && kind != BCAST) n = 1024;
    MPI_Datatype type = step == 2 ? spaced : MPI_UINT64_T;
    size_t room = (size_t)(n + 3) * (size_t)step * (size_t)many + 8;
    it.out = allocate(room * 8);
    it.in = allocate(room * 8);
    it.wanted = allocate(room * 8);
    it.words = room;
    memset(it.out, 0x11, room * 8);
    memset(it.in, UNTOUCHED, room * 8);
    it.numbers = allocate((size_t)(4 * many + 4) * sizeof(int));
    it.types = allocate((size_t)(2 * many) * sizeof(MPI_Datatype));
    int *out_counts = it.numbers, *out_places = out_counts + many, *in_counts = out_places + many,
        *in_places = in_counts + many;
    uint64_t mark = content ^ (uint64_t)(at->side * 77), theirs = content ^ (uint64_t)((at->inter ? 1 - at->side : 0) * 77);
    const void *send = it.out;
    int i_am_root = at->inter ? at->side == root_side && me == root : me == root;
    int bystander = at->inter && at->side == root_side && !i_am_root;
    int called_root = !at->inter ? root : i_am_root ? MPI_ROOT : bystander ? MPI_PROC_NULL : root;
    int sends = !at->inter || at->side != root_side; /* to a root */

#define OUT(slot, i) it.out[((size_t)(slot) + (size_t)(i)) * (size_t)step]
#define WANTED(slot, i) it.wanted[((size_t)(slot) + (size_t)(i)) * (size_t)step]
#define CALL(Name, name, ...) (request == NULL ? MPI_##Name(__VA_ARGS__, comm) : MPI_I##name(__VA_ARGS__, comm, request))
    if (kind == BARRIER) {
        memcpy(it.wanted, it.in, room * 8);
        e = request == NULL ? MPI_Barrier(comm) : MPI_Ibarrier(comm, request);
        see(1);
        return it;
    }
    switch (kind) {
    case BCAST:
        if (i_am_root) {
            for (int i = 0; i < n; i++) it.in[i * step] = word(content, root, 0, i);
        }
        memcpy(it.wanted, it.in, room * 8);
        if (!bystander) {
            for (int i = 0; i < n; i++) WANTED(0, i) = word(content, root, 0, i);
        }
        e = request == NULL ? MPI_Bcast(it.in, n, type, called_root, comm)
                            : MPI_Ibcast(it.in, n, type, called_root, comm, request);
        break;
    case GATHER:
    case GATHERV:
    case ALLGATHER:
    case ALLGATHERV: {
        int receives = kind == ALLGATHER || kind == ALLGATHERV || i_am_root, uneven = kind == GATHERV || kind == ALLGATHERV;
        int place = 0, mine = n + (uneven ? me % 3 : 0);
        for (int i = 0; i < mine; i++) OUT(0, i) = word(mark, me, 0, i);
        for (int from = 0; from < Q; from++) {
            in_counts[from] = n + (uneven ? from % 3 : 0);
            in_places[from] = place;
            place += in_counts[from];
        }
        memcpy(it.wanted, it.in, room * 8);
        for (int from = 0; receives && from < Q; from++) {
            for (int i = 0; i < in_counts[from]; i++) WANTED(in_places[from], i) = word(theirs, from, 0, i);
        }
        if (in_place && receives) {
            for (int i = 0; i < mine; i++) it.in[(in_places[me] + i) * step] = OUT(0, i);
            send = MPI_IN_PLACE;
        }
        if (!sends && (kind == GATHER || kind == GATHERV)) send = NULL;
        if (kind == GATHER) e = CALL(Gather, gather, send, sends ? n : 0, type, it.in, n, type, called_root);
        if (kind == GATHERV) e = CALL(Gatherv, gatherv, send, sends ? mine : 0, type, it.in, in_counts, in_places, type, called_root);
        if (kind == ALLGATHER) e = CALL(Allgather, allgather, send, n, type, it.in, n, type);
        if (kind == ALLGATHERV) e = CALL(Allgatherv, allgatherv, send, mine, type, it.in, in_counts, in_places, type);
        break;
    }
    case SCATTER:
    case SCATTERV: {
        int place = 0, mine = n + (kind == SCATTERV ? me % 3 : 0), gets = !at->inter || at->side != root_side;
        for (int to = 0; to < Q; to++) {
            out_counts[to] = n + (kind == SCATTERV ? to % 3 : 0);
            out_places[to] = place;
            for (int i = 0; i < out_counts[to]; i++) OUT(place, i) = word(content, root, to, i);
            place += out_counts[to];
        }
        memcpy(it.wanted, it.in, room * 8);
        void *in = in_place && i_am_root ? MPI_IN_PLACE : it.in;
        if (gets && in == (void *)it.in) {
            for (int i = 0; i < mine; i++) WANTED(0, i) = word(content, root, me, i);
        }
        if (kind == SCATTER) e = CALL(Scatter, scatter, send, n, type, in, gets ? n : 0, type, called_root);
        else e = CALL(Scatterv, scatterv, send, out_counts, out_places, type, in, gets ? mine : 0, type, called_root);
        break;
    }
    case ALLTOALL:
    case ALLTOALLV:
    case ALLTOALLW: {
        int place = 0, uneven = kind != ALLTOALL;
        for (int to = 0; to < Q; to++) {
            out_counts[to] = n + (uneven ? (me + to) % 3 : 0);
            out_places[to] = place;
            for (int i = 0; i < out_counts[to]; i++) OUT(place, i) = word(mark, me, to, i);
            place += out_counts[to];
        }
        place = 0;
        memcpy(it.wanted, it.in, room * 8);
        for (int from = 0; from < Q; from++) {
            in_counts[from] = n + (uneven ? (me + from) % 3 : 0);
            in_places[from] = place;
            for (int i = 0; i < in_counts[from]; i++) WANTED(place, i) = word(theirs, from, me, i);
            place += in_counts[from];
        }
        if (kind == ALLTOALL) {
            if (in_place && request == NULL && step == 1) {
                memcpy(it.in, it.out, (size_t)(n * P) * 8);
                send = MPI_IN_PLACE;
            }
            e = CALL(Alltoall, alltoall, send, n, type, it.in, n, type);
        } else if (kind == ALLTOALLV) {
            e = CALL(Alltoallv, alltoallv, send, out_counts, out_places, type, it.in, in_counts, in_places, type);
        } else {
            for (int i = 0; i < Q; i++) {
                it.types[i] = it.types[many + i] = type;
                out_places[i] *= 8 * step;
                in_places[i] *= 8 * step;
            }
            e = CALL(Alltoallw, alltoallw, send, out_counts, out_places, it.types, it.in, in_counts, in_places, it.types + many);
        }
        break;
    }
    case NEIGHBOUR_ALLGATHER:
    case NEIGHBOUR_ALLTOALL: {
        int sources[4], targets[4];
        if (c == CART) {
            for (int d = 0; d < 2; d++) {
                MPI_Cart_shift(comm, d, 1, &sources[2 * d], &sources[2 * d + 1]);
            }
            memcpy(targets, sources, sizeof targets);
        } else {
            sources[0] = (me + P - 1) % P, sources[1] = me, targets[0] = (me + 1) % P, targets[1] = me;
        }
        memcpy(it.wanted, it.in, room * 8);
        for (int k = 0; k < degree; k++) {
            /* In a Cartesian topology what is sent down arrives from above: opposite slots. With two processes in a
             * periodic dimension, or one, both slots name the same neighbour. */
            for (int i = 0; i < n; i++) {
                OUT(kind == NEIGHBOUR_ALLTOALL ? k * n : 0, i) =
                    kind == NEIGHBOUR_ALLTOALL ? word(content, me, targets[k] + 1, i) : word(content, me, 0, i);
                if (sources[k] != MPI_PROC_NULL) {
                    WANTED(k * n, i) = kind == NEIGHBOUR_ALLTOALL ? word(content, sources[k], me + 1, i)
                                                                  : word(content, sources[k], 0, i);
                }
            }
        }
        if (kind == NEIGHBOUR_ALLGATHER) e = CALL(Neighbor_allgather, neighbor_allgather, send, n, type, it.in, n, type);
        else e = CALL(Neighbor_alltoall, neighbor_alltoall, send, n, type, it.in, n, type);
        break;
    }
    default: {
        static const MPI_Op *operations[OPERATIONS];
        static MPI_Op predefined[5];
        predefined[0] = MPI_SUM, predefined[1] = MPI_MAX, predefined[2] = MPI_MIN, predefined[3] = MPI_BXOR;
        predefined[4] = MPI_PROD;
        for (int i = 0; i < 5; i++) operations[i] = &predefined[i];
        operations[AFFINE] = &affine;
        operations[BOTH] = &both;
        MPI_Op op = *operations[operation];
        MPI_Datatype of = operation >= AFFINE ? pair : MPI_UINT64_T;
        int scattered = kind == REDUCE_SCATTER || kind == REDUCE_SCATTER_BLOCK, count = n, first = 0, last = Q, place = 0;
        int unit = operation >= AFFINE ? 2 : 1, gets = kind != REDUCE || i_am_root, mine = n;
        if (scattered) {
            count = 0;
            for (int i = 0; i < P; i++) {
                in_counts[i] = n / unit + (kind == REDUCE_SCATTER ? i % 2 : 0);
                if (i == me) place = count, mine = in_counts[i] * unit;
                count += in_counts[i] * unit;
            }
        }
        uint64_t *one = allocate((size_t)(count + 2) * 8), *result = allocate((size_t)(count + 2) * 8);
        if (kind == SCAN) last = me + 1;
        if (kind == EXSCAN) last = me;
        contribution(content, at->side, me, it.out, count);
        for (int from = first; from < last; from++) {
            contribution(content, at->inter ? 1 - at->side : 0, from, one, count);
            if (from > first) join(operation, result, one, count);
            memcpy(result, one, (size_t)count * 8);
        }
        if (in_place && gets && (kind != REDUCE || i_am_root)) {
            memcpy(it.in, it.out, (size_t)count * 8);
            send = MPI_IN_PLACE;
        }
        memcpy(it.wanted, it.in, room * 8);
        if (gets && !(kind == EXSCAN && me == 0)) memcpy(it.wanted, result + place, (size_t)mine * 8);
        free(one);
        free(result);
        if (kind == REDUCE) e = CALL(Reduce, reduce, sends ? send : NULL, it.in, n / unit, of, op, called_root);
        if (kind == ALLREDUCE) e = CALL(Allreduce, allreduce, send, it.in, n / unit, of, op);
        if (kind == SCAN) e = CALL(Scan, scan, send, it.in, n / unit, of, op);
        if (kind == EXSCAN) e = CALL(Exscan, exscan, send, it.in, n / unit, of, op);
        if (kind == REDUCE_SCATTER) e = CALL(Reduce_scatter, reduce_scatter, send, it.in, in_counts, of, op);
        if (kind == REDUCE_SCATTER_BLOCK) e = CALL(Reduce_scatter_block, reduce_scatter_block, send, it.in, n / unit, of, op);
        if (kind == EXSCAN && me == 0) it.words = 0; /* not defined there */
        if (scattered && in_place) it.words = (size_t)mine; /* behind the result: scratch */
        break;
    }
    }
    if (e != MPI_SUCCESS) FAIL("collective %d gives error %d", kind, e);
    return it;
}

static void end(struct collective *it)
{
    if (memcmp(it->in, it->wanted, it->words * 8) != 0) {
        size_t at = 0;
        while (it->in[at] == it->wanted[at]) at++;
        BAD("collective", "kind %d on communicator %d: word %zu of %zu is %llx instead of %llx", it->kind, it->comm, at,
            it->words, (unsigned long long)it->in[at], (unsigned long long)it->wanted[at]);
    }
    uint64_t hash = (uint64_t)it->kind;
    for (size_t i = 0; i < it->words; i++) hash = scramble(hash ^ it->in[i]);
    sum += hash;
    free(it->out);
    free(it->in);
    free(it->wanted);
    free(it->numbers);
    free(it->types);
}

/* What was seen goes to others, as data: `order` itself never takes anything back from it. */
static void tell(void)
{
    uint64_t script = scramble(seed ^ 0x7e11 ^ (uint64_t)current), mine = order, theirs = 0, every = 0;
    int shift = 1 + (int)draw_from(&script, (uint64_t)size);
    MPI_Sendrecv(&mine, 1, MPI_UINT64_T, (rank + shift) % size, 1, &theirs, 1, MPI_UINT64_T,
                 (rank + size - shift % size) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (draw_from(&script, 2)) {
        mine = order;
        MPI_Allreduce(&mine, &every, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
    }
}

/* ---- a batch: many messages at once, in channels that cannot starve ---- */

enum { ON_ONE = 20, CHANNELS = 3 * ON_ONE, LENGTH = 6, TAGS_EACH = 8, TAGS_OF_ROUND = 512 };
enum kind { NAMED, ANY_SENDER, ANY_TAG_OF_ONE, ANYTHING, PROBED, PROBED_ANYTHING, CANCELLED, NEVER, KINDS };

struct message {
    int from, tag, elements;
    uint64_t content;
};

/* Messages that one receiver takes. */
struct channel {
    int comm, side, to, base, most, count, named_first;
    enum kind kind;
    struct message messages[LENGTH];
    /* The receiver's: */
    struct { int request, source, tag, elements; struct layout layout; unsigned char *buffer; } receives[LENGTH];
    int posted, taken[LENGTH];
};

struct sending {
    int channel, message, request;
    struct layout layout;
    unsigned char *buffer;
    int mode;
};

static struct channel channels[CHANNELS];
static int channel_count, repeated;
static struct sending sendings[MOST];
static int sending_count;

static int receives_here(const struct channel *it)
{
    const struct comm *at = &comms[it->comm];
    return at->comm != MPI_COMM_NULL && at->side == it->side && at->me == it->to;
}

/* `from` is on the other side of an intercommunicator. */
static int sends_here(const struct channel *it, const struct message *message)
{
    const struct comm *at = &comms[it->comm];
    return at->comm != MPI_COMM_NULL && at->side == (at->inter ? 1 - it->side : it->side) && at->me == message->from;
}

static void draw_channel(int c, uint64_t *script, int side, int to, enum kind kind, int number, int source)
{
    const struct comm *at = &comms[c];
    struct channel *it = &channels[channel_count];
    int senders = members_on(at, at->inter ? 1 - side : side), tag = 16 + current * TAGS_OF_ROUND + number * TAGS_EACH;
    if (number >= ON_ONE) return;
    channel_count++;
    memset(it, 0, sizeof *it);
    it->comm = c;
    it->side = side;
    it->to = to;
    it->kind = kind;
    it->base = (int)draw_from(script, 3);
    it->count = 1 + (int)draw_from(script, LENGTH);
    if (kind == CANCELLED || kind == NEVER) it->count = 1;
    if (source < 0) source = (int)draw_from(script, (uint64_t)senders);
    int from_first = 0;
    for (int m = 0; m < it->count; m++) {
        struct message *message = &it->messages[m];
        int several = kind == ANY_SENDER || kind == ANYTHING || kind == PROBED || kind == PROBED_ANYTHING;
        message->from = several ? (int)draw_from(script, (uint64_t)senders) : source;
        message->tag = tag;
        if (kind == ANY_TAG_OF_ONE || kind == ANYTHING || kind == PROBED_ANYTHING) {
            message->tag += (int)draw_from(script, TAGS_EACH);
        }
        message->elements = draw_elements(script, bases[it->base].width);
        message->content = draw_from(script, UINT64_MAX);
        if (message->elements > it->most) it->most = message->elements;
        if (message->from == it->messages[0].from) from_first++;
    }
    /* The first receives may name the sender where the others do not: posted first, they cannot starve. */
    if (kind == ANY_SENDER || kind == ANYTHING) it->named_first = (int)draw_from(script, (uint64_t)from_first + 1);
}

/* What each member of a communicator receives. Whoever takes any tag from somebody takes nothing else from them. */
static int draw_channels(int c, uint64_t script)
{
    const struct comm *at = &comms[c];
    int open = 0, number = 0;
    for (int side = 0; side <= at->inter; side++) {
        int receivers = members_on(at, side), senders = members_on(at, at->inter ? 1 - side : side);
        for (int to = 0; to < receivers; to++) {
            int style = (int)draw_from(&script, repeated ? 6 : 10);
            if (style < 2) continue;
            if (style < 7) {
                int many = 1 + (int)draw_from(&script, 3);
                for (int k = 0; k < many; k++) {
                    static const enum kind tagged[] = {NAMED, ANY_SENDER, ANY_SENDER, PROBED, CANCELLED, NEVER};
                    enum kind kind = tagged[draw_from(&script, repeated ? 3 : 6)];
                    draw_channel(c, &script, side, to, kind, number++, -1);
                }
            } else if (style < 9) {
                draw_channel(c, &script, side, to, draw_from(&script, 2) ? ANYTHING : PROBED_ANYTHING,
                             number++, -1);
                open = 1;
            } else {
                for (int source = 0; source < senders; source++) {
                    enum kind kind = draw_from(&script, 2) ? ANY_TAG_OF_ONE : NAMED;
                    draw_channel(c, &script, side, to, kind, number++, source);
                    if (kind == ANY_TAG_OF_ONE) open = 1;
                }
            }
        }
    }
    return open;
}

static void post_receive(struct channel *it, int index, int persistent)
{
    MPI_Request request;
    int source = it->messages[index].from, tag = it->messages[0].tag;
    tag -= (tag - 16) % TAGS_EACH;
    if (it->kind == ANY_SENDER || it->kind == ANYTHING) {
        source = index < it->named_first ? it->messages[0].from : MPI_ANY_SOURCE;
    }
    if (it->kind == ANY_TAG_OF_ONE || it->kind == ANYTHING) tag = MPI_ANY_TAG;
    struct layout layout = layout_of(it->messages[index].content ^ 0x5eed, it->base, it->most + (index % 2 ? 3 : 0));
    unsigned char *buffer = buffer_for(&layout);
    it->receives[index].layout = layout;
    it->receives[index].buffer = buffer;
    MPI_Comm comm = comms[it->comm].comm;
    if (persistent) {
        MPI_Recv_init(buffer, layout.count, layout.type, source, tag, comm, &request);
        MPI_Start(&request);
    } else {
        MPI_Irecv(buffer, layout.count, layout.type, source, tag, comm, &request);
    }
    it->receives[index].request = add(request, RECEIVE, persistent);
}

static void post_send(int channel, int index, int persistent)
{
    struct channel *it = &channels[channel];
    struct message *message = &it->messages[index];
    struct sending *sending = &sendings[sending_count++];
    MPI_Request request;
    MPI_Comm comm = comms[it->comm].comm;
    sending->channel = channel;
    sending->message = index;
    sending->layout = layout_of(message->content ^ 0x0dd, it->base, message->elements);
    sending->buffer = buffer_for(&sending->layout);
    sending->mode = (int)(message->content >> 7 & 3);
    put(sending->buffer, &sending->layout, message->elements, message->content);
    int count = sending->layout.count, bytes = message->elements * sending->layout.width;
    MPI_Datatype type = sending->layout.type;
    if (sending->mode == 2 && (bytes > (persistent ? 0 : 8192))) sending->mode = 0;
    if (persistent) {
        if (sending->mode == 1) MPI_Ssend_init(sending->buffer, count, type, it->to, message->tag, comm, &request);
        else MPI_Send_init(sending->buffer, count, type, it->to, message->tag, comm, &request);
        MPI_Start(&request);
    } else if (sending->mode == 1) {
        MPI_Issend(sending->buffer, count, type, it->to, message->tag, comm, &request);
    } else if (sending->mode == 2) {
        MPI_Ibsend(sending->buffer, count, type, it->to, message->tag, comm, &request);
    } else {
        MPI_Isend(sending->buffer, count, type, it->to, message->tag, comm, &request);
    }
    sending->request = add(request, SEND, persistent);
}

/* The next message from this source with this tag, in the order of sending. `round`: of a repeated batch. */
static const struct message *next_of(struct channel *it, int source, int tag, uint64_t *content)
{
    int of_kind[LENGTH], many = 0, so_far = 0;
    for (int m = 0; m < it->count; m++) {
        if (it->messages[m].from == source && it->messages[m].tag == tag) of_kind[many++] = m;
    }
    if (many == 0) FAIL("seed %llu: a message of source %d tag %d that nobody sent", (unsigned long long)seed, source, tag);
    for (int k = 0; k < many; k++) so_far += it->taken[of_kind[k]];
    int m = of_kind[so_far % many];
    *content = it->messages[m].content + (uint64_t)(so_far / many) * 7919;
    it->taken[m]++;
    return &it->messages[m];
}

static void check_receive(struct channel *it, int index, const MPI_Status *status)
{
    int elements;
    uint64_t content;
    struct layout *layout = &it->receives[index].layout;
    const struct message *message = next_of(it, status->MPI_SOURCE, status->MPI_TAG, &content);
    MPI_Get_elements(status, bases[it->base].type, &elements);
    if (elements != message->elements) BAD("message", "%d elements instead of %d", elements, message->elements);
    check_message(__LINE__, it->receives[index].buffer, layout, message->elements, content);
    memset(it->receives[index].buffer - GUARD_BYTES, UNTOUCHED, layout->bytes + 2 * GUARD_BYTES);
}

/* Looks for a message in one of the ways there are, and takes it in one of the ways there are. */
static void probe_one(struct channel *it)
{
    MPI_Comm comm = comms[it->comm].comm;
    MPI_Status status;
    MPI_Message matched = MPI_MESSAGE_NULL;
    int index = it->posted++, flag = 0, elements, tag = it->messages[0].tag, source = MPI_ANY_SOURCE;
    int how = (int)own(4), take = (int)own(2);
    tag = it->kind == PROBED_ANYTHING ? MPI_ANY_TAG : tag;
    if (it->kind == PROBED && own(4) == 0) {
        /* By name: one that has not been taken yet. */
        for (int m = 0; m < it->count && source == MPI_ANY_SOURCE; m++) {
            int taken = 0, sent = 0;
            for (int k = 0; k < it->count; k++) sent += it->messages[k].from == it->messages[m].from;
            for (int k = 0; k < index; k++) taken += it->receives[k].source == it->messages[m].from;
            if (taken < sent) source = it->messages[m].from;
        }
    }
    for (int tries = 0; !flag; tries++) {
        if (how == 0) MPI_Iprobe(source, tag, comm, &flag, &status);
        if (how == 1) MPI_Improbe(source, tag, comm, &flag, &matched, &status);
        if (how == 2) MPI_Probe(source, tag, comm, &status), flag = 1;
        if (how == 3) MPI_Mprobe(source, tag, comm, &matched, &status), flag = 1;
        see((uint64_t)flag);
        if (!flag && all.left > 0 && own(4) == 0) advance(0);
        if (tries > 2000) how |= 2;
    }
    see(((uint64_t)status.MPI_SOURCE << 40) ^ (uint64_t)status.MPI_TAG);
    MPI_Get_elements(&status, bases[it->base].type, &elements);
    struct layout layout = layout_of(it->messages[index].content ^ 0x9e7, it->base, elements);
    unsigned char *buffer = buffer_for(&layout);
    it->receives[index].layout = layout;
    it->receives[index].buffer = buffer;
    it->receives[index].source = status.MPI_SOURCE;
    it->receives[index].tag = status.MPI_TAG;
    it->receives[index].elements = elements;
    it->receives[index].request = -1;
    MPI_Request request;
    if (matched != MPI_MESSAGE_NULL && take) {
        MPI_Imrecv(buffer, layout.count, layout.type, &matched, &request);
        it->receives[index].request = add(request, RECEIVE, 0);
    } else if (matched != MPI_MESSAGE_NULL) {
        MPI_Mrecv(buffer, layout.count, layout.type, &matched, &status);
    } else if (take) {
        MPI_Irecv(buffer, layout.count, layout.type, status.MPI_SOURCE, status.MPI_TAG, comm, &request);
        it->receives[index].request = add(request, RECEIVE, 0);
    } else {
        MPI_Recv(buffer, layout.count, layout.type, status.MPI_SOURCE, status.MPI_TAG, comm, &status);
    }
    if (status.MPI_SOURCE != it->receives[index].source || status.MPI_TAG != it->receives[index].tag) {
        BAD("message", "probed one message and received another");
    }
}

/* Cancels a receive whose message may be there, or will be, or never comes. */
static void cancel_one(struct channel *it)
{
    MPI_Comm comm = comms[it->comm].comm;
    MPI_Request request;
    MPI_Status status;
    int cancelled, source = it->messages[0].from, tag = it->messages[0].tag;
    struct layout layout = layout_of(it->messages[0].content ^ 0xca, it->base, it->most);
    unsigned char *buffer = buffer_for(&layout);
    it->receives[0].layout = layout;
    it->receives[0].buffer = buffer;
    it->receives[0].request = -1;
    it->posted = 1;
    if (own(2)) source = MPI_ANY_SOURCE;
    MPI_Irecv(buffer, layout.count, layout.type, source, tag, comm, &request);
    if (own(2) && all.left > 0) advance(0);
    dawdle();
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    see((uint64_t)cancelled);
    if (it->kind == NEVER) {
        if (!cancelled) BAD("message", "a receive that nothing matches was not cancelled");
        check_message(__LINE__, buffer, &layout, 0, 1);
    } else if (cancelled) {
        MPI_Irecv(buffer, layout.count, layout.type, source, tag, comm, &request);
        it->receives[0].request = add(request, RECEIVE, 0);
    } else {
        it->receives[0].source = status.MPI_SOURCE;
        it->receives[0].tag = status.MPI_TAG;
        MPI_Get_elements(&status, bases[it->base].type, &it->receives[0].elements);
    }
}

static void batch(uint64_t script)
{
    struct collective collectives[8];
    int collective_requests[8], collective_count = 0, used[3], many = 1 + (int)draw_from(&script, 3);
    repeated = draw_from(&script, 5) == 0;
    int iterations = repeated ? 2 + (int)draw_from(&script, 4) : 1;
    int open[3];
    channel_count = sending_count = 0;
    all.count = all.left = 0;
    for (int k = 0; k < many; k++) {
        used[k] = draw_comm(&script, 1);
        for (int j = 0; j < k; j++) {
            if (used[j] == used[k]) k--, many--;
        }
    }
    for (int k = 0; k < many; k++) {
        open[k] = comms[used[k]].comm != MPI_COMM_NULL && draw_channels(used[k], script_of(used[k], 100));
    }

    /* Receives and sends in an order of this rank's own, the receives of one channel in theirs. */
    int next_receive[CHANNELS] = {0}, next_send[CHANNELS] = {0}, turns = 0;
    for (int idle = 0; idle < 1;) {
        int first = (int)own((uint64_t)channel_count + 1), did = 0;
        for (int k = 0; k < channel_count && !did; k++) {
            int c = (first + k) % channel_count;
            struct channel *it = &channels[c];
            int posts = receives_here(it) && (it->kind <= ANYTHING) && next_receive[c] < it->count;
            while (next_send[c] < it->count && (it->kind == NEVER || !sends_here(it, &it->messages[next_send[c]]))) {
                next_send[c]++;
            }
            int sends = next_send[c] < it->count;
            if (posts && (!sends || own(2))) {
                post_receive(it, next_receive[c]++, repeated || own(6) == 0);
                it->posted = next_receive[c];
                did = 1;
            } else if (sends) {
                post_send(c, next_send[c]++, repeated || own(6) == 0);
                did = 1;
            }
        }
        if (!did) idle = 1;
        if (++turns % 7 == 0 && all.left > 0 && !repeated) advance(0);
        dawdle();
    }
    if (!repeated && own(3) == 0) {
        for (int k = 0; k < 2; k++) start_general(k);
    }
    /* A message to nobody, and one from nobody. */
    if (!repeated && own(3) == 0) {
        MPI_Request request;
        MPI_Isend(NULL, 0, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &request);
        add(request, SEND, 0);
        MPI_Irecv(NULL, 0, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &request);
        add(request, RECEIVE, 0);
    }

    /* Collectives among them, blocking or not, in the script's order. */
    int some = (int)draw_from(&script, 5);
    for (int k = 0; k < some && !repeated; k++) {
        int c = used[draw_from(&script, (uint64_t)many)], blocking = draw_from(&script, 3) == 0;
        if (comms[c].comm == MPI_COMM_NULL) continue;
        if (blocking) {
            struct collective one = begin(c, script_of(c, 200 + (uint64_t)k), NULL);
            end(&one);
        } else {
            MPI_Request request;
            collectives[collective_count] = begin(c, script_of(c, 200 + (uint64_t)k), &request);
            collective_requests[collective_count++] = add(request, COLLECTIVE, 0);
        }
        if (all.left > 0 && own(2)) advance(0);
    }

    /* Probing and cancelling come before anything waits: some sends end only when these have received. */
    for (int work = 1; work;) {
        work = 0;
        for (int c = 0; c < channel_count; c++) {
            struct channel *it = &channels[c];
            if (!receives_here(it) || it->kind <= ANYTHING || it->posted == it->count) continue;
            work = 1;
            if (own(2)) continue;
            if (it->kind == CANCELLED || it->kind == NEVER) cancel_one(it);
            else probe_one(it);
            dawdle();
        }
        if (work && all.left > 0) advance(0);
    }

    for (int iteration = 0;;) {
        complete_all();
        for (int c = 0; c < channel_count; c++) {
            struct channel *it = &channels[c];
            if (!receives_here(it) || it->kind == NEVER) continue;
            for (int k = 0; k < it->count; k++) {
                int request = it->receives[k].request;
                MPI_Status status;
                if (request >= 0) {
                    status = all.statuses[request];
                } else { /* was received at once */
                    memset(&status, 0, sizeof status);
                    status.MPI_SOURCE = it->receives[k].source;
                    status.MPI_TAG = it->receives[k].tag;
                    MPI_Status_set_elements(&status, bases[it->base].type, it->receives[k].elements);
                }
                check_receive(it, k, &status);
            }
        }
        if (++iteration == iterations) break;
        /* Who is ahead must not take a receive that another's synchronous send of this iteration needs. */
        for (int k = 0; k < many; k++) {
            if (comms[used[k]].comm != MPI_COMM_NULL) MPI_Barrier(comms[used[k]].comm);
        }
        for (int s = 0; s < sending_count; s++) {
            struct sending *it = &sendings[s];
            const struct message *message = &channels[it->channel].messages[it->message];
            put(it->buffer, &it->layout, message->elements, message->content + (uint64_t)iteration * 7919);
        }
        memset(all.done, 0, sizeof all.done);
        all.left = all.count;
        if (own(2)) MPI_Startall(all.count, all.requests);
        else for (int i = 0; i < all.count; i++) MPI_Start(&all.requests[i]);
    }
    for (int i = 0; i < all.count; i++) {
        if (all.persistent[i]) MPI_Request_free(&all.requests[i]);
    }
    for (int k = 0; k < collective_count; k++) {
        (void)collective_requests[k];
        end(&collectives[k]);
    }
    for (int s = 0; s < sending_count; s++) {
        free_layout(&sendings[s].layout);
        free_buffer(sendings[s].buffer);
    }
    for (int c = 0; c < channel_count; c++) {
        struct channel *it = &channels[c];
        for (int k = 0; receives_here(it) && k < it->posted; k++) {
            free_layout(&it->receives[k].layout);
            free_buffer(it->receives[k].buffer);
        }
    }
    /* Before the next round's messages may come: a receive of any tag would take them. */
    for (int k = 0; k < many; k++) {
        if (open[k]) MPI_Barrier(comms[used[k]].comm);
    }
}

/* ---- messages one after the other, with calls that block ---- */

static void one_by_one(uint64_t script)
{
    int c = draw_comm(&script, 1), many = 2 + (int)draw_from(&script, 10);
    const struct comm *at = &comms[c];
    if (at->comm == MPI_COMM_NULL) return;
    script = script_of(c, 300);
    for (int k = 0; k < many; k++) {
        int side = at->inter ? (int)draw_from(&script, 2) : 0, base = (int)draw_from(&script, 3);
        int from = (int)draw_from(&script, (uint64_t)members_on(at, side));
        int to = (int)draw_from(&script, (uint64_t)members_on(at, at->inter ? 1 - side : side));
        int elements = draw_elements(&script, bases[base].width), back = draw_elements(&script, bases[base].width);
        int tag = 16 + current * TAGS_OF_ROUND + k, mode = (int)draw_from(&script, 6), how = (int)draw_from(&script, 6);
        uint64_t content = draw_from(&script, UINT64_MAX);
        int sends = at->me == from && at->side == side, receives = at->me == to && at->side == (at->inter ? 1 - side : side);
        if ((mode == 4 || mode == 5) && from == to && !at->inter) mode = 0;
        struct layout layout = layout_of(content ^ (uint64_t)at->me, base, elements);
        struct layout other = layout_of(content ^ (uint64_t)at->me ^ 99, base, mode == 4 ? back : elements);
        unsigned char *out = buffer_for(&layout), *in = buffer_for(&other);
        MPI_Status status;
        MPI_Message matched;
        MPI_Request request;
        dawdle();
        put(out, &layout, elements, content);
        if (mode == 2 && elements * layout.width > 8192) mode = 0;
        if (sends && receives) {
            MPI_Irecv(in, other.count, other.type, how == 0 ? MPI_ANY_SOURCE : from, tag, at->comm, &request);
        }
        if (mode == 4) { /* both ways */
            struct layout answer = layout_of(content ^ (uint64_t)at->me ^ 5, base, back);
            unsigned char *answer_out = buffer_for(&answer);
            put(answer_out, &answer, back, content ^ 1);
            if (sends) {
                MPI_Sendrecv(out, layout.count, layout.type, to, tag, in, other.count, other.type, to, tag, at->comm,
                             &status);
                check_message(__LINE__, in, &other, back, content ^ 1);
            } else if (receives) {
                struct layout mine = layout_of(content ^ 17, base, elements);
                unsigned char *got = buffer_for(&mine);
                MPI_Sendrecv(answer_out, answer.count, answer.type, from, tag, got, mine.count, mine.type,
                             how == 0 ? MPI_ANY_SOURCE : from, tag, at->comm, &status);
                check_message(__LINE__, got, &mine, elements, content);
                see((uint64_t)status.MPI_SOURCE);
                free_layout(&mine);
                free_buffer(got);
            }
            free_layout(&answer);
            free_buffer(answer_out);
        } else if (mode == 5) { /* both ways through one buffer */
            put(out, &layout, elements, sends ? content : content ^ 1);
            if (sends || receives) {
                int peer = sends ? to : from;
                MPI_Sendrecv_replace(out, layout.count, layout.type, peer, tag, peer, tag, at->comm, &status);
                check_message(__LINE__, out, &layout, elements, sends ? content ^ 1 : content);
            }
        } else {
            if (sends) {
                int ready;
                switch (mode) {
                case 1: /* to oneself that would block: nobody receives while it does */
                    if (receives) MPI_Send(out, layout.count, layout.type, to, tag, at->comm);
                    else MPI_Ssend(out, layout.count, layout.type, to, tag, at->comm);
                    break;
                case 2: MPI_Bsend(out, layout.count, layout.type, to, tag, at->comm); break;
                case 3:
                    if (!receives) MPI_Recv(&ready, 1, MPI_INT, to, tag + 32, at->comm, &status);
                    MPI_Rsend(out, layout.count, layout.type, to, tag, at->comm);
                    break;
                default: MPI_Send(out, layout.count, layout.type, to, tag, at->comm); break;
                }
            }
            if (receives) {
                if (sends) {
                    MPI_Wait(&request, &status);
                } else if (mode == 3) {
                    int ready = 1;
                    MPI_Irecv(in, other.count, other.type, how < 3 ? MPI_ANY_SOURCE : from, tag, at->comm, &request);
                    MPI_Send(&ready, 1, MPI_INT, from, tag + 32, at->comm);
                    MPI_Wait(&request, &status);
                } else if (how == 0) {
                    MPI_Recv(in, other.count, other.type, MPI_ANY_SOURCE, tag, at->comm, &status);
                } else if (how == 1) {
                    MPI_Recv(in, other.count, other.type, from, MPI_ANY_TAG, at->comm, &status);
                } else if (how == 2) {
                    MPI_Probe(MPI_ANY_SOURCE, tag, at->comm, &status);
                    MPI_Recv(in, other.count, other.type, status.MPI_SOURCE, status.MPI_TAG, at->comm, &status);
                } else if (how == 3) {
                    MPI_Mprobe(from, MPI_ANY_TAG, at->comm, &matched, &status);
                    MPI_Mrecv(in, other.count, other.type, &matched, &status);
                } else {
                    MPI_Recv(in, other.count, other.type, from, tag, at->comm, &status);
                }
                check_message(__LINE__, in, &other, elements, content);
                if (status.MPI_SOURCE != from || status.MPI_TAG != tag) BAD("message", "another message");
            }
        }
        free_layout(&layout);
        free_layout(&other);
        free_buffer(out);
        free_buffer(in);
    }
}

/* Everybody sends to one, which takes what comes first, and says afterwards what it saw. */
static void fan_in(uint64_t script)
{
    int c = draw_comm(&script, 0), many = 1 + (int)draw_from(&script, 12);
    const struct comm *at = &comms[c];
    if (at->comm == MPI_COMM_NULL) return;
    script = script_of(c, 400);
    int root = (int)draw_from(&script, (uint64_t)at->local), any_tag = (int)draw_from(&script, 2);
    int tag = 16 + current * TAGS_OF_ROUND;
    uint64_t content = draw_from(&script, UINT64_MAX);
    static unsigned char buffer[100000];
    static const int sizes[] = {0, 1, 8, 100, 4000, 4096, 5000, 66000};
    if (at->me != root) {
        for (int k = 0; k < many; k++) {
            uint64_t mine = scramble(content ^ ((uint64_t)at->me << 32) ^ (uint64_t)k);
            int bytes = sizes[mine % 8];
            dawdle();
            fill(buffer, (size_t)bytes, mine);
            if (mine >> 60 == 0) MPI_Ssend(buffer, bytes, MPI_BYTE, root, tag + k, at->comm);
            else MPI_Send(buffer, bytes, MPI_BYTE, root, tag + k, at->comm);
        }
    } else {
        int next[at->local], left = many * (at->local - 1), number = 0;
        memset(next, 0, sizeof next);
        while (left > 0) {
            MPI_Status status;
            MPI_Message matched;
            int flag = 0, how = (int)own(5), wanted = MPI_ANY_TAG, bytes;
            if (!any_tag) wanted = tag + number / (at->local - 1); /* the n-th of everybody */
            if (!any_tag && how == 1) how = 0;
            switch (how) {
            case 1: { /* named by what is next from somebody */
                int source = (int)own((uint64_t)at->local);
                if (source == at->me || next[source] == many) continue;
                MPI_Recv(buffer, sizeof buffer, MPI_BYTE, source, MPI_ANY_TAG, at->comm, &status);
                break;
            }
            case 2:
                MPI_Probe(MPI_ANY_SOURCE, wanted, at->comm, &status);
                MPI_Recv(buffer, sizeof buffer, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, at->comm, &status);
                break;
            case 3:
                while (!flag) {
                    MPI_Improbe(MPI_ANY_SOURCE, wanted, at->comm, &flag, &matched, &status);
                    see((uint64_t)flag);
                    if (!flag) dawdle();
                }
                MPI_Mrecv(buffer, sizeof buffer, MPI_BYTE, &matched, &status);
                break;
            case 4: {
                MPI_Request request;
                MPI_Irecv(buffer, sizeof buffer, MPI_BYTE, MPI_ANY_SOURCE, wanted, at->comm, &request);
                while (!flag) {
                    MPI_Test(&request, &flag, &status);
                    see((uint64_t)flag);
                }
                break;
            }
            default:
                MPI_Recv(buffer, sizeof buffer, MPI_BYTE, MPI_ANY_SOURCE, wanted, at->comm, &status);
                break;
            }
            int source = status.MPI_SOURCE, k = next[source]++;
            see(((uint64_t)source << 40) ^ (uint64_t)status.MPI_TAG);
            uint64_t theirs = scramble(content ^ ((uint64_t)source << 32) ^ (uint64_t)k);
            MPI_Get_count(&status, MPI_BYTE, &bytes);
            if (status.MPI_TAG != tag + k || bytes != sizes[theirs % 8]) BAD("message", "not the next of %d", source);
            if (wrong_bytes(buffer, (size_t)bytes, theirs, NULL) != 0) BAD("message", "wrong data from %d", source);
            sum += theirs;
            left--;
            number++;
        }
    }
    MPI_Barrier(at->comm);
}

static void some_collectives(uint64_t script)
{
    int c = draw_comm(&script, 1), many = 1 + (int)draw_from(&script, 6);
    if (comms[c].comm == MPI_COMM_NULL) return;
    for (int k = 0; k < many; k++) {
        dawdle();
        struct collective one = begin(c, script_of(c, 500 + (uint64_t)k), NULL);
        end(&one);
    }
}

/* ---- communicators come and go ---- */

static void change_comm(uint64_t script)
{
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Group world, some;
    MPI_Request request;
    int part = 0, flag = 0, ranks[size], many = 0, how = (int)draw_from(&script, 7), other, got;
    int parent = draw_from(&script, 2) ? WORLD : DUP;
    if (how == 6 && size < 2) how = 0;
    if (comms[CHANGING].comm != MPI_COMM_NULL) MPI_Comm_free(&comms[CHANGING].comm);
    dawdle();
    switch (how) {
    case 0:
        MPI_Comm_dup(comms[parent].comm, &comm);
        break;
    case 1: /* while it is being made, other messages go on */
        MPI_Comm_idup(comms[parent].comm, &comm, &request);
        MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 2, &other, 1, MPI_INT, (rank + size - 1) % size, 2,
                     comms[parent].comm, MPI_STATUS_IGNORE);
        if (draw_from(&script, 2)) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            while (!flag) {
                MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
                see((uint64_t)flag);
            }
        }
        break;
    case 2: { /* each rank draws for all, so that all know the parts */
        int colours = 1 + (int)draw_from(&script, 3);
        for (int i = 0; i < size; i++) ranks[i] = (int)draw_from(&script, (uint64_t)colours + 1);
        part = ranks[rank];
        MPI_Comm_split(comms[parent].comm, part == colours ? MPI_UNDEFINED : part, (int)draw_from(&script, 2) ? -rank : rank,
                       &comm);
        break;
    }
    case 3:
    case 4:
        for (int i = 0; i < size; i++) {
            if (draw_from(&script, 3) != 0) ranks[many++] = i;
        }
        if (many == 0) ranks[many++] = size - 1;
        if (draw_from(&script, 2)) {
            for (int i = 0; i < many / 2; i++) {
                int swap = ranks[i];
                ranks[i] = ranks[many - 1 - i];
                ranks[many - 1 - i] = swap;
            }
        }
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_incl(world, many, ranks, &some);
        MPI_Group_rank(some, &got);
        if (how == 3) MPI_Comm_create(comms[parent].comm, some, &comm);
        else if (got != MPI_UNDEFINED) MPI_Comm_create_group(comms[parent].comm, some, 9, &comm);
        MPI_Group_free(&some);
        MPI_Group_free(&world);
        break;
    case 5:
        MPI_Comm_split_type(comms[parent].comm, MPI_COMM_TYPE_SHARED, size - rank, MPI_INFO_NULL, &comm);
        break;
    case 6:
        MPI_Intercomm_merge(comms[INTER].comm, rank % 2, &comm);
        break;
    }
    describe(CHANGING, comm, part);
    sum += (uint64_t)comms[CHANGING].me * 31 + (uint64_t)comms[CHANGING].local;
}

int main(int argc, char **argv)
{
    static unsigned char attached[8 << 20];
    void *detached;
    int detached_bytes;
    start(&argc, &argv);
    if (argc < 2) FAIL("fuzz SEED [ROUNDS] [tolerant]");
    seed = scramble(strtoull(argv[1], NULL, 0));
    if (argc > 2) rounds = atoi(argv[2]);
    tolerant = argc > 3 && strcmp(argv[3], "tolerant") == 0;
    own_state = seed ^ scramble((uint64_t)rank);
    MPI_Buffer_attach(attached, sizeof attached);
    MPI_Type_contiguous(2, MPI_UINT64_T, &pair);
    MPI_Type_commit(&pair);
    MPI_Type_create_resized(MPI_UINT64_T, 0, 16, &spaced);
    MPI_Type_commit(&spaced);
    MPI_Op_create(join_affine, 0, &affine);
    MPI_Op_create(join_both, 1, &both);
    make_comms();
    for (current = 0; current < rounds; current++) {
        uint64_t script = scramble(seed + (uint64_t)current);
        int what = (int)draw_from(&script, 20);
        dawdle();
        if (what < 10) batch(script);
        else if (what < 12) one_by_one(script);
        else if (what < 14) fan_in(script);
        else if (what < 18 || tolerant) some_collectives(script);
        else change_comm(script);
        tell();
    }
    for (int c = DUP; c < COMMS; c++) {
        if (c != SELF && comms[c].comm != MPI_COMM_NULL) MPI_Comm_free(&comms[c].comm);
    }
    MPI_Op_free(&affine);
    MPI_Op_free(&both);
    MPI_Type_free(&pair);
    MPI_Type_free(&spaced);
    MPI_Buffer_detach(&detached, &detached_bytes);
    checksum = sum;
    return finish("fuzz");
}
