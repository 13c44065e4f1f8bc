/* Writes to standard output and error in several ways: stdio MODE [size].
 *   ways     printf, puts, write, dprintf, a child, binary bytes, no line end, after MPI_Finalize, at exit
 *   hit      receives values and prints them; a sender prints what it has sent, which the injector may have hit
 *   large    `size` megabytes of lines
 *   abort    writes and calls MPI_Abort without flushing anything itself
 *   crash    writes and dies of SIGSEGV
 *   late     the replica of STDIO_LATE sleeps before its second line; without it, nobody does
 *   both     standard output and error in turns
 *   child    leaves a child that holds the streams open for some seconds
 *   kill     prints until the process of STDIO_LATE kills itself with SIGKILL, and what it has written by then */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* The replica index, which a program is not meant to know: by the native rank. */
static int replica(void)
{
    const char *native = getenv("OMPI_COMM_WORLD_RANK");
    return native != NULL ? atoi(native) / size : 0;
}

static int chosen(void)
{
    const char *who = getenv("STDIO_LATE");
    return who != NULL && atoi(who) == replica();
}

static void put(int descriptor, const char *text)
{
    if (write(descriptor, text, strlen(text)) < 0) exit(98);
}

static void at_exit(void)
{
    if (rank == 0) printf("printed at exit, and no line end");
}

static void ways(void)
{
    atexit(at_exit);
    if (rank == 0) {
        printf("%s", isatty(1) ? "a terminal\n" : "no terminal\n");
        printf("a line of printf\nand a piece ");
        fflush(stdout);
        put(1, "of write\n");
        dprintf(1, "dprintf %d\n", 7);
        puts("puts");
        fflush(stdout);
        unsigned char bytes[256];
        for (int i = 0; i < 256; i++) bytes[i] = (unsigned char)i;
        for (int i = 0; i < 64; i++) fwrite(bytes, 1, sizeof bytes, stdout);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            put(1, "from a child\n");
            put(2, "error of a child\n");
            _exit(0);
        }
        waitpid(child, NULL, 0);
        fprintf(stderr, "a line of error\n");
        fprintf(stderr, "%s", "no line end");
        char *line = allocate(20000);
        memset(line, 'x', 19999);
        line[19999] = 0;
        printf("%s\n", line);
        free(line);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *mode = argc > 1 ? argv[1] : "ways";
    if (strcmp(mode, "ways") == 0) {
        ways();
    } else if (strcmp(mode, "hit") == 0) {
        unsigned char out[8], in[8];
        for (int round = 0; round < 5; round++) {
            fill(out, sizeof out, seed_of(rank, round, 3));
            MPI_Sendrecv(out, 8, MPI_BYTE, (rank + 1) % size, 0, in, 8, MPI_BYTE, (rank + size - 1) % size, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            printf("rank %d round %d sent", rank, round);
            for (int i = 0; i < 8; i++) printf(" %02x", out[i]);
            printf(" received");
            for (int i = 0; i < 8; i++) printf(" %02x", in[i]);
            printf("\n");
        }
    } else if (strcmp(mode, "large") == 0) {
        long lines = (argc > 2 ? atol(argv[2]) : 1) * 1000000 / 50;
        if (rank == 0) {
            for (long i = 0; i < lines; i++) printf("%010ld %038llx\n", i, (unsigned long long)scramble(i));
        }
    } else if (strcmp(mode, "abort") == 0) {
        put(1, "before the abort\nand no line end");
        put(2, "error before the abort\n");
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) MPI_Abort(MPI_COMM_WORLD, 7);
        pause();
    } else if (strcmp(mode, "crash") == 0) {
        put(1, "before the crash\n");
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            put(1, "the last line\nand half a line");
            *(volatile int *)NULL = 1;
        }
        pause();
    } else if (strcmp(mode, "late") == 0) {
        put(1, "first\n");
        if (chosen()) sleep(6);
        put(1, "second\n");
    } else if (strcmp(mode, "both") == 0) {
        for (int i = 0; i < 200 && rank == 0; i++) put(1 + i % 2, i % 2 ? "error\n" : "output\n");
    } else if (strcmp(mode, "child") == 0) {
        put(1, "before the child\n");
        if (rank == 0 && fork() == 0) {
            sleep(1);
            put(1, "the child writes later\n");
            sleep(8);
            _exit(0);
        }
    } else if (strcmp(mode, "kill") == 0) {
        for (int i = 0; i < 20; i++) {
            char line[64];
            snprintf(line, sizeof line, "line %d of rank %d\n", i, rank);
            put(1, line);
            MPI_Barrier(MPI_COMM_WORLD);
            usleep(20000); /* spheres are not in step */
            if (i == 10 && rank == 0 && chosen()) raise(SIGKILL);
        }
    } else {
        FAIL("no such mode: %s", mode);
    }
    MPI_Finalize();
    if (strcmp(mode, "ways") == 0 && rank == 0) {
        printf("after MPI_Finalize\n");
        fflush(stdout);
        put(2, "error after MPI_Finalize\n");
    }
    return 0;
}
