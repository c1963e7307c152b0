#define _GNU_SOURCE
#include "CReactorLinux.h"
#include "signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

// The terminals whose settings are changed. Signal handlers and exit(3) read the list at any moment, so an entry is complete
// before it is taken, and never freed: it waits for the next user.
struct scope {
    struct scope *next;
    int input, output;
    struct termios before, during;
    // What is written to the output when the settings are changed, and before they are restored.
    char *entering, *leaving;
    // The process that changed them: a child of fork(2) does not restore its parent's.
    pid_t process;
    _Atomic bool is_taken;
    // Whether the settings are those of the scope now; not while the process is stopped.
    _Atomic bool is_entered;
};

static _Atomic(struct scope *) scopes;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static int scope_count;

// MARK: What signal handlers may call

// A process in the background leaves the terminal to the one in the foreground. Not its controlling terminal: it is its own.
static bool may_change(int terminal) {
    pid_t foreground = tcgetpgrp(terminal);
    return foreground < 0 || foreground == getpgrp();
}

// Writes what the terminal accepts within a second: its output may be stopped, by Control-S.
static void show(int terminal, const char *text) {
    size_t rest = strlen(text);
    while (rest > 0) {
        struct pollfd request = {.fd = terminal, .events = POLLOUT};
        if (poll(&request, 1, 1000) <= 0 || request.revents & (POLLERR | POLLHUP | POLLNVAL)) return;
        ssize_t count = write(terminal, text, rest);
        if (count <= 0) return;
        text += count;
        rest -= (size_t)count;
    }
}

static void enter(struct scope *scope) {
    if (!may_change(scope->input)) return;
    tcsetattr(scope->input, TCSANOW, &scope->during);
    if (!atomic_exchange(&scope->is_entered, true)) show(scope->output, scope->entering);
}

static void leave(struct scope *scope) {
    if (!atomic_exchange(&scope->is_entered, false) || !may_change(scope->input)) return;
    show(scope->output, scope->leaving);
    tcsetattr(scope->input, TCSANOW, &scope->before);
}

static bool is_active(const struct scope *scope) {
    return atomic_load(&scope->is_taken) && scope->process == getpid();
}

// The innermost scope is the first.
static void leave_all(void) {
    for (struct scope *each = atomic_load(&scopes); each; each = each->next)
        if (is_active(each)) leave(each);
}

// The outermost scope is the last.
static void enter_from(struct scope *scope) {
    if (!scope) return;
    enter_from(scope->next);
    if (is_active(scope)) enter(scope);
}

void reactor_terminals_resume(void) {
    int saved = errno;
    enter_from(atomic_load(&scopes));
    errno = saved;
}

// MARK: Signals

// Those that end a process, unless a fault has raised them, and then the faults.
static const int deadly[] = {
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGABRT, SIGSYS,
};
static const int faults[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV};
enum { deadly_count = sizeof deadly / sizeof *deadly, fault_count = sizeof faults / sizeof *faults };

// The actions of faults before, such as a backtracer's.
static struct sigaction before[NSIG];

static const struct sigaction default_action = {.sa_handler = SIG_DFL};

static struct sigaction handling(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | flags};
    sigfillset(&action.sa_mask);
    return action;
}

// The signal is blocked until the handler returns, and then does what it did before.
static void die(int signal) {
    int saved = errno;
    leave_all();
    sigaction(signal, &before[signal], NULL);
    raise(signal);
    errno = saved;
}

static void resume(int signal) {
    (void)signal;
    reactor_terminals_resume();
}

// Stops the process as the signal's default action does. Returns when it continues.
static void stop(int signal) {
    int saved = errno;
    leave_all();
    struct sigaction action;
    sigaction(signal, &default_action, &action);
    sigset_t this, mask;
    sigemptyset(&this);
    sigaddset(&this, signal);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &this, &mask);
    // Stopped here.
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    sigaction(signal, &action, NULL);
    reactor_terminals_resume();
    errno = saved;
}

