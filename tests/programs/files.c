/* Every call of the C library that names a file. Each rank works in a folder of its own below the current one, and in one
 * that all share; what is left there is compared, by the runner, with what plain Open MPI leaves. The RESULT is over all
 * that was read back and over every outcome. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(condition) \
    do { \
        if (!(condition)) { \
            FAIL("%s (errno %d: %s)", #condition, errno, strerror(errno)); \
        } \
    } while (0)
/* A call that has to fail in this way. */
#define FAILS(call, reason) \
    do { \
        errno = 0; \
        NEED((call) < 0); \
        NEED(errno == (reason)); \
        mix_number(errno); \
    } while (0)

/* What is in a file, as text. */
static void note_file(const char *name, const char *expected)
{
    char text[4096];
    FILE *file = fopen(name, "r");
    NEED(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = 0;
    fclose(file);
    if (strcmp(text, expected)) {
        FAIL("%s has `%s` and not `%s`", name, text, expected);
    }
    mix(text, length);
    struct stat found;
    NEED(stat(name, &found) == 0);
    NEED((size_t) found.st_size == length);
}

static void put(const char *name, const char *mode, const char *text)
{
    FILE *file = fopen(name, mode);
    NEED(file);
    NEED(fputs(text, file) >= 0);
    NEED(fclose(file) == 0);
}

static void opening(void)
{
    char text[100] = "";
    int file = open("created", O_CREAT | O_EXCL | O_WRONLY, 0640);
    NEED(file >= 0);
    NEED(write(file, "one two\n", 8) == 8);
    NEED(close(file) == 0);
    FAILS(open("created", O_CREAT | O_EXCL | O_WRONLY, 0640), EEXIST);
    FAILS(open("missing", O_WRONLY), ENOENT);
    FAILS(open("missing", O_RDONLY), ENOENT);
    FAILS(open("no/such/folder", O_CREAT | O_WRONLY, 0600), ENOENT);
    FAILS(open(".", O_WRONLY), EISDIR);
    file = open("created", O_RDWR);
    NEED(file >= 0);
    NEED(pwrite(file, "TWO", 3, 4) == 3);
    NEED(read(file, text, 8) == 8);
    mix(text, 8);
    NEED(close(file) == 0);
    note_file("created", "one TWO\n");
    file = open("created", O_WRONLY | O_APPEND);
    struct iovec parts[2] = {{"three ", 6}, {"four\n", 5}};
    NEED(writev(file, parts, 2) == 11);
    NEED(close(file) == 0);
    note_file("created", "one TWO\nthree four\n");
    file = creat("creat", 0600);
    NEED(file >= 0 && write(file, "x", 1) == 1 && close(file) == 0);
    put("stream", "w", "first\n");
    put("stream", "a", "second\n");
    put("stream", "r+", "FIRST");
    note_file("stream", "FIRST\nsecond\n");
    NEED(fopen("stream", "wx") == NULL && errno == EEXIST);
    put("exclusive", "wx", "new\n");
    NEED(fopen("missing", "r") == NULL && errno == ENOENT);
    NEED(fopen("missing", "r+") == NULL && errno == ENOENT);
    FILE *stream = fopen("reopened", "w");
    NEED(stream && fputs("a", stream) >= 0);
    NEED((stream = freopen("reopened2", "w+", stream)) != NULL);
    NEED(fputs("b", stream) >= 0);
    rewind(stream);
    NEED(fgetc(stream) == 'b');
    fclose(stream);
    note_file("reopened", "a");
    int mapped = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
    NEED(ftruncate(mapped, 10000) == 0);
    char *memory = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
    NEED(memory != MAP_FAILED);
    memcpy(memory + 5000, "in the middle", 13);
    NEED(munmap(memory, 10000) == 0);
    NEED(pread(mapped, text, 13, 5000) == 13);
    mix(text, 13);
    NEED(close(mapped) == 0);
}

static void names(void)
{
    put("old", "w", "content");
    NEED(rename("old", "new") == 0);
    FAILS(access("old", F_OK), ENOENT);
    NEED(access("new", R_OK | W_OK) == 0);
    note_file("new", "content");
    FAILS(rename("old", "newer"), ENOENT);
    put("other", "w", "other content");
    NEED(rename("other", "new") == 0);
    note_file("new", "other content");
    put("left", "w", "left");
    put("right", "w", "right");
    NEED(renameat2(AT_FDCWD, "left", AT_FDCWD, "right", RENAME_EXCHANGE) == 0);
    note_file("left", "right");
    FAILS(renameat2(AT_FDCWD, "left", AT_FDCWD, "right", RENAME_NOREPLACE), EEXIST);
    NEED(link("new", "linked") == 0);
    note_file("linked", "other content");
    FAILS(link("new", "linked"), EEXIST);
    put("to go", "w", "");
    NEED(unlink("to go") == 0);
    FAILS(unlink("to go"), ENOENT);
    struct stat found;
    FAILS(stat("to go", &found), ENOENT);
    put("to go", "w", "again");
    NEED(remove("to go") == 0);
    FAILS(open("to go", O_RDONLY), ENOENT);
    NEED(symlink("linked", "soft") == 0);
    char text[100];
    NEED(readlink("soft", text, sizeof text) == 6);
    NEED(lstat("soft", &found) == 0 && S_ISLNK(found.st_mode));
    put("soft", "a", " and more");
    note_file("linked", "other content and more");
    NEED(truncate("linked", 5) == 0);
    note_file("soft", "other");
    NEED(chmod("linked", 0600) == 0);
    NEED(stat("linked", &found) == 0);
    mix_number(found.st_mode);
    NEED(mkfifo("pipe", 0600) == 0);
    FAILS(mkfifo("pipe", 0600), EEXIST);
    NEED(remove("pipe") == 0);
}

static void folders(void)
{
    NEED(mkdir("folder", 0755) == 0);
    FAILS(mkdir("folder", 0755), EEXIST);
    put("folder/a", "w", "a");
    put("folder/b", "w", "b");
    NEED(chdir("folder") == 0);
    put("../folder/c", "w", "c");
    NEED(chdir("..") == 0);
    int folder = open("folder", O_RDONLY | O_DIRECTORY);
    NEED(folder >= 0);
    int file = openat(folder, "d", O_CREAT | O_WRONLY, 0644);
    NEED(file >= 0 && write(file, "d", 1) == 1 && close(file) == 0);
    NEED(faccessat(folder, "d", F_OK, 0) == 0);
    struct stat found;
    NEED(fstatat(folder, "d", &found, 0) == 0);
    mix_number(found.st_size);
    NEED(renameat(folder, "d", folder, "e") == 0);
    NEED(unlinkat(folder, "a", 0) == 0);
    NEED(close(folder) == 0);
    DIR *entries = opendir("folder");
    NEED(entries);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] != '.') {
            ++count;
        } else if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            FAIL("%s is in the folder", entry->d_name);
        }
    }
    closedir(entries);
    NEED(count == 3);
    struct dirent **list;
    NEED(scandir("folder", &list, NULL, alphasort) == 5);
    for (int i = 0; i < 5; ++i) {
        mix(list[i]->d_name, strlen(list[i]->d_name));
        free(list[i]);
    }
    free(list);
    FAILS(rmdir("folder"), ENOTEMPTY);
    NEED(rename("folder", "moved") == 0);
    note_file("moved/e", "d");
    put("moved/e", "a", "!");
    note_file("moved/e", "d!");
    NEED(mkdir("empty", 0700) == 0);
    put("empty/x", "w", "x");
    NEED(unlink("empty/x") == 0);
    NEED(rmdir("empty") == 0);
    FAILS(access("empty", F_OK), ENOENT);
}

