/* Everything that a program can ask the system for and that differs between two processes, sent to a neighbour: replicas
 * that were told different things send different messages. The tag of a message says which source it is from:
 *   1.. random numbers, 20.. process ids, 40.. names of the machine, 60.. clocks, 80.. a library loaded with dlopen;
 *   100 more where it was asked before MPI_Init.
 * The program itself checks that what it is told is usable: ids can be signalled, clocks go on, waiting takes its time.
 *
 * Usage: sources PLUGIN [before]; `before`: also before MPI_Init, and that what was told then still holds. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct value {
    int tag, bytes;
    unsigned char data[64];
};

static struct value values[200];
static int count, later;
static const char *plugin;

static void note(int tag, const void *data, size_t bytes)
{
    struct value *value = &values[count++];
    value->tag = tag + later;
    value->bytes = (int)(bytes < sizeof value->data ? bytes : sizeof value->data);
    memcpy(value->data, data, (size_t)value->bytes);
}

static void note_number(int tag, long long number)
{
    note(tag, &number, sizeof number);
}

static void note_text(int tag, const char *text)
{
    note(tag, text, strlen(text));
}

static void *of_thread(void *place)
{
    if (getrandom(place, 16, 0) != 16) abort();
    return NULL;
}

static void random_numbers(void)
{
    unsigned char bytes[64];
    static unsigned char many[3 << 20];
    uint32_t (*found)(void);
    REQUIRE(getrandom(bytes, 33, 0) == 33);
    note(1, bytes, 33);
    REQUIRE(getentropy(bytes, 20) == 0);
    note(2, bytes, 20);
    REQUIRE(getentropy(many, 257) == -1);
    found = (uint32_t (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "arc4random"); /* found by name: not in every C library */
    note_number(3, found ? (long long)found() : 0);
    REQUIRE(syscall(SYS_getrandom, bytes, (size_t)8, 0) == 8);
    note(4, bytes, 8);

    int device = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    REQUIRE(device >= 0);
    size_t all = 0;
    while (all < sizeof many) { /* more than the file in memory holds */
        ssize_t got = read(device, many + all, sizeof many - all);
        REQUIRE(got > 0);
        all += (size_t)got;
    }
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof many; i++) hash = scramble(hash ^ many[i]);
    note(5, &hash, sizeof hash);
    REQUIRE(memcmp(many, many + (1 << 20), 1 << 20) != 0);
    REQUIRE(close(device) == 0);
    int zero = open("/dev/zero", O_RDONLY); /* the same number: it is another file now */
    EQUAL(zero, device);
    REQUIRE(read(zero, bytes, 8) == 8 && bytes[0] == 0 && bytes[7] == 0);
    close(zero);
    FILE *stream = fopen("/dev/random", "rb");
    REQUIRE(stream != NULL && fread(bytes, 1, 40, stream) == 40);
    note(6, bytes, 40);
    fclose(stream);

    char name[2][40];
    for (int i = 0; i < 2; i++) {
        strcpy(name[i], "/dev/shm/redmpi-test-XXXXXX");
        int file = mkstemp(name[i]);
        /* Not sent: replicas on one machine want the same name, and the second to come gets the next one. */
        REQUIRE(file >= 0);
        close(file);
    }
    REQUIRE(strcmp(name[0], name[1]) != 0);
    unlink(name[0]);
    unlink(name[1]);

    pthread_t thread[2];
    unsigned char theirs[2][16];
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&thread[i], NULL, of_thread, theirs[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    REQUIRE(memcmp(theirs[0], theirs[1], 16) != 0);
    note(7, theirs, sizeof theirs);

    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        getrandom(bytes, 16, 0);
        _exit(write(pipes[1], bytes, 16) == 16 ? 0 : 1);
    }
    unsigned char mine[16];
    REQUIRE(read(pipes[0], bytes, 16) == 16);
    getrandom(mine, 16, 0);
    REQUIRE(memcmp(mine, bytes, 16) != 0); /* a child does not repeat its parent's numbers */
    note(8, bytes, 16);
    int status;
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    close(pipes[0]);
    close(pipes[1]);
}

