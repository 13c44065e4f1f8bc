/* What the test programs share: data computed from (rank, size, round), strict checks, and the one line
 * `RESULT <name> <hex>` that the runner compares with the same program's output under plain Open MPI.
 *
 * Every program is deterministic: the same number of ranks gives the same RESULT, whatever the degree. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED __attribute__((unused))

static int rank, size;

/* Over everything this process has received and found right. */
static uint64_t checksum = 0x9e3779b97f4a7c15u;

UNUSED __attribute__((noreturn, format(printf, 3, 4))) static void
fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "FAILED %s:%d rank %d of %d: ", file, line, rank, size);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 99);
    exit(99);
}

#define FAIL(...) fail(__FILE__, __LINE__, __VA_ARGS__)
#define REQUIRE(condition) do { if (!(condition)) FAIL("not so: %s", #condition); } while (0)
#define EQUAL(got, wanted)                                                                          \
    do {                                                                                            \
        long long got_ = (long long)(got), wanted_ = (long long)(wanted);                           \
        if (got_ != wanted_) FAIL("%s is %lld, not %s = %lld", #got, got_, #wanted, wanted_);       \
    } while (0)

UNUSED static uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Names one message: who, to whom, which. */
UNUSED static uint64_t seed_of(int from, int to, int number)
{
    return scramble(((uint64_t)from << 42) ^ ((uint64_t)to << 21) ^ (uint64_t)number);
}

UNUSED static unsigned char byte_of(uint64_t seed, size_t index)
{
    return (unsigned char)(scramble(seed + index / 8) >> (8 * (index % 8)));
}

UNUSED static void fill(void *buffer, size_t bytes, uint64_t seed)
{
    unsigned char *at = buffer;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = scramble(seed + i / 8);
        for (size_t k = i; k < i + 8 && k < bytes; k++, word >>= 8) at[k] = (unsigned char)word;
    }
}

/* How many bytes differ from what `fill` wrote; `first` is where the first of them is. */
UNUSED static size_t wrong_bytes(const void *buffer, size_t bytes, uint64_t seed, size_t *first)
{
    const unsigned char *at = buffer;
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = scramble(seed + i / 8);
        for (size_t k = i; k < i + 8 && k < bytes; k++, word >>= 8) {
            if (at[k] != (unsigned char)word && wrong++ == 0 && first != NULL) *first = k;
        }
    }
    return wrong;
}

UNUSED static void mix(const void *buffer, size_t bytes)
{
    const unsigned char *at = buffer;
    uint64_t hash = 0xcbf29ce484222325u ^ bytes;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    checksum = scramble(checksum ^ hash);
}

UNUSED static void mix_number(long long number)
{
    mix(&number, sizeof number);
}

UNUSED static void check_at(const char *file, int line, const void *buffer, size_t bytes, uint64_t seed)
{
    size_t first = 0, wrong = wrong_bytes(buffer, bytes, seed, &first);
    if (wrong != 0) fail(file, line, "%zu of %zu bytes are wrong, the first at %zu", wrong, bytes, first);
    mix(buffer, bytes);
}

/* The buffer holds what `fill` with this seed writes. */
#define CHECK(buffer, bytes, seed) check_at(__FILE__, __LINE__, buffer, bytes, seed)

/* The buffer holds `bytes` times `value`: guard bytes that nobody may touch. */
UNUSED static void guard_at(const char *file, int line, const void *buffer, size_t bytes, int value)
{
    const unsigned char *at = buffer;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != (unsigned char)value) fail(file, line, "guard byte %zu of %zu was written: %d", i, bytes, at[i]);
    }
}

#define GUARD(buffer, bytes, value) guard_at(__FILE__, __LINE__, buffer, bytes, value)

UNUSED static void check_status_at(const char *file, int line, const MPI_Status *status, int source, int tag, int bytes)
{
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    if (status->MPI_SOURCE != source || status->MPI_TAG != tag || count != bytes) {
        fail(file, line, "status says source %d tag %d bytes %d, not %d %d %d", status->MPI_SOURCE, status->MPI_TAG,
             count, source, tag, bytes);
    }
}

#define CHECK_STATUS(status, source, tag, bytes) check_status_at(__FILE__, __LINE__, status, source, tag, bytes)

UNUSED static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes == 0 ? 1 : bytes);
    if (memory == NULL) FAIL("no memory for %zu bytes", bytes);
    return memory;
}

UNUSED static void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

UNUSED static int finish(const char *name)
{
    uint64_t mine = scramble(checksum + (uint64_t)rank), sum = 0;
    MPI_Reduce(&mine, &sum, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("RESULT %s %016llx\n", name, (unsigned long long)sum);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}

#endif
