// A program in C with an event loop of its own, which knows nothing but poll(2). A library in Swift reads the lines of standard
// input in it: poll-host

#include "lines.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int count;

static void print_line(const char *line) { printf("%d: %s\n", ++count, line); }

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int descriptor = lines_begin(STDIN_FILENO, print_line);
    if (descriptor < 0) {
        fprintf(stderr, "poll-host: %s\n", strerror(-descriptor));
        return 1;
    }
    struct pollfd requests[] = {{.fd = descriptor, .events = POLLIN}}; // and the program's own
    do {
        poll(requests, 1, -1);
    } while (!(requests[0].revents & POLLIN) || lines_dispatch());
    lines_end();
    printf("%d lines\n", count);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "poll-host: standard output cannot be written\n");
        return 1;
    }
    return 0;
}
