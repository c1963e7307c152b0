// inject [OPTION]… -- COMMAND…  Runs a command, and returns an error from chosen system calls of it in the kernel's place;
//                               or limits its descriptors; or shortens its writes; or stops and continues it.
//
//   --call CALL@KIND   the system call, as --record names it; without @KIND on any descriptor
//   --error NAME       what it returns, such as EMFILE
//   --when N           only the N-th call; without it, every one
//   --descriptors N    lets the command open only N more descriptors than are open at the begin (prlimit(2))
//   --short N          lets a write to a stream socket move at most N bytes
//   --stops yes        stops the command and continues it (SIGSTOP, SIGCONT), about once a millisecond
//   --stop N           stops it once for 300 ms, at its N-th system call
//   --record FILE      writes CALL@KIND and how often the command has made it, one a line
//   --report FILE      writes how the command ended; without it, to standard error
//   --deadline MS      ends a command that takes longer; 5,000 without it
//
// The program under test is not instrumented. It marks where its work begins and ends: write(2) to descriptor -1 of 0 and of 1
// bytes. Only calls between the two count, of all its threads and of its children until they call execve(2).
//
// A seccomp filter stops the command at the chosen call only, so that everything else runs at full speed, and ptrace(2)
// replaces the call by its error. close(2) is executed all the same: Linux closes the descriptor whatever close returns.
//
// The report has one line: what happened (exit N, signal N, spin, hang), then injected=N processor=MS wall=MS. spin is a hang
// that takes more than 5 % of a processor. A limit is injected once; each stop, and each call that is
// shortened, counts.

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __x86_64__
#error "inject changes the registers of x86-64"
#endif

static const struct { const char *name; long number; } calls[] = {
#define CALL(name) {#name, __NR_##name},
#include "calls.h" // made from <asm/unistd_64.h>
};

static struct {
    const char *call, *record, *report;
    long number;
    int error, when, deadline, descriptors, most, stop;
    bool stops;
} options = {.number = -1, .deadline = 5000, .descriptors = -1};

static pid_t program;
static enum { before, during, after } phase;
static int injected, made;

static _Noreturn void fail(const char *what) {
    perror(what);
    exit(125);
}

static const char *name_of(long number) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].number == number) return calls[i].name;
    return "unknown";
}

static long number_of(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strlen(calls[i].name) == length && memcmp(calls[i].name, name, length) == 0) return calls[i].number;
    fprintf(stderr, "inject: no system call %s\n", name);
    exit(125);
}

