#define _GNU_SOURCE
#include "CReactorLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif
#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

extern char **environ;

// MARK: Spawning

// vfork(2) instead of posix_spawn(3): the child marks every descriptor as close-on-exec, asks for a signal at
// its parent's death, and says which step has failed, none of which a file action of glibc 2.36 can do. The
// child shares the parent's memory, so it calls only what is async-signal-safe, and leaves with exec or
// _exit.

struct plan {
    const struct reactor_spawn *request;
    char **paths, **arguments, **environment;
    const char *folder;
    // Duplicates above every number that the child is to have.
    int *copies;
    int parent;
};

struct failure {
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

static bool make_plan(struct plan *plan, const struct reactor_spawn *request) {
    size_t words = request->path_count + request->argument_count + request->environment_count + 3;
    char **list = malloc(words * sizeof *list + request->descriptor_count * sizeof(int));
    if (!list) return false;
    plan->request = request;
    plan->paths = list;
    plan->arguments = plan->paths + request->path_count + 1;
    plan->environment = plan->arguments + request->argument_count + 1;
    plan->copies = (int *)(list + words);
    plan->parent = getpid();
    const char *rest = take(request->strings, request->path_count, plan->paths);
    rest = take(rest, request->argument_count, plan->arguments);
    rest = take(rest, request->environment_count, plan->environment);
    plan->folder = request->has_folder ? rest : NULL;
    if (request->inherits_environment) plan->environment = environ;
    return true;
}

static void close_on_exec(void) {
    if (syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
    // Before Linux 5.11.
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    for (int number = 3; number < (int)limit.rlim_cur; number++) fcntl(number, F_SETFD, FD_CLOEXEC);
}

// Ignored signals stay ignored across exec; a handler must not run in the child.
static void reset_dispositions(void) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int signal = 1; signal < NSIG; signal++) sigaction(signal, &action, NULL);
}

static int join_group(const struct reactor_spawn *request) {
    if (request->is_session_leader && setsid() < 0) return -1;
    if (!request->is_session_leader && request->group >= 0 && setpgid(0, request->group) < 0) return -1;
    return request->terminal < 0 ? 0 : ioctl(request->terminal, TIOCSCTTY, 0);
}

// Every source is copied first, because a target may have the number of another source.
static int pass_descriptors(const struct plan *plan, int floor) {
    size_t count = plan->request->descriptor_count;
    const int *sources = plan->request->descriptors, *targets = sources + count;
    for (size_t i = 0; i < count; i++) {
        plan->copies[i] = fcntl(sources[i], F_DUPFD_CLOEXEC, floor);
        if (plan->copies[i] < 0) return -1;
    }
    for (size_t i = 0; i < count; i++)
        if (dup2(plan->copies[i], targets[i]) < 0) return -1;
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

static int dies_with_parent(const struct plan *plan) {
    int signal = plan->request->death_signal;
    if (!signal) return 0;
    if (prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) < 0) return -1;
    if (getppid() != plan->parent) _exit(127); // it has died before
    return 0;
}

static int floor_of(const struct reactor_spawn *request) {
    int floor = 3;
    const int *targets = request->descriptors + request->descriptor_count;
    for (size_t i = 0; i < request->descriptor_count; i++)
        if (targets[i] >= floor && targets[i] < INT_MAX) floor = targets[i] + 1;
    return floor;
}

__attribute__((noreturn, noinline)) static void run_child(const struct plan *plan, int errors) {
    int floor = floor_of(plan->request);
    sigset_t none;
    sigemptyset(&none);
    reset_dispositions();
    close_on_exec();
    struct failure failure = {.stage = reactor_spawn_descriptors};
    int channel = fcntl(errors, F_DUPFD_CLOEXEC, floor);
    if (channel < 0) goto failed;
    errors = channel;
    failure.stage = reactor_spawn_process;
    if (dies_with_parent(plan) < 0 || join_group(plan->request) < 0) goto failed;
    failure.stage = reactor_spawn_folder;
    if (plan->folder && chdir(plan->folder) < 0) goto failed;
    failure.stage = reactor_spawn_descriptors;
    if (pass_descriptors(plan, floor) < 0) goto failed;
    failure.stage = reactor_spawn_program;
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(plan);
failed:
    failure.error = errno;
    while (write(errors, &failure, sizeof failure) < 0 && errno == EINTR) {}
    _exit(127);
}

