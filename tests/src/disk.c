/* Preloaded into a redis-server: a disk that is slow or full, and the record of how much of the
   append-only file is on it. The test and the server share one file of numbers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct disk {
    /* The time of each fdatasync and fsync. */
    volatile uint64_t delay_us;
    /* Whether the append-only file cannot grow. */
    volatile uint64_t is_full;
    /* The length of the append-only file when the last fdatasync that has returned was called. */
    volatile uint64_t synced;
    /* Whether the next fdatasync or fsync never returns, and whether one does not. */
    volatile uint64_t hangs;
    volatile uint64_t is_hanging;
};

static struct disk none;
static struct disk *disk = &none;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LOCK_DISK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *shared = mmap(NULL, sizeof(struct disk), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) disk = shared;
    close(file);
}

static int is_log(const char *path) { return strstr(path, ".incr.aof") != NULL; }

static int is_log_file(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_log(path);
}

static int sync_file(int (*sync)(int), int file) {
    struct stat before;
    int is_kept = is_log_file(file) && fstat(file, &before) == 0;
    if (is_kept && disk->delay_us) usleep(disk->delay_us);
    while (is_kept && disk->hangs) {
        disk->is_hanging = 1;
        pause();
    }
    int result = sync(file);
    /* Written until the call: what came since may not be on the disk. */
    if (is_kept && result == 0) disk->synced = before.st_size;
    return result;
}

int fdatasync(int file) { return sync_file((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"), file); }

int fsync(int file) { return sync_file((int (*)(int))dlsym(RTLD_NEXT, "fsync"), file); }

ssize_t write(int file, const void *bytes, size_t count) {
    if (disk->is_full && is_log_file(file)) {
        errno = ENOSPC;
        return -1;
    }
    return ((ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(file, bytes, count);
}

/* A server that starts cuts off a command that is not whole. */
int truncate(const char *path, off_t length) {
    if (is_log(path) && disk->synced > (uint64_t)length) disk->synced = length;
    return ((int (*)(const char *, off_t))dlsym(RTLD_NEXT, "truncate"))(path, length);
}