static int error_named(const char *name) {
    for (int error = 1; error < 140; error++) {
        const char *known = strerrorname_np(error);
        if (known && strcmp(known, name) == 0) return error;
    }
    fprintf(stderr, "inject: no error %s\n", name);
    exit(125);
}

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/// The processor time of the program, in milliseconds.
static long processor_time(void) {
    clockid_t clock;
    struct timespec time;
    if (clock_getcpuclockid(program, &clock) || clock_gettime(clock, &time)) return 0;
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

// MARK: - What a call is

/// The descriptor that a call is about; -1 if it has none.
static int descriptor_of(long number, const struct user_regs_struct *registers) {
    switch (number) {
        case SYS_read: case SYS_write: case SYS_readv: case SYS_writev: case SYS_pread64: case SYS_pwrite64:
        case SYS_preadv: case SYS_preadv2: case SYS_pwritev: case SYS_pwritev2: case SYS_close: case SYS_accept:
        case SYS_accept4: case SYS_bind: case SYS_listen: case SYS_connect: case SYS_getsockname: case SYS_getpeername:
        case SYS_getsockopt: case SYS_setsockopt: case SYS_shutdown: case SYS_sendto: case SYS_sendmsg: case SYS_sendmmsg:
        case SYS_recvfrom: case SYS_recvmsg: case SYS_recvmmsg: case SYS_fcntl: case SYS_ioctl: case SYS_ftruncate:
        case SYS_lseek: case SYS_fstat: case SYS_dup: case SYS_dup2: case SYS_dup3: case SYS_sendfile:
            return (int)registers->rdi;
        case SYS_epoll_ctl: return (int)registers->rdx;
        case SYS_waitid: return registers->rdi == 3 /* P_PIDFD */ ? (int)registers->rsi : -1;
        default: return -1;
    }
}

/// A part of the call's name, where its errors differ by it.
static const char *operation_of(long number, const struct user_regs_struct *registers) {
    if (number == SYS_epoll_ctl)
        return registers->rsi == EPOLL_CTL_ADD ? ":add" : registers->rsi == EPOLL_CTL_MOD ? ":modify" : ":delete";
    if (number == SYS_futex) {
        int operation = registers->rsi & FUTEX_CMD_MASK;
        return operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET ? ":wait" : ":other";
    }
    if (number == SYS_newfstatat) return registers->r10 & AT_EMPTY_PATH ? ":descriptor" : ":path";
    if (number != SYS_fcntl) return "";
    switch (registers->rsi) {
        case F_DUPFD: case F_DUPFD_CLOEXEC: return ":duplicate";
        case F_GETFD: case F_SETFD: case F_GETFL: case F_SETFL: return ":flags";
        default: return ":other";
    }
}

static const char *kind_of_socket(pid_t task, int descriptor) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", task);
    FILE *file = fopen(path, "re");
    int group = task;
    while (file && fgets(line, sizeof line, file) && sscanf(line, "Tgid: %d", &group) != 1) {}
    if (file) fclose(file);
    int process = (int)syscall(SYS_pidfd_open, group, 0);
    int copy = (int)syscall(SYS_pidfd_getfd, process, descriptor, 0);
    int domain = 0, type = 0;
    socklen_t size = sizeof(int);
    getsockopt(copy, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    getsockopt(copy, SOL_SOCKET, SO_TYPE, &type, &size);
    close(copy);
    close(process);
    if (domain == AF_UNIX) return type == SOCK_DGRAM ? "unix-datagram" : "unix";
    return type == SOCK_DGRAM ? "udp" : type == SOCK_STREAM ? "tcp" : "socket";
}

/// Whether the descriptor has O_NONBLOCK.
static bool is_non_blocking(pid_t task, int descriptor) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", task, descriptor);
    FILE *file = fopen(path, "re");
    unsigned flags = 0;
    while (file && fgets(line, sizeof line, file) && sscanf(line, "flags: %o", &flags) != 1) {}
    if (file) fclose(file);
    return flags & O_NONBLOCK;
}

static const char *kind_of(pid_t task, int descriptor) {
    static const struct { const char *prefix, *kind; } kinds[] = {
        {"anon_inode:[eventfd]", "eventfd"}, {"anon_inode:[eventpoll]", "epoll"}, {"anon_inode:[timerfd]", "timerfd"},
        {"anon_inode:[signalfd]", "signalfd"}, {"anon_inode:inotify", "inotify"}, {"anon_inode:[pidfd]", "pidfd"},
        {"pidfd:", "pidfd"}, {"/dev/", "device"}, {"/", "file"},
    };
    char path[64], target[256];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", task, descriptor);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return "none";
    target[length] = 0;
    if (strncmp(target, "socket:", 7) == 0) return kind_of_socket(task, descriptor);
    if (strncmp(target, "pipe:", 5) == 0) return is_non_blocking(task, descriptor) ? "pipe" : "blocking-pipe";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(target, kinds[i].prefix, strlen(kinds[i].prefix)) == 0) return kinds[i].kind;
    return "other";
}

/// Whether a call opens a file of proc(5), as libdispatch does to count its threads.
static bool opens_proc(pid_t task, const struct user_regs_struct *registers) {
    if (registers->orig_rax != SYS_openat) return false;
    long start = ptrace(PTRACE_PEEKDATA, task, registers->rsi, 0);
    return memcmp(&start, "/proc/", 6) == 0;
}

/// CALL@KIND, CALL:OPERATION@KIND or CALL.
static const char *describe(pid_t task, const struct user_regs_struct *registers) {
    static char text[96];
    long number = (long)registers->orig_rax;
    if (opens_proc(task, registers)) return "openat@proc";
    int descriptor = descriptor_of(number, registers);
    snprintf(text, sizeof text, "%s%s%s%s", name_of(number), operation_of(number, registers), descriptor < 0 ? "" : "@",
             descriptor < 0 ? "" : kind_of(task, descriptor));
    return text;
}

