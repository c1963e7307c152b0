#define _GNU_SOURCE
#include "CReactorLinux.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Constants of the kernel that not every C library declares.
enum {
    close_range_cloexec = 4, clone_pidfd = 0x1000, waitid_pidfd = 3, signal_process_group = 4,
    sys_pidfd_send_signal = 424, sys_close_range = 436
};

extern char **environ;

// clone(2) instead of posix_spawn(3): the child marks every descriptor as close-on-exec, asks for a signal at
// its parent's death, says which step has failed, and has a pidfd from its beginning, none of which glibc 2.36 can do.
// The child shares the parent's memory, and the parent's thread waits until it runs the program or ends. It calls
// only what is async-signal-safe.

// The sanitizers replace clone(2) by a function for children with memory of their own.
extern __typeof__(clone) __clone;

struct plan {
    const struct reactor_spawn *request;
    char **paths, **arguments, **environment;
    // The parent's descriptors, and the child's numbers for them.
    const int *sources, *targets;
    // Duplicates with numbers that the child is not to have.
    int *copies;
    int parent;
    // "LISTEN_PID=" and the child's number.
    char process_variable[24];
    // The child's: the step that it is at, and the errno that has ended it.
    int stage, error;
};

// Fills `list` with the addresses of `count` strings, and returns what follows the last.
static const char *take(const char *strings, size_t count, char **list) {
    for (size_t i = 0; i < count; i++) {
        list[i] = (char *)strings;
        strings += strlen(strings) + 1;
    }
    list[count] = NULL;
    return strings;
}

static bool make_plan(struct plan *plan, const struct reactor_spawn *request, const char *strings, const int *descriptors) {
    size_t words = request->path_count + request->argument_count + request->variable_count + 4;
    char **list = malloc(words * sizeof *list + request->descriptor_count * sizeof(int));
    if (!list) return false;
    *plan = (struct plan){.request = request, .paths = list, .sources = descriptors, .parent = getpid()};
    plan->targets = plan->sources + request->descriptor_count;
    plan->arguments = plan->paths + request->path_count + 1;
    plan->environment = plan->arguments + request->argument_count + 1;
    plan->copies = (int *)(list + words);
    strings = take(strings, request->path_count, plan->paths);
    strings = take(strings, request->argument_count, plan->arguments);
    take(strings, request->variable_count, plan->environment);
    if (request->names_process) {
        strcpy(plan->process_variable, "LISTEN_PID=");
        plan->environment[request->variable_count] = plan->process_variable;
        plan->environment[request->variable_count + 1] = NULL;
    }
    if (request->inherits_environment) plan->environment = environ;
    return true;
}

// The sanitizers' records are the parent's: the child's code and calls must not change them.
#ifdef __clang__
#pragma clang attribute push(__attribute__((disable_sanitizer_instrumentation)), apply_to = function)
#endif

