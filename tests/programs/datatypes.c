/* Derived datatypes, each sent as itself to a receiver that takes it as contiguous bytes or as another type, and
 * back; bytes between the blocks must stay as they were; types are freed while a request still uses them. */
#include "check.h"

enum { GUARD_VALUE = 0x3c };

static int next, previous;

/* A type, and room for `count` of it: `origin` is the address MPI gets, inside `memory`. */
struct layout {
    MPI_Datatype type;
    int count;
    size_t room;
    unsigned char *memory, *origin;
    int packed; /* bytes of data */
};

static void lay_out(struct layout *l, MPI_Datatype type, int count)
{
    MPI_Aint lower, extent, true_lower, true_extent;
    int bytes;
    MPI_Type_commit(&type);
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &true_lower, &true_extent);
    MPI_Type_size(type, &bytes);
    l->type = type;
    l->count = count;
    l->packed = bytes * count;
    MPI_Aint span = count > 0 ? true_extent + (extent > 0 ? extent : -extent) * (count - 1) : 0;
    MPI_Aint before = true_lower < 0 ? -true_lower : 0, after = true_lower > 0 ? true_lower : 0;
    if (extent < 0 && count > 0) before += -extent * (count - 1);
    before = (before + 15) / 16 * 16;
    l->room = 64 + before + span + after + 64;
    l->memory = allocate(l->room);
    l->origin = l->memory + 64 + before;
}

/* Writes the blocks of a layout by MPI_Unpack, which stays in this process. */
static void scatter(struct layout *l, const void *bytes)
{
    int position = 0;
    memset(l->memory, GUARD_VALUE, l->room);
    MPI_Unpack(bytes, l->packed, &position, l->origin, l->count, l->type, MPI_COMM_SELF);
    EQUAL(position, l->packed);
}

/* The blocks hold `bytes` and everything around them is untouched: compared with a fresh layout that is filled
 * the same way without a message. */
static void check_layout(struct layout *l, const void *bytes, const char *what)
{
    unsigned char *copy = allocate(l->room);
    memcpy(copy, l->memory, l->room);
    scatter(l, bytes);
    for (size_t i = 0; i < l->room; i++) {
        if (copy[i] != l->memory[i]) {
            FAIL("%s: byte %zu of %zu is %d, not %d", what, i, l->room, copy[i], l->memory[i]);
        }
    }
    mix(copy, l->room);
    free(copy);
}

