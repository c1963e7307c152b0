// The baseline: a lock-free list that the loop removes as a whole, and an eventfd that is written only if the list was
// empty.

#include "workloads.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct job {
    struct job *next;
    posted_function function;
    void *context;
};

struct loop {
    int poller, counter;
    _Atomic(struct job *) last;
};

static void *make(void) {
    struct loop *loop = calloc(1, sizeof *loop);
    loop->poller = epoll_create1(EPOLL_CLOEXEC);
    loop->counter = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    epoll_ctl(loop->poller, EPOLL_CTL_ADD, loop->counter, &event);
    return loop;
}

static void post(void *context, posted_function function, void *argument) {
    struct loop *loop = context;
    struct job *job = malloc(sizeof *job), *last = atomic_load_explicit(&loop->last, memory_order_relaxed);
    *job = (struct job){.function = function, .context = argument};
    do job->next = last;
    while (!atomic_compare_exchange_weak_explicit(&loop->last, &last, job, memory_order_release, memory_order_relaxed));
    uint64_t one = 1;
    if (!last && write(loop->counter, &one, sizeof one) < 0) abort();
}

static struct job *reversed(struct job *last) {
    struct job *first = NULL;
    while (last) {
        struct job *next = last->next;
        last->next = first;
        first = last;
        last = next;
    }
    return first;
}

static void run(void *context) {
    struct loop *loop = context;
    struct epoll_event event;
    for (;;) {
        epoll_wait(loop->poller, &event, 1, -1);
        struct job *job = reversed(atomic_exchange_explicit(&loop->last, NULL, memory_order_acquire));
        while (job) {
            struct job *next = job->next;
            job->function(job->context);
            free(job);
            job = next;
        }
    }
}

int main(int argc, char **argv) {
    struct cross_peer peer = {make, run, post};
    return run_cross(&peer, argc, argv);
}