static void temporaries(void)
{
    char template[] = "temporary-XXXXXX";
    int file = mkstemp(template);
    NEED(file >= 0);
    NEED(write(file, "temporary", 9) == 9 && close(file) == 0);
    mix(template, strlen(template) - 6);
    /* The name is the same in every replica: it goes into a message. */
    char first[sizeof template];
    memcpy(first, template, sizeof template);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    NEED(rename(template, "was temporary") == 0);
    note_file("was temporary", "temporary");
    char with_suffix[] = "XXXXXX.tmp";
    file = mkstemps(with_suffix, 4);
    NEED(file >= 0 && close(file) == 0);
    MPI_Bcast(with_suffix, sizeof with_suffix, MPI_CHAR, 0, MPI_COMM_SELF);
    NEED(unlink(with_suffix) == 0);
    char folder[] = "folder-XXXXXX";
    NEED(mkdtemp(folder) == folder);
    char name[100];
    snprintf(name, sizeof name, "%s/file", folder);
    put(name, "w", "in a folder that goes");
    note_file(name, "in a folder that goes");
    NEED(unlink(name) == 0 && rmdir(folder) == 0);
    FILE *unnamed = tmpfile();
    NEED(unnamed && fputs("nobody sees this", unnamed) >= 0);
    rewind(unnamed);
    NEED(fgetc(unnamed) == 'n');
    fclose(unnamed);
}

