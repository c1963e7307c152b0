#define _GNU_SOURCE
#include "CReactorLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

uint32_t reactor_diagnostics;

// A constructor, because an item that is made before the first loop knows its place, too.
__attribute__((constructor)) static void read_environment(void) {
    const char *value = getenv("REACTOR_DEBUG");
    if (value && strcmp(value, "1") == 0) reactor_set_diagnostics(2, true);
}

static _Thread_local uint64_t current_loop, last_poll;
static _Thread_local void *current_loop_object, *replaced_clocks;
static _Thread_local bool had_loop, captures_messages;
static _Thread_local jmp_buf *error_target;
static _Thread_local enum { unknown, yes, no } is_main_thread;

uint64_t reactor_current_loop(void) { return current_loop; }
uint64_t reactor_last_poll(void) { return last_poll; }
uint64_t reactor_count_poll(void) { return last_poll = (last_poll & ~(uint64_t)UINT32_MAX) | (uint32_t)(last_poll + 1); }
void reactor_set_last_poll(uint64_t poll) { last_poll = poll; }
void *reactor_current_loop_object(void) { return current_loop_object; }

void reactor_set_current_loop(uint64_t identity, void *object) {
    current_loop = identity;
    last_poll = identity << 32;
    current_loop_object = object;
}

bool reactor_had_loop_before_fork(void) { return had_loop; }

void reactor_forget_loop_in_child(void) {
    if (current_loop_object) had_loop = true;
    reactor_set_current_loop(0, NULL);
    is_main_thread = unknown;
}

void *reactor_replaced_clocks(void) { return replaced_clocks; }
void reactor_replace_clocks(void *clocks) { replaced_clocks = clocks; }

// The runtime's hook for tests and for embedding, whose type is in its headers.
typedef __attribute__((swiftcall)) void (*enqueue_function)(void *job);
extern __attribute__((swiftcall)) void (*swift_task_enqueueGlobal_hook)(void *job, enqueue_function original);
static bool (*redirect_job)(void *job);

static __attribute__((swiftcall)) void enqueue_or_redirect(void *job, enqueue_function original) {
    if (!replaced_clocks || !redirect_job(job)) original(job);
}

void reactor_redirect_jobs(bool (*enqueue)(void *job)) {
    redirect_job = enqueue;
    if (!swift_task_enqueueGlobal_hook) swift_task_enqueueGlobal_hook = enqueue_or_redirect;
}

// Called for every change that another thread makes to the main loop: two system calls, once for each thread.
bool reactor_is_main_thread(void) {
    if (is_main_thread == unknown) is_main_thread = syscall(SYS_gettid) == getpid() ? yes : no;
    return is_main_thread == yes;
}

pid_t reactor_thread_number(void) { return (pid_t)syscall(SYS_gettid); }

// Not from the thread's stat and schedstat, which are shorter: some kernels have no counts there.
int64_t reactor_sleep_count(pid_t thread) {
    char text[4096];
    snprintf(text, sizeof text, "/proc/self/task/%d/status", (int)thread);
    int file = open(text, O_RDONLY | O_CLOEXEC);
    // A thread that has ended since it was listed has run.
    if (file < 0) return errno == ENOENT ? 0 : -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return length < 0 && errno == ESRCH ? 0 : -1;
    text[length] = 0;
    const char *state = strstr(text, "\nState:\t"), *counts = strstr(text, "\nvoluntary_ctxt_switches:");
    long long voluntary, other;
    if (!state || !counts || sscanf(counts, " %*s %lld %*s %lld", &voluntary, &other) != 2) return -1;
    // D waits for a disk.
    return state[8] == 'R' || state[8] == 'D' ? 0 : voluntary + other + 1;
}

// libdispatch's; its headers need the blocks of clang.
extern const char *dispatch_queue_get_label(void *queue);

bool reactor_is_on_pool_thread(void) {
    // Of a thread that no queue uses it says the second. A thread's name would tell less: it differs between versions of
    // libdispatch, and a program may use the same one.
    const char *label = dispatch_queue_get_label(NULL);
    return !reactor_is_main_thread() && strcmp(label, "com.apple.main-thread") != 0
        && strcmp(label, "com.apple.root.default-qos.overcommit") != 0;
}

int64_t reactor_timer_slack(void) {
    int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    return slack > 0 ? slack : 0;
}

void reactor_capture_messages(bool captures) { captures_messages = captures; }
void reactor_leave_at_error(jmp_buf *target) { error_target = target; }

void reactor_note_message(int severity, const char *message) {
    static const char *const names[] = {"debug", "msg", "warn", "err"};
    bool is_error = severity == 3;
    if (captures_messages && !is_error) return;
    if (captures_messages && error_target) longjmp(*error_target, 1);
    // As libevent prints it.
    char line[512];
    snprintf(line, sizeof line, "[%s] %s\n", severity >= 0 && severity < 4 ? names[severity] : "???", message);
    reactor_write(STDERR_FILENO, line, strlen(line));
    if (captures_messages) abort();
}