/* typed → contiguous, contiguous → typed, typed → typed, with the receive posted before or after the send. */
static void exchange(struct layout *out, struct layout *in, const char *what, int number)
{
    unsigned char *plain = allocate(out->packed), *expected = allocate(in->packed), *got = allocate(in->packed);
    MPI_Request requests[2];
    MPI_Status status;
    EQUAL(out->packed, in->packed);
    fill(plain, out->packed, seed_of(rank, next, number));
    fill(expected, in->packed, seed_of(previous, rank, number));

    scatter(out, plain);
    MPI_Irecv(got, in->packed, MPI_BYTE, previous, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out->origin, out->count, out->type, next, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(got, in->packed, seed_of(previous, rank, number));
    check_layout(out, plain, what); /* sending changes nothing */

    memset(in->memory, GUARD_VALUE, in->room);
    MPI_Isend(plain, out->packed, MPI_BYTE, next, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv(in->origin, in->count, in->type, previous, 2, MPI_COMM_WORLD, &status);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    CHECK_STATUS(&status, previous, 2, in->packed);
    check_layout(in, expected, what);

    memset(in->memory, GUARD_VALUE, in->room);
    scatter(out, plain);
    MPI_Sendrecv(out->origin, out->count, out->type, next, 3, in->origin, in->count, in->type, previous, 3,
                 MPI_COMM_WORLD, &status);
    int elements = -1;
    MPI_Get_count(&status, in->type, &elements);
    EQUAL(elements, in->packed == 0 ? 0 : in->count);
    check_layout(in, expected, what);

    /* The types go while their requests are active. */
    memset(in->memory, GUARD_VALUE, in->room);
    scatter(out, plain);
    MPI_Datatype send_type, receive_type;
    MPI_Type_dup(out->type, &send_type);
    MPI_Type_dup(in->type, &receive_type);
    MPI_Irecv(in->origin, in->count, receive_type, previous, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Type_free(&receive_type);
    MPI_Isend(out->origin, out->count, send_type, next, 4, MPI_COMM_WORLD, &requests[1]);
    MPI_Type_free(&send_type);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check_layout(in, expected, what);

    free(plain);
    free(expected);
    free(got);
}

static void both(MPI_Datatype one, int one_count, MPI_Datatype two, int two_count, const char *what, int number)
{
    struct layout a, b;
    lay_out(&a, one, one_count);
    lay_out(&b, two, two_count);
    exchange(&a, &b, what, number);
    exchange(&b, &a, what, number + 1);
    MPI_Type_free(&a.type);
    MPI_Type_free(&b.type);
    free(a.memory);
    free(b.memory);
}

static MPI_Datatype contiguous(int count, MPI_Datatype of)
{
    MPI_Datatype type;
    MPI_Type_contiguous(count, of, &type);
    return type;
}

static MPI_Datatype vector(int count, int block, int stride, MPI_Datatype of)
{
    MPI_Datatype type;
    MPI_Type_vector(count, block, stride, of, &type);
    return type;
}

static MPI_Datatype indexed(void)
{
    MPI_Datatype type;
    MPI_Type_indexed(4, (int[]){3, 0, 1, 8}, (int[]){0, 5, 7, 20}, MPI_SHORT, &type); /* 12 shorts */
    return type;
}

static MPI_Datatype backwards(void)
{
    MPI_Datatype type;
    MPI_Type_create_hindexed(3, (int[]){8, 8, 8}, (MPI_Aint[]){-40, 16, -8}, MPI_BYTE, &type); /* 24 bytes */
    return type;
}

struct record {
    char letter; /* and a gap */
    double number;
    short pair[2]; /* and a gap */
};

static MPI_Datatype record(void)
{
    MPI_Datatype fields, type;
    MPI_Type_create_struct(3, (int[]){1, 1, 2},
                           (MPI_Aint[]){offsetof(struct record, letter), offsetof(struct record, number),
                                        offsetof(struct record, pair)},
                           (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_SHORT}, &fields);
    MPI_Type_create_resized(fields, 0, sizeof(struct record), &type);
    MPI_Type_free(&fields);
    return type; /* 13 bytes of 24 */
}

static MPI_Datatype subarray(int order, int side)
{
    MPI_Datatype type;
    MPI_Type_create_subarray(3, (int[]){side, side, side}, (int[]){side / 2, side / 4, side / 2},
                             (int[]){side / 4, 1, side / 2}, order, MPI_INT, &type);
    return type;
}

static MPI_Datatype resized(MPI_Datatype of, MPI_Aint lower, MPI_Aint extent)
{
    MPI_Datatype type;
    MPI_Type_create_resized(of, lower, extent, &type);
    return type;
}

/* A struct of a vector of records and a backwards piece. The records' explicit bounds alone would decide the
 * extent, so that neighbours would overlap: it is given. */
static MPI_Datatype nested(void)
{
    MPI_Datatype inner = record(), rows = vector(3, 2, 3, inner), piece = backwards(), fields, type;
    MPI_Type_create_struct(2, (int[]){1, 2}, (MPI_Aint[]){0, 1000}, (MPI_Datatype[]){rows, piece}, &fields);
    type = resized(fields, 0, 1100);
    MPI_Type_free(&fields);
    MPI_Type_free(&inner);
    MPI_Type_free(&rows);
    MPI_Type_free(&piece);
    return type; /* 6 * 13 + 2 * 24 = 126 bytes */
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;

    both(contiguous(100, MPI_INT), 1, contiguous(4, MPI_BYTE), 100, "contiguous", 10);
    both(vector(10, 3, 7, MPI_INT), 2, contiguous(60, MPI_INT), 1, "vector", 20);
    both(vector(16, 1, -3, MPI_DOUBLE), 1, vector(4, 4, 9, MPI_DOUBLE), 1, "negative stride", 30);
    both(indexed(), 5, contiguous(12, MPI_SHORT), 5, "indexed", 40);
    both(record(), 9, contiguous(13, MPI_BYTE), 9, "struct", 50);
    both(subarray(MPI_ORDER_C, 8), 1, subarray(MPI_ORDER_FORTRAN, 8), 1, "subarray", 60);
    both(resized(MPI_INT, -8, 20), 30, contiguous(30, MPI_INT), 1, "resized", 70);
    both(resized(vector(2, 1, 4, MPI_INT), 0, 4), 2, contiguous(4, MPI_INT), 1, "overlapping extents", 80);
    both(backwards(), 3, contiguous(24, MPI_BYTE), 3, "negative lower bound", 90);
    both(nested(), 4, contiguous(126, MPI_BYTE), 4, "nested", 100);
    both(indexed(), 0, contiguous(4, MPI_BYTE), 0, "count 0", 110);
    both(contiguous(0, MPI_INT), 3, vector(0, 2, 4, MPI_INT), 7, "empty type", 120);

    /* Rendezvous. */
    both(vector(20000, 3, 5, MPI_DOUBLE), 1, contiguous(60000, MPI_DOUBLE), 1, "large vector", 200);
    both(record(), 40000, contiguous(13 * 40, MPI_BYTE), 1000, "large struct", 210);
    both(subarray(MPI_ORDER_C, 80), 1, subarray(MPI_ORDER_FORTRAN, 80), 1, "large subarray", 220);
    both(backwards(), 8000, contiguous(24, MPI_BYTE), 8000, "large negative lower bound", 230);
    both(nested(), 2000, contiguous(126 * 4, MPI_BYTE), 500, "large nested", 240);

    return finish("datatypes");
}