/// Whether an epoll(7) of the program reports the descriptor only at its edges.
static bool is_edge_triggered(int descriptor) {
    bool result = false;
    for (int epoll = 0; epoll < 64 && !result; epoll++) {
        char path[64], line[256];
        int target;
        unsigned events;
        snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", program, epoll);
        FILE *file = fopen(path, "re");
        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, "tfd: %d events: %x", &target, &events) == 2 && target == descriptor) result |= events >> 31;
        if (file) fclose(file);
    }
    return result;
}

// MARK: - The record

static struct { char name[96]; int count; } record[512];
static size_t recorded;

static void note(const char *name) {
    size_t i = 0;
    while (i < recorded && strcmp(record[i].name, name) != 0) i++;
    if (i == sizeof record / sizeof *record) return;
    if (i == recorded) strcpy(record[recorded++].name, name);
    record[i].count++;
}

// MARK: - Limits, short writes and stops

static struct rlimit old_limit;

/// Sets the limit to the number of the (N + 1)-th free descriptor, because the kernel returns the lowest free number.
static void limit_descriptors(void) {
    char path[64];
    for (int descriptor = 0, left = options.descriptors;; descriptor++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", program, descriptor);
        if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || left-- > 0) continue;
        if (prlimit(program, RLIMIT_NOFILE, NULL, &old_limit)) fail("prlimit");
        struct rlimit limit = {(rlim_t)descriptor, old_limit.rlim_max};
        if (prlimit(program, RLIMIT_NOFILE, &limit, NULL)) fail("prlimit");
        injected++;
        return;
    }
}

/// The programs that a child executes, and the report, are not limited.
static void lift_limit(pid_t task) {
    if (old_limit.rlim_cur) prlimit(task, RLIMIT_NOFILE, &old_limit, NULL);
}

/// What the registers of a call were before it was shortened, by task.
static struct { pid_t task; unsigned long long rsi, rdx; } shortened[64];

/// Lets a call write fewer bytes to a stream socket than the program asks for, as if there were little room: so the peer's bytes come
/// in small pieces, too. Of several buffers the first is used; sendmsg(2) is left alone. A read is not shortened, because its length
/// tells a program that nothing is left (epoll(7)). Returns whether the registers have to be restored at the end of the call.
static bool shorten(pid_t task, struct user_regs_struct *registers) {
    long number = (long)registers->orig_rax;
    if (number != SYS_write && number != SYS_sendto && number != SYS_writev) return false;
    const char *kind = kind_of(task, (int)registers->rdi);
    if (strcmp(kind, "tcp") != 0 && strcmp(kind, "unix") != 0) return false;
    bool has_vector = number == SYS_writev;
    size_t place = 0;
    while (place < sizeof shortened / sizeof *shortened && shortened[place].task && shortened[place].task != task) place++;
    if (place == sizeof shortened / sizeof *shortened) fail("too many threads write");
    unsigned long long length = registers->rdx, most = (unsigned long long)options.most;
    if (has_vector) length = (unsigned long long)ptrace(PTRACE_PEEKDATA, task, registers->rsi + 8, 0);
    if (length <= most && !(has_vector && registers->rdx > 1)) return false;
    // After a short write, room is not reported again.
    if (is_edge_triggered((int)registers->rdi)) return false;
    shortened[place].task = task;
    shortened[place].rsi = registers->rsi;
    shortened[place].rdx = registers->rdx;
    if (has_vector) {
        // Another vector, below what the program uses of its stack.
        unsigned long long vector = registers->rsp - 256;
        long base = ptrace(PTRACE_PEEKDATA, task, registers->rsi, 0);
        ptrace(PTRACE_POKEDATA, task, vector, base);
        ptrace(PTRACE_POKEDATA, task, vector + 8, length < most ? length : most);
        registers->rsi = vector;
    }
    registers->rdx = has_vector ? 1 : most;
    ptrace(PTRACE_SETREGS, task, 0, registers);
    injected++;
    return true;
}