static void catch_signals(void) {
    struct sigaction dying = handling(die, 0), stopping = handling(stop, SA_RESTART), resuming = handling(resume, SA_RESTART);
    for (int i = 0; i < deadly_count; i++) reactor_signal_replace(deadly[i], &default_action, &dying);
    for (int i = 0; i < fault_count; i++) sigaction(faults[i], &dying, &before[faults[i]]);
    reactor_signal_replace(SIGTSTP, &default_action, &stopping);
    reactor_signal_replace(SIGCONT, &default_action, &resuming);
}

static void release_signals(void) {
    struct sigaction dying = handling(die, 0), stopping = handling(stop, SA_RESTART), resuming = handling(resume, SA_RESTART);
    for (int i = 0; i < deadly_count; i++) reactor_signal_replace(deadly[i], &dying, &default_action);
    for (int i = 0; i < fault_count; i++) reactor_signal_replace(faults[i], &dying, &before[faults[i]]);
    reactor_signal_replace(SIGTSTP, &stopping, &default_action);
    reactor_signal_replace(SIGCONT, &resuming, &default_action);
}

// MARK: Scopes

static struct scope *free_scope(void) {
    // Only one at the front is free for another user: those behind it are outer ones.
    struct scope *first = atomic_load(&scopes);
    if (first && !atomic_load(&first->is_taken)) return first;
    struct scope *scope = calloc(1, sizeof *scope);
    if (!scope) return NULL;
    scope->next = first;
    atomic_store(&scopes, scope);
    return scope;
}

static bool set_texts(struct scope *scope, const char *entering, const char *leaving) {
    free(scope->entering);
    free(scope->leaving);
    scope->entering = strdup(entering);
    scope->leaving = strdup(leaving);
    return scope->entering && scope->leaving;
}

static void adjust(struct termios *settings, bool is_raw) {
    if (is_raw) cfmakeraw(settings);
    settings->c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    settings->c_cc[VMIN] = 1;
    settings->c_cc[VTIME] = 0;
}

static struct scope *begin(int input, int output, bool is_raw, const char *entering,
                                            const char *leaving) {
    struct scope *scope = free_scope();
    if (!scope) return NULL;
    if (tcgetattr(input, &scope->before) < 0) return NULL;
    if (!set_texts(scope, entering, leaving)) {
        errno = ENOMEM;
        return NULL;
    }
    scope->during = scope->before;
    adjust(&scope->during, is_raw);
    scope->input = input;
    scope->output = output;
    scope->process = getpid();
    return scope;
}

static void release(struct scope *scope) {
    atomic_store(&scope->is_taken, false);
    if (--scope_count == 0) release_signals();
}

void *reactor_terminal_begin(int input, int output, bool is_raw, const char *entering, const char *leaving) {
    static bool is_registered;
    pthread_mutex_lock(&registry);
    if (!is_registered) is_registered = atexit(leave_all) == 0;
    struct scope *scope = begin(input, output, is_raw, entering, leaving);
    if (scope) {
        if (scope_count++ == 0) catch_signals();
        atomic_store(&scope->is_taken, true);
        // Stops a process in the background here, until it is in the foreground.
        if (tcsetattr(input, TCSANOW, &scope->during) == 0) {
            enter(scope);
        } else {
            int error = errno;
            release(scope);
            errno = error;
            scope = NULL;
        }
    }
    pthread_mutex_unlock(&registry);
    return scope;
}

void reactor_terminal_end(void *scope) {
    pthread_mutex_lock(&registry);
    leave(scope);
    release(scope);
    pthread_mutex_unlock(&registry);
}

int64_t reactor_terminal_size(int terminal) {
    struct winsize size;
    return ioctl(terminal, TIOCGWINSZ, &size) < 0 ? -1 : (int64_t)size.ws_row << 16 | size.ws_col;
}
