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
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

// The terminals whose settings are changed. Signal handlers and exit(3) read the list at any moment, so an entry is complete
// before it is taken, and never freed: it waits for the next user.
struct scope {
    struct scope *next;
    int input, output;
    dev_t terminal;
    struct termios before, during;
    // Its own ``before``, or that of an outer scope, which has ended before this one.
    _Atomic(const struct termios *) restored;
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

// How many signal handlers read the list: its strings stay until they are done.
static _Atomic int reader_count;

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

// Noted before the settings are changed, so that a signal in between restores them.
static void enter(struct scope *scope) {
    if (!may_change(scope->input)) return;
    bool was_entered = atomic_exchange(&scope->is_entered, true);
    tcsetattr(scope->input, TCSANOW, &scope->during);
    if (!was_entered) show(scope->output, scope->entering);
}

static void leave(struct scope *scope) {
    if (!atomic_exchange(&scope->is_entered, false) || !may_change(scope->input)) return;
    show(scope->output, scope->leaving);
    tcsetattr(scope->input, TCSANOW, atomic_load(&scope->restored));
}

static bool is_active(const struct scope *scope) {
    return atomic_load(&scope->is_taken) && scope->process == getpid();
}

// The innermost scope is the first.
static void leave_all(void) {
    atomic_fetch_add(&reader_count, 1);
    for (struct scope *each = atomic_load(&scopes); each; each = each->next)
        if (is_active(each)) leave(each);
    atomic_fetch_sub(&reader_count, 1);
}

// The outermost scope is the last.
static void enter_from(struct scope *scope) {
    if (!scope) return;
    enter_from(scope->next);
    if (is_active(scope)) enter(scope);
}

void reactor_terminals_resume(void) {
    int saved = errno;
    atomic_fetch_add(&reader_count, 1);
    enter_from(atomic_load(&scopes));
    atomic_fetch_sub(&reader_count, 1);
    errno = saved;
}

// MARK: Signals

// Those that end a process, unless a fault has raised them, and then the faults.
static const int deadly[] = {
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGABRT, SIGSYS,
    SIGIO, SIGPWR, SIGSTKFLT,
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

// Puts the handler in the place of an action, or takes it back.
static void replace(int signal, const struct sigaction *usual, const struct sigaction *handler, bool is_caught) {
    reactor_signal_replace(signal, is_caught ? usual : handler, is_caught ? handler : usual);
}

static void catch_signals(bool is_caught) {
    struct sigaction dying = handling(die, 0), stopping = handling(stop, SA_RESTART), resuming = handling(resume, SA_RESTART);
    for (int i = 0; i < deadly_count; i++) replace(deadly[i], &default_action, &dying, is_caught);
    for (int i = 0; i < fault_count; i++) {
        if (is_caught) sigaction(faults[i], NULL, &before[faults[i]]);
        replace(faults[i], &before[faults[i]], &dying, is_caught);
    }
    replace(SIGTSTP, &default_action, &stopping, is_caught);
    replace(SIGCONT, &default_action, &resuming, is_caught);
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
    while (atomic_load(&reader_count) > 0) usleep(1000);
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
    struct stat status;
    if (tcgetattr(input, &scope->before) < 0 || fstat(input, &status) < 0) return NULL;
    if (!set_texts(scope, entering, leaving)) {
        errno = ENOMEM;
        return NULL;
    }
    scope->terminal = status.st_rdev;
    atomic_store(&scope->restored, &scope->before);
    scope->during = scope->before;
    adjust(&scope->during, is_raw);
    scope->input = input;
    scope->output = output;
    scope->process = getpid();
    return scope;
}

// Changes the settings. Stops a process in the background here, until it is in the foreground.
static bool change(struct scope *scope) {
    // Noted before, as in enter().
    atomic_store(&scope->is_entered, true);
    atomic_store(&scope->is_taken, true);
    if (tcsetattr(scope->input, TCSANOW, &scope->during) == 0) {
        show(scope->output, scope->entering);
        return true;
    }
    atomic_store(&scope->is_taken, false);
    atomic_store(&scope->is_entered, false);
    return false;
}

static void lock(void) { pthread_mutex_lock(&registry); }

static void unlock(void) { pthread_mutex_unlock(&registry); }

void *reactor_terminal_begin(int input, int output, bool is_raw, const char *entering, const char *leaving) {
    static bool is_registered;
    lock();
    if (!is_registered) is_registered = atexit(leave_all) == 0 && pthread_atfork(lock, unlock, unlock) == 0;
    struct scope *scope = begin(input, output, is_raw, entering, leaving);
    if (scope) {
        if (scope_count++ == 0) catch_signals(true);
        if (!change(scope)) {
            int error = errno;
            if (--scope_count == 0) catch_signals(false);
            errno = error;
            scope = NULL;
        }
    }
    unlock();
    return scope;
}

// The active scope that is the next inner one of the same terminal; null for the innermost.
static struct scope *inner(struct scope *scope) {
    struct scope *found = NULL;
    for (struct scope *each = atomic_load(&scopes); each != scope; each = each->next)
        if (is_active(each) && each->terminal == scope->terminal) found = each;
    return found;
}

// Leaves the settings to the next inner scope, if there is one, which then restores those from before this scope.
static void leave_or_hand_over(struct scope *scope, struct scope *heir) {
    if (!heir) return leave(scope);
    atomic_store(&heir->restored, atomic_load(&scope->restored));
    if (atomic_exchange(&scope->is_entered, false)) show(scope->output, scope->leaving);
}

void reactor_terminal_end(void *token) {
    struct scope *scope = token;
    lock();
    struct scope *heir = inner(scope);
    leave_or_hand_over(scope, heir);
    atomic_store(&scope->is_taken, false);
    // The process may have continued after a stop meanwhile.
    leave_or_hand_over(scope, heir);
    if (--scope_count == 0) catch_signals(false);
    unlock();
}

int64_t reactor_terminal_size(int terminal) {
    struct winsize size;
    return ioctl(terminal, TIOCGWINSZ, &size) < 0 ? -1 : (int64_t)size.ws_row << 16 | size.ws_col;
}