static bool is_stopped;
static long stopped_until;

static void stop(long duration) {
    kill(program, SIGSTOP);
    is_stopped = true;
    stopped_until = now() + duration;
    injected++;
}

/// Stops the program if it runs, and continues it if its stop is over. Called at each tick of the clock.
static void alternate(void) {
    if (!is_stopped) {
        if (options.stops && phase == during) stop(0);
    } else if (now() >= stopped_until) {
        kill(program, SIGCONT);
        is_stopped = false;
    }
}

// MARK: - Children that have called execve(2): their calls are not the program's

static pid_t strangers[4096];
static size_t stranger_count;

static bool is_stranger(pid_t task) {
    for (size_t i = 0; i < stranger_count; i++)
        if (strangers[i] == task) return true;
    return false;
}

static void begin_program(pid_t task) {
    if (task == program) return;
    if (stranger_count < sizeof strangers / sizeof *strangers) strangers[stranger_count++] = task;
    lift_limit(task);
}

// MARK: - The tracer

/// Runs the command with a filter that stops it at the chosen call, at any call for a record, and at the marks.
static _Noreturn void start(char **command, int gate) {
    char byte;
    if (read(gate, &byte, 1) != 1) _exit(125);
    close(gate);
    setsid();
    uint32_t chosen = options.record || options.stop || options.most ? SECCOMP_RET_TRACE : SECCOMP_RET_ALLOW;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)options.number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)-1, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, chosen),
    };
    struct sock_fprog code = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code)) fail("seccomp");
    execvp(*command, command);
    fail(*command);
}

/// Whether this call gets the error.
static bool is_chosen(pid_t task, const struct user_regs_struct *registers) {
    if (phase != during || is_stranger(task) || (long)registers->orig_rax != options.number) return false;
    if (strcmp(describe(task, registers), options.call) != 0) return false;
    made++;
    if (options.when && made != options.when) return false;
    // What the call leaves in such a descriptor is not reported again.
    return options.error != EAGAIN || !is_edge_triggered(descriptor_of(options.number, registers));
}

/// Handles a call that the filter stops at. Returns how the task continues.
static enum __ptrace_request handle_call(pid_t task) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, task, 0, &registers)) return PTRACE_CONT;
    if (registers.orig_rax == SYS_write && (int)registers.rdi == -1) {
        phase = registers.rdx ? after : during;
        if (phase == during && options.descriptors >= 0) limit_descriptors();
        if (phase == after) lift_limit(program);
        return PTRACE_CONT;
    }
    if (options.most && phase == during && !is_stranger(task) && shorten(task, &registers)) return PTRACE_SYSCALL;
    if (options.stop && phase == during && !is_stranger(task) && ++made == options.stop) stop(300);
    if (options.record && phase == during && !is_stranger(task)) note(describe(task, &registers));
    if (!is_chosen(task, &registers)) return PTRACE_CONT;
    injected++;
    if (registers.orig_rax == SYS_close) return PTRACE_SYSCALL; // the error follows at its exit
    registers.orig_rax = (unsigned long long)-1;
    registers.rax = (unsigned long long)-options.error;
    ptrace(PTRACE_SETREGS, task, 0, &registers);
    return PTRACE_CONT;
}

/// Handles the end of a call that continued with PTRACE_SYSCALL.
static void finish_call(pid_t task) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, task, 0, &registers)) return;
    if (!options.most) registers.rax = (unsigned long long)-options.error;
    for (size_t i = 0; options.most && i < sizeof shortened / sizeof *shortened; i++) {
        if (shortened[i].task != task) continue;
        registers.rsi = shortened[i].rsi;
        registers.rdx = shortened[i].rdx;
        shortened[i].task = 0;
    }
    ptrace(PTRACE_SETREGS, task, 0, &registers);
}