/* All ranks in one file, and a file that was there before. */
static void shared(void)
{
    if (rank == 0) {
        put("log", "a", "a line more\n");
        note_file("log", "was there before\na line more\n");
        NEED(rename("rotate", "rotated") == 0);
        put("rotate", "w", "after\n");
        note_file("rotated", "before\n");
        put("config", "r+", "CHANGED");
        note_file("config", "CHANGED=1\n");
        NEED(unlink("obsolete") == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    FAILS(access("obsolete", F_OK), ENOENT);
    note_file("config", "CHANGED=1\n");
    note_file("rotate", "after\n");
    int file = open("regions", O_RDWR | O_CREAT, 0644);
    NEED(file >= 0);
    char block[1000];
    memset(block, 'a' + rank, sizeof block);
    NEED(pwrite(file, block, sizeof block, (off_t) rank * 1000) == 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    int next = (rank + 1) % size;
    NEED(pread(file, block, sizeof block, (off_t) next * 1000) == 1000);
    NEED(block[0] == 'a' + next && block[999] == 'a' + next);
    mix(block, sizeof block);
    NEED(close(file) == 0);
    /* One of all gets the lock. */
    int lock = open("lock", O_CREAT | O_EXCL | O_WRONLY, 0600);
    int winners = lock >= 0, all = 0;
    NEED(winners || errno == EEXIST);
    MPI_Allreduce(&winners, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    NEED(all == 1);
    if (winners) {
        NEED(close(lock) == 0 && unlink("lock") == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    FAILS(access("lock", F_OK), ENOENT);
}

/* What a program may see of a file is the same in all replicas. */
static void numbers(void)
{
    struct stat found;
    put("numbers", "w", "12345");
    NEED(stat("numbers", &found) == 0);
    long long seen[3] = {found.st_ino, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
    long long sum[3];
    MPI_Allreduce(seen, sum, 3, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    int file = open("numbers", O_RDONLY);
    NEED(fstat(file, &found) == 0);
    NEED((long long) found.st_ino == seen[0]);
    close(file);
    struct statx more;
    NEED(statx(AT_FDCWD, "numbers", 0, STATX_ALL, &more) == 0);
    NEED((long long) more.stx_ino == seen[0] && more.stx_size == 5);
}

/* A child that is not redmpi's affair must neither wait nor reach the files. */
static void child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        int file = open("by a child", O_CREAT | O_WRONLY | O_TRUNC, 0644);
        _exit(file >= 0 && write(file, "child\n", 6) == 6 ? 0 : 1);
    }
    int status = -1;
    NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    shared();
    char own[20];
    snprintf(own, sizeof own, "rank%d", rank);
    NEED(mkdir(own, 0755) == 0 && chdir(own) == 0);
    opening();
    names();
    folders();
    temporaries();
    numbers();
    child();
    FILE *open_at_end = fopen("open at the end", "w");
    NEED(fputs("before and ", open_at_end) >= 0);
    finish("files");
    fputs("after\n", open_at_end);
    put("after", "w", "after MPI_Finalize");
    put("after", "a", "!");
    note_file("after", "after MPI_Finalize!");
    NEED(rename("after", "after all") == 0 && access("after", F_OK) < 0);
    put("gone", "w", "");
    NEED(unlink("gone") == 0 && access("gone", F_OK) < 0);
    return 0;
}
