#define _GNU_SOURCE
#include "client.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t server;
static clockid_t processor;

void stay_on(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    if (sched_setaffinity(0, sizeof set, &set)) die("sched_setaffinity");
}

static _Noreturn void become(char **arguments, int output) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    stay_on(server_core);
    dup2(output, STDOUT_FILENO);
    execvp(arguments[0], arguments);
    die(arguments[0]);
}

void start_server(char **arguments) {
    int output[2];
    if (pipe2(output, O_CLOEXEC)) die("pipe2");
    if ((server = fork()) == 0) become(arguments, output[1]);
    close(output[1]);
    FILE *lines = fdopen(output[0], "r");
    if (server < 0 || !lines || fscanf(lines, "%d", &port) != 1) reject("The server did not print its port.");
    if (clock_getcpuclockid(server, &processor)) reject("The server has no processor clock.");
}

// Signals the process group, because strace(1) runs until its program ends.
void end_server(void) {
    kill(-server, SIGTERM);
    waitpid(server, NULL, 0);
}

int64_t server_processor_ns(void) {
    struct timespec time;
    if (clock_gettime(processor, &time)) die("the server's clock");
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

size_t server_memory(void) {
    char path[64], line[256];
    size_t kibibytes = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", server);
    FILE *file = fopen(path, "r");
    if (!file) die(path);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Anonymous: %zu", &kibibytes) == 1) break;
    fclose(file);
    return kibibytes << 10;
}

size_t server_descriptors(void) {
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", server);
    DIR *directory = opendir(path);
    if (!directory) die(path);
    for (struct dirent *entry; (entry = readdir(directory));) count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}