/// Lets a stopped task continue.
static void resume(pid_t task, int status) {
    int signal = WSTOPSIG(status), event = status >> 16;
    if (event == PTRACE_EVENT_SECCOMP) {
        ptrace(handle_call(task), task, 0, 0);
    } else if (event == PTRACE_EVENT_STOP) {
        bool is_group = signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
        ptrace(is_group ? PTRACE_LISTEN : PTRACE_CONT, task, 0, 0);
    } else if (event) {
        if (event == PTRACE_EVENT_EXEC) begin_program(task);
        ptrace(PTRACE_CONT, task, 0, 0);
    } else if (signal == (SIGTRAP | 0x80)) {
        finish_call(task);
        ptrace(PTRACE_CONT, task, 0, 0);
    } else {
        ptrace(PTRACE_CONT, task, 0, (long)signal);
    }
}

static volatile sig_atomic_t has_ticked;

/// Interrupts wait4(2).
static void tick(int signal) {
    (void)signal;
    has_ticked = true;
}

/// Follows the program until it ends or its time is over; writes what happened into `text`.
static void follow(char *text, size_t size) {
    long begin = now(), sampled = 0;
    struct rusage use = {0};
    int status;
    for (;;) {
        pid_t task = wait4(-1, &status, __WALL, &use);
        long time = now() - begin;
        if (task == program && !WIFSTOPPED(status)) break;
        if (task > 0 && WIFSTOPPED(status)) resume(task, status);
        if (has_ticked) alternate();
        has_ticked = false;
        if (time >= options.deadline - 1000 && !sampled) sampled = processor_time();
        if (time >= options.deadline) {
            long total = processor_time();
            snprintf(text, size, "%s injected=%d processor=%ld wall=%ld\n", total - sampled > 50 ? "spin" : "hang", injected,
                     total, time);
            return;
        }
    }
    long total = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000 + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000;
    snprintf(text, size, "%s %d injected=%d processor=%ld wall=%ld\n", WIFEXITED(status) ? "exit" : "signal",
             WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), injected, total, now() - begin);
}

static char **parse(int count, char **arguments) {
    for (int i = 1; i < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];
        if (strcmp(name, "--") == 0 && value) return arguments + i + 1;
        if (!value) break;
        if (strcmp(name, "--call") == 0) options.call = value;
        else if (strcmp(name, "--error") == 0) options.error = error_named(value);
        else if (strcmp(name, "--when") == 0) options.when = atoi(value);
        else if (strcmp(name, "--descriptors") == 0) options.descriptors = atoi(value);
        else if (strcmp(name, "--short") == 0) options.most = atoi(value);
        else if (strcmp(name, "--stops") == 0) options.stops = true;
        else if (strcmp(name, "--stop") == 0) options.stop = atoi(value);
        else if (strcmp(name, "--record") == 0) options.record = value;
        else if (strcmp(name, "--report") == 0) options.report = value;
        else if (strcmp(name, "--deadline") == 0) options.deadline = atoi(value);
        else break;
    }
    fprintf(stderr, "usage: inject [--call CALL@KIND --error NAME [--when N] | --descriptors N | --short N | --stops yes | "
                    "--stop N] [--record FILE] [--report FILE] -- COMMAND…\n");
    exit(125);
}

/// Starts the command and traces it.
static void launch(char **command) {
    int gate[2];
    if (pipe2(gate, O_CLOEXEC)) fail("pipe");
    program = fork();
    if (program < 0) fail("fork");
    if (program == 0) start(command, gate[0]);
    long flags = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                 PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
    if (ptrace(PTRACE_SEIZE, program, 0, flags)) fail("ptrace");
    if (write(gate[1], "", 1) != 1) fail("write");
}

int main(int count, char **arguments) {
    char **command = parse(count, arguments);
    if (options.call) options.number = number_of(options.call, strcspn(options.call, ":@"));
    launch(command);
    struct sigaction action = {.sa_handler = tick};
    sigaction(SIGALRM, &action, NULL);
    int interval = options.stops ? 500 : 50000;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, interval}, {0, interval}}, NULL);
    char text[128];
    follow(text, sizeof text);
    kill(-program, SIGKILL);
    FILE *report = options.report ? fopen(options.report, "we") : stderr;
    if (report) fputs(text, report);
    FILE *list = options.record ? fopen(options.record, "we") : NULL;
    for (size_t i = 0; list && i < recorded; i++) fprintf(list, "%s %d\n", record[i].name, record[i].count);
    return 0;
}
