/* The wall clock of a process, as many seconds ahead of the machine's as stand in a file: preloaded into a server
 * by ServerClock. libfaketime does not start a server with jemalloc. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Nothing until the constructor has run: the allocator asks for the time before. */
static const volatile int64_t *ahead;

__attribute__((constructor)) static void find(void) {
    const char *path = getenv("LOCK_TESTS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (found == MAP_FAILED) abort();
    ahead = found;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!failed && is_wall && ahead) now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec wall;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &wall);
    now->tv_sec = wall.tv_sec;
    now->tv_usec = wall.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (now) *now = wall.tv_sec;
    return wall.tv_sec;
}
