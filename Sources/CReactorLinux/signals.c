#define _GNU_SOURCE
#include "CReactorLinux.h"
#include "signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A subscription is a node in a list that only grows. When a subscriber leaves, its eventfd is closed, and the node waits
// for the next subscriber of the same signal: a running handler may still have it in hand.
struct subscription {
    struct subscription *next;
    int signal;
    bool is_taken;
    // An eventfd, while the node is taken.
    int descriptor;
    // Whether the handler counts the signal in it.
    _Atomic bool is_catching;
    // The handlers that may write to the descriptor.
    _Atomic unsigned writers;
    // The fork count when it was made: a child does not end its parent's subscriptions.
    uint32_t forks;
};

static _Atomic(struct subscription *) subscriptions;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static int subscribers[NSIG];
static struct sigaction found[NSIG];

static void deliver(int signal) {
    int saved = errno;
    uint64_t one = 1;
    if (signal == SIGCONT) reactor_terminals_resume();
    for (struct subscription *each = atomic_load(&subscriptions); each; each = each->next) {
        if (each->signal != signal || !atomic_load(&each->is_catching)) continue;
        atomic_fetch_add(&each->writers, 1);
        // Looks again: a subscriber that stopped before the count grew does not wait for this handler.
        if (atomic_load(&each->is_catching) && write(each->descriptor, &one, sizeof one) < 0) {} // full, and so readable
        atomic_fetch_sub(&each->writers, 1);
    }
    errno = saved;
}

// Installs the handler, whatever other code has installed. The last subscriber restores that disposition.
static int install(int signal) {
    struct sigaction action = {.sa_handler = deliver, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    struct sigaction before;
    if (sigaction(signal, &action, &before) < 0) return -1;
    if (before.sa_handler != deliver) found[signal] = before;
    return 0;
}

// A disposition that other code has installed since stays.
static void restore(int signal) {
    struct sigaction current;
    if (sigaction(signal, NULL, &current) == 0 && current.sa_handler == deliver) sigaction(signal, &found[signal], NULL);
}

void reactor_signal_replace(int signal, const struct sigaction *from, const struct sigaction *to) {
    struct sigaction current;
    pthread_mutex_lock(&registry);
    if (sigaction(signal, NULL, &current) == 0) {
        if (current.sa_handler == from->sa_handler) sigaction(signal, to, NULL);
        if (current.sa_handler == deliver && found[signal].sa_handler == from->sa_handler) found[signal] = *to;
    }
    pthread_mutex_unlock(&registry);
}

static struct subscription *free_node(int signal) {
    for (struct subscription *each = atomic_load(&subscriptions); each; each = each->next)
        if (each->signal == signal && !each->is_taken) return each;
    struct subscription *node = calloc(1, sizeof *node);
    if (!node) return NULL;
    *node = (struct subscription){.next = atomic_load(&subscriptions), .signal = signal, .forks = reactor_forks};
    atomic_store(&subscriptions, node);
    return node;
}

// Returns when no handler writes to the node's descriptor. Later handlers do not begin to.
static void stop_counting(struct subscription *node) {
    atomic_store(&node->is_catching, false);
    // Not sched_yield(2): that does not let a thread of lower priority finish its handler.
    while (atomic_load(&node->writers) > 0) usleep(10);
}

static void close_descriptor(struct subscription *node) {
    close(node->descriptor);
    node->is_taken = false;
}

static void stop(struct subscription *node) {
    if (!atomic_load(&node->is_catching)) return;
    if (--subscribers[node->signal] == 0) restore(node->signal);
    // After the earlier action is back: no signal is lost between the two.
    stop_counting(node);
}

// Signals that report an error of the current instruction: returning from a handler would repeat it forever.
static bool is_fault(int signal) {
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGTRAP;
}

// Takes a node, and installs the handler. NULL with errno.
static struct subscription *subscribe(int signal) {
    struct subscription *node = free_node(signal);
    if (!node || (node->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) return NULL;
    // Before the handler is installed: no signal is lost between the two.
    node->is_taken = true;
    atomic_store(&node->is_catching, true);
    if (install(signal) == 0) {
        subscribers[signal]++;
        return node;
    }
    int error = errno;
    stop_counting(node);
    close_descriptor(node);
    errno = error;
    return NULL;
}

int reactor_signal_subscribe(int signal, uintptr_t *token) {
    if (signal <= 0 || signal >= NSIG || is_fault(signal)) {
        errno = EINVAL;
        return -1;
    }
    reactor_count_forks();
    pthread_mutex_lock(&registry);
    struct subscription *node = subscribe(signal);
    pthread_mutex_unlock(&registry);
    *token = (uintptr_t)node;
    return node ? node->descriptor : -1;
}

// Calls `change` unless this is a child of the process that made the subscription.
static void in_registry(uintptr_t token, void (*change)(struct subscription *)) {
    struct subscription *node = (struct subscription *)token;
    pthread_mutex_lock(&registry);
    if (node->forks == reactor_forks) change(node);
    pthread_mutex_unlock(&registry);
}

static void install_again(struct subscription *node) {
    if (atomic_load(&node->is_catching)) install(node->signal);
}

static void end(struct subscription *node) {
    stop(node);
    close_descriptor(node);
}

void reactor_signal_catch(uintptr_t token) { in_registry(token, install_again); }

void reactor_signal_stop(uintptr_t token) { in_registry(token, stop); }

void reactor_signal_unsubscribe(uintptr_t token) { in_registry(token, end); }

// MARK: fork(2)

uint32_t reactor_forks;

static _Thread_local sigset_t mask_before_fork;

// A signal that the child receives meanwhile waits until its dispositions are its own.
static void prepare(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask_before_fork);
    pthread_mutex_lock(&registry);
}

static void finish(void) {
    pthread_mutex_unlock(&registry);
    pthread_sigmask(SIG_SETMASK, &mask_before_fork, NULL);
}

// The child shares the parent's eventfds, so it takes new ones.
static void in_child(void) {
    reactor_forks++;
    reactor_forget_loop_in_child();
    for (int signal = 1; signal < NSIG; signal++) {
        if (subscribers[signal] > 0) restore(signal);
        subscribers[signal] = 0;
    }
    atomic_store(&subscriptions, NULL);
    finish();
}

static void install_handlers(void) {
    pthread_atfork(prepare, finish, in_child);
    __atomic_store_n(&reactor_forks, 1, __ATOMIC_RELAXED);
}

uint32_t reactor_count_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_handlers);
    return reactor_fork_count();
}

const char *reactor_signal_name(int signal) { return sigabbrev_np(signal); }
