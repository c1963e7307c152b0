// start RUNS PROGRAM [ARGUMENT]...  Runs a program and prints wall-ms p90-ms cpu-ms peak-KiB wake-ups.
// Written in C, because a process inherits its parent's peak memory, which must therefore be small.

#include "workloads.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

static int compare(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static double milliseconds(struct timeval time) { return (double)time.tv_sec * 1e3 + (double)time.tv_usec / 1e3; }

static int64_t run(char **arguments, struct rusage *usage) {
    pid_t process;
    int status;
    int64_t start = monotonic_ns();
    if (posix_spawnp(&process, arguments[0], NULL, NULL, arguments, environ)) exit(1);
    if (wait4(process, &status, 0, usage) < 0 || status) exit(1);
    return monotonic_ns() - start;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t runs = strtoull(argv[1], NULL, 0);
    int64_t *walls = calloc(runs + 1, sizeof *walls);
    struct rusage usage;
    double processor = 0;
    long peak = 0, switches = 0;
    if (runs > 1) run(argv + 2, &usage); // warms the page cache
    for (size_t i = 0; i < runs; i++) {
        walls[i] = run(argv + 2, &usage);
        processor += milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
        switches += usage.ru_nvcsw;
        if (usage.ru_maxrss > peak) peak = usage.ru_maxrss;
    }
    qsort(walls, runs, sizeof *walls, compare);
    printf("%.2f %.2f %.2f %ld %.1f\n", (double)walls[runs / 2] / 1e6, (double)walls[runs * 9 / 10] / 1e6,
           processor / (double)runs, peak, (double)switches / (double)runs);
}
