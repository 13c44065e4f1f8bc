/* One replica is late (its number is the argument): it has to find what it would have found alone, although the others
 * write to the same files; and where the leader is late the others have to wait or to know better. */
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int late;

static void doze(void)
{
    if (late) usleep(150000);
}

static int content(const char *name, char *text, int length)
{
    FILE *file = fopen(name, "r");
    if (file == NULL) return -1;
    int bytes = (int) fread(text, 1, (size_t) length - 1, file);
    fclose(file);
    text[bytes] = 0;
    return bytes;
}

static void is(const char *name, const char *expected)
{
    char text[200] = "";
    int bytes = content(name, text, sizeof text);
    if (expected == NULL ? bytes >= 0 : strcmp(text, expected) != 0) {
        FAIL("%s has `%s` (%d bytes) and not `%s`", name, text, bytes, expected ? expected : "no such file");
    }
    mix(text, strlen(text));
}

static void put(const char *name, const char *mode, const char *text)
{
    FILE *file = fopen(name, mode);
    REQUIRE(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *native = getenv("OMPI_COMM_WORLD_RANK");
    late = argc > 1 && native != NULL && atoi(native) / size == atoi(argv[1]);
    char expected[100], name[40];

    /* What is read, and later overwritten, appended to, renamed over, removed. */
    snprintf(name, sizeof name, "state.%d", rank);
    for (int step = 0; step < 3; ++step) {
        doze();
        snprintf(expected, sizeof expected, "step %d\n", step);
        is(name, expected);
        doze();
        snprintf(expected, sizeof expected, "step %d\n", step + 1);
        put(name, "w", expected);
    }
    doze();
    REQUIRE(access("checkpoint", F_OK) == 0);
    is("checkpoint", "old\n");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        put("checkpoint.new", "w", "new\n");
        doze();
        REQUIRE(rename("checkpoint.new", "checkpoint") == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    doze();
    is("checkpoint", "new\n");
    MPI_Barrier(MPI_COMM_WORLD);
    /* Another rank removes it, and a third file comes into being. */
    if (rank == size - 1) {
        REQUIRE(unlink("checkpoint") == 0);
        put("done", "w", "done\n");
    }
    doze();
    MPI_Barrier(MPI_COMM_WORLD);
    is("checkpoint", NULL);
    is("done", "done\n");

    /* A flag is asked for before there is one. */
    snprintf(name, sizeof name, "flag.%d", rank);
    doze();
    REQUIRE(access(name, F_OK) < 0);
    put(name, "w", "up\n");
    doze();
    REQUIRE(access(name, F_OK) == 0);
    struct stat found;
    REQUIRE(stat(name, &found) == 0);
    EQUAL(found.st_size, 3);
    put("log", "a", "");
    return finish("files_behind");
}