static volatile sig_atomic_t signals;

static void count_signal(int signal)
{
    (void)signal;
    signals++;
}

static void process_ids(void)
{
    pid_t own = getpid(), parent = getppid();
    char path[64], line[256];
    note_number(20, own);
    note_number(21, parent);
    note_number(22, syscall(SYS_gettid));
    EQUAL(syscall(SYS_getpid), own);
    EQUAL(syscall(SYS_gettid), own); /* how programs find their main thread */

    signal(SIGUSR1, count_signal);
    signals = 0;
    EQUAL(kill(own, SIGUSR1), 0);
    EQUAL(syscall(SYS_tgkill, own, own, SIGUSR1), 0);
    union sigval none = { .sival_int = 0 };
    EQUAL(sigqueue(own, SIGUSR1, none), 0);
    EQUAL(signals, 3);
    EQUAL(kill(parent, 0), 0);
    cpu_set_t set;
    EQUAL(sched_getaffinity(own, sizeof set, &set), 0);
    EQUAL(sched_setaffinity(own, sizeof set, &set), 0);
    REQUIRE(sched_getscheduler(own) >= 0);
    errno = 0;
    getpriority(PRIO_PROCESS, (id_t)own);
    EQUAL(errno, 0);
    struct rlimit limit;
    EQUAL(prlimit(own, RLIMIT_NOFILE, NULL, &limit), 0);
    REQUIRE(getpgid(own) > 0 && getsid(own) > 0);
    EQUAL(getpgid(own), getpgid(0));

    snprintf(path, sizeof path, "/proc/%d/stat", (int)own);
    EQUAL(access(path, R_OK), 0);
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL && fgets(line, sizeof line, file) != NULL);
    REQUIRE(strstr(line, "(sources)") != NULL);
    fclose(file);

    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        long told[2] = { getppid(), getpid() };
        kill(getppid(), SIGUSR1);
        _exit(write(pipes[1], told, sizeof told) == sizeof told ? 0 : 1);
    }
    long told[2];
    ssize_t got;
    while ((got = read(pipes[0], told, sizeof told)) < 0 && errno == EINTR) {}
    EQUAL(got, sizeof told);
    EQUAL(told[0], own);
    EQUAL(told[1], child);
    int status;
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    EQUAL(signals, 4);
    close(pipes[0]);
    close(pipes[1]);
}