static void collect(pid_t process) {
    while (waitpid(process, NULL, 0) < 0 && errno == EINTR) {}
}

// Reads what the child has to say before it is the program: nothing, unless it failed.
static struct failure failure_of(pid_t process, int errors) {
    struct failure failure = {0, 0};
    ssize_t count;
    do count = read(errors, &failure, sizeof failure);
    while (count < 0 && errno == EINTR);
    if (count == (ssize_t)sizeof failure) collect(process);
    return failure;
}

static struct reactor_spawned failed(int stage, int error) {
    return (struct reactor_spawned){.process = -1, .descriptor = -1, .stage = stage, .error = error};
}

static struct reactor_spawned start(const struct plan *plan, int errors[2]) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t process = vfork();
    if (process == 0) run_child(plan, errors[1]);
    int code = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(errors[1]);
    if (process < 0) return failed(reactor_spawn_process, code);
    struct failure failure = failure_of(process, errors[0]);
    if (failure.error) return failed(failure.stage, failure.error);
    // The child cannot be collected by other code that does not wait for any child, so the number is still
    // its own.
    int descriptor = (int)syscall(SYS_pidfd_open, process, 0);
    if (descriptor >= 0) return (struct reactor_spawned){.process = process, .descriptor = descriptor};
    code = errno;
    // While SIGCHLD is ignored the kernel collects a child at once, and another process may have its number.
    if (code != ESRCH) {
        kill(process, SIGKILL);
        collect(process);
    }
    return failed(reactor_spawn_descriptors, code);
}

struct reactor_spawned reactor_spawn_start(const struct reactor_spawn *request) {
    struct plan plan;
    int errors[2];
    if (pipe2(errors, O_CLOEXEC) < 0) return failed(reactor_spawn_descriptors, errno);
    struct reactor_spawned spawned = failed(reactor_spawn_process, ENOMEM);
    if (make_plan(&plan, request)) {
        spawned = start(&plan, errors);
        free(plan.paths);
    } else {
        close(errors[1]);
    }
    close(errors[0]);
    return spawned;
}

const char *reactor_environment_entry(size_t index) { return environ ? environ[index] : NULL; }

// MARK: A spawned process

static int64_t nanoseconds(struct timeval time) { return time.tv_sec * 1000000000LL + time.tv_usec * 1000LL; }

struct reactor_termination reactor_collect(int descriptor) {
    siginfo_t information = {0};
    struct rusage use = {0};
    long result;
    do result = syscall(SYS_waitid, P_PIDFD, descriptor, &information, WEXITED | WNOHANG, &use);
    while (result < 0 && errno == EINTR);
    if (result < 0) return (struct reactor_termination){.code = -errno};
    if (information.si_pid == 0) return (struct reactor_termination){.code = 0};
    return (struct reactor_termination){
        .code = information.si_code,
        .status = information.si_status,
        .user_nanoseconds = nanoseconds(use.ru_utime),
        .system_nanoseconds = nanoseconds(use.ru_stime),
        .resident_bytes = (int64_t)use.ru_maxrss * 1024,
        .minor_faults = use.ru_minflt,
        .major_faults = use.ru_majflt,
        .voluntary_switches = use.ru_nvcsw,
        .involuntary_switches = use.ru_nivcsw,
    };
}

int reactor_signal_process(int descriptor, int signal) {
    return (int)syscall(SYS_pidfd_send_signal, descriptor, signal, NULL, 0);
}

// MARK: Pseudo-terminals

int reactor_terminal_resize(int master, struct reactor_terminal_size size) {
    struct winsize window = {.ws_row = size.rows, .ws_col = size.columns};
    return ioctl(master, TIOCSWINSZ, &window);
}

int reactor_terminal_make(struct reactor_terminal_size size) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC), locked = 0;
    if (master < 0) return -1;
    if (ioctl(master, TIOCSPTLCK, &locked) == 0 && reactor_terminal_resize(master, size) == 0) return master;
    int code = errno;
    close(master);
    errno = code;
    return -1;
}

int reactor_terminal_open(int master) { return ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC); }