// Before Linux 5.11.
static int close_listed_on_exec(void) {
    int folder = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    _Alignas(struct dirent64) char entries[1024];
    long count;
    while ((count = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
        for (long offset = 0; offset < count;) {
            const struct dirent64 *entry = (const struct dirent64 *)(entries + offset);
            int number = atoi(entry->d_name);
            if (number > STDERR_FILENO) fcntl(number, F_SETFD, FD_CLOEXEC);
            offset += entry->d_reclen;
        }
    return (int)count;
}

static int close_on_exec(void) {
    if (syscall(sys_close_range, 3, ~0U, close_range_cloexec) == 0) return 0;
    return close_listed_on_exec();
}

// Ignored signals stay ignored across exec; a handler must not run in the child.
static void reset_dispositions(void) {
    // The kernel's sigaction, of SIG_DFL.
    static const char action[64];
    for (int signal = 1; signal < NSIG; signal++) syscall(SYS_rt_sigaction, signal, action, NULL, (NSIG - 1) / 8);
}

static int join_group(const struct reactor_spawn *request) {
    if (request->is_session_leader && setsid() < 0) return -1;
    if (!request->is_session_leader && request->group != -1 && setpgid(0, request->group) < 0) return -1;
    return request->terminal < 0 ? 0 : ioctl(request->terminal, TIOCSCTTY, 0);
}

static bool is_target(const struct plan *plan, int number) {
    for (size_t i = 0; i < plan->request->descriptor_count; i++)
        if (plan->targets[i] == number) return true;
    return false;
}

// A duplicate that has the number of no target.
static int copy_descriptor(const struct plan *plan, int source) {
    int copy, floor = 3;
    while ((copy = fcntl(source, F_DUPFD_CLOEXEC, floor)) >= 0 && is_target(plan, copy)) {
        close(copy);
        floor = copy + 1;
    }
    return copy;
}

// Every source is copied first, because a target may have the number of another source.
static int pass_descriptors(const struct plan *plan) {
    size_t count = plan->request->descriptor_count;
    for (size_t i = 0; i < count; i++) {
        plan->copies[i] = copy_descriptor(plan, plan->sources[i]);
        if (plan->copies[i] < 0) return -1;
    }
    for (size_t i = 0; i < count; i++)
        if (syscall(SYS_dup3, plan->copies[i], plan->targets[i], 0) < 0) return -1;
    return 0;
}

static int execute(const struct plan *plan) {
    int error = ENOENT;
    for (char **path = plan->paths; *path; path++) {
        execve(*path, plan->arguments, plan->environment);
        if (errno == ENOENT || errno == ENOTDIR) continue;
        error = errno;
        if (errno != EACCES) break;
    }
    errno = error;
    return -1;
}

static int die_with_parent(const struct plan *plan) {
    int signal = plan->request->death_signal;
    if (!signal) return 0;
    if (prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) < 0) return -1;
    return getppid() == plan->parent ? 0 : -1; // it has died before
}

// No library function formats a number in an async-signal-safe way.
static void complete_process_variable(struct plan *plan) {
    char digits[12];
    int count = 0;
    for (pid_t rest = getpid(); rest; rest /= 10) digits[count++] = (char)('0' + rest % 10);
    char *end = plan->process_variable + sizeof "LISTEN_PID=" - 1;
    while (count) *end++ = digits[--count];
    *end = 0;
}

// Returns only if a step fails.
static void run_program(struct plan *plan) {
    sigset_t none;
    sigemptyset(&none);
    reset_dispositions();
    plan->stage = reactor_spawn_descriptors;
    if (close_on_exec() < 0) return;
    plan->stage = reactor_spawn_process;
    if (die_with_parent(plan) < 0 || join_group(plan->request) < 0) return;
    plan->stage = reactor_spawn_folder;
    if (plan->request->folder >= 0 && fchdir(plan->request->folder) < 0) return;
    plan->stage = reactor_spawn_descriptors;
    if (pass_descriptors(plan) < 0) return;
    plan->stage = reactor_spawn_program;
    complete_process_variable(plan);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(plan);
}

static int run_child(void *plan) {
    run_program(plan);
    ((struct plan *)plan)->error = errno;
    return 127;
}

#ifdef __clang__
#pragma clang attribute pop
#endif

static struct reactor_spawned failed(int stage, int error) {
    return (struct reactor_spawned){.process = -1, .descriptor = -1, .stage = stage, .error = error};
}

static struct reactor_spawned start(struct plan *plan) {
    _Alignas(16) char stack[32 * 1024];
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int descriptor = -1, flags = CLONE_VM | CLONE_VFORK | clone_pidfd | SIGCHLD;
    pid_t process = __clone(run_child, stack + sizeof stack, flags, plan, &descriptor);
    int code = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (process < 0) return failed(reactor_spawn_process, code);
    if (!plan->error) return (struct reactor_spawned){.process = process, .descriptor = descriptor};
    reactor_collect(descriptor, true, false);
    close(descriptor);
    return failed(plan->stage, plan->error);
}

struct reactor_spawned reactor_spawn_start(struct reactor_spawn request, const char *strings, const int *descriptors) {
    struct plan plan;
    if (!make_plan(&plan, &request, strings, descriptors)) return failed(reactor_spawn_process, ENOMEM);
    struct reactor_spawned spawned = start(&plan);
    free(plan.paths);
    return spawned;
}

// MARK: A spawned process

static int64_t microseconds(struct timeval time) { return (int64_t)time.tv_sec * 1000000 + time.tv_usec; }

struct reactor_end reactor_collect(int descriptor, bool waits, bool keeps) {
    siginfo_t information = {.si_pid = 0};
    struct rusage use = {0};
    int options = WEXITED | (waits ? 0 : WNOHANG) | (keeps ? WNOWAIT : 0);
    long result;
    do result = syscall(SYS_waitid, waitid_pidfd, descriptor, &information, options, &use);
    while (result < 0 && errno == EINTR);
    int code = result < 0 ? -errno : information.si_pid == 0 ? 0 : information.si_code;
    return (struct reactor_end){
        code, information.si_status, microseconds(use.ru_utime), microseconds(use.ru_stime), use.ru_maxrss,
    };
}

int reactor_signal_process(int descriptor, int signal) {
    return (int)syscall(sys_pidfd_send_signal, descriptor, signal, NULL, 0);
}

int reactor_signal_group(int descriptor, int leader, int signal) {
    if (syscall(sys_pidfd_send_signal, descriptor, signal, NULL, signal_process_group) == 0) return 0;
    if (errno != EINVAL) return -1;
    // Before Linux 6.9: by the number, which a collected leader has no more.
    return reactor_signal_process(descriptor, 0) < 0 ? -1 : kill(-leader, signal);
}

// MARK: Pseudo-terminals

int reactor_terminal_resize(int master, uint16_t rows, uint16_t columns) {
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    return ioctl(master, TIOCSWINSZ, &size);
}

int reactor_terminal_unlock(int master) { return ioctl(master, TIOCSPTLCK, &(int){0}); }

int reactor_terminal_open(int master) { return ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC); }
