// A list behind a mutex, and an event that is activated from the posting thread when the list was empty.

#include "workloads.h"

#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdlib.h>

struct job {
    struct job *next;
    posted_function function;
    void *context;
};

struct loop {
    struct event_base *base;
    struct event *wake;
    pthread_mutex_t mutex;
    struct job *first, **end;
};

static struct job *take(struct loop *loop) {
    pthread_mutex_lock(&loop->mutex);
    struct job *first = loop->first;
    loop->first = NULL;
    loop->end = &loop->first;
    pthread_mutex_unlock(&loop->mutex);
    return first;
}

static void drain(evutil_socket_t descriptor, short what, void *context) {
    (void)descriptor, (void)what;
    struct job *job = take(context);
    while (job) {
        struct job *next = job->next;
        job->function(job->context);
        free(job);
        job = next;
    }
}

static void *make(void) {
    evthread_use_pthreads();
    struct loop *loop = calloc(1, sizeof *loop);
    pthread_mutex_init(&loop->mutex, NULL);
    loop->end = &loop->first;
    loop->base = event_base_new();
    loop->wake = event_new(loop->base, -1, EV_PERSIST, drain, loop);
    return loop;
}

static void run(void *context) {
    event_base_loop(((struct loop *)context)->base, EVLOOP_NO_EXIT_ON_EMPTY);
}

static void post(void *context, posted_function function, void *argument) {
    struct loop *loop = context;
    struct job *job = malloc(sizeof *job);
    *job = (struct job){.function = function, .context = argument};
    pthread_mutex_lock(&loop->mutex);
    int was_empty = !loop->first;
    *loop->end = job;
    loop->end = &job->next;
    pthread_mutex_unlock(&loop->mutex);
    if (was_empty) event_active(loop->wake, 0, 0);
}

int main(int argc, char **argv) {
    struct cross_peer peer = {make, run, post};
    return run_cross(&peer, argc, argv);
}