static void names(void)
{
    char name[256];
    struct utsname system;
    EQUAL(gethostname(name, sizeof name), 0);
    note_text(40, name);
    EQUAL(uname(&system), 0);
    note_text(41, system.nodename);
    REQUIRE(strcmp(name, system.nodename) == 0);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    EQUAL(clock_gettime(clock, &now), 0);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The machine's own clock, which nobody stands in front of. */
static double uptime(void)
{
    double up = 0;
    FILE *file = fopen("/proc/uptime", "r");
    REQUIRE(file != NULL && fscanf(file, "%lf", &up) == 1);
    fclose(file);
    return up;
}

static long long processor(void)
{
    return clock();
}

static double last[3];

static void clocks(void)
{
    static const clockid_t clock[3] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID };
    struct timespec now;
    struct timeval day;
    struct rusage usage;
    struct tms parts;
    for (int i = 0; i < 3; i++) {
        double told = seconds(clock[i]);
        note(60 + i, &told, sizeof told);
        if (told < last[i]) FAIL("clock %d went back from %.9f to %.9f", i, last[i], told);
        last[i] = told;
    }
    EQUAL(gettimeofday(&day, NULL), 0);
    note_number(63, day.tv_sec * 1000000LL + day.tv_usec);
    REQUIRE((double)day.tv_sec + 1e-6 * (double)day.tv_usec >= last[0] - 1e-6);
    note_number(64, time(NULL));
    REQUIRE(llabs((long long)time(NULL) - (long long)day.tv_sec) <= 1);
    note_number(65, processor());
    EQUAL(getrusage(RUSAGE_SELF, &usage), 0);
    note_number(66, usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec);
    note_number(67, times(&parts));
    EQUAL(timespec_get(&now, TIME_UTC), TIME_UTC);
    note(68, &now, sizeof now);
    EQUAL(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now), 0);
    note(69, &now, sizeof now);
    struct timespec slow;
    EQUAL(clock_gettime(CLOCK_MONOTONIC_COARSE, &slow), 0);
    REQUIRE(seconds(CLOCK_BOOTTIME) > 0 && seconds(CLOCK_MONOTONIC) >= last[1]);

    /* Waiting for a time of that clock takes as long by the machine's. */
    sem_t never;
    sem_init(&never, 0, 0);
    double begin = uptime();
    EQUAL(clock_gettime(CLOCK_REALTIME, &now), 0);
    now.tv_nsec += 300000000;
    now.tv_sec += now.tv_nsec / 1000000000;
    now.tv_nsec %= 1000000000;
    EQUAL(sem_timedwait(&never, &now), -1);
    EQUAL(errno, ETIMEDOUT);
    REQUIRE(seconds(CLOCK_REALTIME) >= (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    EQUAL(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    now.tv_nsec += 300000000;
    now.tv_sec += now.tv_nsec / 1000000000;
    now.tv_nsec %= 1000000000;
    EQUAL(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL), 0);
    double took = uptime() - begin;
    if (took < 0.55 || took > 100) FAIL("0.6 s of waiting took %g s", took);
    /* Sleeping moves the clock on. */
    double before = seconds(CLOCK_MONOTONIC);
    usleep(20000);
    EQUAL(poll(NULL, 0, 20), 0);
    double slept = seconds(CLOCK_MONOTONIC) - before;
    if (slept < 0.039 || slept > 100) FAIL("40 ms of sleep took %g s", slept);
}

static void loaded(void)
{
    void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) FAIL("%s", dlerror());
    long long (*ask)(int) = (long long (*)(int))(uintptr_t)dlsym(library, "plugin_ask");
    REQUIRE(ask != NULL);
    for (int what = 0; what < 3; what++) note_number(80 + what, ask(what));
    /* What a program finds by name is the same function. */
    pid_t (*found)(void) = (pid_t (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "getpid");
    REQUIRE(found != NULL);
    EQUAL(found(), getpid());
}

static void ask_all(void)
{
    random_numbers();
    process_ids();
    names();
    clocks();
    loaded();
}

int main(int argc, char **argv)
{
    int before = argc > 2 && strcmp(argv[2], "before") == 0;
    pid_t own = getpid(), parent = getppid();
    plugin = argv[1];
    if (before) {
        later = 100;
        ask_all();
        later = 0;
    }
    start(&argc, &argv);
    if (before) {
        EQUAL(getpid(), own);
        EQUAL(getppid(), parent);
    }
    ask_all();
    char name[MPI_MAX_PROCESSOR_NAME];
    int length;
    MPI_Get_processor_name(name, &length);
    EQUAL(length, strlen(name));
    note_text(42, name);
    for (int i = 0; i < count; i++) {
        struct value theirs;
        MPI_Sendrecv(values[i].data, values[i].bytes, MPI_BYTE, (rank + 1) % size, values[i].tag, theirs.data,
                     sizeof theirs.data, MPI_BYTE, (rank + size - 1) % size, values[i].tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        /* Ranks are not replicas of one another. */
        int all = values[i].tag % 100;
        if (all <= 8 && memcmp(values[i].data, theirs.data, 8) == 0) FAIL("both ranks have the same random numbers, tag %d", values[i].tag);
        if (all == 20 && memcmp(values[i].data, theirs.data, 8) == 0) FAIL("both ranks have the same process id");
    }
    mix_number(before);
    return finish("sources");
}
