// What the programs in C share: marks, and the ways to end.

#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { echo_size = 256 << 10, ring_size = 5, hop_count = 100, client_count = 50 };

/// Marks the begin or the end of what the injector may disturb.
static inline void mark(bool begins) {
    char byte = 0;
    if (write(-1, &byte, begins ? 0 : 1) >= 0) abort();
}

__attribute__((noreturn)) static inline void end(int status, const char *kind, const char *format, va_list arguments) {
    mark(false);
    fputs(kind, stdout);
    vprintf(format, arguments);
    puts("");
    fflush(NULL);
    _exit(status);
}

/// The library has reported an error.
__attribute__((noreturn)) static inline void reported(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    end(1, "reported: ", format, arguments);
}

/// The promise was not kept, and no error was reported.
__attribute__((noreturn)) static inline void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    end(2, "wrong: ", format, arguments);
}

/// The promise was kept. Called when everything is closed that the workload has opened.
__attribute__((noreturn)) static inline void right(const char *result) {
    mark(false);
    int counts[2] = {0, 0}; // of files, pipes and sockets; of counters, timers and epolls
    struct stat status;
    for (int descriptor = 0; descriptor < 1000; descriptor++)
        if (fstat(descriptor, &status) == 0) counts[(status.st_mode & S_IFMT) == 0]++;
    printf("right %s open=%d+%d\n", result, counts[0], counts[1]);
    fflush(NULL);
    _exit(0);
}

static inline int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/// The byte of the echo at an index.
static inline char byte_at(size_t index) { return (char)(index ^ index >> 8); }
