// lines-program LINE-READER FILE [--strings]  Runs the example line-reader and prints
// cpu-s/GB GB/s tick-late-us heap-KB. The last two are from the program's own output.

#include "workloads.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

static double number(const char *json, const char *name) {
    const char *place = strstr(json, name);
    if (!place) exit(1);
    return strtod(place + strlen(name), NULL);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    char *arguments[] = {argv[1], "--json", argv[2], argc > 3 ? argv[3] : NULL, NULL};
    int ends[2], status;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (pipe(ends) < 0 || posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)) return 1;

    pid_t process;
    struct rusage usage;
    int64_t start = monotonic_ns();
    if (posix_spawn(&process, argv[1], &actions, NULL, arguments, environ)) return 1;
    close(ends[1]);
    char json[4096] = "";
    for (size_t count = 0; count < sizeof json - 1;) {
        ssize_t more = read(ends[0], json + count, sizeof json - 1 - count);
        if (more <= 0) break;
        count += (size_t)more;
    }
    if (wait4(process, &status, 0, &usage) < 0 || status) return 1;
    int64_t time = monotonic_ns() - start;

    double bytes = number(json, "\"bytes\":"), processor = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    printf("%f %f %.0f %.0f\n", processor / bytes * 1e9, bytes / (double)time,
           number(json, "\"tick_lateness_p99_us\":"), number(json, "\"peak_heap_bytes\":") / 1e3);
    return 0;
}
