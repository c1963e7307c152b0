#define _GNU_SOURCE
#include "CReactorLinux.h"
#include "fork.h"

#include <pthread.h>
#include <signal.h>

uint32_t reactor_forks;

static _Thread_local sigset_t mask_before_fork;

// A signal that the child receives meanwhile waits until its dispositions are its own.
static void prepare(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask_before_fork);
    reactor_signals_before_fork();
}

static void in_parent(void) {
    reactor_signals_after_fork();
    pthread_sigmask(SIG_SETMASK, &mask_before_fork, NULL);
}

static void in_child(void) {
    reactor_forks++;
    reactor_forget_loop_in_child();
    reactor_signals_in_child();
    pthread_sigmask(SIG_SETMASK, &mask_before_fork, NULL);
}

// A constructor: even without a run loop the parent may have subscriptions, which the child must not use.
__attribute__((constructor)) static void install_handlers(void) { pthread_atfork(prepare, in_parent, in_child); }
